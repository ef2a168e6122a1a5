//! Sources and sinks: datagen, nexmark, files; their decoders.
//!
//! A connector is opened by [`open`] with the offsets of the last committed epoch and gives batches with the offsets after them:
//! who stores both in one epoch reads each row exactly once.
//!
//! Reading order: this file (the contract), `options` (reading `WITH`), `columns` and `parse` (text to typed columns),
//! `pace` (rows per second), [`datagen`], [`nexmark`], [`preload`] (chunks in memory, for benchmarks), `file`.

mod columns;
pub mod datagen;
mod file;
pub mod nexmark;
mod options;
mod pace;
mod parse;
pub mod preload;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use eddyline_protocol::{ErrorRecord, SourceSpec};
use eddyline_types::{Error, Result, SqlState};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

/// Where a reader is: by split (a file, a partition, a generator's part), an opaque text.
pub type Offsets = BTreeMap<String, String>;

/// Bytes of an undecodable record that an error record keeps.
const MAX_PAYLOAD_BYTES: usize = 8 << 10;

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
    if spec.columns.is_empty() {
        return Err(Error::user(SqlState::INVALID_TABLE_DEFINITION, "a source needs at least one column"));
    }
    match spec.connector.as_str() {
        "datagen" => datagen::Datagen::parse(spec).map(drop),
        "nexmark" => nexmark::Nexmark::parse(spec).map(drop),
        "file" => file::FileSpec::parse(spec).map(drop),
        "preload" => preload::check(spec),
        other => Err(unknown_connector(other)),
    }
}

/// Opens the reader of shard `index` of `count`. Splits are shared out by a hash of their name, so every split has one reader.
/// `offsets` are those of this job's last committed epoch (all splits; those of other shards are ignored).
pub async fn open(spec: &SourceSpec, index: u32, count: u32, offsets: Offsets) -> Result<Box<dyn SourceReader>> {
    Ok(match spec.connector.as_str() {
        "datagen" => Box::new(datagen::DatagenReader::new(datagen::Datagen::parse(spec)?, index, count, &offsets)?),
        "nexmark" => Box::new(nexmark::NexmarkReader::new(nexmark::Nexmark::parse(spec)?, index, count, &offsets)?),
        "file" => Box::new(file::FileReader::new(file::FileSpec::parse(spec)?, spec.columns.clone(), index, count, offsets)?),
        "preload" => Box::new(preload::PreloadReader::new(spec, index, count, &offsets)?),
        other => return Err(unknown_connector(other)),
    })
}

fn unknown_connector(name: &str) -> Error {
    let message = format!("connector \"{name}\" cannot be a source");
    Error::user(SqlState::INVALID_PARAMETER_VALUE, message).with_hint("Known connectors of sources: datagen, file, nexmark.")
}

/// Whether a split belongs to shard `index` of `count`. Generators number their splits, which spreads them evenly.
fn is_split_of(split: &str, index: u32, count: u32) -> bool {
    let number = split.parse::<u64>().unwrap_or_else(|_| xxh3_64(split.as_bytes()));
    number % u64::from(count.max(1)) == u64::from(index)
}

/// An error record about a file: `line` is that of the record's first byte, `payload` its bytes.
fn decode_error(kind: &str, error: &Error, column: Option<String>, file: &str, line: Option<u64>, payload: Option<&[u8]>) -> ErrorRecord {
    let position = match line {
        Some(line) => serde_json::json!({ "file": file, "line": line }),
        None => serde_json::json!({ "file": file }),
    };
    ErrorRecord {
        kind: kind.to_owned(),
        expression: column,
        source_position: Some(position.to_string()),
        payload: payload.map(|p| p[..p.len().min(MAX_PAYLOAD_BYTES)].to_vec()),
        row: None,
        sqlstate: error.sqlstate().0.to_owned(),
        message: error.to_string(),
    }
}
