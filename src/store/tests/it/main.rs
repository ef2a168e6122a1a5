//! The store from outside: against a model, on damaged objects, promise by promise; and its benchmarks.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod bench;
mod common;
mod damage;
mod model;
mod store;
