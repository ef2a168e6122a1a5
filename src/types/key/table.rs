//! Keys of state tables: 2 bytes of vnode, then the memcomparable key; and the byte ranges that readers scan.
//!
//! The vnode is always that of [`crate::vnode::of_columns`] over the distribution columns, whatever order the key has.

use super::encode::{self, hashes_as_key};
use super::{KeyCodec, KeyField, KeyRange, decode, prefix_range};
use crate::vnode::{self, VNODE_COUNT, VNode};
use crate::{Error, Result};
use arrow::array::{Array, ArrayRef, BinaryArray};
use std::ops::{Bound, Range};

/// Bytes of the vnode before the key.
const VNODE_BYTES: usize = 2;

/// The key of a state table: 2 bytes of vnode (big endian), then the memcomparable key.
/// The vnode is computed from the first `distribution` key columns (0: a singleton on vnode 0).
#[derive(Clone, Debug)]
pub struct TableKeyCodec {
    codec: KeyCodec,
    distribution: usize,
    /// The key bytes of the distribution columns are what is hashed, so they are written once for both.
    hashes_key: bool,
}

impl TableKeyCodec {
    /// A codec for a table whose first `distribution` key columns decide the vnode.
    pub fn new(fields: Vec<KeyField>, distribution: usize) -> Result<Self> {
        assert!(distribution <= fields.len(), "the distribution key is a prefix of the key");
        let hashes_key = fields[..distribution].iter().all(|f| f.order() == encode::Order::ASCENDING && hashes_as_key(&f.data_type));
        Ok(TableKeyCodec { codec: KeyCodec::new(fields)?, distribution, hashes_key })
    }

    /// The codec of the part after the vnode.
    pub fn codec(&self) -> &KeyCodec {
        &self.codec
    }

    /// How many leading key columns decide the vnode.
    pub fn distribution(&self) -> usize {
        self.distribution
    }

    /// Table keys. `columns` are all key columns (or the first of them, at least the distribution columns: then the bytes are
    /// prefixes of the table keys), each of length `rows`.
    pub fn encode(&self, columns: &[ArrayRef], rows: usize) -> Result<BinaryArray> {
        if columns.len() < self.distribution {
            return Err(Error::internal("a table key needs all its distribution columns"));
        }
        self.codec.check(columns, rows)?;
        let orders = self.codec.orders();
        if self.distribution > 0 && self.hashes_key {
            return encode::encode_hashed(columns, &orders, rows, self.distribution);
        }
        encode::encode_placed(columns, &orders, &self.vnodes(columns, rows)?)
    }

    /// The vnode of each row; `columns` are key columns, at least the distribution columns.
    pub fn vnodes(&self, columns: &[ArrayRef], rows: usize) -> Result<Vec<VNode>> {
        vnode::of_columns(&columns[..self.distribution], rows)
    }

    /// Prefixes of table keys on one given vnode, whatever the columns hash to. `columns` are the first key columns, possibly none.
    pub fn encode_prefix(&self, columns: &[ArrayRef], rows: usize, vnode: VNode) -> Result<BinaryArray> {
        self.codec.check(columns, rows)?;
        encode::encode_placed(columns, &self.codec.orders(), &vec![vnode; rows])
    }

    /// The ranges of table keys whose first key columns equal the given values (`columns`: one row each, possibly none):
    /// one range if they cover the distribution columns, else one for every vnode.
    pub fn prefix_ranges(&self, columns: &[ArrayRef]) -> Result<Vec<KeyRange>> {
        if columns.len() >= self.distribution {
            return Ok(vec![prefix_range(self.encode(columns, 1)?.value(0).to_vec())]);
        }
        let prefix = self.codec.encode(columns, 1)?;
        Ok((0..VNODE_COUNT as VNode)
            .map(|vnode| {
                let mut bytes = vnode.to_be_bytes().to_vec();
                bytes.extend_from_slice(prefix.value(0));
                prefix_range(bytes)
            })
            .collect())
    }

    /// The range of all table keys of the vnodes.
    pub fn vnode_range(vnodes: Range<VNode>) -> KeyRange {
        (Bound::Included(vnodes.start.to_be_bytes().to_vec()), Bound::Excluded(vnodes.end.to_be_bytes().to_vec()))
    }

    /// The vnode of a table key; `None` for bytes that are no table key.
    pub fn vnode_of_key(key: &[u8]) -> Option<VNode> {
        let bytes: [u8; VNODE_BYTES] = key.get(..VNODE_BYTES)?.try_into().ok()?;
        Some(VNode::from_be_bytes(bytes)).filter(|v| (*v as usize) < VNODE_COUNT)
    }

    /// The key columns back from whole table keys. Malformed bytes are an error of kind `Corruption`.
    pub fn decode(&self, keys: &BinaryArray) -> Result<Vec<ArrayRef>> {
        for row in 0..keys.len() {
            if Self::vnode_of_key(keys.value(row)).is_none() {
                return Err(Error::corruption("a table key does not start with a vnode"));
            }
        }
        decode::decode(&self.codec.fields, keys, VNODE_BYTES)
    }
}
