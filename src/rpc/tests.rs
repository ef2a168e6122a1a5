//! Calls and streams over real sockets and in-memory pipes; garbage, wrong versions and peers that do not read.

use crate::frame::{Frame, FrameKind, codec};
use crate::handshake::{Hello, greet};
use crate::stream::{MAX_MESSAGE_BYTES, WINDOW_BYTES};
use crate::{Connection, Handler, Peer, Server, Stream};
use async_trait::async_trait;
use bytes::Bytes;
use eddyline_types::{Error, ErrorKind, Result};
use futures::{SinkExt, StreamExt};
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio_util::codec::{Framed, LengthDelimitedCodec};

const WAIT: Duration = Duration::from_secs(10);
const ECHO: u32 = 1;
const REFUSE: u32 = 2;
const SLEEP: u32 = 3;
const DOUBLE: u32 = 4;

struct Echo;

#[async_trait]
impl Handler for Echo {
    async fn call(&self, method: u32, payload: Bytes) -> Result<Bytes> {
        match method {
            ECHO => Ok(payload),
            SLEEP => {
                eddyline_env::clock::sleep(Duration::from_secs(60)).await;
                Ok(payload)
            }
            other => Err(Error::corruption(format!("method {other}")).with_hint("do not")),
        }
    }

    async fn stream(&self, method: u32, opening: Bytes, stream: &mut Stream) -> Result<()> {
        if method != DOUBLE {
            return Err(Error::internal("no such stream"));
        }
        stream.send(opening, WAIT).await?;
        while let Some(message) = stream.receive(WAIT).await? {
            stream.send(message.clone(), WAIT).await?;
            stream.send(message, WAIT).await?;
        }
        Ok(())
    }
}

fn hello(node: u64) -> Hello {
    Hello::new("test", node)
}

async fn server() -> (Server, Peer) {
    let server = Server::start("127.0.0.1:0", hello(1), Arc::new(Echo)).await.unwrap();
    let peer = Peer::new(server.address().to_string(), hello(2), Arc::new(Echo));
    (server, peer)
}

/// A connection on one side, and the bare frames of the other.
async fn bare() -> (Connection, Framed<DuplexStream, LengthDelimitedCodec>) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (own, other) = (hello(1), hello(2));
    let (connection, framed) = tokio::join!(Connection::start(ours, &own, false, Arc::new(Echo)), greet(theirs, &other, WAIT));
    (connection.unwrap(), framed.unwrap().0)
}

async fn ended(connection: &Connection) -> Error {
    tokio::time::timeout(WAIT, connection.wait_ended()).await.unwrap()
}

#[tokio::test]
async fn calls_interleave_and_carry_errors() {
    let (_server, peer) = server().await;
    let slow = peer.call(SLEEP, Bytes::new(), Duration::from_millis(200));
    let calls = (0..100u8).map(|n| peer.call(ECHO, Bytes::from(vec![n; 1000]), WAIT));
    let (slow, answers) = tokio::join!(slow, futures::future::join_all(calls));
    assert_eq!(slow.unwrap_err().kind(), ErrorKind::Unavailable);
    for (n, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.unwrap(), vec![n as u8; 1000]);
    }
    let error = peer.call(REFUSE, Bytes::new(), WAIT).await.unwrap_err();
    assert_eq!((error.kind(), error.message(), error.hint()), (ErrorKind::Corruption, "method 2", Some("do not")));
}

