//! What clients send: frames and their bodies, parsed with every read checked.
//!
//! A frame is taken from the buffer only when it is complete; its body is parsed within its own length, so a wrong count inside can
//! neither panic nor eat the next message.

use bytes::{Buf, Bytes, BytesMut};
use eddyline_types::{Error, Result, SqlState};

/// Largest frame after start-up, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// Largest start-up packet, as in Postgres.
pub const MAX_STARTUP_BYTES: usize = 10_000;

/// The first packet of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Startup {
    /// Encryption is asked for (TLS or GSS): answered with one byte.
    Encryption,
    /// Cancel what the session with this key runs.
    Cancel {
        /// As in BackendKeyData.
        process_id: i32,
        /// As in BackendKeyData.
        secret: i32,
    },
    /// A session begins.
    Session {
        /// Minor version of protocol 3.
        minor: u16,
        /// Names and values, names in lower case.
        parameters: Vec<(String, String)>,
    },
}

/// A message after start-up.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    /// Simple query.
    Query(String),
    /// Prepare a statement.
    Parse {
        /// Empty: the unnamed one.
        name: String,
        /// The text.
        sql: String,
        /// Declared parameter types; 0: not told.
        types: Vec<u32>,
    },
    /// Make a portal of a statement and parameters.
    Bind(Bind),
    /// Describe a statement or a portal.
    Describe(Target),
    /// Run a portal.
    Execute {
        /// Which.
        portal: String,
        /// 0: all.
        max_rows: u32,
    },
    /// Forget a statement or a portal.
    Close(Target),
    /// End of a pipeline: ReadyForQuery is wanted.
    Sync,
    /// Send what there is.
    Flush,
    /// The client leaves.
    Terminate,
    /// Part of the rows of a COPY.
    CopyData(Bytes),
    /// The rows of a COPY are complete.
    CopyDone,
    /// The client gives up a COPY, for this reason.
    CopyFail(String),
    /// A message that exists and is not offered here.
    Unsupported(u8),
}

/// See [`Message::Bind`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Bind {
    /// Empty: the unnamed one.
    pub portal: String,
    /// Empty: the unnamed one.
    pub statement: String,
    /// None: all text; one: for all; else one each. 0 text, 1 binary.
    pub parameter_formats: Vec<i16>,
    /// Values; `None`: NULL.
    pub parameters: Vec<Option<Bytes>>,
    /// As `parameter_formats`, for the columns of the result.
    pub result_formats: Vec<i16>,
}

/// What Describe and Close mean.
#[derive(Debug, PartialEq, Eq)]
pub enum Target {
    /// A prepared statement.
    Statement(String),
    /// A portal.
    Portal(String),
}

/// A protocol error: the connection ends after it.
pub fn violation(message: impl Into<String>) -> Error {
    Error::user(SqlState::PROTOCOL_VIOLATION, message)
}

/// Takes the start-up packet from the buffer; `None`: it is not complete.
pub fn take_startup(buffer: &mut BytesMut) -> Result<Option<Startup>> {
    let Some(head) = buffer.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*head) as usize;
    if !(8..=MAX_STARTUP_BYTES).contains(&length) {
        return Err(violation("invalid length of startup packet"));
    }
    if buffer.len() < length {
        return Ok(None);
    }
    let mut body = Body(buffer.split_to(length).freeze());
    body.0.advance(4);
    match body.u32()? {
        80_877_103 | 80_877_104 => Ok(Some(Startup::Encryption)),
        80_877_102 => Ok(Some(Startup::Cancel { process_id: body.u32()? as i32, secret: body.u32()? as i32 })),
        version if version >> 16 == 3 => {
            let mut parameters = Vec::new();
            loop {
                let name = body.text()?;
                if name.is_empty() {
                    break;
                }
                parameters.push((name.to_lowercase(), body.text()?));
            }
            Ok(Some(Startup::Session { minor: version as u16, parameters }))
        }
        version => Err(Error::unsupported(format!(
            "unsupported frontend protocol {}.{}: server supports 3.0 to 3.0",
            version >> 16,
            version & 0xFFFF
        ))),
    }
}

