//! The functions of Postgres that psql, drivers and tools call and that datafusion-pg-catalog lacks, or answers for another server.

use super::postgres;
use super::{Origin, planner};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;
use eddyline_protocol::Catalog;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// One value of a function from the values of one row's arguments; `None`: NULL.
type Row = Arc<dyn Fn(&[ScalarValue]) -> Option<ScalarValue> + Send + Sync>;

/// A function of any arguments, computed row by row: these tables are small.
struct RowFunction {
    name: String,
    signature: Signature,
    data_type: DataType,
    row: Row,
}

impl std::fmt::Debug for RowFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl PartialEq for RowFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.row, &other.row)
    }
}

impl Eq for RowFunction {}

impl Hash for RowFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for RowFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(self.data_type.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let value = |row: &[ScalarValue]| match (self.row)(row) {
            Some(value) => value.cast_to(&self.data_type),
            None => ScalarValue::try_new_null(&self.data_type),
        };
        if args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_))) {
            let row: Vec<ScalarValue> =
                args.args.iter().filter_map(|a| if let ColumnarValue::Scalar(s) = a { Some(s.clone()) } else { None }).collect();
            return Ok(ColumnarValue::Scalar(value(&row)?));
        }
        let arrays: Vec<ArrayRef> = args.args.iter().map(|a| a.to_array(args.number_rows)).collect::<DfResult<_>>()?;
        let rows = (0..args.number_rows).map(|i| {
            let row: Vec<ScalarValue> = arrays.iter().map(|a| ScalarValue::try_from_array(a, i)).collect::<DfResult<_>>()?;
            value(&row)
        });
        let values = rows.collect::<DfResult<Vec<_>>>()?;
        let array = if values.is_empty() { arrow::array::new_empty_array(&self.data_type) } else { ScalarValue::iter_to_array(values)? };
        Ok(ColumnarValue::Array(array))
    }
}

fn function(name: &str, data_type: DataType, row: impl Fn(&[ScalarValue]) -> Option<ScalarValue> + Send + Sync + 'static) -> ScalarUDF {
    let signature = Signature::one_of(
        vec![datafusion::logical_expr::TypeSignature::VariadicAny, datafusion::logical_expr::TypeSignature::Nullary],
        Volatility::Stable,
    );
    ScalarUDF::new_from_impl(RowFunction { name: name.to_owned(), signature, data_type, row: Arc::new(row) })
}

fn text(value: impl Into<String>) -> Option<ScalarValue> {
    Some(ScalarValue::Utf8(Some(value.into())))
}

/// A number argument, however it is typed.
fn number(value: Option<&ScalarValue>) -> Option<i64> {
    let array = value?.cast_to(&DataType::Int64).ok()?.to_array().ok()?;
    let array = array.as_primitive_opt::<Int64Type>()?;
    array.is_valid(0).then(|| array.value(0))
}

fn string(value: Option<&ScalarValue>) -> Option<String> {
    match value?.cast_to(&DataType::Utf8).ok()? {
        ScalarValue::Utf8(text) => text,
        _ => None,
    }
}

/// Registers what does not depend on the session.
pub(crate) fn register(context: &SessionContext, origin: &Origin) {
    let mut all = constants();
    all.extend(about_relations(origin));
    for function in all {
        context.register_udf(function);
    }
}

/// Functions that always say the same here.
fn constants() -> Vec<ScalarUDF> {
    let mut all = Vec::new();
    let version = format!("PostgreSQL {}.0-eddyline-{} on Linux", 15, env!("CARGO_PKG_VERSION"));
    all.push(function("version", DataType::Utf8, move |_| text(version.clone())));
    for name in
        ["obj_description", "col_description", "shobj_description", "pg_get_serial_sequence", "pg_get_function_result", "pg_get_triggerdef"]
    {
        all.push(function(name, DataType::Utf8, |_| None));
    }
    for name in ["pg_get_function_arguments", "pg_get_function_identity_arguments", "pg_get_ruledef", "pg_tablespace_location"] {
        all.push(function(name, DataType::Utf8, |_| text("")));
    }
    for name in [
        "pg_type_is_visible",
        "pg_function_is_visible",
        "pg_collation_is_visible",
        "pg_opclass_is_visible",
        "pg_operator_is_visible",
        "pg_conversion_is_visible",
        "pg_statistics_obj_is_visible",
        "pg_ts_config_is_visible",
        "pg_ts_dict_is_visible",
        "pg_ts_parser_is_visible",
        "pg_ts_template_is_visible",
        "pg_opfamily_is_visible",
        "has_column_privilege",
        "has_function_privilege",
        "has_sequence_privilege",
        "has_type_privilege",
        "pg_has_role",
    ] {
        all.push(function(name, DataType::Boolean, |_| Some(ScalarValue::Boolean(Some(true)))));
    }
    for name in ["pg_is_in_recovery", "pg_is_other_temp_schema"] {
        all.push(function(name, DataType::Boolean, |_| Some(ScalarValue::Boolean(Some(false)))));
    }
    for name in ["pg_my_temp_schema", "pg_char_to_encoding"] {
        let value = if name == "pg_my_temp_schema" { 0 } else { 6 };
        all.push(function(name, DataType::Int32, move |_| Some(ScalarValue::Int32(Some(value)))));
    }
    for name in ["pg_table_size", "pg_indexes_size", "pg_database_size", "pg_tablespace_size", "pg_relation_size", "pg_total_relation_size"]
    {
        all.push(function(name, DataType::Int64, |_| Some(ScalarValue::Int64(Some(0)))));
    }
    all.push(function("pg_size_pretty", DataType::Utf8, |row| number(row.first()).and_then(|n| text(pretty_size(n)))));
    all.push(function("getdatabaseencoding", DataType::Utf8, |_| text("UTF8")));
    all.push(function("pg_get_userbyid", DataType::Utf8, |row| match number(row.first())? {
        oid if oid == i64::from(postgres::OWNER_OID) => text("root"),
        oid => text(format!("unknown (OID={oid})")),
    }));
    all.push(function("pg_get_expr", DataType::Utf8, |row| string(row.first()).and_then(text)));
    all.push(function("quote_literal", DataType::Utf8, |row| text(format!("'{}'", string(row.first())?.replace('\'', "''")))));
    all
}

