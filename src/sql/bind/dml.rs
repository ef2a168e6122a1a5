//! INSERT, UPDATE, DELETE: as queries that give the rows in storage order, and RETURNING.

use super::names::options;
use super::query::Planned;
use super::{Binder, output, rewrite};
use crate::encode::encode_expr;
use crate::statement::{Bound, Dml, DmlKind, Returning};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Cast, Expr, LogicalPlanBuilder};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::scalar::ScalarValue;
use datafusion::sql::planner::{ParserOptions, PlannerContext, SqlToRel};
use eddyline_expr::bound::BoundQuery;
use eddyline_expr::pg_types;
use eddyline_protocol::{ColumnDef, Relation, RelationKind};
use eddyline_types::{Error, Result, SqlState};
use sqlparser::ast::{self, Ident, ObjectName, Query, SelectItem, SetExpr, Spanned};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Binder<'_> {
    /// The table that a statement changes.
    pub(crate) fn target(&self, name: &ObjectName, verb: &str) -> Result<Arc<Relation>> {
        let relation = self.relation(name)?;
        let hint = match relation.kind {
            RelationKind::Table => return Ok(relation),
            RelationKind::Source => "A source is filled by its connector. Use a table for rows of your own.",
            RelationKind::View | RelationKind::MaterializedView => "Change the tables that it reads.",
            RelationKind::Sink => "A sink is filled by its query.",
        };
        Err(Error::user(SqlState::WRONG_OBJECT_TYPE, format!("cannot {verb} {} \"{}\"", relation.kind.name(), relation.name))
            .with_hint(hint)
            .with_position(self.parsed.positions.of_location(name.span().start)))
    }

    /// Plans an expression over the columns of a schema; types are settled.
    pub(crate) fn expr_over(&self, expr: &ast::Expr, schema: &DFSchema) -> Result<Expr> {
        let mut expr = expr.clone();
        rewrite::prepare(&mut expr)?;
        let planner = SqlToRel::new_with_options(self, ParserOptions::from(&options().sql_parser));
        let planned = planner.sql_to_expr(expr, schema, &mut PlannerContext::new()).map_err(|e| self.failure(e))?;
        let simplifier = ExprSimplifier::new(SimplifyContext::builder().with_schema(Arc::new(schema.clone())).build());
        let coerced = simplifier.coerce(planned, schema).map_err(|e| self.failure(e))?;
        Ok(rewrite::check_expr(coerced, schema).map_err(|e| self.failure(e))?.data)
    }
}

/// The expression of a DEFAULT, in the column's type.
pub(crate) fn default_expr(binder: &Binder<'_>, default: &ast::Expr, column: &ColumnDef) -> Result<Expr> {
    let schema = DFSchema::empty();
    let expr = binder.expr_over(default, &schema)?;
    assign(binder, expr, &schema, column, true)
}

/// The default of a column of an existing table, NULL if it has none.
pub(crate) fn stored_default(binder: &Binder<'_>, column: &ColumnDef) -> Result<Expr> {
    match &column.default {
        Some(text) => default_expr(binder, &parse_expr(text)?, column),
        None => Ok(Expr::Literal(ScalarValue::try_from(&column.data_type).map_err(|e| binder.failure(e))?, None)),
    }
}

/// An expression of the catalog.
pub(crate) fn parse_expr(text: &str) -> Result<ast::Expr> {
    let parsed = crate::parse::parse(&format!("SELECT {text}"))?.pop().ok_or_else(|| Error::internal("an empty expression"))?;
    if let crate::parse::Tree::Sql(statement) = parsed.tree
        && let ast::Statement::Query(query) = *statement
        && let SetExpr::Select(select) = *query.body
        && let Some(SelectItem::UnnamedExpr(expr)) = select.projection.into_iter().next()
    {
        return Ok(expr);
    }
    Err(Error::internal(format!("\"{text}\" is no expression")))
}

