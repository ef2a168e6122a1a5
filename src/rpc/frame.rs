//! Frames: four bytes of length (big endian), then a prost message.

use bytes::Bytes;
use eddyline_types::{Error, ErrorKind, Result, SqlState};
use prost::Message;
use tokio_util::codec::LengthDelimitedCodec;

/// Longest frame. Snapshots and chunks are cut below it.
pub const MAX_FRAME_BYTES: usize = 16 << 20;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum FrameKind {
    /// Never sent: what a missing field reads as.
    Unknown = 0,
    /// A request; answered by `Answer` or `Failure` with the same stream number.
    Call = 1,
    /// The answer of a call.
    Answer = 2,
    /// The error of a call, or the abnormal end of a stream.
    Failure = 3,
    /// Opens a stream; the payload goes to the handler.
    Open = 4,
    /// Data of a stream; costs credit by its payload's length.
    Data = 5,
    /// The receiver of a stream has consumed so many bytes.
    Credit = 6,
    /// The sender of a stream has no more.
    Close = 7,
}

/// One frame.
#[derive(Clone, PartialEq, Message)]
pub struct Frame {
    /// Number of the call or stream; odd ones are opened by the side that connected, even ones by the other.
    #[prost(uint64, tag = "1")]
    pub stream: u64,
    /// See [`FrameKind`].
    #[prost(enumeration = "FrameKind", tag = "2")]
    pub kind: i32,
    /// Of `Call` and `Open`: what for. Numbers belong to the users of this crate.
    #[prost(uint32, tag = "3")]
    pub method: u32,
    /// Of `Credit`: bytes.
    #[prost(uint32, tag = "4")]
    pub credit: u32,
    /// The rest.
    #[prost(bytes = "bytes", tag = "5")]
    pub payload: Bytes,
}

impl Frame {
    /// A frame without method and credit.
    pub fn new(kind: FrameKind, stream: u64, payload: Bytes) -> Self {
        Frame { stream, kind: kind as i32, method: 0, credit: 0, payload }
    }

    /// A frame that carries an error.
    pub fn failure(stream: u64, error: &Error) -> Self {
        let wire = WireError {
            kind: kind_number(error.kind()),
            message: error.message().to_owned(),
            detail: error.detail().map(str::to_owned),
            hint: error.hint().map(str::to_owned),
        };
        Frame::new(FrameKind::Failure, stream, wire.encode_to_vec().into())
    }

    /// The error of a `Failure`.
    pub fn to_error(&self) -> Error {
        match WireError::decode(self.payload.clone()) {
            Ok(wire) => wire.to_error(),
            Err(e) => protocol_error(format!("an error that cannot be decoded: {e}")),
        }
    }

    /// Reads a frame's bytes.
    pub fn read(bytes: Bytes) -> Result<Self> {
        Frame::decode(bytes).map_err(|e| protocol_error(format!("a frame that cannot be decoded: {e}")))
    }
}

/// How frames are told apart in the byte stream.
pub fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(MAX_FRAME_BYTES).new_codec()
}

/// The other side breaks the protocol.
pub fn protocol_error(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, SqlState::PROTOCOL_VIOLATION, format!("a node sent {what}"))
}

#[derive(Clone, PartialEq, Message)]
struct WireError {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(string, optional, tag = "3")]
    detail: Option<String>,
    #[prost(string, optional, tag = "4")]
    hint: Option<String>,
}

fn kind_number(kind: ErrorKind) -> u32 {
    match kind {
        ErrorKind::Internal => 0,
        ErrorKind::User => 1,
        ErrorKind::Unavailable => 2,
        ErrorKind::Conflict => 3,
        ErrorKind::Cancelled => 4,
        ErrorKind::Corruption => 5,
    }
}

impl WireError {
    fn to_error(&self) -> Error {
        // SQLSTATEs stay at home: between nodes only what to do matters.
        let (kind, state) = match self.kind {
            1 => (ErrorKind::User, SqlState::INTERNAL_ERROR),
            2 => (ErrorKind::Unavailable, SqlState::CANNOT_CONNECT_NOW),
            3 => (ErrorKind::Conflict, SqlState::SERIALIZATION_FAILURE),
            4 => (ErrorKind::Cancelled, SqlState::QUERY_CANCELED),
            5 => (ErrorKind::Corruption, SqlState::DATA_CORRUPTED),
            _ => (ErrorKind::Internal, SqlState::INTERNAL_ERROR),
        };
        let mut error = Error::new(kind, state, &self.message);
        if let Some(detail) = &self.detail {
            error = error.with_detail(detail);
        }
        if let Some(hint) = &self.hint {
            error = error.with_hint(hint);
        }
        error
    }
}
