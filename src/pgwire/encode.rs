//! Result values on the wire: text as `types::value_text` prints them, binary as Postgres' send functions write them.
//!
//! A column's type is resolved once per batch; a value is then appended with its length in front.

use arrow::array::*;
use arrow::compute::cast;
use arrow::datatypes::*;
use eddyline_types::value_text::TextColumn;
use eddyline_types::{Error, Result, SqlState, sql_types};

/// Days from the Unix epoch to 2000-01-01, where Postgres counts from.
pub(crate) const EPOCH_DAYS: i64 = 10_957;
/// The same in microseconds.
pub(crate) const EPOCH_MICROS: i64 = EPOCH_DAYS * 86_400_000_000;

/// Format of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Format {
    Text = 0,
    Binary = 1,
}

/// The format of column `index`, as Bind gives them: none = text, one = for all.
pub(crate) fn format_of(formats: &[i16], index: usize) -> Format {
    let code = match formats {
        [] => 0,
        [one] => *one,
        many => many.get(index).copied().unwrap_or(0),
    };
    if code == 1 { Format::Binary } else { Format::Text }
}

/// Brings a column into a type that has a wire form: dictionaries and the like become plain.
pub(crate) fn plain(column: &ArrayRef) -> Result<ArrayRef> {
    match column.data_type() {
        DataType::Dictionary(_, value) => Ok(cast(column, value)?),
        DataType::RunEndEncoded(_, value) => Ok(cast(column, value.data_type())?),
        DataType::LargeList(f) | DataType::FixedSizeList(f, _) => Ok(cast(column, &DataType::List(f.clone()))?),
        _ => Ok(column.clone()),
    }
}

/// A column of a result, ready to be sent.
pub(crate) struct Column<'a> {
    array: &'a dyn Array,
    text: TextColumn<'a>,
    format: Format,
}

impl<'a> Column<'a> {
    /// `array` must have passed [`plain`].
    pub fn new(array: &'a dyn Array, format: Format) -> Self {
        Column { array, text: TextColumn::new(array), format }
    }

    /// Appends length and value, or -1 for NULL.
    pub fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        if self.array.is_null(row) || matches!(self.text, TextColumn::Null) {
            out.extend_from_slice(&(-1i32).to_be_bytes());
            return Ok(());
        }
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        match self.format {
            Format::Text => self.text.write(row, out),
            Format::Binary => write_binary(self.array, row, out)?,
        }
        let length = i32::try_from(out.len() - start - 4).map_err(|_| Error::user(SqlState::LIMIT_EXCEEDED, "a value exceeds 2 GiB"))?;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }
}

