//! One column of a row arena: values by row number, gathered back into Arrow arrays.
//!
//! Fixed-width values sit in plain vectors of their width, so a read is one index; strings and binaries are references into one byte vector;
//! every other type is kept as arrow-row bytes. Slots are reused, so memory follows the number of live rows.

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, BinaryArray, BooleanArray, LargeBinaryArray, LargeStringArray, StringArray, make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::DataType;
use arrow_row::{RowConverter, SortField};
use eddyline_types::{Error, Result};

/// No row: gathers as NULL.
pub const NIL: u32 = u32::MAX;

/// Bytes of garbage that are worth a compaction.
const COMPACT_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
struct Blob {
    bytes: Vec<u8>,
    at: Vec<u64>,
    len: Vec<u32>,
    garbage: usize,
}

impl Blob {
    fn set(&mut self, row: usize, value: &[u8]) -> Result<()> {
        if row >= self.at.len() {
            self.at.resize(row + 1, 0);
            self.len.resize(row + 1, 0);
        }
        self.at[row] = self.bytes.len() as u64;
        self.len[row] = u32::try_from(value.len()).map_err(|_| Error::internal("a value is larger than 4 GiB"))?;
        self.bytes.extend_from_slice(value);
        Ok(())
    }

    fn get(&self, row: usize) -> &[u8] {
        let at = self.at[row] as usize;
        &self.bytes[at..at + self.len[row] as usize]
    }

    fn clear(&mut self, row: usize) {
        self.garbage += self.len[row] as usize;
        self.len[row] = 0;
    }

    fn compact(&mut self) {
        if self.garbage < COMPACT_BYTES || self.garbage * 2 < self.bytes.len() {
            return;
        }
        let mut bytes = Vec::with_capacity(self.bytes.len() - self.garbage);
        for row in 0..self.at.len() {
            let from = self.at[row] as usize;
            let len = self.len[row] as usize;
            self.at[row] = bytes.len() as u64;
            bytes.extend_from_slice(&self.bytes[from..from + len]);
        }
        self.bytes = bytes;
        self.garbage = 0;
    }

    fn size(&self) -> usize {
        self.bytes.capacity() + self.at.capacity() * 8 + self.len.capacity() * 4
    }
}

#[derive(Debug)]
enum Values {
    W1(Vec<u8>),
    W2(Vec<u16>),
    W4(Vec<u32>),
    W8(Vec<u64>),
    W16(Vec<i128>),
    Bool(Vec<bool>),
    Blob(Blob),
    /// Types without a form of their own, as arrow-row bytes.
    Rows(Blob, Box<RowConverter>),
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Column {
    data_type: DataType,
    values: Values,
    /// One byte per row; `None` until the first NULL.
    valid: Option<Vec<u8>>,
    rows: usize,
}

macro_rules! typed {
    ($data:expr, $width:ty) => {
        &$data.buffers()[0].typed_data::<$width>()[$data.offset()..$data.offset() + $data.len()]
    };
}

fn store<T: Copy + Default>(to: &mut Vec<T>, slots: &[u32], from: &[T], rows: usize) {
    to.resize(rows, T::default());
    for (slot, value) in slots.iter().zip(from) {
        if *slot != NIL {
            to[*slot as usize] = *value;
        }
    }
}

impl Column {
    /// An empty column.
    pub fn new(data_type: DataType) -> Result<Self> {
        let values = match &data_type {
            DataType::Boolean => Values::Bool(Vec::new()),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => Values::Blob(Blob::default()),
            other => match other.primitive_width() {
                Some(1) => Values::W1(Vec::new()),
                Some(2) => Values::W2(Vec::new()),
                Some(4) => Values::W4(Vec::new()),
                Some(8) => Values::W8(Vec::new()),
                Some(16) => Values::W16(Vec::new()),
                _ => Values::Rows(Blob::default(), Box::new(RowConverter::new(vec![SortField::new(other.clone())])?)),
            },
        };
        Ok(Column { data_type, values, valid: None, rows: 0 })
    }

