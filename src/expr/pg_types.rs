//! Arrow types by their Postgres names, for messages, DESCRIBE and the system catalog.

use arrow::datatypes::{DataType, TimeUnit};

/// A timestamp without time zone: microseconds since 1970-01-01.
pub const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// A timestamp with time zone: microseconds since 1970-01-01 UTC.
pub fn timestamptz() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// `NUMERIC` without precision: 38 digits, 10 of them after the point.
pub const NUMERIC: DataType = DataType::Decimal128(38, 10);

/// The name as `format_type` gives it: `bigint`, `character varying`, `numeric(10,2)`, `integer[]`.
pub fn name(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "unknown".into(),
        DataType::Boolean => "boolean".into(),
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => "smallint".into(),
        DataType::Int32 | DataType::UInt16 => "integer".into(),
        DataType::Int64 | DataType::UInt32 => "bigint".into(),
        DataType::UInt64 => "numeric".into(),
        DataType::Float16 | DataType::Float32 => "real".into(),
        DataType::Float64 => "double precision".into(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "character varying".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => "bytea".into(),
        DataType::Date32 | DataType::Date64 => "date".into(),
        DataType::Time32(_) | DataType::Time64(_) => "time without time zone".into(),
        DataType::Timestamp(_, None) => "timestamp without time zone".into(),
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone".into(),
        DataType::Interval(_) | DataType::Duration(_) => "interval".into(),
        DataType::Decimal128(38, 10) => "numeric".into(),
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) | DataType::Decimal256(p, s) => {
            format!("numeric({p},{s})")
        }
        DataType::List(f) | DataType::LargeList(f) | DataType::FixedSizeList(f, _) | DataType::ListView(f) | DataType::LargeListView(f) => {
            format!("{}[]", name(f.data_type()))
        }
        DataType::Dictionary(_, value) => name(value),
        DataType::Struct(_) => "record".into(),
        other => other.to_string().to_lowercase(),
    }
}

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