/// The value of a row in Postgres' binary form, without its length.
fn write_binary(array: &dyn Array, row: usize, out: &mut Vec<u8>) -> Result<()> {
    use DataType as T;
    macro_rules! value {
        ($t:ty) => {
            array.as_primitive::<$t>().value(row)
        };
    }
    macro_rules! put {
        ($value:expr) => {
            out.extend_from_slice(&($value).to_be_bytes())
        };
    }
    match array.data_type() {
        T::Boolean => out.push(u8::from(array.as_boolean().value(row))),
        T::Int8 => put!(i16::from(value!(Int8Type))),
        T::UInt8 => put!(i16::from(value!(UInt8Type))),
        T::Int16 => put!(value!(Int16Type)),
        T::UInt16 => put!(i32::from(value!(UInt16Type))),
        T::Int32 => put!(value!(Int32Type)),
        T::UInt32 => put!(i64::from(value!(UInt32Type))),
        T::Int64 => put!(value!(Int64Type)),
        T::UInt64 => write_numeric(&value!(UInt64Type).to_string(), 0, out),
        T::Float32 => put!(value!(Float32Type)),
        T::Float64 => put!(value!(Float64Type)),
        T::Decimal32(_, s) | T::Decimal64(_, s) | T::Decimal128(_, s) | T::Decimal256(_, s) => {
            write_numeric(&TextColumn::new(array).text(row), (*s).max(0) as u16, out);
        }
        T::Utf8 => out.extend_from_slice(array.as_string::<i32>().value(row).as_bytes()),
        T::LargeUtf8 => out.extend_from_slice(array.as_string::<i64>().value(row).as_bytes()),
        T::Utf8View => out.extend_from_slice(array.as_string_view().value(row).as_bytes()),
        T::Binary => out.extend_from_slice(array.as_binary::<i32>().value(row)),
        T::LargeBinary => out.extend_from_slice(array.as_binary::<i64>().value(row)),
        T::BinaryView => out.extend_from_slice(array.as_binary_view().value(row)),
        T::FixedSizeBinary(_) => out.extend_from_slice(array.as_fixed_size_binary().value(row)),
        T::Date32 => put!(in_range(i64::from(value!(Date32Type)) - EPOCH_DAYS)?),
        T::Date64 => put!(in_range(value!(Date64Type).div_euclid(86_400_000) - EPOCH_DAYS)?),
        T::Time32(TimeUnit::Second) => put!(i64::from(value!(Time32SecondType)) * 1_000_000),
        T::Time32(_) => put!(i64::from(value!(Time32MillisecondType)) * 1_000),
        T::Time64(TimeUnit::Nanosecond) => put!(value!(Time64NanosecondType).div_euclid(1_000)),
        T::Time64(_) => put!(value!(Time64MicrosecondType)),
        T::Timestamp(unit, _) => {
            let micros = match unit {
                TimeUnit::Second => value!(TimestampSecondType).checked_mul(1_000_000),
                TimeUnit::Millisecond => value!(TimestampMillisecondType).checked_mul(1_000),
                TimeUnit::Microsecond => Some(value!(TimestampMicrosecondType)),
                TimeUnit::Nanosecond => Some(value!(TimestampNanosecondType).div_euclid(1_000)),
            };
            put!(micros.and_then(|m| m.checked_sub(EPOCH_MICROS)).ok_or_else(timestamp_out_of_range)?);
        }
        T::Interval(IntervalUnit::MonthDayNano) => {
            let v = value!(IntervalMonthDayNanoType);
            put!(v.nanoseconds.div_euclid(1_000));
            put!(v.days);
            put!(v.months);
        }
        T::Duration(unit) => {
            let micros = match unit {
                TimeUnit::Second => value!(DurationSecondType).checked_mul(1_000_000),
                TimeUnit::Millisecond => value!(DurationMillisecondType).checked_mul(1_000),
                TimeUnit::Microsecond => Some(value!(DurationMicrosecondType)),
                TimeUnit::Nanosecond => Some(value!(DurationNanosecondType).div_euclid(1_000)),
            };
            put!(micros.ok_or_else(|| Error::user(SqlState::DATETIME_OVERFLOW, "interval out of range"))?);
            put!(0i64);
        }
        T::List(_) => write_list(array, row, out)?,
        T::Struct(_) => {
            let fields = array.as_struct();
            put!(fields.num_columns() as i32);
            for field in fields.columns() {
                put!(sql_types::oid(field.data_type()));
                let field = plain(field)?;
                Column::new(field.as_ref(), Format::Binary).write(row, out)?;
            }
        }
        // Types without an SQL form go as text.
        _ => TextColumn::new(array).write(row, out),
    }
    Ok(())
}

fn timestamp_out_of_range() -> Error {
    Error::user(SqlState::DATETIME_OVERFLOW, "timestamp out of range")
}

fn in_range(days: i64) -> Result<i32> {
    i32::try_from(days).map_err(|_| Error::user(SqlState::DATETIME_OVERFLOW, "date out of range"))
}