/// An expression cast to a column's type as an assignment casts; `literal`: text may be anything's spelling.
pub(crate) fn assign(binder: &Binder<'_>, expr: Expr, schema: &DFSchema, column: &ColumnDef, literal: bool) -> Result<Expr> {
    use datafusion::logical_expr::ExprSchemable;
    let from = expr.get_type(schema).map_err(|e| binder.failure(e))?;
    let to = &column.data_type;
    if from == *to {
        return Ok(expr);
    }
    if !assignable(&from, to, literal) {
        return Err(Error::user(
            SqlState::DATATYPE_MISMATCH,
            format!("column \"{}\" is of type {} but expression is of type {}", column.name, pg_types::name(to), pg_types::name(&from)),
        )
        .with_hint("You will need to rewrite or cast the expression."));
    }
    let cast = Expr::Cast(Cast::new(Box::new(expr), to.clone()));
    Ok(rewrite::check_expr(cast, schema).map_err(|e| binder.failure(e))?.data)
}

/// Postgres' assignment casts: among numbers, among times, anything to text, and literals to anything.
fn assignable(from: &DataType, to: &DataType, literal: bool) -> bool {
    let text = |t: &DataType| matches!(t, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let time = |t: &DataType| matches!(t, DataType::Date32 | DataType::Timestamp(..));
    let list = |t: &DataType| matches!(t, DataType::List(_) | DataType::FixedSizeList(..) | DataType::LargeList(_));
    *from == DataType::Null
        || (from.is_numeric() && to.is_numeric())
        || (time(from) && time(to))
        || (text(to) && !matches!(from, DataType::Binary))
        || (literal && text(from))
        || (list(from) && list(to))
        || matches!((from, to), (DataType::Time64(_), DataType::Time64(_)) | (DataType::Interval(_), DataType::Interval(_)))
}

/// A column that a statement may set.
fn settable(binder: &Binder<'_>, relation: &Relation, name: &ObjectName) -> Result<usize> {
    let at = |e: Error| e.with_position(binder.parsed.positions.of_location(name.span().start));
    let last =
        name.0.last().and_then(|p| p.as_ident()).ok_or_else(|| Error::user(SqlState::SYNTAX_ERROR, format!("\"{name}\" is no column")))?;
    column_position(relation, &crate::parse::fold(&last.value, last.quote_style.is_some())).map_err(at)
}

/// The position of a visible column that is not generated.
pub(crate) fn column_position(relation: &Relation, name: &str) -> Result<usize> {
    let Some(position) = relation.columns.iter().position(|c| c.name == name && !c.hidden) else {
        let error = Error::user(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" of relation \"{}\" does not exist", relation.name));
        let near = output::nearest(name, relation.columns.iter().filter(|c| !c.hidden).map(|c| c.name.as_str()));
        return Err(match near {
            Some(near) => error.with_hint(format!("Perhaps you meant \"{near}\".")),
            None => error,
        });
    };
    if relation.columns[position].generated.is_some() {
        return Err(Error::user(SqlState("428C9"), format!("column \"{name}\" can only be updated to DEFAULT"))
            .with_detail(format!("Column \"{name}\" is a generated column.")));
    }
    Ok(position)
}

