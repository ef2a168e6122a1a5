//! The barrier coordinator: decides, for all domains, when which barrier goes out, what is committed, who is told.
//!
//! A pure core: `step(event, now)` changes the state and returns effects; no I/O, no clock, no await. The driver performs
//! effects and turns their results into events again.
//!
//! Invariants:
//! - a domain has at most one barrier that is not collected, and its epochs increase;
//! - checkpoints of a domain are committed in order, each once; one Raft command is in flight at a time and packs all that waits;
//! - the committed frontier never goes back; the collected one only together with a higher generation;
//! - a statement is answered after its effect is durable, or with an error.
//!
//! Reading order: `messages` (events, effects), this file (dispatch), `domain` (state of one domain), `barriers` (inject, collect, upload),
//! `failure` (reset, rebuild, quarantine), `ddl` (create, drop, merge, split), `commit` (the Raft command), `waiters`.

mod barriers;
mod commit;
mod ddl;
mod domain;
mod failure;
mod messages;
#[cfg(test)]
mod tests;
mod waiters;

use crate::command::Change;
use crate::epochs::EpochAllocator;
use crate::placement;
use crate::state::MetaState;
use crate::status::{BarrierRecord, DomainStatus};
use commit::Batch;
use ddl::{CreateOp, DropOp};
use domain::{Domain, JobState};
use eddyline_protocol::control::ExecutorEvent;
use eddyline_protocol::{Catalog, Frontiers, JobStatus};
use eddyline_types::{DomainId, Epoch, Error, ErrorKind, JobId, Result, SqlState};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use waiters::Parts;

pub use messages::{BuildTarget, CoordinatorConfig, Effect, Event, Now, Observation, OpId, Reply, Ticket};

/// Barriers remembered for `eddy_catalog.barriers`.
const HISTORY: usize = 1000;

/// The coordinator's state. See the module's documentation.
pub struct Coordinator {
    config: CoordinatorConfig,
    term: u64,
    now: Now,
    epochs: EpochAllocator,
    catalog: Arc<Catalog>,
    domains: BTreeMap<DomainId, Domain>,
    jobs: BTreeMap<JobId, JobState>,
    next_domain: u32,
    next_attempt: u64,
    next_op: OpId,
    creates: BTreeMap<OpId, CreateOp>,
    drops: BTreeMap<OpId, DropOp>,
    /// What waits for the next Raft command.
    pending: Vec<(Change, commit::Origin)>,
    in_flight: Option<Batch>,
    linger_until_us: Option<u64>,
    reserving: bool,
    waiting: BTreeMap<JobId, Vec<(Epoch, Ticket)>>,
    parts: BTreeMap<Ticket, Parts>,
    paused: bool,
    stopping: Option<Stopping>,
    halted: Option<Error>,
    frontiers_changed: bool,
    /// Something was done in this turn that may let more be done.
    progress: bool,
    history: VecDeque<BarrierRecord>,
    effects: Vec<Effect>,
}

/// Progress of a shutdown.
enum Stopping {
    /// Last checkpoints are on their way.
    Draining(Ticket),
    /// Shards end.
    Resetting(Ticket),
    /// Over.
    Stopped,
}

impl Coordinator {
    /// The coordinator of a leader that has applied its whole log. Jobs that were being created are dropped with the first
    /// command; quarantined ones stay so; the rest is built by the first `step`.
    pub fn new(config: CoordinatorConfig, term: u64, state: &MetaState, now: Now) -> Self {
        let mut this = Coordinator {
            paused: config.paused,
            config,
            term,
            now,
            epochs: EpochAllocator::new(state.reserved),
            catalog: state.catalog.clone(),
            domains: BTreeMap::new(),
            jobs: BTreeMap::new(),
            next_domain: 1,
            next_attempt: 1,
            next_op: 1,
            creates: BTreeMap::new(),
            drops: BTreeMap::new(),
            pending: Vec::new(),
            in_flight: None,
            linger_until_us: None,
            reserving: false,
            waiting: BTreeMap::new(),
            parts: BTreeMap::new(),
            stopping: None,
            halted: None,
            frontiers_changed: true,
            progress: false,
            history: VecDeque::new(),
            effects: Vec::new(),
        };
        this.recover(state);
        this
    }

    fn recover(&mut self, state: &MetaState) {
        let mut running = BTreeSet::new();
        let mut abandoned = Vec::new();
        for job in state.catalog.jobs.values() {
            if job.status == JobStatus::Creating {
                abandoned.push(job.id.into());
                continue;
            }
            let committed = job.graph.tables.iter().filter_map(|t| state.version.committed.get(&t.id)).max().copied();
            let committed = committed.unwrap_or(Epoch::ZERO);
            let mut entry = JobState::new(job.clone(), placement::upstream_jobs(&state.catalog, job), committed);
            if let JobStatus::Quarantined { reason } = &job.status {
                entry.quarantined = Some(reason.clone());
            } else {
                running.insert(job.id);
            }
            self.jobs.insert(job.id, entry);
        }
        if !abandoned.is_empty() {
            self.pending.push((Change::DropRelations { ids: abandoned }, commit::Origin::Nobody));
        }
        self.reserve_epochs_now();
        for jobs in placement::components(&running, |j| self.upstream(j)) {
            self.new_domain(jobs);
        }
    }

    /// Takes an event, returns what is to be done now.
    pub fn step(&mut self, event: Event, now: Now) -> Vec<Effect> {
        self.now = now;
        self.dispatch(event);
        if self.halted.is_none() {
            self.advance();
        }
        if self.frontiers_changed {
            self.frontiers_changed = false;
            self.effects.push(Effect::Publish(Arc::new(self.frontiers())));
        }
        std::mem::take(&mut self.effects)
    }

