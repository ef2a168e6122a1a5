//! raft-meta
