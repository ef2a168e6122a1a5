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
    order: Vec<Left>,
}

/// One row that is left.
#[derive(Clone, Copy)]
struct Left {
    /// Its position in the epoch's rows.
    row: u32,
    /// Its net weight.
    weight: i64,
    /// Its key is that of the one before.
    repeats: bool,
}

impl Keyed {
    /// A writer of the given table.
    pub fn new(desc: TableDesc) -> Result<Self> {
        Ok(Keyed { table: StateTable::new(desc)?, pending: None, epoch: Vec::new(), epoch_rows: 0, limit: CONSOLIDATE_ROWS })
    }

    /// Sums the weights of equal rows; by ascending key, one or more rows per key.
    fn net(&mut self) -> Result<Net> {
        let chunks = std::mem::take(&mut self.epoch);
        self.epoch_rows = 0;
        let rows = Chunk::concat(&self.table.desc.schema, &chunks)?;
        let keys = self.table.keys(rows.batch().columns(), rows.num_rows())?;
        let sorted = key_order(&keys);
        let left = |i: usize| Left { row: sorted.rows[i], weight: rows.weight(sorted.rows[i] as usize), repeats: sorted.repeats(i) };
        let mut order: Vec<Left> = (0..sorted.rows.len()).map(left).collect();
        if sorted.repeats.is_some() {
            order = self.sum_equal_rows(&rows, &order)?;
        }
        Ok(Net { rows, keys, order })
    }

    /// Of rows with one key, equal ones get the sum of their weights; what sums to 0 goes.
    fn sum_equal_rows(&self, rows: &Chunk, order: &[Left]) -> Result<Vec<Left>> {
        let shared = |i: usize| order[i].repeats || order.get(i + 1).is_some_and(|next| next.repeats);
        let members: Vec<u32> = (0..order.len()).filter(|i| shared(*i)).map(|i| order[i].row).collect();
        let fields = self.table.desc.schema.fields().iter().map(|f| SortField::new(f.data_type().clone())).collect();
        let converter = RowConverter::new(fields)?;
        let taken = compute::take_record_batch(rows.batch(), &UInt32Array::from(members))?;
        let bytes = converter.convert_columns(taken.columns())?;
        let mut kept: Vec<Left> = Vec::with_capacity(order.len());
        let mut next = 0;
        for group in order.chunk_by(|_, b| b.repeats) {
            if let [one] = group {
                kept.push(*one);
                continue;
            }
            let first = kept.len();
            let start = next;
            next += group.len();
            // Groups are a few rows as a rule, an old and a new one; a key that changes all the time must not cost its square.
            let mut index = (group.len() > 16).then(BTreeMap::new);
            for (k, left) in group.iter().enumerate() {
                let row = bytes.row(start + k);
                let same = match &mut index {
                    Some(index) => Some(*index.entry(row).or_insert(kept.len())).filter(|i| *i < kept.len()),
                    None => (first..kept.len()).find(|i| bytes.row(start + kept[*i].row as usize) == row),
                };
                match same {
                    Some(i) => {
                        kept[i].weight = kept[i].weight.checked_add(left.weight).ok_or_else(|| Error::internal("weight overflow"))?
                    }
                    None => kept.push(Left { row: k as u32, ..*left }),
                }
            }
            let mut seen = false;
            let group_rows = kept.split_off(first).into_iter().filter(|l| l.weight != 0);
            kept.extend(group_rows.map(|l| Left {
                row: group[l.row as usize].row,
                weight: l.weight,
                repeats: std::mem::replace(&mut seen, true),
            }));
        }
        Ok(kept)
    }

    fn consolidate(&mut self) -> Result<()> {
        let net = self.net()?;
        let picks = UInt32Array::from_iter_values(net.order.iter().map(|l| l.row));
        let batch = compute::take_record_batch(net.rows.batch(), &picks)?;
        let chunk = Chunk::compacted(batch, net.order.iter().map(|l| l.weight).collect())?;
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
        for Left { row, weight, repeats: same } in order {
            let put = weight > 0;
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
