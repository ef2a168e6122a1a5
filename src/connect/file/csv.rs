//! CSV: finds records and fields, matches the header with the columns, decodes rows.
//!
//! A quote opens a quoted field only as a field's first character; inside, a doubled quote is one quote and line breaks are
//! data. A record ends with LF or CR LF. After a malformed record reading goes on at the next line, so one stray quote
//! costs at most its own line.

use crate::columns::Columns;
use eddyline_protocol::ColumnDef;
use eddyline_types::{Error, Result, SqlState};

/// How the text is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CsvFormat {
    /// The first record names the columns.
    pub(crate) header: bool,
    pub(crate) delimiter: u8,
    pub(crate) quote: u8,
    /// An unquoted field of this text is NULL.
    pub(crate) null: Vec<u8>,
}

/// A field of the record that was split last: a range of the buffer, without its quotes.
#[derive(Clone, Copy, Debug)]
struct Field {
    start: usize,
    end: usize,
    quoted: bool,
    /// Holds doubled quotes.
    escaped: bool,
}

/// What [`CsvDecoder::split`] found at the start of the text.
pub(crate) enum Split {
    /// The record does not end in this text.
    Incomplete,
    /// A record of `len` bytes (its line break included) over `lines` lines; its fields were kept.
    Record { len: usize, lines: u64 },
    /// A malformed record; reading goes on after `len` bytes and `lines` lines.
    Malformed { len: usize, lines: u64, why: &'static str },
}

/// Splits and decodes records.
pub(crate) struct CsvDecoder {
    format: CsvFormat,
    fields: Vec<Field>,
    /// For each column of the relation: the position of its field, if the file has it.
    mapping: Vec<Option<usize>>,
    /// Fields that a record must have.
    width: usize,
    unescaped: Vec<u8>,
}

impl CsvDecoder {
    /// A decoder that takes the fields in the order of the columns, until a header says otherwise.
    pub(crate) fn new(format: CsvFormat, columns: &[ColumnDef]) -> Self {
        let width = columns.len();
        CsvDecoder { format, fields: vec![], mapping: (0..width).map(Some).collect(), width, unescaped: vec![] }
    }

    /// Whether the first record is a header.
    pub(crate) fn has_header(&self) -> bool {
        self.format.header
    }

    /// Finds the record at the start of `text`. `last`: nothing follows, so the text's end is the record's end.
    pub(crate) fn split(&mut self, text: &[u8], last: bool) -> Split {
        let CsvFormat { delimiter, quote, .. } = self.format;
        self.fields.clear();
        let (mut i, mut lines) = (0, 0);
        loop {
            let quoted = text.get(i) == Some(&quote);
            let mut field = Field { start: i, end: i, quoted, escaped: false };
            if quoted {
                match quoted_end(text, i, quote, &mut lines) {
                    None => return if last { malformed(text, "unterminated quoted field") } else { Split::Incomplete },
                    Some((end, escaped)) => {
                        (field.start, field.end, field.escaped) = (i + 1, end, escaped);
                        i = end + 1;
                    }
                }
            } else {
                // Fields are short: a plain loop beats memchr.
                let rest = &text[i..];
                i += rest.iter().position(|&b| b == delimiter || b == b'\n').unwrap_or(rest.len());
                field.end = i;
            }
            match text.get(i) {
                Some(&b) if b == delimiter => {
                    self.fields.push(field);
                    i += 1;
                }
                Some(b'\n') => {
                    if !quoted && field.end > field.start && text[field.end - 1] == b'\r' {
                        field.end -= 1;
                    }
                    self.fields.push(field);
                    return Split::Record { len: i + 1, lines: lines + 1 };
                }
                Some(b'\r') if quoted && text.get(i + 1) == Some(&b'\n') => {
                    self.fields.push(field);
                    return Split::Record { len: i + 2, lines: lines + 1 };
                }
                Some(b'\r') if quoted && i + 1 == text.len() && !last => return Split::Incomplete,
                Some(b'\r') if quoted && i + 1 == text.len() => {
                    self.fields.push(field);
                    return Split::Record { len: i + 1, lines: lines + 1 };
                }
                Some(_) => {
                    // Text after a closing quote: the record's extent is in doubt, so only its first line is given up.
                    return if last || text.contains(&b'\n') { malformed(text, "text after a closing quote") } else { Split::Incomplete };
                }
                None if !last => return Split::Incomplete,
                None => {
                    if !quoted && field.end > field.start && text[field.end - 1] == b'\r' {
                        field.end -= 1;
                    }
                    self.fields.push(field);
                    return Split::Record { len: i, lines: lines + 1 };
                }
            }
        }
    }

    /// Whether the record is an empty line.
    pub(crate) fn is_blank(&self) -> bool {
        matches!(self.fields[..], [Field { start, end, quoted: false, .. }] if start == end)
    }

    /// Takes the record split last as the header: fields are matched by name, exactly first, then without regard to case.
    /// Gives the relation's columns that the file lacks; an error if it has none of them.
    pub(crate) fn take_header(&mut self, text: &[u8], columns: &[ColumnDef]) -> Result<Vec<String>> {
        let mut names = Vec::with_capacity(self.fields.len());
        for i in 0..self.fields.len() {
            names.push(String::from_utf8_lossy(self.value(text, i)).trim().to_owned());
        }
        self.width = names.len();
        self.mapping = columns.iter().map(|c| super::match_name(&names, &c.name)).collect();
        if self.mapping.iter().all(Option::is_none) {
            let message = "the header names none of the columns";
            return Err(Error::user(SqlState::BAD_COPY_FORMAT, message)
                .with_hint("If the file has no header, write header = 'false' after ENCODE CSV."));
        }
        Ok(columns.iter().zip(&self.mapping).filter(|(_, m)| m.is_none()).map(|(c, _)| c.name.clone()).collect())
    }

