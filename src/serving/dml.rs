//! What INSERT, UPDATE and DELETE write: computes the rows, checks NOT NULL, and evaluates RETURNING. Sends nothing.
//!
//! Rules, as in docs/sql.md: INSERT of a row whose primary key exists replaces it (the last one, when a statement has several); UPDATE and DELETE
//! read the table under its lock, so that what they read is what they change.

use crate::cancel::Cancel;
use crate::engine::Serving;
use crate::pin::ReadPoint;
use crate::query::QueryRun;
use crate::reader::RelationReader;
use arrow::array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt32Array, new_null_array};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow_row::{RowConverter, SortField};
use eddyline_expr::CompiledExpr;
use eddyline_expr::bound::BoundQuery;
use eddyline_protocol::control::DmlChanges;
use eddyline_protocol::plan::Expr;
use eddyline_protocol::{ColumnDef, Relation};
use eddyline_types::{Chunk, Error, ErrorKind, ObjectId, Result, SqlState};
use futures::TryStreamExt;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Rows of a chunk that is sent.
const CHUNK_ROWS: usize = 4096;

/// Which statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum DmlKind {
    Insert,
    Update,
    Delete,
}

/// A bound DML statement.
pub struct DmlRequest<'a> {
    /// The table.
    pub relation: ObjectId,
    /// Which statement.
    pub kind: DmlKind,
    /// INSERT: the new rows, all columns in storage order but the hidden row id. DELETE: the stored rows. UPDATE: the stored rows followed by the new ones.
    pub rows: &'a BoundQuery,
    /// Values of `$1`, `$2`, ...
    pub parameters: &'a [ArrayRef],
    /// Expressions over all columns of the relation, and the schema of their result.
    pub returning: Option<(&'a [Expr], &'a arrow::datatypes::SchemaRef)>,
    /// Ends it early.
    pub cancel: &'a Cancel,
}

/// What a DML statement writes and returns.
#[derive(Debug)]
pub struct DmlRows {
    /// For `DmlSink::write`.
    pub changes: DmlChanges,
    /// Rows inserted, updated or deleted, for the command tag.
    pub affected: u64,
    /// The rows of RETURNING.
    pub returning: Option<RecordBatch>,
}

/// One lock for each table that UPDATE or DELETE has touched.
#[derive(Default)]
pub struct TableLocks(Mutex<BTreeMap<ObjectId, Arc<tokio::sync::Mutex<()>>>>);

impl TableLocks {
    /// Waits for the table's lock. How long is bounded by the statement's timeout, which drops the call.
    pub async fn lock(&self, table: ObjectId) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock();
            // Locks that nobody holds or waits for are forgotten, so that dropped tables leave nothing behind.
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            locks.entry(table).or_default().clone()
        };
        lock.lock_owned().await
    }
}

/// Computes what a statement writes. At most `limit_bytes` of rows.
pub async fn compute(serving: &Serving, point: &ReadPoint, request: DmlRequest<'_>, limit_bytes: usize) -> Result<DmlRows> {
    let run = QueryRun { query: request.rows, parameters: request.parameters, cancel: request.cancel };
    let mut rows = serving.query(point, run).await?;
    let (mut batches, mut bytes) = (Vec::new(), 0);
    while let Some(batch) = rows.rows.try_next().await? {
        bytes += batch.get_array_memory_size();
        if bytes > limit_bytes {
            return Err(Error::new(
                ErrorKind::User,
                SqlState::OUT_OF_MEMORY,
                format!("statement changes more than {limit_bytes} bytes of rows"),
            )
            .with_hint("Split it into statements that change fewer rows each."));
        }
        batches.push(batch);
    }
    let all = concat_batches(&rows.schema, &batches)?;
    let relation = point.relation(request.relation)?.0;
    if request.kind == DmlKind::Update && !relation.key.is_empty() {
        check_keys_free(point, &relation, &all).await?;
    }
    from_rows(&relation, request.kind, all, request.returning)
}

