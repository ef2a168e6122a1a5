//! Opens a file: checks that it is the one that was read before, finds the header, goes to the saved position.

use super::csv::{CsvDecoder, Split};
use super::fetch::{Fetched, fetch, patiently};
use super::offset::{FileOffset, HEAD_BYTES};
use super::parquet::{ObjectReader, ParquetFile};
use super::spec::{Encoding, FileSpec, Mode};
use super::text::{Lines, Opening, TextFile};
use crate::columns::Columns;
use crate::{SourceBatch, decode_error};
use eddyline_objects::{ObjectInfo, Objects};
use eddyline_protocol::{ColumnDef, ErrorRecord};
use eddyline_types::{Error, Result, SqlState};
use std::sync::Arc;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Bytes read first: identity, header and, for small files, everything.
const FIRST_BYTES: u64 = 64 << 10;

/// A file being read.
pub(crate) enum OpenFile {
    Text(Box<TextFile>),
    Parquet(Box<ParquetFile>),
}

impl OpenFile {
    pub(crate) async fn next(&mut self, max_rows: usize) -> Result<Option<SourceBatch>> {
        match self {
            OpenFile::Text(file) => file.next(max_rows).await,
            OpenFile::Parquet(file) => file.next(max_rows).await,
        }
    }
}

/// What came of opening a file.
pub(crate) enum Opened {
    File(OpenFile),
    /// It cannot be read (any more): the offset that says so, and the error to record.
    Abandoned(FileOffset, ErrorRecord),
    /// Nothing can be read of it yet, or it is gone without a trace.
    Nothing,
}

/// Everything that opening a file needs; owned, since it runs as a task.
pub(crate) struct Opener {
    pub(crate) objects: Objects,
    pub(crate) spec: Arc<FileSpec>,
    pub(crate) columns: Arc<Vec<ColumnDef>>,
    pub(crate) name: String,
    /// Where an earlier reader was.
    pub(crate) saved: Option<FileOffset>,
}

/// The first bytes of a file and where its records begin.
struct Start {
    head: Vec<u8>,
    /// Byte and line of the first record behind the header.
    at: u64,
    line: u64,
}

impl Opener {
    /// Opens the file.
    pub(crate) async fn open(self) -> Result<Opened> {
        let split = self.spec.place.shown(&self.name);
        let Some(info) = patiently("opening a file", || self.objects.stat(&self.name)).await? else { return Ok(Opened::Nothing) };
        let Some(head) = self.read_head(&info, FIRST_BYTES).await? else { return Ok(Opened::Nothing) };
        let state = match &self.saved {
            None => FileOffset::start(&info, &head),
            Some(saved) if self.was_rewritten(saved, &info, &head) => {
                let error = Error::user(SqlState::DATA_EXCEPTION, "the file was rewritten after it was read; its new content is not read")
                    .with_detail(format!("size {} then, {} now; {} bytes or rows were read", saved.size, info.size_bytes, saved.at))
                    .with_hint("Write new data to a file with a new name.");
                let record = decode_error("source", &error, None, &split, None, None);
                return Ok(Opened::Abandoned(saved.clone().seen(&info).abandon(), record));
            }
            Some(saved) => saved.clone().seen(&info),
        };
        if self.spec.encoding == Encoding::Parquet {
            return self.open_parquet(split, info, state).await;
        }
        self.open_text(split, info, state, head).await
    }

    fn was_rewritten(&self, saved: &FileOffset, info: &ObjectInfo, head: &[u8]) -> bool {
        let same_kind = match self.spec.mode {
            Mode::Immutable => saved.is_same(info),
            Mode::Append => info.size_bytes >= saved.at,
        };
        !(same_kind && saved.has_head(head))
    }

    /// The first bytes, at least those that identify it; `None` if the file went away.
    async fn read_head(&self, info: &ObjectInfo, bytes: u64) -> Result<Option<Vec<u8>>> {
        let bytes = if self.spec.encoding == Encoding::Parquet { HEAD_BYTES } else { bytes };
        Ok(match fetch(&self.objects, &self.name, 0..bytes.min(info.size_bytes)).await? {
            Fetched::Bytes(bytes) => Some(bytes.to_vec()),
            Fetched::Gone(_) => None,
        })
    }

