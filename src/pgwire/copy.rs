//! The formats of COPY: text and CSV lines to columns, and rows to lines.
//!
//! The session says how rows are written ([`CopyOptions`]); here they are read and written so. Records end at a newline outside quotes; `\r\n` is one too. What cannot be read names its line and column.

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema};
use eddyline_session::CopyOptions;
use eddyline_types::value_parse::parse_column;
use eddyline_types::value_text::TextColumn;
use eddyline_types::{Error, Result, SqlState};
use std::borrow::Cow;
use std::sync::Arc;

/// Records that are parsed into columns at a time.
const BLOCK_RECORDS: usize = 8192;

fn bad(message: impl Into<String>) -> Error {
    Error::user(SqlState::BAD_COPY_FORMAT, message)
}

/// Reads all rows of a COPY. `columns`: name and type of what is sent.
pub(crate) fn read(format: &CopyOptions, columns: &[(String, DataType)], data: &[u8]) -> Result<RecordBatch> {
    let text = std::str::from_utf8(data).map_err(|e| {
        Error::user(SqlState("22021"), format!("invalid byte sequence for encoding \"UTF8\": 0x{:02x}", data[e.valid_up_to()]))
    })?;
    let schema = Arc::new(Schema::new(columns.iter().map(|(n, t)| Field::new(n, t.clone(), true)).collect::<Vec<_>>()));
    let mut records = Records { format, rest: text, line: 0 };
    if format.header {
        records.next_record()?;
    }
    let mut batches = Vec::new();
    let mut block = Block::new(columns.len());
    while let Some(fields) = records.next_record()? {
        block.push(fields, columns, records.line)?;
        if block.lines.len() == BLOCK_RECORDS {
            batches.push(block.finish(&schema, columns)?);
        }
    }
    batches.push(block.finish(&schema, columns)?);
    Ok(concat_batches(&schema, &batches)?)
}

/// Records that wait to become columns.
struct Block<'a> {
    fields: Vec<Vec<Option<Cow<'a, str>>>>,
    /// The line on which each record ended.
    lines: Vec<usize>,
}

impl<'a> Block<'a> {
    fn new(columns: usize) -> Self {
        Block { fields: vec![Vec::new(); columns], lines: Vec::new() }
    }

    fn push(&mut self, fields: Vec<Option<Cow<'a, str>>>, columns: &[(String, DataType)], line: usize) -> Result<()> {
        // A table without columns is sent as empty lines.
        if columns.is_empty() && fields.len() == 1 {
            self.lines.push(line);
            return Ok(());
        }
        if fields.len() > columns.len() {
            return Err(bad("extra data after last expected column").with_detail(format!("COPY, line {line}")));
        }
        if let Some((name, _)) = columns.get(fields.len()) {
            return Err(bad(format!("missing data for column \"{name}\"")).with_detail(format!("COPY, line {line}")));
        }
        self.fields.iter_mut().zip(fields).for_each(|(column, field)| column.push(field));
        self.lines.push(line);
        Ok(())
    }

    fn finish(&mut self, schema: &Arc<Schema>, columns: &[(String, DataType)]) -> Result<RecordBatch> {
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns.len());
        for ((name, data_type), fields) in columns.iter().zip(&self.fields) {
            let texts: Vec<Option<&str>> = fields.iter().map(Option::as_deref).collect();
            arrays.push(parse_column(data_type, &texts).map_err(|e| {
                // Only now it matters which one it was.
                let wrong = texts.iter().position(|t| parse_column(data_type, &[*t]).is_err()).unwrap_or(0);
                e.with_detail(format!("COPY, line {}, column {name}: \"{}\"", self.lines[wrong], texts[wrong].unwrap_or_default()))
            })?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.lines.len()));
        let batch = RecordBatch::try_new_with_options(schema.clone(), arrays, &options)?;
        *self = Block::new(columns.len());
        Ok(batch)
    }
}