fn pretty_size(bytes: i64) -> String {
    let mut value = bytes;
    for unit in ["bytes", "kB", "MB", "GB"] {
        if value.abs() < 10 * 1024 {
            return format!("{value} {unit}");
        }
        value = (value + 512) / 1024;
    }
    format!("{value} TB")
}

/// Functions that look an object up in the catalog.
fn about_relations(origin: &Origin) -> Vec<ScalarUDF> {
    type Look = fn(&Catalog, i32) -> Option<String>;
    let looks: [(&str, Look); 3] = [
        ("pg_get_viewdef", |catalog, oid| postgres::relation_of(catalog, oid)?.query.clone()),
        ("pg_get_indexdef", |catalog, oid| Some(postgres::index_definition(postgres::indexed_relation(catalog, oid)?))),
        ("pg_get_constraintdef", |catalog, oid| Some(postgres::constraint_definition(postgres::indexed_relation(catalog, oid)?))),
    ];
    let mut all: Vec<ScalarUDF> = looks
        .into_iter()
        .map(|(name, look)| {
            let view = origin.view.clone();
            function(name, DataType::Utf8, move |row| text(look(&view.catalog(), number(row.first())? as i32)?))
        })
        .collect();
    let view = origin.view.clone();
    all.push(function("eddy_column_default", DataType::Utf8, move |row| {
        let catalog = view.catalog();
        let relation = postgres::relation_of(&catalog, number(row.first())? as i32)?;
        let position = usize::try_from(number(row.get(1))? - 1).ok()?;
        let column = relation.columns.iter().filter(|c| !c.hidden).nth(position)?;
        column.default.clone().or_else(|| column.generated.clone()).and_then(text)
    }));
    for name in ["to_regclass", "to_regtype"] {
        let view = origin.view.clone();
        all.push(function(name, DataType::Int32, move |row| {
            let wanted = string(row.first())?.replace('"', "");
            let (schema, name) = wanted.rsplit_once('.').unwrap_or(("public", &wanted));
            let catalog = view.catalog();
            let oid = postgres::oid(catalog.find(schema, name)?);
            Some(ScalarValue::Int32(Some(oid)))
        }));
    }
    all
}

/// What a session's functions answer.
pub struct SessionFacts<'a> {
    /// User.
    pub user: &'a str,
    /// Number of the session.
    pub session_id: i32,
    /// Schemas that names are looked up in.
    pub search_path: &'a [String],
    /// Effective variables.
    pub settings: &'a Arc<BTreeMap<String, String>>,
}

/// Functions that depend on the session.
pub(crate) fn of_session(facts: &SessionFacts<'_>, origin: &Origin) -> Vec<ScalarUDF> {
    let user = facts.user.to_owned();
    let mut all = Vec::new();
    let (view, path) = (origin.view.clone(), facts.search_path.to_vec());
    all.push(function("pg_table_is_visible", DataType::Boolean, move |row| {
        let schema = postgres::schema_of(&view.catalog(), number(row.first())? as i32)?;
        Some(ScalarValue::Boolean(Some(schema == "pg_catalog" || path.contains(&schema))))
    }));
    for name in ["session_user", "current_user", "user", "current_role"] {
        let user = user.clone();
        all.push(function(name, DataType::Utf8, move |_| text(user.clone())));
    }
    for name in ["current_database", "current_catalog"] {
        all.push(function(name, DataType::Utf8, |_| text(planner::DATABASE)));
    }
    let first = facts.search_path.first().cloned();
    all.push(function("current_schema", DataType::Utf8, move |_| first.clone().and_then(text)));
    let path = facts.search_path.to_vec();
    let list = DataType::List(Arc::new(arrow::datatypes::Field::new("item", DataType::Utf8, true)));
    all.push(function("current_schemas", list, move |row| {
        let implicit = matches!(row.first(), Some(ScalarValue::Boolean(Some(true))));
        let names = implicit.then_some("pg_catalog".to_owned()).into_iter().chain(path.iter().cloned());
        let values: Vec<ScalarValue> = names.map(|n| ScalarValue::Utf8(Some(n))).collect();
        Some(ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Utf8)))
    }));
    let id = facts.session_id;
    all.push(function("pg_backend_pid", DataType::Int32, move |_| Some(ScalarValue::Int32(Some(id)))));
    let settings = facts.settings.clone();
    all.push(function("current_setting", DataType::Utf8, move |row| {
        let name = string(row.first())?.to_lowercase();
        settings.get(&name).cloned().and_then(text)
    }));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_postgres_writes_them() {
        assert_eq!(pretty_size(10), "10 bytes");
        assert_eq!(pretty_size(20 * 1024), "20 kB");
        assert_eq!(pretty_size(30 << 20), "30 MB");
    }

    #[test]
    fn arguments_are_read_whatever_their_type() {
        assert_eq!(number(Some(&ScalarValue::Utf8(Some("16400".into())))), Some(16400));
        assert_eq!(number(Some(&ScalarValue::Int32(None))), None);
        assert_eq!(number(None), None);
        assert_eq!(string(Some(&ScalarValue::Int64(Some(3)))), Some("3".into()));
    }
}
