//! Functions with Postgres' meaning that DataFusion lacks or has differently: `to_char` over timestamps, `mod`, `div`, and
//! rounding casts to integers.

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, StringBuilder};
use arrow::datatypes::{DataType, Float64Type, TimeUnit, TimestampMicrosecondType};
use chrono::{DateTime, Datelike, NaiveDateTime, Timelike};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility};
use datafusion::scalar::ScalarValue;
use std::fmt::Write;
use std::sync::Arc;

/// All functions of this module.
pub fn all() -> Vec<Arc<ScalarUDF>> {
    vec![Arc::new(ScalarUDF::from(ToChar::new())), rint()]
}

/// Rounds a double to the nearest integer, halves to even: what Postgres does before it casts a double to an integer type.
pub fn rint() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Rint { signature: Signature::exact(vec![DataType::Float64], Volatility::Immutable) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Rint {
    signature: Signature,
}

impl ScalarUDFImpl for Rint {
    fn name(&self) -> &str {
        "eddy_rint"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Scalar(ScalarValue::Float64(v))] => {
                Ok(ColumnarValue::Scalar(ScalarValue::Float64(v.map(f64::round_ties_even))))
            }
            [ColumnarValue::Array(a)] => {
                let rounded: Float64Array = a.as_primitive::<Float64Type>().unary(f64::round_ties_even);
                Ok(ColumnarValue::Array(Arc::new(rounded)))
            }
            _ => Err(DataFusionError::Internal("eddy_rint takes one double".into())),
        }
    }
}

/// `to_char(timestamp, pattern)` with Postgres' patterns.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ToChar {
    signature: Signature,
}

