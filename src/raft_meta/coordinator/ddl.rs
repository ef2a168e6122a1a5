//! CREATE and DROP: how jobs join and leave domains, how domains merge and split.
//!
//! CREATE: enter the catalog (Raft) -> lock the domains of what it reads, merge them if several (drained first) -> build the job's
//! shards -> attach them with a barrier -> backfill -> the next checkpoint commits and makes it visible in one command.
//! DROP: leave the catalog (Raft, which checks dependents) -> a barrier ends the shards -> split what fell apart.

use super::commit::Origin;
use super::domain::{JobState, Phase};
use super::{BuildTarget, Coordinator, Effect, OpId, Reply, Ticket, shutting_down};
use crate::command::{Change, NewRelation, Outcome};
use crate::placement;
use eddyline_protocol::JobStatus;
use eddyline_protocol::control::BuildJob;
use eddyline_types::{DomainId, Epoch, Error, JobId, ObjectId, Result, SqlState};
use std::collections::BTreeSet;

/// A CREATE in progress.
pub(super) struct CreateOp {
    /// `None` once answered.
    pub ticket: Option<Ticket>,
    pub job: Option<JobId>,
    state: CreateState,
    deadline_us: u64,
}

enum CreateState {
    /// The catalog entry is on its way.
    Proposing,
    /// For the domains that it reads.
    Waiting,
    /// Locked domains run dry before they merge.
    Draining(BTreeSet<DomainId>),
    /// Its shards are being built.
    Building(DomainId),
    /// Its shards wait for their first barrier.
    Attaching,
    /// Barriers flow; the checkpoint after the backfill ends it.
    Backfilling,
    /// It has a domain of its own, which starts.
    Starting(DomainId),
    /// `Running` is on its way through Raft.
    Activating,
    /// Its shards are being ended.
    Resetting(Error),
    /// It leaves the catalog.
    Abandoning(Error),
}

impl CreateOp {
    pub fn is_attaching(&self) -> bool {
        matches!(self.state, CreateState::Attaching)
    }

    /// That it runs is on its way into the catalog.
    pub fn is_activating(&self) -> bool {
        matches!(self.state, CreateState::Activating)
    }

    /// The domain that its shards are being built for.
    pub fn building(&self) -> Option<DomainId> {
        match self.state {
            CreateState::Building(domain) => Some(domain),
            CreateState::Proposing
            | CreateState::Waiting
            | CreateState::Draining(_)
            | CreateState::Attaching
            | CreateState::Backfilling
            | CreateState::Starting(_)
            | CreateState::Activating
            | CreateState::Resetting(_)
            | CreateState::Abandoning(_) => None,
        }
    }

    /// When it gives up waiting for domains.
    pub fn deadline_us(&self) -> Option<u64> {
        matches!(self.state, CreateState::Waiting | CreateState::Draining(_)).then_some(self.deadline_us)
    }
}

/// A DROP in progress.
pub(super) struct DropOp {
    pub ticket: Ticket,
    /// All that leaves.
    jobs: BTreeSet<JobId>,
    committed: bool,
}

impl Coordinator {
    pub(super) fn start_create(&mut self, ticket: Ticket, new: Box<NewRelation>) {
        if self.stopping.is_some() {
            return self.reply(ticket, Err(shutting_down()));
        }
        let op = self.next_op;
        self.next_op += 1;
        let deadline_us = self.now.mono_us + self.config.ddl_timeout_ms * 1000;
        self.creates.insert(op, CreateOp { ticket: Some(ticket), job: None, state: CreateState::Proposing, deadline_us });
        self.pending.push((Change::CreateRelation(new), Origin::Create(op)));
    }

    pub(super) fn created(&mut self, op: OpId, outcome: Outcome) {
        let id = match outcome {
            Outcome::Created(id) => id,
            Outcome::Refused(refusal) => return self.end_create(op, Err(refusal.to_error())),
            Outcome::Done => return self.end_create(op, Err(Error::internal("CREATE got no number"))),
        };
        let Some(job) = self.catalog.jobs.get(&id.into()).cloned() else {
            return self.end_create(op, Ok(id));
        };
        let job_id = job.id;
        let upstream = placement::upstream_jobs(&self.catalog, &job);
        let alone = upstream.is_empty();
        let mut state = JobState::new(job, upstream, Epoch::ZERO);
        state.creating = Some(op);
        self.jobs.insert(job_id, state);
        let own = alone.then(|| self.new_domain(BTreeSet::from([job_id])));
        if let Some(create) = self.creates.get_mut(&op) {
            create.job = Some(job_id);
            create.state = own.map_or(CreateState::Waiting, CreateState::Starting);
        }
    }

