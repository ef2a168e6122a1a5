//! Bound parameters: from text or binary to Arrow arrays of one row.
//!
//! A value is read as the type that the client was told or has declared, then cast to the type that the statement wants.

use crate::encode::{EPOCH_DAYS, EPOCH_MICROS, Format, format_of};
use crate::message::{Bind, violation};
use arrow::array::*;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::*;
use eddyline_types::sql_types::{self, *};
use eddyline_types::value_parse::parse_column;
use eddyline_types::{Error, Result, SqlState};
use std::sync::Arc;

/// The type of each parameter on the wire: what the client has declared (0: not), else what the statement wants.
pub(crate) fn wire_oids(declared: &[u32], wanted: &[DataType]) -> Vec<u32> {
    let known = |oid: &u32| *oid != 0 && *oid != PG_UNKNOWN.oid;
    wanted.iter().enumerate().map(|(i, t)| declared.get(i).copied().filter(known).unwrap_or_else(|| sql_types::oid(t))).collect()
}

/// One array of one row for each parameter.
pub(crate) fn decode(bind: &Bind, oids: &[u32], wanted: &[DataType]) -> Result<Vec<ArrayRef>> {
    let count = bind.parameters.len();
    if count != wanted.len() {
        return Err(violation(format!(
            "bind message supplies {count} parameters, but prepared statement \"{}\" requires {}",
            bind.statement,
            wanted.len()
        )));
    }
    if bind.parameter_formats.len() > 1 && bind.parameter_formats.len() != count {
        return Err(violation(format!("bind message has {} parameter formats but {count} parameters", bind.parameter_formats.len())));
    }
    let mut values = Vec::with_capacity(count);
    for (i, (value, (oid, wanted))) in bind.parameters.iter().zip(oids.iter().zip(wanted)).enumerate() {
        let Some(value) = value else {
            values.push(new_null_array(wanted, 1));
            continue;
        };
        values.push(match format_of(&bind.parameter_formats, i) {
            Format::Text => text(value, *oid, wanted)?,
            Format::Binary => {
                let array = binary(value, *oid).map_err(|e| match e {
                    Wrong::Format => {
                        Error::user(SqlState::INVALID_BINARY, format!("incorrect binary data format in bind parameter {}", i + 1))
                    }
                    Wrong::Value(e) => e,
                })?;
                convert(array, wanted)?
            }
        });
    }
    Ok(values)
}

fn text(value: &[u8], oid: u32, wanted: &DataType) -> Result<ArrayRef> {
    let text = std::str::from_utf8(value).map_err(|e| {
        Error::user(SqlState("22021"), format!("invalid byte sequence for encoding \"UTF8\": 0x{:02x}", value[e.valid_up_to()]))
    })?;
    // The declared type decides what is valid; where it is a text, the wanted type reads it directly.
    match sql_types::from_oid(oid) {
        Some(declared) if declared != DataType::Utf8 && !same_family(&declared, wanted) => {
            convert(parse_column(&declared, &[Some(text)])?, wanted)
        }
        _ => parse_column(wanted, &[Some(text)]),
    }
}

/// A numeric without a scale must not round what the wanted scale could keep.
fn same_family(a: &DataType, b: &DataType) -> bool {
    sql_types::pg_type(a) == sql_types::pg_type(b)
}

fn convert(array: ArrayRef, wanted: &DataType) -> Result<ArrayRef> {
    if array.data_type() == wanted {
        return Ok(array);
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&array, wanted, &options).map_err(|e| {
        Error::user(SqlState::CANNOT_COERCE, format!("cannot convert a parameter to type {}", sql_types::sql_name(wanted)))
            .with_detail(e.to_string())
    })
}

enum Wrong {
    Format,
    Value(Error),
}

impl From<Error> for Wrong {
    fn from(e: Error) -> Self {
        Wrong::Value(e)
    }
}

