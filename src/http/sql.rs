//! `POST /v1/sql`: runs statements.

use crate::app::{App, peer};
use crate::failure::Failure;
use crate::format::{Format, Shape, result_json, stream};
use crate::query;
use crate::run;
use actix_web::http::header::CONTENT_TYPE;
use actix_web::{HttpRequest, HttpResponse, web};
use eddyline_types::{Error, SqlState};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SqlRequest {
    sql: String,
    #[serde(default)]
    params: Vec<Value>,
    database: Option<String>,
    #[serde(default)]
    settings: Map<String, Value>,
}

/// Runs the statements one after another; the first error ends them, what ran before stays done.
pub(crate) async fn post(request: HttpRequest, payload: web::Payload, app: web::Data<App>) -> Result<HttpResponse, Failure> {
    let format = Format::of(&request)?;
    let body = app.body(payload).await?;
    let asked = read(&request, &body)?;
    let slot = app.admit().await?;
    let settings = asked.settings.iter().map(|(n, v)| (n.to_lowercase(), query::scalar_text(v).unwrap_or_default())).collect();
    let mut session = app.session(&peer(&request), asked.database, settings)?;
    let parameters: Vec<Option<String>> = asked.params.iter().map(query::scalar_text).collect();
    let max_bytes = app.options.max_json_bytes;
    let sql = asked.sql;
    if format == Format::Json {
        let answer = app.work(async move {
            let statements = statements(&session, &sql, &parameters)?;
            let mut out = b"{\"results\":[".to_vec();
            for (i, statement) in statements.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                let outcome = run::statement_with(&mut session, statement, &parameters).await?;
                let result = result_json(outcome, Shape::Arrays, max_bytes - out.len().min(max_bytes)).await;
                out.extend(result.map_err(|f| Failure::of(f.error, statement.text()))?);
            }
            out.extend_from_slice(b"]}");
            drop(slot);
            Ok(out)
        });
        return Ok(HttpResponse::Ok().content_type("application/json").body(answer.await?));
    }
    let streamed = app.work(async move {
        let statements = statements(&session, &sql, &parameters)?;
        let Some((last, before)) = statements.split_last() else {
            return Err(Failure::of(Error::user(SqlState::SYNTAX_ERROR, "there is no statement"), &sql));
        };
        for statement in before {
            let outcome = run::statement_with(&mut session, statement, &parameters).await?;
            result_json(outcome, Shape::Arrays, max_bytes).await?;
        }
        let outcome = run::statement_with(&mut session, last, &parameters).await?;
        stream(format, outcome, session, slot).await.map_err(|f| Failure::of(f.error, last.text()))
    });
    Ok(streamed.await?.response())
}

fn statements(
    session: &eddyline_session::Session,
    sql: &str,
    parameters: &[Option<String>],
) -> Result<Vec<eddyline_session::Statement>, Failure> {
    let statements = run::parse(session, sql)?;
    if !parameters.is_empty() && statements.len() != 1 {
        let message = format!("parameters need exactly one statement, found {}", statements.len());
        return Err(Failure::of(Error::user(SqlState::SYNTAX_ERROR, message), sql));
    }
    Ok(statements)
}

/// JSON, or the statements themselves as `text/plain` or `application/sql`.
fn read(request: &HttpRequest, body: &[u8]) -> Result<SqlRequest, Failure> {
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "text/plain" || kind == "application/sql" {
        let sql = std::str::from_utf8(body).map_err(|_| Failure::bad_request("the request's body is not UTF-8"))?;
        return Ok(SqlRequest { sql: sql.to_owned(), params: vec![], database: None, settings: Map::new() });
    }
    query::body(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    #[test]
    fn bodies_are_checked() {
        let request = TestRequest::default().to_http_request();
        let good = read(&request, br#"{"sql":"SELECT $1","params":[1,null],"settings":{"TimeZone":"UTC"}}"#).unwrap();
        assert_eq!((good.sql.as_str(), good.params.len()), ("SELECT $1", 2));
        for (body, code) in [
            (&b"\x00\xffgarbage"[..], "22P02"),
            (b"", "22P02"),
            (b"{", "22P02"),
            (b"[]", "22023"),
            (b"{}", "22023"),
            (br#"{"sql":1}"#, "22023"),
            (br#"{"sql":"SELECT 1","parms":[]}"#, "22023"),
        ] {
            let failure = read(&request, body).unwrap_err();
            assert_eq!(failure.error.sqlstate().0, code, "{failure}");
        }
        let text = TestRequest::default().insert_header((CONTENT_TYPE, "text/plain; charset=utf-8")).to_http_request();
        assert_eq!(read(&text, b"SELECT 1").unwrap().sql, "SELECT 1");
    }
}
