//! CREATE SOURCE, TABLE, VIEW, MATERIALIZED VIEW, SINK.

use super::names::{Qualified, SYSTEM_SCHEMAS};
use super::{Binder, Planned, dml, types};
use crate::parse::{CreateTree, CreateViewTree, Tree};
use crate::statement::{Bound, CreateRelation, NEW_RELATION, ROW_ID};
use crate::stream;
use arrow::datatypes::DataType;
use eddyline_protocol::{ColumnDef, FragmentGraph, Relation, RelationKind, SourceSpec};
use eddyline_types::{Error, Result, SqlState};
use sqlparser::ast::{ObjectName, Query, Spanned};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Columns that a relation may have.
const MAX_COLUMNS: usize = 1600;

/// Where a new relation goes, or the one that is there already.
enum Place {
    Free(Qualified),
    Taken(Arc<Relation>),
}

impl Binder<'_> {
    fn place(&self, name: &ObjectName, if_not_exists: bool) -> Result<Place> {
        let at = |e: Error| e.with_position(self.parsed.positions.of_location(name.span().start));
        let mut qualified = self.qualified(name)?;
        let schema = match &qualified.schema {
            Some(schema) => schema.clone(),
            None => match self.context.search_path.iter().find(|s| self.schema_exists(s)) {
                Some(schema) => schema.clone(),
                None => return Err(Error::user(SqlState::INVALID_SCHEMA_NAME, "no schema has been selected to create in")),
            },
        };
        if SYSTEM_SCHEMAS.contains(&schema.as_str()) {
            return Err(at(Error::user(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("permission denied to create \"{schema}.{}\"", qualified.name),
            )
            .with_detail("System catalog modifications are not allowed.")));
        }
        if !self.schema_exists(&schema) {
            return Err(at(Error::user(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{schema}\" does not exist"))));
        }
        if let Some(existing) = self.context.catalog.find_any(&schema, &qualified.name) {
            if if_not_exists {
                return Ok(Place::Taken(existing.clone()));
            }
            return Err(at(Error::user(SqlState::DUPLICATE_TABLE, format!("relation \"{}\" already exists", qualified.name))));
        }
        qualified.schema = Some(schema);
        Ok(Place::Free(qualified))
    }

    fn new_relation(&self, place: Qualified, kind: RelationKind) -> Relation {
        Relation {
            id: NEW_RELATION,
            schema_name: place.schema.unwrap_or_default(),
            name: place.name,
            kind,
            columns: Vec::new(),
            key: Vec::new(),
            append_only: false,
            spec: None,
            definition: self.parsed.text.clone(),
            query: None,
            depends_on: Vec::new(),
            table: None,
            owner: self.context.user.to_string(),
            created_ms: 0,
        }
    }

    fn depends_on(&self) -> Vec<eddyline_types::ObjectId> {
        self.reads.borrow().iter().copied().collect()
    }
}

fn taken(existing: &Relation) -> Bound {
    Bound::CreateRelation(Box::new(CreateRelation {
        relation: existing.clone(),
        graph: None,
        exists: true,
        if_not_exists: true,
        notices: vec![format!("relation \"{}\" already exists, skipping", existing.name)],
    }))
}

fn created(relation: Relation, graph: Option<FragmentGraph>, if_not_exists: bool, notices: Vec<String>) -> Bound {
    Bound::CreateRelation(Box::new(CreateRelation { relation, graph, exists: false, if_not_exists, notices }))
}

/// CREATE SOURCE, TABLE, SINK.
pub(super) fn bind_relation(binder: &Binder<'_>, tree: &CreateTree) -> Result<Bound> {
    let place = match binder.place(&tree.name, tree.if_not_exists)? {
        Place::Taken(existing) => return Ok(taken(&existing)),
        Place::Free(place) => place,
    };
    let relation = binder.new_relation(place, tree.kind);
    match tree.kind {
        RelationKind::Source => bind_source(binder, tree, relation),
        RelationKind::Table => bind_table(binder, tree, relation),
        _ => bind_sink(binder, tree, relation),
    }
}

