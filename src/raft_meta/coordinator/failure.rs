//! Failures: reset, rebuild from the last committed epoch with back-off, quarantine.
//!
//! Order of a rollback: frontiers step back at once (generation + 1), outstanding builds end, the executor resets the shards, a commit
//! that is on its way is awaited, and only then is it decided what was lost and where to start again.

use super::commit::Origin;
use super::domain::{Domain, Phase};
use super::waiters::rolled_back;
use super::{BuildTarget, Coordinator, Effect, Observation, Reply, Stopping};
use crate::command::Change;
use crate::placement;
use eddyline_protocol::JobStatus;
use eddyline_protocol::control::BuildJob;
use eddyline_types::{DomainId, Epoch, Error, JobId, Result};
use std::collections::BTreeSet;

/// A drop that has not reached its shards after so long ends them by a reset.
const DROP_TIMEOUT_US: u64 = 10_000_000;
/// First wait before a rebuild; four times longer each time, up to ten seconds.
const BACKOFF_MS: u64 = 100;
const MAX_BACKOFF_MS: u64 = 10_000;

impl Coordinator {
    pub(super) fn job_failed(&mut self, attempt: u64, job: JobId, operator: &str, error: Error) {
        let Some(id) = self.jobs.get(&job).and_then(|j| j.domain) else { return };
        if self.domains.get(&id).is_some_and(|d| d.attempts.contains(&attempt)) {
            self.fail_domain(id, Some(job), error.context(operator));
        }
    }

    /// A failure that counts towards quarantine, unless a job that is being created is to blame.
    pub(super) fn fail_domain(&mut self, id: DomainId, job: Option<JobId>, error: Error) {
        let creating = job.and_then(|j| self.jobs.get(&j)).is_some_and(|s| s.creating.is_some());
        self.roll_back(id, job, error, !creating);
    }

    fn roll_back(&mut self, id: DomainId, job: Option<JobId>, error: Error, counts: bool) {
        let Some(domain) = self.domains.get_mut(&id) else { return };
        match domain.phase {
            Phase::Building | Phase::Built | Phase::Starting | Phase::Running => {}
            Phase::Waiting { .. } | Phase::Failing | Phase::Resetting | Phase::Settling => return,
        }
        tracing::warn!(domain = id.0, job = job.map(|j| j.0), %error, "domain failed, rolling back");
        domain.failures += u32::from(counts);
        domain.last_error = Some((job, error));
        domain.phase = Phase::Failing;
        domain.since_us = self.now.mono_us;
        domain.hold = false;
        let mut tickets = std::mem::take(&mut domain.request_tickets);
        tickets.extend(domain.collecting.take().into_iter().flat_map(|c| c.tickets));
        for checkpoint in domain.checkpoints.iter_mut().filter(|c| !c.proposed) {
            tickets.append(&mut checkpoint.tickets);
        }
        domain.checkpoints.retain(|c| c.proposed);
        domain.requested = false;
        domain.dirty = false;
        let ready = domain.builds == 0;
        for job in &domain.jobs {
            if let Some(state) = self.jobs.get_mut(job) {
                state.frontier.collected = state.frontier.committed;
                state.frontier.generation += 1;
                state.backfilled = None;
            }
        }
        self.frontiers_changed = true;
        self.effects.push(Effect::Observe(Observation::Rollback));
        self.part_done(&tickets, Some(&rolled_back()));
        self.release_locks(id);
        if ready {
            self.reset_domain(id);
        }
    }

    fn reset_domain(&mut self, id: DomainId) {
        let Some(domain) = self.domains.get_mut(&id) else { return };
        domain.phase = Phase::Resetting;
        let jobs = domain.jobs.iter().copied().collect();
        self.effects.push(Effect::Reset { target: BuildTarget::Domain(id, domain.attempt), jobs });
    }

