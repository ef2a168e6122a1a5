//! Text in, statements out: the SQL front end and the planners. Pure: no I/O, no clock, no async.
//!
//! Reading order: [`statement`] (what comes out), [`mod@parse`] (text to trees), `bind` (trees to statements: names, types, batch
//! plans), `stream` (queries to fragment graphs), `encode` (scalar expressions in plans).

mod bind;
mod encode;
pub mod parse;
pub mod statement;
mod stream;

#[cfg(test)]
mod tests;

pub use bind::bind;
pub(crate) use bind::shown as bind_output_name;
pub use parse::parse;
pub use statement::{BindContext, Bound, NoSystemTables, Parsed, SystemTables};
