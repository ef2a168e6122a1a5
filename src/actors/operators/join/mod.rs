//! Hash join of two changing inputs: inner, left, right and full, with a residual condition.
//!
//! For a chunk D of one side against the state S of the other: first D goes into its own side's state, then D x S streams out, a bounded number of pairs a
//! step; so the output is dA x B + A x dB + dA x dB whatever the order of chunks. One table of keys serves both sides: a chunk's keys
//! are looked up once, for the insert and for the probe. Reading order: [`side`] (a side's rows), [`pairs`] (candidates and the condition).
//!
//! Outer sides: a row's match count is the sum of the weights of the rows that match it; while it is not positive, the row is output with NULLs, times its
//! weight. That is a function of the two states alone, so deltas telescope even when weights are negative for a while.

mod pairs;
mod side;

use super::state::arena::split_weights;
use super::state::column::NIL;
use super::state::keys::KeyTable;
use super::{OpContext, Operator, StateRequest, StateRows, Step, row_errors};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, SchemaRef};
use eddyline_protocol::plan::{JoinKind, JoinNode};
use eddyline_protocol::{Barrier, TableDesc};
use eddyline_types::{Chunk, Error, Result, TableId};
use pairs::{Cursor, Pairs, Residual};
use side::{HEADS, Side};
use std::collections::VecDeque;

/// Pairs of one step when only joined rows come out of it.
const PAIRS: usize = 4096;
/// Pairs, and rows, of one step when each may also change a padded row.
const OUTER_PAIRS: usize = 1365;

/// A chunk that is being joined.
struct Pending {
    port: usize,
    chunk: Chunk,
    slots: Vec<u32>,
    /// Each row's number in its own side, or `NIL`.
    numbers: Vec<u32>,
    cursor: Cursor,
    /// Match count, so far, of the row at the cursor.
    partial: i64,
}

/// Rows to be put out: positions in the chunk and numbers in the other side, `NIL` for NULLs.
#[derive(Default)]
struct Output {
    own: Vec<u32>,
    other: Vec<u32>,
    weights: Vec<i64>,
}

impl Output {
    fn push(&mut self, own: u32, other: u32, weight: i64) {
        self.own.push(own);
        self.other.push(other);
        self.weights.push(weight);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Start,
    Loading,
    Input,
    /// Writes, then takes input again.
    Checkpoint,
}

/// See the module's documentation.
pub struct HashJoin {
    keys: KeyTable,
    sides: [Side; 2],
    key_columns: [Vec<usize>; 2],
    null_equal: bool,
    residual: Option<Residual>,
    /// For each output column its side and its position there.
    output: Vec<(usize, usize)>,
    left_columns: usize,
    schema: SchemaRef,
    phase: Phase,
    pending: Option<Pending>,
    padded: VecDeque<Chunk>,
    pairs: Pairs,
}

impl HashJoin {
    /// A join that emits chunks of schema `output`; `tables` finds the descriptors of its state.
    pub fn new(node: &JoinNode, output: SchemaRef, tables: &dyn Fn(TableId) -> Result<TableDesc>) -> Result<Self> {
        let types = |side: &eddyline_protocol::plan::JoinSide| -> Vec<DataType> {
            side.keys.iter().map(|c| side.schema.field(*c).data_type().clone()).collect()
        };
        if types(&node.left) != types(&node.right) {
            return Err(Error::internal("the two sides of a join have keys of different types"));
        }
        let left_columns = node.left.schema.fields().len();
        let place = |c: &usize| if *c < left_columns { (0, *c) } else { (1, *c - left_columns) };
        let left_padded = matches!(node.kind, JoinKind::Left | JoinKind::Full);
        let right_padded = matches!(node.kind, JoinKind::Right | JoinKind::Full);
        let sides = [
            Side::new(&node.left, tables(node.left.state)?, left_padded, 0)?,
            Side::new(&node.right, tables(node.right.state)?, right_padded, 1)?,
        ];
        let residual = node.residual.as_ref().map(|e| Residual::new(e, &node.left.schema, &node.right.schema)).transpose()?;
        Ok(HashJoin {
            keys: KeyTable::new(&types(&node.left), 1)?,
            sides,
            key_columns: [node.left.keys.clone(), node.right.keys.clone()],
            null_equal: node.null_equal,
            residual,
            output: node.output.iter().map(place).collect(),
            left_columns,
            schema: row_errors::nullable(&output),
            phase: Phase::Start,
            pending: None,
            padded: VecDeque::new(),
            pairs: Pairs::default(),
        })
    }

