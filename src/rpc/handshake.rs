//! The first frame of each side: magic, protocol version, cluster, node. Anything else ends the connection.

use crate::frame::{codec, protocol_error};
use bytes::Bytes;
use eddyline_env::clock;
use eddyline_types::{Error, Result};
use futures::{SinkExt, StreamExt};
use prost::Message;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::codec::{Framed, LengthDelimitedCodec};

/// Version of frames and handshake; both sides must have the same.
pub const PROTOCOL_VERSION: u32 = 1;
const MAGIC: u32 = 0xEDD1_11E5;
/// Longest wait for the other side's first frame.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// A first frame is small: garbage shall not make us allocate.
const MAX_HELLO_BYTES: usize = 4096;

/// How a node introduces itself.
#[derive(Clone, PartialEq, Message)]
pub struct Hello {
    #[prost(fixed32, tag = "1")]
    magic: u32,
    #[prost(uint32, tag = "2")]
    version: u32,
    /// Name of the cluster: nodes of different ones do not talk.
    #[prost(string, tag = "3")]
    pub cluster: String,
    /// Number of the node.
    #[prost(uint64, tag = "4")]
    pub node: u64,
}

impl Hello {
    /// This program's introduction.
    pub fn new(cluster: impl Into<String>, node: u64) -> Self {
        Hello { magic: MAGIC, version: PROTOCOL_VERSION, cluster: cluster.into(), node }
    }
}

/// Exchanges introductions; returns the framed socket and who is there.
pub async fn greet<T>(socket: T, own: &Hello, timeout: Duration) -> Result<(Framed<T, LengthDelimitedCodec>, Hello)>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let work = async {
        let small = LengthDelimitedCodec::builder().max_frame_length(MAX_HELLO_BYTES).new_codec();
        let mut framed = Framed::new(socket, small);
        let lost = |e: std::io::Error| Error::unavailable(format!("a node hung up during the handshake: {e}"));
        framed.send(Bytes::from(own.encode_to_vec())).await.map_err(lost)?;
        let bytes =
            framed.next().await.ok_or_else(|| Error::unavailable("a node hung up during the handshake"))?.map_err(|e| match e.kind() {
                std::io::ErrorKind::InvalidData => protocol_error("something that is no handshake"),
                _ => lost(e),
            })?;
        let other = Hello::decode(bytes.freeze()).map_err(|_| protocol_error("something that is no handshake"))?;
        check(own, &other)?;
        // The other side may have sent frames right behind its introduction: keep what is buffered.
        let framed = framed.map_codec(|_| codec());
        Ok((framed, other))
    };
    clock::timeout(timeout, work).await.unwrap_or_else(|| Err(Error::unavailable("a node did not introduce itself in time")))
}

fn check(own: &Hello, other: &Hello) -> Result<()> {
    if other.magic != MAGIC {
        return Err(protocol_error("something that is no handshake"));
    }
    if other.version != PROTOCOL_VERSION {
        return Err(Error::unavailable(format!(
            "node {} speaks version {} of the protocol, this one version {PROTOCOL_VERSION}",
            other.node, other.version
        )));
    }
    if other.cluster != own.cluster {
        return Err(Error::unavailable(format!(
            "node {} belongs to cluster \"{}\", this one to \"{}\"",
            other.node, other.cluster, own.cluster
        )));
    }
    Ok(())
}
