//! `pg_catalog`: the tables that describe user relations, made from our catalog. The rest (types, functions, operators, and what is empty here) comes from
//! datafusion-pg-catalog. Object ids are stable: they are made from the numbers of the catalog.

use super::Origin;
use super::table::{LazyTable, Rows, flag, int, maybe_text, schema, text, time, timestamptz};
use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::scalar::ScalarValue;
use eddyline_protocol::catalog::DEFAULT_SCHEMA;
use eddyline_protocol::{Catalog, ColumnDef, Relation, RelationKind};
use eddyline_types::Result;
use std::sync::Arc;

/// The tables that are made here.
pub const NAMES: &[&str] = &[
    "pg_class",
    "pg_attribute",
    "pg_namespace",
    "pg_index",
    "pg_constraint",
    "pg_attrdef",
    "pg_database",
    "pg_tables",
    "pg_views",
    "pg_matviews",
    "pg_indexes",
    "pg_roles",
    "pg_user",
    "pg_stat_activity",
    "pg_foreign_table",
    "pg_foreign_server",
];

/// The others that clients may ask for.
pub const STOCK_NAMES: &[&str] = &[
    "pg_am",
    "pg_auth_members",
    "pg_cast",
    "pg_collation",
    "pg_depend",
    "pg_description",
    "pg_enum",
    "pg_extension",
    "pg_inherits",
    "pg_language",
    "pg_operator",
    "pg_policy",
    "pg_proc",
    "pg_publication",
    "pg_range",
    "pg_settings",
    "pg_shdescription",
    "pg_statistic_ext",
    "pg_tablespace",
    "pg_trigger",
    "pg_type",
];

/// User relations have their number above this, as in Postgres.
const FIRST_OID: i32 = 16384;
/// Primary key indexes have their table's number above this.
const FIRST_INDEX_OID: i32 = 1_000_000_000;
/// The only database.
const DATABASE_OID: i32 = 5;
/// The only role.
pub const OWNER_OID: i32 = 10;

/// The object id of a relation.
pub fn oid(relation: &Relation) -> i32 {
    FIRST_OID + relation.id.0 as i32
}

/// The relation of an object id.
pub fn relation_of(catalog: &Catalog, oid: i32) -> Option<&Arc<Relation>> {
    let id = u32::try_from(oid.checked_sub(FIRST_OID)?).ok()?;
    catalog.relations.get(&eddyline_types::ObjectId(id))
}

/// The table of the primary key index with an object id.
pub fn indexed_relation(catalog: &Catalog, oid: i32) -> Option<&Arc<Relation>> {
    let id = u32::try_from(oid.checked_sub(FIRST_INDEX_OID)?).ok()?;
    catalog.relations.get(&eddyline_types::ObjectId(id)).filter(|r| has_index(r))
}

/// The schema of whatever has an object id in `pg_class`.
pub fn schema_of(catalog: &Catalog, oid: i32) -> Option<String> {
    let of_user = relation_of(catalog, oid).or_else(|| indexed_relation(catalog, oid)).map(|r| r.schema_name.clone());
    of_user.or_else(|| system_relations().into_iter().find(|(o, ..)| *o == oid).map(|(_, schema, _)| schema.to_owned()))
}

fn index_oid(relation: &Relation) -> i32 {
    FIRST_INDEX_OID + relation.id.0 as i32
}

/// Whether a relation has a primary key that the user gave it.
fn has_index(relation: &Relation) -> bool {
    relation.kind == RelationKind::Table && !relation.key.is_empty() && relation.key.iter().all(|c| !relation.columns[*c].hidden)
}

fn key_names(relation: &Relation) -> String {
    relation.key.iter().map(|c| relation.columns[*c].name.as_str()).collect::<Vec<_>>().join(", ")
}

