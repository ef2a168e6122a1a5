//! Poison rows: what becomes of a row whose expression failed. Its value is NULL; this records why, with the row as JSON.

use super::OpContext;
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use eddyline_expr::RowError;
use eddyline_protocol::ErrorRecord;
use eddyline_protocol::report::MAX_RECORDS_PER_EPOCH;
use eddyline_types::{Chunk, SqlState};
use std::sync::Arc;

/// Records the failed rows of a chunk. Retractions of rows that failed before are not recorded again.
pub fn record(cx: &mut OpContext, expression: &str, chunk: &Chunk, errors: &[RowError]) {
    for error in errors.iter().filter(|e| chunk.weight(e.row) > 0) {
        if cx.errors.len() > MAX_RECORDS_PER_EPOCH {
            return;
        }
        cx.errors.push(ErrorRecord {
            kind: "evaluate".into(),
            expression: Some(expression.into()),
            row: row_json(chunk.batch(), error.row),
            sqlstate: error.sqlstate.clone(),
            message: error.message.clone(),
            ..ErrorRecord::default()
        });
    }
}

/// Records that an aggregate's value cannot be given; `key` is the group's row.
pub fn record_overflow(cx: &mut OpContext, expression: &str, key: &RecordBatch, row: usize) {
    if cx.errors.len() > MAX_RECORDS_PER_EPOCH {
        return;
    }
    cx.errors.push(ErrorRecord {
        kind: "evaluate".into(),
        expression: Some(expression.into()),
        row: row_json(key, row),
        sqlstate: SqlState::NUMERIC_OUT_OF_RANGE.0.into(),
        message: format!("{expression} is out of range"),
        ..ErrorRecord::default()
    });
}

/// The schema with all columns nullable: a failed row is NULL whatever the plan promises.
pub fn nullable(schema: &Schema) -> SchemaRef {
    Arc::new(Schema::new(schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect::<Vec<_>>()))
}

/// A row as a JSON object; `None` for types that JSON cannot show.
pub fn row_json(batch: &RecordBatch, row: usize) -> Option<String> {
    let mut bytes = Vec::new();
    let options = arrow::json::writer::WriterBuilder::new().with_explicit_nulls(true);
    let mut writer = options.build::<_, arrow::json::writer::LineDelimited>(&mut bytes);
    writer.write(&batch.slice(row, 1)).ok()?;
    writer.finish().ok()?;
    drop(writer);
    Some(String::from_utf8(bytes).ok()?.trim_end().to_owned())
}
