//! The task of a shard: one async loop that owns head, chain and edges with plain `&mut self`, and takes one message at a time.
//!
//! It knows nothing of actix, of threads or of other shards' insides, so the same loop runs on arbiters and in the deterministic test loop.
//! Order at a barrier, which the rest relies on: chain closed, rows flushed, writes in the store, edges attached, barrier passed on,
//! edges of dropped jobs removed, the worker told.

use crate::aligner::{Aligned, Aligner};
use crate::chain::{Chain, Failure, Surroundings, yield_once};
use crate::figures::{JobMetrics, add, get};
use crate::hub::{Hub, Passed};
use crate::inlet::{DmlRequest, Inflow, Inlet};
use crate::message::{Input, Issued};
use eddyline_env::clock;
use eddyline_protocol::{Barrier, Edge, Mutation};
use eddyline_types::{Chunk, Epoch, JobId, Result, ShardId};
use futures::StreamExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{mpsc, oneshot};

/// Who a task is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The job.
    pub job: JobId,
    /// Fragment and position.
    pub shard: ShardId,
    /// Number of shards of the fragment.
    pub shards: u32,
    /// Name of the head, for attribution: `Source 3`.
    pub head: Arc<str>,
    /// Whether the head reads another job's table (its progress is reported).
    pub is_backfill: bool,
}

/// See the module's documentation.
pub struct Task {
    /// Who it is.
    pub identity: Identity,
    /// Its mailbox.
    pub inbox: mpsc::UnboundedReceiver<Input>,
    /// Its input channels.
    pub aligner: Aligner,
    /// Its other input.
    pub inlet: Inlet,
    /// Level of the chain that takes DML changes with all stored columns: behind the row id.
    pub changes_level: usize,
    /// Its operators.
    pub chain: Chain,
    /// What the operators work with.
    pub around: Surroundings,
    /// Edges inside the job, to be attached before the first event.
    pub edges: Vec<Edge>,
    /// The worker.
    pub hub: Arc<Hub>,
    /// Has passed its first barrier.
    pub started: bool,
    /// Rows that entered the domain here, in this epoch.
    pub entered: u64,
    /// The domain was told in this epoch that something entered.
    pub woke: bool,
    /// Its job's metrics.
    pub metrics: JobMetrics,
}

enum Event {
    Chunk(Aligned),
    Barrier(Arc<Issued>),
    Inflow(Inflow),
    Background,
    /// Nobody can send any more.
    Closed,
}

impl Task {
    /// Loads the state, says so on `ready`, and runs until a barrier drops the job or nobody can send any more.
    pub async fn run(mut self, ready: oneshot::Sender<()>) -> Result<(), Failure> {
        self.around.turn_started = clock::monotonic_nanos();
        self.load().await?;
        // Nobody waits if the build was given up; the worker then ends this task.
        let _ = ready.send(());
        loop {
            let event = self.next().await?;
            let start = clock::monotonic_nanos();
            self.around.turn_started = start;
            let blocked = self.around.outputs.blocked_nanos;
            let goes_on = self.handle(event).await?;
            let blocked = self.around.outputs.blocked_nanos - blocked;
            let figures = &self.around.figures;
            add(&figures.busy_nanos, (clock::monotonic_nanos() - start).saturating_sub(blocked));
            add(&figures.blocked_nanos, blocked);
            if !goes_on {
                return Ok(());
            }
        }
    }

    async fn load(&mut self) -> Result<(), Failure> {
        self.chain.load(&mut self.around).await?;
        if let Inlet::Source(source) = &mut self.inlet {
            let mut rows = self.around.reader.scan_all(source.offsets_table());
            while let Some(batch) = rows.next().await {
                batch.and_then(|b| source.restore(&b)).map_err(Failure::of_shard(&self.identity.head))?;
            }
        }
        Ok(())
    }

    /// The next thing to do. Messages go first, then rows that wait at the inlet, then background work; when there is nothing, small pieces are sent off.
    async fn next(&mut self) -> Result<Event, Failure> {
        let mut gave_way = false;
        loop {
            while let Ok(input) = self.inbox.try_recv() {
                if let Some(event) = self.accept(input)? {
                    return Ok(event);
                }
            }
            add_queue(self);
            match self.aligner.next() {
                Some(Aligned::Barrier(issued)) => return Ok(Event::Barrier(issued)),
                Some(chunk) => return Ok(Event::Chunk(chunk)),
                None => {}
            }
            if !gave_way {
                // The mailbox's handler may have messages that it could not hand over while this task was busy.
                gave_way = true;
                yield_once().await;
                continue;
            }
            if self.started {
                let inflow = self.inlet.poll_now(self.around.reader.store());
                if let Some(inflow) = inflow.map_err(Failure::of_shard(&self.identity.head))? {
                    return Ok(Event::Inflow(inflow));
                }
                if self.chain.has_background_work() {
                    return Ok(Event::Background);
                }
            }
            if self.around.outputs.has_pending() {
                self.around.outputs.flush().await.map_err(Failure::of_shard("Dispatch"))?;
                continue;
            }
            let store = self.around.reader.store().clone();
            tokio::select! {
                biased;
                input = self.inbox.recv() => {
                    let Some(input) = input else { return Ok(Event::Closed) };
                    if let Some(event) = self.accept(input)? {
                        return Ok(event);
                    }
                }
                inflow = self.inlet.wait(&store), if self.started => {
                    return inflow.map(Event::Inflow).map_err(Failure::of_shard(&self.identity.head));
                }
            }
        }
    }

