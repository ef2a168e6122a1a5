//! Column buffers that rows are decoded into: typed vectors that become Arrow arrays without a copy.
//!
//! Unlike Arrow's builders they can be cut back, so a row whose third value is bad leaves no trace of its first two.
//! Invariant between rows: every column holds exactly [`Columns::rows`] values.

use crate::parse::{self, Bad};
use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, BooleanBufferBuilder, Date32Array, Decimal128Array, Float32Array, Float64Array, Int16Array,
    Int32Array, Int64Array, IntervalMonthDayNanoArray, NullBufferBuilder, PrimitiveArray, RecordBatch, RecordBatchOptions, StringArray,
    Time64MicrosecondArray,
};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;
use arrow::datatypes::{
    DataType, IntervalMonthDayNano, IntervalUnit, SchemaRef, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use eddyline_protocol::ColumnDef;
use eddyline_protocol::catalog::schema_of;
use eddyline_types::{Error, Result, SqlState};
use std::borrow::Cow;
use std::sync::Arc;

/// Bytes of a value that an error message shows.
const SHOWN_BYTES: usize = 100;

/// Rows being decoded.
pub(crate) struct Columns {
    schema: SchemaRef,
    columns: Vec<Column>,
    rows: usize,
}

/// One column being filled.
pub(crate) struct Column {
    pub(crate) name: String,
    nullable: bool,
    values: Values,
    valid: NullBufferBuilder,
}

enum Values {
    Boolean(BooleanBufferBuilder),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Decimal(Vec<i128>, u8, i8),
    Text { ends: Vec<i32>, bytes: Vec<u8> },
    Binary { ends: Vec<i32>, bytes: Vec<u8> },
    Date(Vec<i32>),
    Time(Vec<i64>),
    Timestamp(Vec<i64>, TimeUnit, Option<Arc<str>>),
    Interval(Vec<IntervalMonthDayNano>),
}

/// The SQL name of a type, for messages; `None` if connectors cannot fill it.
pub(crate) fn sql_name(data_type: &DataType) -> Option<&'static str> {
    Some(match data_type {
        DataType::Boolean => "boolean",
        DataType::Int16 => "smallint",
        DataType::Int32 => "integer",
        DataType::Int64 => "bigint",
        DataType::Float32 => "real",
        DataType::Float64 => "double precision",
        DataType::Decimal128(_, _) => "numeric",
        DataType::Utf8 => "character varying",
        DataType::Binary => "bytea",
        DataType::Date32 => "date",
        DataType::Time64(TimeUnit::Microsecond) => "time",
        DataType::Timestamp(_, None) => "timestamp",
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone",
        DataType::Interval(IntervalUnit::MonthDayNano) => "interval",
        _ => return None,
    })
}

/// Refuses columns that no connector can fill.
pub(crate) fn check_types(columns: &[ColumnDef]) -> Result<()> {
    match columns.iter().find(|c| sql_name(&c.data_type).is_none()) {
        Some(c) => Err(Error::user(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("column \"{}\" has type {}, which no connector can read", c.name, c.data_type),
        )),
        None => Ok(()),
    }
}

/// Text for a message: valid UTF-8, cut.
pub(crate) fn shown(value: &[u8]) -> Cow<'_, str> {
    if value.len() <= SHOWN_BYTES {
        return String::from_utf8_lossy(value);
    }
    let cut = String::from_utf8_lossy(&value[..SHOWN_BYTES]);
    Cow::Owned(format!("{}...", cut.trim_end_matches('\u{fffd}')))
}

impl Columns {
    /// Empty buffers; the types were checked by [`check_types`].
    pub(crate) fn new(defs: &[ColumnDef]) -> Result<Self> {
        check_types(defs)?;
        let columns = defs.iter().map(Column::new).collect();
        Ok(Columns { schema: schema_of(defs), columns, rows: 0 })
    }

    /// Complete rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// The columns, to append one value to each.
    pub(crate) fn columns_mut(&mut self) -> &mut [Column] {
        &mut self.columns
    }

    /// Every column got its value: the row counts.
    pub(crate) fn end_row(&mut self) {
        self.rows += 1;
        debug_assert!(self.columns.iter().all(|c| c.valid.len() == self.rows), "a column missed a value");
    }

    /// Takes back what the row being decoded appended.
    pub(crate) fn abandon_row(&mut self) {
        for column in &mut self.columns {
            column.truncate(self.rows);
        }
    }

    /// The rows as a batch; the buffers are empty again.
    pub(crate) fn finish(&mut self) -> Result<RecordBatch> {
        let rows = std::mem::take(&mut self.rows);
        let arrays = self.columns.iter_mut().map(Column::finish).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?)
    }
}

