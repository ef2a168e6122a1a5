//! Rows of one relation at one epoch: maps the relation's columns to its table's and turns stored multiplicities into rows.
//!
//! A table without a key (`MaterializeMode::Multiset`) has a last column `_weight` that the relation does not have: a row is given as often as it says.

use crate::pin::ReadPoint;
use arrow::array::{Array, ArrayRef, BinaryArray, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use eddyline_protocol::{Relation, TableDesc};
use eddyline_store::{ScanOptions, Snapshot};
use eddyline_types::{Epoch, Error, ObjectId, Result};
use futures::stream::{BoxStream, StreamExt};
use std::ops::Bound;
use std::sync::Arc;

/// A range of table keys.
pub type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Rows of an expanded batch at most, so that one row with a huge multiplicity does not fill the memory.
const EXPANDED_ROWS: usize = 8192;

/// See the module's documentation. Cheap to clone.
#[derive(Clone)]
pub struct RelationReader {
    snapshot: Snapshot,
    epoch: Epoch,
    relation: Arc<Relation>,
    desc: Arc<TableDesc>,
    schema: SchemaRef,
    weighted: bool,
}

impl std::fmt::Debug for RelationReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.relation.name, self.epoch)
    }
}

impl RelationReader {
    /// A reader of a table or materialized view at the point's epoch.
    pub fn new(point: &ReadPoint, id: ObjectId) -> Result<Self> {
        let epoch = point.epoch(id)?;
        let (relation, desc) = point.relation(id)?;
        let schema = relation.schema();
        let stored = desc.schema.fields().len();
        let weighted = stored == relation.columns.len() + 1;
        if !weighted && stored != relation.columns.len() {
            return Err(Error::internal(format!("\"{}\" has {} columns, its table {stored}", relation.name, relation.columns.len())));
        }
        Ok(RelationReader { snapshot: point.snapshot().clone(), epoch, relation, desc: Arc::new(desc), schema, weighted })
    }

    /// All columns of the relation, hidden ones included.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The relation.
    pub fn relation(&self) -> &Arc<Relation> {
        &self.relation
    }

    /// Its table.
    pub fn desc(&self) -> &Arc<TableDesc> {
        &self.desc
    }

    /// The epoch that is read.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Rows of some key ranges, one range after the other: the given columns of the relation, in order; `limit` is a hint to stop early.
    pub fn scan(
        &self,
        ranges: Vec<KeyRange>,
        columns: Vec<usize>,
        limit: Option<usize>,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let shape = Arc::new(Shape::new(self, &columns)?);
        let reader = self.clone();
        let stored = shape.stored.clone();
        let batches = futures::stream::iter(ranges)
            .map(move |range| {
                let options = ScanOptions { range, columns: Some(stored.clone()), reverse: false, limit, with_keys: false };
                reader.snapshot.scan(reader.desc.id, reader.epoch, options)
            })
            .flatten();
        Ok(expand_all(shape, batches))
    }

    /// Rows of some table keys: position in `keys` and row, positions ascending. A key of a multiset gives as many rows as it has.
    pub async fn get(&self, keys: &BinaryArray, columns: &[usize]) -> Result<(Vec<usize>, RecordBatch)> {
        let shape = Shape::new(self, columns)?;
        let (positions, batch) = self.snapshot.get(self.desc.id, self.epoch, keys, Some(&shape.stored)).await?;
        if self.weighted {
            return Err(Error::internal("a multiset has no keys to look up"));
        }
        Ok((positions, shape.rows(&batch, None)?))
    }

    /// Whether rows have multiplicities (then there is no key to look up).
    pub fn is_weighted(&self) -> bool {
        self.weighted
    }
}

/// Which stored columns are read and what becomes of them.
struct Shape {
    /// Stored columns to read; the weight, if any, is last.
    stored: Vec<usize>,
    /// How many of the first are wanted (the others only carry the number of rows or their weight).
    wanted: usize,
    weighted: bool,
    schema: SchemaRef,
}

