//! The nouns below everything else: chunks, epochs, ids, virtual nodes, key order, error kinds.
//!
//! Reading order: [`chunk`] (the unit of data) and its text form [`chunk_text`], [`epoch`] (the unit of time),
//! [`ids`], [`vnode`] (the unit of ownership), [`key`] (order-preserving bytes on disk), [`sql_types`] (names and numbers of types),
//! [`value_text`] and [`value_parse`] (Postgres' text form of values), [`error`].
//! This crate does no I/O, reads no clock and starts no task.

pub mod chunk;
pub mod chunk_text;
pub mod epoch;
pub mod error;
pub mod ids;
pub mod key;
pub mod sql_types;
pub mod value_parse;
pub mod value_text;
pub mod vnode;

pub use chunk::Chunk;
pub use epoch::Epoch;
pub use error::{Error, ErrorKind, Result, SqlState};
pub use ids::{DomainId, EdgeId, FragmentId, JobId, ObjectId, OperatorId, ShardId, TableId};
pub use key::{KeyCodec, KeyField, KeyRange, TableKeyCodec};
pub use vnode::{VNODE_COUNT, VNode};
