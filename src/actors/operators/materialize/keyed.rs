//! Keyed: the plan proves that at most one row per key is left when an epoch is consolidated.
//!
//! Chunks pass through at once and are kept until the barrier; then the epoch's deltas are put in key order, and what is left of each key is
//! written: the new row, a tombstone, or nothing. More than one row left is a broken plan and fails the job. Needs no state: the deltas say what changed.

use crate::operators::state::write::{StateTable, key_order};
use crate::operators::{OpContext, Operator, StateRows, Step};
use arrow::array::{Array, BinaryArray, BooleanArray, UInt32Array};
use arrow::compute;
use arrow_row::{RowConverter, SortField};
use eddyline_protocol::{Barrier, BarrierKind, TableDesc};
use eddyline_store::TableWrite;
use eddyline_types::{Chunk, Error, Result};
use std::collections::BTreeMap;

/// Rows kept before they are consolidated within an epoch, so that memory follows changed keys and not changes.
const CONSOLIDATE_ROWS: usize = 1 << 20;

/// See the module's documentation.
pub struct Keyed {
    table: StateTable,
    pending: Option<Chunk>,
    epoch: Vec<Chunk>,
    epoch_rows: usize,
    limit: usize,
}

/// What is left of an epoch's deltas.
struct Net {
    rows: Chunk,
    keys: BinaryArray,
    /// Positions in `rows`, by ascending key, one or more per key, with their net weights.
    order: Vec<(u32, i64)>,
}

impl Keyed {
    /// A writer of the given table.
    pub fn new(desc: TableDesc) -> Result<Self> {
        Ok(Keyed { table: StateTable::new(desc)?, pending: None, epoch: Vec::new(), epoch_rows: 0, limit: CONSOLIDATE_ROWS })
    }

    /// Sums the weights of equal rows.
    fn net(&mut self) -> Result<Net> {
        let chunks = std::mem::take(&mut self.epoch);
        self.epoch_rows = 0;
        let rows = Chunk::concat(&self.table.desc.schema, &chunks)?;
        let keys = self.table.keys(rows.batch().columns(), rows.num_rows())?;
        let sorted = key_order(&keys);
        let mut order = Vec::with_capacity(sorted.len());
        let mut start = 0;
        let mut groups: Vec<(usize, usize)> = Vec::new();
        for end in 1..=sorted.len() {
            if end == sorted.len() || keys.value(sorted[end] as usize) != keys.value(sorted[start] as usize) {
                if end - start == 1 {
                    order.push((sorted[start], rows.weight(sorted[start] as usize)));
                } else {
                    groups.push((order.len(), start));
                    order.extend(sorted[start..end].iter().map(|r| (*r, rows.weight(*r as usize))));
                }
                start = end;
            }
        }
        if !groups.is_empty() {
            self.sum_equal_rows(&rows, &keys, &mut order)?;
        }
        Ok(Net { rows, keys, order })
    }

    /// Of rows with one key, equal ones get the sum of their weights; what sums to 0 goes.
    fn sum_equal_rows(&self, rows: &Chunk, keys: &BinaryArray, order: &mut Vec<(u32, i64)>) -> Result<()> {
        let same_key = |a: u32, b: u32| keys.value(a as usize) == keys.value(b as usize);
        let shared =
            |i: usize| i > 0 && same_key(order[i - 1].0, order[i].0) || i + 1 < order.len() && same_key(order[i].0, order[i + 1].0);
        let members: Vec<u32> = (0..order.len()).filter(|i| shared(*i)).map(|i| order[i].0).collect();
        let fields = self.table.desc.schema.fields().iter().map(|f| SortField::new(f.data_type().clone())).collect();
        let converter = RowConverter::new(fields)?;
        let taken = compute::take_record_batch(rows.batch(), &UInt32Array::from(members))?;
        let bytes = converter.convert_columns(taken.columns())?;
        let mut kept: Vec<(u32, i64)> = Vec::with_capacity(order.len());
        let mut next = 0;
        let mut i = 0;
        while i < order.len() {
            let mut end = i + 1;
            while end < order.len() && same_key(order[i].0, order[end].0) {
                end += 1;
            }
            if end - i == 1 {
                kept.push(order[i]);
            } else {
                let mut sums: BTreeMap<_, (u32, i64)> = BTreeMap::new();
                for (row, weight) in &order[i..end] {
                    let sum = sums.entry(bytes.row(next)).or_insert((*row, 0));
                    sum.1 = sum.1.checked_add(*weight).ok_or_else(|| Error::internal("weight overflow"))?;
                    next += 1;
                }
                kept.extend(sums.into_values().filter(|(_, w)| *w != 0));
            }
            i = end;
        }
        *order = kept;
        Ok(())
    }

