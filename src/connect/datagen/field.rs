//! One generated column: its options and its values.

use crate::columns::{of_micros, sql_name, timestamps};
use crate::datagen::Rows;
use crate::options::{Options, invalid};
use crate::parse;
use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array,
    IntervalMonthDayNanoArray, StringBuilder, Time64MicrosecondArray,
};
use arrow::datatypes::{DataType, IntervalMonthDayNano};
use eddyline_protocol::ColumnDef;
use eddyline_types::{Error, Result, SqlState};
use std::sync::Arc;
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// Default upper bound of random numbers, as RisingWave has it.
const DEFAULT_MAX: i64 = 32_767;
const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const MAX_LENGTH: u64 = 1 << 20;

/// A column to generate.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    data_type: DataType,
    seed: u64,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Boolean,
    /// Whole numbers of `min..=max`; numerics in units of their last decimal.
    Random {
        min: i128,
        max: i128,
    },
    RandomFloat {
        min: f64,
        max: f64,
    },
    /// `start`, `start + 1`, ... up to `end`.
    Sequence {
        start: i64,
        end: Option<i64>,
    },
    Text {
        length: usize,
    },
    /// Up to `max_past` before a base time.
    Past {
        max_past_us: i64,
        base: Base,
    },
}

#[derive(Clone, Copy, Debug)]
enum Base {
    /// When the source was created.
    Start,
    /// When the row is made.
    Row,
    /// Microseconds since the Unix epoch.
    Fixed(i64),
}

impl Field {
    /// Reads the options `fields.<name>.*` of a column.
    pub(crate) fn parse(column: &ColumnDef, options: &mut Options) -> Result<Self> {
        // Option names are folded to lower case.
        let folded = column.name.to_lowercase();
        let name = |part: &str| format!("fields.{folded}.{part}");
        let seed = options.parse::<u64>(&name("seed"), "a whole number")?.unwrap_or_else(|| xxh3_64(column.name.as_bytes()));
        let sequence = match options.text(&name("kind")).unwrap_or("random") {
            "random" => false,
            "sequence" => true,
            other => return Err(invalid(&name("kind"), other, "'random' or 'sequence'")),
        };
        let kind = if sequence { Self::sequence(column, options, &name)? } else { Self::random(column, options, &name)? };
        Ok(Field { data_type: column.data_type.clone(), seed, kind })
    }

    fn sequence(column: &ColumnDef, options: &mut Options, name: &dyn Fn(&str) -> String) -> Result<Kind> {
        let numeric = matches!(
            column.data_type,
            DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Float32 | DataType::Float64 | DataType::Decimal128(..)
        );
        if !numeric {
            let type_name = sql_name(&column.data_type).unwrap_or("its type");
            return Err(invalid(&name("kind"), "sequence", &format!("'random': a {type_name} has no sequence")));
        }
        let start = options.parse::<i64>(&name("start"), "a whole number")?.unwrap_or(0);
        let end = options.parse::<i64>(&name("end"), "a whole number")?;
        let most = integer_range(&column.data_type).map_or(i64::MAX, |(_, most)| most);
        let least = integer_range(&column.data_type).map_or(i64::MIN, |(least, _)| least);
        if let Some(outside) = [Some(start), end].into_iter().flatten().find(|v| *v < least || *v > most) {
            return Err(invalid(
                &name(if outside == start { "start" } else { "end" }),
                &outside.to_string(),
                "a value of the column's type",
            ));
        }
        if let Some(end) = end.filter(|end| *end < start) {
            return Err(invalid(&name("end"), &end.to_string(), "a value that is not below start"));
        }
        // Without an end the type's largest value is the last.
        Ok(Kind::Sequence { start, end: end.or(integer_range(&column.data_type).map(|_| most)) })
    }