/// Length of the frame without its type byte.
fn frame_length(buffer: &BytesMut) -> Option<usize> {
    let head = buffer.get(1..5)?;
    Some(u32::from_be_bytes(head.try_into().expect("four bytes")) as usize)
}

/// What is wrong with a message.
#[derive(Debug)]
pub enum Malformed {
    /// Its frame: there is no telling where the next one begins, so the connection ends.
    Frame(Error),
    /// Its body, of a message of this kind; the next message can be read.
    Body(u8, Error),
}

/// Takes the next message from the buffer; `None`: it is not complete.
pub fn take(buffer: &mut BytesMut) -> Result<Option<Message>, Malformed> {
    let Some(length) = frame_length(buffer) else { return Ok(None) };
    let kind = buffer[0];
    if !(4..=MAX_MESSAGE_BYTES).contains(&length) || !is_known(kind) {
        let message = if is_known(kind) { "invalid message length".into() } else { format!("invalid frontend message type {kind}") };
        return Err(Malformed::Frame(violation(message)));
    }
    if buffer.len() <= length {
        return Ok(None);
    }
    let mut body = Body(buffer.split_to(length + 1).freeze());
    body.0.advance(5);
    parse(kind, body).map(Some).map_err(|e| Malformed::Body(kind, e))
}

fn parse(kind: u8, mut body: Body) -> Result<Message> {
    let message = match kind {
        b'Q' => Message::Query(body.text()?),
        b'P' => {
            let (name, sql) = (body.text()?, body.text()?);
            let count = body.u16()?;
            Message::Parse { name, sql, types: (0..count).map(|_| body.u32()).collect::<Result<_>>()? }
        }
        b'B' => Message::Bind(body.bind()?),
        b'D' => Message::Describe(body.target()?),
        b'C' => Message::Close(body.target()?),
        b'E' => Message::Execute { portal: body.text()?, max_rows: body.u32()? },
        b'S' => Message::Sync,
        b'H' => Message::Flush,
        b'X' => Message::Terminate,
        b'd' => return Ok(Message::CopyData(body.0)),
        b'c' => Message::CopyDone,
        b'f' => Message::CopyFail(body.text()?),
        other => return Ok(Message::Unsupported(other)),
    };
    if !body.0.is_empty() {
        return Err(violation("invalid message format"));
    }
    Ok(message)
}

fn is_known(kind: u8) -> bool {
    matches!(kind, b'Q' | b'P' | b'B' | b'D' | b'C' | b'E' | b'S' | b'H' | b'X' | b'd' | b'c' | b'f' | b'F' | b'p')
}

/// The rest of a message's body.
struct Body(Bytes);

impl Body {
    fn take(&mut self, count: usize) -> Result<Bytes> {
        if count > self.0.len() {
            return Err(violation("insufficient data left in message"));
        }
        Ok(self.0.split_to(count))
    }

    fn u16(&mut self) -> Result<u16> {
        Ok(self.take(2)?.get_u16())
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(self.take(4)?.get_u32())
    }

    /// A text up to its zero byte.
    fn text(&mut self) -> Result<String> {
        let end = self.0.iter().position(|b| *b == 0).ok_or_else(|| violation("invalid string in message"))?;
        let bytes = self.take(end)?;
        self.take(1)?;
        String::from_utf8(bytes.to_vec()).map_err(|e| {
            Error::user(
                SqlState("22021"),
                format!("invalid byte sequence for encoding \"UTF8\": 0x{:02x}", bytes[e.utf8_error().valid_up_to()]),
            )
        })
    }

    fn target(&mut self) -> Result<Target> {
        match self.take(1)?[0] {
            b'S' => Ok(Target::Statement(self.text()?)),
            b'P' => Ok(Target::Portal(self.text()?)),
            other => Err(violation(format!("invalid DESCRIBE or CLOSE message subtype {other}"))),
        }
    }

    fn formats(&mut self) -> Result<Vec<i16>> {
        let count = self.u16()?;
        let formats = (0..count).map(|_| Ok(self.u16()? as i16)).collect::<Result<Vec<_>>>()?;
        match formats.iter().find(|f| !matches!(f, 0 | 1)) {
            Some(wrong) => Err(violation(format!("unsupported format code: {wrong}"))),
            None => Ok(formats),
        }
    }

