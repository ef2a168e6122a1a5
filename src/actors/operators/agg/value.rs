//! Values in a form that compares as SQL orders them: for min, max and DISTINCT.
//!
//! Types of at most 128 bits become an `i128` (floats by their total order, with -0 = 0 and one NaN above all); others become arrow-row bytes.

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, BooleanArray, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::{ArrowNativeType, DataType, Float32Type, Float64Type};
use arrow_row::{RowConverter, SortField};
use eddyline_types::Result;
use std::sync::Arc;

/// One value that is not NULL. All values of one column have one variant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// A value of at most 128 bits.
    Fixed(i128),
    /// Any other, as arrow-row bytes.
    Bytes(Box<[u8]>),
}

/// Turns columns of one type into [`Value`]s and back.
pub struct ValueCodec {
    data_type: DataType,
    converter: Option<RowConverter>,
}

/// The values of a column; what stands at NULLs is arbitrary.
pub enum Values {
    #[allow(missing_docs)]
    Fixed(Vec<i128>),
    #[allow(missing_docs)]
    Bytes(arrow_row::Rows),
}

impl Values {
    /// One value.
    pub fn get(&self, row: usize) -> Value {
        match self {
            Values::Fixed(values) => Value::Fixed(values[row]),
            Values::Bytes(rows) => Value::Bytes(rows.row(row).as_ref().into()),
        }
    }
}

fn is_fixed(data_type: &DataType) -> bool {
    match data_type {
        DataType::Boolean | DataType::Decimal128(_, _) => true,
        DataType::Float16 | DataType::Interval(_) | DataType::Decimal32(_, _) | DataType::Decimal64(_, _) => false,
        other => other.primitive_width().is_some_and(|w| w <= 8),
    }
}

