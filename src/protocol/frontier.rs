//! Frontiers: how far the results of a job are.

use eddyline_types::{Epoch, JobId};
use std::collections::BTreeMap;

/// How far one job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    /// Newest epoch that all shards have passed: what a SELECT reads.
    pub collected: Epoch,
    /// Newest epoch that survives a crash.
    pub committed: Epoch,
    /// How often the job's domain was rolled back: a reader that saw more than is left gets 40001 once.
    pub generation: u64,
}

/// The frontiers of all jobs. Jobs of one domain always have equal frontiers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontiers {
    /// By job.
    pub jobs: BTreeMap<JobId, Frontier>,
}
