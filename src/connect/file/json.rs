//! NDJSON: one JSON object a line, decoded straight into columns.
//!
//! A strict parser (RFC 8259) that keeps slices of the line instead of building values. Keys are matched exactly first, then
//! without regard to case; unknown keys are ignored, a missing key is NULL, of duplicate keys the last one counts (as in
//! Postgres' jsonb). A number given as text is read as Postgres would cast it.

use crate::columns::{Column, Columns};
use crate::parse::Bad;
use eddyline_types::{Error, Result, SqlState};
use std::borrow::Cow;

/// Nesting that is followed before a line is refused.
const MAX_DEPTH: u32 = 128;

/// A value as it stands in the line.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value<'a> {
    Null,
    Boolean(bool),
    Number(&'a str),
    /// Between the quotes; `true` if it has escapes.
    Text(&'a str, bool),
    Array(&'a str),
    Object(&'a str),
}

/// Where a column's value was found.
#[derive(Clone, Copy)]
struct Slot<'a> {
    value: Value<'a>,
    exact: bool,
}

/// Decodes one line into a row. On error the caller abandons the row; the error's column is given if there is one.
pub(crate) fn decode_line(line: &[u8], columns: &mut Columns) -> Result<(), (Error, Option<String>)> {
    let text = std::str::from_utf8(line).map_err(|e| {
        (Error::user(SqlState("22021"), format!("invalid byte sequence for encoding \"UTF8\" at byte {}", e.valid_up_to() + 1)), None)
    })?;
    let columns = columns.columns_mut();
    let mut slots: Vec<Option<Slot>> = vec![None; columns.len()];
    let mut scanner = Scanner { text, at: 0 };
    scanner.top_level(&mut slots, columns).map_err(|e| (e, None))?;
    for (slot, column) in slots.iter().zip(columns) {
        append(slot.map_or(Value::Null, |s| s.value), column).map_err(|e| (e, Some(column.name.clone())))?;
    }
    Ok(())
}

fn append(value: Value<'_>, column: &mut Column) -> Result<()> {
    match value {
        Value::Null => column.append_null(),
        Value::Text(raw, false) => column.append_text(raw.as_bytes()),
        Value::Text(raw, true) => {
            let text = unescape(raw).ok_or_else(|| syntax("invalid escape in a string"))?;
            column.append_text(text.as_bytes())
        }
        Value::Boolean(b) if column.is_boolean() || column.is_text() => column.append_text(if b { b"true" } else { b"false" }),
        Value::Boolean(b) => Err(column.bad_value(if b { b"true" } else { b"false" }, Bad::Syntax)),
        Value::Number(raw) if column.is_number() => column.append_json_number(raw.as_bytes()),
        Value::Number(raw) if column.is_text() => column.append_text(raw.as_bytes()),
        Value::Number(raw) => Err(column.bad_value(raw.as_bytes(), Bad::Syntax)),
        Value::Array(raw) => Err(nested(column, "an array", raw)),
        Value::Object(raw) => Err(nested(column, "an object", raw)),
    }
}

fn nested(column: &Column, what: &str, raw: &str) -> Error {
    let message = format!(
        "column \"{}\": {what} is no value of type {}: \"{}\"",
        column.name,
        column.type_name(),
        crate::columns::shown(raw.as_bytes())
    );
    Error::user(SqlState::INVALID_TEXT, message)
}

fn syntax(what: impl Into<String>) -> Error {
    Error::user(SqlState::INVALID_TEXT, "invalid input syntax for type json").with_detail(what)
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn top_level(&mut self, slots: &mut [Option<Slot<'a>>], columns: &[Column]) -> Result<()> {
        if self.peek() != Some(b'{') {
            // Says what is wrong with the text first, if it is no JSON at all.
            self.value(0)?;
            self.end()?;
            return Err(syntax("a line must hold one JSON object"));
        }
        self.at += 1;
        let mut hint = 0;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return self.end();
        }
        loop {
            let key = self.key()?;
            let value = self.value(0)?;
            if let Some((at, exact)) = find(&key, columns, hint) {
                if exact || slots[at].is_none_or(|s| !s.exact) {
                    slots[at] = Some(Slot { value, exact });
                }
                hint = at + 1;
            }
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return self.end();
                }
                _ => return Err(self.unexpected("\",\" or \"}\"")),
            }
        }
    }

    /// Skips blanks and looks at the next byte.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    fn end(&mut self) -> Result<()> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.unexpected("the end of the line")),
        }
    }

    fn unexpected(&self, wanted: &str) -> Error {
        match self.text[self.at.min(self.text.len())..].chars().next() {
            None => syntax(format!("the line ends where {wanted} is expected")),
            Some(c) => syntax(format!("expected {wanted}, found {c:?} at byte {}", self.at + 1)),
        }
    }

    fn key(&mut self) -> Result<Cow<'a, str>> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected("a key in quotes"));
        }
        let (raw, escaped) = self.string()?;
        let key = if escaped { Cow::Owned(unescape(raw).ok_or_else(|| syntax("invalid escape in a key"))?) } else { Cow::Borrowed(raw) };
        if self.peek() != Some(b':') {
            return Err(self.unexpected("\":\""));
        }
        self.at += 1;
        Ok(key)
    }

    /// A string whose opening quote is next: what is between the quotes, and whether it has escapes.
    fn string(&mut self) -> Result<(&'a str, bool)> {
        let bytes = self.text.as_bytes();
        let start = self.at + 1;
        let (mut i, mut escaped) = (start, false);
        loop {
            match bytes.get(i) {
                Some(b'"') => {
                    self.at = i + 1;
                    return Ok((&self.text[start..i], escaped));
                }
                Some(b'\\') => {
                    escaped = true;
                    i += 2;
                }
                Some(0..=0x1f) => {
                    self.at = i;
                    return Err(self.unexpected("no control character in a string"));
                }
                Some(_) => i += 1,
                None => return Err(syntax("the line ends inside a string")),
            }
        }
    }

    fn value(&mut self, depth: u32) -> Result<Value<'a>> {
        if depth > MAX_DEPTH {
            return Err(syntax(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let next = self.peek();
        let start = self.at;
        match next {
            Some(b'"') => self.string().and_then(|(raw, escaped)| {
                // Escapes of values that nobody reads must be right too.
                if escaped && unescape(raw).is_none() { Err(syntax("invalid escape in a string")) } else { Ok(Value::Text(raw, escaped)) }
            }),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Boolean(true)),
            Some(b'f') => self.word("false", Value::Boolean(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(b'[') => {
                self.list(b']', depth, false)?;
                Ok(Value::Array(&self.text[start..self.at]))
            }
            Some(b'{') => {
                self.list(b'}', depth, true)?;
                Ok(Value::Object(&self.text[start..self.at]))
            }
            _ => Err(self.unexpected("a value")),
        }
    }

    /// Skips an array or object whose opening bracket is next.
    fn list(&mut self, close: u8, depth: u32, keyed: bool) -> Result<()> {
        self.at += 1;
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(());
        }
        loop {
            if keyed {
                self.key()?;
            }
            self.value(depth + 1)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b) if b == close => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.unexpected(if keyed { "\",\" or \"}\"" } else { "\",\" or \"]\"" })),
            }
        }
    }

    fn word(&mut self, word: &str, value: Value<'a>) -> Result<Value<'a>> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.unexpected("a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<Value<'a>> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut i = start + usize::from(bytes[start] == b'-');
        let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
        let whole = digits(i);
        let leading_zero = whole > 1 && bytes[i] == b'0';
        i += whole;
        let mut good = whole > 0 && !leading_zero;
        if bytes.get(i) == Some(&b'.') {
            let n = digits(i + 1);
            good &= n > 0;
            i += 1 + n;
        }
        if matches!(bytes.get(i), Some(b'e' | b'E')) {
            i += 1;
            i += usize::from(matches!(bytes.get(i), Some(b'+' | b'-')));
            let n = digits(i.min(bytes.len()));
            good &= n > 0;
            i += n;
        }
        if !good {
            return Err(self.unexpected("a number"));
        }
        self.at = i;
        Ok(Value::Number(&self.text[start..i]))
    }
}

