//! SHOW of relations, jobs and definitions, DESCRIBE: rows made from the catalog snapshot.

use super::Binder;
use crate::parse::ShowTree;
use crate::statement::{Bound, SelectQuery};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::DFSchema;
use datafusion::logical_expr::{EmptyRelation, Expr, LogicalPlan, LogicalPlanBuilder, lit};
use eddyline_expr::bound::BoundQuery;
use eddyline_expr::{errors::from_datafusion, pg_types};
use eddyline_protocol::{JobStatus, Relation};
use eddyline_types::{Error, Result, SqlState};
use regex::Regex;
use std::sync::Arc;

pub(super) fn bind_show(binder: &Binder<'_>, tree: &ShowTree) -> Result<Bound> {
    let catalog = binder.context.catalog;
    match tree {
        ShowTree::Relations { kind, schema, like } => {
            let like = like.as_deref().map(like_pattern).transpose()?;
            let in_path = |s: &str| match schema {
                Some(schema) => s == schema,
                None => binder.context.search_path.iter().any(|p| p == s),
            };
            if let Some(schema) = schema
                && !binder.schema_exists(schema)
            {
                return Err(Error::user(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{schema}\" does not exist")));
            }
            let mut names: Vec<Vec<String>> = catalog
                .relations
                .values()
                .filter(|r| r.kind == *kind && in_path(&r.schema_name) && catalog.is_visible(r.id))
                .filter(|r| like.as_ref().is_none_or(|l| l.is_match(&r.name)))
                .map(|r| vec![r.name.clone()])
                .collect();
            names.sort();
            rows(&["Name"], names)
        }
        ShowTree::Jobs => {
            let creating = catalog.jobs.values().filter(|j| j.status == JobStatus::Creating);
            let rows_ = creating
                .filter_map(|j| catalog.relations.get(&j.id.into()))
                .map(|r| vec![r.id.to_string(), r.definition.clone(), "creating".to_string()])
                .collect();
            rows(&["Id", "Statement", "Progress"], rows_)
        }
        ShowTree::Schemas => {
            let mut names: Vec<String> = catalog.schemas.clone();
            names.push(eddyline_protocol::catalog::DEFAULT_SCHEMA.to_string());
            names.extend(super::names::SYSTEM_SCHEMAS.map(str::to_string));
            names.sort();
            names.dedup();
            rows(&["Name"], names.into_iter().map(|n| vec![n]).collect())
        }
        ShowTree::Databases => rows(&["Name"], vec![vec![binder.context.database.to_string()]]),
        ShowTree::Nothing => rows(&["Name"], Vec::new()),
        ShowTree::Create { kind, name } => {
            let relation = binder.relation(name)?;
            if relation.kind != *kind {
                return Err(Error::user(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" is not a {}", relation.name, kind.name())));
            }
            let full = format!("{}.{}", relation.schema_name, relation.name);
            rows(&["Name", "Create Sql"], vec![vec![full, relation.definition.clone()]])
        }
        ShowTree::Columns { name } => {
            let relation = binder.relation(name)?;
            rows(&["Name", "Type", "Is Hidden", "Description"], describe(&relation))
        }
    }
}

fn describe(relation: &Relation) -> Vec<Vec<String>> {
    let mut out: Vec<Vec<String>> = relation
        .columns
        .iter()
        .filter(|c| !c.hidden)
        .map(|c| {
            let mut notes = Vec::new();
            if !c.nullable {
                notes.push("not null".to_string());
            }
            if let Some(default) = &c.default {
                notes.push(format!("default {default}"));
            }
            if let Some(generated) = &c.generated {
                notes.push(format!("generated always as ({generated})"));
            }
            vec![c.name.clone(), pg_types::name(&c.data_type), "false".to_string(), notes.join(", ")]
        })
        .collect();
    let key: Vec<&str> =
        relation.key.iter().filter_map(|k| relation.columns.get(*k)).filter(|c| !c.hidden).map(|c| c.name.as_str()).collect();
    if !key.is_empty() {
        out.push(vec!["primary key".into(), key.join(", "), String::new(), String::new()]);
    }
    out
}

/// A query that gives text rows.
fn rows(names: &[&str], rows: Vec<Vec<String>>) -> Result<Bound> {
    let schema = Arc::new(Schema::new(names.iter().map(|n| Field::new(*n, DataType::Utf8, true)).collect::<Vec<_>>()));
    let plan = if rows.is_empty() {
        let schema = DFSchema::try_from(schema.as_ref().clone()).map_err(from_datafusion)?;
        LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema: Arc::new(schema) })
    } else {
        let values = rows.into_iter().map(|r| r.into_iter().map(lit).collect()).collect();
        let columns: Vec<Expr> = names
            .iter()
            .enumerate()
            .map(|(i, n)| Expr::Column(datafusion::common::Column::new_unqualified(format!("column{}", i + 1))).alias(*n))
            .collect();
        LogicalPlanBuilder::values(values).and_then(|b| b.project(columns)).and_then(|b| b.build()).map_err(from_datafusion)?
    };
    let query = BoundQuery { plan, output: schema };
    Ok(Bound::Query(Box::new(SelectQuery { query, parameters: Vec::new(), lookup: None, reads: Vec::new(), tag: "SHOW" })))
}

fn like_pattern(like: &str) -> Result<Regex> {
    let mut pattern = String::from("(?s)^");
    for c in like.chars() {
        match c {
            '%' => pattern.push_str(".*"),
            '_' => pattern.push('.'),
            other => pattern.push_str(&regex::escape(&other.to_string())),
        }
    }
    pattern.push('$');
    Regex::new(&pattern).map_err(|e| Error::user(SqlState::INVALID_PARAMETER_VALUE, format!("invalid pattern: {e}")))
}
