//! Base tables and sources: what runs for a table, and what a view sees of a connector.

use super::fragment::Builder;
use super::lower::project_plan;
use super::plan::{Dist, Op, StreamPlan, column_expr};
use super::{MAIN_TABLE, lower};
use crate::bind::{Binder, parse_stored_expr};
use crate::encode::encode_expr;
use crate::statement::{NEW_RELATION, NoSystemTables, ROW_ID};
use arrow::datatypes::{DataType, Field};
use datafusion::common::DFSchema;
use datafusion::logical_expr::Expr as Logical;
use eddyline_expr::errors::from_datafusion;
use eddyline_protocol::plan::{MaterializeMode, MaterializeNode, Parallelism};
use eddyline_protocol::{Catalog, FragmentGraph, Head, NodeKind, Relation};
use eddyline_types::{Error, Result, SqlState};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Checks that generated columns can be computed from the others.
pub(crate) fn check_generated(binder: &Binder<'_>, relation: &Relation) -> Result<()> {
    let base = DFSchema::try_from(relation.schema().as_ref().clone()).map_err(from_datafusion)?;
    for column in &relation.columns {
        let Some(text) = &column.generated else { continue };
        let expr = binder.assigned(&parse_stored_expr(text)?, &base, column)?;
        lower::check(&expr)?;
        for used in expr.column_refs() {
            let refers = relation.columns.iter().find(|c| c.name == used.name).is_some_and(|c| c.generated.is_some());
            if refers {
                return Err(Error::user(
                    SqlState::INVALID_OBJECT_DEFINITION,
                    format!("cannot use generated column \"{}\" in column generation expression", used.name),
                )
                .with_detail("A generated column cannot reference another generated column."));
            }
        }
    }
    Ok(())
}

/// The rows of a connector with all visible columns, and a row id if `need_key`.
pub(crate) fn source_plan(relation: &Arc<Relation>, need_key: bool) -> Result<StreamPlan> {
    let spec = relation.spec.as_ref().ok_or_else(|| Error::internal(format!("{} has no connector", relation.name)))?;
    let mut schema: Vec<Field> = spec.columns.iter().map(|c| Field::new(&c.name, c.data_type.clone(), c.nullable)).collect();
    let read = schema.len();
    if need_key {
        schema.push(Field::new(ROW_ID, DataType::Int64, false));
    }
    let source = StreamPlan {
        op: Op::Source { relation: relation.clone(), row_id: need_key },
        inputs: Vec::new(),
        schema,
        key: need_key.then(|| vec![read]),
        append_only: true,
        dist: Dist::Any,
    };
    if relation.columns.iter().all(|c| c.generated.is_none()) {
        return Ok(source);
    }
    let base = DFSchema::try_from(source.arrow_schema().as_ref().clone()).map_err(from_datafusion)?;
    let catalog = Catalog::default();
    let (mut exprs, mut plain, mut fields) = (Vec::new(), Vec::new(), Vec::new());
    for column in relation.columns.iter().filter(|c| !c.hidden) {
        let field = Field::new(&column.name, column.data_type.clone(), column.nullable);
        match &column.generated {
            None => {
                let position = spec.columns.iter().position(|c| c.name == column.name);
                let position = position.ok_or_else(|| Error::internal(format!("column {} is not read", column.name)))?;
                exprs.push(column_expr(position, &source.schema[position])?);
                plain.push(Some(position));
            }
            Some(text) => {
                let expr = stored_expr(text, &base, column, &catalog)?;
                exprs.push(encode_expr(&expr, &base)?);
                plain.push(None);
            }
        }
        fields.push(field);
    }
    project_plan(source, exprs, plain, fields, need_key)
}

/// A generating expression, planned without a session.
fn stored_expr(text: &str, schema: &DFSchema, column: &eddyline_protocol::ColumnDef, catalog: &Catalog) -> Result<Logical> {
    let parsed = crate::parse::parse("SELECT 1")?.pop().ok_or_else(|| Error::internal("an empty query"))?;
    let settings = BTreeMap::new();
    let context =
        crate::statement::BindContext { catalog, search_path: &[], user: "", database: "", settings: &settings, system: &NoSystemTables };
    Binder::new(&parsed, &context, &[], true).assigned(&parse_stored_expr(text)?, schema, column)
}

/// The job of a table: what INSERT sends and what its connector reads, spread by the key, into the table.
pub(crate) fn plan_table(_binder: &Binder<'_>, relation: &Relation) -> Result<FragmentGraph> {
    let mut builder = Builder::new(relation);
    let stored = relation.schema();
    let has_row_id = relation.columns.last().is_some_and(|c| c.hidden);
    let visible = relation.columns.iter().filter(|c| !c.hidden).count();
    let head_schema = Arc::new(stored.project(&(0..visible).collect::<Vec<_>>())?);
    // One shard: the changes of a session keep their order.
    let mut dml = builder.begin(head_schema, Parallelism::Single, |_, _| Ok((Head::Dml { relation: NEW_RELATION }, None)))?;
    if has_row_id {
        builder.push(&mut dml, NodeKind::RowId, stored.clone());
    }
    let mut feeds = vec![builder.close(dml)];
    if relation.spec.is_some() {
        let source = source_plan(&Arc::new(relation.clone()), has_row_id)?;
        let open = builder.open(&source)?;
        feeds.push(builder.close(open));
    }
    let mut open = builder.receive(&feeds, stored.clone(), relation.key.clone())?;
    builder.push_table(MAIN_TABLE, relation.name.clone(), stored.clone(), relation.key.clone(), relation.key.len());
    // Rows that are only ever added, each with an id of its own, cannot meet an older one.
    let mode = if relation.append_only && has_row_id { MaterializeMode::Keyed } else { MaterializeMode::Overwrite };
    let node = MaterializeNode { relation: NEW_RELATION, table: MAIN_TABLE, mode };
    builder.push(&mut open, NodeKind::Materialize(node), stored);
    let output = builder.close(open);
    Ok(builder.finish(Some(output)))
}
