//! Node