/// `CREATE UNIQUE INDEX ...` of a primary key.
pub fn index_definition(relation: &Relation) -> String {
    format!("CREATE UNIQUE INDEX {0}_pkey ON {1}.{0} USING btree ({2})", relation.name, relation.schema_name, key_names(relation))
}

/// `PRIMARY KEY (...)`.
pub fn constraint_definition(relation: &Relation) -> String {
    format!("PRIMARY KEY ({})", key_names(relation))
}

/// Namespaces with their object ids.
pub fn namespaces(catalog: &Catalog) -> Vec<(i32, String)> {
    let fixed = [(11, "pg_catalog"), (2200, DEFAULT_SCHEMA), (13_000, "information_schema"), (14_000, "eddy_catalog")];
    let mut all: Vec<(i32, String)> = fixed.into_iter().map(|(oid, name)| (oid, name.to_owned())).collect();
    let users = catalog.schemas.iter().filter(|s| s.as_str() != DEFAULT_SCHEMA);
    all.extend(users.enumerate().map(|(i, name)| (15_000 + i as i32, name.clone())));
    all
}

fn namespace_oid(namespaces: &[(i32, String)], name: &str) -> i32 {
    namespaces.iter().find(|(_, n)| n == name).map_or(2200, |(oid, _)| *oid)
}

/// The `relkind` of a relation: sources are foreign tables, sinks have a letter of their own.
fn relkind(kind: RelationKind) -> &'static str {
    match kind {
        RelationKind::Table => "r",
        RelationKind::MaterializedView => "m",
        RelationKind::View => "v",
        RelationKind::Source => "f",
        RelationKind::Sink => "s",
    }
}

/// What psql and drivers may see: everything but relations that are being created.
fn visible(catalog: &Catalog) -> impl Iterator<Item = &Arc<Relation>> {
    catalog.relations.values().filter(|r| catalog.is_visible(r.id))
}

fn shown(relation: &Relation) -> impl Iterator<Item = (usize, &ColumnDef)> {
    relation.columns.iter().enumerate().filter(|(_, c)| !c.hidden)
}

/// A table by its name; `stock`: the schema that datafusion-pg-catalog has for it.
pub(crate) fn table(origin: &Origin, name: &str, stock: Option<SchemaRef>) -> Option<Arc<dyn TableProvider>> {
    let origin = origin.clone();
    let from_catalog = |schema: SchemaRef, make: fn(&Catalog, &mut Rows) -> Result<()>| {
        let view = origin.view.clone();
        LazyTable::provider(schema, move |rows| make(&view.catalog(), rows))
    };
    Some(match name {
        "pg_class" => from_catalog(with_columns(stock?, &["reloptions", "relacl"]), classes),
        "pg_attribute" => from_catalog(stock?, attributes),
        "pg_namespace" => from_catalog(stock?, namespace_rows),
        "pg_index" => from_catalog(stock?, indexes),
        "pg_constraint" => from_catalog(stock?, constraints),
        "pg_attrdef" => from_catalog(stock?, defaults),
        "pg_database" => from_catalog(stock?, databases),
        "pg_tables" => from_catalog(stock?, tables),
        "pg_views" => from_catalog(stock?, views),
        "pg_matviews" => from_catalog(stock?, matviews),
        "pg_roles" => from_catalog(stock?, roles),
        "pg_foreign_table" => from_catalog(
            schema(&[("ftrelid", DataType::Int32), ("ftserver", DataType::Int32), ("ftoptions", DataType::Utf8)]),
            foreign_tables,
        ),
        "pg_foreign_server" => from_catalog(
            schema(&[("oid", DataType::Int32), ("srvname", DataType::Utf8), ("srvowner", DataType::Int32), ("srvfdw", DataType::Int32)]),
            foreign_servers,
        ),
        "pg_indexes" => {
            let columns = ["schemaname", "tablename", "indexname", "tablespace", "indexdef"].map(|c| (c, DataType::Utf8));
            from_catalog(schema(&columns), index_rows)
        }
        "pg_user" => {
            let columns = [
                ("usename", DataType::Utf8),
                ("usesysid", DataType::Int32),
                ("usecreatedb", DataType::Boolean),
                ("usesuper", DataType::Boolean),
            ];
            from_catalog(schema(&columns), |_, rows| {
                rows.push(&[("usename", text("root")), ("usesysid", int(OWNER_OID)), ("usecreatedb", flag(true)), ("usesuper", flag(true))])
            })
        }
        "pg_stat_activity" => activity(origin),
        _ => return None,
    })
}

