//! Overwrite: a base table. A new row replaces an older one with its key; a delete removes whatever row has the key; a delete of a missing key is ignored.
//!
//! Rows of one chunk are applied in order, chunks in order of arrival: that is the order of the statements. The rows are resident, so every
//! change goes downstream at once as a consistent -old +new, and the barrier writes what differs from the epoch's start.

use crate::operators::state::arena::RowArena;
use crate::operators::state::column::NIL;
use crate::operators::state::keys::KeyTable;
use crate::operators::state::write::StateTable;
use crate::operators::{OpContext, Operator, StateRequest, StateRows, Step};
use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use eddyline_protocol::{Barrier, BarrierKind, TableDesc};
use eddyline_types::{Chunk, Error, Result};
use std::collections::VecDeque;

/// Word of a record with the number of the key's row, plus 1; 0: none.
const ROW: usize = 1;
/// Rows of one output chunk.
const OUTPUT_ROWS: usize = 4096;

/// See the module's documentation.
pub struct Overwrite {
    table: StateTable,
    keys: KeyTable,
    rows: RowArena,
    key_columns: Vec<usize>,
    output: VecDeque<Chunk>,
    /// Keys that lost their row in this epoch.
    vacant: Vec<u32>,
    loaded: bool,
}

impl Overwrite {
    /// A writer of the given table.
    pub fn new(desc: TableDesc) -> Result<Self> {
        let key_columns = desc.key_columns();
        let types: Vec<DataType> = key_columns.iter().map(|c| desc.schema.field(*c).data_type().clone()).collect();
        Ok(Overwrite {
            keys: KeyTable::new(&types, 1)?,
            rows: RowArena::new(&desc.schema)?,
            table: StateTable::new(desc)?,
            key_columns,
            output: VecDeque::new(),
            vacant: Vec::new(),
            loaded: false,
        })
    }

    fn slots(&mut self, columns: &[ArrayRef], count: usize) -> Result<Vec<u32>> {
        let keys: Vec<ArrayRef> = self.key_columns.iter().map(|c| columns[*c].clone()).collect();
        let mut slots = Vec::new();
        self.keys.find_or_insert(&keys, count, &mut slots)?;
        Ok(slots)
    }

    /// Applies a chunk and queues the changes of the table.
    fn apply(&mut self, chunk: &Chunk) -> Result<()> {
        let slots = self.slots(chunk.batch().columns(), chunk.num_rows())?;
        let mut numbers = Vec::new();
        self.rows.insert(chunk.batch().columns(), None, chunk.num_rows(), false, &mut numbers)?;
        let (mut rows, mut weights) = (Vec::new(), Vec::new());
        for (i, (slot, number)) in slots.iter().zip(&numbers).enumerate() {
            let record = self.keys.record_mut(*slot);
            let old = (record[ROW] as u32).wrapping_sub(1);
            let put = chunk.weight(i) > 0;
            if put && old != NIL && self.rows.equal(old, *number) {
                self.rows.forget(*number);
                continue;
            }
            record[ROW] = if put { u64::from(*number) + 1 } else { 0 };
            if old != NIL {
                rows.push(old);
                weights.push(-1);
                self.rows.set_weight(old, 0);
            }
            if put {
                rows.push(*number);
                weights.push(1);
            } else {
                self.rows.forget(*number);
                self.vacant.push(*slot);
            }
        }
        if rows.is_empty() {
            return Ok(());
        }
        if rows == numbers && weights.iter().all(|w| *w == 1) {
            self.output.push_back(Chunk::append_only(self.table.batch(chunk.batch().columns().to_vec(), rows.len())?));
            return Ok(());
        }
        for start in (0..rows.len()).step_by(OUTPUT_ROWS) {
            let end = (start + OUTPUT_ROWS).min(rows.len());
            let columns = self.rows.gather_all(&rows[start..end])?;
            let batch = self.table.batch(columns, end - start)?;
            self.output.push_back(Chunk::compacted(batch, weights[start..end].to_vec())?);
        }
        Ok(())
    }

    fn write(&mut self, cx: &mut OpContext) -> Result<()> {
        let changes = self.rows.changes();
        let columns = self.rows.gather_all(&changes.rows)?;
        cx.writes.extend(self.table.write(columns, &changes.deleted)?);
        self.rows.checkpointed();
        for slot in std::mem::take(&mut self.vacant) {
            let record = self.keys.record_mut(slot);
            if record[ROW] == 0 {
                // A key may have become vacant twice.
                record[ROW] = u64::MAX;
                self.keys.remove(slot);
            }
        }
        self.keys.compact(|record| record[ROW] != 0 && record[ROW] != u64::MAX);
        Ok(())
    }
}

impl Operator for Overwrite {
    fn push(&mut self, _port: usize, chunk: Chunk, _cx: &mut OpContext) -> Result<()> {
        // A weight of more than 1 is the same row several times: one upsert.
        self.apply(&chunk)
    }

    fn step(&mut self, _cx: &mut OpContext) -> Result<Step> {
        if !std::mem::replace(&mut self.loaded, true) {
            return Ok(Step::Need(vec![StateRequest::Load(self.table.desc.id)]));
        }
        Ok(self.output.pop_front().map_or(Step::Done, Step::Emit))
    }

    fn supply(&mut self, rows: StateRows, _cx: &mut OpContext) -> Result<()> {
        let count = rows.rows.num_rows();
        let slots = self.slots(rows.rows.columns(), count)?;
        let mut numbers = Vec::new();
        self.rows.insert(rows.rows.columns(), None, count, true, &mut numbers)?;
        for (slot, number) in slots.iter().zip(numbers) {
            let record = self.keys.record_mut(*slot);
            if record[ROW] != 0 {
                return Err(Error::corruption(format!("table {} holds two rows of one key", self.table.desc.name)));
            }
            record[ROW] = u64::from(number) + 1;
        }
        Ok(())
    }

    fn barrier(&mut self, barrier: &Barrier, cx: &mut OpContext) -> Result<()> {
        if barrier.kind == BarrierKind::Initial { Ok(()) } else { self.write(cx) }
    }

    fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.rows.memory_bytes()
    }
}