/// An UPDATE that moves a row to the key of a row that it does not touch is refused.
async fn check_keys_free(point: &ReadPoint, relation: &Relation, rows: &RecordBatch) -> Result<()> {
    let width = relation.columns.len();
    let key = |from: usize| relation.key.iter().map(|c| rows.column(from + c).clone()).collect::<Vec<_>>();
    let (old, new) = (key(0), key(width));
    let (old_bytes, new_bytes) = (row_bytes(&old)?, row_bytes(&new)?);
    let vacated: HashSet<&[u8]> = (0..rows.num_rows()).map(|i| old_bytes.row(i).data()).collect();
    let moved: Vec<u32> = (0..rows.num_rows()).filter(|i| !vacated.contains(new_bytes.row(*i).data())).map(|i| i as u32).collect();
    if moved.is_empty() {
        return Ok(());
    }
    let reader = RelationReader::new(point, relation.id)?;
    let moved = arrow::compute::take_record_batch(rows, &UInt32Array::from(moved))?;
    let columns: Vec<ArrayRef> = reader.desc().key.iter().map(|k| moved.column(width + k.column).clone()).collect();
    if columns.iter().any(|c| c.logical_null_count() > 0) {
        return Ok(());
    }
    let keys = reader.desc().key_codec()?.encode(&columns, moved.num_rows())?;
    match reader.get(&keys, &[]).await?.0.first() {
        Some(taken) => {
            let values = RecordBatch::try_new(
                loose_schema(relation, &relation.key),
                relation.key.iter().map(|c| moved.column(width + c).clone()).collect(),
            )?;
            Err(duplicate_key(relation, &values, *taken))
        }
        None => Ok(()),
    }
}

/// The same for rows that are already there (COPY, REST): `rows` as for [`DmlRequest::rows`].
pub fn from_rows(
    relation: &Relation,
    kind: DmlKind,
    rows: RecordBatch,
    returning: Option<(&[Expr], &arrow::datatypes::SchemaRef)>,
) -> Result<DmlRows> {
    let affected = rows.num_rows() as u64;
    let width = relation.columns.len();
    let stored: Vec<usize> = (0..width).collect();
    let (changes, visible) = match kind {
        DmlKind::Insert => insert(relation, rows)?,
        DmlKind::Delete => {
            let rows = renamed(relation, &stored, &rows, 0)?;
            (DmlChanges { inserts: Vec::new(), changes: weighted(&rows, -1)? }, rows)
        }
        DmlKind::Update => update(relation, &rows)?,
    };
    let returning = match returning {
        Some((exprs, output)) => Some(evaluate(exprs, output, &visible)?),
        None => None,
    };
    Ok(DmlRows { changes, affected, returning })
}

/// The changes of an INSERT, and its rows with all columns of the relation for RETURNING (a row id is NULL there).
fn insert(relation: &Relation, rows: RecordBatch) -> Result<(DmlChanges, RecordBatch)> {
    let row_id = row_id_column(relation);
    let given: Vec<usize> = (0..relation.columns.len()).filter(|i| Some(*i) != row_id).collect();
    let rows = renamed(relation, &given, &rows, 0)?;
    check_not_null(relation, &given, &rows)?;
    let rows = match row_id {
        Some(_) => rows,
        None => last_of_each_key(relation, rows)?,
    };
    let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
    if let Some(position) = row_id {
        columns.insert(position, new_null_array(&relation.columns[position].data_type, rows.num_rows()));
    }
    let visible = RecordBatch::try_new(loose_schema(relation, &(0..relation.columns.len()).collect::<Vec<_>>()), columns)?;
    Ok((DmlChanges { inserts: weighted(&rows, 1)?, changes: Vec::new() }, visible))
}

/// The changes of an UPDATE: rows that do not change are left out.
fn update(relation: &Relation, rows: &RecordBatch) -> Result<(DmlChanges, RecordBatch)> {
    let width = relation.columns.len();
    let stored: Vec<usize> = (0..width).collect();
    let old = renamed(relation, &stored, rows, 0)?;
    let new = renamed(relation, &stored, rows, width)?;
    check_not_null(relation, &stored, &new)?;
    check_keys_differ(relation, &new)?;
    let changed = rows_that_differ(&old, &new)?;
    let mut changes = weighted(&filter_record_batch(&old, &changed)?, -1)?;
    changes.extend(weighted(&filter_record_batch(&new, &changed)?, 1)?);
    Ok((DmlChanges { inserts: Vec::new(), changes }, new))
}

/// The hidden row id, if the table has one.
fn row_id_column(relation: &Relation) -> Option<usize> {
    relation.columns.iter().position(|c| c.hidden && c.name == "_row_id")
}