    fn accept(&mut self, input: Input) -> Result<Option<Event>, Failure> {
        match input {
            Input::Deliver { channel, message } => {
                self.aligner.push(channel, message, clock::monotonic_nanos()).map_err(Failure::of_shard(&self.identity.head))?;
                Ok(None)
            }
            Input::Inject(issued) => Ok(Some(Event::Barrier(issued))),
        }
    }

    /// Whether the task goes on.
    async fn handle(&mut self, event: Event) -> Result<bool, Failure> {
        // A new job's own channels must be there before anything makes it emit: its first barrier, or a chunk of a backfill that passed its own
        // first barrier already. All shards of the job are known by now.
        let edges = std::mem::take(&mut self.edges);
        self.connect(edges).map_err(Failure::of_shard("Dispatch"))?;
        match event {
            Event::Chunk(Aligned::Chunk { port, chunk, permit }) => {
                add(&self.around.figures.rows_in, chunk.num_rows() as u64);
                self.chain.push(0, port, chunk, &mut self.around).await?;
                drop(permit);
            }
            Event::Barrier(issued) | Event::Chunk(Aligned::Barrier(issued)) => return self.barrier(issued).await,
            Event::Inflow(inflow) => self.inflow(inflow).await?,
            Event::Background => {
                let rows = self.chain.background(&mut self.around).await?;
                let is_done = !self.chain.has_background_work();
                // Its completion is reported with a barrier, so one is needed even if no row came.
                self.enter(rows, is_done);
            }
            Event::Closed => return Ok(false),
        }
        Ok(true)
    }

    async fn inflow(&mut self, inflow: Inflow) -> Result<(), Failure> {
        match inflow {
            Inflow::Batch(mut batch) => {
                self.around.errors.take(&self.identity.head, &mut batch.errors);
                let rows = batch.rows.num_rows();
                self.enter(rows, true);
                if rows > 0 {
                    self.chain.push(0, 0, Chunk::append_only(batch.rows), &mut self.around).await?;
                }
                if let Inlet::Source(source) = &mut self.inlet {
                    source.advance(batch.offsets);
                }
            }
            Inflow::Statements(statements) => {
                self.enter(0, true);
                for group in together(statements) {
                    self.statements(group).await?;
                }
            }
        }
        Ok(())
    }

    async fn statements(&mut self, group: Group) -> Result<(), Failure> {
        for (level, chunks) in [(0, group.inserts), (self.changes_level, group.changes)] {
            for chunk in chunks.into_iter().filter(|c| !c.is_empty()) {
                self.enter(chunk.num_rows(), false);
                self.chain.push(level, 0, chunk, &mut self.around).await?;
            }
        }
        if let Inlet::Dml(dml) = &mut self.inlet {
            group.replies.into_iter().for_each(|reply| dml.remember(reply));
        }
        Ok(())
    }

    /// Counts rows that enter the domain; the first thing of an epoch wakes an idle domain.
    fn enter(&mut self, rows: usize, wakes: bool) {
        if !self.woke && (rows > 0 || wakes) {
            self.woke = true;
            self.hub.wake(self.identity.job);
        }
        self.entered += rows as u64;
        add(&self.around.figures.rows_in, rows as u64);
    }

    async fn barrier(&mut self, issued: Arc<Issued>) -> Result<bool, Failure> {
        let barrier = &issued.barrier;
        // What is upstream of the barrier is readable at its epoch: a backfill reads its first page in here.
        self.around.reader.last_barrier = barrier.epoch;
        self.chain.barrier(barrier, &mut self.around).await?;
        self.around.outputs.flush().await.map_err(Failure::of_shard("Dispatch"))?;
        self.write(barrier).map_err(Failure::of_shard("Store"))?;
        self.connect(self.attached(barrier.mutation.as_deref())).map_err(Failure::of_shard("Dispatch"))?;
        self.around.outputs.barrier(&issued);
        if let Some(mutation) = &barrier.mutation {
            self.around.outputs.detach(mutation);
        }
        let first = !std::mem::replace(&mut self.started, true);
        self.begin_epoch(barrier, first).await.map_err(Failure::of_shard(&self.identity.head))?;
        self.report(&issued);
        Ok(!barrier.drops(self.identity.job))
    }

