//! Key -> record: an open-addressing table whose records are rows of 64-bit words.
//!
//! One 8-byte index entry holds 32 bits of the hash and the record's number; word 0 of a record is the key itself (one integer-like column) or a
//! reference into a byte arena (any other key, as arrow-row bytes). The rest of a record belongs to the caller, so a hit costs two
//! cache misses. Lookups run over whole chunks in passes of independent loads, which the processor overlaps.
//! NULL is a key like any other. Floats are made canonical first (-0 = 0, one NaN).

use super::hash;
use super::index::{Found, HashIndex};
use arrow::array::{Array, ArrayData, ArrayRef, AsArray, PrimitiveArray, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};
use arrow_row::{RowConverter, SortField};
use eddyline_types::{Error, Result};
use std::sync::Arc;

/// Bits of a byte reference that hold the length; the offset is above.
const LENGTH_BITS: u32 = 24;
/// Bytes of dead keys that are worth a compaction.
const COMPACT_BYTES: usize = 1 << 20;

enum Kind {
    /// No key columns: one record, number 0.
    Unit,
    /// One column of at most 64 bits, widened.
    Integer { data_type: DataType, null_slot: Option<u32> },
    /// Anything else, as arrow-row bytes.
    Bytes { converter: RowConverter, arena: Vec<u8>, garbage: usize },
}

/// See the module's documentation.
pub struct KeyTable {
    kind: Kind,
    index: HashIndex,
    len: usize,
    words: Vec<u64>,
    stride: usize,
    free: Vec<u32>,
    scratch: Scratch,
}

#[derive(Default)]
struct Scratch {
    keys: Vec<u64>,
    hashes: Vec<u32>,
    entries: Vec<u64>,
    found: Vec<u64>,
}

/// Whether a type is kept as one widened integer.
fn is_integer_like(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Date32
            | DataType::Date64
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Timestamp(_, _)
            | DataType::Duration(_)
    )
}

/// The values of an integer-like column, widened to 64 bits, into `out`; what stands at NULLs is arbitrary.
pub fn widen(column: &ArrayRef, out: &mut Vec<u64>) -> Result<()> {
    out.clear();
    let data = column.to_data();
    let range = data.offset()..data.offset() + data.len();
    match data.data_type().primitive_width() {
        Some(8) => out.extend_from_slice(&data.buffers()[0].typed_data::<u64>()[range]),
        Some(4) => out.extend(data.buffers()[0].typed_data::<i32>()[range].iter().map(|v| i64::from(*v) as u64)),
        Some(2) => out.extend(data.buffers()[0].typed_data::<i16>()[range].iter().map(|v| i64::from(*v) as u64)),
        _ => return Err(Error::internal(format!("{} is not an integer-like key", column.data_type()))),
    }
    Ok(())
}

/// The inverse of [`widen`].
pub fn narrow(data_type: &DataType, values: Vec<u64>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let len = values.len();
    let buffer = match data_type.primitive_width() {
        Some(4) => Buffer::from_vec(values.into_iter().map(|v| v as u32).collect::<Vec<_>>()),
        Some(2) => Buffer::from_vec(values.into_iter().map(|v| v as u16).collect::<Vec<_>>()),
        _ => Buffer::from_vec(values),
    };
    Ok(make_array(ArrayData::builder(data_type.clone()).len(len).add_buffer(buffer).nulls(nulls).build()?))
}

/// Floats with -0 as 0 and one NaN; other columns as they are.
pub fn canonical(column: &ArrayRef) -> ArrayRef {
    fn map<T: ArrowPrimitiveType>(column: &ArrayRef, f: impl Fn(T::Native) -> T::Native) -> ArrayRef {
        let array: PrimitiveArray<T> = column.as_primitive::<T>().unary(f);
        Arc::new(array)
    }
    match column.data_type() {
        DataType::Float64 => map::<Float64Type>(column, |v| if v.is_nan() { f64::NAN } else { v + 0.0 }),
        DataType::Float32 => map::<Float32Type>(column, |v| if v.is_nan() { f32::NAN } else { v + 0.0 }),
        _ => column.clone(),
    }
}

#[inline(always)]
fn hash32(key: u64) -> u32 {
    (hash::mix(0, key) >> 32) as u32
}

