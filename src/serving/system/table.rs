//! Tables whose rows are made when they are scanned, and the small row builder that they share.

use crate::failure::into_datafusion;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::scalar::ScalarValue;
use eddyline_types::{Error, Result};
use std::sync::Arc;

/// Makes all rows of a table.
type Make = Arc<dyn Fn(&mut Rows) -> Result<()> + Send + Sync>;

/// A table whose rows are made when it is scanned.
pub struct LazyTable {
    schema: SchemaRef,
    make: Make,
}

impl std::fmt::Debug for LazyTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LazyTable({} columns)", self.schema.fields().len())
    }
}

impl LazyTable {
    /// A table with this schema whose rows `make` pushes.
    pub fn provider(schema: SchemaRef, make: impl Fn(&mut Rows) -> Result<()> + Send + Sync + 'static) -> Arc<dyn TableProvider> {
        Arc::new(LazyTable { schema, make: Arc::new(make) })
    }
}

#[async_trait]
impl TableProvider for LazyTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let mut rows = Rows::new(self.schema.clone());
        (self.make)(&mut rows).map_err(into_datafusion)?;
        let batch = rows.finish().map_err(into_datafusion)?;
        Ok(MemorySourceConfig::try_new_exec(&[vec![batch]], self.schema.clone(), projection.cloned())?)
    }
}

/// Rows of a table, column by column. A row names the columns that it has a value for; the others are NULL, or the type's zero if NULL is not allowed.
pub struct Rows {
    schema: SchemaRef,
    columns: Vec<Vec<ScalarValue>>,
    count: usize,
}

impl Rows {
    /// No rows yet.
    pub fn new(schema: SchemaRef) -> Self {
        let columns = vec![Vec::new(); schema.fields().len()];
        Rows { schema, columns, count: 0 }
    }

    /// Adds a row. Columns that the schema does not have are ignored: versions of Postgres differ in them.
    pub fn push(&mut self, values: &[(&str, ScalarValue)]) -> Result<()> {
        for (field, column) in self.schema.fields().iter().zip(&mut self.columns) {
            let value = match values.iter().find(|(name, _)| name == field.name()) {
                Some((_, value)) if !value.is_null() => fit(value, field)?,
                _ => missing(field)?,
            };
            column.push(value);
        }
        self.count += 1;
        Ok(())
    }

    /// The rows.
    pub fn finish(self) -> Result<RecordBatch> {
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.columns.len());
        for (column, field) in self.columns.into_iter().zip(self.schema.fields()) {
            arrays.push(match column.is_empty() {
                true => arrow::array::new_empty_array(field.data_type()),
                false => ScalarValue::iter_to_array(column).map_err(crate::failure::from_datafusion)?,
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.count));
        Ok(RecordBatch::try_new_with_options(self.schema, arrays, &options)?)
    }
}

fn missing(field: &Field) -> Result<ScalarValue> {
    let value =
        if field.is_nullable() { ScalarValue::try_new_null(field.data_type()) } else { ScalarValue::new_default(field.data_type()) };
    value.map_err(|e| Error::internal(format!("column {} has no default: {e}", field.name())))
}

fn fit(value: &ScalarValue, field: &Field) -> Result<ScalarValue> {
    if value.data_type() == *field.data_type() {
        return Ok(value.clone());
    }
    value.cast_to(field.data_type()).map_err(|e| Error::internal(format!("column {}: {e}", field.name())))
}

/// A schema of nullable columns: `name type` with the types that system tables use.
pub fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true)).collect::<Vec<_>>()))
}

/// `timestamp with time zone`.
pub fn timestamptz() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// Milliseconds since the Unix epoch as a timestamp; 0 is NULL.
pub fn time(millis: u64) -> ScalarValue {
    let micros = (millis > 0).then_some(millis as i64 * 1000);
    ScalarValue::TimestampMicrosecond(micros, Some("UTC".into()))
}

/// An unsigned number.
pub fn long(value: u64) -> ScalarValue {
    ScalarValue::Int64(Some(i64::try_from(value).unwrap_or(i64::MAX)))
}

/// A number.
pub fn int(value: i32) -> ScalarValue {
    ScalarValue::Int32(Some(value))
}

/// A text.
pub fn text(value: impl Into<String>) -> ScalarValue {
    ScalarValue::Utf8(Some(value.into()))
}

/// A text or NULL.
pub fn maybe_text(value: Option<impl Into<String>>) -> ScalarValue {
    ScalarValue::Utf8(value.map(Into::into))
}

/// A truth value.
pub fn flag(value: bool) -> ScalarValue {
    ScalarValue::Boolean(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fill_in_what_is_not_said() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("a", DataType::Int32, false),
            Field::new("b", DataType::Utf8, true),
            Field::new("c", DataType::Int16, false),
        ]));
        let mut rows = Rows::new(schema);
        rows.push(&[("c", int(7)), ("nobody", int(1))]).expect("a row");
        rows.push(&[("b", text("x"))]).expect("a row");
        let batch = rows.finish().expect("rows");
        let shown = arrow::util::pretty::pretty_format_batches(&[batch]).expect("text").to_string();
        assert!(shown.contains("| 0 |   | 7 |") && shown.contains("| 0 | x | 0 |"), "{shown}");
    }
}
