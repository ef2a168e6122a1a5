//! Operators: synchronous, push-based, knowing nothing of actors, clocks or I/O.
//!
//! Reading order: [`operator`] (the contract), [`build`] (from plan to operator), [`linear`] (filter, project, row id, blackhole),
//! [`agg`], [`join`], [`materialize`], [`backfill`]; below them [`state`] (hash tables, row arenas, table writes) and [`row_errors`].

pub mod agg;
pub mod backfill;
pub mod build;
pub mod join;
pub mod linear;
pub mod materialize;
pub mod operator;
pub mod row_errors;
pub mod state;
#[cfg(test)]
mod testing;

pub use build::{ShardSpec, chain_operator, head_operator};
pub use operator::{OpContext, Operator, StateRequest, StateRows, Step};
