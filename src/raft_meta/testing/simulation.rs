//! Seeded simulation: the coordinator, an executor model and a Raft model under a virtual clock, with random DDL, DML waits, failures, slow
//! answers and crashes; then a quiet phase in which everything must come to rest.
//!
//! Checked all along: epochs increase over everything; one uncollected barrier per domain; the first barrier of a shard is `Initial` or
//! attaches it; commits are in order and never refused; builds start from the durable epoch, with no shard left over; frontiers go back only
//! with a new generation; what was acknowledged is in the durable state. `EDDYLINE_SEED=n` runs one seed.

use super::executor::upload;
use super::{graph, relation};
use crate::command::{Change, Command, NewRelation, Outcome};
use crate::coordinator::{BuildTarget, Coordinator, CoordinatorConfig, Effect, Event, Now, Reply, Ticket};
use crate::state::MetaState;
use eddyline_protocol::control::{BuildJob, ExecutorEvent};
use eddyline_protocol::{Barrier, BarrierKind, Frontiers, JobStatus, Mutation};
use eddyline_types::{DomainId, Epoch, Error, JobId, ObjectId, SqlState};
use rand::RngExt;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const TERM: u64 = 3;

/// What is to happen at a virtual time.
enum Due {
    Collect { attempt: u64, jobs: Arc<[JobId]>, barrier: Barrier, rows: u64 },
    Upload { attempt: u64, jobs: Arc<[JobId]>, domain: DomainId, epoch: Epoch },
    Fail { attempt: u64, job: JobId, jobs: Arc<[JobId]> },
    Built { target: BuildTarget, attempt: u64, jobs: Vec<BuildJob>, fails: bool },
    Reset { target: BuildTarget, jobs: Vec<JobId> },
    Apply { changes: Vec<Change> },
    Proposed { outcomes: Vec<Outcome> },
}

impl Due {
    /// Jobs whose shards would send it.
    fn senders(&self) -> &[JobId] {
        match self {
            Due::Collect { jobs, .. } | Due::Upload { jobs, .. } | Due::Fail { jobs, .. } => jobs,
            Due::Built { .. } | Due::Reset { .. } | Due::Apply { .. } | Due::Proposed { .. } => &[],
        }
    }
}

struct Shard {
    attempt: u64,
    started: bool,
    dead: bool,
    /// Barriers until its backfill is complete.
    backfill: u32,
}

/// What a ticket waits for.
#[derive(Debug)]
enum Ask {
    Create(String),
    Drop(Vec<ObjectId>),
    Wait(JobId, Epoch),
    Other,
}

struct World {
    seed: u64,
    rng: SmallRng,
    chaos: bool,
    now_us: u64,
    skew_ms: i64,
    state: MetaState,
    coordinator: Coordinator,
    queue: BTreeMap<(u64, u64), Due>,
    seq: u64,
    shards: BTreeMap<JobId, Shard>,
    last_epoch: Epoch,
    uncollected: BTreeMap<DomainId, Epoch>,
    last_upload_us: BTreeMap<DomainId, u64>,
    injected: BTreeMap<JobId, BTreeSet<Epoch>>,
    lost: BTreeMap<JobId, BTreeSet<Epoch>>,
    frontiers: Frontiers,
    asks: BTreeMap<Ticket, Ask>,
    next_ticket: Ticket,
    names: u32,
    acknowledged: BTreeSet<ObjectId>,
    /// How many drops that were not refused name it: several may run at once.
    dropping: BTreeMap<ObjectId, u32>,
    counts: BTreeMap<&'static str, u64>,
}

