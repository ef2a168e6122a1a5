//! The text form of a chunk: prints and parses, for tests, EXPLAIN samples and the console.
//!
//! ```text
//!  w id:int8 name:text
//! +1 1      alice
//! -2 2      "b c"
//! +1 NULL   ""
//! ```
//! Columns are separated by blanks and aligned for the eye only. Without the column `w` every row counts +1. Texts that are empty, read `NULL`, or hold
//! blanks, quotes or control characters stand in double quotes with backslash escapes. Types are the short names of
//! [`crate::sql_types`], so types that share an SQL name (`Utf8` and `Utf8View`) read back as the usual one.

use crate::sql_types::{parse_name, short_name};
use crate::value_parse::parse_column;
use crate::value_text::TextColumn;
use crate::{Chunk, Error, Result};
use arrow::array::{Array, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The header of the weights.
const WEIGHT: &str = "w";
/// The text of NULL.
const NULL: &str = "NULL";

impl fmt::Display for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema();
        let mut columns: Vec<Vec<String>> = vec![vec![WEIGHT.to_owned()]];
        columns[0].extend((0..self.num_rows()).map(|row| format!("{:+}", self.weight(row))));
        for (field, column) in schema.fields().iter().zip(self.batch().columns()) {
            let mut cells = vec![format!("{}:{}", quoted(field.name(), ":"), quoted(&short_name(field.data_type()), ""))];
            let text = TextColumn::new(column.as_ref());
            cells.extend((0..self.num_rows()).map(|row| match (column.is_null(row), &text) {
                (true, _) | (_, TextColumn::Null) => NULL.to_owned(),
                (_, TextColumn::Bool(a)) => a.value(row).to_string(),
                _ => quoted(&text.text(row), ""),
            }));
            columns.push(cells);
        }
        // The weights align to the right, the rest to the left.
        let widths: Vec<usize> = columns.iter().map(|c| c.iter().map(|cell| cell.chars().count()).max().unwrap_or(0)).collect();
        for row in 0..=self.num_rows() {
            let mut line = format!("{:>width$}", columns[0][row], width = widths[0]);
            for (cells, width) in columns.iter().zip(&widths).skip(1) {
                line.push(' ');
                line.push_str(&format!("{:<width$}", cells[row], width = *width));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// The text, in quotes if a reader would take it for something else. `separators`: characters that need quotes here besides.
fn quoted(text: &str, separators: &str) -> String {
    let special = |c: char| c.is_whitespace() || c.is_control() || c == '"' || separators.contains(c);
    // A backslash alone needs none: `\x00` is how bytes look.
    if !text.is_empty() && text != NULL && !text.contains(special) {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A cell: its text, and where its first part in quotes ended, if it began with one (then `NULL` is a text).
#[derive(Debug, Default)]
struct Cell {
    text: String,
    quoted: Option<usize>,
}

fn malformed(line: usize, what: impl fmt::Display) -> Error {
    Error::user(crate::SqlState::INVALID_TEXT, format!("chunk text, line {line}: {what}"))
}

/// Splits a line at blanks outside quotes. A quote inside a word (`"my col":text`) starts a quoted part of it.
fn split_line(number: usize, line: &str) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    let mut current: Option<Cell> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c.is_whitespace() {
            cells.extend(current.take());
            continue;
        }
        let begins = current.is_none();
        let cell = current.get_or_insert_default();
        if c != '"' {
            cell.text.push(c);
            continue;
        }
        loop {
            match chars.next().ok_or_else(|| malformed(number, "a quote is not closed"))? {
                '"' => break,
                '\\' => cell.text.push(unescape(&mut chars).ok_or_else(|| malformed(number, "unknown escape"))?),
                c => cell.text.push(c),
            }
        }
        if begins {
            cell.quoted = Some(cell.text.len());
        }
    }
    cells.extend(current);
    Ok(cells)
}

fn unescape(chars: &mut std::str::Chars<'_>) -> Option<char> {
    Some(match chars.next()? {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'u' => {
            let rest = chars.as_str().strip_prefix('{')?;
            let (digits, after) = rest.split_once('}')?;
            *chars = after.chars();
            char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
        }
        c @ ('"' | '\\') => c,
        _ => return None,
    })
}

impl FromStr for Chunk {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut lines = text.lines().enumerate().map(|(i, l)| (i + 1, l)).filter(|(_, l)| !l.trim().is_empty());
        let (number, header) = lines.next().ok_or_else(|| malformed(1, "there is no header"))?;
        let mut header = split_line(number, header)?;
        let weighted = header.first().is_some_and(|c| c.text == WEIGHT);
        if weighted {
            header.remove(0);
        }
        let mut fields = Vec::with_capacity(header.len());
        for cell in &header {
            // A name with colons stands in quotes; types may hold them.
            let at = cell.quoted.or_else(|| cell.text.find(':')).filter(|at| cell.text[*at..].starts_with(':'));
            let at = at.ok_or_else(|| malformed(number, format!("`{}` is not name:type", cell.text)))?;
            let (name, type_name) = (&cell.text[..at], &cell.text[at + 1..]);
            let data_type = parse_name(type_name).ok_or_else(|| malformed(number, format!("there is no type `{type_name}`")))?;
            fields.push(Field::new(name, data_type, true));
        }
        let mut weights = Vec::new();
        let mut rows: Vec<Vec<Option<String>>> = vec![Vec::new(); fields.len()];
        for (number, line) in lines {
            let mut cells = split_line(number, line)?.into_iter();
            if weighted {
                let weight = cells.next().and_then(|c| c.text.parse::<i64>().ok()).filter(|w| *w != 0);
                weights.push(weight.ok_or_else(|| malformed(number, "a row starts with its weight, e.g. +1"))?);
            } else {
                weights.push(1);
            }
            if cells.len() != fields.len() {
                return Err(malformed(number, format!("{} values for {} columns", cells.len(), fields.len())));
            }
            for (column, cell) in rows.iter_mut().zip(cells) {
                column.push((cell.quoted.is_some() || cell.text != NULL).then_some(cell.text));
            }
        }
        let columns = fields.iter().zip(&rows).map(|(field, cells)| {
            parse_column(field.data_type(), &cells.iter().map(Option::as_deref).collect::<Vec<_>>())
                .map_err(|e| e.context(format!("column {}", field.name())))
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(weights.len()));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?;
        Chunk::new(batch, weights.into())
    }
}

impl Chunk {
    /// A chunk from its text form; for tests, which know that it is well formed.
    ///
    /// # Panics
    /// When the text is malformed.
    pub fn from_text(text: &str) -> Self {
        match text.parse() {
            Ok(chunk) => chunk,
            Err(error) => panic!("{error}\n{text}"),
        }
    }
}

/// Whether a chunk of such columns prints and parses back to the same Arrow types.
pub fn round_trips(data_type: &DataType) -> bool {
    parse_name(&short_name(data_type)).as_ref() == Some(data_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::*;
    use arrow::datatypes::IntervalMonthDayNano;
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn prints_a_table_that_reads_back() {
        let text = " w id:int8 name:text      price:numeric(10,2) ok:bool at:timestamp\n\
                    +1 1       alice          1.50                true    \"2013-01-31 12:00:00\"\n\
                    -2 NULL    \"b \\\"c\\\"\\n\"     NULL                NULL    NULL\n\
                    +1 3       \"NULL\"         -0.05               false   \"1969-12-31 23:59:59.5\"\n";
        let chunk: Chunk = text.parse().unwrap();
        assert_eq!((chunk.num_rows(), chunk.weight(1)), (3, -2));
        assert_eq!(chunk.column(1).as_string::<i32>().value(2), "NULL");
        assert!(chunk.column(1).is_valid(2) && chunk.column(0).is_null(1));
        let printed = chunk.to_string();
        assert_eq!(printed.parse::<Chunk>().unwrap(), chunk);
        assert_eq!(printed.split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn the_weight_column_may_be_left_out() {
        let chunk = Chunk::from_text("a:int4\n1\n2\n");
        assert_eq!((chunk.num_rows(), chunk.weights()), (2, None));
        assert_eq!(chunk.to_string(), " w a:int4\n+1 1\n+1 2\n");
        assert_eq!(Chunk::from_text("w\n+3\n").num_rows(), 1);
        assert_eq!(Chunk::from_text("w a:int4").num_rows(), 0);
    }

    #[test]
    fn malformed_tables_are_refused() {
        for (text, expected) in [
            ("", "line 1: there is no header"),
            ("w a", "line 1: `a` is not name:type"),
            ("a:int3\n", "line 1: there is no type `int3`"),
            ("w a:int4\n1 2 3", "line 2: 2 values for 1 columns"),
            ("w a:int4\n0 2", "line 2: a row starts with its weight"),
            ("a:text\n\"x", "line 2: a quote is not closed"),
            ("a:text\n\"\\q\"", "line 2: unknown escape"),
            ("a:int4\nx", "column a: invalid input syntax for type integer"),
        ] {
            let error = text.parse::<Chunk>().unwrap_err();
            assert!(error.message().contains(expected), "{text:?}: {error}");
        }
    }

    fn random_text(rng: &mut SmallRng) -> String {
        let letters = ['a', 'N', ' ', '"', '\\', '\n', '\t', ':', '{', ',', '\0', '\u{85}', 'é', '\u{2028}'];
        match rng.random_range(0..8) {
            0 => "NULL".into(),
            1 => String::new(),
            _ => (0..rng.random_range(1..6)).map(|_| letters[rng.random_range(0..letters.len())]).collect(),
        }
    }

    /// Random values of every type that has an SQL name of its own, with extremes and NULLs.
    fn random_chunk(rng: &mut SmallRng) -> Chunk {
        let rows = rng.random_range(0..8);
        macro_rules! column {
            ($array:ty, $value:expr) => {{
                let values: Vec<_> = (0..rows).map(|_| rng.random_bool(0.8).then(|| $value)).collect();
                Arc::new(values.into_iter().collect::<$array>()) as ArrayRef
            }};
        }
        let mut list = ListBuilder::new(StringBuilder::new());
        for _ in 0..rows {
            for _ in 0..rng.random_range(0..3) {
                let text = rng.random_bool(0.8).then(|| random_text(rng));
                list.values().append_option(text);
            }
            list.append(rng.random_bool(0.8));
        }
        let text = column!(StringArray, random_text(rng));
        let pair = StructArray::new(
            vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Utf8, true)].into(),
            vec![column!(Int32Array, rng.random::<i32>()), text.clone()],
            Some((0..rows).map(|_| rng.random_bool(0.8)).collect::<Vec<_>>().into()),
        );
        let decimals: Decimal128Array = (0..rows).map(|_| rng.random_bool(0.8).then(|| rng.random::<i128>() / 4)).collect();
        let columns: Vec<ArrayRef> = vec![
            column!(Int64Array, rng.random::<i64>()),
            column!(UInt64Array, rng.random::<u64>()),
            column!(Float64Array, Some(f64::from_bits(rng.random())).filter(|f| !f.is_nan()).unwrap_or(-0.0)),
            column!(Float32Array, Some(f32::from_bits(rng.random())).filter(|f| !f.is_nan()).unwrap_or(1e10)),
            column!(BooleanArray, rng.random::<bool>()),
            column!(Date32Array, rng.random_range(-1_000_000..100_000_000)),
            column!(Time64MicrosecondArray, rng.random_range(0..86_400_000_000)),
            column!(TimestampMicrosecondArray, rng.random::<i64>() / 64),
            column!(IntervalMonthDayNanoArray, IntervalMonthDayNano::new(rng.random(), rng.random(), rng.random())),
            Arc::new(decimals.with_precision_and_scale(38, 4).expect("the values fit")),
            Arc::new((0..rows).map(|_| rng.random_bool(0.8).then(|| random_text(rng).into_bytes())).collect::<BinaryArray>()),
            text,
            Arc::new(list.finish()),
            Arc::new(pair),
        ];
        let mut fields: Vec<Field> =
            columns.iter().enumerate().map(|(i, c)| Field::new(format!("c{i}"), c.data_type().clone(), true)).collect();
        fields[0] = fields[0].clone().with_name(random_text(rng));
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        let weights: Vec<i64> = (0..rows).map(|_| [1, -1, i64::MIN, i64::MAX, 7][rng.random_range(0..5)]).collect();
        Chunk::new(batch, weights.into()).unwrap()
    }

    #[test]
    fn any_chunk_reads_back() {
        for seed in 0..500 {
            let chunk = random_chunk(&mut SmallRng::seed_from_u64(seed));
            let text = chunk.to_string();
            let back: Chunk = text.parse().unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
            assert_eq!(back.schema(), chunk.schema(), "seed {seed}\n{text}");
            for (read, written) in back.batch().columns().iter().zip(chunk.batch().columns()) {
                assert_eq!(read, written, "seed {seed}\n{text}");
            }
            assert_eq!(back.weights(), chunk.weights(), "seed {seed}\n{text}");
        }
    }

    #[test]
    fn random_text_never_panics() {
        for seed in 0..3000 {
            let rng = &mut SmallRng::seed_from_u64(seed);
            let mut text = random_chunk(rng).to_string();
            for _ in 0..3 {
                let at = (0..=text.len()).filter(|i| text.is_char_boundary(*i)).nth(rng.random_range(0..text.chars().count())).unwrap_or(0);
                if rng.random() {
                    text.insert(at, ['"', '\\', '{', ')', '9', 'e', ' ', 'é'][rng.random_range(0..8)]);
                } else {
                    text.remove(at);
                }
            }
            let _ = text.parse::<Chunk>();
        }
    }
}
