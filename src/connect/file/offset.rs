//! The offset of one file: how far it was read, and what the file was then, so that another file of the same name is noticed.

use eddyline_objects::ObjectInfo;
use eddyline_types::{Error, Result};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes at a file's start that identify it.
pub(crate) const HEAD_BYTES: u64 = 4096;

/// Stored as JSON in the source's offset table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileOffset {
    /// Byte of the next record (CSV, NDJSON) or number of rows read (Parquet).
    pub(crate) at: u64,
    /// 1-based line of the next record; 0 for Parquet.
    #[serde(default)]
    pub(crate) line: u64,
    /// Size when it was opened last.
    pub(crate) size: u64,
    /// Milliseconds since the Unix epoch when it was modified, 0 if unknown.
    #[serde(default)]
    pub(crate) modified: u64,
    /// How many bytes of the start are hashed.
    #[serde(default)]
    pub(crate) head_bytes: u64,
    /// xxh3-64 of them, in hex.
    #[serde(default)]
    pub(crate) head: String,
    /// Nothing is left to read (in append mode: for now).
    #[serde(default)]
    pub(crate) done: bool,
    /// It was rewritten, vanished or could not be read: recorded once, and left alone from then on.
    #[serde(default)]
    pub(crate) abandoned: bool,
}

impl FileOffset {
    /// The start of a file whose first bytes are given.
    pub(crate) fn start(info: &ObjectInfo, head: &[u8]) -> Self {
        let head = &head[..head.len().min(HEAD_BYTES as usize)];
        FileOffset { line: 1, head_bytes: head.len() as u64, head: hash(head), ..FileOffset::default() }.seen(info)
    }

    /// The same position in the file as it is now.
    pub(crate) fn seen(mut self, info: &ObjectInfo) -> Self {
        (self.size, self.modified) = (info.size_bytes, info.modified_ms);
        self
    }

    /// Whether the listing shows the file as it was.
    pub(crate) fn is_same(&self, info: &ObjectInfo) -> bool {
        self.size == info.size_bytes && self.modified == info.modified_ms
    }

    /// Whether a file that starts with these bytes is the one that was read.
    pub(crate) fn has_head(&self, head: &[u8]) -> bool {
        head.len() as u64 >= self.head_bytes && self.head == hash(&head[..self.head_bytes as usize])
    }

    /// Marks the file as never to be read again.
    pub(crate) fn abandon(mut self) -> Self {
        self.abandoned = true;
        self.done = true;
        self
    }

    /// Text for the offset table.
    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a struct of numbers and strings has a JSON form")
    }

    /// Reads what [`FileOffset::to_text`] wrote.
    pub(crate) fn parse(split: &str, text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|e| Error::corruption(format!("the offset of file \"{split}\" cannot be read: {e}")))
    }
}

fn hash(bytes: &[u8]) -> String {
    format!("{:016x}", xxh3_64(bytes))
}