    /// Puts the epoch's writes into the store: from here on they are readable at the epoch.
    fn write(&mut self, barrier: &Barrier) -> Result<()> {
        let mut writes = self.chain.take_writes();
        if let Inlet::Source(source) = &mut self.inlet
            && barrier.is_checkpoint()
        {
            let table = self.around.reader.table(source.offsets_table())?;
            writes.extend(source.seal(table)?);
        }
        writes.extend(self.around.errors.seal(barrier.epoch)?);
        for write in writes {
            self.around.reader.store().write(barrier.epoch, write)?;
        }
        Ok(())
    }

    /// Edges that a barrier adds to this shard: they carry what comes after it.
    fn attached(&self, mutation: Option<&Mutation>) -> Vec<Edge> {
        let Some(Mutation::Attach { edges }) = mutation else { return Vec::new() };
        let own = eddyline_protocol::EdgeFrom::Fragment(self.identity.shard.fragment);
        edges.iter().filter(|(edge, _)| edge.from == own).map(|(edge, _)| edge.clone()).collect()
    }

    fn connect(&mut self, edges: Vec<Edge>) -> Result<()> {
        for edge in edges {
            if let Some(out) = self.hub.connect(&edge, self.identity.shard, self.identity.shards)? {
                self.around.outputs.attach(out);
            }
        }
        Ok(())
    }

    async fn begin_epoch(&mut self, barrier: &Barrier, first: bool) -> Result<()> {
        if barrier.is_checkpoint() {
            self.around.reader.last_checkpoint = barrier.epoch;
        }
        match &mut self.inlet {
            Inlet::Channels => {}
            Inlet::Source(source) => {
                match barrier.mutation.as_deref() {
                    Some(Mutation::Pause) => source.paused = true,
                    Some(Mutation::Resume) => source.paused = false,
                    Some(Mutation::Attach { .. } | Mutation::Drop { .. }) | None => {}
                }
                source.next_epoch();
                if first {
                    source.start().await?;
                }
            }
            Inlet::Dml(dml) => dml.end_epoch(barrier.epoch),
        }
        Ok(())
    }

    fn report(&mut self, issued: &Issued) {
        self.woke = false;
        let figures = &self.around.figures;
        let alignment = self.aligner.take_alignment_nanos();
        add(&figures.alignment_nanos, alignment);
        figures.errors.store(self.around.errors.total(), Ordering::Relaxed);
        figures.state_bytes.store(self.chain.memory_bytes() as u64, Ordering::Relaxed);
        figures.epoch.store(issued.barrier.epoch.0, Ordering::Relaxed);
        self.metrics.tell(figures);
        self.hub.passed(Passed {
            domain: issued.barrier.domain,
            attempt: issued.attempt,
            epoch: issued.barrier.epoch,
            shard: self.identity.shard,
            rows: std::mem::take(&mut self.entered),
            is_backfilled: self.identity.is_backfill && self.chain.is_backfilled(),
        });
    }
}

fn add_queue(task: &Task) {
    let queued = task.inbox.len() + task.aligner.len();
    if queued as u64 != get(&task.around.figures.queued) {
        task.around.figures.queued.store(queued as u64, Ordering::Relaxed);
    }
}

/// Statements that go through the chain together: their order matters only where a key is changed twice, and chunks keep the order of rows.
#[derive(Default)]
struct Group {
    inserts: Vec<Chunk>,
    changes: Vec<Chunk>,
    replies: Vec<oneshot::Sender<Result<Epoch>>>,
    /// Room in the queue, free when the group was consumed.
    _rooms: Vec<tokio::sync::OwnedSemaphorePermit>,
}

/// Joins consecutive statements that only insert; many one-row inserts become one chunk.
fn together(statements: Vec<DmlRequest>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for DmlRequest { changes, reply, room } in statements {
        let joins = changes.changes.is_empty() && groups.last().is_some_and(|g| g.changes.is_empty());
        if !joins {
            groups.push(Group::default());
        }
        let group = groups.last_mut().expect("one was just pushed if there was none");
        group.inserts.extend(changes.inserts);
        group.changes.extend(changes.changes);
        group.replies.push(reply);
        group._rooms.push(room);
    }
    for group in &mut groups {
        if group.inserts.len() > 1
            && let Ok(one) = Chunk::concat(&group.inserts[0].schema(), &group.inserts)
        {
            // Different schemas (a table that was altered meanwhile) stay apart.
            group.inserts = vec![one];
        }
    }
    groups
}
