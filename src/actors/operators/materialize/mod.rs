//! Materialize: writes the table of a relation at every barrier and passes its changes on.
//!
//! [`keyed`] trusts the plan's key and checks it, [`overwrite`] is a base table (the last row wins), [`multiset`] has no key and stores multiplicities.

pub mod keyed;
pub mod multiset;
pub mod overwrite;

pub use keyed::Keyed;
pub use multiset::Multiset;
pub use overwrite::Overwrite;
