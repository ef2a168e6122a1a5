//! Point reads around DataFusion: rows of one key or key prefix, straight from the store.

use crate::key_range;
use crate::pin::ReadPoint;
use crate::reader::RelationReader;
use arrow::array::{BinaryArray, RecordBatch};
use arrow::compute::concat_batches;
use datafusion::scalar::ScalarValue;
use eddyline_types::{ObjectId, Result};
use futures::TryStreamExt;
use std::sync::Arc;

/// `SELECT columns FROM relation WHERE key columns = values LIMIT limit`.
#[derive(Clone, Debug)]
pub struct PointRead<'a> {
    /// A table or materialized view.
    pub relation: ObjectId,
    /// Values of the first key columns of its table, each of the column's type; they cover the distribution. A NULL matches nothing.
    pub key: Vec<ScalarValue>,
    /// Whether `key` has all key columns.
    pub whole_key: bool,
    /// Columns of the relation to give, in order.
    pub columns: &'a [usize],
    /// At most so many rows.
    pub limit: Option<usize>,
}

/// The rows; their schema is the relation's, projected.
pub async fn read(point: &ReadPoint, read: &PointRead<'_>) -> Result<RecordBatch> {
    let reader = RelationReader::new(point, read.relation)?;
    let schema = Arc::new(reader.schema().project(read.columns)?);
    if read.limit == Some(0) || read.key.iter().any(ScalarValue::is_null) {
        return Ok(RecordBatch::new_empty(schema));
    }
    if read.whole_key && !reader.is_weighted() {
        let key = key_range::whole_key(reader.desc(), &read.key)?;
        let keys = BinaryArray::from_vec(vec![key.as_slice()]);
        return Ok(reader.get(&keys, read.columns).await?.1);
    }
    let range = key_range::prefix_range(reader.desc(), &read.key)?;
    let mut rows = reader.scan(vec![range], read.columns.to_vec(), read.limit)?;
    let mut batches = Vec::new();
    let mut count = 0;
    while let Some(batch) = rows.try_next().await? {
        count += batch.num_rows();
        batches.push(batch);
        if read.limit.is_some_and(|limit| count >= limit) {
            break;
        }
    }
    let all = match batches.len() {
        1 => batches.swap_remove(0),
        _ => concat_batches(&schema, &batches)?,
    };
    Ok(match read.limit {
        Some(limit) if all.num_rows() > limit => all.slice(0, limit),
        _ => all,
    })
}
