//! Virtual nodes: the hash buckets that own rows, place state and move on rescaling.
//!
//! `vnode = xxh3_64(memcomparable bytes of the distribution columns) mod 256`. The bytes are those of [`crate::key`]
//! with ascending order and NULLS LAST, after the value was made canonical (-0 = 0, one NaN, numeric without trailing
//! zeros), so equal SQL values land on one vnode on every node and in every version. Rows without a distribution
//! key (singletons) live on vnode 0.

use crate::Result;
use arrow::array::ArrayRef;

/// Number of virtual nodes.
pub const VNODE_COUNT: usize = 256;

/// A virtual node, `0..VNODE_COUNT`.
pub type VNode = u16;

/// The vnode of each row of the given distribution columns (all of one length). No columns: all rows are on vnode 0.
pub fn of_columns(columns: &[ArrayRef], rows: usize) -> Result<Vec<VNode>> {
    let _ = (columns, rows);
    Err(crate::Error::internal("vnode hashing is not written yet"))
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
}
