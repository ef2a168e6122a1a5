//! The Postgres wire: connections, the simple and the extended protocol, text and binary values.
//!
//! Reading order: [`server`] (listening, bounds, shutdown), `connection` (start-up and the message loop), `extended` (statements and
//! portals), [`message`] (what clients send), `reply` (what they get), `encode` and `parameters` (values), [`client`] (the seam to the
//! session crate).
//! This crate knows bytes and message order; what a statement means is the session's. Bytes from a client never panic: every
//! message is parsed inside its own length (docs/decisions/0006-own-wire-messages.md).

pub mod client;
mod connection;
mod copy;
mod encode;
mod extended;
pub mod message;
mod parameters;
mod reply;
pub mod server;
#[cfg(test)]
mod tests;

pub use server::{Server, serve};