fn bind_source(binder: &Binder<'_>, tree: &CreateTree, mut relation: Relation) -> Result<Bound> {
    if let Some(key) = tree.primary_key.first() {
        return Err(Error::unsupported("PRIMARY KEY on a source is not supported: a source keeps no rows")
            .with_hint("Use CREATE TABLE with the same connector; then a new row replaces an older one with its key.")
            .with_position(key.position));
    }
    relation.columns = columns(binder, tree)?;
    if relation.columns.is_empty() {
        return Err(Error::user(SqlState::INVALID_TABLE_DEFINITION, format!("source \"{}\" needs columns", relation.name)));
    }
    relation.spec = Some(spec(tree, &relation)?.ok_or_else(|| {
        Error::user(SqlState::INVALID_PARAMETER_VALUE, "a source needs a connector")
            .with_hint("Add WITH (connector = 'datagen' | 'nexmark' | 'file', ...), or use CREATE TABLE.")
    })?);
    relation.append_only = true;
    stream::table::check_generated(binder, &relation)?;
    Ok(created(relation, None, tree.if_not_exists, Vec::new()))
}

fn bind_table(binder: &Binder<'_>, tree: &CreateTree, mut relation: Relation) -> Result<Bound> {
    relation.columns = columns(binder, tree)?;
    relation.append_only = tree.append_only;
    for key in &tree.primary_key {
        let Some(position) = relation.columns.iter().position(|c| c.name == key.name) else {
            return Err(Error::user(SqlState::UNDEFINED_COLUMN, format!("column \"{}\" named in key does not exist", key.name))
                .with_position(key.position));
        };
        if relation.key.contains(&position) {
            return Err(Error::user(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{}\" appears twice in primary key constraint", key.name),
            )
            .with_position(key.position));
        }
        if !is_key_type(&relation.columns[position].data_type) {
            return Err(
                Error::unsupported(format!("column \"{}\" has a type that cannot be in a key", key.name)).with_position(key.position)
            );
        }
        relation.columns[position].nullable = false;
        relation.key.push(position);
    }
    relation.spec = spec(tree, &relation)?;
    if relation.key.is_empty() {
        let mut row_id = ColumnDef::new(ROW_ID, DataType::Int64);
        row_id.nullable = false;
        row_id.hidden = true;
        relation.key = vec![relation.columns.len()];
        relation.columns.push(row_id);
    } else if relation.append_only {
        return Err(Error::unsupported("APPEND ONLY with a PRIMARY KEY is not supported: a row with an existing key would replace it")
            .with_hint("Leave one of them out."));
    }
    stream::table::check_generated(binder, &relation)?;
    let graph = stream::table::plan_table(binder, &relation)?;
    relation.table = Some(stream::MAIN_TABLE);
    Ok(created(relation, Some(graph), tree.if_not_exists, Vec::new()))
}

/// For EXPLAIN: the plan of the statement's query.
pub(super) fn stream_job(binder: &Binder<'_>) -> Result<Option<stream::StreamJob>> {
    match &binder.parsed.tree {
        Tree::CreateView(tree) if tree.materialized => {
            if let Place::Free(place) = binder.place(&tree.name, false)? {
                let relation = binder.new_relation(place, RelationKind::MaterializedView);
                let planned = view_planned(binder, tree)?;
                return stream::plan_query(binder, planned, &relation).map(Some);
            }
        }
        Tree::Create(tree) if tree.kind == RelationKind::Sink => {
            if let Place::Free(place) = binder.place(&tree.name, false)? {
                let mut relation = binder.new_relation(place, RelationKind::Sink);
                let planned = sink_planned(binder, tree, &mut relation)?;
                return stream::plan_query(binder, planned, &relation).map(Some);
            }
        }
        _ => {}
    }
    Ok(None)
}

