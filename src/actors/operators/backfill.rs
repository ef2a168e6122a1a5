//! Backfill: a new job's reader of an existing table, by the cursor rule.
//!
//! The upstream's rows are read in table-key order, page by page, each page from the snapshot at the last barrier. `position` is the key of the
//! last row read. Changes that arrive during an epoch are held back until its barrier; then those with a key at or below the position go on (their
//! rows were emitted from a snapshot that did not have them), and those above are dropped (a later page, read at this barrier's epoch
//! or after, has them). When the end is reached everything goes on. So at every barrier the output is the integral of the upstream restricted to keys at or below the position.
//!
//! The first page is read inside the first barrier: the upstream's rows of that epoch are readable by then, so small tables are complete at once.
//! Later pages are background work between messages, one a step.

use super::state::arena::split_weights;
use super::state::write::StateTable;
use super::{OpContext, Operator, StateRequest, StateRows, Step};
use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Int32Array, Int64Array};
use arrow::datatypes::SchemaRef;
use eddyline_protocol::{Barrier, BarrierKind, TableDesc};
use eddyline_store::TableWrite;
use eddyline_types::{Chunk, Error, Result, TableId, VNode};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Rows of a page.
const PAGE_ROWS: usize = 4096;

/// What the task is to do next, besides taking input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The progress table is to be loaded.
    Start,
    /// Asked for it.
    Loading,
    /// Waits for the first barrier.
    Waiting,
    /// Reads pages.
    Reading,
    /// Asked for a page.
    Asked,
    /// All rows were read.
    Finished,
}

/// See the module's documentation.
pub struct Backfill {
    upstream: StateTable,
    /// The upstream keeps multiplicities in a last column that chunks do not have.
    weighted: bool,
    columns: Vec<usize>,
    schema: SchemaRef,
    progress: TableId,
    progress_codec: eddyline_types::KeyCodec,
    progress_schema: SchemaRef,
    vnodes: Range<VNode>,
    phase: Phase,
    position: Option<Vec<u8>>,
    /// The epoch's changes, until its barrier.
    held: Vec<Chunk>,
    output: VecDeque<Chunk>,
    /// A page may be asked for in this step.
    may_read: bool,
    /// Progress was made since it was written.
    unsaved: bool,
    /// Progress is to be written before `step` is done: a checkpoint is being passed.
    save_due: bool,
}

/// What a backfill is made of.
pub struct BackfillSpec {
    /// The table that is read.
    pub upstream: TableDesc,
    /// How many columns the edge's chunks have.
    pub edge_columns: usize,
    /// Columns wanted.
    pub columns: Vec<usize>,
    /// Schema of the output.
    pub schema: SchemaRef,
    /// Where progress is kept.
    pub progress: TableDesc,
    /// The shard's vnodes.
    pub vnodes: Range<VNode>,
}

impl Backfill {
    /// A reader that has done nothing yet.
    pub fn new(spec: BackfillSpec) -> Result<Self> {
        let weighted = spec.edge_columns < spec.upstream.schema.fields().len();
        Ok(Backfill {
            weighted,
            progress: spec.progress.id,
            progress_codec: spec.progress.key_codec()?.codec().clone(),
            progress_schema: spec.progress.schema.clone(),
            upstream: StateTable::new(spec.upstream)?,
            columns: spec.columns,
            schema: spec.schema,
            vnodes: spec.vnodes,
            phase: Phase::Start,
            position: None,
            held: Vec::new(),
            output: VecDeque::new(),
            may_read: false,
            unsaved: false,
            save_due: false,
        })
    }

    fn shape(&self, chunk: &Chunk) -> Result<Chunk> {
        let columns = self.columns.iter().map(|c| chunk.column(*c).clone()).collect();
        chunk.with_columns(self.schema.clone(), columns)
    }

    fn emit(&mut self, chunk: &Chunk) -> Result<()> {
        if !chunk.is_empty() {
            let chunk = self.shape(chunk)?;
            self.output.push_back(chunk);
        }
        Ok(())
    }

    /// Lets held changes at or below the position go on and drops the others.
    fn release(&mut self) -> Result<()> {
        for chunk in std::mem::take(&mut self.held) {
            if self.phase == Phase::Finished {
                self.emit(&chunk)?;
            } else if let Some(position) = self.position.as_deref() {
                let keys = self.upstream.keys(chunk.batch().columns(), chunk.num_rows())?;
                let below = BooleanArray::from_iter(keys.iter().map(|k| Some(k.is_some_and(|k| k <= position))));
                let chunk = chunk.filter(&below)?;
                self.emit(&chunk)?;
            }
        }
        Ok(())
    }

