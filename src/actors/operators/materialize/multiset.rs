//! Multiset: a relation without a key. The whole row is the key, its multiplicity is the last column of the table.
//!
//! All rows are resident with their counts (the row's bytes are the hash key), loaded when the shard starts.

use crate::operators::state::arena::split_weights;
use crate::operators::state::keys::KeyTable;
use crate::operators::state::write::StateTable;
use crate::operators::{OpContext, Operator, StateRequest, StateRows, Step};
use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::DataType;
use eddyline_protocol::{Barrier, BarrierKind, TableDesc};
use eddyline_types::{Chunk, Error, Result};
use std::sync::Arc;

/// Word of a record that holds the count.
const COUNT: usize = 1;
/// Word of a record with the flags below.
const FLAGS: usize = 2;
/// The count changed in this epoch.
const DIRTY: u64 = 1;
/// The row is in the table.
const PERSISTED: u64 = 2;
/// The record is in use.
const USED: u64 = 4;

/// See the module's documentation.
pub struct Multiset {
    table: StateTable,
    rows: KeyTable,
    dirty: Vec<u32>,
    slots: Vec<u32>,
    pending: Option<Chunk>,
    loaded: bool,
}

impl Multiset {
    /// A writer of the given table, whose last column is the multiplicity.
    pub fn new(desc: TableDesc) -> Result<Self> {
        let fields = desc.schema.fields();
        let types: Vec<DataType> = fields[..fields.len().saturating_sub(1)].iter().map(|f| f.data_type().clone()).collect();
        let rows = KeyTable::new(&types, 2)?;
        Ok(Multiset { table: StateTable::new(desc)?, rows, dirty: Vec::new(), slots: Vec::new(), pending: None, loaded: false })
    }

    fn add(&mut self, columns: &[ArrayRef], count: usize, weight: impl Fn(usize) -> i64, load: bool) -> Result<()> {
        self.rows.find_or_insert(columns, count, &mut self.slots)?;
        for (i, slot) in self.slots.iter().enumerate() {
            let record = self.rows.record_mut(*slot);
            record[COUNT] = (record[COUNT] as i64).checked_add(weight(i)).ok_or_else(|| Error::internal("weight overflow"))? as u64;
            record[FLAGS] |= USED;
            if load {
                record[FLAGS] |= PERSISTED;
            } else if record[FLAGS] & DIRTY == 0 {
                record[FLAGS] |= DIRTY;
                self.dirty.push(*slot);
            }
        }
        Ok(())
    }

    fn write(&mut self, cx: &mut OpContext) -> Result<()> {
        let dirty = std::mem::take(&mut self.dirty);
        let (mut written, mut deleted, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for slot in &dirty {
            let record = self.rows.record_mut(*slot);
            let count = record[COUNT] as i64;
            if count != 0 || record[FLAGS] & PERSISTED != 0 {
                written.push(*slot);
                deleted.push(count == 0);
                counts.push(count);
            }
            record[FLAGS] = if count == 0 { 0 } else { USED | PERSISTED };
        }
        let mut columns = self.rows.key_columns(&written)?;
        columns.push(Arc::new(Int64Array::from(counts)));
        cx.writes.extend(self.table.write(columns, &deleted)?);
        for slot in dirty {
            if self.rows.record(slot)[FLAGS] == 0 {
                self.rows.remove(slot);
            }
        }
        self.rows.compact(|record| record[FLAGS] & USED != 0);
        Ok(())
    }
}

impl Operator for Multiset {
    fn push(&mut self, _port: usize, chunk: Chunk, _cx: &mut OpContext) -> Result<()> {
        self.add(chunk.batch().columns(), chunk.num_rows(), |i| chunk.weight(i), false)?;
        self.pending = Some(chunk);
        Ok(())
    }

    fn step(&mut self, _cx: &mut OpContext) -> Result<Step> {
        if !std::mem::replace(&mut self.loaded, true) {
            return Ok(Step::Need(vec![StateRequest::Load(self.table.desc.id)]));
        }
        Ok(match self.pending.take() {
            Some(chunk) if !chunk.is_empty() => Step::Emit(chunk),
            Some(_) | None => Step::Done,
        })
    }

    fn supply(&mut self, rows: StateRows, _cx: &mut OpContext) -> Result<()> {
        let (columns, weights) = split_weights(&rows.rows)?;
        self.add(&columns, weights.len(), |i| weights[i], true)
    }

    fn barrier(&mut self, barrier: &Barrier, cx: &mut OpContext) -> Result<()> {
        if barrier.kind == BarrierKind::Initial { Ok(()) } else { self.write(cx) }
    }

    fn memory_bytes(&self) -> usize {
        self.rows.memory_bytes()
    }
}
