//! DDL as resources: list, describe, create and drop sources, tables, views and sinks.
//!
//! A creation becomes one SQL statement, so whatever SQL refuses is refused here with the same code, message and hint.

use crate::app::{App, peer};
use crate::failure::Failure;
use crate::query::{self, RelationName, ident, literal};
use crate::rows::find;
use crate::run;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use eddyline_protocol::{Catalog, JobStatus, Relation, RelationKind};
use eddyline_types::sql_types::{parse_name, sql_name};
use eddyline_types::{Error, SqlState};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// What a path segment under `/v1` lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Sources,
    Tables,
    /// Materialized views and plain views.
    Views,
    Sinks,
}

impl Family {
    pub(crate) fn parse(segment: &str) -> Result<Self, Failure> {
        Ok(match segment {
            "sources" => Family::Sources,
            "tables" => Family::Tables,
            "views" => Family::Views,
            "sinks" => Family::Sinks,
            "indexes" | "subscriptions" => return Err(Error::unsupported(format!("{segment} are not supported yet")).into()),
            _ => return Err(Failure::not_found(format!("there is no resource \"{segment}\""))),
        })
    }

    fn holds(self, kind: RelationKind) -> bool {
        matches!(
            (self, kind),
            (Family::Sources, RelationKind::Source)
                | (Family::Tables, RelationKind::Table)
                | (Family::Views, RelationKind::MaterializedView | RelationKind::View)
                | (Family::Sinks, RelationKind::Sink)
        )
    }

    fn singular(self) -> &'static str {
        match self {
            Family::Sources => "source",
            Family::Tables => "table",
            Family::Views => "view",
            Family::Sinks => "sink",
        }
    }
}

/// A relation as a resource.
fn describe(app: &App, catalog: &Catalog, relation: &Relation) -> Value {
    let columns: Vec<Value> = relation
        .columns
        .iter()
        .filter(|c| !c.hidden)
        .map(|c| json!({ "name": c.name, "type": sql_name(&c.data_type), "nullable": c.nullable }))
        .collect();
    let key: Vec<&str> = relation.key.iter().map(|&i| &relation.columns[i]).filter(|c| !c.hidden).map(|c| c.name.as_str()).collect();
    let depends_on: Vec<&str> = relation.depends_on.iter().filter_map(|id| catalog.relations.get(id)).map(|r| r.name.as_str()).collect();
    let mut out = json!({
        "id": relation.id.0, "schema": relation.schema_name, "name": relation.name, "kind": relation.kind.name(), "columns": columns,
        "key": key, "append_only": relation.append_only, "depends_on": depends_on, "definition": relation.definition, "created_ms": relation.created_ms,
    });
    let fields = out.as_object_mut().expect("the macro made an object");
    if let Some(job) = catalog.jobs.get(&relation.id.into()) {
        let (status, reason) = match &job.status {
            JobStatus::Creating => ("creating", None),
            JobStatus::Running => ("running", None),
            JobStatus::Quarantined { reason } => ("quarantined", Some(reason)),
        };
        fields.insert("status".into(), status.into());
        if let Some(reason) = reason {
            fields.insert("reason".into(), reason.as_str().into());
        }
        if let Some(frontier) = app.frontend.frontiers().jobs.get(&job.id) {
            fields.insert("visible_epoch".into(), frontier.collected.0.into());
            fields.insert("durable_epoch".into(), frontier.committed.0.into());
        }
    }
    out
}

/// `GET /v1/{family}`
pub(crate) async fn list(path: web::Path<String>, app: web::Data<App>) -> Result<HttpResponse, Failure> {
    let family = Family::parse(&path)?;
    let catalog = app.frontend.catalog();
    let all: Vec<Value> = catalog.relations.values().filter(|r| family.holds(r.kind)).map(|r| describe(&app, &catalog, r)).collect();
    Ok(HttpResponse::Ok().json(json!({ path.as_str(): all })))
}

