//! Hash aggregate: folds weighted rows into one record per group, and emits -old +new once per changed group and epoch.
//!
//! A record is a row of words in a [`KeyTable`]: the key, flags, the row count, then the words of each call's accumulator (reading order:
//! [`accumulator`], [`multiset`] for DISTINCT and retractable min/max, [`output`], [`value`]). The first change of a group in an epoch copies its record to
//! `old`; after the barrier, old and new values are computed column by column, a bounded number of groups a step. State rows are written at
//! checkpoints only, for the groups that changed since the last one.
//!
//! Invariant: at every barrier the sum of all that was emitted is the aggregate of the sum of all input. A group exists while its row count is
//! positive; the global group (no group columns) always.

mod accumulator;
mod call;
mod multiset;
mod output;
mod value;

use super::state::keys::KeyTable;
use super::state::write::StateTable;
use super::{OpContext, Operator, StateRequest, StateRows, Step, row_errors};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::compute::kernels::cmp::not_distinct;
use arrow::compute::{and, filter};
use arrow::datatypes::{DataType, Int64Type, Schema, SchemaRef};
use call::Call;
use eddyline_protocol::plan::AggNode;
use eddyline_protocol::{Barrier, BarrierKind, TableDesc};
use eddyline_types::{Chunk, Error, Result, TableId};
use std::sync::Arc;

/// Word with the flags below.
const FLAGS: usize = 1;
/// Word with the number of rows.
const ROWS: usize = 2;
/// First word of the calls.
const CALLS: usize = 3;
/// Changed in this epoch: its old record is in `old`.
const DIRTY: u64 = 1;
/// Changed since the last checkpoint.
const CHANGED: u64 = 2;
/// Its row is in the state table.
const PERSISTED: u64 = 4;
/// The global row was emitted.
const EMITTED: u64 = 8;
/// The record is in use.
const USED: u64 = 16;

/// Rows folded at a time: what their records take stays in the second-level cache from the lookup to the last accumulator.
const BLOCK_ROWS: usize = 1024;
/// Groups of one output chunk: two rows each.
const GROUPS_PER_STEP: usize = 2048;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Start,
    Input,
    /// Emits dirty groups from this position on, then (for a checkpoint) writes.
    Emitting {
        next: usize,
        checkpoint: bool,
    },
}

/// See the module's documentation.
pub struct HashAgg {
    group: Vec<usize>,
    table: StateTable,
    keys: KeyTable,
    calls: Vec<Call>,
    schema: SchemaRef,
    phase: Phase,
    slots: Vec<u32>,
    /// Groups changed in this epoch, and their records as they were before.
    dirty: Vec<u32>,
    old: Vec<u64>,
    /// Groups changed since the last checkpoint.
    changed: Vec<u32>,
}

impl HashAgg {
    /// An aggregate over chunks of schema `input`; `tables` finds the descriptors of its state.
    pub fn new(node: &AggNode, input: &Schema, output: SchemaRef, tables: &dyn Fn(TableId) -> Result<TableDesc>) -> Result<Self> {
        let types: Vec<DataType> = node.group.iter().map(|c| input.field(*c).data_type().clone()).collect();
        let mut calls = Vec::new();
        let mut at = CALLS;
        for call in &node.calls {
            let call = Call::new(call, input, &mut at, tables)?;
            calls.push(call);
        }
        let mut keys = KeyTable::new(&types, at - 1)?;
        if node.group.is_empty() {
            keys.record_mut(0)[FLAGS] = USED;
        }
        Ok(HashAgg {
            group: node.group.clone(),
            table: StateTable::new(tables(node.state)?)?,
            keys,
            calls,
            schema: row_errors::nullable(&output),
            phase: Phase::Start,
            slots: Vec::new(),
            dirty: Vec::new(),
            old: Vec::new(),
            changed: Vec::new(),
        })
    }

    fn is_global(&self) -> bool {
        self.group.is_empty()
    }

