//! What the front end gives: parsed statements, and bound statements that say exactly what is to be done.
//!
//! A bound statement holds ids and plans of one catalog snapshot: who keeps it longer (a prepared statement) binds again when
//! [`Catalog::version`] has changed. The relation that a CREATE statement makes has no id yet: wherever its id is due, in
//! the relation, in its graph and in its own table number, [`NEW_RELATION`] or a local number stands, for meta to replace.

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, TableSource, WindowUDF};
use datafusion::scalar::ScalarValue;
use eddyline_expr::bound::BoundQuery;
use eddyline_protocol::plan::Expr;
use eddyline_protocol::{Catalog, FragmentGraph, Relation, RelationKind};
use eddyline_types::ObjectId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Stands for the relation being created: in `Relation::id`, and in `Source`, `Dml`, `Materialize` and `Sink` of its graph.
pub const NEW_RELATION: ObjectId = ObjectId(0);

/// Name of the hidden column that is the key of rows that have none.
pub const ROW_ID: &str = "_row_id";

/// One statement of a text: syntactically right, not yet looked up in a catalog.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// Its own text, without the semicolon.
    pub text: String,
    /// Characters before it in the whole text; error positions count from the start of the whole text.
    pub offset: u32,
    pub(crate) tree: crate::parse::Tree,
    pub(crate) positions: Arc<crate::parse::Positions>,
}

/// What names and settings mean while a statement is bound.
#[derive(Clone, Copy)]
pub struct BindContext<'a> {
    /// What exists.
    pub catalog: &'a Catalog,
    /// Schemas in which unqualified names are looked up, in order; the first is where CREATE puts things. `pg_catalog` is always searched too.
    pub search_path: &'a [String],
    /// The session's user; owner of what it creates.
    pub user: &'a str,
    /// The session's database; a name's first part of three must be it.
    pub database: &'a str,
    /// Settings of the session, names in lower case; what binding depends on has defaults.
    pub settings: &'a BTreeMap<String, String>,
    /// Tables and functions of the system's schemas.
    pub system: &'a dyn SystemTables,
}

/// System relations and functions that are not the planner's own.
pub trait SystemTables: Send + Sync {
    /// A table of `pg_catalog`, `information_schema` or `eddy_catalog`; `None`: no such table.
    fn table(&self, schema: &str, name: &str) -> Option<Arc<dyn TableSource>>;

    /// Names of all tables of a system schema, for hints; may be empty.
    fn table_names(&self, schema: &str) -> Vec<String> {
        let _ = schema;
        Vec::new()
    }

    /// A scalar function such as `current_schema` or `pg_get_userbyid`, name in lower case and without schema. Only for queries, not for views.
    fn scalar_function(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        let _ = name;
        None
    }

    /// See `scalar_function`.
    fn aggregate_function(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        let _ = name;
        None
    }

    /// See `scalar_function`.
    fn window_function(&self, name: &str) -> Option<Arc<WindowUDF>> {
        let _ = name;
        None
    }
}

/// A [`SystemTables`] without any, for tests and for planning views.
pub struct NoSystemTables;

impl SystemTables for NoSystemTables {
    fn table(&self, _: &str, _: &str) -> Option<Arc<dyn TableSource>> {
        None
    }
}