    async fn open_parquet(self, split: String, info: ObjectInfo, state: FileOffset) -> Result<Opened> {
        let reader = ObjectReader { objects: self.objects, name: self.name, size: info.size_bytes };
        match ParquetFile::open(reader, split.clone(), self.columns.to_vec(), state.clone()).await {
            Ok(file) => Ok(Opened::File(OpenFile::Parquet(Box::new(file)))),
            Err(error) => Ok(Opened::Abandoned(state.abandon(), decode_error("source", &error, None, &split, None, None))),
        }
    }

    async fn open_text(self, split: String, info: ObjectInfo, mut state: FileOffset, head: Vec<u8>) -> Result<Opened> {
        let bom = if head.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        let mut errors = vec![];
        let (lines, start) = match &self.spec.encoding {
            Encoding::Csv(format) => {
                let mut decoder = CsvDecoder::new(format.clone(), &self.columns);
                let start = Start { head, at: bom as u64, line: 1 };
                let start = match decoder.has_header() && info.size_bytes > start.at {
                    false => start,
                    true => match self.header(&mut decoder, start, &info, &split).await? {
                        Header::Found(start, missing) => {
                            errors = missing;
                            start
                        }
                        Header::Bad(record) => return Ok(Opened::Abandoned(state.abandon(), *record)),
                        Header::Incomplete => return Ok(Opened::Nothing),
                    },
                };
                (Lines::Csv(decoder), start)
            }
            _ => (Lines::Json, Start { head, at: bom as u64, line: 1 }),
        };
        if state.at < start.at {
            (state.at, state.line) = (start.at, start.line);
        } else if state.at > 0 {
            // Said when the file was begun.
            errors.clear();
        }
        let known = start.head.get(state.at as usize..).unwrap_or_default().to_vec();
        let opening = Opening {
            objects: self.objects,
            name: self.name,
            split,
            lines,
            columns: Columns::new(&self.columns)?,
            errors,
            append: self.spec.mode == Mode::Append,
            max_record_bytes: self.spec.max_record_bytes,
            state,
            known,
        };
        Ok(Opened::File(OpenFile::Text(Box::new(TextFile::new(opening)))))
    }

    /// Finds the header behind `start`; reads more of the file while it is longer than what is known.
    async fn header(&self, decoder: &mut CsvDecoder, start: Start, info: &ObjectInfo, split: &str) -> Result<Header> {
        let Start { mut head, mut at, mut line } = start;
        loop {
            let whole = head.len() as u64 >= info.size_bytes;
            let text = &head[at as usize..];
            let bad = |error: &Error| Ok(Header::Bad(Box::new(decode_error("decode", error, None, split, Some(line), Some(text)))));
            match decoder.split(text, whole && self.spec.mode == Mode::Immutable) {
                Split::Record { len, lines } if decoder.is_blank() && (len as u64) < info.size_bytes - at => {
                    at += len as u64;
                    line += lines;
                }
                Split::Record { len, lines } => {
                    return match decoder.take_header(text, &self.columns) {
                        Err(error) => bad(&error),
                        Ok(missing) => {
                            let note = |name: String| {
                                let error = super::missing_column(&name);
                                decode_error("decode", &error, Some(name), split, Some(line), None)
                            };
                            let errors = missing.into_iter().map(note).collect();
                            Ok(Header::Found(Start { at: at + len as u64, line: line + lines, head }, errors))
                        }
                    };
                }
                Split::Malformed { why, .. } => return bad(&Error::user(SqlState::BAD_COPY_FORMAT, format!("malformed header: {why}"))),
                Split::Incomplete if head.len() > self.spec.max_record_bytes => {
                    return bad(&Error::user(SqlState::LIMIT_EXCEEDED, "the header is longer than \"max_record_bytes\""));
                }
                Split::Incomplete if whole => return Ok(Header::Incomplete),
                Split::Incomplete => {
                    let Some(more) = self.read_head(info, head.len() as u64 * 4).await? else { return Ok(Header::Incomplete) };
                    head = more;
                }
            }
        }
    }
}

enum Header {
    /// The records begin here; notes about columns that the file lacks.
    Found(Start, Vec<ErrorRecord>),
    Bad(Box<ErrorRecord>),
    Incomplete,
}
