//! Memcomparable keys: bytes whose order is the SQL order of the key columns. docs/FORMAT.md gives them byte by byte.
//!
//! This is the only hand-made encoding of row data. It is on disk: a change needs a new format version.

use crate::Result;
use arrow::array::{ArrayRef, BinaryArray};
use arrow::datatypes::DataType;
use serde::{Deserialize, Serialize};

/// Type and order of one key column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyField {
    /// Arrow type of the column.
    pub data_type: DataType,
    /// Larger values first.
    pub descending: bool,
    /// NULLs before all values; independent of `descending`.
    pub nulls_first: bool,
}

impl KeyField {
    /// Ascending, NULLS LAST: Postgres' default, and the order of every key that the user did not order.
    pub fn ascending(data_type: DataType) -> Self {
        KeyField { data_type, descending: false, nulls_first: false }
    }
}

/// Encodes and decodes key columns. Encoding with a codec of the first k fields gives a byte prefix of the whole key.
#[derive(Clone, Debug)]
pub struct KeyCodec {
    fields: Vec<KeyField>,
}

impl KeyCodec {
    /// A codec for the given fields; refuses types that have no order (Map).
    pub fn new(fields: Vec<KeyField>) -> Result<Self> {
        Ok(KeyCodec { fields })
    }

    /// The fields, in key order.
    pub fn fields(&self) -> &[KeyField] {
        &self.fields
    }

    /// One key per row. `columns` are the first `columns.len()` key columns (a prefix is allowed), all of length `rows`.
    pub fn encode(&self, columns: &[ArrayRef], rows: usize) -> Result<BinaryArray> {
        let _ = (columns, rows);
        Err(crate::Error::internal("key encoding is not written yet"))
    }

    /// The key columns back from keys. Malformed bytes are an error of kind `Corruption`, never a panic.
    pub fn decode(&self, keys: &BinaryArray) -> Result<Vec<ArrayRef>> {
        let _ = keys;
        Err(crate::Error::internal("key decoding is not written yet"))
    }
}

/// The key of a state table: 2 bytes of vnode (big endian), then the memcomparable key.
/// The vnode is computed from the first `distribution` key columns (0: a singleton on vnode 0).
#[derive(Clone, Debug)]
pub struct TableKeyCodec {
    codec: KeyCodec,
    distribution: usize,
}

impl TableKeyCodec {
    /// A codec for a table whose first `distribution` key columns decide the vnode.
    pub fn new(fields: Vec<KeyField>, distribution: usize) -> Result<Self> {
        assert!(distribution <= fields.len(), "the distribution key is a prefix of the key");
        Ok(TableKeyCodec { codec: KeyCodec::new(fields)?, distribution })
    }

    /// The codec of the part after the vnode.
    pub fn codec(&self) -> &KeyCodec {
        &self.codec
    }

    /// How many leading key columns decide the vnode.
    pub fn distribution(&self) -> usize {
        self.distribution
    }

    /// Keys of whole rows; `columns` are all key columns.
    pub fn encode(&self, columns: &[ArrayRef], rows: usize) -> Result<BinaryArray> {
        let _ = (columns, rows);
        Err(crate::Error::internal("key encoding is not written yet"))
    }
}