    fn bind(&mut self) -> Result<Bind> {
        let (portal, statement, parameter_formats) = (self.text()?, self.text()?, self.formats()?);
        let count = self.u16()?;
        let mut parameters = Vec::new();
        for _ in 0..count {
            parameters.push(match self.u32()? as i32 {
                -1 => None,
                length => Some(self.take(usize::try_from(length).map_err(|_| violation("invalid parameter length"))?)?),
            });
        }
        Ok(Bind { portal, statement, parameter_formats, parameters, result_formats: self.formats()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BufMut;
    use rand::RngExt;

    fn frame(kind: u8, body: &[u8]) -> BytesMut {
        let mut buffer = BytesMut::new();
        buffer.put_u8(kind);
        buffer.put_u32(body.len() as u32 + 4);
        buffer.put_slice(body);
        buffer
    }

    #[test]
    fn a_message_is_taken_only_when_complete() {
        let whole = frame(b'Q', b"select 1\0");
        for cut in 0..whole.len() {
            let mut part = BytesMut::from(&whole[..cut]);
            assert_eq!(take(&mut part).unwrap(), None);
        }
        let mut twice = whole.clone();
        twice.extend_from_slice(&frame(b'S', b""));
        assert_eq!(take(&mut twice).unwrap(), Some(Message::Query("select 1".into())));
        assert_eq!(take(&mut twice).unwrap(), Some(Message::Sync));
        assert!(twice.is_empty());
    }

    #[test]
    fn counts_that_lie_do_not_reach_into_the_next_message() {
        let mut buffer = frame(b'P', b"\0select\0\xff\xff\0\0\0\x17");
        buffer.extend_from_slice(&frame(b'S', b""));
        let error = take(&mut buffer).unwrap_err();
        assert!(matches!(&error, Malformed::Body(b'P', e) if e.message() == "insufficient data left in message"), "{error:?}");
        assert_eq!(take(&mut buffer).unwrap(), Some(Message::Sync));
    }

    #[test]
    fn bind_has_formats_and_nulls() {
        let mut buffer = frame(b'B', b"p\0s\0\0\x01\0\x01\0\x02\xff\xff\xff\xff\0\0\0\x02ab\0\x00");
        let expected = Bind {
            portal: "p".into(),
            statement: "s".into(),
            parameter_formats: vec![1],
            parameters: vec![None, Some(Bytes::from_static(b"ab"))],
            result_formats: vec![],
        };
        assert_eq!(take(&mut buffer).unwrap(), Some(Message::Bind(expected)));
    }

    #[test]
    fn startup_packets() {
        let mut buffer = BytesMut::new();
        buffer.put_u32(8);
        buffer.put_u32(80_877_103);
        assert_eq!(take_startup(&mut buffer).unwrap(), Some(Startup::Encryption));
        buffer.put_u32(4 + 4 + 15);
        buffer.put_u32(196_608);
        buffer.put_slice(b"USER\0root\0\0");
        assert_eq!(take_startup(&mut buffer).unwrap(), None);
        buffer.put_slice(b"\0\0\0\0");
        let parameters = vec![("user".to_owned(), "root".to_owned())];
        assert_eq!(take_startup(&mut buffer).unwrap(), Some(Startup::Session { minor: 0, parameters }));
        let mut http = BytesMut::from(&b"GET / HTTP/1.1\r\n"[..]);
        assert!(take_startup(&mut http).is_err());
    }

    #[test]
    fn random_bytes_never_panic() {
        for seed in 0..20_000 {
            let mut rng = eddyline_env::random::seeded(seed);
            let bytes: Vec<u8> = (0..rng.random_range(0..200)).map(|_| [0, 1, rng.random()][rng.random_range(0..3)]).collect();
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = take(&mut buffer) {}
            let mut buffer = frame(b"QPBDCESHXdcfFp"[rng.random_range(0..14)], &bytes);
            let _ = take(&mut buffer);
            assert!(buffer.is_empty(), "seed {seed}: a complete frame stays");
            let _ = take_startup(&mut BytesMut::from(&bytes[..]));
        }
    }
}
