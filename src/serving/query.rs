//! Batch execution of a bound query with DataFusion over one read point.

use crate::cancel::Cancel;
use crate::failure::{from_datafusion, into_datafusion};
use crate::pin::ReadPoint;
use crate::provider::RelationTable;
use crate::reader::RelationReader;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::common::ParamValues;
use datafusion::common::tree_node::Transformed;
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, TableScan};
use datafusion::physical_plan::execute_stream;
use datafusion::scalar::ScalarValue;
use eddyline_expr::bound::{BoundQuery, RelationSource};
use eddyline_types::{Error, Result, SqlState};
use futures::stream::{BoxStream, StreamExt};

/// Rows of a query as they come; dropping the stream ends the query.
pub struct QueryRows {
    /// Names and types of the result.
    pub schema: SchemaRef,
    /// Batches with exactly that schema.
    pub rows: BoxStream<'static, Result<RecordBatch>>,
}

impl std::fmt::Debug for QueryRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "QueryRows({})", self.schema)
    }
}

/// What a query runs with.
pub struct QueryRun<'a> {
    /// The query.
    pub query: &'a BoundQuery,
    /// Values of `$1`, `$2`, ...: arrays of one row.
    pub parameters: &'a [ArrayRef],
    /// Ends it early.
    pub cancel: &'a Cancel,
}

/// One-row arrays as scalar values.
pub fn scalars(parameters: &[ArrayRef]) -> Result<Vec<ScalarValue>> {
    parameters
        .iter()
        .map(|array| match array.len() {
            1 => ScalarValue::try_from_array(array, 0).map_err(from_datafusion),
            n => Err(Error::user(SqlState::PROTOCOL_VIOLATION, format!("a parameter has {n} values"))),
        })
        .collect()
}

/// Starts a query. `state` has its memory pool, its parallelism and its time.
pub async fn run(state: SessionState, point: &ReadPoint, run: QueryRun<'_>) -> Result<QueryRows> {
    let plan = resolve(run.query.plan.clone(), point)?;
    let plan = bind_parameters(plan, run.parameters)?;
    let physical = run.cancel.race(async { state.create_physical_plan(&plan).await.map_err(from_datafusion) }).await?;
    let stream = execute_stream(physical, state.task_ctx()).map_err(from_datafusion)?;
    let schema = run.query.output.clone();
    Ok(QueryRows { schema: schema.clone(), rows: guarded(stream.map(|b| b.map_err(from_datafusion)).boxed(), schema, run.cancel.clone()) })
}

/// Gives every batch the promised schema and ends with an error when the statement is cancelled.
pub fn guarded(
    rows: BoxStream<'static, Result<RecordBatch>>,
    schema: SchemaRef,
    cancel: Cancel,
) -> BoxStream<'static, Result<RecordBatch>> {
    let state = (rows, schema, cancel, false);
    let guarded = futures::stream::unfold(state, |(mut rows, schema, cancel, ended)| async move {
        if ended {
            return None;
        }
        let next = tokio::select! {
            biased;
            reason = cancel.cancelled() => Some(Err(reason.error())),
            next = rows.next() => next,
        };
        let item = next?.and_then(|batch| conform(batch, &schema));
        let ended = item.is_err();
        Some((item, (rows, schema, cancel, ended)))
    });
    Box::pin(guarded)
}

/// The batch with exactly this schema. Types may differ in what the optimizer is free to choose (a view type, a time zone's spelling).
fn conform(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref() == schema {
        return Ok(batch);
    }
    if batch.num_columns() != schema.fields().len() {
        return Err(Error::internal(format!("query gave {} columns for {}", batch.num_columns(), schema.fields().len())));
    }
    let rows = batch.num_rows();
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (column, field) in batch.columns().iter().zip(schema.fields()) {
        columns.push(if column.data_type() == field.data_type() {
            column.clone()
        } else {
            arrow::compute::cast(column, field.data_type())?
        });
    }
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows));
    // Nullability is a promise of the planner that a result need not repeat: outer joins and parameters weaken it.
    match RecordBatch::try_new_with_options(schema.clone(), columns.clone(), &options) {
        Ok(batch) => Ok(batch),
        Err(e) => Err(Error::internal(format!("query result does not fit its description: {e}"))),
    }
}

/// Puts the values of `$1`, `$2`, ... into a plan.
pub fn bind_parameters(plan: LogicalPlan, parameters: &[ArrayRef]) -> Result<LogicalPlan> {
    if parameters.is_empty() {
        return Ok(plan);
    }
    let values = ParamValues::from(scalars(parameters)?);
    plan.replace_params_with_values(&values).map_err(from_datafusion)
}

/// Replaces the relations of a plan by scans at the point's epochs, in subqueries too.
pub fn resolve(plan: LogicalPlan, point: &ReadPoint) -> Result<LogicalPlan> {
    let resolved = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::TableScan(scan) = &node else { return Ok(Transformed::no(node)) };
        let Some(source) = scan.source.downcast_ref::<RelationSource>() else { return Ok(Transformed::no(node)) };
        let reader = RelationReader::new(point, source.relation).map_err(into_datafusion)?;
        if reader.schema().fields() != source.schema.fields() {
            return Err(into_datafusion(Error::new(
                eddyline_types::ErrorKind::Conflict,
                SqlState::SERIALIZATION_FAILURE,
                "a relation of the statement was changed meanwhile",
            )));
        }
        let source = provider_as_source(std::sync::Arc::new(RelationTable::new(reader)));
        Ok(Transformed::yes(LogicalPlan::TableScan(TableScan { source, ..scan.clone() })))
    });
    Ok(resolved.map_err(from_datafusion)?.data)
}