fn bind_sink(binder: &Binder<'_>, tree: &CreateTree, mut relation: Relation) -> Result<Bound> {
    let planned = sink_planned(binder, tree, &mut relation)?;
    relation.columns = planned
        .output()
        .fields()
        .iter()
        .map(|f| ColumnDef { nullable: f.is_nullable(), ..ColumnDef::new(f.name(), f.data_type().clone()) })
        .collect();
    let stream = stream::plan_query(binder, planned, &relation)?;
    relation.depends_on = binder.depends_on();
    Ok(created(relation, Some(stream.graph), tree.if_not_exists, stream.notices))
}

fn sink_planned(binder: &Binder<'_>, tree: &CreateTree, relation: &mut Relation) -> Result<Planned> {
    let connector = tree.options.get("connector").ok_or_else(|| {
        Error::user(SqlState::INVALID_PARAMETER_VALUE, "a sink needs a connector").with_hint("Add WITH (connector = 'blackhole').")
    })?;
    if connector != "blackhole" {
        return Err(
            Error::unsupported(format!("connector \"{connector}\" is not supported for sinks")).with_hint("Use connector = 'blackhole'.")
        );
    }
    let planned = match (&tree.from, &tree.query) {
        (Some(from), None) => {
            binder.relation(from)?;
            let text = format!("SELECT * FROM {from}");
            relation.query = Some(text.clone());
            let parsed = crate::parse::parse(&text)?.pop().ok_or_else(|| Error::internal("an empty query"))?;
            match &parsed.tree {
                crate::parse::Tree::Sql(s) => match s.as_ref() {
                    sqlparser::ast::Statement::Query(query) => view_query(binder, query)?,
                    _ => return Err(Error::internal("a query was expected")),
                },
                _ => return Err(Error::internal("a query was expected")),
            }
        }
        (None, Some((query, text))) => {
            relation.query = Some(text.clone());
            view_query(binder, query)?
        }
        _ => return Err(Error::user(SqlState::SYNTAX_ERROR, "CREATE SINK needs FROM relation or AS query")),
    };
    relation.spec = Some(SourceSpec { connector: connector.clone(), options: tree.options.clone(), ..SourceSpec::default() });
    Ok(planned)
}

