//! `POST /v1/tables/{name}/rows`: rows into a table, all of them or none, answered when they are durable.

use crate::app::{App, peer};
use crate::failure::Failure;
use crate::query::{self, RelationName};
use crate::rows::find;
use actix_web::http::header::CONTENT_TYPE;
use actix_web::{HttpRequest, HttpResponse, web};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Schema};
use arrow_ipc::reader::StreamReader;
use eddyline_protocol::{Relation, RelationKind};
use eddyline_types::value_parse::parse_column;
use eddyline_types::{Error, SqlState};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Takes a JSON array of objects, NDJSON, CSV with a header, or an Arrow stream, by `Content-Type`.
pub(crate) async fn post(
    request: HttpRequest,
    path: web::Path<String>,
    payload: web::Payload,
    app: web::Data<App>,
) -> Result<HttpResponse, Failure> {
    if request.headers().contains_key("idempotency-key") {
        return Err(Error::unsupported("header Idempotency-Key is not supported yet")
            .with_hint("Give the table a primary key: rows that are sent twice are then stored once.")
            .into());
    }
    let kind = request.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("application/json");
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let relation = find(&app.frontend.catalog(), &path)?;
    if relation.kind != RelationKind::Table {
        let error = Error::user(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" is a {}, not a table", relation.name, relation.kind.name()));
        return Err(error.into());
    }
    let body = app.body(payload).await?;
    let slot = app.admit().await?;
    let mut session = app.session(&peer(&request), None, vec![])?;
    let name = RelationName::parse(&path);
    let done = app.work(async move {
        let _slot = slot;
        let rows = decode(&kind, &body, &relation)?;
        let columns: Vec<String> = rows.schema().fields().iter().map(|f| f.name().clone()).collect();
        if rows.num_rows() == 0 {
            return Ok(json!({ "rows": 0 }));
        }
        if columns.is_empty() {
            return Err(Failure::bad_request("the rows have no columns"));
        }
        let (count, epoch) = session.insert(&name.quoted(), &columns, rows).await?;
        Ok(json!({ "rows": count, "epoch": epoch.0 }))
    });
    Ok(HttpResponse::Ok().json(done.await?))
}

fn decode(kind: &str, body: &[u8], relation: &Relation) -> Result<RecordBatch, Failure> {
    let text = || std::str::from_utf8(body).map_err(|_| Failure::bad_request("the request's body is not UTF-8"));
    match kind {
        // What curl says without being told is taken as JSON, too.
        "" | "application/json" | "application/x-www-form-urlencoded" => {
            let rows: Vec<Map<String, Value>> = query::body(body)?;
            from_objects(rows, relation)
        }
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => {
            let mut rows: Vec<Map<String, Value>> = vec![];
            for (n, line) in text()?.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
                rows.push(
                    serde_json::from_str(line).map_err(|e| {
                        Failure::from(Error::user(SqlState::INVALID_TEXT, format!("line {} is no JSON object: {e}", n + 1)))
                    })?,
                );
            }
            from_objects(rows, relation)
        }
        "text/csv" => from_csv(text()?, relation),
        "application/vnd.apache.arrow.stream" => from_arrow(body),
        other => {
            let error = Error::user(SqlState::INVALID_PARAMETER_VALUE, format!("rows cannot be read as \"{other}\""))
                .with_hint("Use application/json, application/x-ndjson, text/csv or application/vnd.apache.arrow.stream.");
            Err(Failure { status: Some(actix_web::http::StatusCode::UNSUPPORTED_MEDIA_TYPE), ..error.into() })
        }
    }
}

/// The visible column of a name.
fn position(relation: &Relation, name: &str) -> Result<usize, Failure> {
    relation.columns.iter().position(|c| c.name == name && !c.hidden).ok_or_else(|| {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", relation.name);
        Error::user(SqlState::UNDEFINED_COLUMN, message).into()
    })
}

/// Columns that no row has take their default; a key that only some rows have is NULL in the others.
fn from_objects(rows: Vec<Map<String, Value>>, relation: &Relation) -> Result<RecordBatch, Failure> {
    let mut used = vec![false; relation.columns.len()];
    for row in &rows {
        for name in row.keys() {
            used[position(relation, name)?] = true;
        }
    }
    let columns: Vec<usize> = (0..used.len()).filter(|&i| used[i]).collect();
    let value = |row: &Map<String, Value>, name: &str| row.get(name).and_then(query::scalar_text);
    let texts = columns.iter().map(|&i| rows.iter().map(|row| value(row, &relation.columns[i].name)).collect()).collect();
    from_texts(relation, &columns, texts, rows.len())
}