    fn random(column: &ColumnDef, options: &mut Options, name: &dyn Fn(&str) -> String) -> Result<Kind> {
        Ok(match &column.data_type {
            DataType::Boolean => Kind::Boolean,
            DataType::Int16 | DataType::Int32 | DataType::Int64 => {
                let (least, most) = integer_range(&column.data_type).expect("an integer type has a range");
                let wanted = "a whole number of the column's type";
                let min = options.parse::<i64>(&name("min"), wanted)?.unwrap_or(0);
                let max = options.parse::<i64>(&name("max"), wanted)?.unwrap_or(DEFAULT_MAX);
                for (part, value) in [("min", min), ("max", max)] {
                    if value < least || value > most {
                        return Err(invalid(&name(part), &value.to_string(), wanted));
                    }
                }
                ordered(name, min <= max)?;
                Kind::Random { min: i128::from(min), max: i128::from(max) }
            }
            DataType::Decimal128(precision, scale) => {
                let mut bound = |part: &str, default: &str| {
                    let text = options.text(&name(part)).unwrap_or(default);
                    parse::decimal(text.as_bytes(), *precision, *scale)
                        .map_err(|_| invalid(&name(part), text, "a number that fits the column"))
                };
                let highest = "9".repeat(usize::from((i32::from(*precision) - i32::from(*scale)).clamp(1, 38) as u8));
                let default = if highest.len() < 5 { highest.as_str() } else { "32767" };
                let (min, max) = (bound("min", "0")?, bound("max", default)?);
                ordered(name, min <= max)?;
                Kind::Random { min, max }
            }
            DataType::Float32 | DataType::Float64 => {
                let min = options.parse::<f64>(&name("min"), "a number")?.unwrap_or(0.0);
                let max = options.parse::<f64>(&name("max"), "a number")?.unwrap_or(DEFAULT_MAX as f64);
                ordered(name, min <= max && min.is_finite() && max.is_finite() && (max - min).is_finite())?;
                Kind::RandomFloat { min, max }
            }
            DataType::Utf8 | DataType::Binary => {
                let length = options.number(&name("length"), 0, 10)?;
                if length > MAX_LENGTH {
                    return Err(invalid(&name("length"), &length.to_string(), &format!("at most {MAX_LENGTH}")));
                }
                Kind::Text { length: length as usize }
            }
            DataType::Time64(_) => Kind::Random { min: 0, max: i128::from(parse::MICROS_PER_DAY - 1) },
            DataType::Interval(_) => Kind::Random { min: 0, max: i128::from(parse::MICROS_PER_DAY - 1) },
            // Dates and timestamps; other types were refused before.
            _ => Self::past(options, name)?,
        })
    }

    fn past(options: &mut Options, name: &dyn Fn(&str) -> String) -> Result<Kind> {
        let max_past = options.duration(&name("max_past"), Duration::from_secs(86_400))?;
        let max_past_us = i64::try_from(max_past.as_micros()).map_err(|_| invalid(&name("max_past"), "", "a shorter duration"))?;
        let mut base = match options.text(&name("max_past_mode")).unwrap_or("absolute") {
            "absolute" => Base::Start,
            "relative" => Base::Row,
            other => return Err(invalid(&name("max_past_mode"), other, "'absolute' or 'relative'")),
        };
        if let Some(text) = options.text(&name("basetime")) {
            let at = parse::timestamp(text.as_bytes(), true).map_err(|_| invalid(&name("basetime"), text, "an ISO 8601 timestamp"))?;
            base = Base::Fixed(at);
        }
        Ok(Kind::Past { max_past_us, base })
    }

    /// How many rows there are, if the sequence has an end.
    pub(crate) fn rows(&self) -> Option<u64> {
        match self.kind {
            Kind::Sequence { start, end: Some(end) } => Some(end.abs_diff(start).saturating_add(1)),
            _ => None,
        }
    }

