//! What runs and how far it is: jobs, graph, cluster, errors, freshness; liveness, readiness, metrics, console and API description.

use crate::app::App;
use crate::failure::Failure;
use crate::query;
use crate::rows::objects;
use actix_web::{HttpRequest, HttpResponse, web};
use eddyline_protocol::JobStatus;
use eddyline_protocol::plan::EdgeFrom;
use serde_json::{Value, json};

/// Rows of `/v1/errors` without a `limit`.
const DEFAULT_ERRORS: u64 = 100;

/// `GET /healthz`: the process answers.
pub(crate) async fn healthz() -> HttpResponse {
    HttpResponse::Ok().json(json!({ "status": "ok" }))
}

/// `GET /readyz`: statements can be run, and every job that should run does; if not, 503 and the reason.
pub(crate) async fn readyz(app: web::Data<App>) -> HttpResponse {
    let (catalog, frontiers) = (app.frontend.catalog(), app.frontend.frontiers());
    let name = |id: eddyline_types::JobId| catalog.relations.get(&id.into()).map_or_else(|| id.to_string(), |r| r.name.clone());
    let mut waiting: Vec<String> = vec![];
    let mut quarantined: Vec<String> = vec![];
    for job in catalog.jobs.values() {
        match &job.status {
            JobStatus::Quarantined { .. } => quarantined.push(name(job.id)),
            JobStatus::Running if !frontiers.jobs.contains_key(&job.id) => waiting.push(name(job.id)),
            JobStatus::Running | JobStatus::Creating => {}
        }
    }
    // Opening a session is what a client would do next; it fails while the server is shutting down or full.
    let reason = match app.session("readyz", None, vec![]) {
        Err(failure) => Some(failure.to_string()),
        Ok(_) if waiting.is_empty() => None,
        Ok(_) => Some(format!("{} of {} jobs do not run yet: {}", waiting.len(), catalog.jobs.len(), waiting.join(", "))),
    };
    match reason {
        None => HttpResponse::Ok().json(json!({ "status": "ready", "jobs": catalog.jobs.len(), "quarantined": quarantined })),
        Some(reason) => {
            HttpResponse::ServiceUnavailable().json(json!({ "status": "not ready", "reason": reason, "quarantined": quarantined }))
        }
    }
}

/// `GET /metrics`, for Prometheus.
pub(crate) async fn metrics() -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(eddyline_env::metrics::render())
}

/// `GET /openapi.json`
pub(crate) async fn openapi() -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(include_str!("openapi.json"))
}

/// `GET /`
pub(crate) async fn console() -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/html; charset=utf-8")
        .insert_header(("content-security-policy", "default-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"))
        .body(include_str!("console.html"))
}

async fn table(app: &App, request: &HttpRequest, key: &str, sql: &str) -> Result<HttpResponse, Failure> {
    let rows = objects(app, request, sql.to_owned(), vec![]).await?;
    Ok(HttpResponse::Ok().json(json!({ key: rows })))
}

/// `GET /v1/jobs`
pub(crate) async fn jobs(request: HttpRequest, app: web::Data<App>) -> Result<HttpResponse, Failure> {
    table(&app, &request, "jobs", "SELECT * FROM eddy_catalog.jobs ORDER BY id").await
}

/// `GET /v1/jobs/{id}`
pub(crate) async fn job(request: HttpRequest, path: web::Path<String>, app: web::Data<App>) -> Result<HttpResponse, Failure> {
    let id: i32 = path.parse().map_err(|_| Failure::bad_request(format!("\"{path}\" is no number of a job")))?;
    let mut rows = objects(&app, &request, format!("SELECT * FROM eddy_catalog.jobs WHERE id = {id}"), vec![]).await?;
    match rows.pop() {
        Some(job) => Ok(HttpResponse::Ok().json(job)),
        None => Err(Failure::not_found(format!("there is no job {id}"))),
    }
}

/// `GET /v1/freshness`
pub(crate) async fn freshness(request: HttpRequest, app: web::Data<App>) -> Result<HttpResponse, Failure> {
    table(&app, &request, "freshness", "SELECT * FROM eddy_catalog.freshness ORDER BY job").await
}

/// `GET /v1/cluster`
pub(crate) async fn cluster(request: HttpRequest, app: web::Data<App>) -> Result<HttpResponse, Failure> {
    table(&app, &request, "nodes", "SELECT * FROM eddy_catalog.nodes").await
}

/// `GET /v1/errors?job=..&limit=..`, the newest first.
pub(crate) async fn errors(request: HttpRequest, app: web::Data<App>) -> Result<HttpResponse, Failure> {
    let mut parameters = query::pairs(request.query_string())?;
    let limit = query::take_number(&mut parameters, "limit")?.unwrap_or(DEFAULT_ERRORS);
    let job = query::take_number(&mut parameters, "job")?;
    query::none_left(&parameters)?;
    let filter = job.map_or(String::new(), |id| format!(" WHERE job = {id}"));
    table(&app, &request, "errors", &format!("SELECT * FROM eddy_catalog.errors{filter} ORDER BY epoch DESC LIMIT {limit}")).await
}

/// `GET /v1/graph`: relations and what they read, jobs and their fragments.
pub(crate) async fn graph(app: web::Data<App>) -> HttpResponse {
    let catalog = app.frontend.catalog();
    let relations: Vec<Value> = catalog
        .relations
        .values()
        .map(|r| {
            let depends_on: Vec<u32> = r.depends_on.iter().map(|id| id.0).collect();
            json!({ "id": r.id.0, "schema": r.schema_name, "name": r.name, "kind": r.kind.name(), "depends_on": depends_on })
        })
        .collect();
    let (mut fragments, mut edges) = (vec![], vec![]);
    for job in catalog.jobs.values() {
        for fragment in &job.graph.fragments {
            let operators: Vec<&str> = std::iter::once(fragment.head.name()).chain(fragment.chain.iter().map(|n| n.kind.name())).collect();
            fragments.push(json!({ "id": fragment.id.0, "job": job.id.0, "operators": operators }));
        }
        for edge in &job.graph.edges {
            let from = match edge.from {
                EdgeFrom::Fragment(id) => json!({ "fragment": id.0 }),
                EdgeFrom::Relation(id) => json!({ "relation": id.0 }),
            };
            edges.push(json!({ "id": edge.id.0, "job": job.id.0, "from": from, "to": { "fragment": edge.to.0 } }));
        }
    }
    HttpResponse::Ok().json(json!({ "version": catalog.version, "relations": relations, "fragments": fragments, "edges": edges }))
}
