//! From records to the values that SQL shows.

use super::accumulator::{Accumulator, Kind, Sum};
use arrow::array::{ArrayRef, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int32Array, Int64Array, UInt64Array};
use arrow::datatypes::{DataType, i256};
use eddyline_protocol::plan::AggFunction;
use eddyline_types::{Error, Result};
use std::sync::Arc;

/// The value of a call for each record (`stride` words each). `rows` is the word with the group's row count.
/// Positions whose value is out of range are pushed to `overflows`; they get NULL.
pub fn values(
    function: AggFunction,
    accumulator: &Accumulator,
    output: &DataType,
    records: (&[u64], usize),
    rows: usize,
    overflows: &mut Vec<usize>,
) -> Result<ArrayRef> {
    let (words, stride) = records;
    let each = || words.chunks_exact(stride);
    let at = accumulator.at;
    match (function, &accumulator.kind) {
        (AggFunction::Count, Kind::Rows) => Ok(Arc::new(Int64Array::from_iter_values(each().map(|r| r[rows] as i64)))),
        (AggFunction::Count, _) => Ok(Arc::new(Int64Array::from_iter_values(each().map(|r| r[at] as i64)))),
        (AggFunction::Min | AggFunction::Max, _) => accumulator.extremes(words, stride),
        (AggFunction::BoolAnd, _) => Ok(bools(each().map(|r| (r[at] as i64, r[at + 1] as i64)), false)),
        (AggFunction::BoolOr, _) => Ok(bools(each().map(|r| (r[at] as i64, r[at + 1] as i64)), true)),
        (AggFunction::Sum, Kind::Integer) if *output == DataType::Int64 => {
            let mut position = 0;
            let values = each().map(|r| {
                let sum = i64::try_from(accumulator.integer_sum(r));
                let any = accumulator.sum_count(r) > 0;
                if any && sum.is_err() {
                    overflows.push(position);
                }
                position += 1;
                sum.ok().filter(|_| any)
            });
            Ok(Arc::new(values.collect::<Int64Array>()))
        }
        (AggFunction::Sum | AggFunction::Avg, _) => numbers(function, accumulator, output, each(), overflows),
    }
}

/// (number of true, number of false) to bool_and, or to bool_or.
fn bools(counts: impl Iterator<Item = (i64, i64)>, or: bool) -> ArrayRef {
    let value = |(t, f): (i64, i64)| match (t > 0, f > 0) {
        (false, false) => None,
        (true, true) => Some(or),
        (t, _) => Some(t),
    };
    Arc::new(counts.map(value).collect::<BooleanArray>())
}

fn numbers<'a>(
    function: AggFunction,
    accumulator: &Accumulator,
    output: &DataType,
    records: impl Iterator<Item = &'a [u64]>,
    overflows: &mut Vec<usize>,
) -> Result<ArrayRef> {
    let average = function == AggFunction::Avg;
    // Per record: nothing, an exact number with the output's scale, or a float.
    let mut floats: Vec<Option<f64>> = Vec::new();
    let mut exact: Vec<Option<i256>> = Vec::new();
    let scale = match output {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    };
    let float_output = matches!(output, DataType::Float64 | DataType::Float32);
    for (position, record) in records.enumerate() {
        let count = accumulator.sum_count(record);
        if count <= 0 {
            floats.push(None);
            exact.push(None);
            continue;
        }
        match accumulator.sum(record) {
            Sum::Float(sum) => floats.push(Some(if average { sum / count as f64 } else { sum })),
            Sum::Exact(sum, from) if float_output => {
                let sum = to_float(sum) / 10f64.powi(i32::from(from));
                floats.push(Some(if average { sum / count as f64 } else { sum }));
            }
            Sum::Exact(sum, from) => {
                let value = rescale(sum, i32::from(scale) - i32::from(from), if average { count } else { 1 });
                let value = value.filter(|v| fits(*v, output));
                if value.is_none() {
                    overflows.push(position);
                }
                exact.push(value);
            }
        }
    }
    let narrow = |v: &Option<i256>| v.and_then(|v| v.to_i128());
    Ok(match output {
        DataType::Float64 => Arc::new(Float64Array::from(floats)),
        DataType::Float32 => Arc::new(floats.into_iter().map(|v| v.map(|v| v as f32)).collect::<Float32Array>()),
        DataType::Int64 => Arc::new(exact.iter().map(|v| narrow(v).map(|v| v as i64)).collect::<Int64Array>()),
        DataType::Int32 => Arc::new(exact.iter().map(|v| narrow(v).map(|v| v as i32)).collect::<Int32Array>()),
        DataType::UInt64 => Arc::new(exact.iter().map(|v| narrow(v).map(|v| v as u64)).collect::<UInt64Array>()),
        DataType::Decimal128(_, _) => Arc::new(exact.iter().map(narrow).collect::<Decimal128Array>().with_data_type(output.clone())),
        other => return Err(Error::internal(format!("{function:?} does not give {other}"))),
    })
}

fn to_float(value: i256) -> f64 {
    match value.to_i128() {
        Some(v) => v as f64,
        None => {
            let (low, high) = value.to_parts();
            high as f64 * 2f64.powi(128) + low as f64
        }
    }
}

/// `value * 10^shift / divisor`, towards zero as the batch engine does; `None` beyond 256 bits.
fn rescale(value: i256, shift: i32, divisor: i64) -> Option<i256> {
    let power = i256::from_i128(10).checked_pow(shift.unsigned_abs())?;
    let value = if shift >= 0 { value.checked_mul(power)? } else { value.checked_div(power)? };
    value.checked_div(i256::from_i128(i128::from(divisor)))
}

fn fits(value: i256, output: &DataType) -> bool {
    let Some(value) = value.to_i128() else { return false };
    match output {
        DataType::Int32 => i32::try_from(value).is_ok(),
        DataType::Int64 => i64::try_from(value).is_ok(),
        DataType::UInt64 => u64::try_from(value).is_ok(),
        DataType::Decimal128(precision, _) => value.unsigned_abs() < 10u128.pow(u32::from(*precision)),
        _ => true,
    }
}
