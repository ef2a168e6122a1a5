//! Reads one file of lines: fetches ranges ahead, finds records, decodes them, keeps byte and line.
//!
//! Invariant: which rows and errors a record gives depends only on the bytes from its start, never on how the bytes were
//! cut into ranges or batches; so a reader that resumes at a saved offset gives what the first one would have given.

use super::csv::{CsvDecoder, Split};
use super::fetch::{Fetched, Pending, fetch};
use super::json;
use super::offset::FileOffset;
use crate::columns::Columns;
use crate::{Offsets, SourceBatch, decode_error};
use eddyline_objects::Objects;
use eddyline_protocol::ErrorRecord;
use eddyline_protocol::report::MAX_RECORDS_PER_EPOCH;
use eddyline_types::{Error, Result, SqlState};

/// Bytes of one request.
const RANGE_BYTES: u64 = 4 << 20;
/// Bytes of input after which a batch ends though rows are wanted.
const BATCH_BYTES: usize = 8 << 20;

/// How records are found and decoded.
pub(crate) enum Lines {
    Csv(CsvDecoder),
    Json,
}

/// A file being read.
pub(crate) struct TextFile {
    objects: Objects,
    name: String,
    split: String,
    lines: Lines,
    columns: Columns,
    errors: Vec<ErrorRecord>,
    /// Lines count only when they are terminated.
    append: bool,
    max_record_bytes: usize,
    state: FileOffset,
    /// Bytes fetched and not yet decoded, from `position` on; `buffer[0]` is the file's byte `buffer_at`.
    buffer: Vec<u8>,
    buffer_at: u64,
    position: usize,
    fetched: u64,
    pending: Pending<Result<Fetched>>,
    /// In the middle of a record that is too long: its first bytes.
    skipping: Option<Vec<u8>>,
}

/// Why decoding stopped.
#[derive(PartialEq)]
enum Stop {
    /// The batch is full.
    Full,
    /// The buffer holds no further complete record.
    Starved,
}

/// What [`TextFile::new`] needs.
pub(crate) struct Opening {
    pub(crate) objects: Objects,
    pub(crate) name: String,
    pub(crate) split: String,
    pub(crate) lines: Lines,
    pub(crate) columns: Columns,
    /// Errors about the header, given with the first batch.
    pub(crate) errors: Vec<ErrorRecord>,
    pub(crate) append: bool,
    pub(crate) max_record_bytes: usize,
    pub(crate) state: FileOffset,
    /// The file's bytes from `state.at` on that are known already.
    pub(crate) known: Vec<u8>,
}

impl TextFile {
    pub(crate) fn new(opening: Opening) -> Self {
        let Opening { objects, name, split, lines, columns, errors, append, max_record_bytes, state, known } = opening;
        let (buffer_at, fetched) = (state.at, state.at + known.len() as u64);
        let pending = Pending::idle();
        let mut file = TextFile {
            objects,
            name,
            split,
            lines,
            columns,
            errors,
            append,
            max_record_bytes,
            state: FileOffset { done: false, ..state },
            buffer: known,
            buffer_at,
            position: 0,
            fetched,
            pending,
            skipping: None,
        };
        file.fetch_ahead();
        file
    }

    /// The next rows, or `None` when the file holds no more (for now). Cancel-safe: nothing is decoded before an await.
    pub(crate) async fn next(&mut self, max_rows: usize) -> Result<Option<SourceBatch>> {
        loop {
            if self.state.done {
                return Ok(None);
            }
            let stop = self.decode(max_rows.max(1));
            let finished = stop == Stop::Starved && self.fetched >= self.state.size;
            self.state.done = finished;
            if finished || self.columns.rows() > 0 || !self.errors.is_empty() {
                return self.emit().map(Some);
            }
            self.fetch_ahead();
            match self.pending.wait().await?? {
                Fetched::Bytes(bytes) => {
                    self.buffer.drain(..self.position);
                    self.buffer_at += std::mem::take(&mut self.position) as u64;
                    self.buffer.extend_from_slice(&bytes);
                    self.fetched += bytes.len() as u64;
                    self.fetch_ahead();
                }
                Fetched::Gone(why) => {
                    let error = Error::user(SqlState::IO_ERROR, why);
                    self.errors.push(decode_error("source", &error, None, &self.split, Some(self.state.line), None));
                    self.state = std::mem::take(&mut self.state).abandon();
                    return self.emit().map(Some);
                }
            }
        }
    }

    fn fetch_ahead(&mut self) {
        if self.fetched < self.state.size {
            let (objects, name) = (self.objects.clone(), self.name.clone());
            let range = self.fetched..self.state.size.min(self.fetched + RANGE_BYTES);
            self.pending.start("read a file", || async move { fetch(&objects, &name, range).await });
        }
    }

