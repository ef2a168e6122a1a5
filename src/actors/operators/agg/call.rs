//! One call of an aggregate: which rows count, where they are folded, what the value is.

use super::accumulator::{Accumulator, Input, Kind};
use super::multiset::ValueSets;
use super::output;
use super::value::ValueCodec;
use crate::operators::state::keys::KeyTable;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Int64Type, Schema};
use eddyline_protocol::TableDesc;
use eddyline_protocol::plan::{AggCall, AggFunction};
use eddyline_store::TableWrite;
use eddyline_types::{Chunk, Error, Result, TableId};

/// See the module's documentation.
pub struct Call {
    function: AggFunction,
    argument: Option<usize>,
    filter: Option<usize>,
    output: DataType,
    accumulator: Accumulator,
    sets: Option<ValueSets>,
    /// For error records.
    pub text: String,
}

fn is_extreme(function: AggFunction) -> bool {
    matches!(function, AggFunction::Min | AggFunction::Max)
}

impl Call {
    /// A call whose words start at `at`, which is moved past them.
    pub fn new(call: &AggCall, input: &Schema, at: &mut usize, tables: &dyn Fn(TableId) -> Result<TableDesc>) -> Result<Self> {
        let argument = call.argument.map(|c| input.field(c).data_type().clone());
        let name = call.argument.map_or("*".to_owned(), |c| input.field(c).name().clone());
        let text = format!("{}({}{name})", format!("{:?}", call.function).to_lowercase(), if call.distinct { "distinct " } else { "" });
        let refuse = || {
            Error::unsupported(format!("{text} over {} is not supported", argument.as_ref().map_or("rows".to_owned(), |t| t.to_string())))
        };
        call.state_fields(0, argument.as_ref()).ok_or_else(refuse)?;
        let max = call.function == AggFunction::Max;
        let kind = match (call.function, &argument) {
            (AggFunction::Count, None) if call.filter.is_none() && !call.distinct => Kind::Rows,
            (AggFunction::Count, _) => Kind::Count,
            (AggFunction::Sum | AggFunction::Avg, Some(t)) if t.is_integer() => Kind::Integer,
            (AggFunction::Sum | AggFunction::Avg, Some(DataType::Decimal128(_, scale))) => Kind::Decimal(*scale),
            (AggFunction::Sum | AggFunction::Avg, Some(DataType::Float32 | DataType::Float64)) => Kind::Float,
            (AggFunction::BoolAnd | AggFunction::BoolOr, Some(DataType::Boolean)) => Kind::Bool,
            (AggFunction::Min | AggFunction::Max, Some(t)) => {
                let codec = ValueCodec::new(t.clone())?;
                if codec.is_fixed() { Kind::Extreme { max, codec } } else { Kind::ExtremeBytes { max, codec, blobs: Vec::new() } }
            }
            (_, _) => return Err(refuse()),
        };
        let sets = match (&call.multiset, &argument) {
            (Some(table), Some(t)) => Some(ValueSets::new(tables(*table)?, t.clone(), is_extreme(call.function))?),
            (Some(_), None) => return Err(Error::internal("count(*) cannot be distinct")),
            (None, _) if call.distinct && matches!(call.function, AggFunction::Count | AggFunction::Sum | AggFunction::Avg) => {
                return Err(Error::internal(format!("{text} has no table for its values")));
            }
            (None, _) => None,
        };
        let accumulator = Accumulator { at: *at, kind };
        *at += Accumulator::words(&accumulator.kind);
        Ok(Call {
            function: call.function,
            argument: call.argument,
            filter: call.filter,
            output: call.output.clone(),
            accumulator,
            sets,
            text,
        })
    }

    /// The table of its values, if it keeps them.
    pub fn multiset_table(&self) -> Option<TableId> {
        self.sets.as_ref().map(ValueSets::table)
    }

    /// Which rows of a chunk count; `None`: all.
    fn select(&self, chunk: &Chunk) -> Result<Option<BooleanBuffer>> {
        let mut select: Option<BooleanBuffer> = None;
        if let Some(column) = self.filter {
            let mask = chunk.column(column).as_boolean_opt().ok_or_else(|| Error::internal("the filter of an aggregate is not boolean"))?;
            select = Some(match mask.nulls() {
                Some(nulls) => mask.values() & nulls.inner(),
                None => mask.values().clone(),
            });
        }
        if let Some(nulls) = self.argument.and_then(|c| chunk.column(c).nulls()).filter(|n| n.null_count() > 0) {
            select = Some(match select {
                Some(select) => &select & nulls.inner(),
                None => nulls.inner().clone(),
            });
        }
        Ok(select)
    }

