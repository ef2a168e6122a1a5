//! A chunk: an Arrow `RecordBatch` plus a weight per row.
//!
//! Weight +n: the row was added n times; -n: it was removed n times. Never 0, never null. No weights = every row +1,
//! the append-only fast path. Inside an epoch rows have no order: a chunk is a bag (a Z-set), so any split, merge or
//! reordering of chunks between two barriers means the same.

use crate::{Error, Result};
use arrow::array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute;
use arrow::datatypes::SchemaRef;

/// See the module's documentation. Cheap to clone (reference-counted columns), immutable.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    batch: RecordBatch,
    weights: Option<Int64Array>,
}

impl Chunk {
    /// All rows have weight +1.
    pub fn append_only(batch: RecordBatch) -> Self {
        Chunk { batch, weights: None }
    }

    /// Rows with the given weights. The length must match; a zero or null weight is refused.
    pub fn new(batch: RecordBatch, weights: Int64Array) -> Result<Self> {
        if weights.len() != batch.num_rows() || weights.null_count() > 0 {
            return Err(Error::internal("a chunk needs one weight for each row"));
        }
        if weights.values().contains(&0) {
            return Err(Error::internal("a chunk has a row of weight 0"));
        }
        let weights = if weights.values().iter().all(|w| *w == 1) { None } else { Some(weights) };
        Ok(Chunk { batch, weights })
    }

    /// Weights given as a vector; drops rows of weight 0.
    pub fn compacted(batch: RecordBatch, weights: Vec<i64>) -> Result<Self> {
        if weights.len() != batch.num_rows() {
            return Err(Error::internal("a chunk needs one weight for each row"));
        }
        if !weights.contains(&0) {
            return Self::new(batch, Int64Array::from(weights));
        }
        let keep = BooleanArray::from_iter(weights.iter().map(|w| Some(*w != 0)));
        let batch = compute::filter_record_batch(&batch, &keep)?;
        Self::new(batch, weights.into_iter().filter(|w| *w != 0).collect::<Vec<_>>().into())
    }

    /// No rows.
    pub fn empty(schema: SchemaRef) -> Self {
        Chunk { batch: RecordBatch::new_empty(schema), weights: None }
    }

    /// The rows without their weights.
    pub fn batch(&self) -> &RecordBatch {
        &self.batch
    }

    /// Rows and weights.
    pub fn into_parts(self) -> (RecordBatch, Option<Int64Array>) {
        (self.batch, self.weights)
    }

    /// One weight per row, or `None` when every row is +1.
    pub fn weights(&self) -> Option<&[i64]> {
        self.weights.as_ref().map(|w| w.values().as_ref())
    }

    /// The weights as an array, or `None` when every row is +1.
    pub fn weights_array(&self) -> Option<&Int64Array> {
        self.weights.as_ref()
    }

    /// The weight of one row.
    pub fn weight(&self, row: usize) -> i64 {
        self.weights.as_ref().map_or(1, |w| w.value(row))
    }

    /// Number of rows (not counted by weight).
    pub fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.batch.num_rows() == 0
    }

    /// The schema of the rows.
    pub fn schema(&self) -> SchemaRef {
        self.batch.schema()
    }

    /// A column.
    pub fn column(&self, index: usize) -> &ArrayRef {
        self.batch.column(index)
    }

    /// Bytes of memory that the columns and weights refer to (slices count what they show).
    pub fn size_bytes(&self) -> usize {
        let columns: usize = self.batch.columns().iter().map(|c| c.to_data().get_slice_memory_size().unwrap_or(0)).sum();
        columns + self.weights.as_ref().map_or(0, |w| w.len() * 8)
    }

    /// The same weights over other columns of the same length.
    pub fn with_columns(&self, schema: SchemaRef, columns: Vec<ArrayRef>) -> Result<Self> {
        let options = RecordBatchOptions::new().with_row_count(Some(self.num_rows()));
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        Ok(Chunk { batch, weights: self.weights.clone() })
    }

    /// Some of the columns, in the order given.
    pub fn project(&self, indices: &[usize]) -> Result<Self> {
        Ok(Chunk { batch: self.batch.project(indices)?, weights: self.weights.clone() })
    }

    /// Rows whose mask is true (null counts as false).
    pub fn filter(&self, mask: &BooleanArray) -> Result<Self> {
        let batch = compute::filter_record_batch(&self.batch, mask)?;
        let weights = match &self.weights {
            Some(w) => Some(compute::filter(w, mask)?.as_any().downcast_ref::<Int64Array>().expect("filter keeps the type").clone()),
            None => None,
        };
        Ok(Chunk { batch, weights })
    }

    /// The rows at the given positions, in that order.
    pub fn take(&self, rows: &UInt32Array) -> Result<Self> {
        let batch = compute::take_record_batch(&self.batch, rows)?;
        let weights = match &self.weights {
            Some(w) => Some(compute::take(w, rows, None)?.as_any().downcast_ref::<Int64Array>().expect("take keeps the type").clone()),
            None => None,
        };
        Ok(Chunk { batch, weights })
    }

    /// A range of rows, without copying.
    pub fn slice(&self, offset: usize, length: usize) -> Self {
        Chunk { batch: self.batch.slice(offset, length), weights: self.weights.as_ref().map(|w| w.slice(offset, length)) }
    }

    /// All weights with the sign turned.
    pub fn negated(&self) -> Result<Self> {
        let weights = match &self.weights {
            Some(w) => {
                w.values().iter().map(|w| w.checked_neg()).collect::<Option<Vec<_>>>().ok_or_else(|| Error::internal("weight overflow"))?
            }
            None => vec![-1; self.num_rows()],
        };
        Self::new(self.batch.clone(), weights.into())
    }

    /// One chunk of several with the same schema.
    pub fn concat(schema: &SchemaRef, chunks: &[Chunk]) -> Result<Self> {
        if let [one] = chunks {
            return Ok(one.clone());
        }
        let batch = compute::concat_batches(schema, chunks.iter().map(|c| &c.batch))?;
        let weights = if chunks.iter().all(|c| c.weights.is_none()) {
            None
        } else {
            let mut all = Vec::with_capacity(batch.num_rows());
            for chunk in chunks {
                match &chunk.weights {
                    Some(w) => all.extend_from_slice(w.values()),
                    None => all.resize(all.len() + chunk.num_rows(), 1),
                }
            }
            Some(Int64Array::from(all))
        };
        Ok(Chunk { batch, weights })
    }
}