    fn dispatch(&mut self, event: Event) {
        if let Some(error) = &self.halted {
            let error = error.clone();
            if let Some(ticket) = event.ticket() {
                self.reply(ticket, Err(error));
            }
            return;
        }
        match event {
            Event::Tick => {}
            Event::Executor(ExecutorEvent::Collected { domain, attempt, epoch, backfilled, rows }) => {
                self.collected(domain, attempt, epoch, &backfilled, rows);
            }
            Event::Executor(ExecutorEvent::Uploaded { domain, attempt, epoch, delta }) => {
                self.uploaded(domain, attempt, epoch, delta);
            }
            Event::Executor(ExecutorEvent::Failed { domain: _, attempt, job, operator, error }) => {
                self.job_failed(attempt, job, &operator, error);
            }
            Event::Executor(ExecutorEvent::Wake { job }) => self.wake(job),
            Event::BuildDone { target, result } => self.build_done(target, result),
            Event::ResetDone { target } => self.reset_done(target),
            Event::Proposed { result, catalog } => self.proposed(result, catalog),
            Event::Create { ticket, new } => self.start_create(ticket, new),
            Event::Drop { ticket, ids } => self.start_drop(ticket, ids),
            Event::Compact { ticket, delta } => {
                self.pending.push((Change::CommitCompaction { delta }, commit::Origin::Compact(ticket)));
            }
            Event::RequestCheckpoint { job } => self.request_checkpoint(job),
            Event::WaitCommitted { ticket, job, epoch } => self.wait_committed(ticket, job, epoch),
            Event::Flush { ticket } => self.flush(ticket),
            Event::Pause { ticket, paused } => {
                self.paused = paused;
                self.reply(ticket, Ok(Reply::Done));
            }
            Event::Shutdown { ticket } => self.start_shutdown(ticket),
        }
    }

    /// Does all that has become possible or due. What one part does may let another go on, and no event need come to tell it.
    fn advance(&mut self) {
        loop {
            self.progress = false;
            self.advance_ddl();
            let ids: Vec<DomainId> = self.domains.keys().copied().collect();
            for id in ids {
                self.advance_domain(id);
            }
            if !self.progress {
                break;
            }
        }
        self.advance_shutdown();
        self.flush_commands();
    }

    fn advance_domain(&mut self, id: DomainId) {
        self.check_timeouts(id);
        self.rebuild_if_due(id);
        self.split_if_drained(id);
        self.inject_if_due(id);
    }

    /// When `step(Tick)` is next needed, on the monotonic clock; `None`: not before another event.
    pub fn next_deadline_us(&self) -> Option<u64> {
        if self.halted.is_some() {
            return None;
        }
        let domains = self.domains.keys().filter_map(|id| self.domain_deadline(*id));
        let ddl = self.creates.values().filter_map(|op| op.deadline_us());
        domains.chain(ddl).chain(self.linger_until_us).min()
    }

    fn start_shutdown(&mut self, ticket: Ticket) {
        for domain in self.domains.values_mut().filter(|d| d.is_running()) {
            domain.requested |= domain.dirty || domain.active();
            // Creates get no further: what they hold must not keep the last checkpoint back.
            domain.hold = false;
        }
        self.stopping = Some(Stopping::Draining(ticket));
        let creates: Vec<OpId> = self.creates.keys().copied().collect();
        for op in creates {
            self.answer_create(op, Err(shutting_down()));
        }
    }

    fn advance_shutdown(&mut self) {
        let Some(Stopping::Draining(ticket)) = self.stopping else { return };
        let busy = self.domains.values().any(|d| d.is_running() && (d.requested || !d.drained()));
        if busy || self.in_flight.is_some() || self.domains.values().any(|d| d.builds > 0) {
            return;
        }
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        self.effects.push(Effect::Reset { target: BuildTarget::Shutdown, jobs });
        self.stopping = Some(Stopping::Resetting(ticket));
    }

    fn reply(&mut self, ticket: Ticket, result: Result<Reply>) {
        self.effects.push(Effect::Reply { ticket, result });
    }

    fn upstream(&self, job: JobId) -> BTreeSet<JobId> {
        self.jobs.get(&job).map(|j| j.upstream.clone()).unwrap_or_default()
    }

    fn new_domain(&mut self, jobs: BTreeSet<JobId>) -> DomainId {
        let id = DomainId(self.next_domain);
        self.next_domain += 1;
        for job in &jobs {
            if let Some(state) = self.jobs.get_mut(job) {
                state.domain = Some(id);
            }
        }
        self.domains.insert(id, Domain::new(jobs));
        id
    }

    fn frontiers(&self) -> Frontiers {
        Frontiers { jobs: self.jobs.iter().map(|(id, j)| (*id, j.frontier)).collect() }
    }

    /// Whether every job that is to run runs.
    pub fn is_ready(&self) -> bool {
        self.halted.is_none() && self.domains.values().all(Domain::is_running)
    }

    /// Why the coordinator stopped deciding, if it did.
    pub fn halted(&self) -> Option<&Error> {
        self.halted.as_ref()
    }

    /// Whether the last shards have ended.
    pub fn is_stopped(&self) -> bool {
        matches!(self.stopping, Some(Stopping::Stopped))
    }

    /// Domains, for people.
    pub fn domains(&self) -> Vec<DomainStatus> {
        self.domains.iter().map(|(id, d)| d.status(*id)).collect()
    }

    /// The newest barriers, oldest first.
    pub fn history(&self) -> Vec<BarrierRecord> {
        self.history.iter().cloned().collect()
    }
}

/// The answer to statements that come too late.
fn shutting_down() -> Error {
    Error::new(ErrorKind::Unavailable, SqlState::ADMIN_SHUTDOWN, "the server is shutting down")
}
