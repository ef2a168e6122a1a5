//! SQL names and Postgres' numbers of Arrow types: what DESCRIBE, `\d`, REST, EXPLAIN, error messages and the wire say.
//!
//! One Arrow type has one SQL name; several SQL names may mean one Arrow type (`text` and `varchar` are both `Utf8`).

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use std::sync::Arc;

/// Largest precision of a decimal.
const MAX_PRECISION: u8 = 38;
/// Precision and scale of `numeric` without any: most of the digits for either side.
const DEFAULT_NUMERIC: (u8, i8) = (MAX_PRECISION, 10);

/// `timestamp`: microseconds, as in Postgres.
pub fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

/// `timestamptz`: microseconds since the Unix epoch; the zone is only how it is shown.
pub fn timestamptz() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// The name that Postgres' `format_type` gives: `bigint`, `character varying`, `timestamp without time zone`, `integer[]`.
pub fn sql_name(data_type: &DataType) -> String {
    use DataType as T;
    match data_type {
        T::Null => "unknown".into(),
        T::Boolean => "boolean".into(),
        T::Int8 | T::UInt8 | T::Int16 => "smallint".into(),
        T::UInt16 | T::Int32 => "integer".into(),
        T::UInt32 | T::Int64 => "bigint".into(),
        T::UInt64 => "numeric(20,0)".into(),
        T::Float16 | T::Float32 => "real".into(),
        T::Float64 => "double precision".into(),
        T::Decimal32(p, s) | T::Decimal64(p, s) | T::Decimal128(p, s) | T::Decimal256(p, s) => numeric_name(*p, *s),
        T::Utf8 | T::LargeUtf8 | T::Utf8View => "character varying".into(),
        T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => "bytea".into(),
        T::Date32 | T::Date64 => "date".into(),
        T::Time32(unit) | T::Time64(unit) => format!("time{} without time zone", precision(unit)),
        T::Timestamp(unit, None) => format!("timestamp{} without time zone", precision(unit)),
        T::Timestamp(unit, Some(_)) => format!("timestamp{} with time zone", precision(unit)),
        T::Interval(_) | T::Duration(_) => "interval".into(),
        T::List(f) | T::LargeList(f) | T::ListView(f) | T::LargeListView(f) | T::FixedSizeList(f, _) => match f.data_type() {
            nested if is_list(nested) => sql_name(nested),
            element => format!("{}[]", sql_name(element)),
        },
        T::Struct(fields) => {
            let fields: Vec<String> = fields.iter().map(|f| format!("{} {}", f.name(), sql_name(f.data_type()))).collect();
            format!("struct<{}>", fields.join(", "))
        }
        T::Dictionary(_, value) => sql_name(value),
        T::RunEndEncoded(_, value) => sql_name(value.data_type()),
        T::Map(..) | T::Union(..) => format!("{data_type}").to_lowercase(),
    }
}

/// The short name, without blanks: `int8`, `text`, `timestamptz`, `numeric(10,2)`, `int4[]`. What differs in Arrow and has a name of its own
/// in SQL reads back as the same type: see [`parse_name`].
pub fn short_name(data_type: &DataType) -> String {
    use DataType as T;
    match data_type {
        T::Boolean => "bool".into(),
        T::Int8 => "int1".into(),
        T::Int16 => "int2".into(),
        T::Int32 => "int4".into(),
        T::Int64 => "int8".into(),
        T::UInt8 => "uint1".into(),
        T::UInt16 => "uint2".into(),
        T::UInt32 => "uint4".into(),
        T::UInt64 => "uint8".into(),
        T::Float16 | T::Float32 => "float4".into(),
        T::Float64 => "float8".into(),
        T::Utf8 | T::LargeUtf8 | T::Utf8View => "text".into(),
        T::Time32(unit) | T::Time64(unit) => format!("time{}", precision(unit)),
        T::Timestamp(unit, None) => format!("timestamp{}", precision(unit)),
        T::Timestamp(unit, Some(_)) => format!("timestamptz{}", precision(unit)),
        T::List(f) | T::LargeList(f) | T::ListView(f) | T::LargeListView(f) | T::FixedSizeList(f, _) => match f.data_type() {
            nested if is_list(nested) => format!("{}[]", short_name(nested)),
            element => format!("{}[]", short_name(element)),
        },
        T::Struct(fields) => {
            let fields: Vec<String> = fields.iter().map(|f| format!("{}:{}", f.name(), short_name(f.data_type()))).collect();
            format!("struct<{}>", fields.join(","))
        }
        T::Dictionary(_, value) => short_name(value),
        other => sql_name(other),
    }
}