/// Splits text into records and fields.
struct Records<'a, 'f> {
    format: &'f CopyOptions,
    rest: &'a str,
    /// Lines taken so far.
    line: usize,
}

impl<'a> Records<'a, '_> {
    fn next_record(&mut self) -> Result<Option<Vec<Option<Cow<'a, str>>>>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        if self.format.csv { self.csv_record() } else { self.text_record() }
    }

    /// Takes one line, without its end.
    fn line(&mut self) -> &'a str {
        let rest = self.rest;
        let end = rest.find('\n').unwrap_or(rest.len());
        self.rest = rest.get(end + 1..).unwrap_or("");
        self.line += 1;
        let line = &rest[..end];
        line.strip_suffix('\r').unwrap_or(line)
    }

    fn text_record(&mut self) -> Result<Option<Vec<Option<Cow<'a, str>>>>> {
        let line = self.line();
        if line == "\\." {
            self.rest = "";
            return Ok(None);
        }
        let mut fields = Vec::new();
        let mut start = 0;
        let mut escaped = false;
        for (at, c) in line.char_indices() {
            if escaped {
                escaped = false;
            } else if c == '\\' {
                escaped = true;
            } else if c == self.format.delimiter {
                fields.push(self.text_field(&line[start..at])?);
                start = at + c.len_utf8();
            }
        }
        fields.push(self.text_field(&line[start..])?);
        Ok(Some(fields))
    }

    fn text_field(&self, field: &'a str) -> Result<Option<Cow<'a, str>>> {
        if field == self.format.null {
            return Ok(None);
        }
        if !field.contains('\\') {
            return Ok(Some(Cow::Borrowed(field)));
        }
        let mut out: Vec<u8> = Vec::with_capacity(field.len());
        let mut bytes = field.bytes().peekable();
        while let Some(byte) = bytes.next() {
            if byte != b'\\' {
                out.push(byte);
                continue;
            }
            match bytes.next() {
                None => out.push(b'\\'),
                Some(b'b') => out.push(8),
                Some(b'f') => out.push(12),
                Some(b'n') => out.push(b'\n'),
                Some(b'r') => out.push(b'\r'),
                Some(b't') => out.push(b'\t'),
                Some(b'v') => out.push(11),
                Some(b'x') if bytes.peek().is_some_and(u8::is_ascii_hexdigit) => out.push(number(&mut bytes, 16, 2, 0)),
                Some(digit @ b'0'..=b'7') => out.push(number(&mut bytes, 8, 2, u32::from(digit - b'0'))),
                Some(other) => out.push(other),
            }
        }
        let text = String::from_utf8(out).map_err(|_| Error::user(SqlState("22021"), "invalid byte sequence for encoding \"UTF8\""))?;
        Ok(Some(Cow::Owned(text)))
    }

    fn csv_record(&mut self) -> Result<Option<Vec<Option<Cow<'a, str>>>>> {
        if self.rest.strip_prefix("\\.").is_some_and(|r| r.is_empty() || r.starts_with(['\n', '\r'])) {
            self.rest = "";
            return Ok(None);
        }
        let format = self.format;
        let (mut fields, mut current, mut quoted, mut in_quotes) = (Vec::new(), String::new(), false, false);
        let mut chars = self.rest.char_indices().peekable();
        let mut end = self.rest.len();
        while let Some((at, c)) = chars.next() {
            if in_quotes {
                let next = chars.peek().map(|(_, c)| *c);
                if c == format.escape && next.is_some_and(|n| n == format.quote || n == format.escape) {
                    current.extend(next);
                    chars.next();
                } else if c == format.quote {
                    in_quotes = false;
                } else {
                    self.line += usize::from(c == '\n');
                    current.push(c);
                }
            } else if c == format.quote {
                in_quotes = true;
                quoted = true;
            } else if c == format.delimiter {
                fields.push(csv_field(format, &mut current, &mut quoted));
            } else if c == '\n' {
                end = at + 1;
                break;
            } else if !(c == '\r' && chars.peek().is_none_or(|(_, n)| *n == '\n')) {
                current.push(c);
            }
        }
        if in_quotes {
            return Err(bad("unterminated CSV quoted field").with_detail(format!("COPY, line {}", self.line + 1)));
        }
        self.line += 1;
        fields.push(csv_field(format, &mut current, &mut quoted));
        self.rest = &self.rest[end..];
        Ok(Some(fields))
    }
}

