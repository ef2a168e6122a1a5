//! Operators without state: filter, project, row id and the blackhole sink. Linear: what holds for rows holds for deltas.

use super::{OpContext, Operator, StateRows, Step, row_errors};
use arrow::array::{Array, AsArray, Int64Array};
use arrow::datatypes::{Schema, SchemaRef};
use eddyline_expr::CompiledExpr;
use eddyline_protocol::{Barrier, Expr};
use eddyline_types::{Chunk, Epoch, Error, Result};
use std::sync::Arc;

/// The next output of an operator that has at most one: shared by all that map chunk to chunk.
fn give(pending: &mut Option<Chunk>) -> Step {
    match pending.take() {
        Some(chunk) if !chunk.is_empty() => Step::Emit(chunk),
        Some(_) | None => Step::Done,
    }
}

fn stateless(rows: &StateRows) -> Error {
    Error::internal(format!("table {} was loaded for an operator without state", rows.table))
}

/// Keeps rows whose predicate is true.
pub struct Filter {
    predicate: CompiledExpr,
    text: String,
    pending: Option<Chunk>,
}

impl Filter {
    /// A filter over chunks of the given schema.
    pub fn new(predicate: &Expr, input: &Schema) -> Result<Self> {
        Ok(Filter { predicate: CompiledExpr::compile(&predicate.bytes, input)?, text: predicate.text.clone(), pending: None })
    }
}

impl Operator for Filter {
    fn push(&mut self, _port: usize, chunk: Chunk, cx: &mut OpContext) -> Result<()> {
        let mut errors = Vec::new();
        let mask = self.predicate.evaluate(chunk.batch(), &mut errors)?;
        row_errors::record(cx, &self.text, &chunk, &errors);
        let mask = mask.as_boolean_opt().ok_or_else(|| Error::internal(format!("the condition {} is not boolean", self.text)))?;
        let all = mask.null_count() == 0 && mask.values().count_set_bits() == mask.len();
        self.pending = Some(if all { chunk } else { chunk.filter(mask)? });
        Ok(())
    }

    fn step(&mut self, _cx: &mut OpContext) -> Result<Step> {
        Ok(give(&mut self.pending))
    }

    fn supply(&mut self, rows: StateRows, _cx: &mut OpContext) -> Result<()> {
        Err(stateless(&rows))
    }

    fn barrier(&mut self, _barrier: &Barrier, _cx: &mut OpContext) -> Result<()> {
        Ok(())
    }
}

/// Computes columns.
pub struct Project {
    exprs: Vec<(CompiledExpr, String)>,
    schema: SchemaRef,
    pending: Option<Chunk>,
}

impl Project {
    /// A projection from chunks of schema `input` to chunks of schema `output`.
    pub fn new(exprs: &[Expr], input: &Schema, output: SchemaRef) -> Result<Self> {
        let exprs = exprs.iter().map(|e| Ok((CompiledExpr::compile(&e.bytes, input)?, e.text.clone()))).collect::<Result<_>>()?;
        Ok(Project { exprs, schema: row_errors::nullable(&output), pending: None })
    }
}

impl Operator for Project {
    fn push(&mut self, _port: usize, chunk: Chunk, cx: &mut OpContext) -> Result<()> {
        let mut columns = Vec::with_capacity(self.exprs.len());
        let mut errors = Vec::new();
        for (expr, text) in &self.exprs {
            columns.push(expr.evaluate(chunk.batch(), &mut errors)?);
            row_errors::record(cx, text, &chunk, &errors);
            errors.clear();
        }
        self.pending = Some(chunk.with_columns(self.schema.clone(), columns)?);
        Ok(())
    }

    fn step(&mut self, _cx: &mut OpContext) -> Result<Step> {
        Ok(give(&mut self.pending))
    }

    fn supply(&mut self, rows: StateRows, _cx: &mut OpContext) -> Result<()> {
        Err(stateless(&rows))
    }

    fn barrier(&mut self, _barrier: &Barrier, _cx: &mut OpContext) -> Result<()> {
        Ok(())
    }
}

/// Bits of an id below the epoch's milliseconds: no shard takes 4 million rows a millisecond.
const BITS_PER_MILLI: u32 = 22;

/// Appends a column of unique ids to append-only rows.
///
/// Shard `i` of `n` takes every n-th number, from the time of its first barrier on. Epochs never go back, so a restarted shard begins above
/// all that an earlier one can have given, and no counter is kept in state.
pub struct RowId {
    schema: SchemaRef,
    next: Option<u64>,
    shard: u32,
    shards: u32,
    pending: Option<Chunk>,
}

impl RowId {
    /// Emits chunks of schema `output`: the input's columns and an int64.
    pub fn new(output: SchemaRef, shard: u32, shards: u32) -> Self {
        RowId { schema: output, next: None, shard, shards, pending: None }
    }

    fn first_id(epoch: Epoch) -> u64 {
        epoch.millis() << BITS_PER_MILLI | (epoch.0 & 0xffff) << (BITS_PER_MILLI - 16)
    }
}

impl Operator for RowId {
    fn push(&mut self, _port: usize, chunk: Chunk, _cx: &mut OpContext) -> Result<()> {
        if chunk.weights().is_some() {
            return Err(Error::internal("row ids are given to new rows only, and a row of a chunk has a weight that is not 1"));
        }
        let next = self.next.as_mut().ok_or_else(|| Error::internal("a row came before the first barrier"))?;
        let (stride, rows) = (u64::from(self.shards), chunk.num_rows() as u64);
        // Ids are only unique: the wrap to negative numbers in 2039 does no harm.
        let ids = Int64Array::from_iter_values((0..rows).map(|i| next.wrapping_add(i * stride) as i64));
        *next = next.wrapping_add(rows * stride);
        let mut columns = chunk.batch().columns().to_vec();
        columns.push(Arc::new(ids));
        self.pending = Some(chunk.with_columns(self.schema.clone(), columns)?);
        Ok(())
    }

    fn step(&mut self, _cx: &mut OpContext) -> Result<Step> {
        Ok(give(&mut self.pending))
    }

    fn supply(&mut self, rows: StateRows, _cx: &mut OpContext) -> Result<()> {
        Err(stateless(&rows))
    }

    fn barrier(&mut self, barrier: &Barrier, _cx: &mut OpContext) -> Result<()> {
        if self.next.is_none() {
            let first = Self::first_id(barrier.epoch);
            self.next = Some(first - first % u64::from(self.shards) + u64::from(self.shard));
        }
        Ok(())
    }
}

/// A sink that counts rows and forgets them.
pub struct Blackhole {
    rows: metrics::Counter,
}

impl Blackhole {
    /// A sink; `relation` labels its counter.
    pub fn new(relation: eddyline_types::ObjectId) -> Self {
        Blackhole { rows: metrics::counter!("eddyline_sink_rows_total", "relation" => relation.to_string()) }
    }
}

impl Operator for Blackhole {
    fn push(&mut self, _port: usize, chunk: Chunk, _cx: &mut OpContext) -> Result<()> {
        self.rows.increment(chunk.num_rows() as u64);
        Ok(())
    }

    fn is_sink(&self) -> bool {
        true
    }

    fn step(&mut self, _cx: &mut OpContext) -> Result<Step> {
        Ok(Step::Done)
    }

    fn supply(&mut self, rows: StateRows, _cx: &mut OpContext) -> Result<()> {
        Err(stateless(&rows))
    }

    fn barrier(&mut self, _barrier: &Barrier, _cx: &mut OpContext) -> Result<()> {
        Ok(())
    }
}