impl From<arrow::error::ArrowError> for Wrong {
    fn from(e: arrow::error::ArrowError) -> Self {
        Wrong::Value(e.into())
    }
}

fn fixed<const N: usize>(value: &[u8]) -> Result<[u8; N], Wrong> {
    value.try_into().map_err(|_| Wrong::Format)
}

fn utf8(value: &[u8]) -> Result<ArrayRef, Wrong> {
    let text = std::str::from_utf8(value).map_err(|_| Wrong::Format)?;
    Ok(Arc::new(StringArray::from(vec![text])))
}

/// A value as Postgres' receive functions read it.
fn binary(value: &[u8], oid: u32) -> Result<ArrayRef, Wrong> {
    macro_rules! array {
        ($array:ident, $value:expr) => {
            Arc::new($array::from(vec![$value])) as ArrayRef
        };
    }
    let Some(known) = PG_TYPES.iter().find(|t| t.oid == oid) else {
        return match PG_TYPES.iter().find(|t| t.array_oid == oid && oid != 0) {
            Some(element) => list(value, element.oid),
            // Types of extensions come as their text more often than not.
            None => utf8(value),
        };
    };
    let timestamp_overflow = || Error::user(SqlState::DATETIME_OVERFLOW, "timestamp out of range");
    Ok(match *known {
        PG_BOOL => array!(BooleanArray, fixed::<1>(value)? != [0]),
        PG_INT2 => array!(Int16Array, i16::from_be_bytes(fixed(value)?)),
        PG_INT4 => array!(Int32Array, i32::from_be_bytes(fixed(value)?)),
        PG_INT8 => array!(Int64Array, i64::from_be_bytes(fixed(value)?)),
        PG_OID => array!(Int64Array, i64::from(u32::from_be_bytes(fixed(value)?))),
        PG_FLOAT4 => array!(Float32Array, f32::from_be_bytes(fixed(value)?)),
        PG_FLOAT8 => array!(Float64Array, f64::from_be_bytes(fixed(value)?)),
        PG_BYTEA => Arc::new(BinaryArray::from(vec![value])),
        PG_DATE => {
            let days = i64::from(i32::from_be_bytes(fixed(value)?)) + EPOCH_DAYS;
            array!(Date32Array, i32::try_from(days).map_err(|_| Error::user(SqlState::DATETIME_OVERFLOW, "date out of range"))?)
        }
        PG_TIME => array!(Time64MicrosecondArray, i64::from_be_bytes(fixed(value)?)),
        PG_TIMESTAMP | PG_TIMESTAMPTZ => {
            let micros = i64::from_be_bytes(fixed(value)?).checked_add(EPOCH_MICROS).ok_or_else(timestamp_overflow)?;
            let array = TimestampMicrosecondArray::from(vec![micros]);
            Arc::new(if *known == PG_TIMESTAMPTZ { array.with_timezone("UTC") } else { array })
        }
        PG_INTERVAL => {
            let bytes: [u8; 16] = fixed(value)?;
            let micros = i64::from_be_bytes(fixed(&bytes[..8])?);
            let days = i32::from_be_bytes(fixed(&bytes[8..12])?);
            let months = i32::from_be_bytes(fixed(&bytes[12..])?);
            let nanos = micros.checked_mul(1_000).ok_or_else(|| Error::user(SqlState::DATETIME_OVERFLOW, "interval out of range"))?;
            array!(IntervalMonthDayNanoArray, IntervalMonthDayNano::new(months, days, nanos))
        }
        PG_NUMERIC => numeric(value)?,
        PG_UUID => {
            let bytes: [u8; 16] = fixed(value)?;
            let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            utf8(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]).as_bytes())?
        }
        PG_JSONB => utf8(value.strip_prefix(&[1]).ok_or(Wrong::Format)?)?,
        PG_RECORD => return Err(Error::unsupported("input of anonymous composite types is not implemented").into()),
        _ => utf8(value)?,
    })
}

