//! Statements that wait for commits: DML for its epoch, FLUSH for a checkpoint of every domain.

use super::{Coordinator, Reply, Ticket};
use eddyline_protocol::BarrierKind;
use eddyline_types::{Epoch, Error, ErrorKind, JobId, SqlState};

/// A statement that waits for several domains.
pub(super) struct Parts {
    /// Domains that have not answered.
    pub missing: usize,
    /// The first error.
    pub error: Option<Error>,
}

impl Coordinator {
    pub(super) fn wait_committed(&mut self, ticket: Ticket, job: JobId, epoch: Epoch) {
        let Some(state) = self.jobs.get(&job) else {
            return self.reply(ticket, Err(Error::user(SqlState::UNDEFINED_TABLE, "the relation was dropped")));
        };
        if state.is_lost(epoch) {
            return self.reply(ticket, Err(rolled_back()));
        }
        if state.committed >= epoch {
            return self.reply(ticket, Ok(Reply::Done));
        }
        if let Some(reason) = &state.quarantined {
            let error = Error::user(SqlState::NOT_IN_PREREQUISITE_STATE, "the relation's job is quarantined").with_detail(reason);
            return self.reply(ticket, Err(error));
        }
        self.waiting.entry(job).or_default().push((epoch, ticket));
        if let Some(domain) = self.domain_of(job) {
            let on_its_way = domain.checkpoints.back().is_some_and(|c| c.epoch >= epoch)
                || domain.collecting.as_ref().is_some_and(|c| c.kind == BarrierKind::Checkpoint && c.epoch >= epoch);
            domain.requested |= !on_its_way;
        }
    }

    /// Answers those whose epoch is durable now, or lost.
    pub(super) fn settle_waiters(&mut self, job: JobId) {
        let Some(waiting) = self.waiting.remove(&job) else { return };
        let mut left = Vec::new();
        for (epoch, ticket) in waiting {
            match self.jobs.get(&job) {
                None => self.reply(ticket, Err(Error::user(SqlState::UNDEFINED_TABLE, "the relation was dropped"))),
                Some(state) if state.is_lost(epoch) => self.reply(ticket, Err(rolled_back())),
                Some(state) if state.committed >= epoch => self.reply(ticket, Ok(Reply::Done)),
                Some(state) if state.quarantined.is_some() => self.reply(ticket, Err(rolled_back())),
                Some(_) => left.push((epoch, ticket)),
            }
        }
        if !left.is_empty() {
            self.waiting.insert(job, left);
        }
    }

    pub(super) fn flush(&mut self, ticket: Ticket) {
        let mut missing = 0;
        for domain in self.domains.values_mut().filter(|d| d.is_running()) {
            domain.requested = true;
            domain.request_tickets.push(ticket);
            missing += 1;
        }
        if missing == 0 {
            return self.reply(ticket, Ok(Reply::Done));
        }
        self.parts.insert(ticket, Parts { missing, error: None });
    }

    /// One domain has answered for these statements.
    pub(super) fn part_done(&mut self, tickets: &[Ticket], error: Option<&Error>) {
        for ticket in tickets {
            let Some(parts) = self.parts.get_mut(ticket) else { continue };
            parts.missing -= 1;
            if parts.error.is_none() {
                parts.error = error.cloned();
            }
            if parts.missing == 0 {
                let error = self.parts.remove(ticket).and_then(|p| p.error);
                self.reply(*ticket, error.map_or(Ok(Reply::Done), Err));
            }
        }
    }
}

/// The error of work that a failure of its domain undid.
pub(super) fn rolled_back() -> Error {
    Error::new(ErrorKind::Conflict, SqlState::SERIALIZATION_FAILURE, "the change was rolled back because its jobs failed")
        .with_hint("Run the statement again.")
}
