//! `Node`: the only code that knows every crate; it builds the engines and wires them, and decides nothing.
//!
//! Reading order: [`node`] (start, run, stop), [`system`] (what the system catalog shows of a node), [`config`], [`logging`], then the program's
//! subcommands: [`demo`], [`shell`], [`mod@bench`].

pub mod bench;
pub mod config;
pub mod demo;
pub mod logging;
pub mod node;
pub mod shell;
pub mod system;

pub use node::{Node, runtime, wait_for_signal};