/// A numeric with exactly its digits as precision and scale, so that nothing is rounded before the cast to the wanted type.
fn numeric(value: &[u8]) -> Result<ArrayRef, Wrong> {
    let words: Vec<u16> = value.chunks(2).map(|w| Ok(u16::from_be_bytes(fixed(w)?))).collect::<Result<_, Wrong>>()?;
    let [count, weight, sign, scale, groups @ ..] = &words[..] else { return Err(Wrong::Format) };
    if groups.len() != usize::from(*count) || groups.iter().any(|g| *g > 9999) {
        return Err(Wrong::Format);
    }
    match sign {
        0 | 0x4000 => {}
        0xC000 | 0xD000 | 0xF000 => return Err(Error::unsupported("numeric NaN and infinity are not supported").into()),
        _ => return Err(Wrong::Format),
    }
    let overflow = || Error::user(SqlState::NUMERIC_OUT_OF_RANGE, "value overflows numeric format");
    let (weight, scale) = (i32::from(*weight as i16), i32::from(*scale));
    if scale > 76 || weight.abs() > 20 {
        return Err(overflow().into());
    }
    // Digits as text, then the one parser for decimals.
    let mut text = String::from(if *sign == 0x4000 { "-" } else { "" });
    if groups.is_empty() {
        text.push('0');
    }
    groups.iter().for_each(|g| text.push_str(&format!("{g:04}")));
    text.push_str(&format!("e{}", (weight - i32::from(*count) + 1) * 4));
    let scale = scale.min(38) as i8;
    Ok(parse_column(&DataType::Decimal128(38, scale), &[Some(&text)])?)
}

/// An array of one or no dimension; more dimensions nest.
fn list(value: &[u8], element: u32) -> Result<ArrayRef, Wrong> {
    let mut rest = value;
    let mut word = || -> Result<i32, Wrong> {
        let (head, tail) = rest.split_first_chunk::<4>().ok_or(Wrong::Format)?;
        rest = tail;
        Ok(i32::from_be_bytes(*head))
    };
    let (dimensions, _nulls, sent) = (word()?, word()?, word()? as u32);
    if !(0..=6).contains(&dimensions) || sent != element {
        return Err(Wrong::Format);
    }
    let mut lengths = Vec::new();
    for _ in 0..dimensions {
        lengths.push(usize::try_from(word()?).map_err(|_| Wrong::Format)?);
        word()?;
    }
    let total = lengths.iter().try_fold(usize::from(dimensions > 0), |n, l| n.checked_mul(*l)).ok_or(Wrong::Format)?;
    // Each element has at least its length, so a total that lies is noticed before anything is kept for it.
    if total > rest.len() / 4 {
        return Err(Wrong::Format);
    }
    let data_type = sql_types::from_oid(element).unwrap_or(DataType::Utf8);
    let mut elements = Vec::with_capacity(total);
    for _ in 0..total {
        let (head, tail) = rest.split_first_chunk::<4>().ok_or(Wrong::Format)?;
        let length = i32::from_be_bytes(*head);
        if length == -1 {
            rest = tail;
            elements.push(new_null_array(&data_type, 1));
            continue;
        }
        let (bytes, after) = tail.split_at_checked(usize::try_from(length).map_err(|_| Wrong::Format)?).ok_or(Wrong::Format)?;
        rest = after;
        elements.push(convert(binary(bytes, element)?, &data_type)?);
    }
    if !rest.is_empty() {
        return Err(Wrong::Format);
    }
    let parts: Vec<&dyn Array> = elements.iter().map(|e| e.as_ref()).collect();
    let mut values = if parts.is_empty() { new_empty_array(&data_type) } else { arrow::compute::concat(&parts)? };
    for length in lengths.iter().skip(1).rev() {
        let rows = if *length == 0 { 0 } else { values.len() / length };
        values = nest(values, std::iter::repeat_n(*length, rows))?;
    }
    let count = values.len();
    Ok(nest(values, std::iter::once(count))?)
}

