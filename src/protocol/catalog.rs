//! The catalog: what exists. Replicated by Raft, read everywhere as an immutable snapshot.

use crate::plan::FragmentGraph;
use crate::table::TableDesc;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use eddyline_types::{FragmentId, JobId, ObjectId, TableId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The schema (namespace) of user relations unless they name another.
pub const DEFAULT_SCHEMA: &str = "public";

/// One column of a relation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnDef {
    /// Name, as folded or quoted.
    pub name: String,
    /// Arrow type; the SQL name is derived (types are listed in docs/sql.md).
    pub data_type: DataType,
    /// NULL is allowed.
    pub nullable: bool,
    /// Not shown by `SELECT *`, DESCRIBE or `\d`: row ids and other internal keys.
    pub hidden: bool,
    /// SQL text of the default, if any.
    pub default: Option<String>,
    /// SQL text of the generating expression, if any.
    pub generated: Option<String>,
}

impl ColumnDef {
    /// A visible, nullable column.
    pub fn new(name: impl Into<String>, data_type: DataType) -> Self {
        ColumnDef { name: name.into(), data_type, nullable: true, hidden: false, default: None, generated: None }
    }
}

/// What a relation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum RelationKind {
    Source,
    Table,
    View,
    MaterializedView,
    Sink,
}

impl RelationKind {
    /// As error messages and SHOW say it.
    pub fn name(self) -> &'static str {
        match self {
            RelationKind::Source => "source",
            RelationKind::Table => "table",
            RelationKind::View => "view",
            RelationKind::MaterializedView => "materialized view",
            RelationKind::Sink => "sink",
        }
    }
}

/// How a source or sink is connected: `WITH (...) FORMAT f ENCODE e (...)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSpec {
    /// `connector` among the options: `datagen`, `nexmark`, `file`, `blackhole`.
    pub connector: String,
    /// All options of WITH, names folded to lower case.
    pub options: BTreeMap<String, String>,
    /// `plain`, `upsert`, ... lower case.
    pub format: String,
    /// `json`, `csv`, `parquet`, ... lower case.
    pub encode: String,
    /// Options after ENCODE: `header`, `delimiter`, `null`, ...
    pub encode_options: BTreeMap<String, String>,
    /// The columns that the connector fills (row id and generated columns are not among them).
    pub columns: Vec<ColumnDef>,
}

/// An entry of the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relation {
    /// Unique, never reused; the number of its job too.
    pub id: ObjectId,
    /// Namespace.
    pub schema_name: String,
    /// Name.
    pub name: String,
    /// What it is.
    pub kind: RelationKind,
    /// All columns, hidden ones included, in storage order.
    pub columns: Vec<ColumnDef>,
    /// The user's primary key (positions), or the derived key of a materialized view.
    pub key: Vec<usize>,
    /// Rows are never changed or removed.
    pub append_only: bool,
    /// Connector, for sources, sinks and tables that have one.
    pub spec: Option<SourceSpec>,
    /// The statement as typed.
    pub definition: String,
    /// The query of a view, materialized view or sink, as SQL text.
    pub query: Option<String>,
    /// Relations that this one reads.
    pub depends_on: Vec<ObjectId>,
    /// The table that readers scan (tables and materialized views).
    pub table: Option<TableId>,
    /// Who owns it.
    pub owner: String,
    /// Milliseconds since the Unix epoch.
    pub created_ms: u64,
}

impl Relation {
    /// Schema of all columns.
    pub fn schema(&self) -> SchemaRef {
        schema_of(&self.columns)
    }

    /// Whether it has a job (views and sources are only names).
    pub fn has_job(&self) -> bool {
        match self.kind {
            RelationKind::Table | RelationKind::MaterializedView | RelationKind::Sink => true,
            RelationKind::Source | RelationKind::View => false,
        }
    }
}

/// Arrow schema of columns.
pub fn schema_of(columns: &[ColumnDef]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|c| Field::new(&c.name, c.data_type.clone(), c.nullable)).collect::<Vec<_>>()))
}

/// Where a job is in its life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobStatus {
    /// Backfilling; not visible to readers; gone after a crash.
    Creating,
    /// Visible.
    Running,
    /// Its domain failed repeatedly: the last commit is readable, DROP works.
    Quarantined {
        /// The error that ended the last attempt.
        reason: String,
    },
}

/// What runs for a relation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The number of the relation.
    pub id: JobId,
    /// Where it is in its life.
    pub status: JobStatus,
    /// Number of shards of its parallel fragments.
    pub parallelism: u32,
    /// What it runs.
    pub graph: Arc<FragmentGraph>,
}

/// Everything that exists, at one applied index of the Raft log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalog {
    /// Grows with every change.
    pub version: u64,
    /// All relations, those being created included.
    pub relations: BTreeMap<ObjectId, Arc<Relation>>,
    /// Their jobs.
    pub jobs: BTreeMap<JobId, Arc<Job>>,
    /// Namespaces besides the system's.
    pub schemas: Vec<String>,
}

impl Catalog {
    /// A visible relation by name (not one that is still being created).
    pub fn find(&self, schema_name: &str, name: &str) -> Option<&Arc<Relation>> {
        self.relations.values().find(|r| r.schema_name == schema_name && r.name == name && self.is_visible(r.id))
    }

    /// Any relation by name, those being created included: names must be unique among all.
    pub fn find_any(&self, schema_name: &str, name: &str) -> Option<&Arc<Relation>> {
        self.relations.values().find(|r| r.schema_name == schema_name && r.name == name)
    }

    /// Whether readers may see the relation.
    pub fn is_visible(&self, id: ObjectId) -> bool {
        self.jobs.get(&id.into()).is_none_or(|j| j.status != JobStatus::Creating)
    }

    /// Relations that read the given one directly.
    pub fn dependents(&self, id: ObjectId) -> impl Iterator<Item = &Arc<Relation>> {
        self.relations.values().filter(move |r| r.depends_on.contains(&id))
    }

    /// A state table of any job.
    pub fn table(&self, id: TableId) -> Option<&TableDesc> {
        self.jobs.values().find_map(|j| j.graph.table(id))
    }

    /// The fragment that other jobs attach to.
    pub fn output_of(&self, id: ObjectId) -> Option<FragmentId> {
        self.jobs.get(&id.into()).and_then(|j| j.graph.output)
    }
}