/// Up to `digits` more digits of a number to the base.
fn number(bytes: &mut std::iter::Peekable<std::str::Bytes<'_>>, base: u32, digits: usize, first: u32) -> u8 {
    let mut value = first;
    for _ in 0..digits {
        let Some(digit) = bytes.peek().and_then(|b| (*b as char).to_digit(base)) else { break };
        value = value * base + digit;
        bytes.next();
    }
    value as u8
}

fn csv_field<'a>(format: &CopyOptions, current: &mut String, quoted: &mut bool) -> Option<Cow<'a, str>> {
    let text = std::mem::take(current);
    if !std::mem::take(quoted) && text == format.null { None } else { Some(Cow::Owned(text)) }
}

/// Writes lines for rows.
pub(crate) struct LineWriter<'a> {
    format: &'a CopyOptions,
    field: Vec<u8>,
}

impl<'a> LineWriter<'a> {
    pub fn new(format: &'a CopyOptions) -> Self {
        LineWriter { format, field: Vec::new() }
    }

    /// The header line.
    pub fn header(&mut self, schema: &Schema, out: &mut Vec<u8>) {
        for (i, field) in schema.fields().iter().enumerate() {
            self.field.clear();
            self.field.extend_from_slice(field.name().as_bytes());
            self.separator(i, out);
            self.put(out);
        }
        out.push(b'\n');
    }