    /// Folds a chunk into the groups' records.
    pub fn update(&mut self, words: &mut [u64], stride: usize, slots: &[u32], chunk: &Chunk) -> Result<()> {
        let select = self.select(chunk)?;
        let input = Input { slots, select: select.as_ref(), weights: chunk.weights() };
        let column = self.argument.map(|c| chunk.column(c));
        match (&self.sets, column) {
            (Some(_), Some(column)) => self.update_sets(words, stride, &input, column, false),
            (_, column) => self.accumulator.update(words, stride, &input, column),
        }
    }

    /// Counts values; for DISTINCT, folds in those whose count became positive and takes out those whose count no longer is.
    fn update_sets(&mut self, words: &mut [u64], stride: usize, input: &Input<'_>, column: &ArrayRef, load: bool) -> Result<()> {
        let Some(sets) = &mut self.sets else { return Ok(()) };
        let values = sets.codec().values(column)?;
        let mut crossed = vec![0; input.slots.len()];
        let mut result = Ok(());
        input.each(|i, slot, weight| match sets.add(slot as u32, values.get(i), weight, load) {
            Ok((old, new)) => crossed[i] = i64::from(new > 0) - i64::from(old > 0),
            Err(e) => result = Err(e),
        });
        result?;
        if is_extreme(self.function) {
            return Ok(());
        }
        let distinct = Input { slots: input.slots, select: input.select, weights: Some(&crossed) };
        self.accumulator.update(words, stride, &distinct, Some(column))
    }

    /// Before a group's record is read: looks up the extreme, and drops what rounding left over.
    pub fn settle(&mut self, slot: u32, record: &mut [u64]) {
        self.accumulator.settle(record);
        if let Some(sets) = &self.sets
            && is_extreme(self.function)
        {
            self.accumulator.set_extreme(record, sets.extreme(slot, self.function == AggFunction::Max));
        }
    }

    /// The call's value for each record; see [`output::values`].
    pub fn values(&self, records: &[u64], stride: usize, rows: usize, overflows: &mut Vec<usize>) -> Result<ArrayRef> {
        output::values(self.function, &self.accumulator, &self.output, (records, stride), rows, overflows)
    }

    /// Whether its words hold nothing.
    pub fn is_zero(&self, record: &[u64]) -> bool {
        self.accumulator.is_zero(record)
    }

    /// Whether it keeps no values of the group.
    pub fn has_no_values(&self, slot: u32) -> bool {
        self.sets.as_ref().is_none_or(|s| s.is_empty(slot))
    }

    /// State columns of records; none for calls with a multiset.
    pub fn state(&self, records: &[u64], stride: usize, rows: &[u64], out: &mut Vec<ArrayRef>) -> Result<()> {
        if self.sets.is_some() { Ok(()) } else { self.accumulator.state(records, stride, rows, out) }
    }

    /// Restores records from the state columns that begin with this call's; returns how many it took.
    pub fn load(&mut self, words: &mut [u64], stride: usize, slots: &[u32], columns: &[ArrayRef]) -> Result<usize> {
        if self.sets.is_some() { Ok(0) } else { self.accumulator.load(words, stride, slots, columns) }
    }

    /// Restores values: `columns` are the value and the weight.
    pub fn load_values(&mut self, words: &mut [u64], stride: usize, slots: &[u32], columns: &[ArrayRef]) -> Result<()> {
        let weights: Int64Array = columns[1].as_primitive::<Int64Type>().clone();
        let input = Input { slots, select: None, weights: Some(weights.values()) };
        self.update_sets(words, stride, &input, &columns[0], true)?;
        if is_extreme(self.function) {
            for slot in slots {
                let at = *slot as usize * stride;
                self.settle(*slot, &mut words[at..at + stride]);
            }
        }
        Ok(())
    }

    /// What changed in its multiset since the last checkpoint.
    pub fn checkpoint(&mut self, keys: &KeyTable) -> Result<Option<TableWrite>> {
        self.sets.as_mut().map_or(Ok(None), |s| s.checkpoint(keys))
    }

    /// See [`Accumulator::compact`].
    pub fn compact(&mut self, words: &mut [u64], stride: usize, live: usize) {
        self.accumulator.compact(words, stride, live);
    }

    /// Bytes of memory held besides the records.
    pub fn memory_bytes(&self) -> usize {
        self.sets.as_ref().map_or(0, ValueSets::memory_bytes)
    }
}
