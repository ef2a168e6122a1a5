//! End-to-end tests: the real binary in a process of its own, spoken to as users speak to it.
//!
//! One test program with modules, since each program that links the planner costs seconds of linking.

#![allow(clippy::disallowed_methods, reason = "these tests stand outside the process and keep their own time")]

mod cli;
mod durability;
mod equivalence;
mod errors;
mod files;
mod flights;
mod harness;
mod nexmark;
mod rest;
mod sinks;
mod tutorial;