    /// Decodes the record split last into a row. On error the caller abandons the row; the error's column is given.
    pub(crate) fn decode(&mut self, text: &[u8], columns: &mut Columns) -> Result<(), (Error, Option<String>)> {
        if self.fields.len() < self.width {
            let message = format!("missing data: the record has {} of {} fields", self.fields.len(), self.width);
            return Err((Error::user(SqlState::BAD_COPY_FORMAT, message), None));
        }
        if self.fields.len() > self.width {
            let width = self.width;
            let extra = self.value(text, width);
            let message = format!("extra data after the last of {width} fields: \"{}\"", crate::columns::shown(extra));
            return Err((Error::user(SqlState::BAD_COPY_FORMAT, message), None));
        }
        for (i, column) in columns.columns_mut().iter_mut().enumerate() {
            let appended = match self.mapping[i] {
                None => column.append_null(),
                Some(at) => {
                    let field = self.fields[at];
                    let raw = &text[field.start..field.end];
                    if !field.quoted && raw == self.format.null {
                        column.append_null()
                    } else if field.escaped {
                        column.append_text(unescape(raw, self.format.quote, &mut self.unescaped))
                    } else {
                        column.append_text(raw)
                    }
                }
            };
            appended.map_err(|e| (e, Some(column.name.clone())))?;
        }
        Ok(())
    }

    fn value<'a>(&'a mut self, text: &'a [u8], at: usize) -> &'a [u8] {
        let field = self.fields[at];
        let raw = &text[field.start..field.end];
        if field.escaped { unescape(raw, self.format.quote, &mut self.unescaped) } else { raw }
    }
}

/// Finds the closing quote of the field whose opening quote is at `start`, and whether doubled quotes are inside; counts line breaks.
/// A quote at the text's very end counts as closing: the caller waits for more text there unless it is the last.
fn quoted_end(text: &[u8], start: usize, quote: u8, lines: &mut u64) -> Option<(usize, bool)> {
    let (mut i, mut escaped) = (start + 1, false);
    while i < text.len() {
        if text[i] == quote {
            match text.get(i + 1) {
                Some(&b) if b == quote => {
                    escaped = true;
                    i += 1;
                }
                _ => return Some((i, escaped)),
            }
        } else if text[i] == b'\n' {
            *lines += 1;
        }
        i += 1;
    }
    None
}

/// The first line of the text is given up.
fn malformed(text: &[u8], why: &'static str) -> Split {
    let len = text.iter().position(|&b| b == b'\n').map_or(text.len(), |n| n + 1);
    Split::Malformed { len, lines: 1, why }
}

/// Doubled quotes to single ones.
fn unescape<'a>(raw: &[u8], quote: u8, out: &'a mut Vec<u8>) -> &'a [u8] {
    out.clear();
    let mut i = 0;
    while i < raw.len() {
        out.push(raw[i]);
        i += if raw[i] == quote { 2 } else { 1 };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::DataType;

    fn records(text: &str, last: bool) -> Vec<String> {
        let format = CsvFormat { header: false, delimiter: b',', quote: b'"', null: vec![] };
        let mut decoder = CsvDecoder::new(format, &[ColumnDef::new("a", DataType::Utf8)]);
        let (mut out, mut at) = (vec![], 0);
        while at < text.len() {
            let rest = &text.as_bytes()[at..];
            match decoder.split(rest, last) {
                Split::Incomplete => {
                    out.push("incomplete".into());
                    break;
                }
                Split::Record { len, lines } => {
                    let n = decoder.fields.len();
                    let values: Vec<_> = (0..n).map(|i| String::from_utf8_lossy(decoder.value(rest, i)).into_owned()).collect();
                    out.push(format!("{lines}:{}", values.join("|")));
                    at += len;
                }
                Split::Malformed { len, why, .. } => {
                    out.push(why.into());
                    at += len;
                }
            }
        }
        out
    }

    #[test]
    fn records_and_fields_are_found() {
        assert_eq!(records("a,b\r\nc,\n", false), ["1:a|b", "1:c|"]);
        assert_eq!(records("\"x\ny\",\"say \"\"hi\"\"\"\nz,1\n", false), ["2:x\ny|say \"hi\"", "1:z|1"]);
        assert_eq!(records("a,b", false), ["incomplete"]);
        assert_eq!(records("a,b", true), ["1:a|b"]);
        assert_eq!(records("a,\"b\"", false), ["incomplete"]);
        assert_eq!(records("a,\"b\"", true), ["1:a|b"]);
        assert_eq!(records("a,\"b\"\"\"", true), ["1:a|b\""]);
        assert_eq!(records("a,\"b\"\"\"", false), ["incomplete"]);
        assert_eq!(records("a,\"b\"\r", false), ["incomplete"]);
        assert_eq!(records("a,\"b\"\r", true), ["1:a|b"]);
        assert_eq!(records("it's 5\" wide,b\n", false), ["1:it's 5\" wide|b"]);
        assert_eq!(records("\n\na\n", false), ["1:", "1:", "1:a"]);
        assert_eq!(records("\"\",x\n", false), ["1:|x"]);
    }

    #[test]
    fn a_stray_quote_costs_its_own_line() {
        assert_eq!(records("\"open,1\nb,2\nc,3\n", true), ["unterminated quoted field", "1:b|2", "1:c|3"]);
        assert_eq!(records("\"a\"x,1\nb,2\n", true), ["text after a closing quote", "1:b|2"]);
        assert_eq!(records("\"open,1\nb,2\n", false), ["incomplete"]);
    }
}