    fn key_arrays(&self, port: usize, columns: &[ArrayRef]) -> Vec<ArrayRef> {
        self.key_columns[port].iter().map(|c| columns[*c].clone()).collect()
    }

    /// Rows with a NULL key match nothing and are kept nowhere: an outer side's come out padded at once. Returns the other rows.
    fn split_null_keys(&mut self, port: usize, chunk: Chunk) -> Result<Chunk> {
        if self.null_equal {
            return Ok(chunk);
        }
        let Some(nulls) = KeyTable::null_rows(&self.key_arrays(port, chunk.batch().columns())) else { return Ok(chunk) };
        if self.sides[port].matched.is_some() {
            let without_key = arrow::array::BooleanArray::new(!nulls.inner(), None);
            let rows = chunk.filter(&without_key)?;
            let none = vec![NIL; rows.num_rows()];
            let own: Vec<u32> = (0..rows.num_rows() as u32).collect();
            let weights = (0..rows.num_rows()).map(|i| rows.weight(i)).collect();
            let out = self.assemble(port, &rows, &Output { own, other: none, weights })?;
            self.padded.push_back(out);
        }
        chunk.filter(&arrow::array::BooleanArray::new(nulls.inner().clone(), None))
    }

    /// Columns of an output: from the chunk by position, from the other side by row number.
    fn column(&self, port: usize, chunk: &Chunk, place: (usize, usize), own: &UInt32Array, other: &[u32]) -> Result<ArrayRef> {
        let (side, column) = place;
        if side == port { Ok(take(chunk.column(column), own, None)?) } else { self.sides[side].rows.gather(column, other) }
    }

    fn assemble(&self, port: usize, chunk: &Chunk, out: &Output) -> Result<Chunk> {
        let own = positions(&out.own);
        let columns = self.output.iter().map(|p| self.column(port, chunk, *p, &own, &out.other)).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(out.own.len()));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        Chunk::new(batch, out.weights.clone().into())
    }

    /// Which of the collected pairs satisfy the condition; `None`: all.
    fn passing(&self, port: usize, chunk: &Chunk, cx: &mut OpContext) -> Result<Option<BooleanBuffer>> {
        let Some(residual) = &self.residual else { return Ok(None) };
        let own = positions(&self.pairs.own);
        let place = |c: &usize| if *c < self.left_columns { (0, *c) } else { (1, *c - self.left_columns) };
        let columns =
            residual.columns.iter().map(|c| self.column(port, chunk, place(c), &own, &self.pairs.other)).collect::<Result<Vec<_>>>()?;
        let mut errors = Vec::new();
        let (pass, batch) = residual.evaluate(columns, self.pairs.own.len(), &mut errors)?;
        row_errors::record(cx, &residual.text, &Chunk::append_only(batch), &errors);
        Ok(Some(pass))
    }

    /// One bounded piece of the pending chunk.
    fn advance(&mut self, pending: &mut Pending, cx: &mut OpContext) -> Result<Option<Chunk>> {
        let (port, other) = (pending.port, 1 - pending.port);
        let outer = self.sides.iter().any(|s| s.matched.is_some());
        let (limit, rows) = if outer { (OUTER_PAIRS, OUTER_PAIRS) } else { (PAIRS, usize::MAX / 2) };
        let first = pending.cursor.row;
        self.pairs.collect(&mut pending.cursor, &pending.slots, &self.keys, &self.sides[other], limit, rows);
        if self.pairs.own.is_empty() && self.sides[port].matched.is_none() {
            return Ok(None);
        }
        let pass = self.passing(port, &pending.chunk, cx)?;
        let out = if outer { self.outer_output(pending, first, pass.as_ref())? } else { self.inner_output(pending, pass.as_ref())? };
        if out.own.is_empty() { Ok(None) } else { self.assemble(port, &pending.chunk, &out).map(Some) }
    }

