//! Which path does what, and the metrics of all requests.

use crate::failure::Failure;
use crate::{ingest, resources, rows, sql, status};
use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::{HttpRequest, HttpResponse, web};
use eddyline_env::clock;
use eddyline_types::{Error, SqlState};

/// All routes. What is more special comes first.
pub(crate) fn configure(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/").route(web::get().to(status::console)).default_service(web::to(wrong_method)))
        .service(web::resource("/healthz").route(web::get().to(status::healthz)).default_service(web::to(wrong_method)))
        .service(web::resource("/readyz").route(web::get().to(status::readyz)).default_service(web::to(wrong_method)))
        .service(web::resource("/metrics").route(web::get().to(status::metrics)).default_service(web::to(wrong_method)))
        .service(web::resource("/openapi.json").route(web::get().to(status::openapi)).default_service(web::to(wrong_method)))
        .service(web::resource("/v1/sql").route(web::post().to(sql::post)).default_service(web::to(wrong_method)))
        .service(web::resource("/v1/jobs").route(web::get().to(status::jobs)).default_service(web::to(wrong_method)))
        .service(web::resource("/v1/jobs/{id}").route(web::get().to(status::job)).default_service(web::to(wrong_method)))
        .service(web::resource("/v1/graph").route(web::get().to(status::graph)).default_service(web::to(wrong_method)))
        .service(web::resource("/v1/cluster").route(web::get().to(status::cluster)).default_service(web::to(wrong_method)))
        .service(web::resource("/v1/errors").route(web::get().to(status::errors)).default_service(web::to(wrong_method)))
        .service(web::resource("/v1/freshness").route(web::get().to(status::freshness)).default_service(web::to(wrong_method)))
        .service(web::resource("/v1/views/{name}/lookup").route(web::post().to(rows::lookup)).default_service(web::to(wrong_method)))
        .service(web::resource("/v1/views/{name}/rows").route(web::get().to(rows::get)).default_service(web::to(wrong_method)))
        .service(
            web::resource("/v1/tables/{name}/rows")
                .route(web::get().to(rows::get))
                .route(web::post().to(ingest::post))
                .default_service(web::to(wrong_method)),
        )
        .service(web::resource("/v1/tables/{name}/lookup").route(web::post().to(rows::lookup)).default_service(web::to(wrong_method)))
        .service(
            web::resource("/v1/{family}/{name}")
                .route(web::get().to(resources::get))
                .route(web::delete().to(resources::delete))
                .default_service(web::to(wrong_method)),
        )
        .service(
            web::resource("/v1/{family}")
                .route(web::get().to(resources::list))
                .route(web::post().to(resources::create))
                .default_service(web::to(wrong_method)),
        );
}

/// No such path.
pub(crate) async fn unknown(request: HttpRequest) -> Result<HttpResponse, Failure> {
    Err(Failure::not_found(format!("there is nothing at {}; see /openapi.json", request.path())))
}

async fn wrong_method(request: HttpRequest) -> Result<HttpResponse, Failure> {
    let error = Error::unsupported(format!("{} does not take {}", request.path(), request.method()));
    Err(Failure { status: Some(actix_web::http::StatusCode::METHOD_NOT_ALLOWED), ..error.into() })
}

/// Refuses changes that another site's page asks a browser for: nobody is authenticated here, so any page could otherwise run SQL on
/// its reader's machine.
pub(crate) async fn same_origin(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let text = |name| request.headers().get(name).and_then(|v| v.to_str().ok());
    let foreign = match (text("origin"), text("host")) {
        (Some(origin), Some(host)) => origin.split_once("://").is_none_or(|(_, o)| !o.eq_ignore_ascii_case(host)),
        (Some(_), None) => true,
        (None, _) => false,
    };
    if foreign && !request.method().is_safe() {
        let error = Error::user(SqlState::INSUFFICIENT_PRIVILEGE, "requests from pages of other sites are not taken");
        return Err(Failure::from(error).into());
    }
    next.call(request).await
}

/// Counts and times requests by the pattern of their path: the labels are bounded.
pub(crate) async fn observe(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let start = clock::monotonic_nanos();
    let response = next.call(request).await?;
    let path = response.request().match_pattern().unwrap_or_else(|| "unknown".to_owned());
    let status = response.status().as_u16().to_string();
    let seconds = (clock::monotonic_nanos() - start) as f64 / 1e9;
    metrics::histogram!("eddyline_http_request_seconds", "path" => path.clone()).record(seconds);
    metrics::counter!("eddyline_http_requests_total", "path" => path, "status" => status).increment(1);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::{TestRequest, call_service, init_service, read_body_json, try_call_service};
    use actix_web::{App as WebApp, middleware};

    /// Paths that need no engine behind them.
    #[actix_web::test]
    async fn paths_methods_and_origins() {
        let app = WebApp::new()
            .wrap(middleware::from_fn(same_origin))
            .wrap(middleware::from_fn(observe))
            .configure(configure)
            .default_service(web::to(unknown));
        let app = init_service(app).await;
        for (path, status) in
            [("/", 200), ("/healthz", 200), ("/metrics", 200), ("/openapi.json", 200), ("/nothing/here", 404), ("/v1/sql", 405)]
        {
            let response = call_service(&app, TestRequest::get().uri(path).to_request()).await;
            assert_eq!(response.status().as_u16(), status, "{path}");
            if status >= 400 {
                let body: serde_json::Value = read_body_json(response).await;
                assert!(body["error"]["code"].is_string(), "{body}");
            }
        }
        let api: serde_json::Value = read_body_json(call_service(&app, TestRequest::get().uri("/openapi.json").to_request()).await).await;
        for path in ["/v1/sql", "/v1/views/{name}/lookup", "/v1/tables/{name}/rows", "/v1/views", "/v1/graph"] {
            assert!(api["paths"][path].is_object(), "{path} is described");
        }
        let from = |origin: &str| {
            TestRequest::delete()
                .uri("/healthz")
                .insert_header(("host", "here:4567"))
                .insert_header(("origin", origin.to_owned()))
                .to_request()
        };
        let refused = try_call_service(&app, from("http://elsewhere")).await.err().expect("an error");
        assert_eq!(refused.as_response_error().status_code().as_u16(), 403);
        assert_eq!(call_service(&app, from("http://here:4567")).await.status().as_u16(), 405);
    }
}
