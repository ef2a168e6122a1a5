//! Accumulators: what one aggregate call keeps per group, as words of the group's record, with typed loops over whole chunks.
//!
//! All of them are sums over weights, so order within an epoch does not matter; append-only min and max are the exception.
//! Integer sums are exact in 128 bits, decimal sums in 256 (they wrap as a whole, and are checked when the value is given).
//! Float sums are compensated (Neumaier 1974) and count NaN and infinities apart, so a retraction takes back exactly what was added.

use super::value::{Value, ValueCodec, Values};
use crate::operators::state::keys::widen;
use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Decimal256Array, Float64Array, Int64Array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int64Type, i256};
use eddyline_types::{Error, Result};
use std::sync::Arc;

/// What the words of an accumulator are.
pub enum Kind {
    /// No words: the group's row count.
    Rows,
    /// Count.
    Count,
    /// 128-bit sum in two words, count.
    Integer,
    /// 256-bit sum in four words, count; scale of the argument.
    Decimal(i8),
    /// Sum, compensation, counts of NaN, +inf, -inf, and of all.
    Float,
    /// Counts of true and of false.
    Bool,
    /// 128-bit value in two words, whether there is one.
    Extreme { max: bool, codec: ValueCodec },
    /// Position of the value's bytes plus 1.
    ExtremeBytes { max: bool, codec: ValueCodec, blobs: Vec<Box<[u8]>> },
}

/// One call's accumulator: `kind` in the words from `at` on.
pub struct Accumulator {
    /// What the words are.
    pub kind: Kind,
    /// First word in the record.
    pub at: usize,
}

/// The rows of a chunk that count for a call.
pub struct Input<'a> {
    /// The group of each row.
    pub slots: &'a [u32],
    /// Rows that count (filter and not NULL); `None`: all.
    pub select: Option<&'a BooleanBuffer>,
    /// Weights; `None`: all 1.
    pub weights: Option<&'a [i64]>,
}

impl Input<'_> {
    /// Calls `f(row, group, weight)` for every row that counts.
    #[inline(always)]
    pub fn each(&self, mut f: impl FnMut(usize, usize, i64)) {
        match (self.select, self.weights) {
            (None, None) => self.slots.iter().enumerate().for_each(|(i, s)| f(i, *s as usize, 1)),
            (None, Some(w)) => self.slots.iter().zip(w).enumerate().for_each(|(i, (s, w))| f(i, *s as usize, *w)),
            (Some(select), None) => select.set_indices().for_each(|i| f(i, self.slots[i] as usize, 1)),
            (Some(select), Some(w)) => select.set_indices().for_each(|i| f(i, self.slots[i] as usize, w[i])),
        }
    }
}

/// Adds with compensation.
fn add_float(words: &mut [u64], x: f64) {
    let sum = f64::from_bits(words[0]);
    let t = sum + x;
    let lost = if sum.abs() >= x.abs() { (sum - t) + x } else { (x - t) + sum };
    words[0] = t.to_bits();
    words[1] = (f64::from_bits(words[1]) + lost).to_bits();
}

fn add(word: &mut u64, weight: i64) {
    *word = word.wrapping_add(weight as u64);
}

fn read128(words: &[u64]) -> i128 {
    (u128::from(words[1]) << 64 | u128::from(words[0])) as i128
}

fn write128(words: &mut [u64], value: i128) {
    words[0] = value as u64;
    words[1] = (value >> 64) as u64;
}

fn read256(words: &[u64]) -> i256 {
    i256::from_parts(read128(&words[0..2]) as u128, read128(&words[2..4]))
}

fn write256(words: &mut [u64], value: i256) {
    let (low, high) = value.to_parts();
    write128(&mut words[0..2], low as i128);
    write128(&mut words[2..4], high);
}

/// An integer column widened to 64 bits, with whether it is unsigned 64.
fn integers(column: &ArrayRef) -> Result<Vec<u64>> {
    let mut values = Vec::new();
    match column.data_type() {
        DataType::Int64 | DataType::Int32 | DataType::Int16 | DataType::UInt64 => widen(column, &mut values)?,
        _ => {
            let wide = arrow::compute::cast(column, &DataType::Int64)?;
            values.extend(wide.as_primitive::<Int64Type>().values().iter().map(|v| *v as u64));
        }
    }
    Ok(values)
}

