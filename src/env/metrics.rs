//! The process's metrics registry: the `metrics` facade, rendered as Prometheus text.
//!
//! Names have the prefix `eddyline_`, base units, `_total` for counters, few and bounded labels.

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::sync::OnceLock;

static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

/// Buckets of all histograms whose name ends in `_seconds`.
const SECONDS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Installs the registry for the process; later calls give the same handle. Without it metrics cost nothing and go nowhere.
pub fn install() -> &'static PrometheusHandle {
    HANDLE.get_or_init(|| {
        let builder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), SECONDS)
            .expect("the bucket list is not empty");
        builder.install_recorder().expect("only this function installs a recorder")
    })
}

/// The text for `/metrics`; empty if nothing was installed.
pub fn render() -> String {
    HANDLE
        .get()
        .map(|h| {
            h.run_upkeep();
            h.render()
        })
        .unwrap_or_default()
}
