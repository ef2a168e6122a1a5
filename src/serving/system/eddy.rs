//! `eddy_catalog`: what runs, how far it is, which files it has, what failed.

use super::Origin;
use super::table::{LazyTable, flag, int, long, maybe_text, schema, text, time, timestamptz};
use crate::failure::into_datafusion;
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::Result as DfResult;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use datafusion::scalar::ScalarValue;
use eddyline_protocol::plan::{EdgeFrom, Parallelism};
use eddyline_protocol::report::errors_schema;
use eddyline_protocol::{Catalog, FragmentGraph, Job, JobStatus};
use eddyline_store::{ScanOptions, Snapshot};
use eddyline_types::{Epoch, FragmentId, JobId, TableId, VNODE_COUNT, vnode};
use futures::StreamExt;
use std::sync::Arc;

/// All tables.
pub const NAMES: &[&str] = &[
    "jobs",
    "fragments",
    "shards",
    "state_tables",
    "freshness",
    "errors",
    "barriers",
    "sst_files",
    "compactions",
    "nodes",
    "sessions",
    "settings",
];

/// A table by its name.
pub(crate) fn table(origin: &Origin, name: &str) -> Option<Arc<dyn TableProvider>> {
    let origin = origin.clone();
    Some(match name {
        "jobs" => jobs(origin),
        "fragments" => fragments(origin),
        "shards" => shards(origin),
        "state_tables" => state_tables(origin),
        "freshness" => freshness(origin),
        "errors" => Arc::new(ErrorsTable { origin }),
        "barriers" => barriers(origin),
        "sst_files" => sst_files(origin),
        "compactions" => compactions(origin),
        "nodes" => nodes(origin),
        "sessions" => sessions(origin),
        "settings" => settings(origin),
        _ => return None,
    })
}

fn status(status: &JobStatus) -> (&'static str, Option<&str>) {
    match status {
        JobStatus::Creating => ("creating", None),
        JobStatus::Running => ("running", None),
        JobStatus::Quarantined { reason } => ("quarantined", Some(reason)),
    }
}

fn jobs(origin: Origin) -> Arc<dyn TableProvider> {
    let columns = schema(&[
        ("id", DataType::Int32),
        ("schema", DataType::Utf8),
        ("name", DataType::Utf8),
        ("kind", DataType::Utf8),
        ("status", DataType::Utf8),
        ("domain", DataType::Int32),
        ("parallelism", DataType::Int32),
        ("shards", DataType::Int32),
        ("rows_in", DataType::Int64),
        ("rows_out", DataType::Int64),
        ("errors", DataType::Int64),
        ("reason", DataType::Utf8),
        ("definition", DataType::Utf8),
        ("created_at", timestamptz()),
    ]);
    LazyTable::provider(columns, move |rows| {
        let catalog = origin.view.catalog();
        let (figures, domains) = (origin.system.job_figures(), origin.system.domains());
        for job in catalog.jobs.values() {
            let relation = catalog.relations.get(&job.id.into());
            let figure = figures.get(&job.id);
            let domain = domains.iter().find(|d| d.jobs.contains(&job.id));
            let (state, reason) = status(&job.status);
            rows.push(&[
                ("id", int(job.id.0 as i32)),
                ("schema", maybe_text(relation.map(|r| r.schema_name.clone()))),
                ("name", maybe_text(relation.map(|r| r.name.clone()))),
                ("kind", maybe_text(relation.map(|r| r.kind.name()))),
                ("status", text(state)),
                ("domain", ScalarValue::Int32(domain.map(|d| d.id.0 as i32))),
                ("parallelism", int(job.parallelism as i32)),
                ("shards", ScalarValue::Int32(figure.map(|f| f.shards as i32))),
                ("rows_in", figure.map_or(ScalarValue::Null, |f| long(f.rows_in))),
                ("rows_out", figure.map_or(ScalarValue::Null, |f| long(f.rows_out))),
                ("errors", figure.map_or(ScalarValue::Null, |f| long(f.errors))),
                ("reason", maybe_text(reason)),
                ("definition", maybe_text(relation.map(|r| r.definition.clone()))),
                ("created_at", relation.map_or(ScalarValue::Null, |r| time(r.created_ms))),
            ])?;
        }
        Ok(())
    })
}