    /// Copies the records of groups that change for the first time in this epoch.
    fn capture(&mut self, slots: &[u32]) {
        let stride = self.keys.stride();
        let words = self.keys.words_mut();
        for slot in slots {
            let at = *slot as usize * stride;
            let flags = words[at + FLAGS];
            if flags & DIRTY == 0 {
                self.dirty.push(*slot);
                self.old.extend_from_slice(&words[at..at + stride]);
                if flags & CHANGED == 0 {
                    self.changed.push(*slot);
                }
                words[at + FLAGS] = flags | DIRTY | CHANGED | USED;
            }
        }
    }

    /// Folds rows into their groups.
    fn fold(&mut self, chunk: &Chunk) -> Result<()> {
        let columns: Vec<ArrayRef> = self.group.iter().map(|c| chunk.column(*c).clone()).collect();
        let mut slots = std::mem::take(&mut self.slots);
        self.keys.find_or_insert(&columns, chunk.num_rows(), &mut slots)?;
        self.capture(&slots);
        let stride = self.keys.stride();
        let words = self.keys.words_mut();
        match chunk.weights() {
            None => slots.iter().for_each(|s| words[*s as usize * stride + ROWS] = words[*s as usize * stride + ROWS].wrapping_add(1)),
            Some(weights) => slots.iter().zip(weights).for_each(|(s, w)| {
                let word = &mut words[*s as usize * stride + ROWS];
                *word = word.wrapping_add(*w as u64);
            }),
        }
        for call in &mut self.calls {
            call.update(words, stride, &slots, chunk)?;
        }
        self.slots = slots;
        Ok(())
    }

    fn exists(&self, record: &[u64], old: bool) -> bool {
        if self.is_global() { !old || record[FLAGS] & EMITTED != 0 } else { record[ROWS] as i64 > 0 }
    }

    /// The changes of a range of dirty groups: all -old, then all +new.
    fn emit(&mut self, from: usize, to: usize, cx: &mut OpContext) -> Result<Option<Chunk>> {
        let stride = self.keys.stride();
        let groups = &self.dirty[from..to];
        let n = groups.len();
        self.keys.touch_records(groups);
        for slot in groups {
            let record = self.keys.record_mut(*slot);
            record[FLAGS] &= !DIRTY;
            for call in &mut self.calls {
                call.settle(*slot, record);
            }
        }
        // Old records first, then the new ones: one pass over both for every column.
        let mut records = Vec::with_capacity(2 * n * stride);
        records.extend_from_slice(&self.old[from * stride..to * stride]);
        groups.iter().for_each(|slot| records.extend_from_slice(self.keys.record(*slot)));
        let exists: Vec<bool> = records.chunks_exact(stride).enumerate().map(|(i, r)| self.exists(r, i < n)).collect();
        let mut overflows = Vec::with_capacity(self.calls.len());
        let mut columns = Vec::with_capacity(self.calls.len());
        for call in &self.calls {
            let mut over = Vec::new();
            columns.push(call.values(&records, stride, ROWS, &mut over)?);
            overflows.push(over);
        }
        let twice: Vec<u32> = groups.iter().chain(groups).copied().collect();
        let keys = self.keys.key_columns(&twice)?;
        self.record_overflows(&keys, &overflows, &exists, cx)?;
        let keep = kept_rows(&columns, &exists, n)?;
        if self.is_global() {
            self.keys.record_mut(0)[FLAGS] |= EMITTED;
        }
        let columns = keys.into_iter().chain(columns);
        let weights = |n: usize, olds: usize| -> Int64Array { (0..n).map(|i| if i < olds { -1 } else { 1 }).collect::<Vec<i64>>().into() };
        let (columns, weights) = match keep {
            None => (columns.collect::<Vec<_>>(), weights(2 * n, n)),
            Some(keep) => {
                let olds = keep.slice(0, n).true_count();
                let kept = keep.true_count();
                if kept == 0 {
                    return Ok(None);
                }
                (columns.map(|c| filter(&c, &keep)).collect::<Result<_, _>>()?, weights(kept, olds))
            }
        };
        Ok(Some(Chunk::new(RecordBatch::try_new(self.schema.clone(), columns)?, weights)?))
    }

