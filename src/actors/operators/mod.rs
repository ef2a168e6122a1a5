//! Operators: synchronous, push-based, knowing nothing of actors, clocks or I/O.

pub mod operator;

pub use operator::{OpContext, Operator, StateRequest, StateRows, Step};