impl ToChar {
    fn new() -> Self {
        let time = |unit, zone: Option<&str>| DataType::Timestamp(unit, zone.map(Into::into));
        let forms = vec![
            TypeSignature::Exact(vec![time(TimeUnit::Microsecond, None), DataType::Utf8]),
            TypeSignature::Exact(vec![time(TimeUnit::Microsecond, Some("UTC")), DataType::Utf8]),
        ];
        ToChar { signature: Signature::one_of(forms, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for ToChar {
    fn name(&self) -> &str {
        "to_char"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [times, patterns] = args.args.as_slice() else {
            return Err(DataFusionError::Internal("to_char takes a timestamp and a pattern".into()));
        };
        let constant = matches!((times, patterns), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let times = times.to_array(rows)?;
        let times = times.as_primitive::<TimestampMicrosecondType>();
        let mut out = StringBuilder::with_capacity(rows, rows * 12);
        let mut text = String::new();
        let mut format_one = |row: usize, items: &[Item], out: &mut StringBuilder| -> Result<()> {
            match (times.is_valid(row)).then(|| DateTime::from_timestamp_micros(times.value(row))) {
                None => out.append_null(),
                Some(None) => return Err(DataFusionError::Execution("timestamp out of range".into())),
                Some(Some(time)) => {
                    text.clear();
                    format_items(&time.naive_utc(), items, &mut text);
                    out.append_value(&text);
                }
            }
            Ok(())
        };
        match patterns {
            ColumnarValue::Scalar(p) => match p.try_as_str().flatten() {
                None => (0..rows).for_each(|_| out.append_null()),
                Some(pattern) => {
                    let items = parse_pattern(pattern);
                    for row in 0..rows {
                        format_one(row, &items, &mut out)?;
                    }
                }
            },
            ColumnarValue::Array(p) => {
                let patterns = p.as_string::<i32>();
                for row in 0..rows {
                    if patterns.is_null(row) {
                        out.append_null();
                    } else {
                        format_one(row, &parse_pattern(patterns.value(row)), &mut out)?;
                    }
                }
            }
        }
        let array: ArrayRef = Arc::new(out.finish());
        if constant { Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)) } else { Ok(ColumnarValue::Array(array)) }
    }
}

/// A piece of a `to_char` pattern.
#[derive(Clone, Debug, PartialEq)]
enum Item {
    Text(String),
    Field { name: &'static str, fill: bool },
}

/// Longest first where one is a prefix of another.
const FIELDS: [&str; 30] = [
    "YYYY", "YYY", "YY", "Y", "Month", "MONTH", "month", "MON", "Mon", "mon", "MM", "MI", "DDD", "DD", "Day", "DAY", "day", "Dy", "DY",
    "D", "HH24", "HH12", "HH", "SSSS", "SS", "MS", "US", "AM", "PM", "Q",
];

fn parse_pattern(pattern: &str) -> Vec<Item> {
    let mut items = Vec::new();
    let mut text = String::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let quoted = &rest[1..];
            let end = quoted.find('"').unwrap_or(quoted.len());
            text.push_str(&quoted[..end]);
            rest = quoted.get(end + 1..).unwrap_or("");
            continue;
        }
        let (fill, after) = match rest.strip_prefix("FM") {
            Some(after) => (false, after),
            None => (true, rest),
        };
        let field = FIELDS.iter().find(|f| match f.chars().nth(1) {
            // Letter case chooses among the names of months and days only.
            Some(_) if f.to_uppercase().starts_with("MON") || f.to_uppercase().starts_with("DA") || f.to_uppercase() == "DY" => {
                after.starts_with(**f)
            }
            _ => after.get(..f.len()).is_some_and(|a| a.eq_ignore_ascii_case(f)),
        });
        match field {
            Some(name) => {
                if !text.is_empty() {
                    items.push(Item::Text(std::mem::take(&mut text)));
                }
                items.push(Item::Field { name, fill });
                rest = &after[name.len()..];
            }
            None => {
                text.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    if !text.is_empty() {
        items.push(Item::Text(text));
    }
    items
}

const MONTHS: [&str; 12] =
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

fn format_items(time: &NaiveDateTime, items: &[Item], out: &mut String) {
    let month = MONTHS[time.month0() as usize];
    let day = DAYS[time.weekday().num_days_from_sunday() as usize];
    let hour12 = if time.hour().is_multiple_of(12) { 12 } else { time.hour() % 12 };
    for item in items {
        let (name, fill) = match item {
            Item::Text(text) => {
                out.push_str(text);
                continue;
            }
            Item::Field { name, fill } => (*name, *fill),
        };
        let (value, width) = match name {
            "YYYY" => (time.year(), 4),
            "YYY" => (time.year().rem_euclid(1000), 3),
            "YY" => (time.year().rem_euclid(100), 2),
            "Y" => (time.year().rem_euclid(10), 1),
            "MM" => (time.month() as i32, 2),
            "DDD" => (time.ordinal() as i32, 3),
            "DD" => (time.day() as i32, 2),
            "D" => (time.weekday().num_days_from_sunday() as i32 + 1, 1),
            "HH24" => (time.hour() as i32, 2),
            "HH12" | "HH" => (hour12 as i32, 2),
            "MI" => (time.minute() as i32, 2),
            "SS" => (time.second() as i32, 2),
            "SSSS" => (time.num_seconds_from_midnight() as i32, 5),
            "MS" => (time.nanosecond() as i32 / 1_000_000, 3),
            "US" => (time.nanosecond() as i32 / 1_000, 6),
            "Q" => (time.month0() as i32 / 3 + 1, 1),
            word => {
                let (full, padded) = match word {
                    "Month" => (month.to_string(), 9),
                    "MONTH" => (month.to_uppercase(), 9),
                    "month" => (month.to_lowercase(), 9),
                    "Mon" => (month[..3].to_string(), 3),
                    "MON" => (month[..3].to_uppercase(), 3),
                    "mon" => (month[..3].to_lowercase(), 3),
                    "Day" => (day.to_string(), 9),
                    "DAY" => (day.to_uppercase(), 9),
                    "day" => (day.to_lowercase(), 9),
                    "Dy" => (day[..3].to_string(), 3),
                    "DY" => (day[..3].to_uppercase(), 3),
                    _ => (if time.hour() < 12 { "AM".to_string() } else { "PM".to_string() }, 2),
                };
                let width = if fill { padded } else { 0 };
                let _ = write!(out, "{full:<width$}");
                continue;
            }
        };
        let width = if fill || matches!(name, "SSSS" | "MS" | "US") { width } else { 0 };
        let _ = write!(out, "{value:0width$}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(time: &str, pattern: &str) -> String {
        let mut out = String::new();
        format_items(&NaiveDateTime::parse_from_str(time, "%Y-%m-%d %H:%M:%S%.f").unwrap(), &parse_pattern(pattern), &mut out);
        out
    }

    #[test]
    fn to_char_follows_postgres() {
        for (pattern, expected) in [
            ("YYYY-MM-DD", "2015-07-05"),
            ("HH24:MI:SS.MS", "14:03:09.250"),
            ("HH12:MI AM", "02:03 PM"),
            ("FMDD.FMMM.YY", "5.7.15"),
            ("Dy, DD Mon YYYY", "Sun, 05 Jul 2015"),
            ("Month|", "July     |"),
            ("FMMonth|", "July|"),
            ("\"year\" YYYY", "year 2015"),
            ("yyyy-mm-dd hh24", "2015-07-05 14"),
            ("DDD D Q SSSS US", "186 1 3 50589 250000"),
            ("ü", "ü"),
        ] {
            assert_eq!(text("2015-07-05 14:03:09.25", pattern), expected, "{pattern}");
        }
    }
}