    pub(super) fn advance_ddl(&mut self) {
        let creates: Vec<OpId> = self.creates.keys().copied().filter(|_| self.stopping.is_none()).collect();
        for op in creates {
            self.advance_create(op);
        }
        let finished: Vec<OpId> = self
            .drops
            .iter()
            .filter(|(_, d)| d.committed && d.jobs.iter().all(|j| !self.jobs.contains_key(j)))
            .map(|(op, _)| *op)
            .collect();
        for op in finished {
            if let Some(drop) = self.drops.remove(&op) {
                self.reply(drop.ticket, Ok(Reply::Done));
            }
        }
    }

    fn advance_create(&mut self, op: OpId) {
        let Some(create) = self.creates.get(&op) else { return };
        match &create.state {
            CreateState::Waiting => match self.lockable_domains(op) {
                Err(error) => self.abandon(op, error),
                Ok(Some(domains)) => self.lock(op, domains),
                Ok(None) if create.deadline_us <= self.now.mono_us => self.abandon(op, not_running()),
                Ok(None) => {}
            },
            CreateState::Draining(domains) => {
                if domains.iter().all(|id| self.domains.get(id).is_some_and(|d| d.drained())) {
                    let domains = domains.clone();
                    let target = self.merge(op, &domains);
                    self.build_job(op, target);
                } else if create.deadline_us <= self.now.mono_us {
                    for id in domains.clone() {
                        self.unlock(id, op);
                    }
                    self.abandon(op, not_running());
                }
            }
            CreateState::Starting(id) => {
                let Some(job) = create.job.filter(|_| self.domains.get(id).is_some_and(|d| d.is_running())) else { return };
                let change = Change::SetJobStatus { jobs: vec![job], status: JobStatus::Running };
                self.pending.push((change, Origin::Activate(op)));
                self.set_create(op, CreateState::Activating);
            }
            CreateState::Proposing
            | CreateState::Building(_)
            | CreateState::Attaching
            | CreateState::Backfilling
            | CreateState::Activating
            | CreateState::Resetting(_)
            | CreateState::Abandoning(_) => {}
        }
    }

    fn set_create(&mut self, op: OpId, state: CreateState) {
        if let Some(create) = self.creates.get_mut(&op) {
            create.state = state;
            self.progress = true;
        }
    }

    /// The domains that a job reads, if all may be locked now; an error if one will never be.
    fn lockable_domains(&self, op: OpId) -> Result<Option<BTreeSet<DomainId>>> {
        let Some(job) = self.creates.get(&op).and_then(|c| c.job) else { return Ok(None) };
        let mut domains = BTreeSet::new();
        for upstream in self.upstream(job) {
            let state = self
                .jobs
                .get(&upstream)
                .ok_or_else(|| Error::user(SqlState::UNDEFINED_TABLE, "a relation that is read was dropped meanwhile"))?;
            if let Some(reason) = &state.quarantined {
                return Err(Error::user(SqlState::NOT_IN_PREREQUISITE_STATE, "a relation that is read is quarantined").with_detail(reason));
            }
            domains.extend(state.domain);
        }
        let free = |id: &DomainId| {
            self.domains.get(id).is_some_and(|d| d.is_running() && d.locked.is_none() && d.dropping.is_empty() && !d.split && d.builds == 0)
        };
        Ok((!domains.is_empty() && domains.iter().all(free)).then_some(domains))
    }

    fn lock(&mut self, op: OpId, ids: BTreeSet<DomainId>) {
        let single = ids.len() == 1;
        for id in &ids {
            if let Some(domain) = self.domains.get_mut(id) {
                domain.locked = Some(op);
                domain.hold = !single;
            }
        }
        match ids.first().copied().filter(|_| single) {
            Some(id) => self.build_job(op, id),
            None => self.set_create(op, CreateState::Draining(ids)),
        }
    }