    pub(super) fn build_done(&mut self, target: BuildTarget, result: Result<()>) {
        let id = match target {
            BuildTarget::Domain(id, attempt) if self.domains.get(&id).is_some_and(|d| d.attempt == attempt) => id,
            BuildTarget::Job(op) => match self.creates.get(&op).and_then(|c| c.building()) {
                Some(id) => id,
                None => return,
            },
            BuildTarget::Domain(..) | BuildTarget::Shutdown => return,
        };
        let Some(domain) = self.domains.get_mut(&id) else { return };
        domain.builds = domain.builds.saturating_sub(1);
        if domain.phase == Phase::Failing {
            if domain.builds == 0 {
                self.reset_domain(id);
            }
            return;
        }
        match (target, result) {
            (BuildTarget::Job(op), result) => self.job_built(op, id, result),
            (BuildTarget::Domain(..) | BuildTarget::Shutdown, Ok(())) => {
                domain.phase = Phase::Built;
                domain.since_us = self.now.mono_us;
            }
            (BuildTarget::Domain(..) | BuildTarget::Shutdown, Err(error)) => self.fail_domain(id, None, error),
        }
    }

    pub(super) fn reset_done(&mut self, target: BuildTarget) {
        match target {
            BuildTarget::Domain(id, attempt) => {
                if let Some(domain) = self.domains.get_mut(&id).filter(|d| d.attempt == attempt && d.phase == Phase::Resetting) {
                    domain.phase = Phase::Settling;
                    self.settle(id);
                }
            }
            BuildTarget::Job(op) => self.job_reset(op),
            BuildTarget::Shutdown => {
                if let Some(Stopping::Resetting(ticket)) = self.stopping.replace(Stopping::Stopped) {
                    self.reply(ticket, Ok(Reply::Done));
                }
            }
        }
    }

    pub(super) fn settle_all(&mut self) {
        let ids: Vec<DomainId> = self.domains.iter().filter(|(_, d)| d.phase == Phase::Settling).map(|(id, _)| *id).collect();
        for id in ids {
            self.settle(id);
        }
    }

    /// Decides what a failed domain becomes, once nothing of it is on its way.
    fn settle(&mut self, id: DomainId) {
        if self.domains.get(&id).is_none_or(|d| !d.checkpoints.is_empty()) {
            return;
        }
        let Some(mut domain) = self.domains.remove(&id) else { return };
        for job in &domain.jobs {
            if let Some(state) = self.jobs.get_mut(job) {
                state.lose(domain.last_epoch);
            }
        }
        let all = domain.jobs.clone();
        for job in std::mem::take(&mut domain.dropping) {
            domain.jobs.remove(&job);
            self.forget_dropped(job);
        }
        let (culprit, error) = domain.last_error.clone().unwrap_or_else(|| (None, Error::internal("unknown failure")));
        for job in domain.jobs.clone() {
            // Once `Running` is on its way others may read it: it is an ordinary job that failed.
            let creating = self.jobs.get(&job).and_then(|s| s.creating);
            if let Some(op) = creating.filter(|op| !self.creates.get(op).is_some_and(|c| c.is_activating())) {
                domain.jobs.remove(&job);
                self.abandon(op, error.clone());
            }
        }
        if domain.failures >= self.config.max_failures && !domain.jobs.is_empty() {
            let cut = match culprit.filter(|c| domain.jobs.contains(c)) {
                Some(culprit) => placement::downstream(&domain.jobs, culprit, |j| self.upstream(j)),
                None => domain.jobs.clone(),
            };
            self.quarantine(&cut, &error);
            domain.jobs.retain(|j| !cut.contains(j));
            domain.failures = 0;
        }
        self.wait_for_rebuild(id, &domain);
        for job in all {
            self.settle_waiters(job);
        }
    }

    fn wait_for_rebuild(&mut self, id: DomainId, old: &Domain) {
        let wait_ms = (BACKOFF_MS << (2 * old.failures.saturating_sub(1).min(8))).min(MAX_BACKOFF_MS);
        let parts = placement::components(&old.jobs, |j| self.upstream(j));
        for (n, jobs) in parts.into_iter().enumerate() {
            let part = self.new_domain(jobs);
            if let Some(domain) = self.domains.get_mut(&part) {
                domain.failures = old.failures;
                domain.last_error = old.last_error.clone();
                domain.phase = Phase::Waiting { until_us: self.now.mono_us + wait_ms * 1000 };
            }
            if n == 0 {
                self.rename_domain(part, id);
            }
        }
    }

    /// The first part of a rebuilt domain keeps the number that people know.
    fn rename_domain(&mut self, from: DomainId, to: DomainId) {
        if let Some(domain) = self.domains.remove(&from) {
            for job in &domain.jobs {
                if let Some(state) = self.jobs.get_mut(job) {
                    state.domain = Some(to);
                }
            }
            self.domains.insert(to, domain);
        }
    }