    /// One row; `arrays` and `columns` belong together.
    pub fn row(&mut self, arrays: &[ArrayRef], columns: &[TextColumn<'_>], row: usize, out: &mut Vec<u8>) {
        for (i, (array, column)) in arrays.iter().zip(columns).enumerate() {
            self.separator(i, out);
            if array.is_null(row) || matches!(column, TextColumn::Null) {
                out.extend_from_slice(self.format.null.as_bytes());
                continue;
            }
            self.field.clear();
            column.write(row, &mut self.field);
            self.put(out);
        }
        out.push(b'\n');
    }

    fn separator(&self, index: usize, out: &mut Vec<u8>) {
        if index > 0 {
            let mut bytes = [0; 4];
            out.extend_from_slice(self.format.delimiter.encode_utf8(&mut bytes).as_bytes());
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        let text = String::from_utf8_lossy(&self.field);
        let format = self.format;
        if !format.csv {
            for c in text.chars() {
                match c {
                    '\\' => out.extend_from_slice(b"\\\\"),
                    '\n' => out.extend_from_slice(b"\\n"),
                    '\r' => out.extend_from_slice(b"\\r"),
                    '\t' => out.extend_from_slice(b"\\t"),
                    '\u{8}' => out.extend_from_slice(b"\\b"),
                    '\u{b}' => out.extend_from_slice(b"\\v"),
                    '\u{c}' => out.extend_from_slice(b"\\f"),
                    c => {
                        if c == format.delimiter {
                            out.push(b'\\');
                        }
                        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                    }
                }
            }
            return;
        }
        let special = |c: char| c == format.delimiter || c == format.quote || c == '\n' || c == '\r';
        if *text != *format.null && !text.contains(special) && text != "\\." {
            out.extend_from_slice(text.as_bytes());
            return;
        }
        let mut quoted = String::with_capacity(text.len() + 2);
        quoted.push(format.quote);
        for c in text.chars() {
            if c == format.quote || c == format.escape {
                quoted.push(format.escape);
            }
            quoted.push(c);
        }
        quoted.push(format.quote);
        out.extend_from_slice(quoted.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;
    use eddyline_env::random;
    use rand::RngExt;

    fn text() -> CopyOptions {
        CopyOptions { csv: false, header: false, delimiter: '\t', null: "\\N".into(), quote: '"', escape: '"' }
    }

    fn csv() -> CopyOptions {
        CopyOptions { csv: true, delimiter: ',', null: String::new(), ..text() }
    }

    fn columns() -> Vec<(String, DataType)> {
        vec![("a".into(), DataType::Int32), ("b".into(), DataType::Utf8)]
    }

    fn rows(format: &CopyOptions, data: &str) -> Vec<(Option<i32>, Option<String>)> {
        let batch = read(format, &columns(), data.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        let (a, b) = (batch.column(0).as_primitive::<arrow::datatypes::Int32Type>(), batch.column(1).as_string::<i32>());
        (0..batch.num_rows()).map(|r| (a.is_valid(r).then(|| a.value(r)), b.is_valid(r).then(|| b.value(r).to_owned()))).collect()
    }

    #[test]
    fn text_lines_are_read() {
        let data = "1\tx\\ty\\\\\\x41\\101\r\n\\N\t\\N\n3\t\n\\.\nignored";
        let expected = vec![(Some(1), Some("x\ty\\AA".into())), (None, None), (Some(3), Some(String::new()))];
        assert_eq!(rows(&text(), data), expected);
    }

    #[test]
    fn csv_lines_are_read() {
        let data = "1,\"a \"\"b\"\"\nc\"\r\n,\n3,\"\"\n4,é";
        let expected =
            vec![(Some(1), Some("a \"b\"\nc".into())), (None, None), (Some(3), Some(String::new())), (Some(4), Some("é".into()))];
        assert_eq!(rows(&csv(), data), expected);
        let header = CopyOptions { header: true, delimiter: ';', ..csv() };
        assert_eq!(rows(&header, "a;b\n7;x"), [(Some(7), Some("x".into()))]);
    }

    #[test]
    fn what_cannot_be_read_names_its_line() {
        for (format, data, message, detail) in [
            (text(), "1\ta\nx\tb\n", "invalid input syntax for type integer: \"x\"", "COPY, line 2, column a: \"x\""),
            (text(), "1\n", "missing data for column \"b\"", "COPY, line 1"),
            (text(), "1\t2\t3\n", "extra data after last expected column", "COPY, line 1"),
            (csv(), "1,\"a\nb\"\n2,\"c", "unterminated CSV quoted field", "COPY, line 3"),
        ] {
            let error = read(&format, &columns(), data.as_bytes()).unwrap_err();
            assert_eq!((error.message(), error.detail()), (message, Some(detail)));
        }
        assert!(read(&text(), &columns(), b"1\t\xff\n").is_err());
    }

    #[test]
    fn what_is_written_is_read_back() {
        for seed in 0..2000 {
            let mut rng = random::seeded(seed);
            let format = if rng.random() { text() } else { csv() };
            let letters = ['a', '"', ',', '\\', '\n', '\r', '\t', '.', 'N', 'é', ' '];
            let values: Vec<Option<String>> = (0..rng.random_range(0..6))
                .map(|_| {
                    rng.random_bool(0.8).then(|| (0..rng.random_range(0..5)).map(|_| letters[rng.random_range(0..letters.len())]).collect())
                })
                .collect();
            let numbers = parse_column(&DataType::Int32, &vec![Some("1"); values.len()]).unwrap();
            let texts = parse_column(&DataType::Utf8, &values.iter().map(Option::as_deref).collect::<Vec<_>>()).unwrap();
            let arrays = [numbers, texts];
            let shown: Vec<TextColumn<'_>> = arrays.iter().map(|a| TextColumn::new(a.as_ref())).collect();
            let mut out = Vec::new();
            let mut writer = LineWriter::new(&format);
            (0..values.len()).for_each(|row| writer.row(&arrays, &shown, row, &mut out));
            let out = String::from_utf8(out).unwrap();
            let back: Vec<Option<String>> = rows(&format, &out).into_iter().map(|r| r.1).collect();
            assert_eq!(back, values, "seed {seed}: {out:?}");
        }
    }
}