fn from_csv(text: &str, relation: &Relation) -> Result<RecordBatch, Failure> {
    let mut records = crate::csv::parse(text)?.into_iter();
    let Some(header) = records.next() else { return Ok(RecordBatch::new_empty(Arc::new(Schema::empty()))) };
    let names = header.into_iter().map(Option::unwrap_or_default);
    let columns = names.map(|name| position(relation, &name)).collect::<Result<Vec<_>, _>>()?;
    let mut texts: Vec<Vec<Option<String>>> = vec![vec![]; columns.len()];
    let mut rows = 0;
    for record in records {
        rows += 1;
        if record.len() != columns.len() {
            let message = format!("row {rows} has {} fields, the header {}", record.len(), columns.len());
            return Err(Error::user(SqlState::BAD_COPY_FORMAT, message).into());
        }
        for (column, field) in texts.iter_mut().zip(record) {
            column.push(field);
        }
    }
    from_texts(relation, &columns, texts, rows)
}

fn from_texts(relation: &Relation, columns: &[usize], texts: Vec<Vec<Option<String>>>, rows: usize) -> Result<RecordBatch, Failure> {
    let mut fields = vec![];
    let mut arrays: Vec<ArrayRef> = vec![];
    for (&at, texts) in columns.iter().zip(&texts) {
        let column = &relation.columns[at];
        let refs: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
        let array = parse_column(&column.data_type, &refs).map_err(|e| {
            // One value after another finds the row to name; it is only done for rows that are refused.
            let row = refs.iter().position(|text| parse_column(&column.data_type, &[*text]).is_err()).map_or(0, |n| n + 1);
            e.context(format_args!("row {row}, column \"{}\"", column.name))
        })?;
        fields.push(Field::new(&column.name, column.data_type.clone(), true));
        arrays.push(array);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options).map_err(Error::from)?)
}

fn from_arrow(body: &[u8]) -> Result<RecordBatch, Failure> {
    let bad = |e: arrow::error::ArrowError| Failure::bad_request(format!("the request's body is no Arrow stream: {e}"));
    let reader = StreamReader::try_new(body, None).map_err(bad)?;
    let schema = reader.schema();
    let batches = reader.collect::<Result<Vec<_>, _>>().map_err(bad)?;
    concat_batches(&schema, &batches).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Array, AsArray};
    use arrow::datatypes::{DataType, Int64Type};
    use eddyline_protocol::ColumnDef;

    fn table() -> Relation {
        let mut hidden = ColumnDef::new("_row_id", DataType::Int64);
        hidden.hidden = true;
        Relation {
            id: eddyline_types::ObjectId(1),
            schema_name: "public".into(),
            name: "t".into(),
            kind: RelationKind::Table,
            columns: vec![hidden, ColumnDef::new("id", DataType::Int64), ColumnDef::new("name", DataType::Utf8)],
            key: vec![0],
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
    fn rows_are_read_in_every_format() {
        let check = |kind: &str, body: &str| {
            let batch = decode(kind, body.as_bytes(), &table()).unwrap();
            assert_eq!(batch.column(0).as_primitive::<Int64Type>().values(), &[1, 2], "{kind}");
            let names = batch.column(1).as_string::<i32>();
            assert!(names.value(0) == "a, b" && names.is_null(1), "{kind}");
        };
        check("application/json", r#"[{"id":1,"name":"a, b"},{"id":"2","name":null}]"#);
        check("application/x-ndjson", "{\"id\":1,\"name\":\"a, b\"}\n\n{\"id\":2}\n");
        check("text/csv", "id,name\r\n1,\"a, b\"\r\n2,\r\n");
    }

    #[test]
    fn bad_rows_are_named() {
        for (kind, body, code, part) in [
            ("application/json", "{}", "22023", "expected"),
            ("application/json", "[1]", "22023", "expected"),
            ("application/json", "[{\"id\":", "22P02", "EOF"),
            ("application/json", r#"[{"nope":1}]"#, "42703", "\"nope\""),
            ("application/json", r#"[{"_row_id":1}]"#, "42703", "\"_row_id\""),
            ("application/json", r#"[{"id":1},{"id":"x"}]"#, "22P02", "row 2, column \"id\""),
            ("application/x-ndjson", "{\"id\":1}\nx\n", "22P02", "line 2"),
            ("text/csv", "id,name\n1\n", "22P04", "row 1"),
            ("application/vnd.apache.arrow.stream", "garbage", "22023", "Arrow"),
            ("image/png", "", "22023", "image/png"),
        ] {
            let failure = decode(kind, body.as_bytes(), &table()).unwrap_err();
            assert_eq!(failure.error.sqlstate().0, code, "{body}: {failure}");
            assert!(failure.to_string().contains(part), "{body}: {failure}");
        }
    }
}
