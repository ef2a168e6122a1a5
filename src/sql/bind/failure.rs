//! Errors of the planner as Postgres words them, with positions.
//!
//! The planner gives text and sometimes a place; this module reads both. What it does not know keeps its text.

use super::{Binder, output};
use arrow::datatypes::DataType;
use datafusion::common::{Column, Location, SchemaError};
use datafusion::error::DataFusionError;
use eddyline_expr::errors::from_datafusion;
use eddyline_expr::pg_types;
use eddyline_types::{Error, SqlState};
use regex::Regex;
use std::sync::LazyLock;

pub(crate) struct Failure<'b, 'a> {
    pub binder: &'b Binder<'a>,
}

impl Failure<'_, '_> {
    pub(crate) fn of(&self, error: DataFusionError) -> Error {
        let place = place(&error);
        let error = self.translate(error);
        match place {
            Some(at) if error.position().is_none() => {
                let position = self.binder.positions().of_line_column(at.line, at.column);
                error.with_position(position)
            }
            _ => error,
        }
    }

    fn translate(&self, error: DataFusionError) -> Error {
        match error {
            DataFusionError::Diagnostic(_, inner) | DataFusionError::Context(_, inner) => self.translate(*inner),
            DataFusionError::Collection(mut all) if !all.is_empty() => self.translate(all.swap_remove(0)),
            DataFusionError::SchemaError(e, _) => self.schema_error(*e),
            DataFusionError::Plan(m) => plan_error(&m).unwrap_or_else(|| from_datafusion(DataFusionError::Plan(first_line(&m)))),
            DataFusionError::Execution(m) => plan_error(&m).unwrap_or_else(|| from_datafusion(DataFusionError::Execution(m))),
            DataFusionError::Internal(m) => plan_error(&m).unwrap_or_else(|| from_datafusion(DataFusionError::Internal(m))),
            DataFusionError::NotImplemented(m) => not_implemented(&m),
            DataFusionError::SQL(e, _) => Error::user(SqlState::SYNTAX_ERROR, e.to_string()),
            other => from_datafusion(other),
        }
    }

    fn schema_error(&self, error: SchemaError) -> Error {
        match error {
            SchemaError::FieldNotFound { field, valid_fields } => unknown_column(&field, &valid_fields),
            SchemaError::AmbiguousReference { field } => {
                Error::user(SqlState::AMBIGUOUS_COLUMN, format!("column reference \"{}\" is ambiguous", output::shown(&field.name)))
            }
            SchemaError::DuplicateQualifiedField { qualifier, name } => {
                let (table, name) = (qualifier.table().to_string(), output::shown(&name).to_string());
                let error =
                    Error::user(SqlState::DUPLICATE_COLUMN, format!("column \"{name}\" of \"{table}\" is specified more than once"));
                error.with_hint("Give each table and each column of a subquery a name of its own.")
            }
            SchemaError::DuplicateUnqualifiedField { name } => {
                let name = output::shown(&name);
                Error::user(SqlState::DUPLICATE_COLUMN, format!("column \"{name}\" specified more than once"))
            }
        }
    }
}

/// Where an error says that it is.
fn place(error: &DataFusionError) -> Option<Location> {
    match error {
        DataFusionError::Diagnostic(diagnostic, inner) => diagnostic.span.map(|s| s.start).or_else(|| place(inner)),
        DataFusionError::Context(_, inner) => place(inner),
        DataFusionError::Collection(all) => all.first().and_then(place),
        DataFusionError::SchemaError(e, _) => match e.as_ref() {
            SchemaError::FieldNotFound { field, .. } | SchemaError::AmbiguousReference { field } => field.spans().first().map(|s| s.start),
            SchemaError::DuplicateQualifiedField { .. } | SchemaError::DuplicateUnqualifiedField { .. } => None,
        },
        _ => None,
    }
}

