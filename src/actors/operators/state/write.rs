//! Sorted writes of state tables: keys encoded, put in order, rows taken in that order.

use arrow::array::{Array, ArrayRef, BinaryArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array};
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

/// Positions that put keys in ascending order.
pub fn key_order(keys: &BinaryArray) -> Vec<u32> {
    let prefix = |key: &[u8]| {
        let mut bytes = [0; 16];
        let n = key.len().min(16);
        bytes[..n].copy_from_slice(&key[..n]);
        u128::from_be_bytes(bytes)
    };
    let mut order: Vec<(u128, u32)> = (0..keys.len()).map(|i| (prefix(keys.value(i)), i as u32)).collect();
    if order.is_sorted_by(|a, b| a.0 < b.0) {
        return order.into_iter().map(|(_, i)| i).collect();
    }
    let long = (0..keys.len()).any(|i| keys.value_length(i) > 16);
    if long {
        order.sort_unstable_by(|a, b| {
            a.0.cmp(&b.0).then_with(|| keys.value(a.1 as usize).cmp(keys.value(b.1 as usize))).then(a.1.cmp(&b.1))
        });
    } else {
        // Shorter keys are padded with zeros: equal prefixes of different lengths need the comparison too.
        order.sort_unstable_by(|a, b| {
            a.0.cmp(&b.0).then_with(|| keys.value_length(a.1 as usize).cmp(&keys.value_length(b.1 as usize))).then(a.1.cmp(&b.1))
        });
    }
    order.into_iter().map(|(_, i)| i).collect()
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
        let mut order = key_order(&keys);
        self.resolve_equal_keys(&keys, deleted, &mut order)?;
        let order = UInt32Array::from(order);
        let sorted = compute::take(&keys, &order, None)?;
        let keys = sorted.as_any().downcast_ref::<BinaryArray>().expect("take keeps the type").clone();
        let batch = compute::take_record_batch(&self.batch(columns, rows)?, &order)?;
        let tombstones = order
            .values()
            .iter()
            .any(|i| deleted[*i as usize])
            .then(|| BooleanArray::from_iter(order.values().iter().map(|i| Some(deleted[*i as usize]))));
        Ok(Some(TableWrite { table: self.desc.id, keys, rows: batch, tombstones }))
    }

    fn resolve_equal_keys(&self, keys: &BinaryArray, deleted: &[bool], order: &mut Vec<u32>) -> Result<()> {
        if order.windows(2).all(|w| keys.value(w[0] as usize) != keys.value(w[1] as usize)) {
            return Ok(());
        }
        let mut kept: Vec<u32> = Vec::with_capacity(order.len());
        for row in order.iter() {
            match kept.last_mut() {
                Some(last) if keys.value(*last as usize) == keys.value(*row as usize) => {
                    match (deleted[*last as usize], deleted[*row as usize]) {
                        (_, true) => {}
                        (true, false) => *last = *row,
                        (false, false) => return Err(Error::internal(format!("table {} would get two rows with one key", self.desc.name))),
                    }
                }
                Some(_) | None => kept.push(*row),
            }
        }
        *order = kept;
        Ok(())
    }
}
