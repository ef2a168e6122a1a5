//! Rows of a relation: filtered by equality, or looked up by key.

use crate::app::{App, peer};
use crate::failure::Failure;
use crate::format::{Format, Shape, result_json, stream};
use crate::json::{self, JsonRows};
use crate::query::{self, RelationName, ident};
use crate::run;
use actix_web::{HttpRequest, HttpResponse, web};
use eddyline_protocol::{Catalog, Relation};
use eddyline_types::value_parse::parse_column;
use eddyline_types::value_text::TextColumn;
use eddyline_types::{Error, SqlState};
use futures::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Rows without a `limit`.
const DEFAULT_LIMIT: u64 = 1000;
/// Keys of one lookup.
const MAX_KEYS: usize = 1000;

/// The relation of a path.
pub(crate) fn find(catalog: &Catalog, name: &str) -> Result<Arc<Relation>, Failure> {
    let RelationName { schema, name: relation } = RelationName::parse(name);
    catalog
        .find(&schema, &relation)
        .cloned()
        .ok_or_else(|| Error::user(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist")).into())
}

/// `*`, or the columns asked for.
fn column_list(columns: Option<&str>) -> String {
    match columns {
        None | Some("") => "*".into(),
        Some(list) => list.split(',').map(|c| ident(c.trim())).collect::<Vec<_>>().join(", "),
    }
}

/// `GET /v1/views/{name}/rows?col=value&columns=a,b&limit=10`
pub(crate) async fn get(request: HttpRequest, path: web::Path<String>, app: web::Data<App>) -> Result<HttpResponse, Failure> {
    let format = Format::of(&request)?;
    let mut filters = query::pairs(request.query_string())?;
    let columns = query::take(&mut filters, "columns")?;
    let limit = query::take_number(&mut filters, "limit")?.unwrap_or(DEFAULT_LIMIT);
    if query::take(&mut filters, "as_of")?.is_some() {
        return Err(Error::unsupported("parameter \"as_of\" is not supported yet").into());
    }
    let name = RelationName::parse(&path);
    find(&app.frontend.catalog(), &path)?;
    let mut sql = format!("SELECT {} FROM {}", column_list(columns.as_deref()), name.quoted());
    for (i, (column, _)) in filters.iter().enumerate() {
        sql += &format!(" {} {} = ${}", if i == 0 { "WHERE" } else { "AND" }, ident(column), i + 1);
    }
    sql += &format!(" LIMIT {limit}");
    let parameters: Vec<Option<String>> = filters.into_iter().map(|(_, value)| Some(value)).collect();
    let slot = app.admit().await?;
    let mut session = app.session(&peer(&request), None, vec![])?;
    if format == Format::Json {
        let max_bytes = app.options.max_json_bytes;
        let answer = app.work(async move {
            let _slot = slot;
            let outcome = run::one(&mut session, &sql, &parameters).await?;
            result_json(outcome, Shape::Arrays, max_bytes).await
        });
        return Ok(HttpResponse::Ok().content_type("application/json").body(answer.await?));
    }
    let streamed = app.work(async move {
        let outcome = run::one(&mut session, &sql, &parameters).await?;
        stream(format, outcome, session, slot).await
    });
    Ok(streamed.await?.response())
}

/// The body of a lookup.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LookupRequest {
    keys: Vec<Vec<Value>>,
    columns: Option<Vec<String>>,
}

/// `POST /v1/views/{name}/lookup`: the row of each key in the order asked, `null` for a missing one, all at one epoch.
pub(crate) async fn lookup(
    request: HttpRequest,
    path: web::Path<String>,
    payload: web::Payload,
    app: web::Data<App>,
) -> Result<HttpResponse, Failure> {
    let asked: LookupRequest = query::body(&app.body(payload).await?)?;
    let relation = find(&app.frontend.catalog(), &path)?;
    let lookup = Lookup::new(&relation, &asked)?;
    let sql = lookup.sql(&RelationName::parse(&path), asked.columns.as_deref());
    let slot = app.admit().await?;
    let mut session = app.session(&peer(&request), None, vec![])?;
    let answer = app.work(async move {
        let _slot = slot;
        let mut outcome = run::one(&mut session, &sql, &lookup.parameters).await?;
        let schema = outcome.schema.clone().ok_or_else(|| Error::internal("a lookup returned no columns"))?;
        let width = lookup.width;
        let visible: Vec<usize> = (width..schema.fields().len()).collect();
        let mut found: HashMap<Vec<Vec<u8>>, Vec<u8>> = HashMap::new();
        while let Some(batch) = outcome.rows.next().await {
            let batch = batch?;
            let keys: Vec<TextColumn> = batch.columns()[..width].iter().map(|c| TextColumn::new(c.as_ref())).collect();
            let shown = batch.project(&visible).map_err(Error::from)?;
            let rows = JsonRows::new(&shown);
            for row in 0..batch.num_rows() {
                let key = keys.iter().map(|k| k.text(row).into_bytes()).collect();
                let mut text = vec![];
                rows.write_array(row, &mut text);
                found.insert(key, text);
            }
        }
        let shown = Arc::new(schema.project(&visible).map_err(Error::from)?);
        let mut out = format!("{{\"columns\":{},\"rows\":[", json::columns(&shown)).into_bytes();
        for (i, key) in lookup.keys.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(found.get(key).map_or(&b"null"[..], Vec::as_slice));
        }
        let epoch = outcome.epoch.map_or(String::new(), |e| format!(",\"epoch\":{e}"));
        out.extend_from_slice(format!("]{epoch}}}").as_bytes());
        Ok(out)
    });
    Ok(HttpResponse::Ok().content_type("application/json").body(answer.await?))
}

