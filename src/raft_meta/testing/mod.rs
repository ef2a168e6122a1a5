//! Test equipment: small relations and graphs, an executor without actors, a store without files.

mod crash;
mod executor;
mod graphs;
mod live;
mod simulation;

pub(crate) use executor::{FakeExecutor, FakeStore};
pub(crate) use graphs::{graph, relation};
