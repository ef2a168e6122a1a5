//! Commands: what the Raft log carries, and what applying them answers.
//!
//! One log entry is one [`Command`]: a batch of independent [`Change`]s, because the Raft library writes one entry at a time.
//! On disk it is a prost envelope `{format, term, items: [{kind, payload}]}`; payloads are encoded by `protocol::codec`. A kind or
//! format that this program does not know is an error, never skipped: skipping would make replicas differ.

use eddyline_protocol::{FragmentGraph, JobStatus, Relation, VersionDelta, codec};
use eddyline_types::{DomainId, Epoch, Error, JobId, ObjectId, Result, SqlState};
use prost::Message;
use serde::{Deserialize, Serialize};

/// Version of the envelope.
const FORMAT: u32 = 1;

/// One entry of the Raft log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Raft term of the coordinator that decided it: commits of a deposed one are refused.
    pub term: u64,
    /// Applied in order, each on its own: a refused one does not stop the rest.
    pub changes: Vec<Change>,
}

/// One change of the replicated state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Allocates numbers, checks the name, enters relation and job (status `Creating`; without a graph it is visible at once).
    CreateRelation(Box<NewRelation>),
    /// Sets the status of jobs; those that are gone are skipped.
    SetJobStatus {
        /// Which jobs.
        jobs: Vec<JobId>,
        /// What they become.
        status: JobStatus,
    },
    /// Removes relations and their jobs and tables, all or none. Refused while others that are not listed depend on them.
    DropRelations {
        /// Which.
        ids: Vec<ObjectId>,
    },
    /// Makes a domain's checkpoint the committed one.
    CommitEpoch(Box<EpochCommit>),
    /// Replaces files by their compaction; refused if an input is gone.
    CommitCompaction {
        /// Inputs and outputs.
        delta: VersionDelta,
    },
    /// Epochs up to and including this one may be handed out.
    ReserveEpochs {
        /// Inclusive end of the range.
        upto: Epoch,
    },
}

/// A relation to be created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewRelation {
    /// Its number is ignored and replaced; `table` is local to the graph.
    pub relation: Relation,
    /// What it runs, numbered locally; `None` for sources and views.
    pub graph: Option<FragmentGraph>,
    /// Shards of parallel fragments.
    pub parallelism: u32,
}

/// A domain's checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochCommit {
    /// For people; domains are not part of the replicated state.
    pub domain: DomainId,
    /// The epoch of the checkpoint.
    pub epoch: Epoch,
    /// New files and the committed epochs of all tables of the domain.
    pub delta: VersionDelta,
    /// Jobs whose creation is complete with this epoch: they become `Running`.
    pub ready: Vec<JobId>,
}

/// What a change answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was applied.
    Done,
    /// The relation's number.
    Created(ObjectId),
    /// It was not applied.
    Refused(Refusal),
}

/// Why a change was not applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Which kind of reason.
    pub code: RefusalCode,
    /// Primary message.
    pub message: String,
    /// Facts.
    pub detail: Option<String>,
    /// Advice.
    pub hint: Option<String>,
}

/// Kinds of refusals; each has one SQLSTATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum RefusalCode {
    DuplicateTable,
    UndefinedTable,
    UndefinedSchema,
    DependentObjects,
    NotReady,
    Stale,
    BrokenGraph,
}

impl Refusal {
    /// A refusal without detail and hint.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Refusal { code, message: message.into(), detail: None, hint: None }
    }

    /// As the user sees it.
    pub fn to_error(&self) -> Error {
        let mut error = match self.code {
            RefusalCode::DuplicateTable => Error::user(SqlState::DUPLICATE_TABLE, &self.message),
            RefusalCode::UndefinedTable => Error::user(SqlState::UNDEFINED_TABLE, &self.message),
            RefusalCode::UndefinedSchema => Error::user(SqlState::INVALID_SCHEMA_NAME, &self.message),
            RefusalCode::DependentObjects => Error::user(SqlState::DEPENDENT_OBJECTS, &self.message),
            RefusalCode::NotReady => Error::user(SqlState::NOT_IN_PREREQUISITE_STATE, &self.message),
            RefusalCode::Stale | RefusalCode::BrokenGraph => Error::internal(&self.message),
        };
        if let Some(detail) = &self.detail {
            error = error.with_detail(detail);
        }
        if let Some(hint) = &self.hint {
            error = error.with_hint(hint);
        }
        error
    }
}

#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(uint32, tag = "1")]
    format: u32,
    #[prost(uint64, tag = "2")]
    term: u64,
    #[prost(message, repeated, tag = "3")]
    items: Vec<Item>,
}