    fn emit(&mut self) -> Result<SourceBatch> {
        let offsets = Offsets::from([(self.split.clone(), self.state.to_text())]);
        Ok(SourceBatch { rows: self.columns.finish()?, errors: std::mem::take(&mut self.errors), offsets })
    }

    /// Decodes records of the buffer until the batch is full or the buffer has no further whole one.
    fn decode(&mut self, max_rows: usize) -> Stop {
        let last = !self.append && self.fetched >= self.state.size;
        let start = self.position;
        loop {
            if self.columns.rows() >= max_rows || self.errors.len() >= MAX_RECORDS_PER_EPOCH || self.position - start >= BATCH_BYTES {
                return Stop::Full;
            }
            if self.position == self.buffer.len() && self.skipping.is_none() {
                return Stop::Starved;
            }
            let whole = if self.skipping.is_some() { self.skip(last) } else { self.record(last) };
            if !whole {
                return Stop::Starved;
            }
        }
    }

    /// Moves behind a record. Its rows and errors are complete.
    fn consume(&mut self, bytes: usize, lines: u64) {
        self.position += bytes;
        self.state.at = self.buffer_at + self.position as u64;
        self.state.line += lines;
    }

    fn reject(&mut self, error: &Error, column: Option<String>, bytes: usize) {
        let payload = &self.buffer[self.position..self.position + bytes];
        self.errors.push(decode_error("decode", error, column, &self.split, Some(self.state.line), Some(payload)));
    }

    /// Decodes the record at the position; false: it does not end in the buffer.
    fn record(&mut self, last: bool) -> bool {
        // Only so many bytes are looked at, wherever the buffer ends: the outcome must not depend on that.
        let room = self.buffer.len() - self.position;
        let window = room.min(self.max_record_bytes);
        let (last, at_limit) = (last && window == room, window == self.max_record_bytes);
        let text = &self.buffer[self.position..self.position + window];
        match &mut self.lines {
            Lines::Csv(decoder) => match decoder.split(text, last) {
                Split::Incomplete if at_limit => self.overlong(window),
                Split::Incomplete => return false,
                Split::Malformed { len, lines, why } => {
                    self.reject(&Error::user(SqlState::BAD_COPY_FORMAT, why), None, len);
                    self.consume(len, lines);
                }
                Split::Record { len, lines } => {
                    if !(decoder.is_blank() && self.columns.columns_mut().len() > 1) {
                        match decoder.decode(text, &mut self.columns) {
                            Ok(()) => self.columns.end_row(),
                            Err((error, column)) => {
                                self.columns.abandon_row();
                                self.reject(&error, column, len);
                            }
                        }
                    }
                    self.consume(len, lines);
                }
            },
            Lines::Json => {
                let (line, len) = match memchr::memchr(b'\n', text) {
                    Some(end) => (&text[..end], end + 1),
                    None if last => (text, text.len()),
                    None if at_limit => {
                        self.overlong(window);
                        return true;
                    }
                    None => return false,
                };
                if !line.trim_ascii().is_empty() {
                    match json::decode_line(line, &mut self.columns) {
                        Ok(()) => self.columns.end_row(),
                        Err((error, column)) => {
                            self.columns.abandon_row();
                            self.reject(&error, column, len);
                        }
                    }
                }
                self.consume(len, 1);
            }
        }
        true
    }

    /// A record longer than the limit: its first line is given up (an open quote may have swallowed good lines).
    fn overlong(&mut self, window: usize) {
        let text = &self.buffer[self.position..self.position + window];
        match memchr::memchr(b'\n', text) {
            Some(end) => {
                self.reject(&self.too_long(), None, end + 1);
                self.consume(end + 1, 1);
            }
            None => {
                self.skipping = Some(text[..window.min(crate::MAX_PAYLOAD_BYTES)].to_vec());
                self.position += window;
            }
        }
    }

    /// Goes on to the end of the line that is too long; false: it does not end in the buffer.
    /// The offset stays at the line's start until then, so a restart meets it again as a whole.
    fn skip(&mut self, last: bool) -> bool {
        let rest = &self.buffer[self.position..];
        let end = memchr::memchr(b'\n', rest).map(|n| n + 1);
        let whole = end.is_some() || last;
        let bytes = end.unwrap_or(rest.len());
        if whole {
            let payload = self.skipping.take().unwrap_or_default();
            self.errors.push(decode_error("decode", &self.too_long(), None, &self.split, Some(self.state.line), Some(&payload)));
            self.consume(bytes, 1);
        } else {
            self.position += bytes;
        }
        whole
    }

    fn too_long(&self) -> Error {
        Error::user(SqlState::LIMIT_EXCEEDED, format!("the record is longer than {} bytes", self.max_record_bytes))
            .with_hint("Raise option \"max_record_bytes\".")
    }
}
