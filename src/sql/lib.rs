//! Text in, statements out: the SQL front end and the planners. Pure: no I/O, no clock, no async.
//!
//! Reading order: [`statement`] (what comes out), [`parse`] (text to trees), `bind` (trees to statements).

pub mod parse;
pub mod statement;

pub use parse::parse;
pub use statement::{BindContext, Bound, NoSystemTables, Parsed, SystemTables};
