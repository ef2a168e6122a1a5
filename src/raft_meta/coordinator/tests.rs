//! Tables of event -> effects. Effects print as short lines; epochs print as e1, e2, ... in the order of their injection.

use super::*;
use crate::command::{Command, NewRelation};
use crate::testing::{graph, relation};
use eddyline_protocol::{Mutation, VersionDelta};
use eddyline_types::ObjectId;

struct Rig {
    coordinator: Coordinator,
    state: MetaState,
    now: Now,
    epochs: Vec<Epoch>,
    /// The command in flight.
    command: Option<Vec<Change>>,
}

impl Rig {
    fn new() -> Self {
        Self::over(MetaState::default())
    }

    fn over(state: MetaState) -> Self {
        let now = Now { mono_us: 10_000_000, unix_ms: 1_000_000 };
        let coordinator = Coordinator::new(CoordinatorConfig::default(), 1, &state, now);
        let mut rig = Rig { coordinator, state, now, epochs: vec![], command: None };
        rig.step(Event::Tick);
        rig.applied();
        rig
    }

    fn step(&mut self, event: Event) -> Vec<String> {
        let effects = self.coordinator.step(event, self.now);
        effects.into_iter().filter_map(|e| self.show(e)).collect()
    }

    /// Lets time pass and ticks.
    fn after_ms(&mut self, ms: u64) -> Vec<String> {
        self.now.mono_us += ms * 1000;
        self.now.unix_ms += ms;
        self.step(Event::Tick)
    }

    /// Raft applies the command in flight.
    fn applied(&mut self) -> Vec<String> {
        let changes = self.command.take().expect("a command is in flight");
        let outcomes = self.state.apply(&Command { term: 1, changes }, 1);
        self.step(Event::Proposed { result: Ok(outcomes), catalog: self.state.catalog.clone() })
    }

    fn collected(&mut self, domain: u32, attempt: u64, rows: u64, backfilled: &[u32]) -> Vec<String> {
        let epoch = *self.epochs.last().unwrap();
        let backfilled = backfilled.iter().map(|j| JobId(*j)).collect();
        self.step(Event::Executor(ExecutorEvent::Collected { domain: DomainId(domain), attempt, epoch, backfilled, rows }))
    }

    fn uploaded(&mut self, domain: u32, attempt: u64, epoch: usize) -> Vec<String> {
        let (epoch, delta) = (self.epochs[epoch - 1], VersionDelta::default());
        self.step(Event::Executor(ExecutorEvent::Uploaded { domain: DomainId(domain), attempt, epoch, delta }))
    }

    fn failed(&mut self, attempt: u64, job: u32) -> Vec<String> {
        let error = Error::internal("broken");
        self.step(Event::Executor(ExecutorEvent::Failed { domain: DomainId(0), attempt, job: JobId(job), operator: "Op".into(), error }))
    }

    fn built(&mut self, target: BuildTarget) -> Vec<String> {
        self.step(Event::BuildDone { target, result: Ok(()) })
    }

    fn create(&mut self, ticket: Ticket, name: &str, reads: &[u32]) -> Vec<String> {
        let reads: Vec<ObjectId> = reads.iter().map(|r| ObjectId(*r)).collect();
        let new = Box::new(NewRelation { relation: relation(name, &reads), graph: Some(graph(&reads)), parallelism: 1 });
        self.step(Event::Create { ticket, new })
    }

    /// A running table with a domain and an attempt of its own.
    fn table(&mut self, name: &str) -> (u32, u32, u64) {
        self.create(900, name, &[]);
        let lines = self.applied();
        let build = lines.iter().find(|l| l.starts_with("build")).unwrap();
        let numbers: Vec<u64> = build.split(|c: char| !c.is_ascii_digit()).filter_map(|s| s.parse().ok()).collect();
        let (domain, attempt, job) = (numbers[0] as u32, numbers[1], numbers[2] as u32);
        self.built(BuildTarget::Domain(DomainId(domain), attempt));
        self.collected(domain, attempt, 0, &[]);
        self.applied();
        (job, domain, attempt)
    }

