//! What clients get: backend messages appended to one buffer.
//!
//! Every message is written whole; lengths are filled in at its end.

use crate::encode::{Column, Format};
use arrow::datatypes::{DataType, Schema};
use eddyline_session::{Notice, Severity, TransactionStatus};
use eddyline_types::{Error, Result, SqlState, sql_types};

/// Bytes that wait to be written to the socket.
#[derive(Default)]
pub(crate) struct Replies {
    bytes: Vec<u8>,
}

impl Replies {
    /// How many bytes wait.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes that wait.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets the bytes after they were written; a buffer that has grown is given back.
    pub fn clear(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > 1 << 20 {
            self.bytes.shrink_to(64 << 10);
        }
    }

    /// One byte that is no message: the answer to a request for encryption.
    pub fn refuse_encryption(&mut self) {
        self.bytes.push(b'N');
    }

    fn message(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.push(kind);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        body(&mut self.bytes);
        self.close(start);
    }

    fn close(&mut self, start: usize) {
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    pub fn authentication_ok(&mut self) {
        self.message(b'R', |b| b.extend_from_slice(&0u32.to_be_bytes()));
    }

    /// The protocol's minor version that is spoken instead of a newer one, and options that are not known.
    pub fn negotiate_version(&mut self, unknown: &[String]) {
        self.message(b'v', |b| {
            b.extend_from_slice(&0u32.to_be_bytes());
            b.extend_from_slice(&(unknown.len() as u32).to_be_bytes());
            unknown.iter().for_each(|option| text(b, option));
        });
    }

    pub fn parameter_status(&mut self, name: &str, value: &str) {
        self.message(b'S', |b| {
            text(b, name);
            text(b, value);
        });
    }

    pub fn backend_key(&mut self, process_id: i32, secret: i32) {
        self.message(b'K', |b| {
            b.extend_from_slice(&process_id.to_be_bytes());
            b.extend_from_slice(&secret.to_be_bytes());
        });
    }

    pub fn ready_for_query(&mut self, status: TransactionStatus) {
        let byte = match status {
            TransactionStatus::Idle => b'I',
            TransactionStatus::Open => b'T',
            TransactionStatus::Failed => b'E',
        };
        self.message(b'Z', |b| b.push(byte));
    }

    /// A message without a body: ParseComplete `1`, BindComplete `2`, CloseComplete `3`, NoData `n`, PortalSuspended `s`, EmptyQueryResponse `I`.
    pub fn bare(&mut self, kind: u8) {
        self.message(kind, |_| ());
    }

    pub fn command_complete(&mut self, tag: &str) {
        self.message(b'C', |b| text(b, tag));
    }

    pub fn parameter_description(&mut self, oids: &[u32]) {
        self.message(b't', |b| {
            b.extend_from_slice(&(oids.len() as u16).to_be_bytes());
            oids.iter().for_each(|oid| b.extend_from_slice(&oid.to_be_bytes()));
        });
    }

    /// `format` gives that of each column.
    pub fn row_description(&mut self, schema: &Schema, format: impl Fn(usize) -> Format) {
        self.message(b'T', |b| {
            b.extend_from_slice(&(schema.fields().len() as u16).to_be_bytes());
            for (i, field) in schema.fields().iter().enumerate() {
                let data_type: &DataType = field.data_type();
                text(b, field.name());
                b.extend_from_slice(&[0; 6]);
                b.extend_from_slice(&sql_types::oid(data_type).to_be_bytes());
                b.extend_from_slice(&sql_types::type_length(data_type).to_be_bytes());
                b.extend_from_slice(&sql_types::type_modifier(data_type).to_be_bytes());
                b.extend_from_slice(&(format(i) as u16).to_be_bytes());
            }
        });
    }

    /// The client is to send (`G`) or gets (`H`) the rows of a COPY, as text.
    pub fn copy_response(&mut self, kind: u8, columns: usize) {
        self.message(kind, |b| {
            b.push(0);
            b.extend_from_slice(&(columns as u16).to_be_bytes());
            b.extend(std::iter::repeat_n(0, columns * 2));
        });
    }

    /// A line of a COPY.
    pub fn copy_data(&mut self, body: impl FnOnce(&mut Vec<u8>)) {
        self.message(b'd', body);
    }

    /// One row of the columns. A row that cannot be sent leaves nothing behind.
    pub fn data_row(&mut self, columns: &[Column<'_>], row: usize) -> Result<()> {
        let begin = self.bytes.len();
        self.bytes.push(b'D');
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&(columns.len() as u16).to_be_bytes());
        for column in columns {
            if let Err(e) = column.write(row, &mut self.bytes) {
                self.bytes.truncate(begin);
                return Err(e);
            }
        }
        if self.bytes.len() - begin > i32::MAX as usize {
            self.bytes.truncate(begin);
            return Err(Error::user(SqlState::LIMIT_EXCEEDED, "a row exceeds 2 GiB"));
        }
        self.close(begin + 1);
        Ok(())
    }

    /// An error; `severity`: `ERROR`, or `FATAL` when the connection ends.
    pub fn error(&mut self, severity: &str, error: &Error) {
        let position = error.position().map(|p| p.to_string());
        let fields = [
            (b'S', Some(severity)),
            (b'V', Some(severity)),
            (b'C', Some(error.sqlstate().0)),
            (b'M', Some(error.message())),
            (b'D', error.detail()),
            (b'H', error.hint()),
            (b'P', position.as_deref()),
        ];
        self.fields(b'E', &fields);
    }

    pub fn notice(&mut self, notice: &Notice) {
        let severity = match notice.severity {
            Severity::Notice => "NOTICE",
            Severity::Warning => "WARNING",
        };
        let fields = [(b'S', Some(severity)), (b'V', Some(severity)), (b'C', Some(notice.sqlstate)), (b'M', Some(&*notice.message))];
        self.fields(b'N', &fields);
    }

    fn fields(&mut self, kind: u8, fields: &[(u8, Option<&str>)]) {
        self.message(kind, |b| {
            for (field, value) in fields {
                if let Some(value) = value {
                    b.push(*field);
                    text(b, value);
                }
            }
            b.push(0);
        });
    }
}

/// A text and its zero byte; zero bytes inside would end it early and are left out.
fn text(bytes: &mut Vec<u8>, value: &str) {
    bytes.extend(value.bytes().filter(|b| *b != 0));
    bytes.push(0);
}