    fn quarantine(&mut self, jobs: &BTreeSet<JobId>, error: &Error) {
        tracing::error!(jobs = ?jobs, %error, "quarantined after repeated failures");
        for job in jobs {
            if let Some(state) = self.jobs.get_mut(job) {
                state.domain = None;
                state.quarantined = Some(error.to_string());
            }
        }
        let status = JobStatus::Quarantined { reason: error.to_string() };
        self.pending.push((Change::SetJobStatus { jobs: jobs.iter().copied().collect(), status }, Origin::Nobody));
        self.effects.push(Effect::Observe(Observation::Quarantine));
    }

    pub(super) fn rebuild_if_due(&mut self, id: DomainId) {
        self.drop_without_shards(id);
        if self.stopping.is_some() {
            return;
        }
        let Some(domain) = self.domains.get_mut(&id) else { return };
        let due = matches!(domain.phase, Phase::Waiting { until_us } if until_us <= self.now.mono_us);
        if !due {
            return;
        }
        domain.attempt = self.next_attempt;
        self.next_attempt += 1;
        domain.attempts = BTreeSet::from([domain.attempt]);
        domain.builds = 1;
        domain.phase = Phase::Building;
        domain.since_us = self.now.mono_us;
        let mut jobs = Vec::new();
        domain.last_epoch = Epoch::ZERO;
        for id in &domain.jobs {
            let Some(state) = self.jobs.get_mut(id) else { continue };
            if let Some(current) = self.catalog.jobs.get(id) {
                state.job = current.clone();
            }
            domain.last_epoch = domain.last_epoch.max(state.committed);
            jobs.push(BuildJob { job: state.job.clone(), state_epoch: state.committed });
        }
        self.effects.push(Effect::Build { target: BuildTarget::Domain(id, domain.attempt), domain: id, attempt: domain.attempt, jobs });
    }

    pub(super) fn check_timeouts(&mut self, id: DomainId) {
        let now_us = self.now.mono_us;
        let Some(domain) = self.domains.get(&id) else { return };
        if !matches!(domain.phase, Phase::Starting | Phase::Running) {
            return;
        }
        let limit_us = self.config.barrier_timeout_ms * 1000;
        let seconds = self.config.barrier_timeout_ms / 1000;
        if domain.dropping_since_us.is_some_and(|since| since + DROP_TIMEOUT_US <= now_us) {
            let error = Error::cancelled("a dropped job did not end in time");
            self.roll_back(id, None, error, false);
        } else if domain.collecting.as_ref().is_some_and(|c| c.injected_us + limit_us <= now_us) {
            let error = Error::unavailable(format!("a barrier did not pass all shards within {seconds} s"));
            self.fail_domain(id, None, error);
        } else if domain.checkpoints.iter().find(|c| c.delta.is_none() && !c.proposed).is_some_and(|c| c.injected_us + limit_us <= now_us) {
            let error = Error::unavailable(format!("a checkpoint was not uploaded within {seconds} s"));
            self.fail_domain(id, None, error);
        }
    }

    /// When `advance_domain` has something to do next.
    pub(super) fn domain_deadline(&self, id: DomainId) -> Option<u64> {
        let domain = self.domains.get(&id)?;
        match domain.phase {
            Phase::Waiting { until_us } => self.stopping.is_none().then_some(until_us),
            Phase::Building | Phase::Built | Phase::Failing | Phase::Resetting | Phase::Settling => None,
            Phase::Starting | Phase::Running => {
                let limit_us = self.config.barrier_timeout_ms * 1000;
                let collect = domain.collecting.as_ref().map(|c| c.injected_us + limit_us);
                let upload = domain.checkpoints.iter().find(|c| c.delta.is_none() && !c.proposed).map(|c| c.injected_us + limit_us);
                let drop = domain.dropping_since_us.map(|since| since + DROP_TIMEOUT_US);
                let idle = domain.collecting.is_none() && !domain.hold && !self.reserving && domain.is_running() && self.stopping.is_none();
                let barrier = if idle { self.barrier_due_us(id) } else { None };
                [collect, upload, drop, barrier].into_iter().flatten().min()
            }
        }
    }
}
