//! The builder: from jobs to running shards, all or none.
//!
//! Counts the shards of every fragment, numbers the input channels, makes the operators, starts the tasks and waits until all have loaded their state.
//! Edges to receivers are connected later, by the tasks at their first barrier, when everything is registered.

use crate::aligner::Aligner;
use crate::chain::{Chain, Failure, Surroundings};
use crate::collector::Collector;
use crate::dispatch::{Outputs, is_connected};
use crate::figures::{JobMetrics, ShardFigures};
use crate::hub::{DomainEntry, FragmentEntry, Hub, JobEntry, ShardEntry};
use crate::inlet::{DmlInlet, DmlPort, Inlet, SourceInlet, SourceOpening};
use crate::operators::{ShardSpec, chain_operator, head_operator};
use crate::records::ErrorLog;
use crate::state::StateReader;
use crate::task::{Identity, Task};
use eddyline_protocol::control::BuildJob;
use eddyline_protocol::plan::{NodeKind, Parallelism};
use eddyline_protocol::{Edge, EdgeFrom, Fragment, FragmentGraph, Head, TableDesc};
use eddyline_types::{DomainId, EdgeId, Error, FragmentId, JobId, Result, ShardId, TableId, vnode};
use futures::FutureExt;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// What the shards of one build share.
struct Plan {
    jobs: Vec<BuildJob>,
    /// Shards of each fragment, those of running upstreams included.
    counts: BTreeMap<FragmentId, u32>,
    /// Edges that leave each fragment and whose both ends are being built.
    edges: BTreeMap<FragmentId, Vec<Edge>>,
    /// Tables that backfills read.
    upstream: BTreeMap<TableId, Arc<TableDesc>>,
}

/// A shard that was started.
struct Started {
    entry: Arc<ShardEntry>,
    ready: oneshot::Receiver<()>,
}

impl Hub {
    /// Creates the shards of jobs; returns when all have loaded their state. An error leaves none of them behind.
    pub async fn build(self: &Arc<Self>, domain: DomainId, attempt: u64, jobs: Vec<BuildJob>) -> Result<()> {
        let ids: Vec<JobId> = jobs.iter().map(|j| j.job.id).collect();
        let plan = self.plan(jobs)?;
        self.register(&plan, domain, attempt)?;
        let started = match self.start(&plan) {
            Ok(started) => started,
            Err(error) => {
                self.abandon(&ids).await;
                return Err(error);
            }
        };
        for Started { entry, ready } in started {
            if ready.await.is_err() {
                entry.ended.cancelled().await;
                let error = match entry.failure.lock().take() {
                    Some(Failure { operator, error }) => error.context(operator),
                    None => Error::cancelled("the job was reset while it was built"),
                };
                self.abandon(&ids).await;
                return Err(error);
            }
        }
        let failed = {
            let mut registry = self.registry();
            // One may have failed or been reset between its own start and the last one's.
            let is_gone = ids.iter().any(|id| !registry.jobs.contains_key(id));
            let failure =
                registry.fragments.values().filter(|f| ids.contains(&f.job)).flat_map(|f| &f.shards).find_map(|s| s.failure.lock().take());
            if !is_gone && failure.is_none() {
                for id in &ids {
                    if let Some(entry) = registry.jobs.get_mut(id) {
                        entry.is_built = true;
                    }
                }
                let entry =
                    registry.domains.entry(domain).or_insert_with(|| DomainEntry { collector: Collector::new(attempt), uploads: None });
                if entry.collector.attempt != attempt {
                    *entry = DomainEntry { collector: Collector::new(attempt), uploads: None };
                }
                None
            } else {
                Some(failure.map_or_else(|| Error::cancelled("the job was reset while it was built"), |f| f.error.context(f.operator)))
            }
        };
        match failed {
            None => {
                self.built.send_modify(|n| *n += 1);
                Ok(())
            }
            Some(error) => {
                self.abandon(&ids).await;
                Err(error)
            }
        }
    }

    /// Ends what was started of jobs and forgets them.
    pub(crate) async fn abandon(&self, jobs: &[JobId]) {
        let shards: Vec<_> = {
            let mut registry = self.registry();
            jobs.iter().flat_map(|job| registry.remove(*job)).collect()
        };
        shards.iter().for_each(|s| s.stop.cancel());
        for shard in &shards {
            // Ends at its next await; a step of an operator is bounded.
            shard.ended.cancelled().await;
        }
    }

