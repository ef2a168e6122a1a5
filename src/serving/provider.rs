//! A relation as a DataFusion table: projection, key ranges and limit are pushed into the scan; partitions are ranges of vnodes.

use crate::failure::into_datafusion;
use crate::key_range;
use crate::reader::{KeyRange, RelationReader};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::Result as DfResult;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use eddyline_types::{VNODE_COUNT, VNode, vnode};
use futures::StreamExt;
use std::sync::Arc;

/// See the module's documentation.
#[derive(Debug)]
pub struct RelationTable {
    reader: RelationReader,
}

impl RelationTable {
    /// A table over a reader.
    pub fn new(reader: RelationReader) -> Self {
        RelationTable { reader }
    }
}

#[async_trait]
impl TableProvider for RelationTable {
    fn schema(&self) -> SchemaRef {
        self.reader.schema().clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Filters narrow the key ranges and are still evaluated above the scan.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DfResult<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let columns = projection.cloned().unwrap_or_else(|| (0..self.reader.schema().fields().len()).collect());
        let schema = Arc::new(self.reader.schema().project(&columns)?);
        let mut partitions: Vec<Arc<dyn PartitionStream>> = Vec::new();
        for vnodes in shares(self.reader.desc().distribution, state.config().target_partitions()) {
            let ranges = key_range::ranges(self.reader.desc(), filters, vnodes).map_err(into_datafusion)?;
            if !ranges.is_empty() {
                partitions.push(Arc::new(Part {
                    reader: self.reader.clone(),
                    ranges,
                    columns: columns.clone(),
                    schema: schema.clone(),
                    limit,
                }));
            }
        }
        if partitions.is_empty() {
            return Ok(Arc::new(datafusion::physical_plan::empty::EmptyExec::new(schema)));
        }
        Ok(Arc::new(StreamingTableExec::try_new(schema, partitions, None, None, false, limit)?))
    }
}

/// The vnodes of each partition: all of a singleton are in one.
fn shares(distribution: usize, partitions: usize) -> Vec<std::ops::Range<VNode>> {
    if distribution == 0 {
        return vec![0..1];
    }
    let count = partitions.clamp(1, VNODE_COUNT) as u32;
    (0..count).map(|i| vnode::range_of_shard(i, count)).collect()
}

/// One partition of a scan.
#[derive(Debug)]
struct Part {
    reader: RelationReader,
    ranges: Vec<KeyRange>,
    columns: Vec<usize>,
    schema: SchemaRef,
    limit: Option<usize>,
}

impl PartitionStream for Part {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = match self.reader.scan(self.ranges.clone(), self.columns.clone(), self.limit) {
            Ok(rows) => rows.map(|batch| batch.map_err(into_datafusion)).boxed(),
            Err(e) => futures::stream::once(async { Err(into_datafusion(e)) }).boxed(),
        };
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), rows))
    }
}
