//! Blocks: a sorted piece of one table in memory, whether buffered, decoded from a file, or on its way into one.
//!
//! Invariant: rows are in (key ascending, epoch descending) order; within a file all versions of a key are in one block.

use arrow::array::{Array, ArrayRef, BinaryArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::{BooleanBuffer, ScalarBuffer};
use arrow::datatypes::SchemaRef;
use eddyline_types::{Epoch, Error, Result};
use std::ops::Bound;

/// The epochs of a block's rows.
#[derive(Clone, Debug)]
pub(crate) enum Epochs {
    /// All rows are of one epoch, so no key occurs twice.
    Same(Epoch),
    /// One epoch per row.
    Each(ScalarBuffer<u64>),
}

/// Sorted rows of one table.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Table keys. No nulls.
    pub keys: BinaryArray,
    pub epochs: Epochs,
    /// Set where the row is deleted.
    pub tombstones: Option<BooleanBuffer>,
    /// The row columns (perhaps only some of the table's).
    pub rows: RecordBatch,
}

impl Block {
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn key(&self, row: usize) -> &[u8] {
        self.keys.value(row)
    }

    pub(crate) fn epoch(&self, row: usize) -> Epoch {
        match &self.epochs {
            Epochs::Same(epoch) => *epoch,
            Epochs::Each(epochs) => Epoch(epochs[row]),
        }
    }

    pub(crate) fn is_tombstone(&self, row: usize) -> bool {
        self.tombstones.as_ref().is_some_and(|t| t.value(row))
    }

    /// Smallest and largest epoch; the block is not empty.
    pub(crate) fn epoch_range(&self) -> (Epoch, Epoch) {
        match &self.epochs {
            Epochs::Same(epoch) => (*epoch, *epoch),
            Epochs::Each(epochs) => {
                let low = epochs.iter().copied().min().unwrap_or_default();
                let high = epochs.iter().copied().max().unwrap_or_default();
                (Epoch(low), Epoch(high))
            }
        }
    }

    /// A part, without copying rows.
    pub(crate) fn slice(&self, start: usize, len: usize) -> Block {
        Block {
            keys: self.keys.slice(start, len),
            epochs: match &self.epochs {
                Epochs::Same(epoch) => Epochs::Same(*epoch),
                Epochs::Each(epochs) => Epochs::Each(epochs.slice(start, len)),
            },
            tombstones: self.tombstones.as_ref().map(|t| t.slice(start, len)).filter(|t| t.count_set_bits() > 0),
            rows: self.rows.slice(start, len),
        }
    }

    /// Bytes of memory that the block holds, near enough for budgets.
    pub(crate) fn memory_bytes(&self) -> usize {
        let epochs = match &self.epochs {
            Epochs::Same(_) => 0,
            Epochs::Each(epochs) => epochs.len() * 8,
        };
        let tombstones = self.tombstones.as_ref().map_or(0, |t| t.len() / 8);
        data_bytes(&self.keys) + self.rows.columns().iter().map(|c| data_bytes(c.as_ref())).sum::<usize>() + epochs + tombstones + 256
    }

    /// The first row at or after `from` whose key is `>= key` (`> key` if `after`).
    pub(crate) fn seek(&self, from: usize, key: &[u8], after: bool) -> usize {
        let (mut low, mut high) = (from, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let found = self.key(middle);
            if found < key || (after && found == key) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The rows whose keys are inside the bounds.
    pub(crate) fn range(&self, low: &Bound<Vec<u8>>, high: &Bound<Vec<u8>>) -> std::ops::Range<usize> {
        let start = match low {
            Bound::Unbounded => 0,
            Bound::Included(key) => self.seek(0, key, false),
            Bound::Excluded(key) => self.seek(0, key, true),
        };
        let end = match high {
            Bound::Unbounded => self.len(),
            Bound::Included(key) => self.seek(start, key, true),
            Bound::Excluded(key) => self.seek(start, key, false),
        };
        start..end
    }
}

/// The bytes that an array's own rows take, offsets and validity included (not of the buffers that it is a slice of).
pub(crate) fn data_bytes(array: &dyn Array) -> usize {
    array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size())
}

/// Checks that a write is what it says: one length, no null keys, strictly ascending.
pub(crate) fn check_write(keys: &BinaryArray, rows: &RecordBatch, tombstones: Option<&BooleanArray>) -> Result<()> {
    if keys.len() != rows.num_rows() || tombstones.is_some_and(|t| t.len() != keys.len()) {
        return Err(Error::internal("keys, rows and tombstones of a write have different lengths"));
    }
    if keys.null_count() > 0 || tombstones.is_some_and(|t| t.null_count() > 0) {
        return Err(Error::internal("a write has a null key or tombstone"));
    }
    let offsets = keys.value_offsets();
    let values = keys.value_data();
    let key = |row: usize| &values[offsets[row] as usize..offsets[row + 1] as usize];
    if (1..keys.len()).any(|row| key(row - 1) >= key(row)) {
        return Err(Error::internal("keys of a write are not strictly ascending"));
    }
    Ok(())
}

/// A batch with the given row count even if it has no columns.
pub(crate) fn batch(schema: SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, columns, &options).map_err(|e| Error::internal(format!("rows do not fit their schema: {e}")))
}