    fn inner_output(&mut self, pending: &Pending, pass: Option<&BooleanBuffer>) -> Result<Output> {
        let mut out =
            Output { own: std::mem::take(&mut self.pairs.own), other: std::mem::take(&mut self.pairs.other), weights: Vec::new() };
        if let Some(pass) = pass {
            out.own = pass.set_indices().map(|k| out.own[k]).collect();
            out.other = pass.set_indices().map(|k| out.other[k]).collect();
        }
        let weights = self.sides[1 - pending.port].rows.weights();
        let product = |(own, other): (&u32, &u32)| pending.chunk.weight(*own as usize).checked_mul(weights[*other as usize]);
        out.weights =
            out.own.iter().zip(&out.other).map(product).collect::<Option<_>>().ok_or_else(|| Error::internal("weight overflow"))?;
        Ok(out)
    }

    /// Joined rows, padded rows of the other side whose match count turned, and padded rows of the chunk.
    fn outer_output(&mut self, pending: &mut Pending, first: usize, pass: Option<&BooleanBuffer>) -> Result<Output> {
        let mut out = Output::default();
        let overflow = || Error::internal("weight overflow");
        let (left, right) = self.sides.split_at_mut(1);
        let (own_side, other_side) = if pending.port == 0 { (&mut left[0], &mut right[0]) } else { (&mut right[0], &mut left[0]) };
        let mut k = 0;
        // The row at the cursor is not complete, unless the cursor is at the end.
        for row in first..(pending.cursor.row + 1).min(pending.slots.len()) {
            let weight = pending.chunk.weight(row);
            while k < self.pairs.own.len() && self.pairs.own[k] as usize == row {
                let other = self.pairs.other[k];
                if pass.is_none_or(|p| p.value(k)) {
                    let other_weight = other_side.rows.weight(other);
                    out.push(row as u32, other, weight.checked_mul(other_weight).ok_or_else(overflow)?);
                    pending.partial = pending.partial.checked_add(other_weight).ok_or_else(overflow)?;
                    if let Some(matched) = &mut other_side.matched {
                        let count = &mut matched[other as usize];
                        let old = *count;
                        *count = old.checked_add(weight).ok_or_else(overflow)?;
                        match (old > 0, *count > 0) {
                            (false, true) => out.push(NIL, other, other_weight.checked_neg().ok_or_else(overflow)?),
                            (true, false) => out.push(NIL, other, other_weight),
                            (true, true) | (false, false) => {}
                        }
                    }
                }
                k += 1;
            }
            if row < pending.cursor.row {
                let count = std::mem::take(&mut pending.partial);
                if let Some(matched) = &mut own_side.matched {
                    if count <= 0 {
                        out.push(row as u32, NIL, weight);
                    }
                    if pending.numbers[row] != NIL {
                        matched[pending.numbers[row] as usize] = count;
                    }
                }
            }
        }
        Ok(out)
    }

    /// Keys that lost their last row are forgotten.
    fn drop_unused_keys(&mut self, slots: &[u32]) {
        let mut unused: Vec<u32> = slots.iter().copied().filter(|s| self.keys.record(*s)[HEADS] == 0).collect();
        unused.sort_unstable();
        unused.dedup();
        unused.into_iter().for_each(|slot| self.keys.remove(slot));
    }

    fn load(&mut self, rows: &StateRows) -> Result<()> {
        let port = usize::from(rows.table != self.sides[0].table());
        let (columns, weights) = split_weights(&rows.rows)?;
        let (mut slots, mut numbers) = (Vec::new(), Vec::new());
        self.keys.find_or_insert(&self.key_arrays(port, &columns), weights.len(), &mut slots)?;
        let weights = if weights.iter().all(|w| *w == 1) { None } else { Some(weights.as_slice()) };
        self.sides[port].insert(&mut self.keys, &columns, weights, &slots, true, &mut numbers)
    }