pub(super) fn bind_insert(binder: &Binder<'_>, insert: &ast::Insert) -> Result<Bound> {
    let ast::TableObject::TableName(name) = &insert.table else {
        return Err(Error::unsupported("INSERT into a function or query is not supported"));
    };
    if insert.on.is_some() {
        return Err(Error::unsupported("INSERT ... ON CONFLICT is not supported")
            .with_hint("A new row replaces an older one with its primary key."));
    }
    let relation = binder.target(name, "insert into")?;
    let mut targets = Vec::new();
    for name in &insert.columns {
        let position = settable(binder, &relation, name)?;
        if targets.contains(&position) {
            let column = &relation.columns[position].name;
            return Err(Error::user(SqlState::DUPLICATE_COLUMN, format!("column \"{column}\" specified more than once"))
                .with_position(binder.parsed.positions.of_location(name.span().start)));
        }
        targets.push(position);
    }
    let listed = !targets.is_empty();
    if !listed {
        targets =
            (0..relation.columns.len()).filter(|i| !relation.columns[*i].hidden && relation.columns[*i].generated.is_none()).collect();
    }
    let (source, targets) = match &insert.source {
        None => (default_values()?, Vec::new()),
        Some(query) => {
            let mut query = query.clone();
            let width = fill_defaults(&mut query, &relation, &targets)?;
            if let Some(width) = width {
                check_width(width, targets.len(), listed)?;
                targets.truncate(width);
            }
            (query, targets)
        }
    };
    let types = placeholder_types(binder, &source, &relation, &targets);
    let planned = binder.plan_with(&source, &types)?;
    let width = planned.plan.schema().fields().len();
    if insert.source.is_some() {
        check_width(width, targets.len(), listed)?;
    }
    let targets: Vec<usize> = targets.into_iter().take(width).collect();
    let parameters = planned.parameters.clone();
    let rows = insert_rows(binder, planned, &relation, &targets)?;
    let returning = returning(binder, insert.returning.as_deref(), &relation, insert.table_alias.as_ref().map(|a| &a.alias))?;
    Ok(dml(binder, &relation, DmlKind::Insert, rows, parameters, returning))
}

fn check_width(width: usize, targets: usize, listed: bool) -> Result<()> {
    if width > targets {
        return Err(Error::user(SqlState::SYNTAX_ERROR, "INSERT has more expressions than target columns"));
    }
    if width < targets && listed {
        return Err(Error::user(SqlState::SYNTAX_ERROR, "INSERT has more target columns than expressions"));
    }
    Ok(())
}

/// One row without columns: all of them get their defaults.
fn default_values() -> Result<Box<Query>> {
    let parsed = crate::parse::parse("SELECT 1")?.pop().ok_or_else(|| Error::internal("an empty query"))?;
    match parsed.tree {
        crate::parse::Tree::Sql(s) => match *s {
            ast::Statement::Query(q) => Ok(q),
            _ => Err(Error::internal("a query was expected")),
        },
        _ => Err(Error::internal("a query was expected")),
    }
}