impl Accumulator {
    /// How many words the kind needs.
    pub fn words(kind: &Kind) -> usize {
        match kind {
            Kind::Rows => 0,
            Kind::Count | Kind::ExtremeBytes { .. } => 1,
            Kind::Bool => 2,
            Kind::Integer | Kind::Extreme { .. } => 3,
            Kind::Decimal(_) => 5,
            Kind::Float => 6,
        }
    }

    /// Folds a chunk's column into the groups' records.
    pub fn update(&mut self, words: &mut [u64], stride: usize, input: &Input<'_>, column: Option<&ArrayRef>) -> Result<()> {
        let at = self.at;
        let need = || column.ok_or_else(|| Error::internal("the aggregate has no argument"));
        match &mut self.kind {
            Kind::Rows => {}
            Kind::Count => input.each(|_, slot, w| add(&mut words[slot * stride + at], w)),
            Kind::Integer => {
                let column = need()?;
                let values = integers(column)?;
                let unsigned = *column.data_type() == DataType::UInt64;
                input.each(|i, slot, w| {
                    let record = &mut words[slot * stride + at..slot * stride + at + 3];
                    let value = if unsigned { i128::from(values[i]) } else { i128::from(values[i] as i64) };
                    write128(record, read128(record).wrapping_add(value.wrapping_mul(i128::from(w))));
                    add(&mut record[2], w);
                });
            }
            Kind::Decimal(_) => {
                let values = need()?.as_primitive::<Decimal128Type>().values().clone();
                input.each(|i, slot, w| {
                    let record = &mut words[slot * stride + at..slot * stride + at + 5];
                    let delta = i256::from_i128(values[i]).wrapping_mul(i256::from_i128(i128::from(w)));
                    write256(record, read256(record).wrapping_add(delta));
                    add(&mut record[4], w);
                });
            }
            Kind::Float => {
                let column = need()?;
                let wide: Float64Array = match column.data_type() {
                    DataType::Float32 => column.as_primitive::<Float32Type>().unary(f64::from),
                    _ => column.as_primitive::<Float64Type>().clone(),
                };
                let values = wide.values();
                input.each(|i, slot, w| {
                    let record = &mut words[slot * stride + at..slot * stride + at + 6];
                    let v = values[i];
                    match v {
                        v if v.is_nan() => add(&mut record[2], w),
                        f64::INFINITY => add(&mut record[3], w),
                        f64::NEG_INFINITY => add(&mut record[4], w),
                        v => add_float(record, v * w as f64),
                    }
                    add(&mut record[5], w);
                });
            }
            Kind::Bool => {
                let values = need()?.as_boolean().values().clone();
                input.each(|i, slot, w| add(&mut words[slot * stride + at + usize::from(!values.value(i))], w));
            }
            Kind::Extreme { max, codec } => {
                let Values::Fixed(values) = codec.values(need()?)? else { return Err(Error::internal("not a fixed type")) };
                let max = *max;
                input.each(|i, slot, _| {
                    let record = &mut words[slot * stride + at..slot * stride + at + 3];
                    let (old, new) = (read128(record), values[i]);
                    if record[2] == 0 || (if max { new > old } else { new < old }) {
                        write128(record, new);
                        record[2] = 1;
                    }
                });
            }
            Kind::ExtremeBytes { max, codec, blobs } => {
                let Values::Bytes(values) = codec.values(need()?)? else { return Err(Error::internal("not a type of bytes")) };
                input.each(|i, slot, _| {
                    let word = &mut words[slot * stride + at];
                    let row = values.row(i);
                    let new: &[u8] = row.as_ref();
                    let better = match word.checked_sub(1) {
                        None => true,
                        Some(old) if *max => new > blobs[old as usize].as_ref(),
                        Some(old) => new < blobs[old as usize].as_ref(),
                    };
                    if better {
                        blobs.push(new.into());
                        *word = blobs.len() as u64;
                    }
                });
            }
        }
        Ok(())
    }

