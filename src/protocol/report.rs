//! Error records: rows that could not be decoded or evaluated, readable as `eddy_catalog.errors`.
//!
//! They are state: written to the job's errors table in the epoch that met them, so a replay never doubles one.

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One recorded error. `id`, `epoch`, `job` and `operator` are filled in by the shard that writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorRecord {
    /// `decode`, `evaluate`, `source`, `late`, `constraint`.
    pub kind: String,
    /// The expression or column that failed.
    pub expression: Option<String>,
    /// JSON: where the row came from, e.g. `{"file":"...","line":3}`.
    pub source_position: Option<String>,
    /// The undecodable bytes (cut at 8 KiB).
    pub payload: Option<Vec<u8>>,
    /// JSON of the row that failed to evaluate.
    pub row: Option<String>,
    /// SQLSTATE of the failure.
    pub sqlstate: String,
    /// Its message.
    pub message: String,
}

/// Records that one shard keeps per epoch; more are counted in the metrics and summarised in one record.
pub const MAX_RECORDS_PER_EPOCH: usize = 1000;

/// Schema of every job's errors table; keyed by `(epoch, operator, id)`, a singleton on vnode 0.
/// `id` is a hash of operator, position and row, so that a replay writes the same record again.
pub fn errors_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("time", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), false),
        Field::new("epoch", DataType::Int64, false),
        Field::new("job", DataType::Int32, false),
        Field::new("operator", DataType::Utf8, false),
        Field::new("kind", DataType::Utf8, false),
        Field::new("expression", DataType::Utf8, true),
        Field::new("source_position", DataType::Utf8, true),
        Field::new("payload", DataType::Binary, true),
        Field::new("row", DataType::Utf8, true),
        Field::new("sqlstate", DataType::Utf8, false),
        Field::new("message", DataType::Utf8, false),
    ]))
}

/// Positions of the errors table's key columns: epoch, operator, id.
pub const ERRORS_KEY: [usize; 3] = [2, 4, 0];