fn unknown_column(field: &Column, valid: &[Column]) -> Error {
    let name = output::shown(&field.name);
    let Some(table) = field.relation.as_ref().map(|r| r.table()) else {
        let error = Error::user(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"));
        return match output::nearest(name, valid.iter().map(|c| c.name.as_str())) {
            Some(near) => {
                let table = valid.iter().find(|c| c.name == near).and_then(|c| c.relation.as_ref());
                let shown = table.map_or(near.to_string(), |t| format!("{}.{near}", t.table()));
                error.with_hint(format!("Perhaps you meant to reference the column \"{shown}\"."))
            }
            None => error,
        };
    };
    let known = valid.iter().any(|c| c.relation.as_ref().is_some_and(|r| r.table() == table));
    if !known {
        let error = Error::user(SqlState::UNDEFINED_TABLE, format!("missing FROM-clause entry for table \"{table}\""));
        let tables = valid.iter().filter_map(|c| c.relation.as_ref()).map(|r| r.table());
        return match output::nearest(table, tables) {
            Some(near) => error.with_hint(format!("Perhaps you meant to reference the table alias \"{near}\".")),
            None => error,
        };
    }
    let error = Error::user(SqlState::UNDEFINED_COLUMN, format!("column {table}.{name} does not exist"));
    let same = valid.iter().filter(|c| c.relation.as_ref().is_some_and(|r| r.table() == table)).map(|c| c.name.as_str());
    match output::nearest(name, same) {
        Some(near) => error.with_hint(format!("Perhaps you meant to reference the column \"{table}.{near}\".")),
        None => error,
    }
}

const CASTS_HINT: &str = "No operator matches the given name and argument types. You might need to add explicit type casts.";
const FUNCTION_HINT: &str = "No function matches the given name and argument types. You might need to add explicit type casts.";

/// Planning errors by their texts.
fn plan_error(message: &str) -> Option<Error> {
    macro_rules! pattern {
        ($name:ident, $text:literal) => {
            static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($text).expect("a valid pattern"));
        };
    }
    pattern!(FUNCTION, r"Invalid function '([^']*)'");
    pattern!(
        OPERATION,
        r"Cannot (?:coerce arithmetic expression|infer common \w+(?: \w+)* for [\w ]*operation) (.*?) (\S+|IS DISTINCT FROM|IS NOT DISTINCT FROM) (\S.*?)(?: to valid types)?$"
    );
    pattern!(GROUPING, r#"Column in (?:SELECT|HAVING|ORDER BY|QUALIFY|DISTINCT ON) must be in GROUP BY.*?column "([^"]*)" must appear"#);
    pattern!(HAVING, r"HAVING clause references: (.*?) must appear");
    pattern!(SIGNATURE, r"(?s)Failed to coerce arguments to satisfy a call to '([^']*)' function: coercion from (.*?) to the signature");
    pattern!(CANDIDATES, r"(?s)No function matches the given name and argument types '([^']*)\((.*?)\)'\. You");
    pattern!(ARGUMENTS, r"(?s)'?(\w+)'? (?:does not support|expects|expected|requires) .*argument");
    pattern!(COMMON, r"Failed to coerce (?:then|case|types?)");
    if let Some(c) = FUNCTION.captures(message) {
        let name = c[1].to_string();
        let error = Error::user(SqlState::UNDEFINED_FUNCTION, format!("function {name}(...) does not exist"));
        let state = eddyline_expr::registry::session_state();
        let known = state.scalar_functions().keys().chain(state.aggregate_functions().keys()).map(String::as_str);
        let mut known: Vec<&str> = known.filter(|n| !n.starts_with("eddy_")).collect();
        known.sort_unstable();
        return Some(match output::nearest(&name, known.into_iter()) {
            Some(near) => error.with_hint(format!("Perhaps you meant \"{near}\".")),
            None => error.with_hint(FUNCTION_HINT),
        });
    }
    if let Some(c) = GROUPING.captures(message).or_else(|| HAVING.captures(message)) {
        let column = output::shown(&c[1]).to_string();
        return Some(Error::user(
            SqlState::GROUPING_ERROR,
            format!("column \"{column}\" must appear in the GROUP BY clause or be used in an aggregate function"),
        ));
    }
    if let Some(c) = OPERATION.captures(message) {
        let text = format!("operator does not exist: {} {} {}", type_text(&c[1]), &c[2], type_text(&c[3]));
        return Some(Error::user(SqlState::UNDEFINED_FUNCTION, text).with_hint(CASTS_HINT));
    }
    if let Some(c) = SIGNATURE.captures(message).or_else(|| CANDIDATES.captures(message)) {
        let text = format!("function {}({}) does not exist", &c[1], type_list(&c[2]));
        return Some(Error::user(SqlState::UNDEFINED_FUNCTION, text).with_hint(FUNCTION_HINT));
    }
    if message.contains("Aggregate functions are not allowed in the WHERE clause") {
        return Some(Error::user(SqlState::GROUPING_ERROR, "aggregate functions are not allowed in WHERE").with_hint("Use HAVING."));
    }
    if message.contains("queries have different number of columns") || message.contains("different number of columns") {
        let op = message.split(' ').next().unwrap_or("UNION");
        return Some(Error::user(SqlState::SYNTAX_ERROR, format!("each {op} query must have the same number of columns")));
    }
    if COMMON.is_match(message) {
        return Some(
            Error::user(SqlState::DATATYPE_MISMATCH, "the types of the branches of an expression do not match").with_detail(message),
        );
    }
    if let Some(c) = ARGUMENTS.captures(message) {
        return Some(Error::user(SqlState::UNDEFINED_FUNCTION, format!("function {}(...) does not exist", &c[1])).with_detail(message));
    }
    if message.contains("Cannot create filter with non-boolean predicate") || message.contains("must be boolean") {
        return Some(Error::user(SqlState::DATATYPE_MISMATCH, "argument of WHERE must be type boolean").with_detail(message));
    }
    None
}

/// `Int64` as `bigint`.
fn type_text(arrow: &str) -> String {
    let arrow = arrow.trim();
    arrow.parse::<DataType>().map_or_else(|_| pg_types::name_of_arrow_word(arrow).to_string(), |t| pg_types::name(&t))
}

fn type_list(arrow: &str) -> String {
    let inner = arrow.trim().trim_start_matches('[').trim_end_matches(']');
    // Types with commas inside brackets stay together.
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (i, c) in inner.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    parts.into_iter().filter(|p| !p.trim().is_empty()).map(type_text).collect::<Vec<_>>().join(", ")
}

fn not_implemented(message: &str) -> Error {
    let message = first_line(message);
    Error::unsupported(format!("not supported: {}", message.trim_end_matches('.')))
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().to_string()
}