impl Shape {
    fn new(reader: &RelationReader, columns: &[usize]) -> Result<Self> {
        let schema = Arc::new(reader.schema.project(columns)?);
        let mut stored = columns.to_vec();
        if reader.weighted {
            stored.push(reader.desc.schema.fields().len() - 1);
        } else if stored.is_empty() && !reader.relation.columns.is_empty() {
            stored.push(narrowest(&reader.schema));
        }
        Ok(Shape { stored, wanted: columns.len(), weighted: reader.weighted, schema })
    }

    /// A stored batch as rows of the relation; `indices`: which stored rows, with repetitions.
    fn rows(&self, batch: &RecordBatch, indices: Option<&UInt32Array>) -> Result<RecordBatch> {
        let rows = indices.map_or(batch.num_rows(), |i| i.len());
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.wanted);
        for column in batch.columns().iter().take(self.wanted) {
            columns.push(match indices {
                Some(indices) => take(column, indices, None)?,
                None => column.clone(),
            });
        }
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &RecordBatchOptions::new().with_row_count(Some(rows)))?)
    }

    fn weights<'a>(&self, batch: &'a RecordBatch) -> Result<Option<&'a Int64Array>> {
        if !self.weighted {
            return Ok(None);
        }
        let column = batch.columns().last().and_then(|c| c.as_any().downcast_ref::<Int64Array>());
        let weights = column.ok_or_else(|| Error::corruption("a multiset's rows have no weights"))?;
        if weights.values().iter().all(|w| *w == 1) {
            return Ok(None);
        }
        if weights.values().iter().any(|w| *w < 0) {
            return Err(Error::corruption("a multiset has a row that occurs less than zero times"));
        }
        Ok(Some(weights))
    }
}

fn narrowest(schema: &SchemaRef) -> usize {
    let width = |i: &usize| schema.field(*i).data_type().primitive_width().unwrap_or(usize::MAX);
    (0..schema.fields().len()).min_by_key(width).unwrap_or(0)
}

fn expand_all(
    shape: Arc<Shape>,
    batches: impl futures::Stream<Item = Result<RecordBatch>> + Send + 'static,
) -> BoxStream<'static, Result<RecordBatch>> {
    let expanded = batches.flat_map(move |batch| {
        let shape = shape.clone();
        let parts: Box<dyn Iterator<Item = Result<RecordBatch>> + Send> = match batch {
            Err(e) => Box::new(std::iter::once(Err(e))),
            Ok(batch) => match shape.weights(&batch) {
                Err(e) => Box::new(std::iter::once(Err(e))),
                Ok(None) => Box::new(std::iter::once(shape.rows(&batch, None))),
                Ok(Some(weights)) => {
                    let repeats = Repeats { weights: weights.clone(), row: 0, given: 0 };
                    Box::new(repeats.map(move |indices| shape.rows(&batch, Some(&indices))))
                }
            },
        };
        futures::stream::iter(parts)
    });
    Box::pin(expanded)
}

/// Row numbers, each as often as its weight says, in portions of at most `EXPANDED_ROWS`.
struct Repeats {
    weights: Int64Array,
    row: usize,
    given: i64,
}

impl Iterator for Repeats {
    type Item = UInt32Array;

    fn next(&mut self) -> Option<UInt32Array> {
        let mut indices = Vec::new();
        while self.row < self.weights.len() && indices.len() < EXPANDED_ROWS {
            let missing = (self.weights.value(self.row) - self.given) as usize;
            let now = missing.min(EXPANDED_ROWS - indices.len());
            indices.resize(indices.len() + now, self.row as u32);
            if now == missing {
                self.row += 1;
                self.given = 0;
            } else {
                self.given += now as i64;
            }
        }
        (!indices.is_empty()).then(|| indices.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_repeat_as_often_as_their_weight_says() {
        let weights = vec![2i64, 0, 20_000, 1];
        let repeats = Repeats { weights: weights.clone().into(), row: 0, given: 0 };
        let mut seen = vec![0i64; 4];
        for part in repeats {
            assert!(part.len() <= EXPANDED_ROWS);
            part.values().iter().for_each(|i| seen[*i as usize] += 1);
        }
        assert_eq!(seen, weights);
    }
}
