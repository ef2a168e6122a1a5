//! Candidate pairs: rows of one side with the rows of the other that have their key, walked in bounded batches, and the residual condition over them.

use super::side::Side;
use crate::operators::state::column::NIL;
use crate::operators::state::keys::KeyTable;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{Schema, SchemaRef};
use eddyline_expr::{CompiledExpr, RowError};
use eddyline_protocol::Expr;
use eddyline_types::{Error, Result};
use std::sync::Arc;

/// Where a walk over rows and their candidates stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    /// The row being walked.
    pub row: usize,
    /// Its next candidate, once it was begun.
    at: Option<u32>,
}

/// A batch of pairs; `own[k]` is the position of the walked row, `other[k]` the number of the candidate.
#[derive(Debug, Default)]
pub struct Pairs {
    #[allow(missing_docs)]
    pub own: Vec<u32>,
    #[allow(missing_docs)]
    pub other: Vec<u32>,
}

impl Pairs {
    /// Collects up to `limit` pairs from the cursor on, and ends after `rows` rows at the latest. All rows before the cursor's are then complete.
    pub fn collect(&mut self, cursor: &mut Cursor, slots: &[u32], keys: &KeyTable, other: &Side, limit: usize, rows: usize) {
        self.own.clear();
        self.other.clear();
        let end = slots.len().min(cursor.row + rows);
        while cursor.row < end {
            let mut at = cursor.at.take().unwrap_or_else(|| other.head(keys.record(slots[cursor.row])));
            while at != NIL {
                if self.own.len() == limit {
                    cursor.at = Some(at);
                    return;
                }
                self.own.push(cursor.row as u32);
                self.other.push(at);
                at = other.next[at as usize];
            }
            cursor.row += 1;
        }
    }
}

/// The condition beyond equal keys, over the columns that it needs.
pub struct Residual {
    expr: CompiledExpr,
    /// For error records.
    pub text: String,
    /// Columns that it reads: positions in left columns followed by right columns.
    pub columns: Vec<usize>,
    schema: SchemaRef,
}

impl Residual {
    /// The condition over left columns followed by right columns.
    pub fn new(expr: &Expr, left: &Schema, right: &Schema) -> Result<Self> {
        let both = Schema::new(left.fields().iter().chain(right.fields()).cloned().collect::<Vec<_>>());
        let (compiled, columns) = CompiledExpr::compile_narrow(&expr.bytes, &both)?;
        let fields = columns.iter().map(|c| both.field(*c).clone().with_nullable(true)).collect::<Vec<_>>();
        Ok(Residual { expr: compiled, text: expr.text.clone(), columns, schema: Arc::new(Schema::new(fields)) })
    }

    /// Which pairs pass; `columns` are those that it reads. Also returns the batch, for error records.
    pub fn evaluate(&self, columns: Vec<ArrayRef>, pairs: usize, errors: &mut Vec<RowError>) -> Result<(BooleanBuffer, RecordBatch)> {
        let options = RecordBatchOptions::new().with_row_count(Some(pairs));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        let mask = self.expr.evaluate(&batch, errors)?;
        let mask = mask.as_boolean_opt().ok_or_else(|| Error::internal(format!("the condition {} is not boolean", self.text)))?;
        let pass = match mask.nulls() {
            Some(nulls) => mask.values() & nulls.inner(),
            None => mask.values().clone(),
        };
        Ok((pass, batch))
    }
}