    fn consolidate(&mut self) -> Result<()> {
        let net = self.net()?;
        let picks = UInt32Array::from_iter_values(net.order.iter().map(|(r, _)| *r));
        let batch = compute::take_record_batch(net.rows.batch(), &picks)?;
        let chunk = Chunk::compacted(batch, net.order.iter().map(|(_, w)| *w).collect())?;
        self.epoch_rows = chunk.num_rows();
        // What does not shrink is consolidated less often.
        self.limit = (self.epoch_rows * 2).max(CONSOLIDATE_ROWS);
        self.epoch.push(chunk);
        Ok(())
    }

    /// One put or tombstone per key that has changed.
    fn write(&mut self) -> Result<Option<TableWrite>> {
        if self.epoch.is_empty() {
            return Ok(None);
        }
        let Net { rows, keys, order } = self.net()?;
        let mut picks: Vec<u32> = Vec::with_capacity(order.len());
        let mut deleted: Vec<bool> = Vec::with_capacity(order.len());
        for (row, weight) in order {
            let put = weight > 0;
            let same = picks.last().is_some_and(|last| keys.value(*last as usize) == keys.value(row as usize));
            if put && (weight > 1 || same && deleted.last() == Some(&false)) {
                return Err(self.not_unique(&rows, row));
            }
            match (same, put) {
                (true, true) => {
                    *picks.last_mut().expect("a row with this key was picked") = row;
                    *deleted.last_mut().expect("a row with this key was picked") = false;
                }
                (true, false) => {}
                (false, _) => {
                    picks.push(row);
                    deleted.push(!put);
                }
            }
        }
        if picks.is_empty() {
            return Ok(None);
        }
        let picks = UInt32Array::from(picks);
        let keys = compute::take(&keys, &picks, None)?.as_any().downcast_ref::<BinaryArray>().expect("take keeps the type").clone();
        let batch = compute::take_record_batch(rows.batch(), &picks)?;
        let batch = self.table.batch(batch.columns().to_vec(), picks.len())?;
        let tombstones = deleted.contains(&true).then(|| BooleanArray::from(deleted));
        Ok(Some(TableWrite { table: self.table.desc.id, keys, rows: batch, tombstones }))
    }

    fn not_unique(&self, rows: &Chunk, row: u32) -> Error {
        let row = crate::operators::row_errors::row_json(rows.batch(), row as usize).unwrap_or_default();
        Error::internal(format!("table {} would hold more than one row of a key", self.table.desc.name)).with_detail(row)
    }
}

impl Operator for Keyed {
    fn push(&mut self, _port: usize, chunk: Chunk, _cx: &mut OpContext) -> Result<()> {
        self.epoch_rows += chunk.num_rows();
        self.epoch.push(chunk.clone());
        self.pending = Some(chunk);
        if self.epoch_rows > self.limit {
            self.consolidate()?;
        }
        Ok(())
    }

    fn step(&mut self, _cx: &mut OpContext) -> Result<Step> {
        Ok(match self.pending.take() {
            Some(chunk) if !chunk.is_empty() => Step::Emit(chunk),
            Some(_) | None => Step::Done,
        })
    }

    fn supply(&mut self, rows: StateRows, _cx: &mut OpContext) -> Result<()> {
        Err(Error::internal(format!("table {} was loaded and its writer keeps no state", rows.table)))
    }

    fn barrier(&mut self, barrier: &Barrier, cx: &mut OpContext) -> Result<()> {
        if barrier.kind != BarrierKind::Initial {
            cx.writes.extend(self.write()?);
            self.limit = CONSOLIDATE_ROWS;
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.epoch.iter().map(Chunk::size_bytes).sum()
    }
}