    /// Sets the extreme of a group (for calls that keep a multiset).
    pub fn set_extreme(&mut self, record: &mut [u64], value: Option<&Value>) {
        let at = self.at;
        match (&mut self.kind, value) {
            (Kind::Extreme { .. }, Some(Value::Fixed(value))) => {
                write128(&mut record[at..at + 2], *value);
                record[at + 2] = 1;
            }
            (Kind::Extreme { .. }, _) => record[at..at + 3].fill(0),
            (Kind::ExtremeBytes { blobs, .. }, Some(Value::Bytes(value))) => {
                let same = record[at].checked_sub(1).is_some_and(|old| blobs[old as usize] == *value);
                if !same {
                    blobs.push(value.clone());
                    record[at] = blobs.len() as u64;
                }
            }
            (Kind::ExtremeBytes { .. }, _) => record[at] = 0,
            (_, _) => {}
        }
    }

    /// Drops bytes that no record refers to, when most are such. Only between epochs: captured records refer to them too.
    pub fn compact(&mut self, words: &mut [u64], stride: usize, live: usize) {
        let at = self.at;
        if let Kind::ExtremeBytes { blobs, .. } = &mut self.kind {
            if blobs.len() < 4096 || blobs.len() < live * 2 {
                return;
            }
            let mut kept = Vec::with_capacity(live);
            for record in words.chunks_exact_mut(stride).filter(|r| r[at] != 0) {
                kept.push(std::mem::take(&mut blobs[record[at] as usize - 1]));
                record[at] = kept.len() as u64;
            }
            *blobs = kept;
        }
    }

    /// Whether nothing is in it: the group's record may go.
    pub fn is_zero(&self, record: &[u64]) -> bool {
        match self.kind {
            Kind::Rows | Kind::Extreme { .. } | Kind::ExtremeBytes { .. } => true,
            Kind::Count => record[self.at] == 0,
            Kind::Bool => record[self.at] == 0 && record[self.at + 1] == 0,
            Kind::Integer => record[self.at..self.at + 3].iter().all(|w| *w == 0),
            Kind::Decimal(_) => record[self.at..self.at + 5].iter().all(|w| *w == 0),
            Kind::Float => record[self.at + 2..self.at + 6].iter().all(|w| *w == 0),
        }
    }

    /// Without values a float sum is exactly 0: what rounding left over goes. Only at a barrier, when deltas are complete.
    pub fn settle(&self, record: &mut [u64]) {
        if matches!(self.kind, Kind::Float) && record[self.at + 5] == 0 {
            record[self.at..self.at + 2].fill(0);
        }
    }