    /// Runs its idle rounds.
    fn settle(&mut self, domain: u32, attempt: u64) {
        while self.after_ms(100).iter().any(|l| l.starts_with("inject")) {
            self.collected(domain, attempt, 0, &[]);
        }
    }

    fn epoch(&mut self, epoch: Epoch) -> String {
        let at = self.epochs.iter().position(|e| *e == epoch).unwrap_or_else(|| {
            self.epochs.push(epoch);
            self.epochs.len() - 1
        });
        format!("e{}", at + 1)
    }

    fn show(&mut self, effect: Effect) -> Option<String> {
        Some(match effect {
            Effect::Build { domain, attempt, jobs, .. } => {
                let jobs: Vec<String> = jobs
                    .iter()
                    .map(|b| {
                        if b.state_epoch == Epoch::ZERO {
                            format!("{} new", b.job.id)
                        } else {
                            format!("{} at {}", b.job.id, self.epoch(b.state_epoch))
                        }
                    })
                    .collect();
                format!("build d{domain} a{attempt} [{}]", jobs.join(", "))
            }
            Effect::Inject { attempt, jobs, barrier } => {
                let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
                let mutation = match barrier.mutation.as_deref() {
                    None => String::new(),
                    Some(Mutation::Attach { edges }) => format!(" attach {}", edges.len()),
                    Some(Mutation::Drop { jobs }) => {
                        format!(" drop {}", jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
                    }
                    Some(Mutation::Pause) => " pause".into(),
                    Some(Mutation::Resume) => " resume".into(),
                };
                format!(
                    "inject d{} a{attempt} {} {:?} [{}]{mutation}",
                    barrier.domain,
                    self.epoch(barrier.epoch),
                    barrier.kind,
                    jobs.join(", ")
                )
            }
            Effect::Reset { jobs, .. } => format!("reset {:?}", jobs.iter().map(|j| j.0).collect::<Vec<_>>()),
            Effect::Propose { changes } => {
                let names: Vec<String> = changes.iter().filter_map(|c| self.name(c)).collect();
                self.command = Some(changes);
                format!("propose {}", names.join(" + "))
            }
            Effect::Reply { ticket, result: Ok(reply) } => format!("reply {ticket} {reply:?}"),
            Effect::Reply { ticket, result: Err(error) } => format!("refuse {ticket} {}", error.sqlstate().0),
            Effect::Publish(_) | Effect::Observe(_) => return None,
        })
    }

    fn name(&mut self, change: &Change) -> Option<String> {
        Some(match change {
            Change::CreateRelation(new) => format!("create {}", new.relation.name),
            Change::SetJobStatus { jobs, status } => match status {
                JobStatus::Creating => "creating".into(),
                JobStatus::Running => format!("run {}", jobs[0]),
                JobStatus::Quarantined { .. } => format!("quarantine {:?}", jobs.iter().map(|j| j.0).collect::<Vec<_>>()),
            },
            Change::DropRelations { ids } => format!("drop {:?}", ids.iter().map(|j| j.0).collect::<Vec<_>>()),
            Change::CommitEpoch(commit) => {
                let ready = if commit.ready.is_empty() { String::new() } else { format!(" ready {}", commit.ready[0]) };
                format!("commit d{} {}{ready}", commit.domain, self.epoch(commit.epoch))
            }
            Change::CommitCompaction { .. } => "compaction".into(),
            // Comes and goes with the clock.
            Change::ReserveEpochs { .. } => return None,
        })
    }
}

#[test]
fn a_table_is_created_without_waiting_for_any_timer() {
    let mut rig = Rig::new();
    assert_eq!(rig.create(1, "t", &[]), ["propose create t"]);
    assert_eq!(rig.applied(), ["build d1 a1 [1 new]"]);
    assert_eq!(rig.built(BuildTarget::Domain(DomainId(1), 1)), ["inject d1 a1 e1 Initial [1]"]);
    assert_eq!(rig.collected(1, 1, 0, &[]), ["propose run 1"]);
    assert_eq!(rig.applied(), ["reply 1 Created(ObjectId(1))"]);
}

#[test]
fn a_view_joins_the_domain_of_its_table_and_commits_with_its_status() {
    let mut rig = Rig::new();
    let (t, d, a) = rig.table("t");
    rig.settle(d, a);
    rig.epochs.clear();
    assert_eq!(rig.create(1, "v", &[t]), ["propose create v"]);
    assert_eq!(rig.applied(), ["build d1 a1 [2 new]"]);
    assert_eq!(rig.built(BuildTarget::Job(2)), ["inject d1 a1 e1 Plain [1, 2] attach 1"]);
    assert_eq!(rig.collected(d, a, 0, &[]), [""; 0]);
    assert_eq!(rig.after_ms(1), ["inject d1 a1 e2 Plain [1, 2]"], "a backfill is driven by quick barriers");
    assert_eq!(rig.collected(d, a, 0, &[2]), ["inject d1 a1 e3 Checkpoint [1, 2]"]);
    assert_eq!(rig.collected(d, a, 0, &[2]), [""; 0]);
    assert_eq!(rig.uploaded(d, a, 3), ["propose commit d1 e3 ready 2"]);
    assert_eq!(rig.applied(), ["reply 1 Created(ObjectId(2))"]);
    assert_eq!(rig.state.catalog.jobs[&JobId(2)].status, JobStatus::Running);
}

#[test]
fn a_view_over_two_domains_drains_and_merges_them_and_a_drop_splits_them() {
    let mut rig = Rig::new();
    let (t, dt, at) = rig.table("t");
    rig.settle(dt, at);
    let (u, du, au) = rig.table("u");
    rig.settle(du, au);
    rig.epochs.clear();
    assert_eq!(rig.step(Event::RequestCheckpoint { job: JobId(t) }), ["inject d1 a1 e1 Checkpoint [1]"]);
    rig.create(1, "v", &[t, u]);
    assert_eq!(rig.applied(), [""; 0], "one domain has a barrier on its way");
    assert_eq!(rig.collected(dt, at, 0, &[]), [""; 0]);
    assert_eq!(rig.uploaded(dt, at, 1), ["propose commit d1 e1"]);
    assert_eq!(rig.applied(), ["build d1 a1 [3 new]"]);
    assert_eq!(rig.built(BuildTarget::Job(3)), ["inject d1 a1 e2 Plain [1, 2, 3] attach 2"]);
    assert_eq!(rig.collected(dt, at, 0, &[3]), ["inject d1 a1 e3 Checkpoint [1, 2, 3]"]);
    rig.collected(dt, at, 0, &[3]);
    rig.uploaded(dt, at, 3);
    rig.applied();
    // A failure of a shard that was built in the other attempt counts for the merged domain.
    assert!(rig.coordinator.domains[&DomainId(dt)].attempts.contains(&au));
    assert_eq!(rig.step(Event::Drop { ticket: 2, ids: vec![ObjectId(3)] }), ["propose drop [3]"]);
    assert_eq!(rig.applied(), ["inject d1 a1 e4 Plain [1, 2, 3] drop 3"]);
    assert_eq!(rig.collected(dt, at, 0, &[]), ["reply 2 Done"]);
    assert_eq!(rig.coordinator.domains.len(), 2);
}

#[test]
fn one_requested_checkpoint_is_in_flight_and_the_rest_join_the_next() {
    let mut rig = Rig::new();
    let (t, d, a) = rig.table("t");
    rig.settle(d, a);
    rig.epochs.clear();
    let job = JobId(t);
    assert_eq!(rig.step(Event::RequestCheckpoint { job }), ["inject d1 a1 e1 Checkpoint [1]"]);
    assert_eq!(rig.step(Event::RequestCheckpoint { job }), [""; 0]);
    assert_eq!(rig.collected(d, a, 3, &[]), [""; 0]);
    assert_eq!(rig.step(Event::RequestCheckpoint { job }), [""; 0]);
    let epoch = rig.epochs[0];
    assert_eq!(rig.step(Event::WaitCommitted { ticket: 7, job, epoch }), [""; 0]);
    assert_eq!(rig.uploaded(d, a, 1), ["propose commit d1 e1"]);
    assert_eq!(rig.applied(), ["inject d1 a1 e2 Checkpoint [1]", "reply 7 Done"].map(String::from).into_iter().rev().collect::<Vec<_>>());
    assert_eq!(rig.step(Event::WaitCommitted { ticket: 8, job, epoch }), ["reply 8 Done"]);
}

#[test]
fn barriers_flow_while_rows_do_and_checkpoints_come_once_a_second() {
    let mut rig = Rig::new();
    let (_, d, a) = rig.table("t");
    rig.settle(d, a);
    assert_eq!(rig.coordinator.next_deadline_us(), None, "an idle coordinator sleeps");
    rig.epochs.clear();
    // What a wake does to a domain without statements.
    rig.coordinator.domains.get_mut(&DomainId(d)).unwrap().idle_rounds = 0;
    assert_eq!(rig.step(Event::Tick), ["inject d1 a1 e1 Plain [1]"]);
    let mut kinds = Vec::new();
    for _ in 0..30 {
        rig.collected(d, a, 10, &[]);
        for line in rig.after_ms(100) {
            kinds.push(line.split(' ').nth(4).unwrap_or_default().to_owned());
        }
    }
    let checkpoints = kinds.iter().filter(|k| *k == "Checkpoint").count();
    assert_eq!((kinds.len(), checkpoints), (30, 3), "{kinds:?}");
    // Nothing was uploaded: three checkpoints are on their way, no further one starts.
    rig.collected(d, a, 10, &[]);
    assert!(rig.after_ms(1500).iter().all(|l| l.contains("Plain")));
}

#[test]
fn a_statement_gets_a_checkpoint_at_once() {
    let mut rig = Rig::new();
    let (t, d, a) = rig.table("t");
    rig.settle(d, a);
    rig.epochs.clear();
    assert_eq!(rig.step(Event::Executor(ExecutorEvent::Wake { job: JobId(t) })), ["inject d1 a1 e1 Checkpoint [1]"]);
}

#[test]
fn commits_of_several_domains_share_a_command() {
    let mut rig = Rig::new();
    let (_, dt, at) = rig.table("t");
    rig.settle(dt, at);
    let (_, du, au) = rig.table("u");
    rig.settle(du, au);
    rig.epochs.clear();
    let lines = rig.step(Event::Flush { ticket: 5 });
    assert_eq!(lines, ["inject d1 a1 e1 Checkpoint [1]", "inject d2 a2 e2 Checkpoint [2]"]);
    let both = [(dt, at, 0), (du, au, 1)];
    for (d, a, e) in both {
        let epoch = rig.epochs[e];
        rig.step(Event::Executor(ExecutorEvent::Collected { domain: DomainId(d), attempt: a, epoch, backfilled: vec![], rows: 0 }));
    }
    // The first goes at once, since somebody waits; what comes while it is in flight is packed.
    assert_eq!(rig.uploaded(dt, at, 1), ["propose commit d1 e1"]);
    assert_eq!(rig.uploaded(du, au, 2), [""; 0]);
    rig.step(Event::Compact { ticket: 6, delta: VersionDelta::default() });
    assert_eq!(rig.applied(), ["propose compaction + commit d2 e2"]);
    assert_eq!(rig.applied(), ["reply 6 Compacted(true)", "reply 5 Done"]);
}

#[test]
fn a_failure_resets_waits_for_the_commit_in_flight_and_starts_again_from_it() {
    let mut rig = Rig::new();
    let (t, d, a) = rig.table("t");
    rig.settle(d, a);
    rig.epochs.clear();
    let job = JobId(t);
    rig.step(Event::RequestCheckpoint { job });
    rig.collected(d, a, 1, &[]);
    assert_eq!(rig.uploaded(d, a, 1), ["propose commit d1 e1"]);
    assert_eq!(rig.after_ms(100), ["inject d1 a1 e2 Plain [1]"]);
    rig.collected(d, a, 1, &[]);
    let (committed, lost) = (rig.epochs[0], rig.epochs[1]);
    rig.step(Event::WaitCommitted { ticket: 1, job, epoch: committed });
    rig.step(Event::WaitCommitted { ticket: 2, job, epoch: lost });
    assert_eq!(rig.failed(a, t), ["reset [1]"]);
    let frontier = rig.coordinator.frontiers().jobs[&job];
    assert_eq!((frontier.collected, frontier.generation), (frontier.committed, 1));
    let reset = BuildTarget::Domain(DomainId(d), a);
    assert_eq!(rig.step(Event::ResetDone { target: reset }), [""; 0], "the commit decides where to start");
    assert_eq!(rig.applied(), ["reply 1 Done", "refuse 2 40001"]);
    assert_eq!(rig.after_ms(100), ["build d1 a2 [1 at e1]"]);
    assert_eq!(rig.failed(a, t), [""; 0], "news of the old attempt are ignored");
    assert_eq!(rig.built(BuildTarget::Domain(DomainId(d), 2)), ["inject d1 a2 e3 Initial [1]"]);
    rig.collected(d, 2, 0, &[]);
    assert_eq!(rig.step(Event::WaitCommitted { ticket: 3, job, epoch: lost }), ["refuse 3 40001"], "even when later epochs are durable");
}

#[test]
fn repeated_failures_cut_off_the_culprit_and_what_reads_it() {
    let mut rig = Rig::new();
    let (t, d, _) = rig.table("t");
    for (ticket, name, reads) in [(1, "v", t), (2, "w", 2)] {
        rig.create(ticket, name, &[reads]);
        rig.applied();
        rig.built(BuildTarget::Job(ticket + 1));
        let mut lines: Vec<String> = Vec::new();
        while rig.command.is_none() {
            lines.extend(rig.collected(d, 1, 0, &[2, 3]));
            if lines.last().is_some_and(|l| l.contains("Checkpoint")) {
                rig.collected(d, 1, 0, &[2, 3]);
                let at = rig.epochs.len();
                rig.uploaded(d, 1, at);
            }
        }
        assert_eq!(rig.applied().last().map(String::as_str), Some(format!("reply {ticket} Created(ObjectId({}))", ticket + 1)).as_deref());
    }
    let mut attempt = 1;
    let mut last = Vec::new();
    for round in 1..=5 {
        assert_eq!(rig.failed(attempt, 2), ["reset [1, 2, 3]"], "round {round}");
        last = rig.step(Event::ResetDone { target: BuildTarget::Domain(DomainId(d), attempt) });
        if round < 5 {
            let lines = rig.after_ms(10_000);
            assert!(lines[0].starts_with("build"), "{lines:?}");
            attempt += 1;
            rig.built(BuildTarget::Domain(DomainId(d), attempt));
            // Time has passed: epochs had to be reserved.
            if rig.command.is_some() {
                rig.applied();
            }
        }
    }
    assert_eq!(last, ["propose quarantine [2, 3]"]);
    rig.applied();
    let lines = rig.after_ms(10_000);
    assert!(lines[0].starts_with("build d1 a6 [1 at"), "upstream goes on: {lines:?}");
    let refused = rig.create(9, "x", &[2]);
    assert_eq!(refused, ["propose create x"]);
    assert!(rig.applied().contains(&"refuse 9 55000".to_owned()));
    rig.step(Event::Drop { ticket: 10, ids: vec![ObjectId(2), ObjectId(3)] });
    assert_eq!(rig.applied(), ["reply 10 Done"], "a quarantined job has no shards to end");
}

#[test]
fn a_failed_create_leaves_nothing_and_answers_its_statement() {
    let mut rig = Rig::new();
    let (t, d, a) = rig.table("t");
    rig.settle(d, a);
    rig.create(1, "v", &[t]);
    rig.applied();
    let failed = Event::BuildDone { target: BuildTarget::Job(2), result: Err(Error::user(SqlState::DIVISION_BY_ZERO, "division by zero")) };
    assert_eq!(rig.step(failed), ["reset [2]"]);
    assert_eq!(rig.step(Event::ResetDone { target: BuildTarget::Job(2) }), ["propose drop [2]"]);
    assert_eq!(rig.applied(), ["refuse 1 22012"]);
    assert!(rig.coordinator.domains[&DomainId(d)].is_running(), "its upstream did not notice");
    // The same while it backfills: the domain rolls back, the job is gone, the failure does not count.
    rig.create(2, "v", &[t]);
    rig.applied();
    rig.built(BuildTarget::Job(3));
    assert_eq!(rig.failed(a, 3), ["reset [1, 3]"]);
    let lines = rig.step(Event::ResetDone { target: BuildTarget::Domain(DomainId(d), a) });
    assert_eq!(lines, ["propose drop [3]"]);
    assert_eq!(rig.applied(), ["refuse 2 XX000"]);
    assert_eq!(rig.coordinator.domains[&DomainId(d)].failures, 0);
}

#[test]
fn a_restart_drops_what_was_being_created_and_rebuilds_the_rest() {
    let mut rig = Rig::new();
    let (t, ..) = rig.table("t");
    rig.create(1, "v", &[t]);
    rig.applied();
    let state = MetaState::decode(&rig.state.encode().unwrap()).unwrap();
    let now = rig.now;
    let mut next =
        Rig { coordinator: Coordinator::new(CoordinatorConfig::default(), 1, &state, now), state, now, epochs: vec![], command: None };
    assert_eq!(next.step(Event::Tick), ["build d1 a1 [1 new]", "propose drop [2]"]);
    next.applied();
    assert!(next.state.catalog.find_any("public", "v").is_none());
}

#[test]
fn a_drop_that_no_barrier_reaches_ends_in_a_reset() {
    let mut rig = Rig::new();
    let (t, d, a) = rig.table("t");
    rig.settle(d, a);
    rig.step(Event::Drop { ticket: 1, ids: vec![ObjectId(t)] });
    let lines = rig.applied();
    assert!(lines[0].ends_with("drop 1"), "{lines:?}");
    assert_eq!(rig.after_ms(9_000), [""; 0]);
    assert_eq!(rig.after_ms(1_000), ["reset [1]"]);
    assert_eq!(rig.step(Event::ResetDone { target: BuildTarget::Domain(DomainId(d), a) }), ["reply 1 Done"]);
}

#[test]
fn pausing_and_shutting_down_send_one_last_barrier() {
    let mut rig = Rig::new();
    let (_, d, a) = rig.table("t");
    rig.settle(d, a);
    rig.epochs.clear();
    assert_eq!(rig.step(Event::Pause { ticket: 1, paused: true }), ["reply 1 Done", "inject d1 a1 e1 Plain [1] pause"]);
    rig.collected(d, a, 5, &[]);
    let lines = rig.step(Event::Shutdown { ticket: 2 });
    assert_eq!(lines, ["inject d1 a1 e2 Checkpoint [1]"]);
    assert_eq!(rig.create(3, "late", &[]), ["refuse 3 57P01"]);
    rig.collected(d, a, 0, &[]);
    assert_eq!(rig.uploaded(d, a, 2), ["propose commit d1 e2"]);
    assert_eq!(rig.applied(), ["reset [1]"]);
    assert_eq!(rig.step(Event::ResetDone { target: BuildTarget::Shutdown }), ["reply 2 Done"]);
    assert!(rig.coordinator.is_stopped());
}

#[test]
fn a_log_that_cannot_be_written_stops_everything_with_an_error() {
    let mut rig = Rig::new();
    rig.table("t");
    rig.step(Event::Flush { ticket: 4 });
    rig.create(1, "u", &[]);
    let result = Err(Error::unavailable("disk gone"));
    let lines = rig.step(Event::Proposed { result, catalog: rig.state.catalog.clone() });
    assert_eq!(lines, ["refuse 4 57P03", "refuse 1 57P03"]);
    assert_eq!(rig.step(Event::Flush { ticket: 5 }), ["refuse 5 57P03"]);
    assert!(!rig.coordinator.is_ready() && rig.coordinator.halted().is_some());
}