/// A statement, ready to be carried out.
#[derive(Clone, Debug)]
pub enum Bound {
    /// CREATE SOURCE, TABLE, VIEW, MATERIALIZED VIEW, SINK.
    CreateRelation(Box<CreateRelation>),
    /// CREATE SCHEMA.
    CreateSchema { name: String, if_not_exists: bool },
    /// DROP SCHEMA; refused at binding if it is not empty and `cascade` was not said; with it, `relations` go first.
    DropSchema { name: String, relations: Vec<ObjectId> },
    /// DROP of relations.
    Drop(DropRelations),
    /// SELECT, VALUES, SHOW TABLES, DESCRIBE and what else gives rows.
    Query(Box<SelectQuery>),
    /// INSERT, UPDATE, DELETE.
    Dml(Box<Dml>),
    /// `COPY table FROM STDIN`: rows follow over the connection.
    CopyIn(Box<CopyIn>),
    /// `COPY (query) TO STDOUT`.
    CopyOut { query: Box<SelectQuery>, options: CopyOptions },
    /// EXPLAIN: the answer, one line each, in a column `QUERY PLAN`.
    Explain(Vec<String>),
    /// SET name = value (`None`: DEFAULT); `local`: until the end of the transaction.
    SetVariable { name: String, value: Option<String>, local: bool },
    /// SHOW name; `all`: SHOW ALL.
    ShowVariable { name: String },
    /// RESET name; `None`: RESET ALL.
    ResetVariable { name: Option<String> },
    /// FLUSH: returns when everything written before is committed.
    Flush,
    /// BEGIN, START TRANSACTION.
    Begin { read_only: bool },
    /// COMMIT, END.
    Commit,
    /// ROLLBACK, ABORT.
    Rollback,
    /// PREPARE name (types) AS statement; bound when executed.
    Prepare { name: String, types: Vec<DataType>, statement: Box<Parsed> },
    /// EXECUTE name (values).
    Execute { name: String, values: Vec<ScalarValue> },
    /// DEALLOCATE name; `None`: all.
    Deallocate { name: Option<String> },
    /// DECLARE name CURSOR FOR query.
    Declare { name: String, query: Box<SelectQuery>, hold: bool },
    /// FETCH count FROM name; `None`: all.
    Fetch { name: String, count: Option<u64> },
    /// CLOSE name; `None`: all.
    Close { name: Option<String> },
    /// DISCARD ALL and other statements that only change the session: the command tag to answer with.
    Discard,
    /// A statement that is accepted and does nothing; the command tag to answer with.
    Nothing { tag: &'static str },
}

/// A relation to be created.
#[derive(Clone, Debug)]
pub struct CreateRelation {
    /// With id [`NEW_RELATION`], `table` numbered within `graph`, and `created_ms` 0.
    pub relation: Relation,
    /// What it runs; `None` for sources and views.
    pub graph: Option<FragmentGraph>,
    /// `IF NOT EXISTS` was said and a relation of that name exists: there is nothing to do but to tell so.
    pub exists: bool,
    /// `IF NOT EXISTS` was said: a race that makes it exist meanwhile is no error.
    pub if_not_exists: bool,
    /// For the client.
    pub notices: Vec<String>,
}

/// Relations to be dropped together.
#[derive(Clone, Debug)]
pub struct DropRelations {
    /// What was named, for the command tag.
    pub kind: RelationKind,
    /// What goes, dependents before what they depend on. May be empty (IF EXISTS).
    pub relations: Vec<ObjectId>,
    /// CASCADE was said: what came to depend on them meanwhile goes too.
    pub cascade: bool,
    /// For the client: what was skipped, what cascades.
    pub notices: Vec<String>,
}

/// A query that gives rows.
#[derive(Clone, Debug)]
pub struct SelectQuery {
    /// Plan and result columns.
    pub query: BoundQuery,
    /// Types of `$1`, `$2`, ...: given, inferred, or text when nothing says.
    pub parameters: Vec<DataType>,
    /// The same query as a read of one key or key prefix, when it is one.
    pub lookup: Option<Lookup>,
    /// User relations that the query reads, views expanded, without duplicates.
    pub reads: Vec<ObjectId>,
    /// Command tag without the row count: `SELECT`, `SHOW`.
    pub tag: &'static str,
}

/// `SELECT columns FROM relation WHERE k1 = v1 AND k2 = v2`, with `k1, k2` a prefix of the table's storage key that covers its distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Lookup {
    /// A table or materialized view.
    pub relation: ObjectId,
    /// Values of the first key columns of its `TableDesc`, each of the column's type. A NULL value means: no rows.
    pub key: Vec<LookupValue>,
    /// Whether `key` is the whole key: at most one row.
    pub whole_key: bool,
    /// Columns of the relation (storage positions) that are the output, in order.
    pub columns: Vec<usize>,
    /// At most so many rows.
    pub limit: Option<usize>,
}

/// A value of a lookup key.
#[derive(Clone, Debug, PartialEq)]
pub enum LookupValue {
    /// Known.
    Constant(ScalarValue),
    /// `$n`, 0-based; `SelectQuery::parameters` gives it the column's type.
    Parameter(usize),
}

/// What a DML statement does.
#[derive(Clone, Debug)]
pub struct Dml {
    /// The table.
    pub relation: ObjectId,
    /// Which statement.
    pub kind: DmlKind,
    /// INSERT: the new rows, all columns in storage order but the hidden row id. DELETE: the stored rows, hidden columns included.
    /// UPDATE: the stored rows, and after them the new ones in the same row (so twice as many columns). Types are those of the table;
    /// NOT NULL is for who writes to check (`Relation::columns`).
    pub rows: BoundQuery,
    /// Types of `$1`, `$2`, ...
    pub parameters: Vec<DataType>,
    /// RETURNING.
    pub returning: Option<Returning>,
    /// User relations that `rows` reads.
    pub reads: Vec<ObjectId>,
}

/// Which DML statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum DmlKind {
    Insert,
    Update,
    Delete,
}

/// RETURNING: expressions over the row as stored (UPDATE: the new one; INSERT: with a NULL row id).
#[derive(Clone, Debug)]
pub struct Returning {
    /// Over all columns of the relation, hidden ones included; parameters are not allowed in them.
    pub exprs: Vec<Expr>,
    /// Names and types.
    pub output: SchemaRef,
}

/// Rows that follow a COPY statement.
#[derive(Clone, Debug)]
pub struct CopyIn {
    /// The table.
    pub relation: ObjectId,
    /// The columns that are sent, in order (storage positions); the others get their defaults.
    pub columns: Vec<usize>,
    /// For each column of the table but the hidden row id: an expression over the sent columns (a column, or a default).
    pub exprs: Vec<Expr>,
    /// How they are written.
    pub options: CopyOptions,
}

/// Format of COPY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOptions {
    /// CSV, else Postgres' text format.
    pub csv: bool,
    /// A header line (CSV and text).
    pub header: bool,
    /// Between fields.
    pub delimiter: char,
    /// The text that is NULL.
    pub null: String,
    /// Quotes a field (CSV).
    pub quote: char,
    /// Escapes a quote (CSV).
    pub escape: char,
}