/// Postgres' numeric: groups of four digits around the decimal point. `text`: `-123.4500`.
fn write_numeric(text: &str, scale: u16, out: &mut Vec<u8>) {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |d| (true, d));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.trim_start_matches('0');
    // The point falls between groups: pad the whole part on the left and the fraction on the right.
    let padded = format!("{}{whole}{fraction}{}", &"000"[..(4 - whole.len() % 4) % 4], &"000"[..(4 - fraction.len() % 4) % 4]);
    let mut groups: Vec<i16> = padded.as_bytes().chunks(4).map(|g| g.iter().fold(0, |n, d| n * 10 + i16::from(d - b'0'))).collect();
    let mut weight = whole.len().div_ceil(4) as i16 - 1;
    let leading = groups.iter().take_while(|g| **g == 0).count();
    groups.drain(..leading);
    weight -= leading as i16;
    while groups.last() == Some(&0) {
        groups.pop();
    }
    if groups.is_empty() {
        weight = 0;
    }
    let sign: u16 = if negative && !groups.is_empty() { 0x4000 } else { 0 };
    out.extend_from_slice(&(groups.len() as u16).to_be_bytes());
    out.extend_from_slice(&weight.to_be_bytes());
    out.extend_from_slice(&sign.to_be_bytes());
    out.extend_from_slice(&scale.to_be_bytes());
    groups.iter().for_each(|g| out.extend_from_slice(&g.to_be_bytes()));
}

/// Dimensions, whether NULLs occur, element type, then the elements. Lists of lists must be rectangular, as in Postgres.
fn write_list(array: &dyn Array, row: usize, out: &mut Vec<u8>) -> Result<()> {
    let mut level = array.as_list::<i32>().value(row);
    let mut dimensions = vec![level.len()];
    while let DataType::List(_) = level.data_type() {
        let lists = level.as_list::<i32>().clone();
        let length = if lists.is_empty() { 0 } else { lists.value_length(0) as usize };
        if lists.null_count() > 0 || (0..lists.len()).any(|i| lists.value_length(i) as usize != length) {
            return Err(Error::unsupported("multidimensional arrays must have sub-arrays with matching dimensions")
                .with_hint("Ask for the column in text format, or cast it to text."));
        }
        dimensions.push(length);
        // The values of an array may reach beyond its rows.
        let (from, to) = (lists.value_offsets()[0] as usize, lists.value_offsets()[lists.len()] as usize);
        level = lists.values().slice(from, to - from);
    }
    let level = plain(&level)?;
    if level.is_empty() {
        dimensions.clear();
    }
    out.extend_from_slice(&(dimensions.len() as i32).to_be_bytes());
    out.extend_from_slice(&i32::from(level.null_count() > 0).to_be_bytes());
    out.extend_from_slice(&sql_types::oid(level.data_type()).to_be_bytes());
    for length in dimensions {
        out.extend_from_slice(&(length as i32).to_be_bytes());
        out.extend_from_slice(&1i32.to_be_bytes());
    }
    let column = Column::new(level.as_ref(), Format::Binary);
    (0..level.len()).try_for_each(|i| column.write(i, out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numeric(text: &str, scale: u16) -> Vec<i16> {
        let mut out = Vec::new();
        write_numeric(text, scale, &mut out);
        out.chunks(2).map(|b| i16::from_be_bytes([b[0], b[1]])).collect()
    }

    #[test]
    fn numeric_groups_are_those_of_postgres() {
        assert_eq!(numeric("12345.678", 3), [3, 1, 0, 3, 1, 2345, 6780]);
        assert_eq!(numeric("-0.0001", 4), [1, -1, 0x4000, 4, 1]);
        assert_eq!(numeric("0.00", 2), [0, 0, 0, 2]);
        assert_eq!(numeric("10000", 0), [1, 1, 0, 0, 1]);
        assert_eq!(numeric("0.00001", 5), [1, -2, 0, 5, 1000]);
    }

    #[test]
    fn formats_follow_bind() {
        assert_eq!([format_of(&[], 3), format_of(&[1], 3), format_of(&[0, 1], 1)], [Format::Text, Format::Binary, Format::Binary]);
    }
}