/// Plans the query of a view or sink.
fn view_query(binder: &Binder<'_>, query: &Query) -> Result<Planned> {
    let inner = Binder::new(binder.parsed, &binder.context, &[], true);
    let planned = inner.plan_query(query)?;
    if !planned.parameters.is_empty() {
        return Err(
            Error::user(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1").with_detail("Views and sinks take no parameters.")
        );
    }
    binder.reads.borrow_mut().extend(inner.reads.borrow().iter().copied());
    Ok(planned)
}

/// CREATE VIEW, CREATE MATERIALIZED VIEW.
pub(super) fn bind_view(binder: &Binder<'_>, tree: &CreateViewTree) -> Result<Bound> {
    let place = match binder.place(&tree.name, tree.if_not_exists)? {
        Place::Taken(existing) => return Ok(taken(&existing)),
        Place::Free(place) => place,
    };
    let kind = if tree.materialized { RelationKind::MaterializedView } else { RelationKind::View };
    let mut relation = binder.new_relation(place, kind);
    let planned = view_planned(binder, tree)?;
    relation.query = Some(tree.query_text.clone());
    if !tree.materialized {
        relation.columns = planned
            .output()
            .fields()
            .iter()
            .map(|f| ColumnDef { nullable: f.is_nullable(), ..ColumnDef::new(f.name(), f.data_type().clone()) })
            .collect();
        relation.depends_on = binder.depends_on();
        return Ok(created(relation, None, tree.if_not_exists, Vec::new()));
    }
    let stream = stream::plan_query(binder, planned, &relation)?;
    relation.columns = stream.columns;
    relation.key = stream.key;
    relation.append_only = stream.append_only;
    relation.table = Some(stream::MAIN_TABLE);
    relation.depends_on = binder.depends_on();
    Ok(created(relation, Some(stream.graph), tree.if_not_exists, stream.notices))
}

/// Plans the query of a view; its columns get the names given.
fn view_planned(binder: &Binder<'_>, tree: &CreateViewTree) -> Result<Planned> {
    let mut planned = view_query(binder, &tree.query)?;
    if tree.columns.len() > planned.names.len() {
        return Err(Error::user(SqlState::INVALID_TABLE_DEFINITION, "CREATE VIEW specifies more column names than columns"));
    }
    for (name, given) in planned.names.iter_mut().zip(&tree.columns) {
        *name = given.name.clone();
    }
    let mut seen = BTreeSet::new();
    for name in &planned.names {
        if !seen.insert(name) {
            return Err(Error::user(SqlState::DUPLICATE_COLUMN, format!("column \"{name}\" specified more than once"))
                .with_hint("Give the columns of the query different names with AS."));
        }
    }
    Ok(planned)
}

fn columns(binder: &Binder<'_>, tree: &CreateTree) -> Result<Vec<ColumnDef>> {
    if tree.columns.len() > MAX_COLUMNS {
        return Err(Error::user(SqlState::LIMIT_EXCEEDED, format!("tables can have at most {MAX_COLUMNS} columns")));
    }
    let mut seen = BTreeSet::new();
    let mut columns = Vec::new();
    for column in &tree.columns {
        let at = |e: Error| e.with_position(column.name.position);
        if !seen.insert(&column.name.name) {
            return Err(at(Error::user(SqlState::DUPLICATE_COLUMN, format!("column \"{}\" specified more than once", column.name.name))));
        }
        if column.name.name == ROW_ID {
            return Err(at(Error::user(SqlState::INVALID_TABLE_DEFINITION, format!("column name \"{ROW_ID}\" is reserved"))));
        }
        let data_type = types::arrow_type(&column.data_type).map_err(at)?;
        let mut def = ColumnDef::new(&column.name.name, data_type);
        def.nullable = !column.not_null;
        if let Some(default) = &column.default {
            if column.generated.is_some() {
                return Err(at(Error::user(
                    SqlState::SYNTAX_ERROR,
                    format!("both default and generation expression specified for column \"{}\"", column.name.name),
                )));
            }
            dml::default_expr(binder, default, &def)?;
            def.default = Some(default.to_string());
        }
        def.generated = column.generated.as_ref().map(ToString::to_string);
        columns.push(def);
    }
    Ok(columns)
}

/// The connector of a source or table; `None`: a table without one.
fn spec(tree: &CreateTree, relation: &Relation) -> Result<Option<SourceSpec>> {
    let Some(connector) = tree.options.get("connector") else {
        if !tree.format.is_empty() {
            return Err(
                Error::user(SqlState::INVALID_PARAMETER_VALUE, "FORMAT without a connector").with_hint("Add WITH (connector = '...').")
            );
        }
        return Ok(None);
    };
    let columns = relation.columns.iter().filter(|c| !c.hidden && c.generated.is_none()).cloned().collect();
    let format = if tree.format.is_empty() { "plain".to_string() } else { tree.format.clone() };
    if format != "plain" {
        return Err(Error::unsupported(format!("FORMAT {} is not supported", format.to_uppercase())).with_hint("Use FORMAT PLAIN."));
    }
    Ok(Some(SourceSpec {
        connector: connector.to_lowercase(),
        options: tree.options.clone(),
        format,
        encode: tree.encode.clone(),
        encode_options: tree.encode_options.clone(),
        columns,
    }))
}

fn is_key_type(data_type: &DataType) -> bool {
    !matches!(data_type, DataType::Map(..) | DataType::Struct(_) | DataType::List(_) | DataType::LargeList(_) | DataType::Null)
}