    /// A sum that does not fit its type is NULL; recorded when it starts.
    fn record_overflows(&self, keys: &[ArrayRef], overflows: &[Vec<usize>], exists: &[bool], cx: &mut OpContext) -> Result<()> {
        let n = exists.len() / 2;
        for (call, over) in self.calls.iter().zip(overflows).filter(|(_, over)| !over.is_empty()) {
            for row in over.iter().filter(|r| **r >= n && exists[**r]) {
                if !(exists[row - n] && over.contains(&(row - n))) {
                    let fields = self.schema.fields()[..keys.len()].to_vec();
                    let options = RecordBatchOptions::new().with_row_count(Some(2 * n));
                    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), keys.to_vec(), &options)?;
                    row_errors::record_overflow(cx, &call.text, &batch, *row);
                }
            }
        }
        Ok(())
    }

    /// Writes what changed since the last checkpoint; groups without rows go.
    fn write(&mut self, cx: &mut OpContext) -> Result<()> {
        let stride = self.keys.stride();
        let mut changed = std::mem::take(&mut self.changed);
        // In the order of memory: reading records at random costs more than the sort.
        changed.sort_unstable();
        for call in &mut self.calls {
            cx.writes.extend(call.checkpoint(&self.keys)?);
        }
        let (mut written, mut deleted, mut dead) = (Vec::with_capacity(changed.len()), Vec::with_capacity(changed.len()), Vec::new());
        let global = self.is_global();
        for slot in changed {
            let record = self.keys.record_mut(slot);
            let flags = record[FLAGS];
            let empty = !global && record[ROWS] == 0 && self.calls.iter().all(|c| c.is_zero(record));
            if !empty || flags & PERSISTED != 0 {
                written.push(slot);
                deleted.push(empty);
            }
            record[FLAGS] = flags & EMITTED | USED | if empty { 0 } else { PERSISTED };
            if empty && self.calls.iter().all(|c| c.has_no_values(slot)) {
                dead.push(slot);
            }
        }
        let mut columns = self.keys.key_columns(&written)?;
        let mut records = Vec::with_capacity(written.len() * stride);
        written.iter().for_each(|slot| records.extend_from_slice(self.keys.record(*slot)));
        let rows: Vec<u64> = records.chunks_exact(stride).map(|r| r[ROWS]).collect();
        columns.push(Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| *r as i64))));
        for call in &self.calls {
            call.state(&records, stride, &rows, &mut columns)?;
        }
        cx.writes.extend(self.table.write(columns, &deleted)?);
        for slot in dead {
            self.keys.record_mut(slot)[FLAGS] = 0;
            self.keys.remove(slot);
        }
        self.keys.compact(|record| record[FLAGS] & USED != 0);
        let live = self.keys.len();
        for call in &mut self.calls {
            call.compact(self.keys.words_mut(), stride, live);
        }
        Ok(())
    }

    fn load_groups(&mut self, batch: &RecordBatch) -> Result<()> {
        let n = self.group.len();
        let columns = batch.columns();
        let mut slots = Vec::new();
        self.keys.find_or_insert(&columns[..n], batch.num_rows(), &mut slots)?;
        let rows = columns[n].as_primitive::<Int64Type>();
        let emitted = if self.is_global() { EMITTED } else { 0 };
        for (i, slot) in slots.iter().enumerate() {
            let record = self.keys.record_mut(*slot);
            record[ROWS] = rows.value(i) as u64;
            record[FLAGS] = USED | PERSISTED | emitted;
        }
        let stride = self.keys.stride();
        let mut at = n + 1;
        for call in &mut self.calls {
            at += call.load(self.keys.words_mut(), stride, &slots, &columns[at..])?;
        }
        Ok(())
    }

    fn load_values(&mut self, rows: &StateRows) -> Result<()> {
        let n = self.group.len();
        let mut slots = Vec::new();
        self.keys.find_or_insert(&rows.rows.columns()[..n], rows.rows.num_rows(), &mut slots)?;
        let stride = self.keys.stride();
        let words = self.keys.words_mut();
        slots.iter().for_each(|s| words[*s as usize * stride + FLAGS] |= USED);
        for call in self.calls.iter_mut().filter(|c| c.multiset_table() == Some(rows.table)) {
            call.load_values(words, stride, &slots, &rows.rows.columns()[n..])?;
        }
        Ok(())
    }
}