impl KeyTable {
    /// A table for keys of the given types whose records have `extra` words for the caller.
    pub fn new(types: &[DataType], extra: usize) -> Result<Self> {
        let kind = match types {
            [] => Kind::Unit,
            [one] if is_integer_like(one) => Kind::Integer { data_type: one.clone(), null_slot: None },
            many => {
                let converter = RowConverter::new(many.iter().map(|t| SortField::new(t.clone())).collect())?;
                Kind::Bytes { converter, arena: Vec::new(), garbage: 0 }
            }
        };
        let unit = matches!(kind, Kind::Unit);
        let stride = extra + 1;
        let words = if unit { vec![0; stride] } else { Vec::new() };
        Ok(KeyTable {
            kind,
            index: HashIndex::default(),
            len: usize::from(unit),
            words,
            stride,
            free: Vec::new(),
            scratch: Scratch::default(),
        })
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Words of a record, the key's word included.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Records that exist or are free: all record numbers are below.
    pub fn slots(&self) -> usize {
        self.words.len() / self.stride
    }

    /// All records, `stride` words each. Word 0 of a record must not be changed.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// See [`KeyTable::words`].
    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// One record.
    #[inline]
    pub fn record(&self, slot: u32) -> &[u64] {
        let at = slot as usize * self.stride;
        &self.words[at..at + self.stride]
    }

    /// One record; word 0 must not be changed.
    #[inline]
    pub fn record_mut(&mut self, slot: u32) -> &mut [u64] {
        let at = slot as usize * self.stride;
        &mut self.words[at..at + self.stride]
    }

    /// The record number of each row's key; unknown keys get a new record with zero words.
    pub fn find_or_insert(&mut self, columns: &[ArrayRef], rows: usize, slots: &mut Vec<u32>) -> Result<()> {
        slots.clear();
        if rows == 0 {
            return Ok(());
        }
        self.index.reserve(rows);
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = match &self.kind {
            Kind::Unit => {
                slots.resize(rows, 0);
                Ok(())
            }
            Kind::Integer { .. } => self.find_integers(&columns[0], slots, &mut scratch),
            Kind::Bytes { .. } => self.find_bytes(columns, slots, &mut scratch),
        };
        self.scratch = scratch;
        result
    }

    fn find_integers(&mut self, column: &ArrayRef, slots: &mut Vec<u32>, s: &mut Scratch) -> Result<()> {
        widen(column, &mut s.keys)?;
        s.hashes.clear();
        s.hashes.extend(s.keys.iter().map(|k| hash32(*k)));
        self.touch(s);
        slots.reserve(s.keys.len());
        let nulls = column.nulls().filter(|n| n.null_count() > 0);
        for i in 0..s.keys.len() {
            if nulls.is_some_and(|n| n.is_null(i)) {
                slots.push(self.null_slot()?);
                continue;
            }
            let (hash, key) = (s.hashes[i], s.keys[i]);
            // The entry and the key were read in the passes before; only a miss or a collision goes on probing.
            match HashIndex::number(s.entries[i], hash) {
                Some(slot) if s.found[i] == key => slots.push(slot),
                Some(_) | None => slots.push(self.probe(hash, |word, _| word == key, |_| Ok(key))?),
            }
        }
        Ok(())
    }

    fn null_slot(&mut self) -> Result<u32> {
        let Kind::Integer { null_slot, .. } = &self.kind else { return Err(Error::internal("only integer keys have a NULL record")) };
        match null_slot {
            Some(slot) => Ok(*slot),
            None => {
                let slot = self.allocate(0);
                self.len += 1;
                if let Kind::Integer { null_slot, .. } = &mut self.kind {
                    *null_slot = Some(slot);
                }
                Ok(slot)
            }
        }
    }

    fn find_bytes(&mut self, columns: &[ArrayRef], slots: &mut Vec<u32>, s: &mut Scratch) -> Result<()> {
        let columns: Vec<ArrayRef> = columns.iter().map(canonical).collect();
        let Kind::Bytes { converter, .. } = &self.kind else { return Err(Error::internal("not a table of byte keys")) };
        let keys = converter.convert_columns(&columns)?;
        s.hashes.clear();
        s.hashes.extend(keys.iter().map(|k| (hash::bytes(0, k.as_ref()) >> 32) as u32));
        self.touch(s);
        self.touch_bytes(s);
        for (i, key) in keys.iter().enumerate() {
            let key = key.as_ref();
            let slot = self.probe(
                s.hashes[i],
                |word, arena| key_bytes(arena, word) == key,
                |arena| {
                    if key.len() >= 1 << LENGTH_BITS {
                        return Err(Error::user(eddyline_types::SqlState::LIMIT_EXCEEDED, "a key is larger than 16 MiB"));
                    }
                    let at = arena.len() as u64;
                    arena.extend_from_slice(key);
                    Ok(at << LENGTH_BITS | key.len() as u64)
                },
            )?;
            slots.push(slot);
        }
        Ok(())
    }

    /// Reads the first index entry of every row, then word 0 of the record that it names: independent loads that overlap.
    fn touch(&self, s: &mut Scratch) {
        s.entries.clear();
        s.entries.extend(s.hashes.iter().map(|h| self.index.home(*h)));
        s.found.clear();
        let stride = self.stride;
        s.found.extend(s.entries.iter().map(|e| {
            let slot = (e >> 32) as usize;
            if slot == 0 { 0 } else { self.words[(slot - 1) * stride] }
        }));
    }

    /// Reads the first byte of the keys that `touch` found.
    fn touch_bytes(&self, s: &Scratch) {
        let Kind::Bytes { arena, .. } = &self.kind else { return };
        let sum = s.found.iter().fold(0u8, |sum, word| sum ^ arena.get((word >> LENGTH_BITS) as usize).copied().unwrap_or(0));
        std::hint::black_box(sum);
    }

    /// Reads one word of each record, so that the loads overlap; the records are then near.
    pub fn touch_records(&self, slots: &[u32]) {
        let sum = slots.iter().fold(0u64, |sum, slot| sum ^ self.words[*slot as usize * self.stride]);
        std::hint::black_box(sum);
    }

    /// Finds a record from its home position on, or makes one.
    fn probe(&mut self, hash: u32, same: impl Fn(u64, &[u8]) -> bool, make: impl FnOnce(&mut Vec<u8>) -> Result<u64>) -> Result<u32> {
        let arena: &[u8] = match &self.kind {
            Kind::Bytes { arena, .. } => arena,
            Kind::Unit | Kind::Integer { .. } => &[],
        };
        match self.index.find(hash, |slot| same(self.words[slot as usize * self.stride], arena)) {
            Found::Number(slot) => Ok(slot),
            Found::Vacant(at) => {
                let mut none = Vec::new();
                let arena = match &mut self.kind {
                    Kind::Bytes { arena, .. } => arena,
                    Kind::Unit | Kind::Integer { .. } => &mut none,
                };
                let word = make(arena)?;
                let slot = self.allocate(word);
                self.index.occupy(at, hash, slot);
                self.len += 1;
                Ok(slot)
            }
        }
    }

    fn allocate(&mut self, word: u64) -> u32 {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.record_mut(slot).fill(0);
                slot
            }
            None => {
                let slot = self.slots() as u32;
                self.words.resize(self.words.len() + self.stride, 0);
                slot
            }
        };
        self.record_mut(slot)[0] = word;
        slot
    }

    /// Forgets a key; its record number may be used again.
    pub fn remove(&mut self, slot: u32) {
        let word = self.record(slot)[0];
        match &mut self.kind {
            Kind::Unit => return,
            Kind::Integer { null_slot, .. } if *null_slot == Some(slot) => {
                *null_slot = None;
                self.len -= 1;
                self.free.push(slot);
                return;
            }
            Kind::Integer { .. } => {}
            Kind::Bytes { garbage, .. } => *garbage += (word & ((1 << LENGTH_BITS) - 1)) as usize,
        }
        let hash = match &self.kind {
            Kind::Bytes { arena, .. } => (hash::bytes(0, key_bytes(arena, word)) >> 32) as u32,
            Kind::Unit | Kind::Integer { .. } => hash32(word),
        };
        self.index.remove(hash, slot);
        self.len -= 1;
        self.free.push(slot);
        self.record_mut(slot)[0] = 0;
    }

    /// Gives the bytes of removed keys back, when that is worth it. `live` tells whether a record is in use.
    pub fn compact(&mut self, live: impl Fn(&[u64]) -> bool) {
        let stride = self.stride;
        let Kind::Bytes { arena, garbage, .. } = &mut self.kind else { return };
        if *garbage < COMPACT_BYTES || *garbage * 2 < arena.len() {
            return;
        }
        let mut bytes = Vec::with_capacity(arena.len() - *garbage);
        for record in self.words.chunks_exact_mut(stride) {
            if live(record) {
                let key = key_bytes(arena, record[0]);
                let at = bytes.len() as u64;
                bytes.extend_from_slice(key);
                record[0] = at << LENGTH_BITS | key.len() as u64;
            }
        }
        *arena = bytes;
        *garbage = 0;
    }

    /// The key columns of the given records.
    pub fn key_columns(&self, slots: &[u32]) -> Result<Vec<ArrayRef>> {
        match &self.kind {
            Kind::Unit => Ok(Vec::new()),
            Kind::Integer { data_type, null_slot } => {
                let values = slots.iter().map(|s| self.words[*s as usize * self.stride]).collect();
                let nulls = null_slot.map(|null| NullBuffer::new(BooleanBuffer::collect_bool(slots.len(), |i| slots[i] != null)));
                Ok(vec![narrow(data_type, values, nulls.filter(|n| n.null_count() > 0))?])
            }
            Kind::Bytes { converter, arena, .. } => {
                let parser = converter.parser();
                let rows = slots.iter().map(|s| parser.parse(key_bytes(arena, self.words[*s as usize * self.stride])));
                Ok(converter.convert_rows(rows)?)
            }
        }
    }

    /// Which rows have a NULL in a key column.
    pub fn null_rows(columns: &[ArrayRef]) -> Option<NullBuffer> {
        columns.iter().fold(None, |all, c| NullBuffer::union(all.as_ref(), c.nulls())).filter(|n| n.null_count() > 0)
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        let arena = match &self.kind {
            Kind::Bytes { arena, .. } => arena.capacity(),
            Kind::Unit | Kind::Integer { .. } => 0,
        };
        self.index.memory_bytes() + self.words.capacity() * 8 + self.free.capacity() * 4 + arena
    }
}

