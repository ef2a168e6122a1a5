//! COPY: what is sent, and what becomes of it.

use super::{Binder, dml, query};
use crate::encode::encode_expr;
use crate::parse::{CopySource, CopyTree};
use crate::statement::{Bound, CopyIn};
use arrow::datatypes::{Field, Schema};
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::Expr;
use eddyline_types::{Error, Result, SqlState};
use sqlparser::ast;
use std::collections::BTreeMap;

pub(super) fn bind_copy(binder: &Binder<'_>, tree: &CopyTree) -> Result<Bound> {
    match (&tree.source, tree.to) {
        (CopySource::Query(_), false) => Err(Error::user(SqlState::SYNTAX_ERROR, "COPY query FROM is not possible")),
        (CopySource::Query(query), true) => {
            Ok(Bound::CopyOut { query: Box::new(query::bind_select(binder, query)?), options: tree.options.clone() })
        }
        (CopySource::Table { name, columns }, true) => {
            binder.relation(name)?;
            let list =
                if columns.is_empty() { "*".to_string() } else { columns.iter().map(|c| quoted(&c.name)).collect::<Vec<_>>().join(", ") };
            let parsed =
                crate::parse::parse(&format!("SELECT {list} FROM {name}"))?.pop().ok_or_else(|| Error::internal("an empty query"))?;
            let crate::parse::Tree::Sql(statement) = &parsed.tree else { return Err(Error::internal("a query was expected")) };
            let ast::Statement::Query(select) = statement.as_ref() else { return Err(Error::internal("a query was expected")) };
            let inner = Binder::new(&parsed, &binder.context, &[], false);
            Ok(Bound::CopyOut { query: Box::new(query::bind_select(&inner, select)?), options: tree.options.clone() })
        }
        (CopySource::Table { name, columns }, false) => {
            let relation = binder.target(name, "copy to")?;
            let mut targets = Vec::new();
            for column in columns {
                targets.push(dml::column_position(&relation, &column.name).map_err(|e| e.with_position(column.position))?);
            }
            if targets.is_empty() {
                targets = (0..relation.columns.len())
                    .filter(|i| !relation.columns[*i].hidden && relation.columns[*i].generated.is_none())
                    .collect();
            }
            let fields: Vec<Field> =
                targets.iter().map(|t| Field::new(&relation.columns[*t].name, relation.columns[*t].data_type.clone(), true)).collect();
            let schema = DFSchema::try_from(Schema::new(fields)).map_err(|e| binder.failure(e))?;
            let mut values: BTreeMap<usize, Expr> = BTreeMap::new();
            for (position, column) in relation.columns.iter().enumerate().filter(|(_, c)| !c.hidden && c.generated.is_none()) {
                let value = match targets.contains(&position) {
                    true => Expr::Column(Column::new_unqualified(&column.name)),
                    false => dml::stored_default(binder, column)?,
                };
                values.insert(position, value);
            }
            dml::add_generated(binder, &relation, &mut values)?;
            let exprs = values.values().map(|e| encode_expr(e, &schema)).collect::<Result<_>>()?;
            Ok(Bound::CopyIn(Box::new(CopyIn { relation: relation.id, columns: targets, exprs, options: tree.options.clone() })))
        }
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