/// Schema of some columns, all nullable: constraints are checked here, with better words than Arrow's.
fn loose_schema(relation: &Relation, columns: &[usize]) -> arrow::datatypes::SchemaRef {
    let columns: Vec<ColumnDef> = columns.iter().map(|i| ColumnDef { nullable: true, ..relation.columns[*i].clone() }).collect();
    eddyline_protocol::catalog::schema_of(&columns)
}

/// Columns `from..` of a result as the given columns of the relation.
fn renamed(relation: &Relation, columns: &[usize], rows: &RecordBatch, from: usize) -> Result<RecordBatch> {
    let arrays = rows.columns().get(from..from + columns.len());
    let arrays = arrays.ok_or_else(|| Error::internal(format!("a change of \"{}\" has {} columns", relation.name, rows.num_columns())))?;
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(loose_schema(relation, columns), arrays.to_vec(), &options)?)
}

fn weighted(rows: &RecordBatch, weight: i64) -> Result<Vec<Chunk>> {
    let mut chunks = Vec::new();
    for offset in (0..rows.num_rows()).step_by(CHUNK_ROWS) {
        let part = rows.slice(offset, CHUNK_ROWS.min(rows.num_rows() - offset));
        let weights = Int64Array::from(vec![weight; part.num_rows()]);
        chunks.push(Chunk::new(part, weights)?);
    }
    Ok(chunks)
}

/// NOT NULL and PRIMARY KEY: neither may hold NULL.
fn check_not_null(relation: &Relation, columns: &[usize], rows: &RecordBatch) -> Result<()> {
    for (array, position) in rows.columns().iter().zip(columns) {
        let column = &relation.columns[*position];
        let required = !column.nullable || relation.key.contains(position);
        if column.hidden || !required || array.logical_null_count() == 0 {
            continue;
        }
        let nulls = array.logical_nulls();
        let row = (0..array.len()).find(|i| nulls.as_ref().is_some_and(|n| n.is_null(*i))).unwrap_or(0);
        return Err(Error::user(
            SqlState::NOT_NULL_VIOLATION,
            format!("null value in column \"{}\" of relation \"{}\" violates not-null constraint", column.name, relation.name),
        )
        .with_detail(format!("Failing row contains ({}).", row_text(rows, row))));
    }
    Ok(())
}

fn row_text(rows: &RecordBatch, row: usize) -> String {
    let options = arrow::util::display::FormatOptions::new().with_null("null");
    let cell = |array: &ArrayRef| {
        let text = arrow::util::display::ArrayFormatter::try_new(array, &options).map(|f| f.value(row).to_string());
        text.unwrap_or_else(|_| "?".into())
    };
    rows.columns().iter().map(cell).collect::<Vec<_>>().join(", ")
}

fn row_bytes(columns: &[ArrayRef]) -> Result<arrow_row::Rows> {
    let fields = columns.iter().map(|c| SortField::new(c.data_type().clone())).collect();
    Ok(RowConverter::new(fields)?.convert_columns(columns)?)
}

/// Keeps the last row of each key: inside an epoch rows have no order, so a statement that has two for one key must decide by itself.
fn last_of_each_key(relation: &Relation, rows: RecordBatch) -> Result<RecordBatch> {
    if relation.key.is_empty() || rows.num_rows() < 2 {
        return Ok(rows);
    }
    let keys = row_bytes(&relation.key.iter().map(|i| rows.column(*i).clone()).collect::<Vec<_>>())?;
    let mut seen = HashSet::with_capacity(rows.num_rows());
    let mut kept: Vec<u32> = (0..rows.num_rows()).rev().filter(|i| seen.insert(keys.row(*i).data().to_vec())).map(|i| i as u32).collect();
    if kept.len() == rows.num_rows() {
        return Ok(rows);
    }
    kept.reverse();
    Ok(arrow::compute::take_record_batch(&rows, &UInt32Array::from(kept))?)
}

/// An UPDATE that gives two rows one key is refused, as in Postgres.
fn check_keys_differ(relation: &Relation, new: &RecordBatch) -> Result<()> {
    if relation.key.is_empty() {
        return Ok(());
    }
    let keys = row_bytes(&relation.key.iter().map(|i| new.column(*i).clone()).collect::<Vec<_>>())?;
    let mut seen = HashSet::with_capacity(new.num_rows());
    for i in 0..new.num_rows() {
        if !seen.insert(keys.row(i).data().to_vec()) {
            return Err(duplicate_key(relation, &new.project(&relation.key)?, i));
        }
    }
    Ok(())
}

