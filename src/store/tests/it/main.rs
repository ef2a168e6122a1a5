//! The store from outside: against a model, on damaged objects, promise by promise; and its benchmarks.

mod bench;
mod common;
mod damage;
mod model;
mod store;