/// The stock schema and text array columns that psql asks for and the stock lacks.
fn with_columns(stock: SchemaRef, names: &[&str]) -> SchemaRef {
    let mut fields: Vec<Arc<Field>> = stock.fields().iter().cloned().collect();
    for name in names.iter().filter(|n| stock.field_with_name(n).is_err()) {
        let item = Arc::new(Field::new("item", DataType::Utf8, true));
        fields.push(Arc::new(Field::new(*name, DataType::List(item), true)));
    }
    Arc::new(arrow::datatypes::Schema::new(fields))
}

fn classes(catalog: &Catalog, rows: &mut Rows) -> Result<()> {
    let namespaces = namespaces(catalog);
    for relation in visible(catalog) {
        let namespace = int(namespace_oid(&namespaces, &relation.schema_name));
        rows.push(&[
            ("oid", int(oid(relation))),
            ("relname", text(&relation.name)),
            ("relnamespace", namespace.clone()),
            ("relowner", int(OWNER_OID)),
            ("relam", int(if relation.has_job() { 2 } else { 0 })),
            ("reloftype", int(0)),
            ("reltuples", ScalarValue::Float64(Some(-1.0))),
            ("relhasindex", flag(has_index(relation))),
            ("relpersistence", text("p")),
            ("relkind", text(relkind(relation.kind))),
            ("relnatts", int(shown(relation).count() as i32)),
            ("relispopulated", flag(true)),
            ("relreplident", text("d")),
        ])?;
        if has_index(relation) {
            rows.push(&[
                ("oid", int(index_oid(relation))),
                ("relname", text(format!("{}_pkey", relation.name))),
                ("relnamespace", namespace),
                ("relowner", int(OWNER_OID)),
                ("relam", int(403)),
                ("reloftype", int(0)),
                ("relpersistence", text("p")),
                ("relkind", text("i")),
                ("relnatts", int(relation.key.len() as i32)),
                ("relispopulated", flag(true)),
                ("relreplident", text("n")),
            ])?;
        }
    }
    for (oid, schema, name) in system_relations() {
        rows.push(&[
            ("oid", int(oid)),
            ("relname", text(name)),
            ("relnamespace", int(namespace_oid(&namespaces, schema))),
            ("relowner", int(OWNER_OID)),
            ("relpersistence", text("p")),
            ("relkind", text(if schema == "pg_catalog" { "r" } else { "v" })),
            ("relispopulated", flag(true)),
            ("relreplident", text("n")),
        ])?;
    }
    Ok(())
}

/// Tables of the system's schemas; those that clients look up by number have Postgres' numbers.
fn system_relations() -> Vec<(i32, &'static str, &'static str)> {
    let known = |name: &str| match name {
        "pg_class" => Some(1259),
        "pg_type" => Some(1247),
        "pg_attribute" => Some(1249),
        "pg_proc" => Some(1255),
        "pg_namespace" => Some(2615),
        "pg_database" => Some(1262),
        "pg_constraint" => Some(2606),
        "pg_attrdef" => Some(2604),
        "pg_index" => Some(2610),
        _ => None,
    };
    let postgres = NAMES.iter().chain(STOCK_NAMES).enumerate().map(|(i, n)| (known(n).unwrap_or(12_000 + i as i32), "pg_catalog", *n));
    let information = super::information::NAMES.iter().enumerate().map(|(i, n)| (13_100 + i as i32, "information_schema", *n));
    let eddy = super::eddy::NAMES.iter().enumerate().map(|(i, n)| (14_100 + i as i32, "eddy_catalog", *n));
    postgres.chain(information).chain(eddy).collect()
}

