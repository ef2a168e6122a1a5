//! When a barrier goes out, and what its collection and upload mean.

use super::domain::{Checkpoint, Collecting, Phase};
use super::{Coordinator, Effect, HISTORY, OpId};
use crate::placement;
use crate::status::BarrierRecord;
use eddyline_protocol::{Barrier, BarrierKind, Head, Mutation, VersionDelta};
use eddyline_types::{DomainId, Epoch, Error, JobId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What the next barrier of a domain is.
struct Plan {
    kind: BarrierKind,
    mutation: Option<Mutation>,
    attaches: Option<OpId>,
    drops: BTreeSet<JobId>,
}

impl Plan {
    fn of(kind: BarrierKind) -> Self {
        Plan { kind, mutation: None, attaches: None, drops: BTreeSet::new() }
    }
}

/// First gap between the barriers of a domain in which a job is being created; it doubles up to the barrier interval.
const CREATING_GAP_US: u64 = 1_000;

impl Coordinator {
    pub(super) fn inject_if_due(&mut self, id: DomainId) {
        let Some(plan) = self.next_barrier(id) else { return };
        let Some(epoch) = self.epochs.next(self.now.unix_ms) else {
            self.reserve_epochs_now();
            return;
        };
        let Some(domain) = self.domains.get_mut(&id) else { return };
        if plan.attaches.is_some() {
            domain.joining = None;
        }
        let jobs = domain.barrier_jobs();
        let barrier =
            Barrier { domain: id, epoch, prev: domain.last_epoch, term: self.term, kind: plan.kind, mutation: plan.mutation.map(Arc::new) };
        match barrier.mutation.as_deref() {
            Some(Mutation::Pause) => domain.paused = true,
            Some(Mutation::Resume) => domain.paused = false,
            Some(Mutation::Attach { .. } | Mutation::Drop { .. }) | None => {}
        }
        let checkpoint = plan.kind == BarrierKind::Checkpoint;
        domain.collecting = Some(Collecting {
            epoch,
            kind: plan.kind,
            injected_us: self.now.mono_us,
            injected_ms: self.now.unix_ms,
            jobs: jobs.clone(),
            attaches: plan.attaches,
            drops: plan.drops,
            urgent: checkpoint && domain.requested,
            tickets: if checkpoint { std::mem::take(&mut domain.request_tickets) } else { vec![] },
        });
        if checkpoint {
            domain.requested = false;
            domain.dirty = false;
            domain.last_checkpoint_us = self.now.mono_us;
        }
        if plan.kind == BarrierKind::Initial {
            domain.phase = Phase::Starting;
        }
        domain.last_epoch = epoch;
        domain.last_barrier_us = self.now.mono_us;
        domain.creating_rounds = domain.creating_rounds.saturating_add(1);
        self.effects.push(Effect::Inject { attempt: domain.attempt, jobs, barrier });
    }

    /// Decides whether a barrier is due now, and which.
    fn next_barrier(&self, id: DomainId) -> Option<Plan> {
        let domain = self.domains.get(&id)?;
        if domain.collecting.is_some() {
            return None;
        }
        match domain.phase {
            Phase::Built => {
                let mut plan = Plan::of(BarrierKind::Initial);
                plan.mutation = self.paused.then_some(Mutation::Pause);
                return Some(plan);
            }
            Phase::Running => {}
            Phase::Waiting { .. } | Phase::Building | Phase::Starting | Phase::Failing | Phase::Resetting | Phase::Settling => return None,
        }
        if let Some((op, mutation)) = self.ready_to_attach(id).filter(|_| self.stopping.is_none()) {
            return Some(Plan { kind: BarrierKind::Plain, mutation: Some(mutation), attaches: Some(op), drops: BTreeSet::new() });
        }
        if domain.hold {
            return None;
        }
        if !domain.dropping.is_empty() && domain.locked.is_none() {
            let mutation = Mutation::Drop { jobs: domain.dropping.iter().copied().collect() };
            let drops = domain.dropping.clone();
            return Some(Plan { kind: BarrierKind::Plain, mutation: Some(mutation), attaches: None, drops });
        }
        if domain.paused != self.paused {
            let mut plan = Plan::of(BarrierKind::Plain);
            plan.mutation = Some(if self.paused { Mutation::Pause } else { Mutation::Resume });
            return Some(plan);
        }
        if domain.requested && !domain.checkpoint_in_flight() {
            return Some(Plan::of(BarrierKind::Checkpoint));
        }
        if self.stopping.is_some() {
            return None;
        }
        let due = self.barrier_due_us(id)?;
        (due <= self.now.mono_us).then(|| {
            let checkpoint = self.checkpoint_due_us(id).is_some_and(|due| due <= self.now.mono_us);
            Plan::of(if checkpoint { BarrierKind::Checkpoint } else { BarrierKind::Plain })
        })
    }

    /// When the periodic barrier of a running domain without a barrier on its way is due.
    pub(super) fn barrier_due_us(&self, id: DomainId) -> Option<u64> {
        let domain = self.domains.get(&id)?;
        let interval = self.config.barrier_interval_ms * 1000;
        let plain = domain.active().then_some(domain.last_barrier_us + interval);
        let creating = self.is_creating(id).then(|| {
            let gap = CREATING_GAP_US << domain.creating_rounds.saturating_sub(1).min(20);
            domain.last_barrier_us + gap.min(interval)
        });
        plain.into_iter().chain(creating).chain(self.checkpoint_due_us(id)).min()
    }

    fn checkpoint_due_us(&self, id: DomainId) -> Option<u64> {
        let domain = self.domains.get(&id)?;
        // An active domain counts as dirty: what entered since the last barrier is not known yet.
        let wanted = domain.dirty || domain.active();
        (wanted && domain.checkpoints.len() < self.config.max_checkpoints)
            .then_some(domain.last_checkpoint_us + self.config.checkpoint_interval_ms * 1000)
    }

    /// Whether a job of the domain waits for its backfill.
    fn is_creating(&self, id: DomainId) -> bool {
        let Some(domain) = self.domains.get(&id) else { return false };
        domain
            .jobs
            .iter()
            .any(|j| Some(*j) != domain.joining && self.jobs.get(j).is_some_and(|s| s.creating.is_some() && s.backfilled.is_none()))
    }

    /// The create that is ready to attach its job, with the mutation.
    fn ready_to_attach(&self, id: DomainId) -> Option<(OpId, Mutation)> {
        let domain = self.domains.get(&id)?;
        let op = domain.locked?;
        let create = self.creates.get(&op).filter(|c| c.is_attaching())?;
        let job = &self.jobs.get(&create.job?)?.job;
        // A job that only names its upstream still needs a barrier of its own to start with.
        Some((op, placement::attachment(&self.catalog, job).unwrap_or(Mutation::Attach { edges: vec![] })))
    }

    pub(super) fn collected(&mut self, id: DomainId, attempt: u64, epoch: Epoch, backfilled: &[JobId], rows: u64) {
        let Some(domain) = self.domains.get_mut(&id).filter(|d| d.attempt == attempt) else { return };
        if !matches!(domain.phase, Phase::Starting | Phase::Running) || domain.collecting.as_ref().is_none_or(|c| c.epoch != epoch) {
            return;
        }
        let Some(collecting) = domain.collecting.take() else { return };
        let collect_us = self.now.mono_us.saturating_sub(collecting.injected_us);
        let checkpoint = collecting.kind == BarrierKind::Checkpoint;
        if rows > 0 {
            domain.idle_rounds = 0;
            domain.dirty |= !checkpoint;
        } else {
            domain.idle_rounds = domain.idle_rounds.saturating_add(1);
        }
        if collecting.kind == BarrierKind::Initial {
            domain.phase = Phase::Running;
            domain.since_us = self.now.mono_us;
            // Whether rows wait is not known; the sources tell by waking or by the first barriers.
            domain.idle_rounds = 0;
            domain.last_checkpoint_us = self.now.mono_us;
        }
        if checkpoint {
            domain.checkpoints.push_back(Checkpoint {
                epoch,
                injected_us: collecting.injected_us,
                jobs: collecting.jobs.clone(),
                delta: None,
                proposed: false,
                urgent: collecting.urgent,
                tickets: collecting.tickets,
            });
        }
        for job in collecting.jobs.iter() {
            if let Some(state) = self.jobs.get_mut(job) {
                state.frontier.collected = epoch;
            }
        }
        self.frontiers_changed = true;
        self.remember(BarrierRecord {
            domain: id,
            epoch,
            kind: collecting.kind,
            injected_ms: collecting.injected_ms,
            rows,
            collect_us,
            upload_us: None,
            commit_us: None,
        });
        self.note_backfilled(id, epoch, backfilled);
        if let Some(op) = collecting.attaches {
            self.attached(op, epoch);
        }
        if !collecting.drops.is_empty() {
            self.jobs_left(id, &collecting.drops);
        }
    }

    pub(super) fn note_backfilled(&mut self, id: DomainId, epoch: Epoch, backfilled: &[JobId]) {
        for job in backfilled {
            if let Some(state) = self.jobs.get_mut(job).filter(|s| s.creating.is_some() && s.backfilled.is_none()) {
                state.backfilled = Some(epoch);
                if let Some(domain) = self.domains.get_mut(&id)
                    && domain.checkpoints.back().is_none_or(|c| c.epoch < epoch)
                {
                    domain.requested = true;
                }
            }
        }
    }

    pub(super) fn uploaded(&mut self, id: DomainId, attempt: u64, epoch: Epoch, delta: VersionDelta) {
        let now_us = self.now.mono_us;
        let Some(domain) = self.domains.get_mut(&id).filter(|d| d.attempt == attempt && d.is_running()) else { return };
        let next = domain.checkpoints.iter_mut().find(|c| c.delta.is_none() && !c.proposed);
        match next {
            Some(checkpoint) if checkpoint.epoch == epoch => {
                checkpoint.delta = Some(delta);
                let micros = now_us.saturating_sub(checkpoint.injected_us);
                if let Some(record) = self.history.iter_mut().rev().find(|r| r.domain == id && r.epoch == epoch) {
                    record.upload_us = Some(micros);
                }
            }
            Some(_) | None => {
                let error = Error::internal(format!("the upload of epoch {epoch} came out of order"));
                self.fail_domain(id, None, error);
            }
        }
    }

    pub(super) fn wake(&mut self, job: JobId) {
        // Statements wait for their commit: the barrier that ends their epoch had better be a checkpoint.
        let statements = self.jobs.get(&job).is_some_and(|s| s.job.graph.fragments.iter().any(|f| matches!(f.head, Head::Dml { .. })));
        if let Some(domain) = self.domain_of(job) {
            domain.idle_rounds = 0;
            domain.requested |= statements;
        }
    }

    pub(super) fn request_checkpoint(&mut self, job: JobId) {
        if let Some(domain) = self.domain_of(job) {
            domain.requested = true;
        }
    }

    pub(super) fn domain_of(&mut self, job: JobId) -> Option<&mut super::domain::Domain> {
        let id = self.jobs.get(&job)?.domain?;
        self.domains.get_mut(&id)
    }

    fn remember(&mut self, record: BarrierRecord) {
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(record);
    }
}