/// How many shards a fragment has.
fn shard_count(job: &Job, graph: &FragmentGraph, catalog: &Catalog, parallelism: Parallelism) -> u32 {
    match parallelism {
        Parallelism::Single => 1,
        Parallelism::Default => job.parallelism.max(1),
        Parallelism::SameAs(edge) => {
            let from = graph.edges.iter().find(|e| e.id == edge).map(|e| e.from);
            match from {
                Some(EdgeFrom::Fragment(id)) => fragment_shards(catalog, id),
                Some(EdgeFrom::Relation(relation)) => catalog.output_of(relation).map_or(1, |id| fragment_shards(catalog, id)),
                None => 1,
            }
        }
    }
}

fn fragment_shards(catalog: &Catalog, id: FragmentId) -> u32 {
    let found = catalog.jobs.values().find_map(|j| j.graph.fragments.iter().find(|f| f.id == id).map(|f| (j, f)));
    found.map_or(1, |(job, fragment)| shard_count(job, &job.graph, catalog, fragment.parallelism))
}

fn fragments(origin: Origin) -> Arc<dyn TableProvider> {
    let columns = schema(&[
        ("id", DataType::Int32),
        ("job", DataType::Int32),
        ("operators", DataType::Utf8),
        ("shards", DataType::Int32),
        ("inputs", DataType::Utf8),
    ]);
    LazyTable::provider(columns, move |rows| {
        let catalog = origin.view.catalog();
        for job in catalog.jobs.values() {
            for fragment in &job.graph.fragments {
                let operators: Vec<&str> =
                    std::iter::once(fragment.head.name()).chain(fragment.chain.iter().map(|n| n.kind.name())).collect();
                let inputs: Vec<String> = job
                    .graph
                    .edges
                    .iter()
                    .filter(|e| e.to == fragment.id)
                    .map(|e| match e.from {
                        EdgeFrom::Fragment(id) => id.to_string(),
                        EdgeFrom::Relation(id) => format!("relation {id}"),
                    })
                    .collect();
                rows.push(&[
                    ("id", int(fragment.id.0 as i32)),
                    ("job", int(job.id.0 as i32)),
                    ("operators", text(operators.join(" -> "))),
                    ("shards", int(shard_count(job, &job.graph, &catalog, fragment.parallelism) as i32)),
                    ("inputs", text(inputs.join(", "))),
                ])?;
            }
        }
        Ok(())
    })
}

fn shards(origin: Origin) -> Arc<dyn TableProvider> {
    let columns = schema(&[
        ("job", DataType::Int32),
        ("fragment", DataType::Int32),
        ("shard", DataType::Int32),
        ("node", DataType::Int64),
        ("first_vnode", DataType::Int32),
        ("last_vnode", DataType::Int32),
    ]);
    LazyTable::provider(columns, move |rows| {
        let catalog = origin.view.catalog();
        let node = origin.system.nodes().first().map_or(0, |n| n.id);
        for job in catalog.jobs.values() {
            for fragment in &job.graph.fragments {
                let count = shard_count(job, &job.graph, &catalog, fragment.parallelism);
                for index in 0..count.min(VNODE_COUNT as u32) {
                    let range = if fragment.parallelism == Parallelism::Single { 0..1 } else { vnode::range_of_shard(index, count) };
                    rows.push(&[
                        ("job", int(job.id.0 as i32)),
                        ("fragment", int(fragment.id.0 as i32)),
                        ("shard", int(index as i32)),
                        ("node", long(node)),
                        ("first_vnode", int(range.start as i32)),
                        ("last_vnode", int(range.end as i32 - 1)),
                    ])?;
                }
            }
        }
        Ok(())
    })
}

fn state_tables(origin: Origin) -> Arc<dyn TableProvider> {
    let columns = schema(&[
        ("id", DataType::Int32),
        ("job", DataType::Int32),
        ("name", DataType::Utf8),
        ("key", DataType::Utf8),
        ("distribution", DataType::Utf8),
        ("columns", DataType::Utf8),
        ("committed_epoch", DataType::Int64),
        ("rows_in_files", DataType::Int64),
    ]);
    LazyTable::provider(columns, move |rows| {
        let (catalog, version) = (origin.view.catalog(), origin.system.version());
        let mut in_files: std::collections::BTreeMap<TableId, u64> = Default::default();
        for part in version.files().flat_map(|f| &f.tables) {
            *in_files.entry(part.table).or_default() += part.rows;
        }
        for job in catalog.jobs.values() {
            for table in &job.graph.tables {
                let name = |i: usize| table.schema.field(i).name().as_str();
                let key: Vec<&str> = table.key.iter().map(|k| name(k.column)).collect();
                let all: Vec<&str> = (0..table.schema.fields().len()).map(name).collect();
                rows.push(&[
                    ("id", int(table.id.0 as i32)),
                    ("job", int(job.id.0 as i32)),
                    ("name", text(&table.name)),
                    ("key", text(key.join(", "))),
                    ("distribution", text(key[..table.distribution].join(", "))),
                    ("columns", text(all.join(", "))),
                    ("committed_epoch", version.committed.get(&table.id).map_or(ScalarValue::Null, |e| long(e.0))),
                    ("rows_in_files", long(in_files.get(&table.id).copied().unwrap_or(0))),
                ])?;
            }
        }
        Ok(())
    })
}