/// Replaces DEFAULT in VALUES. Gives the number of columns of VALUES.
fn fill_defaults(query: &mut Query, relation: &Relation, targets: &[usize]) -> Result<Option<usize>> {
    let SetExpr::Values(values) = query.body.as_mut() else { return Ok(None) };
    let mut width = None;
    for row in &mut values.rows {
        if *width.get_or_insert(row.len()) != row.len() {
            return Err(Error::user(SqlState::SYNTAX_ERROR, "VALUES lists must all be the same length"));
        }
        for (cell, target) in row.iter_mut().zip(targets) {
            let is_default = matches!(cell, ast::Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default"));
            if is_default {
                *cell = match &relation.columns[*target].default {
                    Some(text) => parse_expr(text)?,
                    None => ast::Expr::Value(ast::Value::Null.into()),
                };
            }
        }
    }
    Ok(width)
}

/// A parameter that stands alone in VALUES has the type of its column.
fn placeholder_types(binder: &Binder<'_>, query: &Query, relation: &Relation, targets: &[usize]) -> Vec<Option<DataType>> {
    let mut types = binder.types.clone();
    let mut note = |expr: &ast::Expr, target: &usize| note_type(&mut types, expr, &relation.columns[*target].data_type);
    match query.body.as_ref() {
        SetExpr::Values(values) => values.rows.iter().for_each(|row| row.iter().zip(targets).for_each(|(e, t)| note(e, t))),
        SetExpr::Select(select) => {
            for (item, target) in select.projection.iter().zip(targets) {
                if let SelectItem::UnnamedExpr(e) = item {
                    note(e, target);
                }
            }
        }
        _ => {}
    }
    types
}

/// Notes the type of a parameter that stands alone.
pub(crate) fn note_type(types: &mut Vec<Option<DataType>>, expr: &ast::Expr, data_type: &DataType) {
    let ast::Expr::Value(v) = expr else { return };
    let ast::Value::Placeholder(id) = &v.value else { return };
    if let Some(number) = id.strip_prefix('$').and_then(|n| n.parse::<usize>().ok()).filter(|n| (1..=65535).contains(n)) {
        if types.len() < number {
            types.resize(number, None);
        }
        types[number - 1].get_or_insert_with(|| data_type.clone());
    }
}

/// The query's rows as rows of the table: casts, defaults, generated columns. Text may spell a value of any type: constants arrive as text.
fn insert_rows(binder: &Binder<'_>, planned: Planned, relation: &Relation, targets: &[usize]) -> Result<BoundQuery> {
    let schema = planned.plan.schema().clone();
    let sources: Vec<Expr> = schema.iter().map(|(q, f)| Expr::Column(Column::from((q, f)))).collect();
    let mut values: BTreeMap<usize, Expr> = BTreeMap::new();
    for (position, column) in relation.columns.iter().enumerate().filter(|(_, c)| !c.hidden && c.generated.is_none()) {
        let value = match targets.iter().position(|t| *t == position) {
            Some(source) => assign(binder, sources[source].clone(), &schema, column, true)?,
            None => stored_default(binder, column)?,
        };
        values.insert(position, value);
    }
    add_generated(binder, relation, &mut values)?;
    project(binder, planned.plan, values.into_values().collect(), relation.columns.iter().filter(|c| !c.hidden))
}

/// Computes generated columns from the values of the others.
pub(crate) fn add_generated(binder: &Binder<'_>, relation: &Relation, values: &mut BTreeMap<usize, Expr>) -> Result<()> {
    if relation.columns.iter().all(|c| c.generated.is_none()) {
        return Ok(());
    }
    let base = DFSchema::try_from(relation.schema().as_ref().clone()).map_err(|e| binder.failure(e))?;
    for (position, column) in relation.columns.iter().enumerate() {
        let Some(text) = &column.generated else { continue };
        let expr = assign(binder, binder.expr_over(&parse_expr(text)?, &base)?, &base, column, false)?;
        let replaced = expr.transform_up(|e| {
            Ok(match e {
                Expr::Column(c) => match base.index_of_column(&c).ok().and_then(|i| values.get(&i)) {
                    Some(value) => Transformed::yes(value.clone()),
                    None => Transformed::no(Expr::Column(c)),
                },
                other => Transformed::no(other),
            })
        });
        values.insert(position, replaced.map_err(|e| binder.failure(e))?.data);
    }
    Ok(())
}

/// A projection whose columns are called as the table's.
fn project<'c>(
    binder: &Binder<'_>,
    plan: datafusion::logical_expr::LogicalPlan,
    exprs: Vec<Expr>,
    columns: impl Iterator<Item = &'c ColumnDef>,
) -> Result<BoundQuery> {
    let fields: Vec<Field> = columns.map(|c| Field::new(&c.name, c.data_type.clone(), true)).collect();
    let exprs: Vec<Expr> = exprs.into_iter().enumerate().map(|(i, e)| e.alias(eddyline_expr::encode::column_name(i))).collect();
    let plan = LogicalPlanBuilder::from(plan).project(exprs).and_then(|b| b.build()).map_err(|e| binder.failure(e))?;
    Ok(BoundQuery { plan, output: Arc::new(Schema::new(fields)) })
}

/// `SELECT * FROM table WHERE selection`, with further columns.
fn select_target(table: &ast::TableWithJoins, selection: Option<&ast::Expr>, extra: Vec<SelectItem>) -> Result<Box<Query>> {
    let mut query = default_values()?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = vec![SelectItem::Wildcard(ast::WildcardAdditionalOptions::default())];
        select.projection.extend(extra);
        select.from = vec![table.clone()];
        select.selection = selection.cloned();
    }
    Ok(query)
}