/// Floats as integers of the same order. Its own inverse.
fn flip64(bits: i64) -> i64 {
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

fn flip32(bits: i32) -> i32 {
    bits ^ (((bits >> 31) as u32) >> 1) as i32
}

impl ValueCodec {
    /// A codec for a type.
    pub fn new(data_type: DataType) -> Result<Self> {
        let converter = if is_fixed(&data_type) { None } else { Some(RowConverter::new(vec![SortField::new(data_type.clone())])?) };
        Ok(ValueCodec { data_type, converter })
    }

    /// Whether values are `Value::Fixed`.
    pub fn is_fixed(&self) -> bool {
        self.converter.is_none()
    }

    /// All values of a column.
    pub fn values(&self, column: &ArrayRef) -> Result<Values> {
        match &self.converter {
            Some(converter) => Ok(Values::Bytes(converter.convert_columns(std::slice::from_ref(column))?)),
            None => Ok(Values::Fixed(self.fixed(column))),
        }
    }

    fn fixed(&self, column: &ArrayRef) -> Vec<i128> {
        let data = column.to_data();
        fn typed<T: ArrowNativeType>(data: &ArrayData, f: impl Fn(T) -> i128) -> Vec<i128> {
            data.buffers()[0].typed_data::<T>()[data.offset()..data.offset() + data.len()].iter().map(|v| f(*v)).collect()
        }
        match &self.data_type {
            DataType::Boolean => column.as_boolean().values().iter().map(i128::from).collect(),
            DataType::Float64 => {
                let canonical = |v: &f64| if v.is_nan() { f64::NAN } else { v + 0.0 };
                column.as_primitive::<Float64Type>().values().iter().map(|v| flip64(canonical(v).to_bits() as i64).into()).collect()
            }
            DataType::Float32 => {
                let canonical = |v: &f32| if v.is_nan() { f32::NAN } else { v + 0.0 };
                column.as_primitive::<Float32Type>().values().iter().map(|v| flip32(canonical(v).to_bits() as i32).into()).collect()
            }
            DataType::Decimal128(_, _) => typed::<i128>(&data, |v| v),
            DataType::UInt8 => typed::<u8>(&data, i128::from),
            DataType::UInt16 => typed::<u16>(&data, i128::from),
            DataType::UInt32 => typed::<u32>(&data, i128::from),
            DataType::UInt64 => typed::<u64>(&data, i128::from),
            other => match other.primitive_width() {
                Some(1) => typed::<i8>(&data, i128::from),
                Some(2) => typed::<i16>(&data, i128::from),
                Some(4) => typed::<i32>(&data, i128::from),
                _ => typed::<i64>(&data, i128::from),
            },
        }
    }

    /// A column of fixed values.
    pub fn fixed_column(&self, values: Vec<i128>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let len = values.len();
        let buffer = match &self.data_type {
            DataType::Boolean => {
                let bits = BooleanBuffer::collect_bool(len, |i| values[i] != 0);
                return Ok(Arc::new(BooleanArray::new(bits, nulls)));
            }
            DataType::Float64 => Buffer::from_vec(values.into_iter().map(|v| flip64(v as i64)).collect::<Vec<_>>()),
            DataType::Float32 => Buffer::from_vec(values.into_iter().map(|v| flip32(v as i32)).collect::<Vec<_>>()),
            DataType::Decimal128(_, _) => Buffer::from_vec(values),
            other => match other.primitive_width() {
                Some(1) => Buffer::from_vec(values.into_iter().map(|v| v as u8).collect::<Vec<_>>()),
                Some(2) => Buffer::from_vec(values.into_iter().map(|v| v as u16).collect::<Vec<_>>()),
                Some(4) => Buffer::from_vec(values.into_iter().map(|v| v as u32).collect::<Vec<_>>()),
                _ => Buffer::from_vec(values.into_iter().map(|v| v as u64).collect::<Vec<_>>()),
            },
        };
        Ok(make_array(ArrayData::builder(self.data_type.clone()).len(len).add_buffer(buffer).nulls(nulls).build()?))
    }

    /// A column of byte values; `None` gives NULL.
    pub fn bytes_column<'a>(&self, values: impl Iterator<Item = Option<&'a [u8]>>) -> Result<ArrayRef> {
        let Some(converter) = &self.converter else {
            return Err(eddyline_types::Error::internal("a fixed type has no bytes"));
        };
        let parser = converter.parser();
        let mut rows = Vec::new();
        let picks: arrow::array::UInt32Array = values
            .map(|v| {
                v.map(|bytes| {
                    rows.push(parser.parse(bytes));
                    rows.len() as u32 - 1
                })
            })
            .collect();
        let dense = converter.convert_rows(rows)?.remove(0);
        Ok(arrow::compute::take(&dense, &picks, None)?)
    }

    /// A column of values.
    pub fn column<'a>(&self, values: impl ExactSizeIterator<Item = &'a Value>) -> Result<ArrayRef> {
        if self.converter.is_some() {
            return self.bytes_column(values.map(|v| match v {
                Value::Bytes(bytes) => Some(bytes.as_ref()),
                Value::Fixed(_) => None,
            }));
        }
        let fixed = values.map(|v| match v {
            Value::Fixed(v) => *v,
            Value::Bytes(_) => 0,
        });
        self.fixed_column(fixed.collect(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, Int32Array, StringArray, UInt64Array};

    #[test]
    fn values_keep_order_and_come_back() {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Float64Array::from(vec![f64::NEG_INFINITY, -1.5, 0.0, 1e-300, 7.0, f64::INFINITY, f64::NAN])),
            Arc::new(Int32Array::from(vec![i32::MIN, -1, 0, 5])),
            Arc::new(UInt64Array::from(vec![0, 1 << 63, u64::MAX])),
            Arc::new(StringArray::from(vec!["", "a", "ab", "b"])),
            Arc::new(BooleanArray::from(vec![false, true])),
        ];
        for column in columns {
            let codec = ValueCodec::new(column.data_type().clone()).unwrap();
            let values = codec.values(&column).unwrap();
            let values: Vec<Value> = (0..column.len()).map(|i| values.get(i)).collect();
            assert!(values.is_sorted_by(|a, b| a < b), "{column:?}");
            let back = codec.column(values.iter()).unwrap();
            assert_eq!(format!("{back:?}"), format!("{column:?}"));
        }
    }
}