    fn take_page(&mut self, rows: StateRows) -> Result<()> {
        let keys = rows.keys.ok_or_else(|| Error::internal("a page came without keys"))?;
        if !keys.is_empty() {
            self.position = Some(keys.value(keys.len() - 1).to_vec());
            self.unsaved = true;
        }
        let chunk = if self.weighted {
            let (columns, weights) = split_weights(&rows.rows)?;
            let fields = self.upstream.desc.schema.fields()[..columns.len()].to_vec();
            let batch = arrow::array::RecordBatch::try_new(Arc::new(arrow::datatypes::Schema::new(fields)), columns)?;
            Chunk::new(batch, Int64Array::from(weights))?
        } else {
            Chunk::append_only(rows.rows)
        };
        self.emit(&chunk)?;
        self.phase = Phase::Reading;
        if rows.last {
            self.phase = Phase::Finished;
            self.unsaved = true;
            // All keys are now at or below the position.
            self.release()?;
        }
        Ok(())
    }

    fn take_progress(&mut self, rows: &StateRows) -> Result<()> {
        let positions = rows.rows.column(1).as_binary::<i32>();
        let done = rows.rows.column(2).as_boolean();
        for row in 0..rows.rows.num_rows() {
            let position = positions.is_valid(row).then(|| positions.value(row).to_vec());
            let phase = if done.value(row) { Phase::Finished } else { Phase::Waiting };
            if self.phase == Phase::Loading {
                (self.phase, self.position) = (phase, position);
            } else if (self.phase, &self.position) != (phase, &position) {
                return Err(Error::internal("the vnodes of a backfilling shard are at different positions"));
            }
        }
        if rows.last && self.phase == Phase::Loading {
            self.phase = Phase::Waiting;
        }
        Ok(())
    }

    /// One row per vnode, under the vnode itself, so that a shard with other vnodes finds them.
    fn save(&mut self, cx: &mut OpContext) -> Result<()> {
        if !self.unsaved {
            return Ok(());
        }
        self.unsaved = false;
        let vnodes: Vec<i32> = self.vnodes.clone().map(i32::from).collect();
        let column: ArrayRef = Arc::new(Int32Array::from(vnodes.clone()));
        let plain = self.progress_codec.encode(std::slice::from_ref(&column), vnodes.len())?;
        let keys = BinaryArray::from_iter_values(vnodes.iter().zip(plain.iter()).map(|(vnode, key)| {
            let mut bytes = (*vnode as u16).to_be_bytes().to_vec();
            bytes.extend_from_slice(key.unwrap_or_default());
            bytes
        }));
        let positions: BinaryArray = vnodes.iter().map(|_| self.position.as_deref()).collect();
        let done = BooleanArray::from(vec![self.phase == Phase::Finished; vnodes.len()]);
        let rows = arrow::array::RecordBatch::try_new(self.progress_schema.clone(), vec![column, Arc::new(positions), Arc::new(done)])?;
        cx.writes.push(TableWrite { table: self.progress, keys, rows, tombstones: None });
        Ok(())
    }
}

impl Operator for Backfill {
    fn push(&mut self, _port: usize, chunk: Chunk, _cx: &mut OpContext) -> Result<()> {
        if self.phase == Phase::Finished {
            return self.emit(&chunk);
        }
        self.held.push(chunk);
        // One page for every chunk: a stream that never pauses cannot starve the scan.
        self.may_read = true;
        Ok(())
    }

    fn step(&mut self, cx: &mut OpContext) -> Result<Step> {
        if let Some(chunk) = self.output.pop_front() {
            return Ok(Step::Emit(chunk));
        }
        match self.phase {
            Phase::Start => {
                self.phase = Phase::Loading;
                Ok(Step::Need(vec![StateRequest::Load(self.progress)]))
            }
            Phase::Reading if self.may_read => {
                self.may_read = false;
                self.phase = Phase::Asked;
                let request = StateRequest::Read { table: self.upstream.desc.id, position: self.position.clone(), limit: PAGE_ROWS };
                Ok(Step::Need(vec![request]))
            }
            Phase::Reading | Phase::Loading | Phase::Waiting | Phase::Asked | Phase::Finished => {
                // `step` without a message before it is background work: the next one reads.
                self.may_read = true;
                if std::mem::take(&mut self.save_due) {
                    self.save(cx)?;
                }
                Ok(Step::Done)
            }
        }
    }

    fn supply(&mut self, rows: StateRows, _cx: &mut OpContext) -> Result<()> {
        if rows.table == self.progress { self.take_progress(&rows) } else { self.take_page(rows) }
    }

    fn barrier(&mut self, barrier: &Barrier, _cx: &mut OpContext) -> Result<()> {
        // Pages are read between barriers, but for the first barrier of a new job.
        self.may_read = false;
        if self.phase == Phase::Waiting {
            self.phase = Phase::Reading;
            self.may_read = barrier.kind != BarrierKind::Initial;
        } else {
            self.release()?;
        }
        self.save_due = barrier.is_checkpoint();
        Ok(())
    }

    fn has_background_work(&self) -> bool {
        self.phase == Phase::Reading
    }

    fn is_backfilled(&self) -> bool {
        self.phase == Phase::Finished
    }
}
