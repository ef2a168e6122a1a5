//! The one Raft command in flight: what it packs, what its outcome means.

use super::{Coordinator, Effect, Observation, OpId, Reply, Ticket};
use crate::command::{Change, EpochCommit, Outcome};
use eddyline_protocol::{BarrierKind, Catalog};
use eddyline_types::{DomainId, Epoch, Error, JobId, Result};
use std::sync::Arc;

/// Who asked for a change.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// The outcome interests nobody.
    Nobody,
    /// CREATE enters the catalog.
    Create(OpId),
    /// CREATE of a job without backfill is complete.
    Activate(OpId),
    /// A failed CREATE leaves the catalog.
    Abandon(OpId),
    /// DROP.
    Drop(OpId),
    /// A compaction.
    Compact(Ticket),
    /// More epochs.
    Reserve(Epoch),
    /// A checkpoint, with the creates that it completes.
    Commit { domain: DomainId, epoch: Epoch, ready: Vec<OpId> },
}

/// The command in flight.
#[derive(Debug)]
pub(super) struct Batch {
    origins: Vec<Origin>,
}

impl Coordinator {
    /// Asks for epochs at once, because none are left.
    pub(super) fn reserve_epochs_now(&mut self) {
        if self.reserving {
            return;
        }
        if let Some(upto) = self.epochs.wanted(self.now.unix_ms) {
            self.reserving = true;
            self.pending.push((Change::ReserveEpochs { upto }, Origin::Reserve(upto)));
        }
    }

    /// Sends what waits, unless a command is in flight or other checkpoints of the same moment are about to come.
    pub(super) fn flush_commands(&mut self) {
        if self.in_flight.is_some() || self.must_linger() {
            return;
        }
        self.linger_until_us = None;
        let (mut changes, mut origins): (Vec<Change>, Vec<Origin>) = std::mem::take(&mut self.pending).into_iter().unzip();
        let ids: Vec<DomainId> = self.domains.keys().copied().collect();
        for id in ids {
            self.take_checkpoints(id, &mut changes, &mut origins);
        }
        if changes.is_empty() {
            return;
        }
        if let Some(upto) = self.epochs.wanted(self.now.unix_ms).filter(|_| !self.reserving) {
            self.reserving = true;
            changes.push(Change::ReserveEpochs { upto });
            origins.push(Origin::Reserve(upto));
        }
        self.in_flight = Some(Batch { origins });
        self.effects.push(Effect::Propose { changes });
    }

    fn must_linger(&mut self) -> bool {
        let uploaded = self.domains.values().flat_map(|d| d.checkpoints.iter()).filter(|c| c.delta.is_some());
        let (count, urgent) = uploaded.fold((0, !self.pending.is_empty()), |(n, u), c| (n + 1, u || c.urgent));
        if urgent || count == 0 {
            return false;
        }
        let others = self.domains.values().any(|d| {
            let collecting = d.collecting.as_ref().is_some_and(|c| c.kind == BarrierKind::Checkpoint);
            d.is_running() && (collecting || d.checkpoints.iter().any(|c| c.delta.is_none() && !c.proposed))
        });
        if !others {
            return false;
        }
        let until = *self.linger_until_us.get_or_insert(self.now.mono_us + self.config.commit_linger_ms * 1000);
        self.now.mono_us < until
    }

    fn take_checkpoints(&mut self, id: DomainId, changes: &mut Vec<Change>, origins: &mut Vec<Origin>) {
        let Some(domain) = self.domains.get_mut(&id).filter(|d| d.is_running()) else { return };
        for checkpoint in domain.checkpoints.iter_mut().filter(|c| !c.proposed) {
            let Some(mut delta) = checkpoint.delta.take() else { break };
            checkpoint.proposed = true;
            let mut ready = Vec::new();
            let mut ready_jobs = Vec::new();
            // All tables of the domain move to this epoch, those without changes too.
            delta.committed.clear();
            for job in checkpoint.jobs.iter() {
                let Some(state) = self.jobs.get(job) else { continue };
                delta.committed.extend(state.tables.iter().map(|t| (*t, checkpoint.epoch)));
                if let (Some(op), Some(at)) = (state.creating, state.backfilled)
                    && at <= checkpoint.epoch
                {
                    ready.push(op);
                    ready_jobs.push(*job);
                }
            }
            let commit = EpochCommit { domain: id, epoch: checkpoint.epoch, delta, ready: ready_jobs };
            changes.push(Change::CommitEpoch(Box::new(commit)));
            origins.push(Origin::Commit { domain: id, epoch: checkpoint.epoch, ready });
        }
    }