#[tokio::test]
async fn a_peer_reconnects_after_the_server_was_away() {
    let (server, peer) = server().await;
    peer.call(ECHO, Bytes::new(), WAIT).await.unwrap();
    let address = server.address().to_string();
    let old = peer.connection().await.unwrap();
    drop(server);
    ended(&old).await;
    assert_eq!(peer.call(ECHO, Bytes::new(), WAIT).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let _server = Server::start(&address, hello(1), Arc::new(Echo)).await.unwrap();
    peer.call(ECHO, Bytes::new(), WAIT).await.unwrap();
}

#[tokio::test]
async fn streams_move_more_than_their_window_in_both_directions() {
    let (_server, peer) = server().await;
    let connection = peer.connection().await.unwrap();
    let mut stream = connection.open(DOUBLE, Bytes::from_static(b"hi"), WAIT).await.unwrap();
    assert_eq!(stream.receive(WAIT).await.unwrap().unwrap(), "hi");
    let message = Bytes::from(vec![7u8; MAX_MESSAGE_BYTES / 2]);
    for _ in 0..20 {
        stream.send(message.clone(), WAIT).await.unwrap();
        for _ in 0..2 {
            assert_eq!(stream.receive(WAIT).await.unwrap().unwrap(), message);
        }
    }
    stream.close().await;
    assert_eq!(stream.receive(WAIT).await.unwrap(), None);
    let mut refused = connection.open(99, Bytes::new(), WAIT).await.unwrap();
    assert_eq!(refused.receive(WAIT).await.unwrap_err().message(), "no such stream");
}

#[tokio::test]
async fn a_slow_reader_stops_its_sender_and_nobody_else() {
    let (_server, peer) = server().await;
    let connection = peer.connection().await.unwrap();
    let mut stream = connection.open(DOUBLE, Bytes::new(), WAIT).await.unwrap();
    let message = Bytes::from(vec![1u8; MAX_MESSAGE_BYTES]);
    let mut sent = 0;
    let error = loop {
        match stream.send(message.clone(), Duration::from_millis(300)).await {
            Ok(()) => sent += message.len(),
            Err(error) => break error,
        }
        assert!(sent <= 4 * WINDOW_BYTES, "nobody reads, yet {sent} bytes were taken");
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    peer.call(ECHO, Bytes::from_static(b"still here"), WAIT).await.unwrap();
}

#[tokio::test]
async fn garbage_wrong_versions_and_foreign_clusters_are_refused() {
    let (server, peer) = server().await;
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0, 0, 0, 3, 1, 2, 3], &[255; 64], &[0, 0, 0, 0]] {
        let mut socket = TcpStream::connect(server.address()).await.unwrap();
        socket.write_all(garbage).await.unwrap();
        let mut rest = Vec::new();
        // The server says its hello and hangs up.
        tokio::time::timeout(WAIT, socket.read_to_end(&mut rest)).await.unwrap().ok();
        assert!(rest.len() < 200, "{garbage:?}");
    }
    let foreign = Peer::new(server.address().to_string(), Hello::new("other", 3), Arc::new(Echo));
    let error = foreign.call(ECHO, Bytes::new(), WAIT).await.unwrap_err();
    assert!(error.message().contains("belongs to cluster"), "{error}");
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let mut newer = hello(9).encode_to_vec();
    // Field 2 is the version: tag 0x10, then the number.
    let at = newer.windows(2).position(|w| w == [0x10, 1]).unwrap();
    newer[at + 1] = 2;
    let mut framed = Framed::new(theirs, codec());
    framed.send(Bytes::from(newer)).await.unwrap();
    let error = greet(ours, &hello(1), WAIT).await.map(|_| ()).unwrap_err();
    assert!(error.message().contains("speaks version 2"), "{error}");
    // Nobody else noticed.
    peer.call(ECHO, Bytes::new(), WAIT).await.unwrap();
}

#[tokio::test]
async fn a_silent_peer_is_given_up() {
    let (ours, _theirs) = tokio::io::duplex(1 << 16);
    let error = greet(ours, &hello(1), Duration::from_millis(50)).await.map(|_| ()).unwrap_err();
    assert!(error.message().contains("did not introduce itself"), "{error}");
}

#[tokio::test]
async fn frames_that_break_the_protocol_end_the_connection() {
    let data = |stream, bytes| Frame::new(FrameKind::Data, stream, Bytes::from(vec![0; bytes]));
    let mut open = Frame::new(FrameKind::Open, 3, Bytes::new());
    open.method = DOUBLE;
    let mut credit = Frame::new(FrameKind::Credit, 3, Bytes::new());
    credit.credit = u32::MAX;
    let cases: Vec<(&str, Vec<Bytes>)> = vec![
        ("cannot be decoded", vec![Bytes::from_static(b"\xff\xff\xff\xff")]),
        ("kind 42", vec![Frame { kind: 42, ..data(1, 0) }.encode_to_vec().into()]),
        ("wrong side", vec![Frame::new(FrameKind::Call, 2, Bytes::new()).encode_to_vec().into()]),
        ("more credit", vec![open.encode_to_vec().into(), credit.encode_to_vec().into()]),
        ("stream number twice", vec![open.encode_to_vec().into(), open.encode_to_vec().into()]),
        (
            "more than a stream's window",
            std::iter::once(open.encode_to_vec())
                .chain((0..64).map(|_| data(3, WINDOW_BYTES / 4).encode_to_vec()))
                .map(Bytes::from)
                .collect(),
        ),
    ];
    for (expected, frames) in cases {
        let (connection, framed) = bare().await;
        let (mut sink, mut source) = framed.split();
        eddyline_env::spawn::task("drain", async move { while source.next().await.is_some_and(|f| f.is_ok()) {} });
        for frame in frames {
            if sink.send(frame).await.is_err() {
                break;
            }
        }
        let error = ended(&connection).await;
        assert!(error.message().contains(expected), "{expected}: {error}");
        assert!(connection.call(ECHO, Bytes::new(), WAIT).await.is_err());
    }
}

#[tokio::test]
async fn a_peer_that_takes_no_bytes_is_given_up() {
    let (connection, _unread) = bare().await;
    let calls = (0..200).map(|_| connection.call(ECHO, Bytes::from(vec![0; 10_000]), WAIT));
    for answer in futures::future::join_all(calls).await {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert!(connection.ended().unwrap().message().contains("takes no bytes"));
}