    /// Match counts of loaded rows: they follow from the two sides.
    fn count_matches(&mut self, port: usize) -> Result<()> {
        if self.sides[port].matched.is_none() {
            return Ok(());
        }
        let rows = self.sides[port].rows.live_rows();
        for part in rows.chunks(PAIRS) {
            let columns = self.sides[port].rows.gather_all(part)?;
            let schema: Vec<_> = columns
                .iter()
                .enumerate()
                .map(|(i, c)| arrow::datatypes::Field::new(format!("c{i}"), c.data_type().clone(), true))
                .collect();
            let batch = RecordBatch::try_new(std::sync::Arc::new(arrow::datatypes::Schema::new(schema)), columns)?;
            let chunk = Chunk::append_only(batch);
            let mut slots = Vec::new();
            self.keys.find_or_insert(&self.key_arrays(port, chunk.batch().columns()), part.len(), &mut slots)?;
            let mut cursor = Cursor::default();
            while cursor.row < part.len() {
                self.pairs.collect(&mut cursor, &slots, &self.keys, &self.sides[1 - port], PAIRS, part.len());
                // Errors of the condition were recorded when the rows were first joined.
                let pass = self.passing(port, &chunk, &mut OpContext::default())?;
                let (left, right) = self.sides.split_at_mut(1);
                let (own_side, other_side) = if port == 0 { (&mut left[0], &right[0]) } else { (&mut right[0], &left[0]) };
                let Some(matched) = &mut own_side.matched else { return Ok(()) };
                for (k, (own, other)) in self.pairs.own.iter().zip(&self.pairs.other).enumerate() {
                    if pass.as_ref().is_none_or(|p| p.value(k)) {
                        matched[part[*own as usize] as usize] += other_side.rows.weight(*other);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Positions for `take`: `NIL` is NULL.
fn positions(rows: &[u32]) -> UInt32Array {
    let nulls = rows.contains(&NIL).then(|| NullBuffer::new(BooleanBuffer::collect_bool(rows.len(), |i| rows[i] != NIL)));
    let values = rows.iter().map(|r| if *r == NIL { 0 } else { *r }).collect::<Vec<_>>();
    UInt32Array::new(values.into(), nulls)
}

impl Operator for HashJoin {
    fn push(&mut self, port: usize, chunk: Chunk, _cx: &mut OpContext) -> Result<()> {
        let chunk = self.split_null_keys(port, chunk)?;
        let (mut slots, mut numbers) = (Vec::new(), Vec::new());
        self.keys.find_or_insert(&self.key_arrays(port, chunk.batch().columns()), chunk.num_rows(), &mut slots)?;
        self.sides[port].insert(&mut self.keys, chunk.batch().columns(), chunk.weights(), &slots, false, &mut numbers)?;
        self.pending = Some(Pending { port, chunk, slots, numbers, cursor: Cursor::default(), partial: 0 });
        Ok(())
    }

    fn step(&mut self, cx: &mut OpContext) -> Result<Step> {
        if let Some(chunk) = self.padded.pop_front() {
            return Ok(Step::Emit(chunk));
        }
        if let Some(mut pending) = self.pending.take() {
            while pending.cursor.row < pending.slots.len() {
                if let Some(chunk) = self.advance(&mut pending, cx)? {
                    self.pending = Some(pending);
                    return Ok(Step::Emit(chunk));
                }
            }
            if pending.chunk.weights().is_some() {
                self.drop_unused_keys(&pending.slots);
            }
        }
        match self.phase {
            Phase::Start => {
                self.phase = Phase::Loading;
                Ok(Step::Need(self.sides.iter().map(|s| StateRequest::Load(s.table())).collect()))
            }
            Phase::Loading => {
                self.count_matches(0)?;
                self.count_matches(1)?;
                self.phase = Phase::Input;
                Ok(Step::Done)
            }
            Phase::Input => Ok(Step::Done),
            Phase::Checkpoint => {
                for side in &mut self.sides {
                    cx.writes.extend(side.checkpoint()?);
                }
                self.keys.compact(|record| record[HEADS] != 0);
                self.phase = Phase::Input;
                Ok(Step::Done)
            }
        }
    }

    fn supply(&mut self, rows: StateRows, _cx: &mut OpContext) -> Result<()> {
        self.load(&rows)
    }

    fn barrier(&mut self, barrier: &Barrier, _cx: &mut OpContext) -> Result<()> {
        if barrier.is_checkpoint() {
            self.phase = Phase::Checkpoint;
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.sides.iter().map(Side::memory_bytes).sum::<usize>()
    }
}