/// Keys of a lookup, in the texts that results will show.
struct Lookup {
    key_columns: Vec<String>,
    width: usize,
    keys: Vec<Vec<Vec<u8>>>,
    /// By key column, its distinct values: the parameters, in order.
    values: Vec<usize>,
    parameters: Vec<Option<String>>,
}

impl Lookup {
    fn new(relation: &Relation, asked: &LookupRequest) -> Result<Self, Failure> {
        let key: Vec<_> = relation.key.iter().map(|&i| &relation.columns[i]).collect();
        if key.is_empty() || key.iter().any(|c| c.hidden) {
            let error = Error::user(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" has no key of its own columns to look up", relation.name));
            return Err(error.with_hint("Use .../rows with filters.").into());
        }
        if asked.keys.len() > MAX_KEYS {
            return Err(Error::user(SqlState::LIMIT_EXCEEDED, format!("more than {MAX_KEYS} keys in one lookup")).into());
        }
        let width = key.len();
        let mut keys = vec![vec![]; asked.keys.len()];
        let (mut parameters, mut values) = (vec![], vec![]);
        for (at, column) in key.iter().enumerate() {
            let mut texts = vec![];
            for (n, given) in asked.keys.iter().enumerate() {
                if given.len() != width {
                    let names: Vec<&str> = key.iter().map(|c| c.name.as_str()).collect();
                    let message =
                        format!("key {} has {} values; the key of \"{}\" is ({})", n + 1, given.len(), relation.name, names.join(", "));
                    return Err(Failure::bad_request(message));
                }
                texts.push(query::scalar_text(&given[at]));
            }
            let refs: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
            let array = parse_column(&column.data_type, &refs).map_err(|e| e.context(format_args!("key column \"{}\"", column.name)))?;
            let shown = TextColumn::new(array.as_ref());
            let mut distinct = std::collections::BTreeSet::new();
            for (n, text) in texts.into_iter().enumerate() {
                // A NULL matches no row: its key is made one that no row has.
                let canonical = if text.is_some() { shown.text(n).into_bytes() } else { vec![0xff] };
                if text.is_some() {
                    distinct.insert(shown.text(n));
                }
                keys[n].push(canonical);
            }
            values.push(distinct.len());
            parameters.extend(distinct.into_iter().map(Some));
        }
        Ok(Lookup { key_columns: key.iter().map(|c| c.name.clone()).collect(), width, keys, values, parameters })
    }

    /// All rows whose key columns are among the values: more than asked if the key has several columns; the rest is left out afterwards.
    fn sql(&self, name: &RelationName, columns: Option<&[String]>) -> String {
        let mut next = 0;
        let conditions: Vec<String> = self
            .key_columns
            .iter()
            .zip(&self.values)
            .map(|(column, count)| {
                let places: Vec<String> = (next + 1..=next + count).map(|i| format!("${i}")).collect();
                next += count;
                if places.is_empty() { "false".to_owned() } else { format!("{} IN ({})", ident(column), places.join(", ")) }
            })
            .collect();
        let keys: Vec<String> = self.key_columns.iter().enumerate().map(|(i, c)| format!("{} AS \"key {i}\"", ident(c))).collect();
        let shown = match columns {
            None => "*".to_owned(),
            Some(list) => list.iter().map(|c| ident(c)).collect::<Vec<_>>().join(", "),
        };
        format!("SELECT {}, {shown} FROM {} WHERE {}", keys.join(", "), name.quoted(), conditions.join(" AND "))
    }
}