    fn unlock(&mut self, id: DomainId, op: OpId) {
        if let Some(domain) = self.domains.get_mut(&id).filter(|d| d.locked == Some(op)) {
            domain.locked = None;
            domain.hold = false;
            domain.joining = None;
            self.progress = true;
        }
    }

    fn build_job(&mut self, op: OpId, id: DomainId) {
        let Some(job) = self.creates.get(&op).and_then(|c| c.job) else { return };
        let (Some(domain), Some(state)) = (self.domains.get_mut(&id), self.jobs.get_mut(&job)) else { return };
        domain.jobs.insert(job);
        domain.joining = Some(job);
        domain.builds += 1;
        state.domain = Some(id);
        self.effects.push(Effect::Build {
            target: BuildTarget::Job(op),
            domain: id,
            attempt: domain.attempt,
            jobs: vec![BuildJob { job: state.job.clone(), state_epoch: Epoch::ZERO }],
        });
        self.set_create(op, CreateState::Building(id));
    }

    pub(super) fn job_built(&mut self, op: OpId, id: DomainId, result: Result<()>) {
        match result {
            Ok(()) => self.set_create(op, CreateState::Attaching),
            Err(error) => {
                self.unlock(id, op);
                let Some(job) = self.creates.get(&op).and_then(|c| c.job) else { return };
                if let Some(domain) = self.domains.get_mut(&id) {
                    domain.jobs.remove(&job);
                }
                if let Some(state) = self.jobs.get_mut(&job) {
                    state.domain = None;
                }
                // The build promises to leave nothing behind, but it may have been cut short by its deadline.
                self.effects.push(Effect::Reset { target: BuildTarget::Job(op), jobs: vec![job] });
                self.set_create(op, CreateState::Resetting(error));
            }
        }
    }

    pub(super) fn job_reset(&mut self, op: OpId) {
        if let Some(CreateState::Resetting(error)) = self.creates.get(&op).map(|c| &c.state) {
            let error = error.clone();
            self.abandon(op, error);
        }
    }

    /// The barrier that attaches the job has passed all shards.
    pub(super) fn attached(&mut self, op: OpId, epoch: Epoch) {
        self.set_create(op, CreateState::Backfilling);
        let Some(job) = self.creates.get(&op).and_then(|c| c.job) else { return };
        let Some(state) = self.jobs.get(&job) else { return };
        let (domain, nothing_to_fill) = (state.domain, state.job.graph.backfills().next().is_none());
        if let Some(domain) = self.domain_of(job) {
            domain.locked = None;
            domain.creating_rounds = 0;
        }
        if let Some(domain) = domain.filter(|_| nothing_to_fill) {
            self.note_backfilled(domain, epoch, &[job]);
        }
    }

    /// A domain failed: creates that held it give it back. Their job, if already part of it, is dealt with when it settles.
    pub(super) fn release_locks(&mut self, id: DomainId) {
        let Some(op) = self.domains.get_mut(&id).and_then(|d| d.locked.take()) else { return };
        if let Some(CreateState::Draining(domains)) = self.creates.get(&op).map(|c| &c.state) {
            for other in domains.clone() {
                self.unlock(other, op);
            }
            self.set_create(op, CreateState::Waiting);
        }
    }

    /// Ends a CREATE whose job has no shards (any more): it leaves the catalog, then the statement gets the error.
    pub(super) fn abandon(&mut self, op: OpId, error: Error) {
        let Some(job) = self.creates.get(&op).and_then(|c| c.job) else { return };
        self.jobs.remove(&job);
        self.settle_waiters(job);
        self.pending.push((Change::DropRelations { ids: vec![job.into()] }, Origin::Abandon(op)));
        self.frontiers_changed = true;
        self.set_create(op, CreateState::Abandoning(error));
    }

    pub(super) fn abandoned(&mut self, op: OpId) {
        if let Some(CreateState::Abandoning(error)) = self.creates.get(&op).map(|c| &c.state) {
            let error = error.clone();
            self.end_create(op, Err(error));
        }
    }