/// The relation of `/v1/{family}/{name}`.
fn find_in(catalog: &Catalog, family: Family, name: &str) -> Result<std::sync::Arc<Relation>, Failure> {
    let relation = find(catalog, name)?;
    if family.holds(relation.kind) {
        return Ok(relation);
    }
    let error = Error::user(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a {}", family.singular()));
    Err(Failure { status: Some(StatusCode::NOT_FOUND), ..error.with_detail(format!("It is a {}.", relation.kind.name())).into() })
}

/// `GET /v1/{family}/{name}`
pub(crate) async fn get(path: web::Path<(String, String)>, app: web::Data<App>) -> Result<HttpResponse, Failure> {
    let catalog = app.frontend.catalog();
    let relation = find_in(&catalog, Family::parse(&path.0)?, &path.1)?;
    Ok(HttpResponse::Ok().json(describe(&app, &catalog, &relation)))
}

/// `DELETE /v1/{family}/{name}?cascade=true`
pub(crate) async fn delete(request: HttpRequest, path: web::Path<(String, String)>, app: web::Data<App>) -> Result<HttpResponse, Failure> {
    let family = Family::parse(&path.0)?;
    let mut parameters = query::pairs(request.query_string())?;
    let cascade = query::take_flag(&mut parameters, "cascade")?;
    query::none_left(&parameters)?;
    let relation = find_in(&app.frontend.catalog(), family, &path.1)?;
    let name = RelationName::parse(&path.1).quoted();
    let sql = format!("DROP {} {name}{}", relation.kind.name().to_uppercase(), if cascade { " CASCADE" } else { "" });
    execute(&app, &request, sql, 0).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// The body of a creation; which fields are wanted depends on the family.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Creation {
    name: String,
    /// Views and sinks: the SELECT.
    query: Option<String>,
    /// Sinks: the relation to read, instead of a query.
    from: Option<String>,
    columns: Option<Vec<Column>>,
    primary_key: Option<Vec<String>>,
    /// `WITH (...)`
    #[serde(default)]
    with: Map<String, Value>,
    format: Option<String>,
    encode: Option<String>,
    #[serde(default)]
    encode_options: Map<String, Value>,
    #[serde(default)]
    options: CreationOptions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CreationOptions {
    if_not_exists: bool,
    /// Views: `false` makes a plain view.
    materialized: Option<bool>,
    /// Tables: rows are never changed or removed.
    append_only: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Column {
    name: String,
    #[serde(rename = "type")]
    type_name: String,
    nullable: Option<bool>,
    default: Option<String>,
}

impl Creation {
    /// The statement, and where in it the user's query begins.
    fn sql(&self, family: Family) -> Result<(String, usize), Failure> {
        let unwanted = match family {
            Family::Views => self.columns.is_some() || self.from.is_some() || !self.with.is_empty(),
            Family::Sinks => self.columns.is_some() || self.primary_key.is_some(),
            Family::Sources | Family::Tables => self.query.is_some() || self.from.is_some(),
        };
        if unwanted {
            return Err(Failure::bad_request(format!("the body has fields that a {} does not have", family.singular())).with_hint(
                "Views have name, query, options; sinks name, query or from, with; tables and sources name, columns, primary_key, with.",
            ));
        }
        let kind = match (family, self.options.materialized) {
            (Family::Views, None | Some(true)) => "MATERIALIZED VIEW",
            (Family::Views, Some(false)) => "VIEW",
            (Family::Tables, _) => "TABLE",
            (Family::Sources, _) => "SOURCE",
            (Family::Sinks, _) => "SINK",
        };
        let exists = if self.options.if_not_exists { "IF NOT EXISTS " } else { "" };
        let mut sql = format!("CREATE {kind} {exists}{}", RelationName::parse(&self.name).quoted());
        let mut begins = 0;
        if matches!(family, Family::Sources | Family::Tables) {
            sql += &self.column_list()?;
            if self.options.append_only {
                sql += " APPEND ONLY";
            }
        }
        match (&self.query, &self.from) {
            (Some(query), None) => {
                sql += " AS ";
                begins = sql.chars().count();
                sql += query;
            }
            (None, Some(from)) => sql += &format!(" FROM {}", RelationName::parse(from).quoted()),
            (None, None) if matches!(family, Family::Sources | Family::Tables) => {}
            _ => return Err(Failure::bad_request(format!("a {} needs \"query\"", family.singular()))),
        }
        sql += &self.connector()?;
        Ok((sql, begins))
    }

    fn column_list(&self) -> Result<String, Failure> {
        let mut parts = vec![];
        for column in self.columns.as_deref().unwrap_or_default() {
            if parse_name(&column.type_name).is_none() {
                let error = Error::user(SqlState::UNDEFINED_OBJECT, format!("type \"{}\" does not exist", column.type_name));
                return Err(Failure { status: Some(StatusCode::BAD_REQUEST), ..error.into() });
            }
            let null = if column.nullable == Some(false) { " NOT NULL" } else { "" };
            let default = column.default.as_ref().map_or(String::new(), |d| format!(" DEFAULT {d}"));
            parts.push(format!("{} {}{null}{default}", ident(&column.name), column.type_name));
        }
        if let Some(key) = &self.primary_key {
            parts.push(format!("PRIMARY KEY ({})", key.iter().map(|c| ident(c)).collect::<Vec<_>>().join(", ")));
        }
        Ok(format!(" ({})", parts.join(", ")))
    }

    fn connector(&self) -> Result<String, Failure> {
        let options = |map: &Map<String, Value>| {
            let pairs = map.iter().map(|(name, value)| {
                // Option names are dotted words, not identifiers.
                if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.')) {
                    return Err(Failure::bad_request(format!("\"{name}\" is no name of an option")));
                }
                Ok(format!("{name} = {}", literal(&query::scalar_text(value).unwrap_or_default())))
            });
            pairs.collect::<Result<Vec<_>, _>>().map(|p| p.join(", "))
        };
        let word = |what: &str, text: &str| {
            if text.is_empty() || !text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(Failure::bad_request(format!("\"{text}\" is no {what}")));
            }
            Ok(text.to_uppercase())
        };
        let mut sql = String::new();
        if !self.with.is_empty() {
            sql += &format!(" WITH ({})", options(&self.with)?);
        }
        if self.format.is_some() || self.encode.is_some() {
            let format = word("format", self.format.as_deref().unwrap_or("plain"))?;
            let encode = word("encoding", self.encode.as_deref().unwrap_or("json"))?;
            sql += &format!(" FORMAT {format} ENCODE {encode}");
        }
        if !self.encode_options.is_empty() {
            sql += &format!(" ({})", options(&self.encode_options)?);
        }
        Ok(sql)
    }
}

/// `POST /v1/{family}`
pub(crate) async fn create(
    request: HttpRequest,
    path: web::Path<String>,
    payload: web::Payload,
    app: web::Data<App>,
) -> Result<HttpResponse, Failure> {
    let family = Family::parse(&path)?;
    let creation: Creation = query::body(&app.body(payload).await?)?;
    let (sql, begins) = creation.sql(family)?;
    execute(&app, &request, sql, begins).await?;
    let catalog = app.frontend.catalog();
    let location = format!("/v1/{path}/{}", creation.name);
    let mut response = HttpResponse::Created();
    response.insert_header(("location", location));
    Ok(match find(&catalog, &creation.name) {
        Ok(relation) => response.json(describe(&app, &catalog, &relation)),
        // Dropped again by somebody else in the meantime.
        Err(_) => response.json(json!({ "name": creation.name })),
    })
}

/// Runs a statement of ours. Positions of errors are told within the user's part, which begins after so many characters.
async fn execute(app: &App, request: &HttpRequest, sql: String, begins: usize) -> Result<(), Failure> {
    let slot = app.admit().await?;
    let mut session = app.session(&peer(request), None, vec![])?;
    let told = sql.clone();
    let done = app.work(async move {
        let _slot = slot;
        run::one(&mut session, &sql, &[]).await.map(drop)
    });
    done.await.map_err(|failure| match failure.error.position() {
        Some(position) if begins > 0 && position as usize > begins => Failure {
            error: failure.error.with_position(position - begins as u32),
            statement: Some(told.chars().skip(begins).collect()),
            status: failure.status,
        },
        _ => failure,
    })
}

impl Failure {
    fn with_hint(mut self, hint: &str) -> Self {
        self.error = self.error.with_hint(hint);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sql(family: Family, body: Value) -> Result<String, String> {
        let creation: Creation = query::body(body.to_string().as_bytes()).map_err(|e| e.to_string())?;
        creation.sql(family).map(|(sql, _)| sql).map_err(|e| e.to_string())
    }

    #[test]
    fn creations_become_statements() {
        assert_eq!(
            sql(Family::Views, json!({"name": "v", "query": "SELECT 1", "options": {"if_not_exists": true}})).unwrap(),
            "CREATE MATERIALIZED VIEW IF NOT EXISTS \"public\".\"v\" AS SELECT 1"
        );
        let table = json!({"name": "t", "columns": [{"name": "id", "type": "bigint", "nullable": false}, {"name": "x y", "type": "numeric(10,2)"}],
            "primary_key": ["id"]});
        assert_eq!(
            sql(Family::Tables, table).unwrap(),
            "CREATE TABLE \"public\".\"t\" (\"id\" bigint NOT NULL, \"x y\" numeric(10,2), PRIMARY KEY (\"id\"))"
        );
        let source = json!({"name": "s", "columns": [{"name": "id", "type": "int"}], "with": {"connector": "datagen", "fields.id.max": 5},
            "format": "plain", "encode": "json"});
        assert_eq!(
            sql(Family::Sources, source).unwrap(),
            "CREATE SOURCE \"public\".\"s\" (\"id\" int) WITH (connector = 'datagen', fields.id.max = '5') FORMAT PLAIN ENCODE JSON"
        );
        assert_eq!(
            sql(Family::Sinks, json!({"name": "k", "from": "v", "with": {"connector": "blackhole"}})).unwrap(),
            "CREATE SINK \"public\".\"k\" FROM \"public\".\"v\" WITH (connector = 'blackhole')"
        );
    }

    #[test]
    fn wrong_bodies_are_refused() {
        for (family, body, part) in [
            (Family::Views, json!({"name": "v"}), "\"query\""),
            (Family::Views, json!({"query": "SELECT 1"}), "name"),
            (Family::Views, json!({"name": "v", "query": "SELECT 1", "columns": []}), "does not have"),
            (Family::Tables, json!({"name": "t", "columns": [{"name": "a", "type": "int); DROP TABLE x"}]}), "does not exist"),
            (Family::Sources, json!({"name": "s", "with": {"a = 'b') --": 1}}), "no name of an option"),
            (Family::Sources, json!({"name": "s", "encode": "json ()"}), "no encoding"),
        ] {
            let error = sql(family, body).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(Family::parse("indexes").unwrap_err().error.sqlstate(), SqlState::FEATURE_NOT_SUPPORTED);
        assert_eq!(Family::parse("nothing").unwrap_err().status.unwrap(), StatusCode::NOT_FOUND);
    }
}