    /// The values of some rows.
    pub(crate) fn array(&self, rows: Rows) -> Result<ArrayRef> {
        match &self.kind {
            Kind::Boolean => Ok(Arc::new(BooleanArray::from(rows.numbers().map(|n| self.hash(n) & 1 == 1).collect::<Vec<_>>()))),
            Kind::Random { min, max } => self.numbers(rows, |n| min + self.below(n, (max - min) as u128) as i128),
            Kind::Sequence { start, .. } => {
                let scale = match self.data_type {
                    DataType::Decimal128(_, scale) => 10i128.checked_pow(scale.max(0) as u32).unwrap_or(1),
                    _ => 1,
                };
                self.numbers(rows, |n| (i128::from(*start) + i128::from(n)).saturating_mul(scale))
            }
            Kind::RandomFloat { min, max } => {
                let value = |n: u64| min + (max - min) * ((self.hash(n) >> 11) as f64 / (1u64 << 53) as f64);
                Ok(match self.data_type {
                    DataType::Float32 => Arc::new(Float32Array::from_iter_values(rows.numbers().map(|n| value(n) as f32))),
                    _ => Arc::new(Float64Array::from_iter_values(rows.numbers().map(value))),
                })
            }
            Kind::Text { length } => Ok(self.texts(rows, *length)),
            Kind::Past { max_past_us, base } => {
                let micros = |n: u64| {
                    let base_us = match base {
                        Base::Start => rows.base_us,
                        Base::Row => rows.base_us.saturating_add((n as f64 / rows.per_second * 1e6) as i64),
                        Base::Fixed(at) => *at,
                    };
                    base_us.saturating_sub(self.below(n, *max_past_us as u128) as i64)
                };
                self.times(rows, micros)
            }
        }
    }

    fn numbers(&self, rows: Rows, value: impl Fn(u64) -> i128) -> Result<ArrayRef> {
        // Bounds were checked against the type when the options were read.
        let values = rows.numbers().map(value);
        Ok(match &self.data_type {
            DataType::Int16 => Arc::new(Int16Array::from_iter_values(values.map(|v| v as i16))),
            DataType::Int32 => Arc::new(Int32Array::from_iter_values(values.map(|v| v as i32))),
            DataType::Float32 => Arc::new(Float32Array::from_iter_values(values.map(|v| v as f32))),
            DataType::Float64 => Arc::new(Float64Array::from_iter_values(values.map(|v| v as f64))),
            DataType::Decimal128(p, s) => Arc::new(Decimal128Array::from_iter_values(values).with_precision_and_scale(*p, *s)?),
            DataType::Time64(_) => Arc::new(Time64MicrosecondArray::from_iter_values(values.map(|v| v as i64))),
            DataType::Interval(_) => {
                let values = values.map(|v| IntervalMonthDayNano::new(0, 0, v as i64 * 1000));
                Arc::new(IntervalMonthDayNanoArray::from_iter_values(values))
            }
            _ => Arc::new(Int64Array::from_iter_values(values.map(|v| v as i64))),
        })
    }

    fn texts(&self, rows: Rows, length: usize) -> ArrayRef {
        let mut one = Vec::with_capacity(length + 8);
        if self.data_type == DataType::Binary {
            let mut out = BinaryBuilder::with_capacity(rows.count, rows.count * length);
            rows.numbers().for_each(|n| {
                self.bytes(n, length, &mut one);
                out.append_value(&one);
            });
            return Arc::new(out.finish());
        }
        let mut out = StringBuilder::with_capacity(rows.count, rows.count * length);
        rows.numbers().for_each(|n| {
            self.bytes(n, length, &mut one);
            one.iter_mut().for_each(|b| *b = LETTERS[usize::from(*b) * LETTERS.len() / 256]);
            out.append_value(std::str::from_utf8(&one).expect("letters are ASCII"));
        });
        Arc::new(out.finish())
    }

