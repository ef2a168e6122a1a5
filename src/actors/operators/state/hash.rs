//! Hashes of whole columns, for in-memory tables only: not stable between versions, never on disk.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use arrow_row::{RowConverter, SortField};
use eddyline_types::Result;

/// An odd multiplier with well mixed bits.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// Stands for NULL.
const NULL_HASH: u64 = 0x5851_f42d_4c95_7f2d;

/// Mixes one 64-bit value into a hash: a folded 128-bit product, so all bits of the input reach all bits of the result.
#[inline(always)]
pub fn mix(state: u64, value: u64) -> u64 {
    let product = u128::from(state ^ value ^ 0x2545_f491_4f6c_dd1d) * u128::from(MULTIPLIER);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Hash of bytes.
#[inline]
pub fn bytes(state: u64, value: &[u8]) -> u64 {
    mix(state, xxhash_rust::xxh3::xxh3_64(value))
}

/// Hashes rows: `out` gets one hash per row. Values that are equal bit by bit have equal hashes.
pub fn rows(columns: &[ArrayRef], count: usize, out: &mut Vec<u64>) -> Result<()> {
    out.clear();
    out.resize(count, 0x1234_5678_9abc_def1);
    for column in columns {
        combine(column, out)?;
    }
    Ok(())
}

macro_rules! fixed {
    ($data:expr, $nulls:expr, $out:expr, $width:ty, $fold:expr) => {{
        let data = $data;
        let values = &data.buffers()[0].typed_data::<$width>()[data.offset()..data.offset() + data.len()];
        let fold = $fold;
        match $nulls {
            None => $out.iter_mut().zip(values).for_each(|(h, v)| *h = mix(*h, fold(*v))),
            Some(nulls) => {
                for (i, (h, v)) in $out.iter_mut().zip(values).enumerate() {
                    *h = mix(*h, if nulls.is_valid(i) { fold(*v) } else { NULL_HASH });
                }
            }
        }
    }};
}

fn combine(column: &ArrayRef, out: &mut [u64]) -> Result<()> {
    let nulls = column.nulls();
    match column.data_type() {
        DataType::Boolean => {
            let values = column.as_boolean();
            for (i, h) in out.iter_mut().enumerate() {
                *h = mix(*h, if values.is_null(i) { NULL_HASH } else { u64::from(values.value(i)) });
            }
        }
        DataType::Utf8 => variable(out, column, |i| column.as_string::<i32>().value(i).as_bytes()),
        DataType::LargeUtf8 => variable(out, column, |i| column.as_string::<i64>().value(i).as_bytes()),
        DataType::Binary => variable(out, column, |i| column.as_binary::<i32>().value(i)),
        DataType::LargeBinary => variable(out, column, |i| column.as_binary::<i64>().value(i)),
        other => match other.primitive_width() {
            Some(1) => fixed!(column.to_data(), nulls, out, u8, u64::from),
            Some(2) => fixed!(column.to_data(), nulls, out, u16, u64::from),
            Some(4) => fixed!(column.to_data(), nulls, out, u32, u64::from),
            Some(8) => fixed!(column.to_data(), nulls, out, u64, |v| v),
            Some(16) => fixed!(column.to_data(), nulls, out, i128, |v: i128| (v as u64) ^ mix(0, (v >> 64) as u64)),
            _ => {
                let converter = RowConverter::new(vec![SortField::new(other.clone())])?;
                let rows = converter.convert_columns(std::slice::from_ref(column))?;
                for (h, row) in out.iter_mut().zip(rows.iter()) {
                    *h = bytes(*h, row.as_ref());
                }
            }
        },
    }
    Ok(())
}

fn variable<'a>(out: &mut [u64], column: &ArrayRef, value: impl Fn(usize) -> &'a [u8]) {
    for (i, h) in out.iter_mut().enumerate() {
        *h = if column.is_null(i) { mix(*h, NULL_HASH) } else { bytes(*h, value(i)) };
    }
}
