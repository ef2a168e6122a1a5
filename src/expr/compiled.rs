//! Evaluation of encoded expressions over batches.
//!
//! The whole batch is evaluated at once. When that fails because of some row's data, the batch is halved until the rows that
//! fail stand alone: those are NULL in the result and are reported, all others keep their values. A failure that is not about data
//! (a broken invariant, an unknown function) fails the call.

use crate::encode::{column_name, decode, positional_schema};
use crate::errors::{from_datafusion, is_data_error};
use arrow::array::{Array, ArrayRef, RecordBatch, new_null_array};
use arrow::datatypes::{DataType, Schema};
use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{ColumnarValue, Expr};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::scalar::ScalarValue;
use eddyline_types::{Error, Result};
use std::sync::Arc;

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
#[derive(Clone, Debug)]
pub struct CompiledExpr {
    kind: Kind,
    data_type: DataType,
}

#[derive(Clone, Debug)]
enum Kind {
    /// The column itself: nothing to compute.
    Column(usize),
    /// The same for every row.
    Constant(ScalarValue),
    /// Everything else.
    Physical(Arc<dyn PhysicalExpr>),
}

impl CompiledExpr {
    /// Compiles an encoded expression (`protocol::plan::Expr::bytes`) for input columns `input` (columns are referred to by position).
    pub fn compile(expr: &[u8], input: &Schema) -> Result<Self> {
        Self::from_logical(&decode(expr)?, input)
    }

    /// Compiles a logical expression whose columns are named by position ([`crate::encode::column_name`]).
    pub fn from_logical(expr: &Expr, input: &Schema) -> Result<Self> {
        let schema = positional_schema(input)?;
        let kind = match expr {
            Expr::Column(c) => Kind::Column(schema.index_of_column(c).map_err(from_datafusion)?),
            Expr::Literal(value, _) => Kind::Constant(value.clone()),
            other => Kind::Physical(
                create_physical_expr(other, &schema, &ExecutionProps::new(), &PhysicalPlanningContext::default())
                    .map_err(from_datafusion)?,
            ),
        };
        let data_type = match &kind {
            Kind::Column(i) => input.field(*i).data_type().clone(),
            Kind::Constant(value) => value.data_type(),
            Kind::Physical(p) => p.data_type(schema.as_arrow()).map_err(from_datafusion)?,
        };
        Ok(CompiledExpr { kind, data_type })
    }

    /// Compiles an encoded expression for batches that hold only the columns that it refers to: returns their positions in `input`, in
    /// the order in which a batch must have them. For expressions over rows that are costly to put together (join conditions).
    pub fn compile_narrow(expr: &[u8], input: &Schema) -> Result<(Self, Vec<usize>)> {
        let expr = decode(expr)?;
        let used = expr.column_refs();
        let positions: Vec<usize> = (0..input.fields().len()).filter(|i| used.iter().any(|c| c.name == column_name(*i))).collect();
        let narrow = expr
            .clone()
            .transform_up(|e| match e {
                Expr::Column(c) => {
                    let to = positions.iter().position(|i| c.name == column_name(*i)).unwrap_or(positions.len());
                    Ok(Transformed::yes(Expr::Column(Column::new_unqualified(column_name(to)))))
                }
                other => Ok(Transformed::no(other)),
            })
            .map_err(from_datafusion)?
            .data;
        let compiled = Self::from_logical(&narrow, &input.project(&positions)?)?;
        Ok((compiled, positions))
    }

    /// Type of the result.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// The input column that the expression is, if it is nothing more.
    pub fn as_column(&self) -> Option<usize> {
        match &self.kind {
            Kind::Column(i) => Some(*i),
            Kind::Constant(_) | Kind::Physical(_) => None,
        }
    }

    /// One value per row. A vectorised failure is retried on halves: failing rows give NULL and are pushed to `errors`, in row order.
    pub fn evaluate(&self, batch: &RecordBatch, errors: &mut Vec<RowError>) -> Result<ArrayRef> {
        match self.evaluate_strict(batch) {
            Ok(array) => Ok(array),
            Err(e) if is_data_error(&e) => {
                let mut parts = Vec::new();
                self.isolate(batch, 0, e, &mut parts, errors)?;
                let parts: Vec<&dyn Array> = parts.iter().map(|p| p.as_ref()).collect();
                Ok(arrow::compute::concat(&parts)?)
            }
            Err(e) => Err(e),
        }
    }

    /// One value per row, or the error of some failing row: for statements, where an error ends the statement.
    pub fn evaluate_strict(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let rows = batch.num_rows();
        let physical = match &self.kind {
            Kind::Column(i) => return Ok(batch.column(*i).clone()),
            Kind::Constant(value) => return value.to_array_of_size(rows).map_err(from_datafusion),
            Kind::Physical(physical) => physical,
        };
        if rows == 0 {
            return Ok(arrow::array::new_empty_array(&self.data_type));
        }
        let array = match physical.evaluate(batch).map_err(from_datafusion)? {
            ColumnarValue::Array(array) => array,
            ColumnarValue::Scalar(value) => value.to_array_of_size(rows).map_err(from_datafusion)?,
        };
        if array.len() != rows {
            return Err(Error::internal(format!("an expression gave {} values for {rows} rows", array.len())));
        }
        if array.data_type() != &self.data_type {
            return Ok(arrow::compute::cast(&array, &self.data_type)?);
        }
        Ok(array)
    }

