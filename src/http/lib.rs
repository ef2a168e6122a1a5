//! HTTP: SQL, DDL resources, rows, ingestion, status, metrics, health and the console, as docs/rest.md describes them.
//!
//! Reading order: [`server`] (threads, limits, start and stop), `app` (what handlers share: admission, deadlines), `routes` (which path does what),
//! `failure` (errors as status and JSON), `format` and `json` (answers), `sql`, `resources`, `rows`, `ingest`, `status`.
//! This crate knows nothing of engines: everything goes through a session, as over the Postgres wire. It is the sole home of actix-web.

mod app;
mod csv;
mod failure;
mod format;
mod ingest;
mod json;
mod query;
mod resources;
mod routes;
mod rows;
mod run;
pub mod server;
mod sql;
mod status;

pub use server::{Options, Server, serve, serve_with};
