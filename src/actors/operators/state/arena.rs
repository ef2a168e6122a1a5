//! Rows by number: columnar values, a weight and a chain link per row. Numbers of removed rows are used again.
//!
//! An arena knows which rows changed since the last checkpoint. A removed row keeps its values until then, because its table key is needed for the tombstone.

use super::column::{Column, NIL};
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::Schema;
use eddyline_types::Result;

/// The row is in its table.
const PERSISTED: u8 = 1;
/// The row is in the list of changes.
const CHANGED: u8 = 2;
/// The row exists (its weight is not 0).
const LIVE: u8 = 4;

/// See the module's documentation.
#[derive(Debug)]
pub struct RowArena {
    columns: Vec<Column>,
    weights: Vec<i64>,
    flags: Vec<u8>,
    free: Vec<u32>,
    changed: Vec<u32>,
    live: usize,
}

/// What a checkpoint has to write.
#[derive(Debug, Default)]
pub struct Changes {
    /// Row numbers.
    pub rows: Vec<u32>,
    /// Whether each is to be removed from the table.
    pub deleted: Vec<bool>,
}

impl RowArena {
    /// An empty arena for rows of a schema.
    pub fn new(schema: &Schema) -> Result<Self> {
        let columns = schema.fields().iter().map(|f| Column::new(f.data_type().clone())).collect::<Result<_>>()?;
        Ok(RowArena { columns, weights: Vec::new(), flags: Vec::new(), free: Vec::new(), changed: Vec::new(), live: 0 })
    }

    /// Rows that exist.
    pub fn live(&self) -> usize {
        self.live
    }

    /// All row numbers are below this.
    pub fn capacity(&self) -> usize {
        self.weights.len()
    }

    /// Whether the row exists.
    pub fn is_live(&self, row: u32) -> bool {
        self.flags[row as usize] & LIVE != 0
    }

    /// Weight of a row.
    #[inline]
    pub fn weight(&self, row: u32) -> i64 {
        self.weights[row as usize]
    }

    /// Weights of all row numbers.
    pub fn weights(&self) -> &[i64] {
        &self.weights
    }

    /// Adds rows with their weights (`None`: 1 each); their numbers are put into `rows`. `persisted`: they come from the table.
    pub fn insert(
        &mut self,
        columns: &[ArrayRef],
        weights: Option<&[i64]>,
        count: usize,
        persisted: bool,
        rows: &mut Vec<u32>,
    ) -> Result<()> {
        rows.clear();
        let reuse = self.free.len().min(count);
        rows.extend(self.free.drain(self.free.len() - reuse..));
        let start = self.weights.len();
        rows.extend((start..start + count - reuse).map(|r| r as u32));
        let size = start + count - reuse;
        assert!(size < NIL as usize, "an arena holds less than 2^32 rows");
        self.weights.resize(size, 0);
        self.flags.resize(size, 0);
        for (column, array) in self.columns.iter_mut().zip(columns) {
            column.put(array, rows, size)?;
        }
        let flags = LIVE | if persisted { PERSISTED } else { CHANGED };
        for (i, row) in rows.iter().enumerate() {
            self.weights[*row as usize] = weights.map_or(1, |w| w[i]);
            self.flags[*row as usize] = flags;
        }
        if !persisted {
            self.changed.extend_from_slice(rows);
        }
        self.live += count;
        Ok(())
    }

    /// Takes back a row that was inserted last and is not wanted: it never existed.
    pub fn forget(&mut self, row: u32) {
        self.weights[row as usize] = 0;
        self.flags[row as usize] &= !LIVE;
        self.live -= 1;
    }

    /// Changes a row's weight; 0 removes the row (its values stay until the next checkpoint).
    pub fn set_weight(&mut self, row: u32, weight: i64) {
        let flags = &mut self.flags[row as usize];
        if weight == 0 && *flags & LIVE != 0 {
            *flags &= !LIVE;
            self.live -= 1;
        }
        if *flags & CHANGED == 0 {
            *flags |= CHANGED;
            self.changed.push(row);
        }
        self.weights[row as usize] = weight;
    }

    /// Whether two rows are equal in all columns.
    pub fn equal(&self, a: u32, b: u32) -> bool {
        self.columns.iter().all(|c| c.equal(a, b))
    }

    /// One column of the given rows; `NIL` gives NULL.
    pub fn gather(&self, column: usize, rows: &[u32]) -> Result<ArrayRef> {
        self.columns[column].gather(rows)
    }

    /// All columns of the given rows.
    pub fn gather_all(&self, rows: &[u32]) -> Result<Vec<ArrayRef>> {
        self.columns.iter().map(|c| c.gather(rows)).collect()
    }

    /// What changed since the last checkpoint: rows to put and rows to remove. Call `checkpointed` after writing them.
    pub fn changes(&self) -> Changes {
        let mut changes = Changes::default();
        for row in &self.changed {
            let flags = self.flags[*row as usize];
            if flags & (LIVE | PERSISTED) != 0 {
                changes.rows.push(*row);
                changes.deleted.push(flags & LIVE == 0);
            }
        }
        changes
    }

    /// The changes are written: removed rows' numbers become free.
    pub fn checkpointed(&mut self) {
        for row in self.changed.drain(..) {
            let flags = &mut self.flags[row as usize];
            if *flags & LIVE != 0 {
                *flags = LIVE | PERSISTED;
            } else {
                *flags = 0;
                self.columns.iter_mut().for_each(|c| c.clear(row));
                self.free.push(row);
            }
        }
        self.columns.iter_mut().for_each(Column::compact);
    }

    /// All existing rows as one batch, for tests and loading.
    pub fn live_rows(&self) -> Vec<u32> {
        (0..self.capacity() as u32).filter(|r| self.is_live(*r)).collect()
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        let columns: usize = self.columns.iter().map(Column::memory_bytes).sum();
        columns + self.weights.capacity() * 8 + self.flags.capacity() + (self.free.capacity() + self.changed.capacity()) * 4
    }
}

/// A batch's weights column, split off: the columns before it, and the weights.
pub fn split_weights(batch: &RecordBatch) -> Result<(Vec<ArrayRef>, Vec<i64>)> {
    use arrow::array::AsArray;
    let mut columns = batch.columns().to_vec();
    let weights = columns.pop().ok_or_else(|| eddyline_types::Error::internal("a state row has no weight column"))?;
    let weights = weights
        .as_primitive_opt::<arrow::datatypes::Int64Type>()
        .ok_or_else(|| eddyline_types::Error::internal("a weight column is not int64"))?;
    Ok((columns, weights.values().to_vec()))
}