/// Short intervals bring several checkpoints in flight, and uploads that end while an earlier commit is on its way.
fn config(seed: u64) -> CoordinatorConfig {
    let (barrier_interval_ms, checkpoint_interval_ms) = [(100, 1000), (5, 10), (20, 20)][seed as usize % 3];
    CoordinatorConfig {
        max_failures: 3,
        barrier_timeout_ms: 5_000,
        ddl_timeout_ms: 5_000,
        barrier_interval_ms,
        checkpoint_interval_ms,
        ..CoordinatorConfig::default()
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let state = MetaState::default();
        let now = Now { mono_us: 0, unix_ms: 1_000_000 };
        World {
            rng: eddyline_env::random::seeded(seed),
            chaos: true,
            now_us: 0,
            skew_ms: 1_000_000,
            coordinator: Coordinator::new(config(seed), TERM, &state, now),
            seed,
            state,
            queue: BTreeMap::new(),
            seq: 0,
            shards: BTreeMap::new(),
            last_epoch: Epoch::ZERO,
            uncollected: BTreeMap::new(),
            last_upload_us: BTreeMap::new(),
            injected: BTreeMap::new(),
            lost: BTreeMap::new(),
            frontiers: Frontiers::default(),
            asks: BTreeMap::new(),
            next_ticket: 0,
            names: 0,
            acknowledged: BTreeSet::new(),
            dropping: BTreeMap::new(),
            counts: BTreeMap::new(),
        }
    }

    fn now(&self) -> Now {
        Now { mono_us: self.now_us, unix_ms: (self.skew_ms + self.now_us as i64 / 1000).max(1) as u64 }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.chaos && self.rng.random_range(0..100) < percent
    }

    fn later(&mut self, min_us: u64, max_us: u64, due: Due) -> u64 {
        let at = self.now_us + self.rng.random_range(min_us..=max_us);
        self.seq += 1;
        self.queue.insert((at, self.seq), due);
        at
    }

    fn step(&mut self, event: Event) {
        let effects = self.coordinator.step(event, self.now());
        for effect in effects {
            self.perform(effect);
        }
        let late = self.coordinator.step(Event::Tick, self.now());
        assert!(late.is_empty(), "all that was possible was not done at once: {late:?}");
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Build { target, attempt, jobs, .. } => self.build(target, attempt, jobs),
            Effect::Inject { attempt, jobs, barrier } => self.inject(attempt, jobs, barrier),
            Effect::Reset { target, jobs } => {
                self.later(100, 30_000, Due::Reset { target, jobs });
            }
            Effect::Propose { changes } => {
                assert!(!self.queue.values().any(|d| matches!(d, Due::Apply { .. } | Due::Proposed { .. })), "two commands in flight");
                self.later(500, 8_000, Due::Apply { changes });
            }
            Effect::Publish(frontiers) => self.publish(&frontiers),
            Effect::Reply { ticket, result } => self.answered(ticket, result),
            Effect::Observe(_) => {}
        }
    }

    fn durable(&self, job: JobId) -> Epoch {
        let tables = self.state.catalog.jobs.get(&job).map(|j| j.graph.tables.clone()).unwrap_or_default();
        tables.iter().filter_map(|t| self.state.version.committed.get(&t.id)).max().copied().unwrap_or(Epoch::ZERO)
    }

    fn build(&mut self, target: BuildTarget, attempt: u64, jobs: Vec<BuildJob>) {
        for build in &jobs {
            let id = build.job.id;
            assert!(!self.shards.contains_key(&id), "job {id} is built while it has shards");
            if self.state.catalog.jobs.contains_key(&id) {
                assert_eq!(build.state_epoch, self.durable(id), "job {id} starts from its durable epoch");
            }
            let gone: Vec<Epoch> = self.injected.entry(id).or_default().split_off(&Epoch(build.state_epoch.0 + 1)).into_iter().collect();
            self.lost.entry(id).or_default().extend(gone);
        }
        let fails = self.chance(3);
        self.later(100, 20_000, Due::Built { target, attempt, jobs, fails });
    }

    fn inject(&mut self, attempt: u64, jobs: Arc<[JobId]>, barrier: Barrier) {
        self.count("barriers");
        assert!(barrier.epoch > self.last_epoch, "epoch {} after {}", barrier.epoch, self.last_epoch);
        assert!(barrier.prev < barrier.epoch && barrier.term == TERM);
        self.last_epoch = barrier.epoch;
        let before = self.uncollected.insert(barrier.domain, barrier.epoch);
        assert!(before.is_none(), "domain {} has two barriers that are not collected", barrier.domain);
        let attaches = matches!(barrier.mutation.as_deref(), Some(Mutation::Attach { .. }));
        let mut dead = false;
        for job in jobs.iter() {
            self.injected.entry(*job).or_default().insert(barrier.epoch);
            let shard = self.shards.get_mut(job).unwrap_or_else(|| panic!("barrier for job {job} that has no shards"));
            match barrier.kind {
                BarrierKind::Initial => assert!(!shard.started, "second Initial for job {job}"),
                BarrierKind::Plain | BarrierKind::Checkpoint => assert!(shard.started || attaches, "first barrier of job {job}"),
            }
            shard.started = true;
            dead |= shard.dead;
        }
        if dead {
            return;
        }
        if self.chance(3) {
            let job = *jobs.choose(&mut self.rng).unwrap();
            self.later(10, 5_000, Due::Fail { attempt, job, jobs });
            return;
        }
        if self.rng.random_range(0..400) == 0 && self.chaos {
            return; // Stuck: the coordinator has to find out by its deadline.
        }
        let rows = if self.rng.random_bool(0.3) { self.rng.random_range(1..100) } else { 0 };
        let slow = if self.rng.random_range(0..20) == 0 { 300_000 } else { 5_000 };
        self.later(50, slow, Due::Collect { attempt, jobs, barrier, rows });
    }

    fn publish(&mut self, frontiers: &Frontiers) {
        for (job, new) in &frontiers.jobs {
            assert!(new.collected >= new.committed, "job {job}: {new:?}");
            if self.state.catalog.jobs.contains_key(job) {
                assert!(new.committed <= self.durable(*job), "job {job} claims more than is durable");
            }
            if let Some(old) = self.frontiers.jobs.get(job) {
                assert!(new.committed >= old.committed, "job {job}: committed went back");
                assert!(new.generation >= old.generation);
                assert!(new.collected >= old.collected || new.generation > old.generation, "job {job}: {old:?} -> {new:?}");
            }
        }
        self.frontiers = frontiers.clone();
    }

    fn answered(&mut self, ticket: Ticket, result: Result<Reply, Error>) {
        let Some(ask) = self.asks.remove(&ticket) else { panic!("ticket {ticket} is answered twice") };
        match (ask, result) {
            (Ask::Create(_), Ok(Reply::Created(id))) => {
                self.count("creates");
                // It may be dropped as soon as it is visible, which is before its creator hears of it.
                let status = self.state.catalog.jobs.get(&id.into()).map(|j| &j.status);
                assert!(status == Some(&JobStatus::Running) || self.dropping.contains_key(&id), "acknowledged job {id} is {status:?}");
                self.acknowledged.insert(id);
            }
            (Ask::Create(name), Err(error)) => {
                self.count("failed creates");
                assert!(self.state.catalog.find_any("public", &name).is_none(), "{name} failed and is there: {error}");
            }
            (Ask::Drop(ids), Ok(_)) => {
                self.count("drops");
                for id in ids {
                    assert!(!self.state.catalog.relations.contains_key(&id), "{id} was dropped and is there");
                    assert!(!self.shards.contains_key(&id.into()), "{id} was dropped and runs");
                }
            }
            (Ask::Drop(ids), Err(error)) => {
                assert!(matches!(error.sqlstate(), SqlState::DEPENDENT_OBJECTS | SqlState::UNDEFINED_TABLE), "{error:?}");
                for id in ids {
                    let Some(drops) = self.dropping.get_mut(&id) else { panic!("nobody drops {id}") };
                    *drops -= 1;
                    if *drops == 0 {
                        self.dropping.remove(&id);
                    }
                }
            }
            (Ask::Wait(job, epoch), Ok(_)) => {
                self.count("waits");
                let lost = self.lost.get(&job).is_some_and(|l| l.contains(&epoch));
                assert!(!lost, "epoch {epoch} of job {job} was acknowledged and lost");
                if self.state.catalog.jobs.contains_key(&job) {
                    assert!(self.durable(job) >= epoch);
                }
            }
            (Ask::Wait(job, epoch), Err(error)) => {
                self.count("failed waits");
                if error.sqlstate() == SqlState::SERIALIZATION_FAILURE && self.state.catalog.jobs.contains_key(&job) {
                    let lost = self.lost.get(&job).is_some_and(|l| l.contains(&epoch));
                    assert!(lost || self.durable(job) < epoch, "epoch {epoch} of job {job} is durable, yet reported as rolled back");
                }
            }
            (Ask::Other, _) => self.count("others"),
            (Ask::Create(_), Ok(reply)) => panic!("wrong answer {reply:?}"),
        }
    }

    fn cancel(&mut self, jobs: &[JobId]) {
        let hit: Vec<(u64, u64)> =
            self.queue.iter().filter(|(_, d)| d.senders().iter().any(|j| jobs.contains(j))).map(|(k, _)| *k).collect();
        for key in hit {
            if let Some(Due::Collect { barrier, .. }) = self.queue.remove(&key) {
                self.uncollected.remove(&barrier.domain);
            }
        }
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Collect { attempt, jobs, barrier, rows } => self.collect(attempt, jobs, &barrier, rows),
            Due::Upload { attempt, domain, epoch, .. } => {
                self.step(Event::Executor(ExecutorEvent::Uploaded { domain, attempt, epoch, delta: upload(epoch) }));
            }
            Due::Fail { attempt, job, jobs } => {
                self.count("failures");
                self.cancel(&jobs);
                if let Some(shard) = self.shards.get_mut(&job) {
                    shard.dead = true;
                }
                let error = Error::internal("shard failed");
                let event = ExecutorEvent::Failed { domain: DomainId(0), attempt, job, operator: "Sim".into(), error };
                self.step(Event::Executor(event));
            }
            Due::Built { target, attempt, jobs, fails } => {
                if !fails {
                    for job in &jobs {
                        let backfill = if job.state_epoch == Epoch::ZERO { self.rng.random_range(0..6) } else { 0 };
                        let shard = Shard { attempt, started: false, dead: false, backfill };
                        assert!(self.shards.insert(job.job.id, shard).is_none());
                    }
                }
                let result = if fails { Err(Error::unavailable("no room")) } else { Ok(()) };
                self.step(Event::BuildDone { target, result });
            }
            Due::Reset { target, jobs } => {
                self.cancel(&jobs);
                for job in &jobs {
                    self.shards.remove(job);
                }
                let domains: BTreeSet<DomainId> = match target {
                    BuildTarget::Domain(id, _) => [id].into(),
                    BuildTarget::Job(_) | BuildTarget::Shutdown => BTreeSet::new(),
                };
                self.uncollected.retain(|d, _| !domains.contains(d));
                self.step(Event::ResetDone { target });
            }
            Due::Apply { changes } => {
                let before: BTreeMap<JobId, Epoch> = self.state.catalog.jobs.keys().map(|j| (*j, self.durable(*j))).collect();
                let outcomes = self.state.apply(&Command { term: TERM, changes: changes.clone() }, TERM);
                for (change, outcome) in changes.iter().zip(&outcomes) {
                    if let Change::CommitEpoch(commit) = change {
                        self.count("commits");
                        assert_eq!(*outcome, Outcome::Done, "commit of epoch {} refused", commit.epoch);
                    }
                }
                for (job, old) in before {
                    assert!(!self.state.catalog.jobs.contains_key(&job) || self.durable(job) >= old);
                }
                self.later(100, 3_000, Due::Proposed { outcomes });
            }
            Due::Proposed { outcomes } => {
                let catalog = self.state.catalog.clone();
                self.step(Event::Proposed { result: Ok(outcomes), catalog });
            }
        }
    }

    fn collect(&mut self, attempt: u64, jobs: Arc<[JobId]>, barrier: &Barrier, rows: u64) {
        let (domain, epoch) = (barrier.domain, barrier.epoch);
        assert_eq!(self.uncollected.remove(&domain), Some(epoch));
        let mut backfilled = Vec::new();
        for job in jobs.iter() {
            if barrier.drops(*job) {
                self.shards.remove(job);
                continue;
            }
            let shard = self.shards.get_mut(job).unwrap_or_else(|| panic!("job {job} has no shards"));
            shard.backfill = shard.backfill.saturating_sub(1);
            if shard.backfill == 0 {
                backfilled.push(*job);
            }
        }
        if barrier.kind == BarrierKind::Checkpoint {
            let earliest = self.last_upload_us.get(&domain).copied().unwrap_or(0).max(self.now_us) - self.now_us + 1;
            let at = self.later(earliest, earliest + 40_000, Due::Upload { attempt, jobs, domain, epoch });
            self.last_upload_us.insert(domain, at);
        }
        self.step(Event::Executor(ExecutorEvent::Collected { domain, attempt, epoch, backfilled, rows }));
    }

    fn ask(&mut self, ask: Ask) -> Ticket {
        self.next_ticket += 1;
        self.asks.insert(self.next_ticket, ask);
        self.next_ticket
    }

    /// One random thing that a user, an operator or the machine does.
    fn act(&mut self) {
        let running: Vec<ObjectId> = (self.state.catalog.jobs.values())
            .filter(|j| j.status == JobStatus::Running && !self.dropping.contains_key(&j.id.into()))
            .map(|j| j.id.into())
            .collect();
        match self.rng.random_range(0..100) {
            0..15 if running.len() < 12 => {
                let reads: BTreeSet<ObjectId> = match self.rng.random_range(0..4) {
                    0 => BTreeSet::new(),
                    n => running.sample(&mut self.rng, n.min(2)).copied().collect(),
                };
                self.create(&reads.into_iter().collect::<Vec<_>>());
            }
            15..23 => self.drop_some(&running),
            23..60 => {
                if let Some((job, epoch)) = self.some_epoch() {
                    let ticket = self.ask(Ask::Wait(job, epoch));
                    self.step(Event::WaitCommitted { ticket, job, epoch });
                }
            }
            60..65 => {
                let ticket = self.ask(Ask::Other);
                self.step(Event::Flush { ticket });
            }
            65..90 => {
                if let Some(job) = running.choose(&mut self.rng).copied() {
                    let job = job.into();
                    let wake = self.rng.random_bool(0.6);
                    self.step(if wake { Event::Executor(ExecutorEvent::Wake { job }) } else { Event::RequestCheckpoint { job } });
                }
            }
            90..92 => {
                let (ticket, paused) = (self.ask(Ask::Other), self.rng.random_bool(0.5));
                self.step(Event::Pause { ticket, paused });
            }
            92 => self.crash(),
            _ => self.step(Event::Tick),
        }
    }

    fn create(&mut self, reads: &[ObjectId]) {
        self.names += 1;
        let name = format!("r{}", self.names);
        let new = Box::new(NewRelation { relation: relation(&name, reads), graph: Some(graph(reads)), parallelism: 2 });
        let ticket = self.ask(Ask::Create(name));
        self.step(Event::Create { ticket, new });
    }

    fn drop_some(&mut self, running: &[ObjectId]) {
        let all: Vec<ObjectId> = self.state.catalog.relations.keys().filter(|id| self.state.catalog.is_visible(**id)).copied().collect();
        let Some(start) = all.choose(&mut self.rng).copied().filter(|_| running.len() > 1) else { return };
        let mut ids = vec![start];
        let mut n = 0;
        while n < ids.len() {
            let more: Vec<ObjectId> = self.state.catalog.dependents(ids[n]).map(|r| r.id).filter(|id| !ids.contains(id)).collect();
            ids.extend(more);
            n += 1;
        }
        ids.iter().for_each(|id| *self.dropping.entry(*id).or_default() += 1);
        let ticket = self.ask(Ask::Drop(ids.clone()));
        self.step(Event::Drop { ticket, ids });
    }

    /// An epoch that a job got lately, committed or lost or on its way.
    fn some_epoch(&mut self) -> Option<(JobId, Epoch)> {
        let jobs: Vec<JobId> = self.injected.keys().copied().collect();
        let job = *jobs.choose(&mut self.rng)?;
        let lost = self.lost.get(&job).and_then(|l| l.last().copied());
        let live = self.injected[&job].last().copied();
        let epoch = if self.rng.random_bool(0.3) { lost.or(live) } else { live.or(lost) };
        epoch.map(|e| (job, e))
    }

    /// kill -9: all but the durable state is gone; the clock may jump either way.
    fn crash(&mut self) {
        self.count("crashes");
        self.queue.clear();
        self.shards.clear();
        self.uncollected.clear();
        self.last_upload_us.clear();
        self.asks.clear();
        self.frontiers = Frontiers::default();
        self.skew_ms += self.rng.random_range(-20_000..20_000);
        // Epochs of the earlier life are only known to clients that are gone.
        self.injected.clear();
        self.lost.clear();
        let bytes = self.state.encode().unwrap();
        self.state = MetaState::decode(&bytes).unwrap();
        self.coordinator = Coordinator::new(config(self.seed), TERM, &self.state, self.now());
        self.step(Event::Tick);
    }

    /// Runs for so long, with an action every now and then.
    fn run(&mut self, for_us: u64) {
        let end = self.now_us + for_us;
        let mut next_action = self.now_us;
        let mut standing = 0;
        self.step(Event::Tick);
        while self.now_us < end {
            let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
            let deadline = self.coordinator.next_deadline_us();
            let action = self.chaos.then_some(next_action);
            let at = [queued, deadline, action, Some(end)].into_iter().flatten().min().unwrap_or(end).max(self.now_us);
            standing = if at == self.now_us { standing + 1 } else { 0 };
            assert!(standing < 1000, "the coordinator asks for the same moment again and again");
            self.now_us = at;
            if queued == Some(at) {
                let (_, due) = self.queue.pop_first().unwrap();
                self.happen(due);
            } else if action == Some(at) {
                next_action = at + self.rng.random_range(1_000..60_000);
                self.act();
            } else {
                self.step(Event::Tick);
            }
            let alive = self.shards.values().all(|s| s.attempt > 0);
            assert!(alive);
        }
    }

    fn finish(&mut self) {
        self.chaos = false;
        let ticket = self.ask(Ask::Other);
        self.step(Event::Pause { ticket, paused: false });
        self.run(60_000_000);
        assert!(self.coordinator.is_ready(), "not ready: {:?}", self.coordinator.domains());
        let ticket = self.ask(Ask::Other);
        self.step(Event::Flush { ticket });
        self.run(5_000_000);
        let open: Vec<_> = self.asks.iter().filter(|(_, a)| !matches!(a, Ask::Wait(..))).collect();
        assert!(open.is_empty(), "statements without an answer: {open:?}");
        // A wait for an epoch that the job never got may stand; none was asked for.
        assert!(self.asks.is_empty(), "waits without an answer");
        for id in self.acknowledged.iter().filter(|id| !self.dropping.contains_key(id)) {
            let status = self.state.catalog.jobs.get(&(*id).into()).map(|j| j.status.clone());
            assert!(matches!(status, Some(JobStatus::Running | JobStatus::Quarantined { .. })), "acknowledged {id} is {status:?}");
        }
        for job in self.state.catalog.jobs.values() {
            match &job.status {
                JobStatus::Creating => panic!("job {} is still being created", job.id),
                JobStatus::Running => assert!(self.shards.contains_key(&job.id), "job {} does not run", job.id),
                JobStatus::Quarantined { .. } => assert!(!self.shards.contains_key(&job.id)),
            }
        }
        assert_eq!(self.shards.len(), self.state.catalog.jobs.values().filter(|j| j.status == JobStatus::Running).count());
        let ticket = self.ask(Ask::Other);
        self.step(Event::Shutdown { ticket });
        self.run(5_000_000);
        assert!(self.coordinator.is_stopped() && self.shards.is_empty());
    }
}

fn one(seed: u64) -> BTreeMap<&'static str, u64> {
    let mut world = World::new(seed);
    world.run(20_000_000);
    world.finish();
    world.counts
}

#[test]
fn random_histories_keep_the_invariants() {
    if let Ok(seed) = std::env::var("EDDYLINE_SEED") {
        let counts = one(seed.parse().unwrap());
        println!("{counts:?}");
        return;
    }
    let mut total: BTreeMap<&str, u64> = BTreeMap::new();
    let seeds: u64 = std::env::var("EDDYLINE_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(60);
    for seed in 0..seeds {
        let counts = std::panic::catch_unwind(|| one(seed)).unwrap_or_else(|_| panic!("seed {seed} fails: EDDYLINE_SEED={seed}"));
        for (what, n) in counts {
            *total.entry(what).or_default() += n;
        }
    }
    println!("{total:?}");
    // A simulation in which nothing happens proves nothing.
    for what in ["barriers", "commits", "creates", "failed creates", "drops", "waits", "failed waits", "failures", "crashes"] {
        assert!(total.get(what).is_some_and(|n| *n >= 20), "{what}: {total:?}");
    }
}