fn nest(values: ArrayRef, lengths: impl Iterator<Item = usize>) -> Result<ArrayRef> {
    let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    let offsets = arrow::buffer::OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(field, offsets, values, None)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::Column;
    use bytes::Bytes;
    use eddyline_types::value_text::TextColumn;

    /// What is sent in binary comes back as the same value.
    #[test]
    fn binary_values_round_trip() {
        for (type_name, text) in [
            ("bool", "t"),
            ("int2", "-3"),
            ("int4", "70000"),
            ("int8", "-9223372036854775808"),
            ("float4", "1.5"),
            ("float8", "-1e+300"),
            ("numeric(38,6)", "-12345678901234567890.000100"),
            ("numeric(10,2)", "0.00"),
            ("text", "grüße"),
            ("bytea", "\\x00ff"),
            ("date", "1999-12-31"),
            ("time", "23:59:59.999999"),
            ("timestamp", "1969-12-31 23:59:59.5"),
            ("timestamptz", "2024-02-29 00:00:00+00"),
            ("interval", "1 year 2 mons -3 days +04:05:06.000007"),
            ("int4[]", "{1,NULL,3}"),
            ("text[]", "{a,\"b c\"}"),
            ("int8[]", "{}"),
            ("int4[][]", "{{1,2},{3,4}}"),
        ] {
            let data_type = parse_name(type_name).unwrap();
            let array = parse_column(&data_type, &[Some(text)]).unwrap();
            let mut bytes = Vec::new();
            Column::new(array.as_ref(), Format::Binary).write(0, &mut bytes).unwrap();
            let oid = sql_types::oid(&data_type);
            let bind = Bind { parameter_formats: vec![1], parameters: vec![Some(Bytes::from(bytes[4..].to_vec()))], ..Bind::default() };
            let back = decode(&bind, &[oid], std::slice::from_ref(&data_type)).unwrap_or_else(|e| panic!("{type_name} {text}: {e:?}"));
            assert_eq!(TextColumn::new(back[0].as_ref()).text(0), text, "{type_name}");
            // Cut short, every type says so and none panics.
            for cut in 0..bytes.len() - 4 {
                let bind =
                    Bind { parameter_formats: vec![1], parameters: vec![Some(Bytes::from(bytes[4..4 + cut].to_vec()))], ..Bind::default() };
                let result = decode(&bind, &[oid], std::slice::from_ref(&data_type));
                assert!(result.is_err() || matches!(type_name, "text" | "bytea" | "numeric(38,6)"), "{type_name} cut at {cut}");
            }
        }
    }

    #[test]
    fn declared_types_are_cast_to_the_wanted_ones() {
        let bind = |format, value: &'static [u8]| Bind {
            parameter_formats: vec![format],
            parameters: vec![Some(Bytes::from_static(value))],
            ..Bind::default()
        };
        let oids = wire_oids(&[23], &[DataType::Int64]);
        assert_eq!(oids, [23]);
        let value = decode(&bind(1, &[0, 0, 0, 7]), &oids, &[DataType::Int64]).unwrap();
        assert_eq!(value[0].as_primitive::<Int64Type>().value(0), 7);
        let error = decode(&bind(0, b"x"), &oids, &[DataType::Int64]).unwrap_err();
        assert_eq!(error.message(), "invalid input syntax for type integer: \"x\"");
        let value = decode(&bind(0, b"2.345"), &[PG_NUMERIC.oid], &[DataType::Decimal128(10, 3)]).unwrap();
        assert_eq!(TextColumn::new(value[0].as_ref()).text(0), "2.345");
        assert_eq!(decode(&bind(1, b"12"), &[20], &[DataType::Int64]).unwrap_err().sqlstate(), SqlState::INVALID_BINARY);
        assert_eq!(decode(&bind(0, b"1"), &[], &[]).unwrap_err().sqlstate(), SqlState::PROTOCOL_VIOLATION);
    }
}