    /// The job is `Running` in the catalog. It may have failed in between: then it is an ordinary job that failed.
    pub(super) fn finish_create(&mut self, op: OpId) {
        let Some(create) = self.creates.get(&op) else { return };
        if matches!(create.state, CreateState::Resetting(_) | CreateState::Abandoning(_)) {
            return;
        }
        let Some(job) = create.job else { return };
        if let Some(state) = self.jobs.get_mut(&job) {
            state.creating = None;
        }
        self.end_create(op, Ok(job.into()));
    }

    fn end_create(&mut self, op: OpId, result: Result<ObjectId>) {
        self.answer_create(op, result);
        self.creates.remove(&op);
    }

    pub(super) fn answer_create(&mut self, op: OpId, result: Result<ObjectId>) {
        if let Some(ticket) = self.creates.get_mut(&op).and_then(|c| c.ticket.take()) {
            self.reply(ticket, result.map(Reply::Created));
        }
    }

    /// Joins drained domains into the first of them.
    fn merge(&mut self, op: OpId, ids: &BTreeSet<DomainId>) -> DomainId {
        let target = *ids.first().expect("a create that drains holds at least two domains");
        let parts: Vec<_> = ids.iter().skip(1).filter_map(|id| self.domains.remove(id)).collect();
        let domain = self.domains.get_mut(&target).expect("a locked domain is not removed");
        for part in parts {
            debug_assert!(part.drained() && part.is_running());
            for job in &part.jobs {
                if let Some(state) = self.jobs.get_mut(job) {
                    state.domain = Some(target);
                }
            }
            domain.jobs.extend(part.jobs);
            domain.attempts.extend(part.attempts);
            domain.last_epoch = domain.last_epoch.max(part.last_epoch);
            domain.dirty |= part.dirty;
            domain.idle_rounds = domain.idle_rounds.min(part.idle_rounds);
            domain.requested |= part.requested;
            domain.request_tickets.extend(part.request_tickets);
            domain.last_barrier_us = domain.last_barrier_us.min(part.last_barrier_us);
            domain.last_checkpoint_us = domain.last_checkpoint_us.min(part.last_checkpoint_us);
            domain.failures = domain.failures.max(part.failures);
            if domain.paused != part.paused {
                // Some sources know it, some do not: tell all again.
                domain.paused = !self.paused;
            }
        }
        domain.locked = Some(op);
        domain.hold = false;
        target
    }

    pub(super) fn start_drop(&mut self, ticket: Ticket, ids: Vec<ObjectId>) {
        let op = self.next_op;
        self.next_op += 1;
        let jobs = ids.iter().map(|id| JobId::from(*id)).collect();
        self.drops.insert(op, DropOp { ticket, jobs, committed: false });
        self.pending.push((Change::DropRelations { ids }, Origin::Drop(op)));
    }

    pub(super) fn dropped(&mut self, op: OpId, outcome: Outcome) {
        let Some(drop) = self.drops.get_mut(&op) else { return };
        if let Outcome::Refused(refusal) = outcome {
            let ticket = drop.ticket;
            self.drops.remove(&op);
            return self.reply(ticket, Err(refusal.to_error()));
        }
        drop.committed = true;
        for job in drop.jobs.clone() {
            let now_us = self.now.mono_us;
            match self.domain_of(job) {
                Some(domain) => {
                    domain.dropping.insert(job);
                    domain.dropping_since_us.get_or_insert(now_us);
                }
                None => {
                    self.forget_dropped(job);
                    self.settle_waiters(job);
                    self.frontiers_changed = true;
                }
            }
        }
    }

    /// Dropped jobs of a domain that waits for its rebuild have no shards to end.
    pub(super) fn drop_without_shards(&mut self, id: DomainId) {
        let Some(domain) = self.domains.get(&id) else { return };
        if matches!(domain.phase, Phase::Waiting { .. }) && !domain.dropping.is_empty() {
            let jobs = domain.dropping.clone();
            self.jobs_left(id, &jobs);
        }
    }

