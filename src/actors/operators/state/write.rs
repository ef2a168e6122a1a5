//! Sorted writes of state tables: keys encoded, put in order, rows taken in that order.

use arrow::array::{Array, ArrayRef, BinaryArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::buffer::{Buffer, OffsetBuffer};
use arrow::compute;
use eddyline_protocol::TableDesc;
use eddyline_store::TableWrite;
use eddyline_types::{Error, Result, TableKeyCodec};

/// A state table that an operator writes.
#[derive(Debug)]
pub struct StateTable {
    /// What it is.
    pub desc: TableDesc,
    /// Encodes its keys.
    pub codec: TableKeyCodec,
    key_columns: Vec<usize>,
}

/// Keys in ascending order.
#[derive(Debug, Default)]
pub struct KeyOrder {
    /// Positions; equal keys stay in their order.
    pub rows: Vec<u32>,
    /// For each of `rows` whether its key equals the one before; `None`: all keys differ.
    pub repeats: Option<Vec<bool>>,
}

impl KeyOrder {
    /// Whether the key of `rows[i]` equals that of `rows[i - 1]`.
    pub fn repeats(&self, i: usize) -> bool {
        self.repeats.as_ref().is_some_and(|r| r[i])
    }

    fn new<T>(sorted: Vec<(T, u32)>, same: impl Fn(&(T, u32), &(T, u32)) -> bool) -> Self {
        let any = sorted.windows(2).any(|w| same(&w[0], &w[1]));
        let repeats = any.then(|| (0..sorted.len()).map(|i| i > 0 && same(&sorted[i - 1], &sorted[i])).collect());
        KeyOrder { rows: sorted.into_iter().map(|(_, row)| row).collect(), repeats }
    }
}

/// Longest key whose bytes are looked at one by one for being the same in all keys.
const MAX_FIXED: usize = 64;

/// The byte positions at which keys of one length differ; `None` if lengths differ or are large.
fn varying_bytes(keys: &BinaryArray) -> Option<Vec<usize>> {
    let offsets = keys.value_offsets();
    let width = usize::try_from(offsets.get(1)? - offsets[0]).ok()?;
    if width > MAX_FIXED || !offsets.windows(2).all(|w| (w[1] - w[0]) as usize == width) {
        return None;
    }
    let mut differ = [0u8; MAX_FIXED];
    let first = keys.value(0);
    for key in keys.iter().flatten() {
        differ.iter_mut().zip(key).zip(first).for_each(|((d, a), b)| *d |= a ^ b);
    }
    Some((0..width).filter(|i| differ[*i] != 0).collect())
}

/// Puts keys in order. Keys of one length are compared by the bytes in which they differ at all, which are few for numbers: up to 8 of
/// them sort by radix, up to 16 as one integer. Other keys compare by their first 16 bytes, then as a whole.
pub fn key_order(keys: &BinaryArray) -> KeyOrder {
    let varying = varying_bytes(keys);
    let pack = |key: &[u8], at: &[usize]| at.iter().fold(0u128, |packed, i| packed << 8 | u128::from(key[*i]));
    match varying {
        Some(at) if at.len() <= 8 => {
            let packed = (0..keys.len()).map(|i| (pack(keys.value(i), &at) as u64, i as u32)).collect();
            KeyOrder::new(radix_sort(packed, at.len()), |a, b| a.0 == b.0)
        }
        Some(at) if at.len() <= 16 => {
            let mut packed: Vec<(u128, u32)> = (0..keys.len()).map(|i| (pack(keys.value(i), &at), i as u32)).collect();
            packed.sort_unstable();
            KeyOrder::new(packed, |a, b| a.0 == b.0)
        }
        Some(_) | None => {
            let prefix = |key: &[u8]| {
                let mut bytes = [0; 16];
                let n = key.len().min(16);
                bytes[..n].copy_from_slice(&key[..n]);
                u128::from_be_bytes(bytes)
            };
            let mut packed: Vec<(u128, u32)> = (0..keys.len()).map(|i| (prefix(keys.value(i)), i as u32)).collect();
            let whole = |row: u32| keys.value(row as usize);
            packed.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| whole(a.1).cmp(whole(b.1))).then(a.1.cmp(&b.1)));
            KeyOrder::new(packed, |a, b| a.0 == b.0 && whole(a.1) == whole(b.1))
        }
    }
}

