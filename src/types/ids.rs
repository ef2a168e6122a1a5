//! Identities as newtypes, so that a table id is never taken for a job id.
//!
//! Ids are allocated by the meta state machine, are never reused, and print as plain numbers.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(/// An object of the catalog: source, table, view, materialized view, sink, index.
    ObjectId);
id!(/// What one CREATE statement runs. A job has the number of its catalog object.
    JobId);
id!(/// A state table: one sorted, vnode-partitioned table of one operator or view.
    TableId);
id!(/// A subtree of a job's plan with one hash distribution.
    FragmentId);
id!(/// A stream from one fragment to one input port of another.
    EdgeId);
id!(/// An operator of a fragment; unique in the cluster, names error records and metrics.
    OperatorId);
id!(/// A connected component of the job graph: the unit of barrier, failure and recovery.
    DomainId);

impl From<ObjectId> for JobId {
    fn from(id: ObjectId) -> Self {
        JobId(id.0)
    }
}

impl From<JobId> for ObjectId {
    fn from(id: JobId) -> Self {
        ObjectId(id.0)
    }
}

/// One parallel instance of a fragment: one actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardId {
    /// The fragment that this is an instance of.
    pub fragment: FragmentId,
    /// 0-based position among the fragment's shards.
    pub index: u32,
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.fragment, self.index)
    }
}