    /// Makes the jobs known, so that a reset finds them while they are being built.
    fn register(&self, plan: &Plan, domain: DomainId, attempt: u64) -> Result<()> {
        let mut registry = self.registry();
        if let Some(twice) = plan.jobs.iter().find(|b| registry.jobs.contains_key(&b.job.id)) {
            return Err(Error::internal(format!("job {} is built already", twice.job.id)));
        }
        for BuildJob { job, .. } in &plan.jobs {
            job.graph.tables.iter().for_each(|table| self.store().register(table));
            registry.jobs.insert(job.id, JobEntry { job: job.clone(), domain, attempt, is_built: false, dml: None });
        }
        Ok(())
    }

    /// Starts the shards of registered jobs.
    fn start(self: &Arc<Self>, plan: &Plan) -> Result<Vec<Started>> {
        let mut started = Vec::new();
        for build in &plan.jobs {
            for fragment in &build.job.graph.fragments {
                let shards = self.start_fragment(plan, build, fragment)?;
                let entry = FragmentEntry {
                    job: build.job.id,
                    schema: fragment.output_schema(),
                    operators: operators(fragment),
                    is_backfill: matches!(fragment.head, Head::Backfill { .. }),
                    is_entry: is_entry(&build.job.graph, fragment),
                    is_output: is_output(&build.job.graph, fragment),
                    shards: shards.iter().map(|s| s.entry.clone()).collect(),
                };
                self.registry().fragments.insert(fragment.id, entry);
                started.extend(shards);
            }
        }
        Ok(started)
    }

    fn plan(&self, jobs: Vec<BuildJob>) -> Result<Plan> {
        let registry = self.registry();
        let mut counts: BTreeMap<FragmentId, u32> = registry.fragments.iter().map(|(id, f)| (*id, f.shards.len() as u32)).collect();
        let mut tables: BTreeMap<TableId, Arc<TableDesc>> = BTreeMap::new();
        for graph in registry.jobs.values().map(|e| &e.job.graph).chain(jobs.iter().map(|j| &j.job.graph)) {
            tables.extend(graph.tables.iter().map(|t| (t.id, Arc::new(t.clone()))));
        }
        drop(registry);
        // A fragment may have as many shards as one of a job that comes later in the list: repeat until nothing is added.
        let total: usize = jobs.iter().map(|j| j.job.graph.fragments.len()).sum();
        let mut known = 0;
        loop {
            let before = known;
            known = 0;
            for build in &jobs {
                for fragment in &build.job.graph.fragments {
                    if let Some(count) = shard_count(build, fragment, &counts) {
                        counts.insert(fragment.id, count);
                        known += 1;
                    }
                }
            }
            if known == total {
                break;
            }
            if known == before {
                return Err(Error::internal("a fragment needs as many shards as one that does not run"));
            }
        }
        let mut edges: BTreeMap<FragmentId, Vec<Edge>> = BTreeMap::new();
        let built: Vec<FragmentId> = jobs.iter().flat_map(|j| j.job.graph.fragments.iter().map(|f| f.id)).collect();
        for edge in jobs.iter().flat_map(|j| &j.job.graph.edges) {
            let from = sender(edge)?;
            if built.contains(&from) {
                edges.entry(from).or_default().push(edge.clone());
            }
        }
        Ok(Plan { jobs, counts, edges, upstream: tables })
    }

    fn start_fragment(self: &Arc<Self>, plan: &Plan, build: &BuildJob, fragment: &Fragment) -> Result<Vec<Started>> {
        let count = plan.counts.get(&fragment.id).copied().unwrap_or(1);
        (0..count).map(|index| self.start_shard(plan, build, fragment, ShardId { fragment: fragment.id, index }, count)).collect()
    }

