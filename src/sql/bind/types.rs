//! SQL types to Arrow types. Timestamps are microseconds, strings are `Utf8`, NUMERIC without precision has 38 digits, 10 after the point.

use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use datafusion::common::Result as DfResult;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::planner::TypePlanner;
use eddyline_expr::pg_types;
use eddyline_types::{Error, Result, SqlState};
use sqlparser::ast::{ArrayElemTypeDef, DataType as Sql, ExactNumberInfo, TimezoneInfo};
use std::sync::Arc;

/// The Arrow type of an SQL type.
pub(crate) fn arrow_type(sql: &Sql) -> Result<DataType> {
    Ok(match sql {
        Sql::Boolean | Sql::Bool => DataType::Boolean,
        Sql::SmallInt(_) | Sql::Int2(_) => DataType::Int16,
        Sql::Int(_) | Sql::Integer(_) | Sql::Int4(_) => DataType::Int32,
        Sql::BigInt(_) | Sql::Int8(_) => DataType::Int64,
        Sql::Real | Sql::Float4 => DataType::Float32,
        Sql::Float(ExactNumberInfo::Precision(p)) if *p <= 24 => DataType::Float32,
        Sql::Float(_) | Sql::Double(_) | Sql::DoublePrecision | Sql::Float8 => DataType::Float64,
        Sql::Numeric(info) | Sql::Decimal(info) | Sql::Dec(info) => decimal(info)?,
        Sql::Varchar(_)
        | Sql::CharacterVarying(_)
        | Sql::CharVarying(_)
        | Sql::Nvarchar(_)
        | Sql::Char(_)
        | Sql::Character(_)
        | Sql::Text
        | Sql::String(_) => DataType::Utf8,
        Sql::Bytea => DataType::Binary,
        Sql::Date => DataType::Date32,
        Sql::Time(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => DataType::Time64(TimeUnit::Microsecond),
        Sql::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => pg_types::TIMESTAMP,
        Sql::Timestamp(_, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => pg_types::timestamptz(),
        Sql::Interval { .. } => DataType::Interval(IntervalUnit::MonthDayNano),
        Sql::Array(ArrayElemTypeDef::AngleBracket(inner) | ArrayElemTypeDef::SquareBracket(inner, _)) => {
            DataType::List(Arc::new(Field::new_list_field(arrow_type(inner)?, true)))
        }
        Sql::Regclass => DataType::Int64,
        Sql::Custom(name, _) => custom(&name.to_string().to_lowercase())?,
        other => return Err(unknown(&other.to_string().to_lowercase())),
    })
}

/// Names that the parser does not know as types: those of the system catalog.
fn custom(name: &str) -> Result<DataType> {
    Ok(match name.strip_prefix("pg_catalog.").unwrap_or(name) {
        "name" | "bpchar" | "char" | "\"char\"" | "text" | "varchar" => DataType::Utf8,
        "oid" | "regclass" | "regtype" | "regproc" | "regnamespace" | "xid" => DataType::Int64,
        "int2" => DataType::Int16,
        "int4" => DataType::Int32,
        "int8" => DataType::Int64,
        "float4" => DataType::Float32,
        "float8" => DataType::Float64,
        "numeric" => pg_types::NUMERIC,
        "bool" => DataType::Boolean,
        "timestamptz" => pg_types::timestamptz(),
        "timestamp" => pg_types::TIMESTAMP,
        "bytea" => DataType::Binary,
        other => return Err(unknown(other)),
    })
}

fn unknown(name: &str) -> Error {
    match name {
        "json" | "jsonb" | "uuid" | "serial" | "bigserial" | "timetz" | "money" | "xml" | "hstore" | "inet" => {
            Error::unsupported(format!("type {name} is not supported")).with_hint("Use VARCHAR or BIGINT.")
        }
        _ => Error::user(SqlState::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist")),
    }
}

fn decimal(info: &ExactNumberInfo) -> Result<DataType> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => return Ok(pg_types::NUMERIC),
        ExactNumberInfo::Precision(p) => (p, 0),
        ExactNumberInfo::PrecisionAndScale(p, s) => (p, s),
    };
    if precision == 0 || precision > 38 {
        return Err(Error::user(SqlState::INVALID_PARAMETER_VALUE, format!("NUMERIC precision {precision} must be between 1 and 38")));
    }
    if scale < 0 || scale as u64 > precision {
        return Err(Error::user(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("NUMERIC scale {scale} must be between 0 and precision {precision}"),
        ));
    }
    Ok(DataType::Decimal128(precision as u8, scale as i8))
}

/// Gives the planner the types above.
#[derive(Debug)]
pub(crate) struct PgTypes;

impl TypePlanner for PgTypes {
    fn plan_type_field(&self, sql: &Sql) -> DfResult<Option<FieldRef>> {
        let data_type = arrow_type(sql).map_err(|e| DataFusionError::External(Box::new(e)))?;
        Ok(Some(Arc::new(Field::new("", data_type, true))))
    }
}
