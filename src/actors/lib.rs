//! The stream engine: operators, the task of a shard, its actor shell, dispatch and the worker that builds domains. The sole home of actix.
//!
//! Reading order: [`operators`] (what happens to rows; knows no actors), then the runtime that drives them.

pub mod operators;