impl Column {
    fn new(def: &ColumnDef) -> Self {
        let text = || (vec![0i32], Vec::new());
        let values = match &def.data_type {
            DataType::Boolean => Values::Boolean(BooleanBufferBuilder::new(0)),
            DataType::Int16 => Values::Int16(vec![]),
            DataType::Int32 => Values::Int32(vec![]),
            DataType::Int64 => Values::Int64(vec![]),
            DataType::Float32 => Values::Float32(vec![]),
            DataType::Float64 => Values::Float64(vec![]),
            DataType::Decimal128(p, s) => Values::Decimal(vec![], *p, *s),
            DataType::Binary => {
                let (ends, bytes) = text();
                Values::Binary { ends, bytes }
            }
            DataType::Date32 => Values::Date(vec![]),
            DataType::Time64(_) => Values::Time(vec![]),
            DataType::Timestamp(unit, zone) => Values::Timestamp(vec![], *unit, zone.clone()),
            DataType::Interval(_) => Values::Interval(vec![]),
            // Utf8; every other type was refused by `check_types`.
            _ => {
                let (ends, bytes) = text();
                Values::Text { ends, bytes }
            }
        };
        Column { name: def.name.clone(), nullable: def.nullable, values, valid: NullBufferBuilder::new(0) }
    }