    fn start_shard(self: &Arc<Self>, plan: &Plan, build: &BuildJob, fragment: &Fragment, shard: ShardId, count: u32) -> Result<Started> {
        let (job, graph) = (&build.job, &build.job.graph);
        let (aligner, channels) = channels(plan, graph, fragment, shard.index, count)?;
        let identity = Identity {
            job: job.id,
            shard,
            shards: count,
            head: format!("{} {}", fragment.head.name(), fragment.head_id).into(),
            is_backfill: matches!(fragment.head, Head::Backfill { .. }),
        };
        let (chain, changes_level) = chain(plan, graph, fragment, job.id, shard, count)?;
        let (inlet, dml) = self.inlet(fragment, shard.index, count);
        if let Some(port) = dml
            && let Some(entry) = self.registry().jobs.get_mut(&job.id)
        {
            // All statements of a table go through its first shard: that keeps their order, and routing is cheap.
            entry.dml.get_or_insert(port);
        }
        let mut tables: BTreeMap<TableId, Arc<TableDesc>> = graph.tables.iter().map(|t| (t.id, Arc::new(t.clone()))).collect();
        if let Head::Backfill { table, .. } = &fragment.head {
            tables.extend(plan.upstream.get(table).map(|t| (*table, t.clone())));
        }
        let figures = Arc::new(ShardFigures::default());
        let vnodes = vnode::range_of_shard(shard.index, count);
        let around = Surroundings {
            outputs: Outputs::default(),
            reader: StateReader::new(self.store().clone(), tables, vnodes, self.host().is_inline(), build.state_epoch),
            errors: ErrorLog::new(job.id, shard.index, graph.table(graph.errors_table).cloned()),
            figures: figures.clone(),
            turn_started: 0,
        };
        let (inbox, messages) = mpsc::unbounded_channel();
        let edges = plan.edges.get(&fragment.id).cloned().unwrap_or_default();
        let hub = self.clone();
        let metrics = JobMetrics::new(&job.id.to_string());
        let (started, entered, woke) = (false, 0, false);
        let task =
            Task { identity, inbox: messages, aligner, inlet, changes_level, chain, around, edges, hub, started, entered, woke, metrics };
        // Shard i of every fragment shares a thread, so streams that need no shuffle stay on it; fragments with fewer shards than threads are spread.
        let threads = self.host().threads();
        let arbiter = if count >= threads { shard.index } else { shard.index + fragment.id.0 } % threads.max(1);
        let (ready, readiness) = oneshot::channel();
        let (stop, ended, failure) = (CancellationToken::new(), CancellationToken::new(), Arc::new(Mutex::new(None)));
        let guard = Guard { hub: self.clone(), job: job.id, ended: ended.clone(), failure: failure.clone(), is_over: false };
        let post = self.host().start(arbiter, inbox, Box::pin(guarded(task, ready, stop.clone(), guard)));
        let entry = ShardEntry { shard, post, channels, stop, ended, figures, arbiter, backfilled_at: AtomicU64::new(0), failure };
        Ok(Started { entry: Arc::new(entry), ready: readiness })
    }

    fn inlet(&self, fragment: &Fragment, index: u32, count: u32) -> (Inlet, Option<DmlPort>) {
        match &fragment.head {
            Head::Source { relation, spec, offsets } => {
                let opening = SourceOpening { relation: *relation, spec: spec.clone(), index, count, offsets: BTreeMap::new() };
                let (open, rows) = (self.config().open_source.clone(), self.config().source_rows);
                (Inlet::Source(Box::new(SourceInlet::new(opening, open, *offsets, rows, self.host().is_inline()))), None)
            }
            Head::Dml { .. } => {
                let (port, inlet): (DmlPort, DmlInlet) = DmlPort::new(self.config().dml_queue_bytes);
                (Inlet::Dml(inlet), Some(port))
            }
            Head::Receive { .. } | Head::Join(_) | Head::Backfill { .. } => (Inlet::Channels, None),
        }
    }
}

/// Runs a task until it ends or is stopped, and tells the hub if it ended as it should not.
async fn guarded(task: Task, ready: oneshot::Sender<()>, stop: CancellationToken, mut guard: Guard) {
    let run = AssertUnwindSafe(task.run(ready)).catch_unwind();
    // The task and all it holds are dropped at the end of this statement, before the guard says that it has ended.
    let result = stop.run_until_cancelled(run).await;
    guard.is_over = true;
    let failure = match result {
        None | Some(Ok(Ok(()))) => return,
        Some(Ok(Err(failure))) => failure,
        Some(Err(panic)) => Failure { operator: "Task".into(), error: crate::chain::panic_error(panic.as_ref()) },
    };
    guard.fail(failure);
}

/// Reports the end of a task, however it comes: also when its arbiter goes away under it.
struct Guard {
    hub: Arc<Hub>,
    job: JobId,
    ended: CancellationToken,
    failure: Arc<Mutex<Option<Failure>>>,
    is_over: bool,
}

impl Guard {
    fn fail(&self, failure: Failure) {
        self.hub.failed(self.job, &failure);
        *self.failure.lock() = Some(failure);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_over {
            self.fail(Failure { operator: "Task".into(), error: Error::internal("the thread of the shard ended") });
        }
        self.ended.cancel();
    }
}