/// Sorts by the lowest `bytes` bytes of the first part; stable.
fn radix_sort(mut from: Vec<(u64, u32)>, bytes: usize) -> Vec<(u64, u32)> {
    if from.is_sorted_by_key(|e| e.0) {
        return from;
    }
    if from.len() < 256 {
        from.sort_unstable();
        return from;
    }
    let mut to = vec![(0, 0); from.len()];
    for byte in 0..bytes {
        let digit = |e: &(u64, u32)| (e.0 >> (8 * byte)) as usize & 0xff;
        let mut next = [0usize; 256];
        from.iter().for_each(|e| next[digit(e)] += 1);
        let mut sum = 0;
        for n in &mut next {
            sum += std::mem::replace(n, sum);
        }
        for e in &from {
            let slot = &mut next[digit(e)];
            to[*slot] = *e;
            *slot += 1;
        }
        std::mem::swap(&mut from, &mut to);
    }
    from
}

/// Keys at the given positions.
fn take_keys(keys: &BinaryArray, rows: &UInt32Array) -> Result<BinaryArray> {
    let lengths = || rows.values().iter().map(|r| keys.value_length(*r as usize) as usize);
    let mut bytes = Vec::with_capacity(lengths().sum());
    rows.values().iter().for_each(|r| bytes.extend_from_slice(keys.value(*r as usize)));
    Ok(BinaryArray::try_new(OffsetBuffer::from_lengths(lengths()), Buffer::from_vec(bytes), None)?)
}

impl StateTable {
    /// The table of a descriptor.
    pub fn new(desc: TableDesc) -> Result<Self> {
        let codec = desc.key_codec()?;
        let key_columns = desc.key_columns();
        Ok(StateTable { desc, codec, key_columns })
    }

    /// Table keys of rows that have the table's columns in their first positions.
    pub fn keys(&self, columns: &[ArrayRef], rows: usize) -> Result<BinaryArray> {
        let key_columns: Vec<ArrayRef> = self.key_columns.iter().map(|c| columns[*c].clone()).collect();
        self.codec.encode(&key_columns, rows)
    }

    /// A batch of the table's columns.
    pub fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.desc.schema.clone(), columns, &options)?)
    }

    /// A write of rows in any order. `deleted` says which are removed. Of several rows with one key a put wins over a delete;
    /// two puts of one key are an error: the plan's key is not unique.
    pub fn write(&self, columns: Vec<ArrayRef>, deleted: &[bool]) -> Result<Option<TableWrite>> {
        let rows = deleted.len();
        if rows == 0 {
            return Ok(None);
        }
        let keys = self.keys(&columns, rows)?;
        let order = UInt32Array::from(self.distinct_keys(key_order(&keys), deleted)?);
        let keys = take_keys(&keys, &order)?;
        let batch = compute::take_record_batch(&self.batch(columns, rows)?, &order)?;
        let tombstones = order
            .values()
            .iter()
            .any(|i| deleted[*i as usize])
            .then(|| BooleanArray::from_iter(order.values().iter().map(|i| Some(deleted[*i as usize]))));
        Ok(Some(TableWrite { table: self.desc.id, keys, rows: batch, tombstones }))
    }

    /// One row per key.
    fn distinct_keys(&self, order: KeyOrder, deleted: &[bool]) -> Result<Vec<u32>> {
        if order.repeats.is_none() {
            return Ok(order.rows);
        }
        let mut kept: Vec<u32> = Vec::with_capacity(order.rows.len());
        for (i, row) in order.rows.iter().enumerate() {
            match kept.last_mut() {
                Some(last) if order.repeats(i) => match (deleted[*last as usize], deleted[*row as usize]) {
                    (_, true) => {}
                    (true, false) => *last = *row,
                    (false, false) => return Err(Error::internal(format!("table {} would get two rows with one key", self.desc.name))),
                },
                Some(_) | None => kept.push(*row),
            }
        }
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;

    #[test]
    fn keys_of_all_shapes_are_put_in_order() {
        let mut random = eddyline_env::random::seeded(3);
        for (most, longest, values) in
            [(2000, 1, 3u8), (2000, 9, 255), (300, 12, 255), (2000, 40, 255), (500, 40, 2), (10, 80, 255), (0, 1, 1)]
        {
            for fixed in [true, false] {
                let keys: Vec<Vec<u8>> = (0..most)
                    .map(|_| {
                        let length = if fixed { longest } else { random.random_range(0..=longest) };
                        (0..length).map(|i| if i % 3 == 1 { 7 } else { random.random_range(0..=values) }).collect()
                    })
                    .collect();
                let array = BinaryArray::from_iter_values(&keys);
                let order = key_order(&array);
                let mut expected: Vec<u32> = (0..keys.len() as u32).collect();
                expected.sort_by_key(|i| &keys[*i as usize]);
                assert_eq!(order.rows, expected);
                for i in 1..keys.len() {
                    assert_eq!(order.repeats(i), keys[expected[i - 1] as usize] == keys[expected[i] as usize]);
                }
                let taken = take_keys(&array, &UInt32Array::from(expected.clone())).unwrap();
                assert!(taken.iter().zip(&expected).all(|(k, i)| k == Some(keys[*i as usize].as_slice())));
            }
        }
    }
}
