//! Virtual nodes: the hash buckets that own rows, place state and move on rescaling.
//!
//! `vnode = xxh3_64(memcomparable bytes of the distribution columns) mod 256`. The bytes are those of [`crate::key`]
//! with ascending order and NULLS LAST, after the value was made canonical (-0 = 0, one NaN, numeric without trailing
//! zeros), so equal SQL values land on one vnode on every node and in every version. Rows without a distribution
//! key (singletons) live on vnode 0.

use crate::{Error, Result, key};
use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use xxhash_rust::xxh3::xxh3_64;

/// Number of virtual nodes.
pub const VNODE_COUNT: usize = 256;

/// A virtual node, `0..VNODE_COUNT`.
pub type VNode = u16;

/// The vnode of each row of the given distribution columns (all of one length). No columns: all rows are on vnode 0.
pub fn of_columns(columns: &[ArrayRef], rows: usize) -> Result<Vec<VNode>> {
    if columns.iter().any(|c| c.len() != rows) {
        return Err(Error::internal("distribution columns differ in length"));
    }
    match columns {
        [] => Ok(vec![0; rows]),
        [column] if column.null_count() == 0 => match column.data_type() {
            DataType::Int64 => Ok(column.as_primitive::<Int64Type>().values().iter().map(|v| of_int64(*v)).collect()),
            DataType::Int32 => Ok(column.as_primitive::<Int32Type>().values().iter().map(|v| of_int32(*v)).collect()),
            DataType::Utf8 => Ok(of_strings(column.as_string::<i32>())),
            _ => of_bytes(columns, rows),
        },
        _ => of_bytes(columns, rows),
    }
}

/// The bucket of a hash.
pub(crate) fn of_hash(hash: u64) -> VNode {
    (hash % VNODE_COUNT as u64) as VNode
}

/// The general way: canonical bytes of all columns, then a hash of each row's.
fn of_bytes(columns: &[ArrayRef], rows: usize) -> Result<Vec<VNode>> {
    let keys = key::hash_bytes(columns, rows)?;
    Ok((0..rows).map(|row| of_hash(xxh3_64(keys.value(row)))).collect())
}

fn of_int64(value: i64) -> VNode {
    let mut bytes = [key::VALUE; 9];
    bytes[1..].copy_from_slice(&((value ^ i64::MIN) as u64).to_be_bytes());
    of_hash(xxh3_64(&bytes))
}

fn of_int32(value: i32) -> VNode {
    let mut bytes = [key::VALUE; 5];
    bytes[1..].copy_from_slice(&((value ^ i32::MIN) as u32).to_be_bytes());
    of_hash(xxh3_64(&bytes))
}

fn of_strings(column: &StringArray) -> Vec<VNode> {
    let mut scratch = Vec::with_capacity(64);
    (0..column.len())
        .map(|row| {
            scratch.clear();
            scratch.push(key::VALUE);
            for piece in column.value(row).as_bytes().split_inclusive(|b| *b == 0) {
                scratch.extend_from_slice(piece);
                if piece.last() == Some(&0) {
                    scratch.push(key::ESCAPE);
                }
            }
            scratch.extend_from_slice(&key::BYTES_END);
            of_hash(xxh3_64(&scratch))
        })
        .collect()
}

/// The contiguous range of vnodes that shard `index` of `count` owns.
pub fn range_of_shard(index: u32, count: u32) -> std::ops::Range<VNode> {
    assert!(count > 0 && index < count, "shard {index} of {count}");
    let bound = |i: u32| (i as usize * VNODE_COUNT / count as usize) as VNode;
    bound(index)..bound(index + 1)
}

/// The shard, of `count`, that owns a vnode. The inverse of [`range_of_shard`].
pub fn shard_of(vnode: VNode, count: u32) -> u32 {
    ((vnode as usize + 1) * count as usize).div_ceil(VNODE_COUNT) as u32 - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Decimal128Array, Int32Array, Int64Array};
    use std::sync::Arc;

    const GOLDEN_INT64: [VNode; 5] = [89, 62, 252, 10, 140];
    const GOLDEN_INT32: [VNode; 5] = [244, 75, 226, 253, 127];
    const GOLDEN_TEXT: [VNode; 5] = [4, 215, 197, 112, 223];
    const GOLDEN_PAIR: [VNode; 2] = [111, 186];

    #[test]
    fn shards_partition_the_vnodes() {
        for count in 1..=256 {
            let mut next = 0;
            for index in 0..count {
                let range = range_of_shard(index, count);
                assert_eq!(range.start, next);
                for vnode in range.clone() {
                    assert_eq!(shard_of(vnode, count), index, "vnode {vnode} of {count} shards");
                }
                next = range.end;
            }
            assert_eq!(next as usize, VNODE_COUNT);
        }
    }

    /// Values that must never change: they decide where rows are on disk. Computed with another implementation of xxh3.
    #[test]
    fn golden_vnodes() {
        let ints: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, -1, 42, i64::MAX]));
        assert_eq!(of_columns(&[ints], 5).unwrap(), GOLDEN_INT64);
        let ints: ArrayRef = Arc::new(Int32Array::from(vec![0, 1, -1, 42, i32::MAX]));
        assert_eq!(of_columns(&[ints], 5).unwrap(), GOLDEN_INT32);
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["", "a", "JFK", "a\0b", "a longer text than one block"]));
        assert_eq!(of_columns(&[texts], 5).unwrap(), GOLDEN_TEXT);
        let nulls: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(1)]));
        let decimals: ArrayRef = Arc::new(Decimal128Array::from(vec![100, 5]).with_precision_and_scale(10, 2).unwrap());
        assert_eq!(of_columns(&[nulls, decimals], 2).unwrap(), GOLDEN_PAIR);
        assert_eq!(of_columns(&[], 3).unwrap(), [0, 0, 0]);
    }

    #[test]
    fn fast_paths_agree_with_the_general_way() {
        let ints: ArrayRef = Arc::new(Int64Array::from_iter_values((0..5000).map(|i| i * 7919 - 9000)));
        let narrow: ArrayRef = Arc::new(Int32Array::from_iter_values((0..5000).map(|i| i * 79 - 9000)));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..5000).map(|i| format!("{}\0{i}", "x".repeat(i % 40)))));
        for column in [ints, narrow, texts] {
            let columns = [column];
            let vnodes = of_columns(&columns, 5000).unwrap();
            assert_eq!(vnodes, of_bytes(&columns, 5000).unwrap());
            let mut counts = [0; VNODE_COUNT];
            vnodes.iter().for_each(|v| counts[*v as usize] += 1);
            assert!(counts.iter().all(|c| (1..60).contains(c)), "uneven: {counts:?}");
        }
    }
}