/// Name and alias of the one table of an UPDATE or DELETE.
fn single_table<'t>(table: &'t ast::TableWithJoins, verb: &str) -> Result<(&'t ObjectName, Option<&'t Ident>)> {
    match &table.relation {
        ast::TableFactor::Table { name, alias, args: None, .. } if table.joins.is_empty() => Ok((name, alias.as_ref().map(|a| &a.name))),
        _ => Err(Error::unsupported(format!("{verb} of a join is not supported")).with_hint("Use WHERE key IN (SELECT ...).")),
    }
}

pub(super) fn bind_update(binder: &Binder<'_>, update: &ast::Update) -> Result<Bound> {
    if update.from.is_some() {
        return Err(Error::unsupported("UPDATE ... FROM is not supported").with_hint("Use subqueries in SET and WHERE."));
    }
    let (name, alias) = single_table(&update.table, "UPDATE")?;
    let relation = binder.target(name, "update")?;
    refuse_append_only(&relation, "UPDATE")?;
    let mut types = binder.types.clone();
    let mut assigned: BTreeMap<usize, usize> = BTreeMap::new();
    let mut items = Vec::new();
    for (name, value) in assignments(&update.assignments)? {
        let position = settable(binder, &relation, name)?;
        let column = &relation.columns[position];
        let is_default = matches!(value, ast::Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default"));
        let expr = match (&column.default, is_default) {
            (Some(text), true) => parse_expr(text)?,
            (None, true) => ast::Expr::Value(ast::Value::Null.into()),
            (_, false) => value.clone(),
        };
        note_type(&mut types, &expr, &column.data_type);
        if assigned.insert(position, items.len()).is_some() {
            return Err(Error::user(SqlState::SYNTAX_ERROR, format!("multiple assignments to same column \"{}\"", column.name)));
        }
        let literal = is_literal(&expr);
        items.push((SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', output::unique("new", items.len())) }, literal));
    }
    let literals: Vec<bool> = items.iter().map(|(_, l)| *l).collect();
    let query = select_target(&update.table, update.selection.as_ref(), items.into_iter().map(|(i, _)| i).collect())?;
    *binder.bare.borrow_mut() = Some(relation.id);
    let planned = binder.plan_with(&query, &types)?;
    let parameters = planned.parameters.clone();
    let schema = planned.plan.schema().clone();
    let sources: Vec<Expr> = schema.iter().map(|(q, f)| Expr::Column(Column::from((q, f)))).collect();
    let stored = relation.columns.len();
    let mut new = BTreeMap::new();
    for (position, column) in relation.columns.iter().enumerate().filter(|(_, c)| c.generated.is_none()) {
        let value = match assigned.get(&position) {
            Some(item) => assign(binder, sources[stored + item].clone(), &schema, column, literals[*item])?,
            None => sources[position].clone(),
        };
        new.insert(position, value);
    }
    add_generated(binder, &relation, &mut new)?;
    let mut exprs = sources[..stored].to_vec();
    exprs.extend(new.into_values());
    let rows = project(binder, planned.plan, exprs, relation.columns.iter().chain(&relation.columns))?;
    let returning = returning(binder, update.returning.as_deref(), &relation, alias)?;
    Ok(dml(binder, &relation, DmlKind::Update, rows, parameters, returning))
}

fn refuse_append_only(relation: &Relation, verb: &str) -> Result<()> {
    if relation.append_only {
        return Err(Error::user(
            SqlState::NOT_IN_PREREQUISITE_STATE,
            format!("{verb} is not allowed on append-only table \"{}\"", relation.name),
        ));
    }
    Ok(())
}

/// Constants: text among them may spell a value of any type.
fn is_literal(expr: &ast::Expr) -> bool {
    match expr {
        ast::Expr::Value(_) => true,
        ast::Expr::Nested(inner) => is_literal(inner),
        _ => false,
    }
}

/// Pairs of column and value, `(a, b) = (1, 2)` taken apart.
fn assignments(list: &[ast::Assignment]) -> Result<Vec<(&ObjectName, &ast::Expr)>> {
    let mut pairs = Vec::new();
    for assignment in list {
        match (&assignment.target, &assignment.value) {
            (ast::AssignmentTarget::ColumnName(name), value) => pairs.push((name, value)),
            (ast::AssignmentTarget::Tuple(names), ast::Expr::Tuple(values)) if names.len() == values.len() => {
                pairs.extend(names.iter().zip(values))
            }
            (ast::AssignmentTarget::Tuple(_), _) => {
                return Err(
                    Error::unsupported("this form of multiple assignment is not supported").with_hint("Assign the columns one by one.")
                );
            }
        }
    }
    Ok(pairs)
}

pub(super) fn bind_delete(binder: &Binder<'_>, delete: &ast::Delete) -> Result<Bound> {
    if delete.using.is_some() {
        return Err(Error::unsupported("DELETE ... USING is not supported").with_hint("Use WHERE key IN (SELECT ...)."));
    }
    let tables = match &delete.from {
        ast::FromTable::WithFromKeyword(t) | ast::FromTable::WithoutKeyword(t) => t,
    };
    let [table] = tables.as_slice() else {
        return Err(Error::user(SqlState::SYNTAX_ERROR, "DELETE needs one table"));
    };
    let (name, alias) = single_table(table, "DELETE")?;
    let relation = binder.target(name, "delete from")?;
    refuse_append_only(&relation, "DELETE")?;
    let query = select_target(table, delete.selection.as_ref(), Vec::new())?;
    *binder.bare.borrow_mut() = Some(relation.id);
    let planned = binder.plan_query(&query)?;
    let parameters = planned.parameters.clone();
    let exprs = planned.plan.schema().iter().map(|(q, f)| Expr::Column(Column::from((q, f)))).collect();
    let rows = project(binder, planned.plan, exprs, relation.columns.iter())?;
    let returning = returning(binder, delete.returning.as_deref(), &relation, alias)?;
    Ok(dml(binder, &relation, DmlKind::Delete, rows, parameters, returning))
}

fn dml(
    binder: &Binder<'_>,
    relation: &Relation,
    kind: DmlKind,
    rows: BoundQuery,
    parameters: Vec<DataType>,
    returning: Option<Returning>,
) -> Bound {
    let reads = binder.reads.borrow().iter().copied().collect();
    Bound::Dml(Box::new(Dml { relation: relation.id, kind, rows, parameters, returning, reads }))
}

fn returning(binder: &Binder<'_>, items: Option<&[SelectItem]>, relation: &Relation, alias: Option<&Ident>) -> Result<Option<Returning>> {
    let Some(items) = items else { return Ok(None) };
    let table = alias.map_or(relation.name.clone(), |a| crate::parse::fold(&a.value, a.quote_style.is_some()));
    let schema = DFSchema::try_from_qualified_schema(table, &relation.schema()).map_err(|e| binder.failure(e))?;
    let (mut exprs, mut fields) = (Vec::new(), Vec::new());
    for item in items {
        let (expr, name) = match item {
            SelectItem::UnnamedExpr(e) => (e, output::column_name(e)),
            SelectItem::ExprWithAlias { expr, alias } => (expr, crate::parse::fold(&alias.value, alias.quote_style.is_some())),
            SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => {
                for (position, column) in relation.columns.iter().enumerate().filter(|(_, c)| !c.hidden) {
                    let (qualifier, field) = schema.qualified_field(position);
                    exprs.push(encode_expr(&Expr::Column(Column::from((qualifier, field))), &schema)?);
                    fields.push(Field::new(&column.name, column.data_type.clone(), true));
                }
                continue;
            }
            SelectItem::ExprWithAliases { .. } => return Err(Error::unsupported("several aliases of one column are not supported")),
        };
        let encoded = encode_expr(&binder.expr_over(expr, &schema)?, &schema)?;
        fields.push(Field::new(name, encoded.data_type.clone(), true));
        exprs.push(encoded);
    }
    Ok(Some(Returning { exprs, output: Arc::new(Schema::new(fields)) }))
}