/// 23505; `values` are key columns.
fn duplicate_key(relation: &Relation, values: &RecordBatch, row: usize) -> Error {
    let names: Vec<&str> = relation.key.iter().map(|c| relation.columns[*c].name.as_str()).collect();
    Error::user(SqlState::UNIQUE_VIOLATION, format!("duplicate key value violates unique constraint \"{}_pkey\"", relation.name))
        .with_detail(format!("Key ({})=({}) already exists.", names.join(", "), row_text(values, row)))
}

/// One set of changes of several statements of a transaction, in their order: inside an epoch rows have no order, so of several changes of one key
/// only what the last one leaves may remain. An INSERT comes after every UPDATE and DELETE of a block (those are refused after a change of their table).
pub fn merge(relation: &Relation, changes: DmlChanges) -> Result<DmlChanges> {
    if relation.key.is_empty() || changes.inserts.is_empty() {
        return Ok(changes);
    }
    let schema = changes.inserts[0].schema();
    let inserts = last_of_each_key(relation, concat_batches(&schema, changes.inserts.iter().map(|c| c.batch()))?)?;
    let key = |batch: &RecordBatch| row_bytes(&relation.key.iter().map(|i| batch.column(*i).clone()).collect::<Vec<_>>());
    let inserted = key(&inserts)?;
    let replaced: HashSet<&[u8]> = (0..inserts.num_rows()).map(|i| inserted.row(i).data()).collect();
    let mut kept = Vec::new();
    for chunk in changes.changes {
        let keys = key(chunk.batch())?;
        let mask: BooleanArray = (0..chunk.num_rows()).map(|i| Some(!replaced.contains(keys.row(i).data()))).collect();
        let chunk = chunk.filter(&mask)?;
        if !chunk.is_empty() {
            kept.push(chunk);
        }
    }
    Ok(DmlChanges { inserts: weighted(&inserts, 1)?, changes: kept })
}

fn rows_that_differ(old: &RecordBatch, new: &RecordBatch) -> Result<BooleanArray> {
    let (old, new) = (row_bytes(old.columns())?, row_bytes(new.columns())?);
    Ok((0..old.num_rows()).map(|i| Some(old.row(i).data() != new.row(i).data())).collect())
}

