//! Which path does what, and the metrics of all requests.

use crate::failure::Failure;
use crate::{ingest, resources, rows, sql, status};
use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::{HttpRequest, HttpResponse, web};
use eddyline_env::clock;
use eddyline_types::Error;

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

/// Counts and times requests by the pattern of their path: the labels are bounded.
pub(crate) async fn observe(request: ServiceRequest, next: Next<impl MessageBody>) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let start = clock::monotonic_nanos();
    let response = next.call(request).await?;
    let path = response.request().match_pattern().unwrap_or_else(|| "unknown".to_owned());
    let status = response.status().as_u16().to_string();
    let seconds = (clock::monotonic_nanos() - start) as f64 / 1e9;
    metrics::histogram!("eddyline_http_request_seconds", "path" => path.clone()).record(seconds);
    metrics::counter!("eddyline_http_requests_total", "path" => path, "status" => status).increment(1);
    Ok(response)
}
