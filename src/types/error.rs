//! The one error type that crosses crate borders: what went wrong for the user, and what the caller should do.
//!
//! Wording follows Postgres: a primary message without a full stop, a detail that gives facts, a hint that gives advice.
//! Errors are logged once, where they are handled.

use std::fmt;

/// `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The statement or its data are wrong: tell the user; a retry gives the same.
    User,
    /// Something needed is away for the moment: retry with back-off.
    Unavailable,
    /// The caller lost a race or read state that was rolled back: run the statement again.
    Conflict,
    /// The user or a deadline ended the work.
    Cancelled,
    /// Stored bytes are not what was written: stop what needs them.
    Corruption,
    /// A broken invariant of ours: stop the domain and report.
    Internal,
}

/// A five-character SQLSTATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SqlState(pub &'static str);

macro_rules! states {
    ($($name:ident = $code:literal),* $(,)?) => {
        #[allow(missing_docs)]
        impl SqlState {
            $(pub const $name: SqlState = SqlState($code);)*
        }
    };
}

states! {
    SUCCESS = "00000", FEATURE_NOT_SUPPORTED = "0A000", CARDINALITY_VIOLATION = "21000",
    DATA_EXCEPTION = "22000", STRING_TRUNCATION = "22001", NUMERIC_OUT_OF_RANGE = "22003", NULL_NOT_ALLOWED = "22004",
    INVALID_DATETIME = "22007", DATETIME_OVERFLOW = "22008", DIVISION_BY_ZERO = "22012",
    INVALID_PARAMETER_VALUE = "22023", INVALID_TEXT = "22P02", INVALID_BINARY = "22P03", BAD_COPY_FORMAT = "22P04",
    NOT_NULL_VIOLATION = "23502", UNIQUE_VIOLATION = "23505", CHECK_VIOLATION = "23514",
    ACTIVE_TRANSACTION = "25001", READ_ONLY_TRANSACTION = "25006", NO_ACTIVE_TRANSACTION = "25P01", IN_FAILED_TRANSACTION = "25P02",
    INVALID_STATEMENT_NAME = "26000", DEPENDENT_OBJECTS = "2BP01", INVALID_CURSOR_NAME = "34000",
    INVALID_CATALOG_NAME = "3D000", INVALID_SCHEMA_NAME = "3F000", SERIALIZATION_FAILURE = "40001",
    SYNTAX_ERROR = "42601", INSUFFICIENT_PRIVILEGE = "42501", GROUPING_ERROR = "42803", DATATYPE_MISMATCH = "42804",
    WRONG_OBJECT_TYPE = "42809", CANNOT_COERCE = "42846", UNDEFINED_COLUMN = "42703", UNDEFINED_FUNCTION = "42883",
    UNDEFINED_TABLE = "42P01", UNDEFINED_PARAMETER = "42P02", UNDEFINED_OBJECT = "42704", DUPLICATE_COLUMN = "42701",
    DUPLICATE_TABLE = "42P07", DUPLICATE_SCHEMA = "42P06", DUPLICATE_OBJECT = "42710", DUPLICATE_PREPARED = "42P05",
    AMBIGUOUS_COLUMN = "42702", AMBIGUOUS_FUNCTION = "42725", INVALID_COLUMN_REFERENCE = "42P10", INVALID_TABLE_DEFINITION = "42P16",
    INVALID_OBJECT_DEFINITION = "42P17", INDETERMINATE_DATATYPE = "42P18",
    OUT_OF_MEMORY = "53200", DISK_FULL = "53100", TOO_MANY_CONNECTIONS = "53300", LIMIT_EXCEEDED = "54000", STATEMENT_TOO_COMPLEX = "54001",
    OBJECT_IN_USE = "55006", NOT_IN_PREREQUISITE_STATE = "55000", CANT_CHANGE_PARAM = "55P02",
    QUERY_CANCELED = "57014", ADMIN_SHUTDOWN = "57P01", CANNOT_CONNECT_NOW = "57P03",
    IO_ERROR = "58030", PROTOCOL_VIOLATION = "08P01", INTERNAL_ERROR = "XX000", DATA_CORRUPTED = "XX001",
}

/// An error for a user or a caller. Boxed inside, so that a `Result` stays small.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    sqlstate: SqlState,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    position: Option<u32>,
}

impl Error {
    /// An error of the given kind and SQLSTATE.
    pub fn new(kind: ErrorKind, sqlstate: SqlState, message: impl Into<String>) -> Self {
        Error(Box::new(Inner { kind, sqlstate, message: message.into(), detail: None, hint: None, position: None }))
    }

    /// The user's statement or data are wrong.
    pub fn user(sqlstate: SqlState, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::User, sqlstate, message)
    }

    /// A construct that is refused; say in the hint what to write instead.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::user(SqlState::FEATURE_NOT_SUPPORTED, message)
    }

    /// A broken invariant of ours.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, SqlState::INTERNAL_ERROR, message)
    }

    /// Stored bytes are wrong; name object, block and table.
    pub fn corruption(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corruption, SqlState::DATA_CORRUPTED, message)
    }

    /// Something needed is away for the moment.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, SqlState::CANNOT_CONNECT_NOW, message)
    }

    /// The work was ended by the user or a deadline.
    pub fn cancelled(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Cancelled, SqlState::QUERY_CANCELED, message)
    }

    /// Adds a detail (facts).
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Adds a hint (advice).
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds the 1-based character position in the statement's text.
    pub fn with_position(mut self, position: u32) -> Self {
        self.0.position = Some(position);
        self
    }

    /// Puts `context: ` before the message.
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.0.message = format!("{context}: {}", self.0.message);
        self
    }

    /// What the caller should do.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The SQLSTATE.
    pub fn sqlstate(&self) -> SqlState {
        self.0.sqlstate
    }

    /// The primary message.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Facts, if any.
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// Advice, if any.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// 1-based character position in the statement's text, if known.
    pub fn position(&self) -> Option<u32> {
        self.0.position
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let Some(detail) = &self.0.detail {
            write!(f, " ({detail})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {self}", self.0.sqlstate.0)
    }
}

impl std::error::Error for Error {}

/// Maps Arrow's errors to SQLSTATEs, so that a failed kernel says what Postgres would.
impl From<arrow::error::ArrowError> for Error {
    fn from(e: arrow::error::ArrowError) -> Self {
        use arrow::error::ArrowError as A;
        match e {
            A::DivideByZero => Error::user(SqlState::DIVISION_BY_ZERO, "division by zero"),
            A::ArithmeticOverflow(m) => Error::user(SqlState::NUMERIC_OUT_OF_RANGE, "value out of range").with_detail(m),
            A::CastError(m) => Error::user(SqlState::INVALID_TEXT, m),
            A::ParseError(m) => Error::user(SqlState::INVALID_TEXT, m),
            A::InvalidArgumentError(m) => Error::internal(m),
            other => Error::internal(other.to_string()),
        }
    }
}