fn freshness(origin: Origin) -> Arc<dyn TableProvider> {
    let columns = schema(&[
        ("job", DataType::Int32),
        ("name", DataType::Utf8),
        ("visible_epoch", DataType::Int64),
        ("durable_epoch", DataType::Int64),
        ("visible_time", timestamptz()),
        ("durable_time", timestamptz()),
        ("rollbacks", DataType::Int64),
    ]);
    LazyTable::provider(columns, move |rows| {
        let (catalog, frontiers) = (origin.view.catalog(), origin.view.frontiers());
        for (job, frontier) in &frontiers.jobs {
            let name = catalog.relations.get(&(*job).into()).map(|r| r.name.clone());
            rows.push(&[
                ("job", int(job.0 as i32)),
                ("name", maybe_text(name)),
                ("visible_epoch", long(frontier.collected.0)),
                ("durable_epoch", long(frontier.committed.0)),
                ("visible_time", time(frontier.collected.millis())),
                ("durable_time", time(frontier.committed.millis())),
                ("rollbacks", long(frontier.generation)),
            ])?;
        }
        Ok(())
    })
}

fn barriers(origin: Origin) -> Arc<dyn TableProvider> {
    let columns = schema(&[
        ("domain", DataType::Int32),
        ("epoch", DataType::Int64),
        ("kind", DataType::Utf8),
        ("injected_at", timestamptz()),
        ("rows", DataType::Int64),
        ("collect_us", DataType::Int64),
        ("upload_us", DataType::Int64),
        ("commit_us", DataType::Int64),
    ]);
    LazyTable::provider(columns, move |rows| {
        for b in origin.system.barriers() {
            let micros = |us: Option<u64>| us.map_or(ScalarValue::Null, long);
            rows.push(&[
                ("domain", int(b.domain.0 as i32)),
                ("epoch", long(b.epoch.0)),
                ("kind", text(b.kind)),
                ("injected_at", time(b.injected_ms)),
                ("rows", long(b.rows)),
                ("collect_us", micros(b.collect_us)),
                ("upload_us", micros(b.upload_us)),
                ("commit_us", micros(b.commit_us)),
            ])?;
        }
        Ok(())
    })
}

fn sst_files(origin: Origin) -> Arc<dyn TableProvider> {
    let columns = schema(&[
        ("object", DataType::Utf8),
        ("level", DataType::Int32),
        ("size_bytes", DataType::Int64),
        ("rows", DataType::Int64),
        ("tombstones", DataType::Int64),
        ("tables", DataType::Utf8),
        ("first_epoch", DataType::Int64),
        ("last_epoch", DataType::Int64),
    ]);
    LazyTable::provider(columns, move |rows| {
        let version = origin.system.version();
        for (level, files) in version.levels.iter().enumerate() {
            for file in files {
                let tables: Vec<String> = file.tables.iter().map(|t| t.table.to_string()).collect();
                rows.push(&[
                    ("object", text(&file.object)),
                    ("level", int(level as i32)),
                    ("size_bytes", long(file.size_bytes)),
                    ("rows", long(file.rows)),
                    ("tombstones", long(file.tombstones)),
                    ("tables", text(tables.join(", "))),
                    ("first_epoch", long(file.epochs.0.0)),
                    ("last_epoch", long(file.epochs.1.0)),
                ])?;
            }
        }
        Ok(())
    })
}

