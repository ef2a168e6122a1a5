//! Failures of DataFusion and Arrow as errors with SQLSTATE and Postgres' wording.
//!
//! The libraries give text, so this module reads text; what it does not know stays as it is, under a general SQLSTATE.

use crate::pg_types;
use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use eddyline_types::{Error, ErrorKind, SqlState};
use regex::Regex;
use std::sync::LazyLock;

/// The error that a failed evaluation, plan or execution means for a user.
pub fn from_datafusion(error: DataFusionError) -> Error {
    match error {
        DataFusionError::ArrowError(e, _) => from_arrow(*e),
        DataFusionError::External(e) => match e.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(other) => match other.downcast::<DataFusionError>() {
                Ok(inner) => from_datafusion(*inner),
                Err(other) => match other.downcast::<ArrowError>() {
                    Ok(inner) => from_arrow(*inner),
                    Err(other) => Error::internal(other.to_string()),
                },
            },
        },
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => from_datafusion(*inner),
        DataFusionError::Shared(inner) => match std::sync::Arc::try_unwrap(inner) {
            Ok(inner) => from_datafusion(inner),
            Err(shared) => from_shared(&shared),
        },
        DataFusionError::Collection(mut all) if !all.is_empty() => from_datafusion(all.swap_remove(0)),
        DataFusionError::Execution(m) => from_text(&m).unwrap_or_else(|| Error::user(SqlState::DATA_EXCEPTION, m)),
        DataFusionError::NotImplemented(m) => Error::unsupported(m),
        DataFusionError::Plan(m) => from_text(&m).unwrap_or_else(|| Error::user(SqlState::SYNTAX_ERROR, m)),
        DataFusionError::SchemaError(e, _) => Error::user(SqlState::UNDEFINED_COLUMN, e.to_string()),
        DataFusionError::ResourcesExhausted(m) => Error::new(ErrorKind::User, SqlState::OUT_OF_MEMORY, "out of memory").with_detail(m),
        other => Error::internal(other.to_string()),
    }
}

/// An error that several consumers share can only be looked at.
fn from_shared(error: &DataFusionError) -> Error {
    match error {
        DataFusionError::ArrowError(e, _) => match e.as_ref() {
            ArrowError::DivideByZero => from_arrow(ArrowError::DivideByZero),
            ArrowError::ArithmeticOverflow(m) => from_arrow(ArrowError::ArithmeticOverflow(m.clone())),
            ArrowError::CastError(m) => from_arrow(ArrowError::CastError(m.clone())),
            ArrowError::ParseError(m) => from_arrow(ArrowError::ParseError(m.clone())),
            ArrowError::ComputeError(m) => from_arrow(ArrowError::ComputeError(m.clone())),
            ArrowError::InvalidArgumentError(m) => from_arrow(ArrowError::InvalidArgumentError(m.clone())),
            other => Error::internal(other.to_string()),
        },
        DataFusionError::External(e) => match e.downcast_ref::<Error>() {
            Some(ours) => ours.clone(),
            None => Error::internal(e.to_string()),
        },
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => from_shared(inner),
        DataFusionError::Shared(inner) => from_shared(inner),
        DataFusionError::Execution(m) => from_datafusion(DataFusionError::Execution(m.clone())),
        DataFusionError::ResourcesExhausted(m) => from_datafusion(DataFusionError::ResourcesExhausted(m.clone())),
        other => Error::internal(other.to_string()),
    }
}

/// The error that a failed Arrow kernel means for a user.
pub fn from_arrow(error: ArrowError) -> Error {
    match error {
        ArrowError::DivideByZero => Error::user(SqlState::DIVISION_BY_ZERO, "division by zero"),
        ArrowError::ArithmeticOverflow(m) => {
            from_text(&m).unwrap_or_else(|| Error::user(SqlState::NUMERIC_OUT_OF_RANGE, "value out of range").with_detail(m))
        }
        ArrowError::CastError(m) | ArrowError::ParseError(m) => from_text(&m).unwrap_or_else(|| Error::user(SqlState::INVALID_TEXT, m)),
        ArrowError::ComputeError(m) => from_text(&m).unwrap_or_else(|| Error::user(SqlState::DATA_EXCEPTION, m)),
        ArrowError::InvalidArgumentError(m) => from_text(&m).unwrap_or_else(|| Error::internal(m)),
        ArrowError::ExternalError(e) => from_datafusion(DataFusionError::External(e)),
        other => Error::internal(other.to_string()),
    }
}

/// Whether an error is about the data of some row (SQLSTATE class 22): then other rows may be good.
pub fn is_data_error(error: &Error) -> bool {
    error.kind() == ErrorKind::User && error.sqlstate().0.starts_with("22")
}

/// `invalid input syntax for type bigint: "abc"`.
fn invalid_text(type_name: &str, value: &str) -> Error {
    let code = match type_name {
        "date" | "time" | "interval" => SqlState::INVALID_DATETIME,
        t if t.starts_with("timestamp") => SqlState::INVALID_DATETIME,
        _ => SqlState::INVALID_TEXT,
    };
    Error::user(code, format!("invalid input syntax for type {type_name}: \"{value}\""))
}

/// Reads the messages of casts, parsers and decimal checks.
fn from_text(message: &str) -> Option<Error> {
    static STRING_TO: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?s)Cannot cast (?:string|value) '(.*)' to value of (\w+)").expect("a valid pattern"));
    static VALUE_TO: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"Can't cast value .* to type (\w+)").expect("a valid pattern"));
    static PARSE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?s)Error parsing timestamp from '(.*)': ").expect("a valid pattern"));
    static INTERVAL: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#"(?s)Invalid input syntax for type interval: "?(.*?)"?(\.|$)"#).expect("a valid pattern"));
    if let Some(c) = STRING_TO.captures(message) {
        return Some(invalid_text(pg_types::name_of_arrow_word(&c[2]), &c[1]));
    }
    if let Some(c) = PARSE.captures(message) {
        return Some(invalid_text("timestamp", &c[1]));
    }
    if let Some(c) = VALUE_TO.captures(message) {
        return Some(Error::user(SqlState::NUMERIC_OUT_OF_RANGE, format!("{} out of range", pg_types::name_of_arrow_word(&c[1]))));
    }
    if let Some(c) = INTERVAL.captures(message) {
        return Some(invalid_text("interval", &c[1]));
    }
    let decimal =
        message.contains("to store in a Decimal") || message.contains("Overflowing on") || message.contains("scale causes overflow");
    if decimal || message.contains("overflows for output scale") {
        return Some(Error::user(SqlState::NUMERIC_OUT_OF_RANGE, "numeric field overflow"));
    }
    if message.starts_with("value of ") && message.contains("out of range") {
        return Some(Error::user(SqlState::NUMERIC_OUT_OF_RANGE, "value out of range"));
    }
    if message.contains("Divide by zero") || message.contains("division by zero") {
        return Some(Error::user(SqlState::DIVISION_BY_ZERO, "division by zero"));
    }
    if message.contains("Overflow happened") || message.contains("arithmetic overflow") || message.contains("Arithmetic overflow") {
        return Some(Error::user(SqlState::NUMERIC_OUT_OF_RANGE, "value out of range"));
    }
    None
}