fn is_list(data_type: &DataType) -> bool {
    use DataType as T;
    matches!(data_type, T::List(_) | T::LargeList(_) | T::ListView(_) | T::LargeListView(_) | T::FixedSizeList(..))
}

fn numeric_name(precision: u8, scale: i8) -> String {
    if (precision, scale) == DEFAULT_NUMERIC { "numeric".into() } else { format!("numeric({precision},{scale})") }
}

/// Microseconds are the default of Postgres and not written.
fn precision(unit: &TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "(0)",
        TimeUnit::Millisecond => "(3)",
        TimeUnit::Microsecond => "",
        TimeUnit::Nanosecond => "(9)",
    }
}

/// The Arrow type of an SQL type name (any spelling of Postgres, case and blanks do not matter, `struct<name:type,...>` too);
/// `None`: no such type.
pub fn parse_name(name: &str) -> Option<DataType> {
    let name = name.trim();
    if let Some(element) = name.strip_suffix("[]") {
        return Some(DataType::List(Arc::new(Field::new_list_field(parse_name(element)?, true))));
    }
    if let Some(fields) = name.strip_prefix("struct<").and_then(|n| n.strip_suffix('>')) {
        return parse_struct(fields);
    }
    let lower = name.to_ascii_lowercase();
    let (base, arguments) = split_arguments(&lower)?;
    let unit = |arguments: &[i64]| match arguments {
        [] | [4..=6] => Some(TimeUnit::Microsecond),
        [0] => Some(TimeUnit::Second),
        [1..=3] => Some(TimeUnit::Millisecond),
        [7..=9] => Some(TimeUnit::Nanosecond),
        _ => None,
    };
    let plain = |data_type: DataType| arguments.is_empty().then_some(data_type);
    match base.as_str() {
        "bool" | "boolean" => plain(DataType::Boolean),
        "int1" | "tinyint" => plain(DataType::Int8),
        "int2" | "smallint" => plain(DataType::Int16),
        "int" | "int4" | "integer" => plain(DataType::Int32),
        "int8" | "bigint" => plain(DataType::Int64),
        "uint1" => plain(DataType::UInt8),
        "uint2" => plain(DataType::UInt16),
        "uint4" => plain(DataType::UInt32),
        "uint8" => plain(DataType::UInt64),
        "float4" | "real" => plain(DataType::Float32),
        "float8" | "double precision" | "double" => plain(DataType::Float64),
        "float" => match arguments[..] {
            [1..=24] => Some(DataType::Float32),
            [] | [25..=53] => Some(DataType::Float64),
            _ => None,
        },
        "numeric" | "decimal" | "dec" => match arguments[..] {
            [] => Some(DataType::Decimal128(DEFAULT_NUMERIC.0, DEFAULT_NUMERIC.1)),
            [p @ 1..=38] => Some(DataType::Decimal128(p as u8, 0)),
            [p @ 1..=38, s] if (0..=p).contains(&s) => Some(DataType::Decimal128(p as u8, s as i8)),
            [p @ 39..=76, s] if (0..=p).contains(&s) => Some(DataType::Decimal256(p as u8, s as i8)),
            _ => None,
        },
        "text" | "string" | "varchar" | "character varying" | "bpchar" | "char" | "character" | "name" => {
            (arguments.len() <= 1).then_some(DataType::Utf8)
        }
        "json" | "jsonb" | "uuid" => plain(DataType::Utf8),
        "bytea" | "bytes" => plain(DataType::Binary),
        "date" => plain(DataType::Date32),
        "time" | "time without time zone" => match unit(&arguments)? {
            unit @ (TimeUnit::Second | TimeUnit::Millisecond) => Some(DataType::Time32(unit)),
            unit => Some(DataType::Time64(unit)),
        },
        "timestamp" | "timestamp without time zone" => Some(DataType::Timestamp(unit(&arguments)?, None)),
        "timestamptz" | "timestamp with time zone" => Some(DataType::Timestamp(unit(&arguments)?, Some("UTC".into()))),
        "interval" => plain(DataType::Interval(IntervalUnit::MonthDayNano)),
        "unknown" => plain(DataType::Null),
        _ => None,
    }
}

/// `timestamp (3) without time zone` gives (`timestamp without time zone`, `[3]`).
fn split_arguments(name: &str) -> Option<(String, Vec<i64>)> {
    let mut arguments = Vec::new();
    let mut base = name.to_owned();
    if let Some(open) = name.find('(') {
        let close = open + name[open..].find(')')?;
        for argument in name[open + 1..close].split(',') {
            arguments.push(argument.trim().parse().ok()?);
        }
        base = format!("{} {}", &name[..open], &name[close + 1..]);
    }
    Some((base.split_whitespace().collect::<Vec<_>>().join(" "), arguments))
}

