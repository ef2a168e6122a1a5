//! Memcomparable keys: bytes whose order is the SQL order of the key columns. docs/FORMAT.md gives them byte by byte.
//!
//! This is the only hand-made encoding of row data. It is on disk: a change needs a new format version.
//! Encoding is column by column into one contiguous buffer (sizes first, then typed loops), so it allocates nothing per row.
//! Two properties that readers rely on: the bytes of the first k columns are a prefix of the whole key, and no key of k columns
//! is a proper prefix of another key of the same k columns, so an equality on a key prefix is one byte range.

mod decode;
mod encode;
mod table;
#[cfg(test)]
mod tests;

use crate::{Error, Result, SqlState};
use arrow::array::{ArrayRef, BinaryArray};
use arrow::datatypes::{DataType, IntervalUnit};
use serde::{Deserialize, Serialize};
use std::ops::Bound;

pub(crate) use encode::{BYTES_END, ESCAPE, VALUE, hash_bytes};
pub use table::TableKeyCodec;

/// A range of keys: lower and upper bound.
pub type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Type and order of one key column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyField {
    /// Arrow type of the column.
    pub data_type: DataType,
    /// Larger values first.
    pub descending: bool,
    /// NULLs before all values; independent of `descending`.
    pub nulls_first: bool,
}

impl KeyField {
    /// Ascending, NULLS LAST: Postgres' default, and the order of every key that the user did not order.
    pub fn ascending(data_type: DataType) -> Self {
        KeyField { data_type, descending: false, nulls_first: false }
    }

    fn order(&self) -> encode::Order {
        encode::Order::new(self.descending, self.nulls_first)
    }
}

/// Encodes and decodes key columns. Encoding with a codec of the first k fields gives a byte prefix of the whole key.
#[derive(Clone, Debug)]
pub struct KeyCodec {
    fields: Vec<KeyField>,
}

impl KeyCodec {
    /// A codec for the given fields; refuses types that have no key form (maps, unions, dictionaries, ...) by name.
    pub fn new(fields: Vec<KeyField>) -> Result<Self> {
        for field in &fields {
            if !is_supported(&field.data_type) {
                let message = format!("a column of type {} cannot be part of a key", field.data_type);
                return Err(Error::user(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
        }
        Ok(KeyCodec { fields })
    }

    /// The fields, in key order.
    pub fn fields(&self) -> &[KeyField] {
        &self.fields
    }

    /// One key per row. `columns` are the first `columns.len()` key columns (a prefix is allowed), all of length `rows`.
    /// String and binary columns may come in any of Arrow's layouts.
    pub fn encode(&self, columns: &[ArrayRef], rows: usize) -> Result<BinaryArray> {
        self.check(columns, rows)?;
        encode::encode(columns, &self.orders(), rows)
    }

    /// The key columns back from keys, with the declared types. Malformed bytes are an error of kind `Corruption`, never a panic.
    /// Values come back in canonical form: -0 as 0, every NaN as one.
    pub fn decode(&self, keys: &BinaryArray) -> Result<Vec<ArrayRef>> {
        decode::decode(&self.fields, keys, 0)
    }

    fn orders(&self) -> Vec<encode::Order> {
        self.fields.iter().map(KeyField::order).collect()
    }

    fn check(&self, columns: &[ArrayRef], rows: usize) -> Result<()> {
        if columns.len() > self.fields.len() {
            return Err(Error::internal(format!("{} columns for a key of {}", columns.len(), self.fields.len())));
        }
        for (field, column) in self.fields.iter().zip(columns) {
            if column.len() != rows {
                return Err(Error::internal(format!("a key column has {} rows of {rows}", column.len())));
            }
            if !is_compatible(&field.data_type, column.data_type()) {
                return Err(Error::internal(format!("key column of type {} got {}", field.data_type, column.data_type())));
            }
        }
        Ok(())
    }
}

/// The smallest byte string that is larger than every string that starts with `prefix`; `None` if there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|b| *b != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// All keys that start with `prefix`.
pub fn prefix_range(prefix: Vec<u8>) -> KeyRange {
    let end = prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(prefix), end)
}

/// Whether a type has a key form.
pub fn is_supported(data_type: &DataType) -> bool {
    use DataType as T;
    match data_type {
        T::Null | T::Boolean => true,
        T::Int8 | T::Int16 | T::Int32 | T::Int64 | T::UInt8 | T::UInt16 | T::UInt32 | T::UInt64 => true,
        T::Float32 | T::Float64 => true,
        T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..) => true,
        T::Date32 | T::Date64 | T::Time32(_) | T::Time64(_) | T::Timestamp(..) | T::Duration(_) => true,
        T::Interval(IntervalUnit::MonthDayNano) => true,
        T::Utf8 | T::LargeUtf8 | T::Utf8View | T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => true,
        T::List(element) => is_supported(element.data_type()),
        T::Struct(fields) => !fields.is_empty() && fields.iter().all(|f| is_supported(f.data_type())),
        _ => false,
    }
}

/// Whether values of `actual` have the key bytes of `declared`.
fn is_compatible(declared: &DataType, actual: &DataType) -> bool {
    use DataType as T;
    match (declared, actual) {
        (T::Timestamp(a, _), T::Timestamp(b, _)) => a == b,
        (T::Utf8 | T::LargeUtf8 | T::Utf8View, T::Utf8 | T::LargeUtf8 | T::Utf8View) => true,
        (T::Binary | T::LargeBinary | T::BinaryView, T::Binary | T::LargeBinary | T::BinaryView) => true,
        (T::List(a), T::List(b)) => is_compatible(a.data_type(), b.data_type()),
        (T::Struct(a), T::Struct(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_compatible(a.data_type(), b.data_type())),
        // The scale is part of the meaning of a decimal's integer, the precision is not.
        (T::Decimal32(_, a), T::Decimal32(_, b))
        | (T::Decimal64(_, a), T::Decimal64(_, b))
        | (T::Decimal128(_, a), T::Decimal128(_, b))
        | (T::Decimal256(_, a), T::Decimal256(_, b)) => a == b,
        _ => declared == actual,
    }
}