#[derive(Clone, PartialEq, Message)]
struct Item {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(bytes = "vec", tag = "2")]
    payload: Vec<u8>,
}

/// Numbers on disk; never reused.
mod kind {
    pub const CREATE_RELATION: u32 = 1;
    pub const SET_JOB_STATUS: u32 = 2;
    pub const DROP_RELATIONS: u32 = 3;
    pub const COMMIT_EPOCH: u32 = 4;
    pub const COMMIT_COMPACTION: u32 = 5;
    pub const RESERVE_EPOCHS: u32 = 6;
}

impl Command {
    /// Bytes for the log.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let items = self.changes.iter().map(encode_change).collect::<Result<_>>()?;
        Ok(Envelope { format: FORMAT, term: self.term, items }.encode_to_vec())
    }

    /// Reads bytes of the log; anything unexpected is an error of kind `Corruption`.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let envelope = Envelope::decode(bytes).map_err(|e| Error::corruption(format!("meta command cannot be decoded: {e}")))?;
        if envelope.format != FORMAT {
            return Err(Error::corruption(format!("meta command has format {}, this program reads {FORMAT}", envelope.format)));
        }
        let changes = envelope.items.iter().map(decode_change).collect::<Result<_>>()?;
        Ok(Command { term: envelope.term, changes })
    }
}

fn encode_change(change: &Change) -> Result<Item> {
    let (kind, payload) = match change {
        Change::CreateRelation(new) => (kind::CREATE_RELATION, codec::encode(new)?),
        Change::SetJobStatus { jobs, status } => (kind::SET_JOB_STATUS, codec::encode(&(jobs, status))?),
        Change::DropRelations { ids } => (kind::DROP_RELATIONS, codec::encode(ids)?),
        Change::CommitEpoch(commit) => (kind::COMMIT_EPOCH, codec::encode(commit)?),
        Change::CommitCompaction { delta } => (kind::COMMIT_COMPACTION, codec::encode(delta)?),
        Change::ReserveEpochs { upto } => (kind::RESERVE_EPOCHS, codec::encode(upto)?),
    };
    Ok(Item { kind, payload })
}

fn decode_change(item: &Item) -> Result<Change> {
    let bytes = &item.payload;
    Ok(match item.kind {
        kind::CREATE_RELATION => Change::CreateRelation(codec::decode(bytes)?),
        kind::SET_JOB_STATUS => {
            let (jobs, status) = codec::decode(bytes)?;
            Change::SetJobStatus { jobs, status }
        }
        kind::DROP_RELATIONS => Change::DropRelations { ids: codec::decode(bytes)? },
        kind::COMMIT_EPOCH => Change::CommitEpoch(codec::decode(bytes)?),
        kind::COMMIT_COMPACTION => Change::CommitCompaction { delta: codec::decode(bytes)? },
        kind::RESERVE_EPOCHS => Change::ReserveEpochs { upto: codec::decode(bytes)? },
        other => {
            return Err(Error::corruption(format!("meta command has kind {other}: it was written by a newer program")));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_survive_their_bytes() {
        let command = Command {
            term: 7,
            changes: vec![
                Change::ReserveEpochs { upto: Epoch(9) },
                Change::SetJobStatus { jobs: vec![JobId(3)], status: JobStatus::Quarantined { reason: "no".into() } },
                Change::DropRelations { ids: vec![ObjectId(1), ObjectId(2)] },
                Change::CommitCompaction { delta: VersionDelta { removed: vec!["a".into()], ..Default::default() } },
            ],
        };
        assert_eq!(Command::decode(&command.encode().unwrap()).unwrap(), command);
    }

    #[test]
    fn garbage_newer_kinds_and_truncation_are_corruption() {
        let bytes = Command { term: 1, changes: vec![Change::ReserveEpochs { upto: Epoch(9) }] }.encode().unwrap();
        for bad in [&bytes[..bytes.len() - 1], b"\xff\xff\xff", &[]] {
            assert!(Command::decode(bad).is_err(), "{bad:?}");
        }
        let newer = Envelope { format: FORMAT, term: 1, items: vec![Item { kind: 99, payload: vec![] }] }.encode_to_vec();
        assert!(Command::decode(&newer).unwrap_err().message().contains("newer program"));
        let newer = Envelope { format: 2, term: 1, items: vec![] }.encode_to_vec();
        assert!(Command::decode(&newer).unwrap_err().message().contains("format 2"));
    }
}