    /// The state columns of records (`stride` words each).
    pub fn state(&self, records: &[u64], stride: usize, rows: &[u64], out: &mut Vec<ArrayRef>) -> Result<()> {
        let word = |k: usize| records.chunks_exact(stride).map(move |r| r[self.at + k]);
        let int = |k: usize| -> ArrayRef { Arc::new(Int64Array::from_iter_values(word(k).map(|w| w as i64))) };
        let float = |k: usize| -> ArrayRef { Arc::new(Float64Array::from_iter_values(word(k).map(f64::from_bits))) };
        match &self.kind {
            Kind::Rows => out.push(Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| *r as i64)))),
            Kind::Count => out.push(int(0)),
            Kind::Bool => out.extend([int(0), int(1)]),
            Kind::Integer => {
                let sums = Decimal128Array::from_iter_values(records.chunks_exact(stride).map(|r| read128(&r[self.at..])));
                out.extend([Arc::new(sums.with_data_type(DataType::Decimal128(38, 0))) as ArrayRef, int(2)]);
            }
            Kind::Decimal(scale) => {
                let sums = Decimal256Array::from_iter_values(records.chunks_exact(stride).map(|r| read256(&r[self.at..])));
                out.extend([Arc::new(sums.with_data_type(DataType::Decimal256(76, *scale))) as ArrayRef, int(4)]);
            }
            Kind::Float => out.extend([float(0), float(1), int(2), int(3), int(4), int(5)]),
            Kind::Extreme { .. } | Kind::ExtremeBytes { .. } => out.push(self.extremes(records, stride)?),
        }
        Ok(())
    }

    /// The extreme of each record.
    pub fn extremes(&self, records: &[u64], stride: usize) -> Result<ArrayRef> {
        let rows = || records.chunks_exact(stride);
        match &self.kind {
            Kind::Extreme { codec, .. } => {
                let values = rows().map(|r| read128(&r[self.at..])).collect();
                let nulls: NullBuffer = rows().map(|r| r[self.at + 2] != 0).collect();
                codec.fixed_column(values, Some(nulls).filter(|n| n.null_count() > 0))
            }
            Kind::ExtremeBytes { codec, blobs, .. } => {
                codec.bytes_column(rows().map(|r| r[self.at].checked_sub(1).map(|i| blobs[i as usize].as_ref())))
            }
            _ => Err(Error::internal("not a min or max")),
        }
    }

    /// Restores records from state columns (in the order of [`Accumulator::state`]); returns how many columns it took.
    pub fn load(&mut self, words: &mut [u64], stride: usize, slots: &[u32], columns: &[ArrayRef]) -> Result<usize> {
        let at = self.at;
        let mut set = |k: usize, f: &dyn Fn(usize) -> u64| {
            for (i, slot) in slots.iter().enumerate() {
                words[*slot as usize * stride + at + k] = f(i);
            }
        };
        let int = |k: usize| columns[k].as_primitive::<Int64Type>();
        match &self.kind {
            Kind::Rows => return Ok(1),
            Kind::Count => set(0, &|i| int(0).value(i) as u64),
            Kind::Bool => (0..2).for_each(|k| set(k, &|i| int(k).value(i) as u64)),
            Kind::Integer => {
                let sums = columns[0].as_primitive::<Decimal128Type>();
                set(0, &|i| sums.value(i) as u64);
                set(1, &|i| (sums.value(i) >> 64) as u64);
                set(2, &|i| int(1).value(i) as u64);
                return Ok(2);
            }
            Kind::Decimal(_) => {
                let sums = columns[0].as_primitive::<Decimal256Type>();
                for k in 0..4 {
                    set(k, &|i| {
                        let (low, high) = sums.value(i).to_parts();
                        [low as u64, (low >> 64) as u64, high as u64, (high >> 64) as u64][k]
                    });
                }
                set(4, &|i| int(1).value(i) as u64);
                return Ok(2);
            }
            Kind::Float => {
                (0..2).for_each(|k| set(k, &|i| columns[k].as_primitive::<Float64Type>().value(i).to_bits()));
                (2..6).for_each(|k| set(k, &|i| int(k).value(i) as u64));
                return Ok(6);
            }
            Kind::Extreme { .. } | Kind::ExtremeBytes { .. } => {
                let valid = columns[0].nulls().map(|n| n.inner().clone());
                let input = Input { slots, select: valid.as_ref(), weights: None };
                self.update(words, stride, &input, Some(&columns[0]))?;
                return Ok(1);
            }
        }
        Ok(match self.kind {
            Kind::Bool => 2,
            _ => 1,
        })
    }
}

/// Sum of a record, its scale, and how many values are in it.
pub enum Sum {
    /// Exact sum.
    Exact(i256, i8),
    /// Float sum.
    Float(f64),
}

impl Accumulator {
    /// The number of values in a sum.
    pub fn sum_count(&self, record: &[u64]) -> i64 {
        match self.kind {
            Kind::Integer => record[self.at + 2] as i64,
            Kind::Decimal(_) => record[self.at + 4] as i64,
            Kind::Float => record[self.at + 5] as i64,
            _ => 0,
        }
    }

    /// The sum of a record.
    pub fn sum(&self, record: &[u64]) -> Sum {
        let words = &record[self.at..];
        match self.kind {
            Kind::Integer => Sum::Exact(i256::from_i128(read128(words)), 0),
            Kind::Decimal(scale) => Sum::Exact(read256(words), scale),
            _ => {
                let (nan, inf, neg) = (words[2] as i64, words[3] as i64, words[4] as i64);
                Sum::Float(match (nan > 0 || inf > 0 && neg > 0, inf > 0, neg > 0) {
                    (true, _, _) => f64::NAN,
                    (false, true, _) => f64::INFINITY,
                    (false, false, true) => f64::NEG_INFINITY,
                    (false, false, false) => f64::from_bits(words[0]) + f64::from_bits(words[1]),
                })
            }
        }
    }

    /// The 128-bit sum of an integer record.
    #[inline]
    pub fn integer_sum(&self, record: &[u64]) -> i128 {
        read128(&record[self.at..])
    }
}