    /// A dropped job is gone. If it was still being created (it was dropped with what it reads, say), that statement ends here.
    pub(super) fn forget_dropped(&mut self, job: JobId) {
        let Some(op) = self.jobs.remove(&job).and_then(|j| j.creating) else { return };
        let locked: Vec<DomainId> = self.domains.iter().filter(|(_, d)| d.locked == Some(op)).map(|(id, _)| *id).collect();
        for id in locked {
            self.unlock(id, op);
        }
        let error = Error::user(SqlState::UNDEFINED_TABLE, "the relation was dropped while it was being created");
        self.end_create(op, Err(error));
    }

    /// The shards of dropped jobs have ended.
    pub(super) fn jobs_left(&mut self, id: DomainId, left: &BTreeSet<JobId>) {
        let Some(domain) = self.domains.get_mut(&id) else { return };
        domain.jobs.retain(|j| !left.contains(j));
        domain.dropping.retain(|j| !left.contains(j));
        if domain.dropping.is_empty() {
            domain.dropping_since_us = None;
        }
        domain.split = true;
        let empty = domain.jobs.is_empty();
        for job in left {
            self.forget_dropped(*job);
            self.settle_waiters(*job);
        }
        self.frontiers_changed = true;
        if empty && let Some(domain) = self.domains.remove(&id) {
            let tickets: Vec<Ticket> = domain.checkpoints.into_iter().flat_map(|c| c.tickets).chain(domain.request_tickets).collect();
            self.part_done(&tickets, None);
        }
        // `advance_ddl` has run for this event already: answer the statements now.
        self.advance_ddl();
    }

    /// After a drop: makes a domain of every component, once nothing is in flight.
    pub(super) fn split_if_drained(&mut self, id: DomainId) {
        let Some(domain) = self.domains.get(&id).filter(|d| d.split && d.locked.is_none() && self.stopping.is_none()) else { return };
        if !matches!(domain.phase, Phase::Running | Phase::Waiting { .. }) {
            return;
        }
        let mut parts = placement::components(&domain.jobs, |j| self.upstream(j)).into_iter();
        let (first, rest) = (parts.next().unwrap_or_default(), parts);
        let ready = domain.drained() && domain.builds == 0;
        let Some(domain) = self.domains.get_mut(&id) else { return };
        if rest.len() == 0 {
            domain.split = false;
            domain.hold = false;
            self.progress = true;
            return;
        }
        if !ready {
            domain.hold = true;
            return;
        }
        domain.split = false;
        domain.hold = false;
        self.progress = true;
        domain.jobs = first;
        // What is to be dropped goes with its part, or its shards would never end.
        let dropping = std::mem::take(&mut domain.dropping);
        let dropping_since_us = domain.dropping_since_us.take();
        let share = |jobs: &BTreeSet<JobId>| -> BTreeSet<JobId> { dropping.intersection(jobs).copied().collect() };
        domain.dropping = share(&domain.jobs);
        domain.dropping_since_us = dropping_since_us.filter(|_| !domain.dropping.is_empty());
        let model = (domain.attempt, domain.attempts.clone(), domain.phase, domain.last_epoch, domain.last_barrier_us);
        let flags = (domain.dirty, domain.idle_rounds, domain.requested, domain.paused, domain.last_checkpoint_us, domain.failures);
        let tickets = domain.request_tickets.clone();
        for jobs in rest {
            let leaving = share(&jobs);
            let part = self.new_domain(jobs);
            if let Some(part) = self.domains.get_mut(&part) {
                part.dropping_since_us = dropping_since_us.filter(|_| !leaving.is_empty());
                part.dropping = leaving;
                (part.attempt, part.attempts, part.phase, part.last_epoch, part.last_barrier_us) = model.clone();
                (part.dirty, part.idle_rounds, part.requested, part.paused, part.last_checkpoint_us, part.failures) = flags;
                part.request_tickets = tickets.clone();
            }
            for ticket in &tickets {
                if let Some(parts) = self.parts.get_mut(ticket) {
                    parts.missing += 1;
                }
            }
        }
    }
}

fn not_running() -> Error {
    Error::new(
        eddyline_types::ErrorKind::Unavailable,
        SqlState::NOT_IN_PREREQUISITE_STATE,
        "the relations that are read are not running at the moment",
    )
    .with_hint("See eddy_catalog.jobs for what keeps them from running, and try again.")
}