fn sender(edge: &Edge) -> Result<FragmentId> {
    match edge.from {
        EdgeFrom::Fragment(from) => Ok(from),
        EdgeFrom::Relation(relation) => Err(Error::internal(format!("edge {} still comes from relation {relation}", edge.id))),
    }
}

fn edge_of(graph: &FragmentGraph, id: EdgeId) -> Result<&Edge> {
    graph.edges.iter().find(|e| e.id == id).ok_or_else(|| Error::internal(format!("edge {id} is not in the graph")))
}

fn shard_count(build: &BuildJob, fragment: &Fragment, counts: &BTreeMap<FragmentId, u32>) -> Option<u32> {
    match fragment.parallelism {
        Parallelism::Single => Some(1),
        Parallelism::Default => Some(build.job.parallelism.clamp(1, vnode::VNODE_COUNT as u32)),
        Parallelism::SameAs(edge) => {
            let edge = edge_of(&build.job.graph, edge).ok()?;
            counts.get(&sender(edge).ok()?).copied()
        }
    }
}

/// Input edges of a fragment with the port of each.
fn ports(head: &Head) -> Vec<(EdgeId, usize)> {
    match head {
        Head::Source { .. } | Head::Dml { .. } => Vec::new(),
        Head::Receive { edges } => edges.iter().map(|e| (*e, 0)).collect(),
        Head::Join(join) => vec![(join.left.edge, 0), (join.right.edge, 1)],
        Head::Backfill { edge, .. } => vec![(*edge, 0)],
    }
}

type ChannelNumbers = BTreeMap<(EdgeId, u32), u32>;

fn channels(plan: &Plan, graph: &FragmentGraph, fragment: &Fragment, index: u32, count: u32) -> Result<(Aligner, ChannelNumbers)> {
    let (mut numbers, mut port_of) = (BTreeMap::new(), Vec::new());
    for (id, port) in ports(&fragment.head) {
        let edge = edge_of(graph, id)?;
        let from = sender(edge)?;
        let senders =
            *plan.counts.get(&from).ok_or_else(|| Error::internal(format!("edge {id} comes from fragment {from}, which does not run")))?;
        for sender in (0..senders).filter(|s| is_connected(&edge.dispatch, *s, senders, index, count)) {
            numbers.insert((id, sender), port_of.len() as u32);
            port_of.push(port);
        }
    }
    if port_of.is_empty() && !ports(&fragment.head).is_empty() {
        return Err(Error::internal(format!("shard {index} of fragment {} has no input", fragment.id)));
    }
    Ok((Aligner::new(port_of), numbers))
}

/// The operators of a shard, and the level that takes DML changes with all stored columns.
fn chain(plan: &Plan, graph: &FragmentGraph, fragment: &Fragment, job: JobId, shard: ShardId, shards: u32) -> Result<(Chain, usize)> {
    let upstream = match &fragment.head {
        Head::Backfill { table, .. } => plan.upstream.get(table).map(Arc::as_ref),
        Head::Source { .. } | Head::Dml { .. } | Head::Receive { .. } | Head::Join(_) => None,
    };
    let spec = ShardSpec { graph, shard, shards, upstream };
    let label = job.to_string();
    let (mut chain, mut changes_level) = (Chain::default(), 0);
    if let Some(operator) = head_operator(&spec, fragment)? {
        chain.add(operator, fragment.head.name(), fragment.head_id, &label);
    }
    let mut input = fragment.head_schema.clone();
    for node in &fragment.chain {
        chain.add(chain_operator(&spec, node, &input)?, node.kind.name(), node.id, &label);
        input = node.schema.clone();
        if matches!(node.kind, NodeKind::RowId) {
            changes_level = chain.len();
        }
    }
    Ok((chain, changes_level))
}

fn operators(fragment: &Fragment) -> String {
    std::iter::once(fragment.head.name()).chain(fragment.chain.iter().map(|n| n.kind.name())).collect::<Vec<_>>().join(" > ")
}

fn is_entry(graph: &FragmentGraph, fragment: &Fragment) -> bool {
    let own = |edge: &Edge| matches!(edge.from, EdgeFrom::Fragment(from) if graph.fragments.iter().any(|f| f.id == from));
    let inputs = ports(&fragment.head);
    inputs.is_empty() || inputs.iter().any(|(id, _)| edge_of(graph, *id).is_ok_and(|e| !own(e)))
}

fn is_output(graph: &FragmentGraph, fragment: &Fragment) -> bool {
    graph.output == Some(fragment.id) || fragment.chain.last().is_some_and(|n| matches!(n.kind, NodeKind::Sink { .. }))
}