#[inline]
fn key_bytes(arena: &[u8], word: u64) -> &[u8] {
    let at = (word >> LENGTH_BITS) as usize;
    &arena[at..at + (word & ((1 << LENGTH_BITS) - 1)) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StringArray};
    use rand::RngExt;
    use std::collections::BTreeMap;

    #[test]
    fn behaves_like_a_map_under_inserts_and_removals() {
        for (types, make) in [
            (
                vec![DataType::Int64],
                (|keys: &[Option<i64>]| vec![Arc::new(Int64Array::from(keys.to_vec())) as ArrayRef]) as fn(&[Option<i64>]) -> Vec<ArrayRef>,
            ),
            (vec![DataType::Utf8, DataType::Int64], |keys: &[Option<i64>]| {
                let text: StringArray = keys.iter().map(|k| k.map(|k| format!("key {k}"))).collect();
                vec![Arc::new(text) as ArrayRef, Arc::new(Int64Array::from(keys.to_vec())) as ArrayRef]
            }),
        ] {
            let mut random = eddyline_env::random::seeded(7);
            let mut table = KeyTable::new(&types, 2).unwrap();
            let mut model: BTreeMap<Option<i64>, u32> = BTreeMap::new();
            for _ in 0..300 {
                let keys: Vec<Option<i64>> = (0..50).map(|_| Some(random.random_range(0..400)).filter(|k| *k != 13)).collect();
                let mut slots = Vec::new();
                table.find_or_insert(&make(&keys), keys.len(), &mut slots).unwrap();
                for (key, slot) in keys.iter().zip(&slots) {
                    assert_eq!(model.entry(*key).or_insert(*slot), slot, "key {key:?}");
                    table.record_mut(*slot)[1] = 1;
                }
                let gone: Vec<Option<i64>> = model.keys().copied().filter(|_| random.random_range(0..4) == 0).collect();
                for key in gone {
                    let slot = model.remove(&key).unwrap();
                    table.record_mut(slot)[1] = 0;
                    table.remove(slot);
                }
                assert_eq!(table.len(), model.len());
                let (keys, slots): (Vec<_>, Vec<_>) = model.iter().map(|(k, s)| (*k, *s)).unzip();
                assert_eq!(&table.key_columns(&slots).unwrap(), &make(&keys));
            }
        }
    }

    #[test]
    fn equal_floats_are_one_key() {
        let mut table = KeyTable::new(&[DataType::Float64], 0).unwrap();
        let keys = arrow::array::Float64Array::from(vec![0.0, -0.0, f64::NAN, -f64::NAN, 1.0]);
        let mut slots = Vec::new();
        table.find_or_insert(&[Arc::new(keys)], 5, &mut slots).unwrap();
        assert_eq!(slots, [0, 0, 1, 1, 2]);
    }
}