fn attributes(catalog: &Catalog, rows: &mut Rows) -> Result<()> {
    for relation in visible(catalog) {
        for (number, (position, column)) in shown(relation).enumerate() {
            let (type_oid, length) = type_oid(&column.data_type);
            let is_text = matches!(type_oid, 25 | 1043);
            rows.push(&[
                ("attrelid", int(oid(relation))),
                ("attname", text(&column.name)),
                ("atttypid", int(type_oid)),
                ("attstattarget", int(-1)),
                ("attlen", int(length)),
                ("attnum", int(number as i32 + 1)),
                ("attcacheoff", int(-1)),
                ("atttypmod", int(type_modifier(&column.data_type))),
                ("attndims", int(i32::from(matches!(column.data_type, DataType::List(_))))),
                ("attbyval", flag(length > 0)),
                ("attalign", text("i")),
                ("attstorage", text(if length > 0 { "p" } else { "x" })),
                ("attcompression", text("")),
                ("attnotnull", flag(!column.nullable || (has_index(relation) && relation.key.contains(&position)))),
                ("atthasdef", flag(column.default.is_some() || column.generated.is_some())),
                ("attidentity", text("")),
                ("attgenerated", text(if column.generated.is_some() { "s" } else { "" })),
                ("attislocal", flag(true)),
                ("attcollation", int(if is_text { 100 } else { 0 })),
            ])?;
        }
    }
    Ok(())
}

/// Postgres' number and length of a type.
pub fn type_oid(data_type: &DataType) -> (i32, i32) {
    match data_type {
        DataType::Boolean => (16, 1),
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => (21, 2),
        DataType::Int32 | DataType::UInt16 => (23, 4),
        DataType::Int64 | DataType::UInt32 => (20, 8),
        DataType::Float16 | DataType::Float32 => (700, 4),
        DataType::Float64 => (701, 8),
        DataType::UInt64 | DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..) => {
            (1700, -1)
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => (17, -1),
        DataType::Date32 | DataType::Date64 => (1082, 4),
        DataType::Time32(_) | DataType::Time64(_) => (1083, 8),
        DataType::Timestamp(_, None) => (1114, 8),
        DataType::Timestamp(_, Some(_)) => (1184, 8),
        DataType::Interval(_) | DataType::Duration(_) => (1186, 16),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            (array_oid(type_oid(item.data_type()).0), -1)
        }
        DataType::Dictionary(_, value) => type_oid(value),
        DataType::Struct(_) => (2249, -1),
        _ => (1043, -1),
    }
}

fn array_oid(item: i32) -> i32 {
    match item {
        16 => 1000,
        21 => 1005,
        23 => 1007,
        20 => 1016,
        700 => 1021,
        701 => 1022,
        1700 => 1231,
        17 => 1001,
        1082 => 1182,
        1083 => 1183,
        1114 => 1115,
        1184 => 1185,
        1186 => 1187,
        _ => 1015,
    }
}

fn type_modifier(data_type: &DataType) -> i32 {
    match data_type {
        DataType::Decimal128(38, 10) => -1,
        DataType::Decimal128(p, s) | DataType::Decimal256(p, s) => ((i32::from(*p) << 16) | i32::from(*s)) + 4,
        _ => -1,
    }
}

fn namespace_rows(catalog: &Catalog, rows: &mut Rows) -> Result<()> {
    namespaces(catalog)
        .iter()
        .try_for_each(|(oid, name)| rows.push(&[("oid", int(*oid)), ("nspname", text(name)), ("nspowner", int(OWNER_OID))]))
}

