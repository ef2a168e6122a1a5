//! `information_schema`: the SQL standard's description of user relations.

use super::Origin;
use super::planner::DATABASE;
use super::table::{LazyTable, Rows, int, maybe_text, schema, text};
use arrow::datatypes::DataType;
use datafusion::catalog::TableProvider;
use datafusion::scalar::ScalarValue;
use eddyline_protocol::{Catalog, Relation, RelationKind};
use eddyline_types::Result;
use std::sync::Arc;

/// All tables.
pub const NAMES: &[&str] = &["tables", "columns", "schemata", "views", "table_constraints", "key_column_usage"];

/// A table by its name.
pub(crate) fn table(origin: &Origin, name: &str) -> Option<Arc<dyn TableProvider>> {
    let texts = |names: &[&'static str]| names.iter().map(|n| (*n, DataType::Utf8)).collect::<Vec<_>>();
    let (columns, make): (_, fn(&Catalog, &mut Rows) -> Result<()>) = match name {
        "tables" => (texts(&["table_catalog", "table_schema", "table_name", "table_type", "is_insertable_into", "is_typed"]), tables),
        "columns" => {
            let mut columns = texts(&["table_catalog", "table_schema", "table_name", "column_name"]);
            columns.push(("ordinal_position", DataType::Int32));
            columns.extend(texts(&["column_default", "is_nullable", "data_type"]));
            for name in ["character_maximum_length", "numeric_precision", "numeric_scale", "datetime_precision"] {
                columns.push((name, DataType::Int32));
            }
            columns.extend(texts(&["udt_catalog", "udt_schema", "udt_name", "is_generated", "generation_expression", "is_updatable"]));
            (columns, column_rows)
        }
        "schemata" => (texts(&["catalog_name", "schema_name", "schema_owner"]), schemata),
        "views" => (texts(&["table_catalog", "table_schema", "table_name", "view_definition"]), views),
        "table_constraints" => (
            texts(&[
                "constraint_catalog",
                "constraint_schema",
                "constraint_name",
                "table_catalog",
                "table_schema",
                "table_name",
                "constraint_type",
            ]),
            constraints,
        ),
        "key_column_usage" => {
            let mut columns = texts(&[
                "constraint_catalog",
                "constraint_schema",
                "constraint_name",
                "table_catalog",
                "table_schema",
                "table_name",
                "column_name",
            ]);
            columns.push(("ordinal_position", DataType::Int32));
            (columns, key_columns)
        }
        _ => return None,
    };
    let view = origin.view.clone();
    Some(LazyTable::provider(schema(&columns), move |rows| make(&view.catalog(), rows)))
}

fn visible(catalog: &Catalog) -> impl Iterator<Item = &Arc<Relation>> {
    catalog.relations.values().filter(|r| catalog.is_visible(r.id) && r.kind != RelationKind::Sink)
}

fn place(relation: &Relation) -> [(&'static str, ScalarValue); 3] {
    [("table_catalog", text(DATABASE)), ("table_schema", text(&relation.schema_name)), ("table_name", text(&relation.name))]
}

fn yes_no(value: bool) -> ScalarValue {
    text(if value { "YES" } else { "NO" })
}

fn tables(catalog: &Catalog, rows: &mut Rows) -> Result<()> {
    for relation in visible(catalog) {
        let kind = match relation.kind {
            RelationKind::Table => "BASE TABLE",
            RelationKind::View => "VIEW",
            RelationKind::MaterializedView => "MATERIALIZED VIEW",
            RelationKind::Source => "FOREIGN",
            RelationKind::Sink => "SINK",
        };
        let mut row = place(relation).to_vec();
        row.extend([
            ("table_type", text(kind)),
            ("is_insertable_into", yes_no(relation.kind == RelationKind::Table)),
            ("is_typed", text("NO")),
        ]);
        rows.push(&row)?;
    }
    for schema in ["information_schema", "eddy_catalog"] {
        let names = if schema == "information_schema" { NAMES } else { super::eddy::NAMES };
        for name in names {
            rows.push(&[
                ("table_catalog", text(DATABASE)),
                ("table_schema", text(schema)),
                ("table_name", text(*name)),
                ("table_type", text("VIEW")),
            ])?;
        }
    }
    Ok(())
}

fn column_rows(catalog: &Catalog, rows: &mut Rows) -> Result<()> {
    for relation in visible(catalog) {
        for (number, column) in relation.columns.iter().filter(|c| !c.hidden).enumerate() {
            let (precision, scale) = match column.data_type {
                DataType::Decimal128(38, 10) => (None, None),
                DataType::Decimal128(p, s) => (Some(i32::from(p)), Some(i32::from(s))),
                DataType::Int16 => (Some(16), Some(0)),
                DataType::Int32 => (Some(32), Some(0)),
                DataType::Int64 => (Some(64), Some(0)),
                DataType::Float32 => (Some(24), None),
                DataType::Float64 => (Some(53), None),
                _ => (None, None),
            };
            let full = eddyline_expr::pg_types::name(&column.data_type);
            let name = if full.ends_with("[]") { "ARRAY" } else { full.split('(').next().unwrap_or(&full) };
            let mut row = place(relation).to_vec();
            row.extend([
                ("column_name", text(&column.name)),
                ("ordinal_position", int(number as i32 + 1)),
                ("column_default", maybe_text(column.default.clone())),
                ("is_nullable", yes_no(column.nullable)),
                ("data_type", text(name)),
                ("numeric_precision", ScalarValue::Int32(precision)),
                ("numeric_scale", ScalarValue::Int32(scale)),
                ("datetime_precision", ScalarValue::Int32(column.data_type.is_temporal().then_some(6))),
                ("udt_catalog", text(DATABASE)),
                ("udt_schema", text("pg_catalog")),
                ("udt_name", text(short_name(&full))),
                ("is_generated", text(if column.generated.is_some() { "ALWAYS" } else { "NEVER" })),
                ("generation_expression", maybe_text(column.generated.clone())),
                ("is_updatable", yes_no(relation.kind == RelationKind::Table)),
            ]);
            rows.push(&row)?;
        }
    }
    Ok(())
}

/// The name in `pg_type` of a type's SQL name.
fn short_name(name: &str) -> String {
    if let Some(item) = name.strip_suffix("[]") {
        return format!("_{}", short_name(item));
    }
    match name.split('(').next().unwrap_or(name) {
        "boolean" => "bool",
        "smallint" => "int2",
        "integer" => "int4",
        "bigint" => "int8",
        "real" => "float4",
        "double precision" => "float8",
        "character varying" => "varchar",
        "timestamp without time zone" => "timestamp",
        "timestamp with time zone" => "timestamptz",
        "time without time zone" => "time",
        other => other,
    }
    .to_owned()
}

fn schemata(catalog: &Catalog, rows: &mut Rows) -> Result<()> {
    for (_, name) in super::postgres::namespaces(catalog) {
        rows.push(&[("catalog_name", text(DATABASE)), ("schema_name", text(name)), ("schema_owner", text("root"))])?;
    }
    Ok(())
}

fn views(catalog: &Catalog, rows: &mut Rows) -> Result<()> {
    for relation in visible(catalog).filter(|r| matches!(r.kind, RelationKind::View | RelationKind::MaterializedView)) {
        let mut row = place(relation).to_vec();
        row.push(("view_definition", maybe_text(relation.query.clone())));
        rows.push(&row)?;
    }
    Ok(())
}

fn constraint(relation: &Relation) -> Vec<(&'static str, ScalarValue)> {
    let mut row = place(relation).to_vec();
    row.extend([
        ("constraint_catalog", text(DATABASE)),
        ("constraint_schema", text(&relation.schema_name)),
        ("constraint_name", text(format!("{}_pkey", relation.name))),
    ]);
    row
}

fn keyed(catalog: &Catalog) -> impl Iterator<Item = &Arc<Relation>> {
    visible(catalog).filter(|r| r.kind == RelationKind::Table && !r.key.is_empty() && r.key.iter().all(|c| !r.columns[*c].hidden))
}

fn constraints(catalog: &Catalog, rows: &mut Rows) -> Result<()> {
    for relation in keyed(catalog) {
        let mut row = constraint(relation);
        row.push(("constraint_type", text("PRIMARY KEY")));
        rows.push(&row)?;
    }
    Ok(())
}

fn key_columns(catalog: &Catalog, rows: &mut Rows) -> Result<()> {
    for relation in keyed(catalog) {
        for (number, position) in relation.key.iter().enumerate() {
            let mut row = constraint(relation);
            row.extend([("column_name", text(&relation.columns[*position].name)), ("ordinal_position", int(number as i32 + 1))]);
            rows.push(&row)?;
        }
    }
    Ok(())
}