fn evaluate(exprs: &[Expr], output: &arrow::datatypes::SchemaRef, rows: &RecordBatch) -> Result<RecordBatch> {
    let mut columns = Vec::with_capacity(exprs.len());
    for expr in exprs {
        columns.push(CompiledExpr::compile(&expr.bytes, rows.schema_ref())?.evaluate_strict(rows)?);
    }
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(output.clone(), columns, &options)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};
    use eddyline_protocol::RelationKind;

    fn relation(key: Vec<usize>) -> Relation {
        let mut columns = vec![ColumnDef::new("k", DataType::Int64), ColumnDef::new("v", DataType::Utf8)];
        if key.is_empty() {
            columns.push(ColumnDef { hidden: true, nullable: false, ..ColumnDef::new("_row_id", DataType::Int64) });
        } else {
            columns[0].nullable = false;
        }
        Relation {
            id: ObjectId(1),
            schema_name: "public".into(),
            name: "t".into(),
            kind: RelationKind::Table,
            columns,
            key,
            append_only: false,
            spec: None,
            definition: String::new(),
            query: None,
            depends_on: Vec::new(),
            table: None,
            owner: "root".into(),
            created_ms: 0,
        }
    }

    fn batch(columns: Vec<ArrayRef>) -> RecordBatch {
        let fields: Vec<Field> =
            columns.iter().enumerate().map(|(i, c)| Field::new(format!("x{i}"), c.data_type().clone(), true)).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("columns fit")
    }

    fn longs(values: Vec<Option<i64>>) -> ArrayRef {
        Arc::new(Int64Array::from(values))
    }

    fn texts(values: Vec<Option<&str>>) -> ArrayRef {
        Arc::new(StringArray::from(values))
    }

    #[test]
    fn an_insert_keeps_the_last_row_of_a_key_and_counts_all() {
        let rows = batch(vec![longs(vec![Some(1), Some(2), Some(1)]), texts(vec![Some("a"), Some("b"), Some("c")])]);
        let out = from_rows(&relation(vec![0]), DmlKind::Insert, rows, None).expect("valid rows");
        assert_eq!(out.affected, 3);
        let chunk = &out.changes.inserts[0];
        assert_eq!(chunk.batch().columns(), [longs(vec![Some(2), Some(1)]), texts(vec![Some("b"), Some("c")])]);
        assert!(chunk.weights().is_none());
    }

    #[test]
    fn a_table_without_a_key_keeps_every_row_and_gets_no_row_id_here() {
        let rows = batch(vec![longs(vec![Some(1), Some(1), None]), texts(vec![Some("a"), Some("a"), None])]);
        let out = from_rows(&relation(vec![]), DmlKind::Insert, rows, None).expect("valid rows");
        assert_eq!(out.changes.inserts[0].num_rows(), 3);
        assert_eq!(out.changes.inserts[0].batch().num_columns(), 2);
    }

    #[test]
    fn nulls_in_a_key_are_refused_with_the_row() {
        let rows = batch(vec![longs(vec![Some(1), None]), texts(vec![Some("a"), Some("b")])]);
        let error = from_rows(&relation(vec![0]), DmlKind::Insert, rows, None).expect_err("NULL in a key");
        assert_eq!(error.sqlstate(), SqlState::NOT_NULL_VIOLATION);
        assert_eq!(error.detail(), Some("Failing row contains (null, b)."));
        assert_eq!(error.message(), "null value in column \"k\" of relation \"t\" violates not-null constraint");
    }

    #[test]
    fn an_update_writes_both_halves_of_what_changes() {
        let rows = batch(vec![
            longs(vec![Some(1), Some(2)]),
            texts(vec![Some("a"), Some("b")]),
            longs(vec![Some(1), Some(2)]),
            texts(vec![Some("a"), Some("z")]),
        ]);
        let out = from_rows(&relation(vec![0]), DmlKind::Update, rows, None).expect("valid rows");
        assert_eq!(out.affected, 2);
        let changes: Vec<(i64, i64)> = out
            .changes
            .changes
            .iter()
            .flat_map(|c| {
                let keys = c.column(0).as_any().downcast_ref::<Int64Array>().expect("longs").clone();
                (0..c.num_rows()).map(|i| (keys.value(i), c.weight(i))).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(changes, [(2, -1), (2, 1)]);
        let twice =
            batch(vec![longs(vec![Some(1), Some(2)]), texts(vec![None, None]), longs(vec![Some(3), Some(3)]), texts(vec![None, None])]);
        let error = from_rows(&relation(vec![0]), DmlKind::Update, twice, None).expect_err("two rows, one key");
        assert_eq!((error.sqlstate(), error.detail()), (SqlState::UNIQUE_VIOLATION, Some("Key (k)=(3) already exists.")));
    }

    #[test]
    fn merged_statements_leave_one_change_for_each_key() {
        let relation = relation(vec![0]);
        let insert = |k, v| {
            from_rows(&relation, DmlKind::Insert, batch(vec![longs(vec![Some(k)]), texts(vec![Some(v)])]), None).expect("valid").changes
        };
        let delete =
            from_rows(&relation, DmlKind::Delete, batch(vec![longs(vec![Some(1), Some(9)]), texts(vec![Some("a"), Some("i")])]), None);
        let mut all = delete.expect("valid").changes;
        for changes in [insert(1, "b"), insert(2, "x"), insert(1, "c")] {
            all.inserts.extend(changes.inserts);
        }
        let merged = merge(&relation, all).expect("merged");
        assert_eq!(merged.changes.len(), 1);
        assert_eq!(merged.changes[0].column(0), &longs(vec![Some(9)]));
        assert_eq!(merged.inserts[0].batch().columns(), [longs(vec![Some(2), Some(1)]), texts(vec![Some("x"), Some("c")])]);
    }

    #[tokio::test]
    async fn locks_serialise_and_are_forgotten() {
        let locks = TableLocks::default();
        let held = locks.lock(ObjectId(1)).await;
        assert!(tokio::time::timeout(std::time::Duration::from_millis(20), locks.lock(ObjectId(1))).await.is_err());
        let _other = locks.lock(ObjectId(2)).await;
        drop(held);
        let _again = locks.lock(ObjectId(1)).await;
        assert_eq!(locks.0.lock().len(), 2);
    }
}
