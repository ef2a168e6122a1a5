//! Pieces of requests and of the SQL made from them: query strings, identifiers, JSON bodies.

use crate::failure::Failure;
use actix_web::web;
use eddyline_types::{Error, SqlState};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Name and value pairs of the query string, decoded, in order.
pub(crate) fn pairs(query: &str) -> Result<Vec<(String, String)>, Failure> {
    web::Query::<Vec<(String, String)>>::from_query(query)
        .map(web::Query::into_inner)
        .map_err(|e| Failure::bad_request(format!("the query string cannot be read: {e}")))
}

/// Takes a pair out; a second one of the same name is an error.
pub(crate) fn take(pairs: &mut Vec<(String, String)>, name: &str) -> Result<Option<String>, Failure> {
    let Some(at) = pairs.iter().position(|(n, _)| n == name) else { return Ok(None) };
    let (_, value) = pairs.remove(at);
    if pairs.iter().any(|(n, _)| n == name) {
        return Err(Failure::bad_request(format!("parameter \"{name}\" is given twice")));
    }
    Ok(Some(value))
}

/// Takes a whole number out.
pub(crate) fn take_number(pairs: &mut Vec<(String, String)>, name: &str) -> Result<Option<u64>, Failure> {
    take(pairs, name)?
        .map(|text| text.parse().map_err(|_| Failure::bad_request(format!("parameter \"{name}\" is no whole number: \"{text}\""))))
        .transpose()
}

/// Takes `true` or `false` out.
pub(crate) fn take_flag(pairs: &mut Vec<(String, String)>, name: &str) -> Result<bool, Failure> {
    match take(pairs, name)?.as_deref() {
        None | Some("false") => Ok(false),
        Some("true" | "") => Ok(true),
        Some(text) => Err(Failure::bad_request(format!("parameter \"{name}\" is neither true nor false: \"{text}\""))),
    }
}

/// Refuses pairs that nobody took.
pub(crate) fn none_left(pairs: &[(String, String)]) -> Result<(), Failure> {
    match pairs.first() {
        None => Ok(()),
        Some((name, _)) => Err(Failure::bad_request(format!("unknown parameter \"{name}\""))),
    }
}

/// A JSON body as a struct.
pub(crate) fn body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes).map_err(|e| {
        let state = if e.is_data() { SqlState::INVALID_PARAMETER_VALUE } else { SqlState::INVALID_TEXT };
        Error::user(state, format!("the request's body is not the JSON that is expected: {e}")).into()
    })
}

/// `"name"`, quoted for SQL.
pub(crate) fn ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `'text'`, quoted for SQL.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A relation's name in a path, `name` or `schema.name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelationName {
    pub(crate) schema: String,
    pub(crate) name: String,
}

impl RelationName {
    pub(crate) fn parse(text: &str) -> Self {
        let (schema, name) = text.split_once('.').unwrap_or((eddyline_protocol::catalog::DEFAULT_SCHEMA, text));
        RelationName { schema: schema.to_owned(), name: name.to_owned() }
    }

    /// For SQL.
    pub(crate) fn quoted(&self) -> String {
        format!("{}.{}", ident(&self.schema), ident(&self.name))
    }
}

/// The text of a JSON value as a parameter or a column's value; `None` for null. Nested values are given as JSON text.
pub(crate) fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => Some(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn query_strings_are_taken_apart() {
        let mut all = pairs("a=1&b=x%20y&limit=10&cascade=true&a.b=%27").unwrap();
        assert_eq!(take_number(&mut all, "limit").unwrap(), Some(10));
        assert!(take_flag(&mut all, "cascade").unwrap());
        assert_eq!(take(&mut all, "b").unwrap().as_deref(), Some("x y"));
        assert_eq!(all, [("a".into(), "1".into()), ("a.b".into(), "'".into())]);
        assert!(none_left(&all).unwrap_err().to_string().contains("\"a\""));
        assert!(take(&mut pairs("a=1&a=2").unwrap(), "a").is_err());
        assert!(take_number(&mut pairs("n=-1").unwrap(), "n").is_err());
        assert!(pairs("").unwrap().is_empty());
    }

    #[test]
    fn names_and_values_are_quoted() {
        assert_eq!(ident("a\"b"), "\"a\"\"b\"");
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(RelationName::parse("v").quoted(), "\"public\".\"v\"");
        assert_eq!(RelationName::parse("s.v").quoted(), "\"s\".\"v\"");
        assert_eq!(scalar_text(&json!(null)), None);
        assert_eq!(scalar_text(&json!("a")).as_deref(), Some("a"));
        assert_eq!(scalar_text(&json!(1.5)).as_deref(), Some("1.5"));
        assert_eq!(scalar_text(&json!([1])).as_deref(), Some("[1]"));
    }
}
