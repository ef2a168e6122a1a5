//! SQL scalar expressions: DataFusion's functions and ours, encoded in plans, compiled over chunks, evaluated so that a poison row harms only itself.

pub mod bound;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::Schema;
use eddyline_types::Result;

/// A row whose expression failed: it evaluates to NULL and is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowError {
    /// Position in the batch.
    pub row: usize,
    /// SQLSTATE, e.g. 22012.
    pub sqlstate: String,
    /// Message as Postgres would give it.
    pub message: String,
}

/// An expression ready to run over batches of one schema.
pub struct CompiledExpr;

#[allow(unused_variables)]
impl CompiledExpr {
    /// Compiles an encoded expression (`protocol::plan::Expr::bytes`) for input columns `input` (columns are referred to by position).
    pub fn compile(expr: &[u8], input: &Schema) -> Result<Self> {
        Err(eddyline_types::Error::internal("not written yet"))
    }

    /// One value per row. A vectorised failure is retried row by row: failing rows give NULL and are pushed to `errors`.
    pub fn evaluate(&self, batch: &RecordBatch, errors: &mut Vec<RowError>) -> Result<ArrayRef> {
        Err(eddyline_types::Error::internal("not written yet"))
    }
}
