//! Operators: synchronous, push-based, knowing nothing of actors, clocks or I/O.

pub mod build;
pub mod operator;

pub use build::{ShardSpec, chain_operator, head_operator};
pub use operator::{OpContext, Operator, StateRequest, StateRows, Step};
