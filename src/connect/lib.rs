//! Sources and sinks: datagen, nexmark, files; their decoders.
//!
//! A connector is opened by [`open`] with the offsets of the last committed epoch and gives batches with the offsets after them:
//! who stores both in one epoch reads each row exactly once.

use arrow::array::RecordBatch;
use async_trait::async_trait;
use eddyline_protocol::{ErrorRecord, SourceSpec};
use eddyline_types::Result;
use std::collections::BTreeMap;

/// Where a reader is: by split (a file, a partition, a generator's part), an opaque text.
pub type Offsets = BTreeMap<String, String>;

/// What one read gives.
#[derive(Clone, Debug)]
pub struct SourceBatch {
    /// Decoded rows with exactly the spec's columns; may have 0 rows.
    pub rows: RecordBatch,
    /// Rows that could not be decoded.
    pub errors: Vec<ErrorRecord>,
    /// Splits whose offset changed, with the offset after this batch.
    pub offsets: Offsets,
}

/// One shard's reader of a source.
///
/// # Contract
/// `next` waits until there is something (honouring rate limits and polling for new files by itself) and is cancel-safe: a dropped call loses no row.
/// Transient trouble (a store that is away) is retried inside with back-off; an error ends the reader and fails the job's domain.
/// The rows of a batch are those between the previous and the new offsets, always the same ones for the same offsets.
#[async_trait]
pub trait SourceReader: Send {
    /// The next batch of at most about `max_rows` rows; `Ok(None)`: the source is bounded and finished.
    async fn next(&mut self, max_rows: usize) -> Result<Option<SourceBatch>>;
}

/// Checks options and columns of a source when it is created; the errors name option and value, with SQLSTATE 22023.
pub fn validate(spec: &SourceSpec) -> Result<()> {
    let _ = spec;
    Ok(())
}

/// Opens the reader of shard `index` of `count`. Splits are shared out by a hash of their name, so every split has one reader.
/// `offsets` are those of this job's last committed epoch (all splits; those of other shards are ignored).
pub async fn open(spec: &SourceSpec, index: u32, count: u32, offsets: Offsets) -> Result<Box<dyn SourceReader>> {
    let _ = (spec, index, count, offsets);
    Err(eddyline_types::Error::internal("not written yet"))
}