    /// Whether values are text, which takes any characters.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.values, Values::Text { .. })
    }

    /// Whether values are whole numbers.
    pub(crate) fn is_integer(&self) -> bool {
        matches!(self.values, Values::Int16(_) | Values::Int32(_) | Values::Int64(_))
    }

    /// Whether values are numbers.
    pub(crate) fn is_number(&self) -> bool {
        self.is_integer() || matches!(self.values, Values::Float32(_) | Values::Float64(_) | Values::Decimal(..))
    }

    /// Whether values are true or false.
    pub(crate) fn is_boolean(&self) -> bool {
        matches!(self.values, Values::Boolean(_))
    }

    /// Appends NULL, if the column takes it.
    pub(crate) fn append_null(&mut self) -> Result<()> {
        if !self.nullable {
            let message = format!("null value in column \"{}\" violates not-null constraint", self.name);
            return Err(Error::user(SqlState::NOT_NULL_VIOLATION, message));
        }
        match &mut self.values {
            Values::Boolean(v) => v.append(false),
            Values::Int16(v) => v.push(0),
            Values::Int32(v) | Values::Date(v) => v.push(0),
            Values::Int64(v) | Values::Time(v) | Values::Timestamp(v, _, _) => v.push(0),
            Values::Float32(v) => v.push(0.0),
            Values::Float64(v) => v.push(0.0),
            Values::Decimal(v, _, _) => v.push(0),
            Values::Text { ends, bytes } | Values::Binary { ends, bytes } => ends.push(bytes.len() as i32),
            Values::Interval(v) => v.push(IntervalMonthDayNano::ZERO),
        }
        self.valid.append_null();
        Ok(())
    }

    /// Appends a value given as text. On error nothing was appended.
    pub(crate) fn append_text(&mut self, text: &[u8]) -> Result<()> {
        self.push(text, false).map_err(|bad| self.bad_value(text, bad))?;
        self.valid.append_non_null();
        Ok(())
    }

    /// Appends a JSON number given as its text: whole numbers may be written with a fraction of zeros.
    pub(crate) fn append_json_number(&mut self, text: &[u8]) -> Result<()> {
        self.push(text, true).map_err(|bad| self.bad_value(text, bad))?;
        self.valid.append_non_null();
        Ok(())
    }

    fn push(&mut self, text: &[u8], json: bool) -> Result<(), Bad> {
        let integer = if json { parse::json_integer } else { parse::integer };
        match &mut self.values {
            Values::Boolean(v) => v.append(parse::boolean(text)?),
            Values::Int16(v) => v.push(i16::try_from(integer(text)?).map_err(|_| Bad::Range)?),
            Values::Int32(v) => v.push(i32::try_from(integer(text)?).map_err(|_| Bad::Range)?),
            Values::Int64(v) => v.push(integer(text)?),
            Values::Float32(v) => {
                let wide = parse::float(text)?;
                let narrow = wide as f32;
                if narrow.is_infinite() && wide.is_finite() {
                    return Err(Bad::Range);
                }
                v.push(narrow);
            }
            Values::Float64(v) => v.push(parse::float(text)?),
            Values::Decimal(v, precision, scale) => v.push(parse::decimal(text, *precision, *scale)?),
            Values::Text { ends, bytes } => {
                std::str::from_utf8(text).map_err(|_| Bad::Syntax)?;
                bytes.extend_from_slice(text);
                ends.push(i32::try_from(bytes.len()).map_err(|_| Bad::Range)?);
            }
            Values::Binary { ends, bytes } => {
                let start = bytes.len();
                parse::bytea(text, bytes).inspect_err(|_| bytes.truncate(start))?;
                ends.push(i32::try_from(bytes.len()).map_err(|_| Bad::Range)?);
            }
            Values::Date(v) => v.push(parse::date(text)?),
            Values::Time(v) => v.push(parse::time(text)?),
            Values::Timestamp(v, unit, zone) => v.push(of_micros(parse::timestamp(text, zone.is_some())?, *unit)?),
            Values::Interval(v) => {
                let text = std::str::from_utf8(text).map_err(|_| Bad::Syntax)?;
                v.push(parse_interval_month_day_nano(text).map_err(|_| Bad::Syntax)?);
            }
        }
        Ok(())
    }

    /// The error for a value that is none of the column's type, worded as Postgres does, with the column's name in front.
    pub(crate) fn bad_value(&self, value: &[u8], bad: Bad) -> Error {
        let name = self.type_name();
        let value = shown(value);
        let temporal = matches!(self.values, Values::Date(_) | Values::Time(_) | Values::Timestamp(..));
        let error = match (&self.values, bad) {
            (Values::Text { .. }, _) => Error::user(SqlState("22021"), format!("invalid byte sequence for encoding \"UTF8\": {value:?}")),
            (_, Bad::Range) if temporal => {
                Error::user(SqlState::DATETIME_OVERFLOW, format!("date/time field value out of range: \"{value}\""))
            }
            (Values::Decimal(_, p, s), Bad::Range) => {
                let message = format!("numeric field overflow: \"{value}\" does not fit precision {p}, scale {s}");
                Error::user(SqlState::NUMERIC_OUT_OF_RANGE, message)
            }
            (_, Bad::Range) => Error::user(SqlState::NUMERIC_OUT_OF_RANGE, format!("value \"{value}\" is out of range for type {name}")),
            (_, Bad::Syntax) => {
                let state = if temporal { SqlState::INVALID_DATETIME } else { SqlState::INVALID_TEXT };
                Error::user(state, format!("invalid input syntax for type {name}: \"{value}\""))
            }
        };
        error.context(format_args!("column \"{}\"", self.name))
    }

    /// The SQL name of the column's type.
    pub(crate) fn type_name(&self) -> &'static str {
        match &self.values {
            Values::Boolean(_) => "boolean",
            Values::Int16(_) => "smallint",
            Values::Int32(_) => "integer",
            Values::Int64(_) => "bigint",
            Values::Float32(_) => "real",
            Values::Float64(_) => "double precision",
            Values::Decimal(..) => "numeric",
            Values::Text { .. } => "character varying",
            Values::Binary { .. } => "bytea",
            Values::Date(_) => "date",
            Values::Time(_) => "time",
            Values::Timestamp(_, _, None) => "timestamp",
            Values::Timestamp(_, _, Some(_)) => "timestamp with time zone",
            Values::Interval(_) => "interval",
        }
    }

    fn truncate(&mut self, rows: usize) {
        match &mut self.values {
            Values::Boolean(v) => v.truncate(rows),
            Values::Int16(v) => v.truncate(rows),
            Values::Int32(v) | Values::Date(v) => v.truncate(rows),
            Values::Int64(v) | Values::Time(v) | Values::Timestamp(v, _, _) => v.truncate(rows),
            Values::Float32(v) => v.truncate(rows),
            Values::Float64(v) => v.truncate(rows),
            Values::Decimal(v, _, _) => v.truncate(rows),
            Values::Text { ends, bytes } | Values::Binary { ends, bytes } => {
                ends.truncate(rows + 1);
                bytes.truncate(ends[rows] as usize);
            }
            Values::Interval(v) => v.truncate(rows),
        }
        self.valid.truncate(rows);
    }

    fn finish(&mut self) -> Result<ArrayRef> {
        let valid = self.valid.finish();
        fn take<T: arrow::datatypes::ArrowNativeType>(v: &mut Vec<T>) -> ScalarBuffer<T> {
            ScalarBuffer::from(std::mem::take(v))
        }
        Ok(match &mut self.values {
            Values::Boolean(v) => Arc::new(BooleanArray::new(v.finish(), valid)),
            Values::Int16(v) => Arc::new(Int16Array::new(take(v), valid)),
            Values::Int32(v) => Arc::new(Int32Array::new(take(v), valid)),
            Values::Int64(v) => Arc::new(Int64Array::new(take(v), valid)),
            Values::Float32(v) => Arc::new(Float32Array::new(take(v), valid)),
            Values::Float64(v) => Arc::new(Float64Array::new(take(v), valid)),
            Values::Decimal(v, p, s) => Arc::new(Decimal128Array::new(take(v), valid).with_precision_and_scale(*p, *s)?),
            Values::Text { ends, bytes } => {
                let offsets = OffsetBuffer::new(std::mem::replace(ends, vec![0]).into());
                Arc::new(StringArray::try_new(offsets, Buffer::from_vec(std::mem::take(bytes)), valid)?)
            }
            Values::Binary { ends, bytes } => {
                let offsets = OffsetBuffer::new(std::mem::replace(ends, vec![0]).into());
                Arc::new(BinaryArray::try_new(offsets, Buffer::from_vec(std::mem::take(bytes)), valid)?)
            }
            Values::Date(v) => Arc::new(Date32Array::new(take(v), valid)),
            Values::Time(v) => Arc::new(Time64MicrosecondArray::new(take(v), valid)),
            Values::Timestamp(v, unit, zone) => timestamps(take(v), valid, *unit, zone.clone()),
            Values::Interval(v) => Arc::new(IntervalMonthDayNanoArray::new(take(v), valid)),
        })
    }
}