/// The column of a key. Keys mostly come in the order of the columns, so the one after the last hit is tried first.
fn find(key: &str, columns: &[Column], hint: usize) -> Option<(usize, bool)> {
    if columns.get(hint).is_some_and(|c| c.name == key) {
        return Some((hint, true));
    }
    match columns.iter().position(|c| c.name == key) {
        Some(at) => Some((at, true)),
        None => columns.iter().position(|c| c.name.eq_ignore_ascii_case(key)).map(|at| (at, false)),
    }
}

/// Escapes to characters; `None` if one is malformed (a lone surrogate too) or stands for NUL, which no text may hold.
fn unescape(raw: &str) -> Option<String> {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let mut chars = rest[at + 1..].chars();
        match chars.next()? {
            c @ ('"' | '\\' | '/') => out.push(c),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'u' => {
                let hex = |s: &str| {
                    s.get(1..5).filter(|h| h.bytes().all(|b| b.is_ascii_hexdigit())).and_then(|h| u32::from_str_radix(h, 16).ok())
                };
                let first = hex(&rest[at + 1..])?;
                chars = rest[at + 6..].chars();
                let code = match first {
                    0xd800..=0xdbff => {
                        let second = chars.as_str().strip_prefix('\\').filter(|s| s.starts_with('u')).and_then(hex)?;
                        if !(0xdc00..=0xdfff).contains(&second) {
                            return None;
                        }
                        chars = chars.as_str()[6..].chars();
                        0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                    }
                    code => code,
                };
                out.push(char::from_u32(code).filter(|c| *c != '\0')?);
            }
            _ => return None,
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;
    use arrow::datatypes::{DataType, Int32Type};
    use eddyline_protocol::ColumnDef;

    fn columns() -> Columns {
        Columns::new(&[ColumnDef::new("id", DataType::Int32), ColumnDef::new("name", DataType::Utf8)]).unwrap()
    }

    fn row(line: &str) -> Result<(Option<i32>, Option<String>), String> {
        let mut columns = columns();
        decode_line(line.as_bytes(), &mut columns).map_err(|(e, _)| e.to_string())?;
        columns.end_row();
        let batch = columns.finish().unwrap();
        let (id, name) = (batch.column(0).as_primitive::<Int32Type>(), batch.column(1).as_string::<i32>());
        Ok((id.iter().next().unwrap(), name.iter().next().unwrap().map(str::to_owned)))
    }

    #[test]
    fn objects_become_rows() {
        let good = |line: &str, id: Option<i32>, name: Option<&str>| assert_eq!(row(line), Ok((id, name.map(str::to_owned))), "{line}");
        good(r#"{"id":1,"name":"a"}"#, Some(1), Some("a"));
        good(r#" { "name" : "\u00e9\ud83d\ude00\n\"" , "ID" : 6.0 } "#, Some(6), Some("é😀\n\""));
        good(r#"{"id":"12","name":12.50}"#, Some(12), Some("12.50"));
        good(r#"{"id":1,"id":2,"x":{"deep":[1,{"y":null}]},"name":true}"#, Some(2), Some("true"));
        good(r#"{"ID":3,"id":4,"Id":5}"#, Some(4), None);
        good("{}", None, None);
    }

    #[test]
    fn malformed_lines_say_why() {
        for (line, why) in [
            (r#"{"id":3,"name":"trunc"#, "inside a string"),
            ("[1,2,3]", "one JSON object"),
            ("", "a value is expected"),
            (r#"{"id":1}x"#, "end of the line"),
            (r#"{"id":01}"#, "a number"),
            (r#"{"id":1.}"#, "a number"),
            (r#"{"id":6.5}"#, "\"6.5\""),
            (r#"{"id":true}"#, "\"true\""),
            (r#"{"id":1,"name":["not","text"]}"#, "column \"name\": an array"),
            (r#"{"id":1,"name":"\ud83d"}"#, "invalid escape"),
            (r#"{"id":1,"name":"\u0000"}"#, "invalid escape"),
            (r#"{"id":1,}"#, "a key in quotes"),
            (r#"{"id" 1}"#, "\":\""),
            (r#"{"id":nul}"#, "a value"),
            ("{\"name\":\"a\tb\"}", "control character"),
        ] {
            let error = row(line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
        let deep = format!("{{\"x\":{}1{}}}", "[".repeat(1000), "]".repeat(1000));
        assert!(row(&deep).unwrap_err().contains("nested deeper"));
        assert!(decode_line(b"{\"name\":\"\xff\"}", &mut columns()).unwrap_err().0.message().contains("UTF8"));
    }
}
