//! CSV of answers and of ingested rows: comma, double quotes, a header, LF; an empty unquoted field is NULL.

use crate::failure::Failure;
use arrow::array::{Array, RecordBatch};
use eddyline_types::value_text::TextColumn;

/// The header line of a result.
pub(crate) fn header(names: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<u8> {
    let mut out = vec![];
    for (i, name) in names.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        field(name.as_ref().as_bytes(), &mut out);
    }
    out.push(b'\n');
    out
}

/// The lines of a batch.
pub(crate) fn write(batch: &RecordBatch, out: &mut Vec<u8>) {
    let columns: Vec<TextColumn> = batch.columns().iter().map(|c| TextColumn::new(c.as_ref())).collect();
    let mut text = vec![];
    for row in 0..batch.num_rows() {
        for (i, column) in columns.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            if batch.column(i).is_valid(row) {
                text.clear();
                column.write(row, &mut text);
                field(&text, out);
            }
        }
        out.push(b'\n');
    }
}

fn field(text: &[u8], out: &mut Vec<u8>) {
    let plain = !text.is_empty() && !text.iter().any(|b| matches!(b, b',' | b'"' | b'\n' | b'\r'));
    if plain {
        out.extend_from_slice(text);
        return;
    }
    out.push(b'"');
    for &b in text {
        if b == b'"' {
            out.push(b'"');
        }
        out.push(b);
    }
    out.push(b'"');
}

/// Fields of all records, `None` for NULL; blank lines are left out. The text is small enough to be in memory.
pub(crate) fn parse(text: &str) -> Result<Vec<Vec<Option<String>>>, Failure> {
    let mut records = vec![];
    let mut record: Vec<Option<String>> = vec![];
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    while !rest.is_empty() {
        let line = records.len() + 1;
        let value;
        (value, rest) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let (value, rest) =
                    unquote(quoted).ok_or_else(|| Failure::bad_request(format!("CSV record {line}: a quoted field is not closed")))?;
                if !(rest.is_empty() || rest.starts_with([',', '\n']) || rest.starts_with("\r\n")) {
                    return Err(Failure::bad_request(format!("CSV record {line}: text after a closing quote")));
                }
                (Some(value), rest)
            }
            None => {
                let end = rest.find([',', '\n']).unwrap_or(rest.len());
                let value = rest[..end].strip_suffix('\r').filter(|_| !rest[end..].starts_with(',')).unwrap_or(&rest[..end]);
                (Some(value.to_owned()).filter(|v| !v.is_empty()), &rest[end..])
            }
        };
        record.push(value);
        rest = match rest.strip_prefix(',') {
            Some("") => {
                // A comma at the very end: one more field, empty.
                record.push(None);
                ""
            }
            Some(rest) => rest,
            None => {
                let rest = rest.strip_prefix("\r\n").or(rest.strip_prefix('\n')).unwrap_or(rest);
                finish(&mut records, &mut record);
                rest
            }
        };
    }
    finish(&mut records, &mut record);
    Ok(records)
}

fn finish(records: &mut Vec<Vec<Option<String>>>, record: &mut Vec<Option<String>>) {
    let record = std::mem::take(record);
    if !(record.is_empty() || record == [None]) {
        records.push(record);
    }
}

/// The value up to the closing quote, and what follows.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"')?;
        value.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(after) => {
                value.push('"');
                rest = after;
            }
            None => return Some((value, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read() {
        let read = |text: &str| {
            parse(text).map_err(|e| e.to_string()).map(|records| {
                let show = |f: Option<String>| f.unwrap_or_else(|| "NULL".into());
                records.into_iter().map(|r| r.into_iter().map(show).collect::<Vec<_>>().join("|")).collect::<Vec<_>>()
            })
        };
        assert_eq!(read("a,b\r\n1,\"x, \"\"y\"\"\nz\"\n\n,\"\"\n").unwrap(), ["a|b", "1|x, \"y\"\nz", "NULL|"]);
        assert_eq!(read("\u{feff}a,b\n1,").unwrap(), ["a|b", "1|NULL"]);
        assert_eq!(read("").unwrap(), Vec::<String>::new());
        assert!(read("\"a").unwrap_err().contains("not closed"));
        assert!(read("\"a\"b").unwrap_err().contains("closing quote"));
    }

    #[test]
    fn rows_are_written() {
        let batch = crate::json::tests::sample();
        let mut out = header(["i", "a b", "c,d"]);
        write(&batch.project(&[0, 2, 3]).unwrap(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "i,a b,\"c,d\"\n9223372036854775807,10.50,\"a \"\"b\"\", c\n\"\n,-0.01,é\n");
    }
}
