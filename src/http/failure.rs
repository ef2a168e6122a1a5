//! Errors as HTTP: a status by SQLSTATE and kind, a JSON body with code, message, detail, hint, position and statement.

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, ResponseError};
use eddyline_types::{Error, ErrorKind, SqlState};
use serde_json::{Value, json};
use std::fmt;

/// An error and the statement that it belongs to.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    pub(crate) statement: Option<String>,
    /// Instead of the status of the error's kind.
    pub(crate) status: Option<StatusCode>,
}

impl Failure {
    /// Adds the statement.
    pub(crate) fn of(error: Error, statement: &str) -> Self {
        Failure { error, statement: Some(statement.to_owned()), status: None }
    }

    /// The request itself is wrong.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Error::user(SqlState::INVALID_PARAMETER_VALUE, message).into()
    }

    /// What the path names does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Failure { status: Some(StatusCode::NOT_FOUND), ..Error::user(SqlState::UNDEFINED_OBJECT, message).into() }
    }

    /// The body.
    pub(crate) fn to_json(&self) -> Value {
        let mut error = json!({ "code": self.error.sqlstate().0, "message": self.error.message() });
        let fields = error.as_object_mut().expect("the macro made an object");
        for (name, text) in [("detail", self.error.detail()), ("hint", self.error.hint()), ("statement", self.statement.as_deref())] {
            if let Some(text) = text {
                fields.insert(name.into(), text.into());
            }
        }
        if let Some(position) = self.error.position() {
            fields.insert("position".into(), position.into());
        }
        json!({ "error": error })
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure { error, statement: None, status: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl ResponseError for Failure {
    fn status_code(&self) -> StatusCode {
        self.status.unwrap_or_else(|| status(&self.error))
    }

    fn error_response(&self) -> HttpResponse {
        let status = self.status_code();
        if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED {
            tracing::warn!(error = %self.error, code = self.error.sqlstate().0, "an HTTP request failed");
        }
        HttpResponse::build(status).json(self.to_json())
    }
}

fn status(error: &Error) -> StatusCode {
    match error.sqlstate() {
        SqlState::UNDEFINED_TABLE | SqlState::UNDEFINED_OBJECT | SqlState::INVALID_CATALOG_NAME | SqlState::INVALID_SCHEMA_NAME => {
            StatusCode::NOT_FOUND
        }
        SqlState::DUPLICATE_TABLE
        | SqlState::DUPLICATE_OBJECT
        | SqlState::DUPLICATE_SCHEMA
        | SqlState::DEPENDENT_OBJECTS
        | SqlState::UNIQUE_VIOLATION
        | SqlState::SERIALIZATION_FAILURE => StatusCode::CONFLICT,
        SqlState::INSUFFICIENT_PRIVILEGE if error.kind() == ErrorKind::User => StatusCode::FORBIDDEN,
        SqlState::FEATURE_NOT_SUPPORTED => StatusCode::NOT_IMPLEMENTED,
        SqlState::LIMIT_EXCEEDED => StatusCode::PAYLOAD_TOO_LARGE,
        SqlState::QUERY_CANCELED => StatusCode::GATEWAY_TIMEOUT,
        SqlState::TOO_MANY_CONNECTIONS | SqlState::CANNOT_CONNECT_NOW | SqlState::ADMIN_SHUTDOWN | SqlState::OUT_OF_MEMORY => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        SqlState::DISK_FULL => StatusCode::INSUFFICIENT_STORAGE,
        _ => match error.kind() {
            ErrorKind::User => StatusCode::BAD_REQUEST,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Cancelled => StatusCode::GATEWAY_TIMEOUT,
            ErrorKind::Corruption | ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_hold_what_the_wire_would_say() {
        let error = Error::user(SqlState::UNDEFINED_TABLE, "relation \"t\" does not exist").with_hint("Create it.").with_position(15);
        let failure = Failure::of(error, "SELECT * FROM t");
        assert_eq!(failure.status_code(), StatusCode::NOT_FOUND);
        let wanted = json!({"error": {"code": "42P01", "message": "relation \"t\" does not exist", "hint": "Create it.",
            "position": 15, "statement": "SELECT * FROM t"}});
        assert_eq!(failure.to_json(), wanted);
        for (error, code) in [
            (Error::unsupported("x"), 501),
            (Error::internal("x"), 500),
            (Error::unavailable("x"), 503),
            (Error::cancelled("x"), 504),
            (Error::user(SqlState::SYNTAX_ERROR, "x"), 400),
            (Error::user(SqlState::DUPLICATE_TABLE, "x"), 409),
            (Error::user(SqlState::LIMIT_EXCEEDED, "x"), 413),
        ] {
            assert_eq!(Failure::from(error).status_code().as_u16(), code);
        }
    }
}