    /// Puts `array[i]` at `slots[i]` (skipping `NIL`); the column then has at least `rows` slots.
    pub fn put(&mut self, array: &ArrayRef, slots: &[u32], rows: usize) -> Result<()> {
        self.rows = self.rows.max(rows);
        let rows = self.rows;
        if array.null_count() > 0 && self.valid.is_none() {
            self.valid = Some(vec![1; rows]);
        }
        if let Some(valid) = &mut self.valid {
            valid.resize(rows, 1);
            for (i, slot) in slots.iter().enumerate().filter(|(_, s)| **s != NIL) {
                valid[*slot as usize] = u8::from(array.is_valid(i));
            }
        }
        let data = array.to_data();
        match &mut self.values {
            Values::W1(v) => store(v, slots, typed!(data, u8), rows),
            Values::W2(v) => store(v, slots, typed!(data, u16), rows),
            Values::W4(v) => store(v, slots, typed!(data, u32), rows),
            Values::W8(v) => store(v, slots, typed!(data, u64), rows),
            Values::W16(v) => store(v, slots, typed!(data, i128), rows),
            Values::Bool(v) => {
                v.resize(rows, false);
                let array = array.as_boolean();
                for (i, slot) in slots.iter().enumerate().filter(|(_, s)| **s != NIL) {
                    v[*slot as usize] = array.value(i);
                }
            }
            Values::Blob(blob) => {
                for (i, slot) in slots.iter().enumerate().filter(|(_, s)| **s != NIL) {
                    blob.set(*slot as usize, if array.is_valid(i) { bytes_at(array, i) } else { &[] })?;
                }
            }
            Values::Rows(blob, converter) => {
                let encoded = converter.convert_columns(std::slice::from_ref(array))?;
                for (i, slot) in slots.iter().enumerate().filter(|(_, s)| **s != NIL) {
                    blob.set(*slot as usize, encoded.row(i).as_ref())?;
                }
            }
        }
        Ok(())
    }

    /// The slot's value is not needed any more.
    pub fn clear(&mut self, slot: u32) {
        if let Values::Blob(blob) | Values::Rows(blob, _) = &mut self.values {
            blob.clear(slot as usize);
        }
    }

    /// Gives unused bytes back, when that is worth it.
    pub fn compact(&mut self) {
        if let Values::Blob(blob) | Values::Rows(blob, _) = &mut self.values {
            blob.compact();
        }
    }

    fn nulls(&self, slots: &[u32]) -> Option<NullBuffer> {
        let has_nil = slots.contains(&NIL);
        match &self.valid {
            None if !has_nil => None,
            None => Some(NullBuffer::new(BooleanBuffer::collect_bool(slots.len(), |i| slots[i] != NIL))),
            Some(valid) => {
                let nulls = BooleanBuffer::collect_bool(slots.len(), |i| slots[i] != NIL && valid[slots[i] as usize] != 0);
                Some(NullBuffer::new(nulls)).filter(|n| n.null_count() > 0)
            }
        }
    }

    /// Whether two slots hold the same value, bit by bit; NULL equals NULL.
    pub fn equal(&self, a: u32, b: u32) -> bool {
        let (a, b) = (a as usize, b as usize);
        if let Some(valid) = &self.valid {
            match (valid[a], valid[b]) {
                (0, 0) => return true,
                (0, _) | (_, 0) => return false,
                (_, _) => {}
            }
        }
        match &self.values {
            Values::W1(v) => v[a] == v[b],
            Values::W2(v) => v[a] == v[b],
            Values::W4(v) => v[a] == v[b],
            Values::W8(v) => v[a] == v[b],
            Values::W16(v) => v[a] == v[b],
            Values::Bool(v) => v[a] == v[b],
            Values::Blob(blob) | Values::Rows(blob, _) => blob.get(a) == blob.get(b),
        }
    }