/// Microseconds in another unit.
pub(crate) fn of_micros(micros: i64, unit: TimeUnit) -> Result<i64, Bad> {
    match unit {
        TimeUnit::Second => Ok(micros.div_euclid(1_000_000)),
        TimeUnit::Millisecond => Ok(micros.div_euclid(1000)),
        TimeUnit::Microsecond => Ok(micros),
        TimeUnit::Nanosecond => micros.checked_mul(1000).ok_or(Bad::Range),
    }
}

/// A timestamp array of any unit.
pub(crate) fn timestamps(
    values: ScalarBuffer<i64>,
    valid: Option<arrow::buffer::NullBuffer>,
    unit: TimeUnit,
    zone: Option<Arc<str>>,
) -> ArrayRef {
    match unit {
        TimeUnit::Second => Arc::new(PrimitiveArray::<TimestampSecondType>::new(values, valid).with_timezone_opt(zone)),
        TimeUnit::Millisecond => Arc::new(PrimitiveArray::<TimestampMillisecondType>::new(values, valid).with_timezone_opt(zone)),
        TimeUnit::Microsecond => Arc::new(PrimitiveArray::<TimestampMicrosecondType>::new(values, valid).with_timezone_opt(zone)),
        TimeUnit::Nanosecond => Arc::new(PrimitiveArray::<TimestampNanosecondType>::new(values, valid).with_timezone_opt(zone)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;

    #[test]
    fn an_abandoned_row_leaves_no_trace() {
        let mut name = ColumnDef::new("name", DataType::Utf8);
        name.nullable = false;
        let mut columns = Columns::new(&[ColumnDef::new("id", DataType::Int32), name]).unwrap();
        columns.columns_mut()[0].append_text(b"1").unwrap();
        columns.columns_mut()[1].append_text("é".as_bytes()).unwrap();
        columns.end_row();
        columns.columns_mut()[0].append_null().unwrap();
        let error = columns.columns_mut()[1].append_null().unwrap_err();
        assert_eq!(error.sqlstate(), SqlState::NOT_NULL_VIOLATION);
        columns.abandon_row();
        columns.columns_mut()[0].append_text(b"2").unwrap();
        assert!(columns.columns_mut()[1].append_text(b"\xff").is_err());
        columns.abandon_row();
        let batch = columns.finish().unwrap();
        assert_eq!(batch.num_rows(), 1);
        assert_eq!(batch.column(1).as_string::<i32>().value(0), "é");
        assert_eq!(batch.column(0).null_count(), 0);
        assert_eq!(columns.finish().unwrap().num_rows(), 0);
    }

    #[test]
    fn errors_name_column_and_value() {
        let mut columns = Columns::new(&[ColumnDef::new("id", DataType::Int32), ColumnDef::new("n", DataType::Decimal128(10, 2))]).unwrap();
        let [id, n] = columns.columns_mut() else { panic!() };
        let text = id.append_text(b"x").unwrap_err();
        assert_eq!(text.message(), "column \"id\": invalid input syntax for type integer: \"x\"");
        let text = id.append_text(b"99999999999999999999").unwrap_err();
        assert_eq!(text.message(), "column \"id\": value \"99999999999999999999\" is out of range for type integer");
        assert_eq!(n.append_text(b"1e20").unwrap_err().sqlstate(), SqlState::NUMERIC_OUT_OF_RANGE);
    }
}