fn parse_struct(fields: &str) -> Option<DataType> {
    let (mut depth, mut start, mut parsed) = (0, 0, Vec::new());
    let ends = fields.char_indices().filter_map(|(at, c)| {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth -= 1,
            ',' if depth == 0 => return Some(at),
            _ => {}
        }
        None
    });
    for end in ends.collect::<Vec<_>>().into_iter().chain([fields.len()]) {
        let (name, data_type) = fields[start..end].trim().split_once([':', ' '])?;
        parsed.push(Field::new(name, parse_name(data_type)?, true));
        start = end + 1;
    }
    Some(DataType::Struct(parsed.into()))
}

/// Postgres' number, array number and length of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgType {
    /// `pg_type.oid`.
    pub oid: u32,
    /// `pg_type.typarray`; 0: none.
    pub array_oid: u32,
    /// `pg_type.typlen`: bytes, -1 for variable.
    pub length: i16,
    /// `pg_type.typname`.
    pub name: &'static str,
}

macro_rules! pg_types {
    ($($(#[$doc:meta])* $constant:ident = $oid:literal, $array:literal, $length:literal, $name:literal;)*) => {
        $($(#[$doc])* pub const $constant: PgType = PgType { oid: $oid, array_oid: $array, length: $length, name: $name };)*
        /// All scalar types that a client may meet.
        pub const PG_TYPES: &[PgType] = &[$($constant),*];
    };
}

pg_types! {
    /// `boolean`
    PG_BOOL = 16, 1000, 1, "bool";
    /// `bytea`
    PG_BYTEA = 17, 1001, -1, "bytea";
    /// `name`
    PG_NAME = 19, 1003, 64, "name";
    /// `bigint`
    PG_INT8 = 20, 1016, 8, "int8";
    /// `smallint`
    PG_INT2 = 21, 1005, 2, "int2";
    /// `integer`
    PG_INT4 = 23, 1007, 4, "int4";
    /// `text`
    PG_TEXT = 25, 1009, -1, "text";
    /// `oid`
    PG_OID = 26, 1028, 4, "oid";
    /// `json`
    PG_JSON = 114, 199, -1, "json";
    /// `real`
    PG_FLOAT4 = 700, 1021, 4, "float4";
    /// `double precision`
    PG_FLOAT8 = 701, 1022, 8, "float8";
    /// `unknown`
    PG_UNKNOWN = 705, 0, -2, "unknown";
    /// `character`
    PG_BPCHAR = 1042, 1014, -1, "bpchar";
    /// `character varying`
    PG_VARCHAR = 1043, 1015, -1, "varchar";
    /// `date`
    PG_DATE = 1082, 1182, 4, "date";
    /// `time`
    PG_TIME = 1083, 1183, 8, "time";
    /// `timestamp`
    PG_TIMESTAMP = 1114, 1115, 8, "timestamp";
    /// `timestamptz`
    PG_TIMESTAMPTZ = 1184, 1185, 8, "timestamptz";
    /// `interval`
    PG_INTERVAL = 1186, 1187, 16, "interval";
    /// `numeric`
    PG_NUMERIC = 1700, 1231, -1, "numeric";
    /// `record`
    PG_RECORD = 2249, 2287, -1, "record";
    /// `uuid`
    PG_UUID = 2950, 2951, 16, "uuid";
    /// `jsonb`
    PG_JSONB = 3802, 3807, -1, "jsonb";
}

/// The Postgres type of a value (of the elements, for a list: see [`oid`]).
pub fn pg_type(data_type: &DataType) -> PgType {
    use DataType as T;
    match data_type {
        T::Boolean => PG_BOOL,
        T::Int8 | T::UInt8 | T::Int16 => PG_INT2,
        T::UInt16 | T::Int32 => PG_INT4,
        T::UInt32 | T::Int64 => PG_INT8,
        T::UInt64 | T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..) => PG_NUMERIC,
        T::Float16 | T::Float32 => PG_FLOAT4,
        T::Float64 => PG_FLOAT8,
        T::Utf8 | T::LargeUtf8 | T::Utf8View => PG_VARCHAR,
        T::Null => PG_TEXT,
        T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => PG_BYTEA,
        T::Date32 | T::Date64 => PG_DATE,
        T::Time32(_) | T::Time64(_) => PG_TIME,
        T::Timestamp(_, None) => PG_TIMESTAMP,
        T::Timestamp(_, Some(_)) => PG_TIMESTAMPTZ,
        T::Interval(_) | T::Duration(_) => PG_INTERVAL,
        T::List(f) | T::LargeList(f) | T::ListView(f) | T::LargeListView(f) | T::FixedSizeList(f, _) => pg_type(f.data_type()),
        T::Struct(_) | T::Map(..) | T::Union(..) => PG_RECORD,
        T::Dictionary(_, value) => pg_type(value),
        T::RunEndEncoded(_, value) => pg_type(value.data_type()),
    }
}

/// `pg_type.oid` of a type: that of the array type for lists.
pub fn oid(data_type: &DataType) -> u32 {
    if is_list(data_type) { pg_type(data_type).array_oid } else { pg_type(data_type).oid }
}

/// `pg_type.typlen` of a type.
pub fn type_length(data_type: &DataType) -> i16 {
    if is_list(data_type) { -1 } else { pg_type(data_type).length }
}

/// `pg_attribute.atttypmod`: precision and scale of a numeric, digits of a second; -1: none.
pub fn type_modifier(data_type: &DataType) -> i32 {
    use DataType as T;
    match data_type {
        T::Decimal32(p, s) | T::Decimal64(p, s) | T::Decimal128(p, s) | T::Decimal256(p, s) if (*p, *s) != DEFAULT_NUMERIC => {
            ((i32::from(*p) << 16) | (i32::from(*s) & 0xFFFF)) + 4
        }
        T::Time32(unit) | T::Time64(unit) | T::Timestamp(unit, _) => match unit {
            TimeUnit::Second => 0,
            TimeUnit::Millisecond => 3,
            TimeUnit::Microsecond | TimeUnit::Nanosecond => -1,
        },
        _ => -1,
    }
}

/// The Arrow type for a Postgres type number, as a client declares parameters; `None`: unspecified or unknown to us.
pub fn from_oid(oid: u32) -> Option<DataType> {
    if let Some(array) = PG_TYPES.iter().find(|t| t.array_oid == oid && oid != 0) {
        return Some(DataType::List(Arc::new(Field::new_list_field(from_oid(array.oid)?, true))));
    }
    let found = PG_TYPES.iter().find(|t| t.oid == oid)?;
    match *found {
        PG_UNKNOWN | PG_RECORD => None,
        PG_OID => Some(DataType::Int64),
        known => parse_name(known.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        let names = [
            "bool",
            "int1",
            "int2",
            "int4",
            "int8",
            "uint1",
            "uint2",
            "uint4",
            "uint8",
            "float4",
            "float8",
            "numeric",
            "numeric(10,2)",
            "numeric(50,3)",
            "text",
            "bytea",
            "date",
            "time",
            "time(0)",
            "time(3)",
            "time(9)",
            "timestamp",
            "timestamp(3)",
            "timestamptz",
            "timestamptz(9)",
            "interval",
            "int4[]",
            "text[][]",
            "struct<a:int4,b:struct<c:numeric(3,1),d:text>>",
        ];
        for name in names {
            let data_type = parse_name(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(short_name(&data_type), name);
        }
    }

    #[test]
    fn postgres_spellings_are_understood() {
        for (spelling, name) in [
            ("BIGINT", "bigint"),
            ("Double  Precision", "double precision"),
            ("varchar(20)", "character varying"),
            ("timestamp (3) with time zone", "timestamp(3) with time zone"),
            ("TIMESTAMP WITHOUT TIME ZONE", "timestamp without time zone"),
            ("decimal(5)", "numeric(5,0)"),
            ("int[][]", "integer[]"),
            ("float(10)", "real"),
        ] {
            assert_eq!(sql_name(&parse_name(spelling).unwrap_or_else(|| panic!("{spelling}"))), name);
        }
        for wrong in ["", "integr", "int(3)", "numeric(0)", "numeric(5,6)", "numeric(", "struct<a>", "timestamp(x)"] {
            assert_eq!(parse_name(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn numbers_are_those_of_postgres() {
        let list = parse_name("int8[]").unwrap();
        assert_eq!((oid(&DataType::Int64), oid(&list), type_length(&list)), (20, 1016, -1));
        assert_eq!(from_oid(1016), Some(list));
        assert_eq!((from_oid(0), from_oid(705), from_oid(1043)), (None, None, Some(DataType::Utf8)));
        assert_eq!(type_modifier(&DataType::Decimal128(10, 2)), 655_366);
    }
}