/// Positions of key columns among the shown ones, from 1: as a list, or as the text of an `int2vector`.
fn key_numbers(relation: &Relation) -> ScalarValue {
    let numbers = relation.key.iter().filter_map(|k| shown(relation).position(|(i, _)| i == *k)).map(|n| n as i16 + 1);
    ScalarValue::List(ScalarValue::new_list_nullable(&numbers.map(|n| ScalarValue::Int16(Some(n))).collect::<Vec<_>>(), &DataType::Int16))
}

fn indexes(catalog: &Catalog, rows: &mut Rows) -> Result<()> {
    for relation in visible(catalog).filter(|r| has_index(r)) {
        rows.push(&[
            ("indexrelid", int(index_oid(relation))),
            ("indrelid", int(oid(relation))),
            ("indnatts", int(relation.key.len() as i32)),
            ("indnkeyatts", int(relation.key.len() as i32)),
            ("indisunique", flag(true)),
            ("indisprimary", flag(true)),
            ("indimmediate", flag(true)),
            ("indisvalid", flag(true)),
            ("indisready", flag(true)),
            ("indislive", flag(true)),
            ("indkey", key_numbers(relation)),
        ])?;
    }
    Ok(())
}

fn constraints(catalog: &Catalog, rows: &mut Rows) -> Result<()> {
    let namespaces = namespaces(catalog);
    for relation in visible(catalog).filter(|r| has_index(r)) {
        rows.push(&[
            ("oid", int(index_oid(relation))),
            ("conname", text(format!("{}_pkey", relation.name))),
            ("connamespace", int(namespace_oid(&namespaces, &relation.schema_name))),
            ("contype", text("p")),
            ("convalidated", flag(true)),
            ("conrelid", int(oid(relation))),
            ("conindid", int(index_oid(relation))),
            ("conislocal", flag(true)),
            ("conkey", key_numbers(relation)),
        ])?;
    }
    Ok(())
}

fn defaults(catalog: &Catalog, rows: &mut Rows) -> Result<()> {
    for relation in visible(catalog) {
        for (number, (_, column)) in shown(relation).enumerate() {
            if let Some(expr) = column.default.as_ref().or(column.generated.as_ref()) {
                let number = number as i32 + 1;
                rows.push(&[
                    ("oid", int(oid(relation) * 1000 + number)),
                    ("adrelid", int(oid(relation))),
                    ("adnum", int(number)),
                    ("adbin", text(expr)),
                ])?;
            }
        }
    }
    Ok(())
}

fn databases(_: &Catalog, rows: &mut Rows) -> Result<()> {
    rows.push(&[
        ("oid", int(DATABASE_OID)),
        ("datname", text(super::planner::DATABASE)),
        ("datdba", int(OWNER_OID)),
        ("encoding", int(6)),
        ("datlocprovider", text("c")),
        ("datcollate", text("C")),
        ("datctype", text("C.UTF-8")),
        ("datallowconn", flag(true)),
        ("datconnlimit", int(-1)),
        ("dattablespace", int(1663)),
    ])
}

fn of_kind(catalog: &Catalog, kind: RelationKind) -> impl Iterator<Item = &Arc<Relation>> {
    visible(catalog).filter(move |r| r.kind == kind)
}

fn tables(catalog: &Catalog, rows: &mut Rows) -> Result<()> {
    for r in of_kind(catalog, RelationKind::Table) {
        rows.push(&[
            ("schemaname", text(&r.schema_name)),
            ("tablename", text(&r.name)),
            ("tableowner", text(&r.owner)),
            ("hasindex", flag(has_index(r))),
        ])?;
    }
    Ok(())
}

fn views(catalog: &Catalog, rows: &mut Rows) -> Result<()> {
    for r in of_kind(catalog, RelationKind::View) {
        rows.push(&[
            ("schemaname", text(&r.schema_name)),
            ("viewname", text(&r.name)),
            ("viewowner", text(&r.owner)),
            ("definition", maybe_text(r.query.clone())),
        ])?;
    }
    Ok(())
}