    pub(super) fn proposed(&mut self, result: Result<Vec<Outcome>>, catalog: Arc<Catalog>) {
        let Some(batch) = self.in_flight.take() else { return };
        let outcomes = match result {
            Ok(outcomes) if outcomes.len() == batch.origins.len() => outcomes,
            Ok(_) => return self.halt(Error::internal("meta command has a wrong number of outcomes"), batch.origins),
            Err(error) => return self.halt(error, batch.origins),
        };
        self.catalog = catalog;
        for (origin, outcome) in batch.origins.into_iter().zip(outcomes) {
            match origin {
                Origin::Nobody => {}
                Origin::Create(op) => self.created(op, outcome),
                Origin::Activate(op) => self.finish_create(op),
                Origin::Abandon(op) => self.abandoned(op),
                Origin::Drop(op) => self.dropped(op, outcome),
                Origin::Compact(ticket) => self.reply(ticket, Ok(Reply::Compacted(outcome == Outcome::Done))),
                Origin::Reserve(upto) => {
                    self.reserving = false;
                    self.epochs.reserved(upto);
                }
                Origin::Commit { domain, epoch, ready } => self.committed(domain, epoch, &ready, outcome),
            }
        }
        self.settle_all();
    }

    fn committed(&mut self, id: DomainId, epoch: Epoch, ready: &[OpId], outcome: Outcome) {
        // The domain is gone when all its jobs were dropped meanwhile.
        let Some(domain) = self.domains.get_mut(&id) else { return };
        let Some(checkpoint) = domain.checkpoints.pop_front_if(|c| c.proposed && c.epoch == epoch) else { return };
        if let Outcome::Refused(refusal) = outcome {
            self.part_done(&checkpoint.tickets, Some(&refusal.to_error()));
            return self.fail_domain(id, None, refusal.to_error());
        }
        if domain.is_running() {
            domain.failures = 0;
            domain.last_error = None;
        }
        for job in checkpoint.jobs.iter() {
            if let Some(state) = self.jobs.get_mut(job) {
                state.committed = epoch;
                state.frontier.committed = epoch;
                state.frontier.collected = state.frontier.collected.max(epoch);
            }
        }
        self.frontiers_changed = true;
        let micros = self.now.mono_us.saturating_sub(checkpoint.injected_us);
        self.effects.push(Effect::Observe(Observation::Checkpoint { micros }));
        if let Some(record) = self.history.iter_mut().rev().find(|r| r.domain == id && r.epoch == epoch) {
            record.commit_us = Some(micros);
        }
        self.part_done(&checkpoint.tickets, None);
        let jobs: Vec<JobId> = checkpoint.jobs.to_vec();
        for job in jobs {
            self.settle_waiters(job);
        }
        for op in ready {
            self.finish_create(*op);
        }
    }

    /// Raft cannot be written any more: nothing may be decided. Everybody who waits gets the error.
    fn halt(&mut self, error: Error, origins: Vec<Origin>) {
        tracing::error!(%error, "meta stops: its log cannot be written");
        let mut tickets: Vec<Ticket> = self.waiting.values().flatten().map(|(_, t)| *t).collect();
        tickets.extend(self.parts.keys());
        tickets.extend(self.creates.values_mut().filter_map(|c| c.ticket.take()));
        tickets.extend(self.drops.values().map(|d| d.ticket));
        let waiting = std::mem::take(&mut self.pending).into_iter().map(|(_, origin)| origin);
        for origin in origins.into_iter().chain(waiting) {
            if let Origin::Compact(ticket) = origin {
                tickets.push(ticket);
            }
        }
        for ticket in tickets {
            self.reply(ticket, Err(error.clone()));
        }
        self.halted = Some(error);
    }
}
