//! Trees to statements: names are looked up, types settled, plans made.
//!
//! Everything is a function of the tree and the [`BindContext`]: binding the same statement against the same catalog gives the same result.

mod copy;
mod create;
mod dml;
mod drop;
mod failure;
mod lookup;
mod names;
mod output;
mod query;
mod rewrite;
mod session;
mod show;
mod types;

pub(crate) use dml::parse_expr as parse_stored_expr;
pub(crate) use failure::Failure;
pub(crate) use names::options as planner_options;
pub(crate) use output::shown;
pub(crate) use query::Planned;

use crate::parse::{Positions, Tree, on_big_stack};
use crate::statement::{BindContext, Bound, Parsed};
use arrow::datatypes::DataType;
use eddyline_types::Result;
use sqlparser::ast::Statement;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Binds a statement. `types` are types of `$1`, `$2`, ... as far as the client gave them.
pub fn bind(parsed: &Parsed, context: &BindContext<'_>, types: &[Option<DataType>]) -> Result<Bound> {
    on_big_stack(|| Binder::new(parsed, context, types, false).bind())
}

/// Binds one statement.
pub(crate) struct Binder<'a> {
    pub(crate) parsed: &'a Parsed,
    pub(crate) context: BindContext<'a>,
    types: Vec<Option<DataType>>,
    /// The query of a view: no parameters, no system tables; sources are allowed.
    for_view: bool,
    /// Relations that were looked up.
    reads: RefCell<BTreeSet<eddyline_types::ObjectId>>,
    /// The table whose hidden columns are visible: the target of UPDATE and DELETE.
    bare: RefCell<Option<eddyline_types::ObjectId>>,
    /// Views that are being expanded, to a limit.
    expanding: usize,
}

impl<'a> Binder<'a> {
    pub(crate) fn new(parsed: &'a Parsed, context: &BindContext<'a>, types: &[Option<DataType>], for_view: bool) -> Self {
        Binder {
            parsed,
            context: *context,
            types: types.to_vec(),
            for_view,
            reads: RefCell::default(),
            bare: RefCell::default(),
            expanding: 0,
        }
    }

    fn positions(&self) -> &Arc<Positions> {
        &self.parsed.positions
    }

    pub(crate) fn bind(&self) -> Result<Bound> {
        match &self.parsed.tree {
            Tree::Create(tree) => create::bind_relation(self, tree),
            Tree::CreateView(tree) => create::bind_view(self, tree),
            Tree::Drop { kind, if_exists, names, cascade } => drop::bind_drop(self, *kind, *if_exists, names, *cascade),
            Tree::Show(tree) => show::bind_show(self, tree),
            Tree::Flush => Ok(Bound::Flush),
            Tree::Begin { read_only } => Ok(Bound::Begin { read_only: *read_only }),
            Tree::Explain { inner } => crate::stream::explain::bind_explain(inner, &self.context),
            Tree::Prepare { name, types, statement } => {
                let types = types.iter().map(types::arrow_type).collect::<Result<_>>()?;
                Ok(Bound::Prepare { name: name.clone(), types, statement: statement.clone() })
            }
            Tree::Declare { name, query, hold } => {
                Ok(Bound::Declare { name: name.clone(), query: Box::new(query::bind_select(self, query)?), hold: *hold })
            }
            Tree::Fetch { name, count } => Ok(Bound::Fetch { name: name.clone(), count: *count }),
            Tree::Close { name } => Ok(Bound::Close { name: name.clone() }),
            Tree::Reset { name } => Ok(Bound::ResetVariable { name: name.clone() }),
            Tree::Discard => Ok(Bound::Discard),
            Tree::Copy(tree) => copy::bind_copy(self, tree),
            Tree::Sql(statement) => self.bind_sql(statement),
        }
    }

    /// The stream plan of a CREATE MATERIALIZED VIEW or SINK; `None`: the statement has no query.
    pub(crate) fn stream_job(&self) -> Result<Option<crate::stream::StreamJob>> {
        create::stream_job(self)
    }

    /// An expression over a schema, cast to a column's type.
    pub(crate) fn assigned(
        &self,
        expr: &sqlparser::ast::Expr,
        schema: &datafusion::common::DFSchema,
        column: &eddyline_protocol::ColumnDef,
    ) -> Result<datafusion::logical_expr::Expr> {
        dml::assign(self, self.expr_over(expr, schema)?, schema, column, false)
    }

    fn bind_sql(&self, statement: &Statement) -> Result<Bound> {
        match statement {
            Statement::Query(query) => Ok(Bound::Query(Box::new(query::bind_select(self, query)?))),
            Statement::Insert(insert) => dml::bind_insert(self, insert),
            Statement::Update(update) => dml::bind_update(self, update),
            Statement::Delete(delete) => dml::bind_delete(self, delete),
            other => session::bind_session(self, other),
        }
    }
}