    /// The values at the given slots; `NIL` gives NULL.
    pub fn gather(&self, slots: &[u32]) -> Result<ArrayRef> {
        let nulls = self.nulls(slots);
        let buffer = match &self.values {
            Values::W1(v) => gather_fixed(v, slots),
            Values::W2(v) => gather_fixed(v, slots),
            Values::W4(v) => gather_fixed(v, slots),
            Values::W8(v) => gather_fixed(v, slots),
            Values::W16(v) => gather_fixed(v, slots),
            Values::Bool(v) => {
                let bits = BooleanBuffer::collect_bool(slots.len(), |i| slots[i] != NIL && v[slots[i] as usize]);
                return Ok(std::sync::Arc::new(BooleanArray::new(bits, nulls)));
            }
            Values::Blob(blob) => return gather_blob(&self.data_type, blob, slots, nulls),
            Values::Rows(blob, converter) => return gather_rows(blob, converter, slots),
        };
        let builder = ArrayData::builder(self.data_type.clone()).len(slots.len()).add_buffer(buffer).nulls(nulls);
        Ok(make_array(builder.build()?))
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        let values = match &self.values {
            Values::W1(v) => v.capacity(),
            Values::W2(v) => v.capacity() * 2,
            Values::W4(v) => v.capacity() * 4,
            Values::W8(v) => v.capacity() * 8,
            Values::W16(v) => v.capacity() * 16,
            Values::Bool(v) => v.capacity(),
            Values::Blob(b) | Values::Rows(b, _) => b.size(),
        };
        values + self.valid.as_ref().map_or(0, Vec::capacity)
    }
}

fn gather_fixed<T: Copy + Default + arrow::datatypes::ArrowNativeType>(values: &[T], slots: &[u32]) -> Buffer {
    let out: Vec<T> = slots.iter().map(|s| values.get(*s as usize).copied().unwrap_or_default()).collect();
    Buffer::from_vec(out)
}

fn gather_blob(data_type: &DataType, blob: &Blob, slots: &[u32], nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let lengths = slots.iter().map(|s| if *s == NIL { 0 } else { blob.len[*s as usize] as usize });
    let total: usize = lengths.clone().sum();
    let mut bytes = Vec::with_capacity(total);
    for slot in slots.iter().filter(|s| **s != NIL) {
        bytes.extend_from_slice(blob.get(*slot as usize));
    }
    let bytes = Buffer::from_vec(bytes);
    if matches!(data_type, DataType::LargeUtf8 | DataType::LargeBinary) {
        let offsets = OffsetBuffer::<i64>::from_lengths(lengths);
        return Ok(match data_type {
            DataType::LargeUtf8 => std::sync::Arc::new(LargeStringArray::try_new(offsets, bytes, nulls)?),
            _ => std::sync::Arc::new(LargeBinaryArray::try_new(offsets, bytes, nulls)?),
        });
    }
    if total > i32::MAX as usize {
        return Err(Error::internal("a chunk's strings are larger than 2 GiB"));
    }
    let offsets = OffsetBuffer::<i32>::from_lengths(lengths);
    Ok(match data_type {
        DataType::Utf8 => std::sync::Arc::new(StringArray::try_new(offsets, bytes, nulls)?),
        _ => std::sync::Arc::new(BinaryArray::try_new(offsets, bytes, nulls)?),
    })
}

fn gather_rows(blob: &Blob, converter: &RowConverter, slots: &[u32]) -> Result<ArrayRef> {
    let parser = converter.parser();
    let rows: Vec<_> = slots.iter().filter(|s| **s != NIL).map(|s| parser.parse(blob.get(*s as usize))).collect();
    let dense = converter.convert_rows(rows)?.remove(0);
    let mut next = 0;
    let picks: arrow::array::UInt32Array = slots
        .iter()
        .map(|s| {
            let pick = (*s != NIL).then_some(next);
            next += u32::from(pick.is_some());
            pick
        })
        .collect();
    Ok(arrow::compute::take(&dense, &picks, None)?)
}

/// The bytes of a string or binary value.
fn bytes_at(array: &ArrayRef, row: usize) -> &[u8] {
    match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value(row).as_bytes(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).as_bytes(),
        DataType::Binary => array.as_binary::<i32>().value(row),
        _ => array.as_binary::<i64>().value(row),
    }
}