fn compactions(origin: Origin) -> Arc<dyn TableProvider> {
    let columns = schema(&[
        ("finished_at", timestamptz()),
        ("duration_ms", DataType::Int64),
        ("level", DataType::Int32),
        ("input_files", DataType::Int64),
        ("output_files", DataType::Int64),
        ("input_bytes", DataType::Int64),
        ("output_bytes", DataType::Int64),
    ]);
    LazyTable::provider(columns, move |rows| {
        for c in origin.system.compactions() {
            rows.push(&[
                ("finished_at", time(c.finished_ms)),
                ("duration_ms", long(c.duration_ms)),
                ("level", int(c.level as i32)),
                ("input_files", long(c.input_files)),
                ("output_files", long(c.output_files)),
                ("input_bytes", long(c.input_bytes)),
                ("output_bytes", long(c.output_bytes)),
            ])?;
        }
        Ok(())
    })
}

fn nodes(origin: Origin) -> Arc<dyn TableProvider> {
    let columns = schema(&[
        ("id", DataType::Int64),
        ("address", DataType::Utf8),
        ("roles", DataType::Utf8),
        ("state", DataType::Utf8),
        ("started_at", timestamptz()),
        ("version", DataType::Utf8),
    ]);
    LazyTable::provider(columns, move |rows| {
        for n in origin.system.nodes() {
            rows.push(&[
                ("id", long(n.id)),
                ("address", text(n.address)),
                ("roles", text(n.roles)),
                ("state", text(n.state)),
                ("started_at", time(n.started_ms)),
                ("version", text(n.version)),
            ])?;
        }
        Ok(())
    })
}

fn sessions(origin: Origin) -> Arc<dyn TableProvider> {
    let columns = schema(&[
        ("id", DataType::Int32),
        ("protocol", DataType::Utf8),
        ("user", DataType::Utf8),
        ("database", DataType::Utf8),
        ("peer", DataType::Utf8),
        ("started_at", timestamptz()),
        ("state", DataType::Utf8),
        ("statement", DataType::Utf8),
        ("active", DataType::Boolean),
    ]);
    LazyTable::provider(columns, move |rows| {
        for s in origin.system.sessions() {
            let active = s.state == "active";
            rows.push(&[
                ("id", int(s.id)),
                ("protocol", text(s.protocol)),
                ("user", text(s.user)),
                ("database", text(s.database)),
                ("peer", text(s.peer)),
                ("started_at", time(s.started_ms)),
                ("state", text(s.state)),
                ("statement", text(s.statement)),
                ("active", flag(active)),
            ])?;
        }
        Ok(())
    })
}

fn settings(origin: Origin) -> Arc<dyn TableProvider> {
    let columns = schema(&[("name", DataType::Utf8), ("value", DataType::Utf8), ("source", DataType::Utf8)]);
    LazyTable::provider(columns, move |rows| {
        for s in origin.system.settings() {
            rows.push(&[("name", text(s.name)), ("value", text(s.value)), ("source", text(s.source))])?;
        }
        Ok(())
    })
}

/// The errors tables of all jobs, one after the other, each at its job's visible epoch.
#[derive(Debug)]
struct ErrorsTable {
    origin: Origin,
}

#[async_trait]
impl TableProvider for ErrorsTable {
    fn schema(&self) -> SchemaRef {
        errors_schema()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let before = self.origin.view.frontiers();
        let snapshot = self.origin.store.snapshot();
        let catalog = self.origin.view.catalog();
        let read = |job: &Job| {
            let frontier = before.jobs.get(&JobId(job.id.0)).copied().unwrap_or_default();
            (job.graph.errors_table, frontier.collected.max(frontier.committed))
        };
        let tables = catalog.jobs.values().map(|job| read(job)).collect();
        let part = ErrorsPart { snapshot, tables, limit, schema: errors_schema() };
        Ok(Arc::new(StreamingTableExec::try_new(errors_schema(), vec![Arc::new(part)], projection, None, false, limit)?))
    }
}

struct ErrorsPart {
    snapshot: Snapshot,
    tables: Vec<(TableId, Epoch)>,
    limit: Option<usize>,
    schema: SchemaRef,
}

impl std::fmt::Debug for ErrorsPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ErrorsPart({} jobs)", self.tables.len())
    }
}

impl PartitionStream for ErrorsPart {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (snapshot, limit, schema) = (self.snapshot.clone(), self.limit, self.schema.clone());
        let rows = futures::stream::iter(self.tables.clone())
            .map(move |(table, epoch)| snapshot.scan(table, epoch, ScanOptions { limit, ..Default::default() }))
            .flatten()
            .map(move |batch| {
                let batch = batch.map_err(into_datafusion)?;
                Ok(RecordBatch::try_new(schema.clone(), batch.columns().to_vec())?)
            });
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), rows.boxed()))
    }
}