    /// Evaluates the halves of a batch that failed with `error`; `base` is its first row's position in the whole.
    fn isolate(&self, batch: &RecordBatch, base: usize, error: Error, parts: &mut Vec<ArrayRef>, errors: &mut Vec<RowError>) -> Result<()> {
        let rows = batch.num_rows();
        if rows == 1 {
            errors.push(RowError { row: base, sqlstate: error.sqlstate().0.to_string(), message: error.message().to_string() });
            parts.push(new_null_array(&self.data_type, 1));
            return Ok(());
        }
        let middle = rows / 2;
        for (offset, length) in [(0, middle), (middle, rows - middle)] {
            let half = batch.slice(offset, length);
            match self.evaluate_strict(&half) {
                Ok(array) => parts.push(array),
                // Depth is the logarithm of the batch's rows.
                Err(e) if is_data_error(&e) => self.isolate(&half, base + offset, e, parts, errors)?,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checked::{CheckedOp, checked};
    use crate::encode::encode;
    use arrow::array::{AsArray, Int64Array, StringArray};
    use arrow::datatypes::{Field, Int64Type};
    use datafusion::common::DFSchema;
    use datafusion::logical_expr::{cast, col, lit};

    fn batch(a: Vec<Option<i64>>, b: Vec<Option<i64>>, s: Vec<Option<&str>>) -> RecordBatch {
        let schema = Schema::new(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Int64, true),
            Field::new("s", DataType::Utf8, true),
        ]);
        RecordBatch::try_new(
            Arc::new(schema),
            vec![Arc::new(Int64Array::from(a)), Arc::new(Int64Array::from(b)), Arc::new(StringArray::from(s))],
        )
        .unwrap()
    }

    fn compile(expr: Expr, batch: &RecordBatch) -> CompiledExpr {
        let schema = DFSchema::try_from(batch.schema().as_ref().clone()).unwrap();
        CompiledExpr::compile(&encode(&expr, &schema).unwrap(), &batch.schema()).unwrap()
    }

    #[test]
    fn columns_and_literals_need_no_kernel() {
        let batch = batch(vec![Some(1), None], vec![Some(2), Some(3)], vec![None, None]);
        assert_eq!(compile(col("b"), &batch).as_column(), Some(1));
        let seven = compile(lit(7i64), &batch).evaluate(&batch, &mut Vec::new()).unwrap();
        assert_eq!(seven.as_primitive::<Int64Type>().values(), &[7, 7]);
    }

    #[test]
    fn only_poison_rows_become_null() {
        let rows = 1000usize;
        let bad = [0usize, 1, 499, 500, 998, 999];
        let a: Vec<_> = (0..rows).map(|i| Some(i as i64 * 10)).collect();
        let b: Vec<_> = (0..rows).map(|i| Some(if bad.contains(&i) { 0 } else { 5 })).collect();
        let batch = batch(a, b, vec![None; rows]);
        let expr = compile(checked(CheckedOp::Divide, col("a"), col("b")), &batch);
        let mut errors = Vec::new();
        let out = expr.evaluate(&batch, &mut errors).unwrap();
        let out = out.as_primitive::<Int64Type>();
        for i in 0..rows {
            assert_eq!(out.is_null(i), bad.contains(&i), "row {i}");
            if out.is_valid(i) {
                assert_eq!(out.value(i), i as i64 * 2);
            }
        }
        assert_eq!(errors.iter().map(|e| e.row).collect::<Vec<_>>(), bad);
        assert!(errors.iter().all(|e| e.sqlstate == "22012" && e.message == "division by zero"));
    }

    #[test]
    fn failures_say_what_postgres_says() {
        let batch = batch(vec![Some(i64::MAX), Some(3_000_000_000)], vec![Some(1), Some(0)], vec![Some("12"), Some("abc")]);
        let check = |expr: Expr, row: usize, sqlstate: &str, message: &str| {
            let mut errors = Vec::new();
            compile(expr, &batch).evaluate(&batch, &mut errors).unwrap();
            let found = errors.iter().find(|e| e.row == row).expect("the row fails");
            assert_eq!((found.sqlstate.as_str(), found.message.as_str()), (sqlstate, message));
        };
        check(checked(CheckedOp::Add, col("a"), col("b")), 0, "22003", "bigint out of range");
        check(checked(CheckedOp::Multiply, col("a"), lit(2i64)), 0, "22003", "bigint out of range");
        check(checked(CheckedOp::Modulo, col("a"), col("b")), 1, "22012", "division by zero");
        check(cast(col("s"), DataType::Int64), 1, "22P02", "invalid input syntax for type bigint: \"abc\"");
        check(cast(col("a"), DataType::Int32), 1, "22003", "integer out of range");
        check(
            cast(col("s"), DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None)),
            1,
            "22007",
            "invalid input syntax for type timestamp: \"abc\"",
        );
        check(cast(col("s"), DataType::Boolean), 1, "22P02", "invalid input syntax for type boolean: \"abc\"");
        check(cast(col("s"), DataType::Decimal128(10, 2)), 1, "22P02", "invalid input syntax for type numeric: \"abc\"");
        check(cast(col("a"), DataType::Decimal128(5, 2)), 0, "22003", "numeric field overflow");
    }

    #[test]
    fn malformed_bytes_are_corruption() {
        let schema = Schema::empty();
        for bytes in [&[][..], &[9, 1, 2], &[1, 255, 255, 255]] {
            assert_eq!(CompiledExpr::compile(bytes, &schema).unwrap_err().kind(), eddyline_types::ErrorKind::Corruption);
        }
    }
}
