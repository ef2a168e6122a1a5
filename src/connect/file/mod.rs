//! The `file` connector: CSV, NDJSON and Parquet files below a path or URL with wildcards.
//!
//! Reading order: [`spec`] (options), [`place`] (path and pattern), [`reader`] (which file next), [`open`] (a file met again),
//! [`text`] with [`csv`] and [`json`], [`parquet`], [`offset`] (what is saved), [`fetch`] (requests to the store).

mod csv;
mod fetch;
mod json;
mod offset;
mod open;
mod parquet;
mod place;
mod reader;
mod spec;
mod text;

#[cfg(test)]
mod cases_test;
#[cfg(test)]
mod resume_test;

pub(crate) use reader::FileReader;
pub(crate) use spec::FileSpec;

use eddyline_types::{Error, SqlState};

/// The position of a column's name among a file's: exactly first, then without regard to case.
fn match_name<S: AsRef<str>>(names: &[S], wanted: &str) -> Option<usize> {
    let exact = names.iter().position(|n| n.as_ref() == wanted);
    exact.or_else(|| names.iter().position(|n| n.as_ref().to_lowercase() == wanted.to_lowercase()))
}

/// The note that a file lacks a column; its rows have NULL there.
fn missing_column(name: &str) -> Error {
    Error::user(SqlState::UNDEFINED_COLUMN, format!("the file has no column \"{name}\"; it is NULL in all rows of the file"))
}
