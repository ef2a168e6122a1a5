//! Arrow types by their Postgres names, for messages, DESCRIBE and the system catalog.

use arrow::datatypes::{DataType, TimeUnit};

/// The name as `format_type` gives it: `bigint`, `character varying`, `numeric(10,2)`, `integer[]`.
pub use eddyline_types::sql_types::sql_name as name;

/// A timestamp without time zone: microseconds since 1970-01-01.
pub const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// A timestamp with time zone: microseconds since 1970-01-01 UTC.
pub fn timestamptz() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// `NUMERIC` without precision: 38 digits, 10 of them after the point.
pub const NUMERIC: DataType = DataType::Decimal128(38, 10);

/// The short name by the first word of an Arrow type's own text (`Int64`, `Decimal128(38, 10)`), as error messages name types.
pub fn name_of_arrow_word(word: &str) -> &str {
    match word {
        "Int8" | "Int16" | "UInt8" => "smallint",
        "Int32" | "UInt16" => "integer",
        "Int64" | "UInt32" => "bigint",
        "Float16" | "Float32" => "real",
        "Float64" => "double precision",
        "Boolean" => "boolean",
        "Date32" | "Date64" => "date",
        "Time32" | "Time64" => "time",
        "Timestamp" => "timestamp",
        "Interval" | "Duration" => "interval",
        w if w.starts_with("Decimal") || w == "UInt64" => "numeric",
        w if w.contains("Utf8") => "character varying",
        w if w.contains("Binary") => "bytea",
        w => w,
    }
}