/// A list of objects from a query over the system catalog.
pub(crate) async fn objects(app: &App, request: &HttpRequest, sql: String, parameters: Vec<Option<String>>) -> Result<Vec<Value>, Failure> {
    let slot = app.admit().await?;
    let mut session = app.session(&peer(request), None, vec![])?;
    let max_bytes = app.options.max_json_bytes;
    let body = app
        .work(async move {
            let _slot = slot;
            let outcome = run::one(&mut session, &sql, &parameters).await?;
            result_json(outcome, Shape::Objects, max_bytes).await
        })
        .await?;
    let mut value: Value = serde_json::from_slice(&body).map_err(|e| Error::internal(format!("an answer of ours is no JSON: {e}")))?;
    match value["rows"].take() {
        Value::Array(rows) => Ok(rows),
        _ => Ok(vec![json!({})]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::DataType;
    use eddyline_protocol::{ColumnDef, RelationKind};

    fn relation() -> Relation {
        Relation {
            id: eddyline_types::ObjectId(1),
            schema_name: "public".into(),
            name: "v".into(),
            kind: RelationKind::MaterializedView,
            columns: vec![ColumnDef::new("a", DataType::Int32), ColumnDef::new("b", DataType::Utf8), ColumnDef::new("n", DataType::Int64)],
            key: vec![0, 1],
            append_only: false,
            spec: None,
            definition: String::new(),
            query: None,
            depends_on: vec![],
            table: None,
            owner: "root".into(),
            created_ms: 0,
        }
    }

    #[test]
    fn lookups_become_one_query() {
        let asked =
            LookupRequest { keys: vec![vec![json!("01"), json!("x")], vec![json!(2), json!(null)]], columns: Some(vec!["n".into()]) };
        let lookup = Lookup::new(&relation(), &asked).unwrap();
        assert_eq!(lookup.keys[0], [b"1".to_vec(), b"x".to_vec()]);
        assert_eq!(lookup.parameters, [Some("1".into()), Some("2".into()), Some("x".into())]);
        let wanted = "SELECT \"a\" AS \"key 0\", \"b\" AS \"key 1\", \"n\" FROM \"public\".\"v\" WHERE \"a\" IN ($1, $2) AND \"b\" IN ($3)";
        assert_eq!(lookup.sql(&RelationName::parse("v"), asked.columns.as_deref()), wanted);
        let short = LookupRequest { keys: vec![vec![json!(1)]], columns: None };
        assert!(Lookup::new(&relation(), &short).err().unwrap().to_string().contains("(a, b)"));
        let wrong = LookupRequest { keys: vec![vec![json!("one"), json!("x")]], columns: None };
        assert!(Lookup::new(&relation(), &wrong).err().unwrap().to_string().contains("key column \"a\""));
        let mut hidden = relation();
        hidden.columns[0].hidden = true;
        assert_eq!(Lookup::new(&hidden, &short).err().unwrap().error.sqlstate(), SqlState::WRONG_OBJECT_TYPE);
    }
}