fn matviews(catalog: &Catalog, rows: &mut Rows) -> Result<()> {
    for r in of_kind(catalog, RelationKind::MaterializedView) {
        rows.push(&[
            ("schemaname", text(&r.schema_name)),
            ("matviewname", text(&r.name)),
            ("matviewowner", text(&r.owner)),
            ("hasindexes", flag(false)),
            ("ispopulated", flag(true)),
            ("definition", maybe_text(r.query.clone())),
        ])?;
    }
    Ok(())
}

fn index_rows(catalog: &Catalog, rows: &mut Rows) -> Result<()> {
    for r in visible(catalog).filter(|r| has_index(r)) {
        rows.push(&[
            ("schemaname", text(&r.schema_name)),
            ("tablename", text(&r.name)),
            ("indexname", text(format!("{}_pkey", r.name))),
            ("indexdef", text(index_definition(r))),
        ])?;
    }
    Ok(())
}

fn roles(_: &Catalog, rows: &mut Rows) -> Result<()> {
    rows.push(&[
        ("oid", int(OWNER_OID)),
        ("rolname", text("root")),
        ("rolsuper", flag(true)),
        ("rolinherit", flag(true)),
        ("rolcreaterole", flag(true)),
        ("rolcreatedb", flag(true)),
        ("rolcanlogin", flag(true)),
        ("rolreplication", flag(false)),
        ("rolconnlimit", int(-1)),
        ("rolbypassrls", flag(true)),
    ])
}

fn foreign_tables(catalog: &Catalog, rows: &mut Rows) -> Result<()> {
    for r in of_kind(catalog, RelationKind::Source) {
        let options = r.spec.iter().flat_map(|s| &s.options).map(|(name, value)| format!("{name} '{}'", value.replace('\'', "''")));
        let options = options.collect::<Vec<_>>().join(", ");
        rows.push(&[("ftrelid", int(oid(r))), ("ftserver", int(oid(r))), ("ftoptions", text(options))])?;
    }
    Ok(())
}

fn foreign_servers(catalog: &Catalog, rows: &mut Rows) -> Result<()> {
    for r in of_kind(catalog, RelationKind::Source) {
        let connector = r.spec.as_ref().map_or("", |s| s.connector.as_str());
        rows.push(&[("oid", int(oid(r))), ("srvname", text(connector)), ("srvowner", int(OWNER_OID)), ("srvfdw", int(0))])?;
    }
    Ok(())
}

fn activity(origin: Origin) -> Arc<dyn TableProvider> {
    let columns = schema(&[
        ("datid", DataType::Int32),
        ("datname", DataType::Utf8),
        ("pid", DataType::Int32),
        ("usesysid", DataType::Int32),
        ("usename", DataType::Utf8),
        ("application_name", DataType::Utf8),
        ("client_addr", DataType::Utf8),
        ("backend_start", timestamptz()),
        ("xact_start", timestamptz()),
        ("query_start", timestamptz()),
        ("state_change", timestamptz()),
        ("wait_event_type", DataType::Utf8),
        ("wait_event", DataType::Utf8),
        ("state", DataType::Utf8),
        ("query", DataType::Utf8),
        ("backend_type", DataType::Utf8),
    ]);
    LazyTable::provider(columns, move |rows| {
        for s in origin.system.sessions() {
            rows.push(&[
                ("datid", int(DATABASE_OID)),
                ("datname", text(s.database)),
                ("pid", int(s.id)),
                ("usesysid", int(OWNER_OID)),
                ("usename", text(s.user)),
                ("application_name", text(s.protocol)),
                ("client_addr", text(s.peer)),
                ("backend_start", time(s.started_ms)),
                ("state", text(s.state)),
                ("query", text(s.statement)),
                ("backend_type", text("client backend")),
            ])?;
        }
        Ok(())
    })
}
