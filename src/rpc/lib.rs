//! Node-to-node messages: one multiplexed TCP connection per pair, with calls and credit-controlled streams. Knows no payload.
//!
//! Reading order: [`frame`] (bytes on the wire), [`handshake`] (who talks, in which version), [`connection`] (multiplexing),
//! [`stream`] (credits), [`server`] and [`peer`] (accept, connect and reconnect).
//!
//! Invariants: every queue is bounded or credited; every wait has a deadline; bytes that make no sense end the connection with one
//! error and touch nothing else; nothing is sent twice (a call whose answer is lost is reported, not repeated).

pub mod connection;
pub mod frame;
pub mod handshake;
pub mod peer;
pub mod server;
pub mod stream;
#[cfg(test)]
mod tests;

pub use connection::{Connection, Handler};
pub use handshake::Hello;
pub use peer::Peer;
pub use server::Server;
pub use stream::Stream;