/// Which of the rows (n old, then n new) are emitted: those that exist, of groups whose values differ. `None`: all.
fn kept_rows(columns: &[ArrayRef], exists: &[bool], n: usize) -> Result<Option<BooleanArray>> {
    let mut same: Option<BooleanArray> = None;
    for column in columns {
        let equal = not_distinct(&column.slice(0, n), &column.slice(n, n))?;
        same = Some(match same {
            Some(same) => and(&same, &equal)?,
            None => equal,
        });
        if same.as_ref().is_some_and(|s| s.true_count() == 0) {
            break;
        }
    }
    // Without calls (SELECT DISTINCT) only existence matters.
    let unchanged = |i: usize| exists[i] && exists[n + i] && same.as_ref().is_none_or(|s| s.value(i));
    let keep: BooleanArray = (0..2 * n).map(|i| Some(exists[i] && !unchanged(i % n))).collect();
    Ok((keep.true_count() < 2 * n).then_some(keep))
}

impl Operator for HashAgg {
    fn push(&mut self, _port: usize, chunk: Chunk, _cx: &mut OpContext) -> Result<()> {
        if chunk.num_rows() <= BLOCK_ROWS {
            return self.fold(&chunk);
        }
        for start in (0..chunk.num_rows()).step_by(BLOCK_ROWS) {
            self.fold(&chunk.slice(start, BLOCK_ROWS.min(chunk.num_rows() - start)))?;
        }
        Ok(())
    }

    fn step(&mut self, cx: &mut OpContext) -> Result<Step> {
        match self.phase {
            Phase::Start => {
                self.phase = Phase::Input;
                let tables = std::iter::once(self.table.desc.id).chain(self.calls.iter().filter_map(Call::multiset_table));
                Ok(Step::Need(tables.map(StateRequest::Load).collect()))
            }
            Phase::Input => Ok(Step::Done),
            Phase::Emitting { mut next, checkpoint } => {
                while next < self.dirty.len() {
                    let to = (next + GROUPS_PER_STEP).min(self.dirty.len());
                    let chunk = self.emit(next, to, cx)?;
                    next = to;
                    self.phase = Phase::Emitting { next, checkpoint };
                    if let Some(chunk) = chunk {
                        return Ok(Step::Emit(chunk));
                    }
                }
                self.dirty.clear();
                self.old.clear();
                self.phase = Phase::Input;
                if checkpoint {
                    self.write(cx)?;
                }
                Ok(Step::Done)
            }
        }
    }

    fn supply(&mut self, rows: StateRows, _cx: &mut OpContext) -> Result<()> {
        if rows.table == self.table.desc.id { self.load_groups(&rows.rows) } else { self.load_values(&rows) }
    }

    fn barrier(&mut self, barrier: &Barrier, _cx: &mut OpContext) -> Result<()> {
        if barrier.kind == BarrierKind::Initial {
            return Ok(());
        }
        if self.phase != Phase::Input {
            return Err(Error::internal("a barrier came while the one before it was worked on"));
        }
        if self.is_global() && self.keys.record(0)[FLAGS] & EMITTED == 0 {
            self.capture(&[0]);
        }
        self.phase = Phase::Emitting { next: 0, checkpoint: barrier.is_checkpoint() };
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        let calls: usize = self.calls.iter().map(Call::memory_bytes).sum();
        self.keys.memory_bytes() + calls + self.old.capacity() * 8 + (self.dirty.capacity() + self.changed.capacity()) * 4
    }
}