    /// So many random bytes for a row.
    fn bytes(&self, row: u64, length: usize, out: &mut Vec<u8>) {
        out.clear();
        let mut state = self.hash(row);
        while out.len() < length {
            state = mix(state);
            out.extend_from_slice(&state.to_le_bytes());
        }
        out.truncate(length);
    }

    fn times(&self, rows: Rows, micros: impl Fn(u64) -> i64) -> Result<ArrayRef> {
        match &self.data_type {
            DataType::Date32 => {
                let days = rows.numbers().map(|n| micros(n).div_euclid(parse::MICROS_PER_DAY) as i32);
                Ok(Arc::new(Date32Array::from_iter_values(days)))
            }
            DataType::Timestamp(unit, zone) => {
                let values = rows.numbers().map(|n| of_micros(micros(n), *unit)).collect::<Result<Vec<i64>, _>>();
                let values = values.map_err(|_| Error::user(SqlState::DATETIME_OVERFLOW, "a generated timestamp is out of range"))?;
                Ok(timestamps(values.into(), None, *unit, zone.clone()))
            }
            other => Err(Error::internal(format!("datagen makes no times of type {other}"))),
        }
    }

    fn hash(&self, row: u64) -> u64 {
        mix(mix(self.seed).wrapping_add(row))
    }

    /// A number of `0..=span` for a row.
    fn below(&self, row: u64, span: u128) -> u128 {
        let hash = self.hash(row);
        match u64::try_from(span) {
            // The high half of hash * (span + 1): no bias that matters, no division.
            Ok(span) => (u128::from(hash) * (u128::from(span) + 1)) >> 64,
            Err(_) => ((u128::from(hash) << 64) | u128::from(mix(hash))) % span.saturating_add(1),
        }
    }
}

fn ordered(name: &dyn Fn(&str) -> String, good: bool) -> Result<()> {
    if good {
        return Ok(());
    }
    let message = format!("option \"{}\" is larger than \"{}\"", name("min"), name("max"));
    Err(Error::user(SqlState::INVALID_PARAMETER_VALUE, message).with_hint("Without \"max\" the largest value is 32767."))
}

fn integer_range(data_type: &DataType) -> Option<(i64, i64)> {
    match data_type {
        DataType::Int16 => Some((i64::from(i16::MIN), i64::from(i16::MAX))),
        DataType::Int32 => Some((i64::from(i32::MIN), i64::from(i32::MAX))),
        DataType::Int64 => Some((i64::MIN, i64::MAX)),
        _ => None,
    }
}

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014): every input bit changes every output bit.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use std::collections::BTreeMap;

    fn rows(count: usize) -> Rows {
        Rows { first: 0, step: 1, count, base_us: 0, per_second: 10.0 }
    }

    #[test]
    fn random_numbers_cover_their_range_evenly() {
        let options = BTreeMap::from([("fields.a.min".to_owned(), "-3".to_owned()), ("fields.a.max".to_owned(), "6".to_owned())]);
        let field = Field::parse(&ColumnDef::new("a", DataType::Int64), &mut Options::new(&options)).unwrap();
        let array = field.array(rows(100_000)).unwrap();
        let mut counts = [0u32; 10];
        array.as_primitive::<Int64Type>().values().iter().for_each(|v| counts[(v + 3) as usize] += 1);
        assert!(counts.iter().all(|c| (9_500..10_500).contains(c)), "{counts:?}");
    }

    #[test]
    fn the_whole_range_of_bigint_is_allowed() {
        let options =
            BTreeMap::from([("fields.a.min".to_owned(), i64::MIN.to_string()), ("fields.a.max".to_owned(), i64::MAX.to_string())]);
        let field = Field::parse(&ColumnDef::new("a", DataType::Int64), &mut Options::new(&options)).unwrap();
        let array = field.array(rows(1000)).unwrap();
        let values = array.as_primitive::<Int64Type>().values();
        assert!(values.iter().any(|v| *v < i64::MIN / 2) && values.iter().any(|v| *v > i64::MAX / 2));
    }
}
