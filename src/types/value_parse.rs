//! Text to values, with Postgres' syntax and errors: parameters in text format, chunk tables, casts.
//!
//! The inverse of [`crate::value_text`], and wider: what Postgres reads and people write is read too (`yes`, `1e3`, `2013-1-31 5pm` is not).

use crate::value_text::civil_from_days;
use crate::{Error, Result, SqlState, sql_types};
use arrow::array::*;
use arrow::compute::{CastOptions, cast, cast_with_options, concat};
use arrow::datatypes::*;
use std::sync::Arc;

/// A column of the type from one text per row (`None`: NULL).
pub fn parse_column(data_type: &DataType, texts: &[Option<&str>]) -> Result<ArrayRef> {
    use DataType as T;
    macro_rules! primitive {
        ($t:ty, $parse:expr) => {{
            let values = texts.iter().map(|t| t.map($parse).transpose()).collect::<Result<Vec<_>>>()?;
            Arc::new(PrimitiveArray::<$t>::from_iter(values).with_data_type(data_type.clone())) as ArrayRef
        }};
    }
    Ok(match data_type {
        T::Null => Arc::new(NullArray::new(texts.len())),
        T::Utf8 => Arc::new(StringArray::from_iter(texts.iter().copied())),
        T::LargeUtf8 => Arc::new(LargeStringArray::from_iter(texts.iter().copied())),
        T::Utf8View => Arc::new(StringViewArray::from_iter(texts.iter().copied())),
        T::Boolean => {
            let values = texts.iter().map(|t| t.map(parse_bool).transpose()).collect::<Result<Vec<_>>>()?;
            Arc::new(BooleanArray::from(values))
        }
        T::Int8 => primitive!(Int8Type, |t| parse_int(data_type, t)),
        T::Int16 => primitive!(Int16Type, |t| parse_int(data_type, t)),
        T::Int32 => primitive!(Int32Type, |t| parse_int(data_type, t)),
        T::Int64 => primitive!(Int64Type, |t| parse_int(data_type, t)),
        T::UInt8 => primitive!(UInt8Type, |t| parse_int(data_type, t)),
        T::UInt16 => primitive!(UInt16Type, |t| parse_int(data_type, t)),
        T::UInt32 => primitive!(UInt32Type, |t| parse_int(data_type, t)),
        T::UInt64 => primitive!(UInt64Type, |t| parse_int(data_type, t)),
        T::Float32 => primitive!(Float32Type, |t| parse_float(data_type, t).and_then(|v| {
            let narrow = v as f32;
            if narrow.is_infinite() && v.is_finite() { Err(out_of_range(data_type, t)) } else { Ok(narrow) }
        })),
        T::Float64 => primitive!(Float64Type, |t| parse_float(data_type, t)),
        T::Date32 => primitive!(Date32Type, |t| parse_date(data_type, t)),
        T::Time64(TimeUnit::Microsecond) => primitive!(Time64MicrosecondType, |t| parse_time(data_type, t)),
        T::Timestamp(TimeUnit::Microsecond, zone) => {
            primitive!(TimestampMicrosecondType, |t| parse_timestamp(data_type, t, zone.is_some()))
        }
        T::Interval(IntervalUnit::MonthDayNano) => primitive!(IntervalMonthDayNanoType, |t| parse_interval(data_type, t)),
        T::Decimal128(p, s) => primitive!(Decimal128Type, |t| parse_decimal(data_type, t, *p, *s)),
        T::Binary | T::LargeBinary | T::BinaryView => {
            let values = texts.iter().map(|t| t.map(parse_bytes).transpose()).collect::<Result<Vec<_>>>()?;
            cast(&BinaryArray::from_iter(values), data_type)?
        }
        T::Time32(_) | T::Time64(_) => cast(&parse_column(&T::Time64(TimeUnit::Microsecond), texts)?, data_type)?,
        T::Timestamp(_, zone) => cast(&parse_column(&T::Timestamp(TimeUnit::Microsecond, zone.clone()), texts)?, data_type)?,
        T::List(field) => {
            let lists = texts.iter().map(|t| t.map(|t| parse_list(field, t)).transpose()).collect::<Result<Vec<_>>>()?;
            gather_lists(field, lists)?
        }
        T::Struct(fields) => parse_structs(fields, texts)?,
        _ => {
            let options = CastOptions { safe: false, ..CastOptions::default() };
            cast_with_options(&StringArray::from_iter(texts.iter().copied()), data_type, &options)?
        }
    })
}

fn invalid(data_type: &DataType, text: &str) -> Error {
    let name = name_for_errors(data_type);
    let state = match data_type {
        DataType::Date32 | DataType::Date64 | DataType::Time32(_) | DataType::Time64(_) | DataType::Timestamp(..) => {
            SqlState::INVALID_DATETIME
        }
        DataType::Interval(_) => SqlState::INVALID_DATETIME,
        _ => SqlState::INVALID_TEXT,
    };
    Error::user(state, format!("invalid input syntax for type {name}: \"{text}\""))
}

fn out_of_range(data_type: &DataType, text: &str) -> Error {
    let name = name_for_errors(data_type);
    Error::user(SqlState::NUMERIC_OUT_OF_RANGE, format!("value \"{text}\" is out of range for type {name}"))
}

fn field_out_of_range(text: &str) -> Error {
    Error::user(SqlState::DATETIME_OVERFLOW, format!("date/time field value out of range: \"{text}\""))
}

/// Postgres leaves out the precision, and `without time zone`.
fn name_for_errors(data_type: &DataType) -> String {
    let name = sql_types::sql_name(data_type);
    let name = name.split('(').next().unwrap_or(&name);
    name.trim_end_matches(" without time zone").to_owned()
}

fn parse_bool(text: &str) -> Result<bool> {
    let word = text.trim().to_ascii_lowercase();
    match word.as_str() {
        "1" | "on" => return Ok(true),
        "0" | "of" | "off" => return Ok(false),
        _ => {}
    }
    for (whole, value) in [("true", true), ("yes", true), ("false", false), ("no", false)] {
        if !word.is_empty() && whole.starts_with(&word) {
            return Ok(value);
        }
    }
    Err(invalid(&DataType::Boolean, text))
}

fn parse_int<T: TryFrom<i128>>(data_type: &DataType, text: &str) -> Result<T> {
    let digits = text.trim();
    match digits.parse::<i128>() {
        Ok(value) => T::try_from(value).map_err(|_| out_of_range(data_type, text)),
        Err(e) => match e.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => Err(out_of_range(data_type, text)),
            _ => Err(invalid(data_type, text)),
        },
    }
}

fn parse_float(data_type: &DataType, text: &str) -> Result<f64> {
    let digits = text.trim();
    let value: f64 = digits.parse().map_err(|_| invalid(data_type, text))?;
    if value.is_infinite() && digits.bytes().any(|b| b.is_ascii_digit()) {
        return Err(out_of_range(data_type, text));
    }
    Ok(value)
}

/// Rounds half away from zero to the scale, as Postgres does.
fn parse_decimal(data_type: &DataType, text: &str, precision: u8, scale: i8) -> Result<i128> {
    let wrong = || invalid(&DataType::Decimal128(38, 10), text);
    let overflow = || {
        Error::user(SqlState::NUMERIC_OUT_OF_RANGE, "numeric field overflow").with_detail(format!(
            "A field with precision {precision}, scale {scale} must round to an absolute value less than 10^{}.",
            i16::from(precision) - i16::from(scale)
        ))
    };
    let _ = data_type;
    let trimmed = text.trim();
    let (negative, unsigned) = match trimmed.as_bytes().first() {
        Some(b'-') => (true, &trimmed[1..]),
        Some(b'+') => (false, &trimmed[1..]),
        _ => (false, trimmed),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((m, e)) => (m, e.parse::<i32>().map_err(|_| wrong())?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.len() + fraction.len() == 0 || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    // The value is `digits * 10^-(fraction - exponent)`; it is wanted times 10^scale.
    let shift = i64::from(exponent) - fraction.len() as i64 + i64::from(scale);
    let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|b| b - b'0').skip_while(|d| *d == 0).collect();
    let keep = digits.len() as i64 + shift.min(0);
    let mut value: i128 = 0;
    for digit in &digits[..keep.clamp(0, digits.len() as i64) as usize] {
        value = value.checked_mul(10).and_then(|v| v.checked_add(i128::from(*digit))).ok_or_else(overflow)?;
    }
    if value != 0 {
        for _ in 0..shift.max(0) {
            value = value.checked_mul(10).ok_or_else(overflow)?;
        }
    }
    if shift < 0 && keep >= 0 && digits.get(keep as usize).is_some_and(|d| *d >= 5) {
        value += 1;
    }
    if value >= 10i128.checked_pow(precision.into()).unwrap_or(i128::MAX) {
        return Err(overflow());
    }
    Ok(if negative { -value } else { value })
}

fn parse_bytes(text: &str) -> Result<Vec<u8>> {
    let wrong = || invalid(&DataType::Binary, text);
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits: Vec<u8> = digits.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        if digits.len() % 2 == 1 {
            return Err(Error::user(SqlState::INVALID_PARAMETER_VALUE, "invalid hexadecimal data: odd number of digits"));
        }
        let digit = |b: u8| (b as char).to_digit(16).map(|d| d as u8);
        return digits.chunks(2).map(|pair| Some((digit(pair[0])? << 4) | digit(pair[1])?)).collect::<Option<_>>().ok_or_else(wrong);
    }
    // The older escape format: `\\` and three octal digits.
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'\\') => out.push(b'\\'),
            Some(a @ b'0'..=b'3') => match (bytes.next(), bytes.next()) {
                (Some(b @ b'0'..=b'7'), Some(c @ b'0'..=b'7')) => out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0')),
                _ => return Err(wrong()),
            },
            _ => return Err(wrong()),
        }
    }
    Ok(out)
}

/// Days of a date of the proleptic calendar since the Unix epoch (Hinnant's `days_from_civil`); `None`: no such day.
pub(crate) fn days_from_civil(year: i64, month: u32, day: u32) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || !(-5_000_000..=5_900_000).contains(&year) {
        return None;
    }
    let shifted = year - i64::from(month <= 2);
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let of_year = (153 * (i64::from(month) + if month > 2 { -3 } else { 9 }) + 2) / 5 + i64::from(day) - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    let days = era * 146_097 + of_era - 719_468;
    // Days that a month does not have come out in the next one.
    (civil_from_days(days) == (year, month, day)).then_some(days)
}

/// Splits off a trailing ` BC` or ` AD`.
fn split_era(text: &str) -> (&str, bool) {
    let trimmed = text.trim();
    let ends_with = |suffix: &str| trimmed.get(trimmed.len().wrapping_sub(3)..).is_some_and(|end| end.eq_ignore_ascii_case(suffix));
    if ends_with(" BC") {
        (trimmed[..trimmed.len() - 3].trim_end(), true)
    } else if ends_with(" AD") {
        (trimmed[..trimmed.len() - 3].trim_end(), false)
    } else {
        (trimmed, false)
    }
}

/// `2013-1-31`, `2013/01/31` or `20130131`.
fn civil(data_type: &DataType, whole: &str, date: &str, before_christ: bool) -> Result<i64> {
    let wrong = || invalid(data_type, whole);
    let number =
        |part: &str| if part.bytes().all(|b| b.is_ascii_digit()) { part.parse::<i64>().map_err(|_| wrong()) } else { Err(wrong()) };
    let parts: Vec<&str> = date.split(['-', '/', '.']).collect();
    let (year, month, day) = match parts[..] {
        [year, month, day] if year.len() >= 3 => (number(year)?, number(month)?, number(day)?),
        [compact] if compact.len() == 8 && compact.is_ascii() => (number(&compact[..4])?, number(&compact[4..6])?, number(&compact[6..])?),
        _ => return Err(wrong()),
    };
    let year = if before_christ { 1 - year } else { year };
    let small = |n: i64| u32::try_from(n).ok();
    small(month).zip(small(day)).and_then(|(m, d)| days_from_civil(year, m, d)).ok_or_else(|| field_out_of_range(whole))
}

fn parse_date(data_type: &DataType, text: &str) -> Result<i32> {
    let (body, before_christ) = split_era(text);
    if body.eq_ignore_ascii_case("epoch") {
        return Ok(0);
    }
    // A time after the date is allowed and ignored.
    let date = body.split(['T', ' ']).next().unwrap_or(body);
    if date.len() < body.len() {
        clock(data_type, text, split_zone(&body[date.len() + 1..]).0)?;
    }
    i32::try_from(civil(data_type, text, date, before_christ)?).map_err(|_| field_out_of_range(text))
}

/// Splits a time into clock and zone: `12:00:00+02:30`, `12:00 UTC`, `12:00Z`.
fn split_zone(text: &str) -> (&str, &str) {
    let at = text.find(|c: char| c == '+' || c == '-' || c.is_ascii_alphabetic()).unwrap_or(text.len());
    (text[..at].trim_end(), text[at..].trim())
}

/// Microseconds of `HH:MM[:SS[.fraction]]`, rounded.
fn clock(data_type: &DataType, whole: &str, text: &str) -> Result<i64> {
    let wrong = || invalid(data_type, whole);
    let number = |part: &str| {
        if !part.is_empty() && part.len() <= 2 && part.bytes().all(|b| b.is_ascii_digit()) {
            part.parse::<i64>().map_err(|_| wrong())
        } else {
            Err(wrong())
        }
    };
    let mut parts = text.split(':');
    let (hour, minute) = (number(parts.next().ok_or_else(wrong)?)?, number(parts.next().ok_or_else(wrong)?)?);
    let (second, micros) = match parts.next() {
        None => (0, 0),
        Some(second) => {
            let (second, fraction) = second.split_once('.').unwrap_or((second, ""));
            if !fraction.bytes().all(|b| b.is_ascii_digit()) {
                return Err(wrong());
            }
            let padded: String = fraction.chars().chain("0000000".chars()).take(7).collect();
            (number(second)?, (padded.parse::<i64>().map_err(|_| wrong())? + 5) / 10)
        }
    };
    if parts.next().is_some() {
        return Err(wrong());
    }
    let micros = ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros;
    if minute > 59 || second > 60 || micros > 86_400_000_000 {
        return Err(field_out_of_range(whole));
    }
    Ok(micros)
}

fn parse_time(data_type: &DataType, text: &str) -> Result<i64> {
    clock(data_type, text, split_zone(text.trim()).0)
}

/// Seconds east of Greenwich of `Z`, `UTC`, `+02`, `-0330`, `+05:30`, `+05:30:10`.
fn zone_offset(text: &str) -> Option<i64> {
    if text.is_empty() || ["z", "utc", "gmt", "zulu"].iter().any(|name| text.eq_ignore_ascii_case(name)) {
        return Some(0);
    }
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let parts: Vec<&str> = match digits.split(':').collect::<Vec<_>>()[..] {
        [compact] if compact.len() == 4 && compact.is_ascii() => vec![&compact[..2], &compact[2..]],
        _ => digits.split(':').collect(),
    };
    if parts.len() > 3 || parts.iter().any(|p| p.is_empty() || p.len() > 2 || !p.bytes().all(|b| b.is_ascii_digit())) {
        return None;
    }
    let part = |i: usize| parts.get(i).map_or(Some(0), |p| p.parse::<i64>().ok());
    let seconds = part(0)? * 3600 + part(1)? * 60 + part(2)?;
    (seconds < 16 * 3600).then_some(sign * seconds)
}

fn parse_timestamp(data_type: &DataType, text: &str, zoned: bool) -> Result<i64> {
    let (body, before_christ) = split_era(text);
    if body.eq_ignore_ascii_case("epoch") {
        return Ok(0);
    }
    let date = body.split(['T', 't', ' ']).next().unwrap_or(body);
    let days = civil(data_type, text, date, before_christ)?;
    let mut micros = 0;
    if date.len() < body.len() {
        let (time, zone) = split_zone(body[date.len() + 1..].trim());
        micros = clock(data_type, text, time)?;
        let offset = zone_offset(zone).ok_or_else(|| invalid(data_type, text))?;
        if zoned {
            micros -= offset * 1_000_000;
        }
    }
    days.checked_mul(86_400_000_000).and_then(|d| d.checked_add(micros)).ok_or_else(|| field_out_of_range(text))
}

/// Postgres' own style (`1 year -2 mons +3 days -04:05:06.5`), verbose (`@ 1 day ago`), and ISO 8601 with designators (`P1Y2M3DT4H5M6S`).
fn parse_interval(data_type: &DataType, text: &str) -> Result<IntervalMonthDayNano> {
    let wrong = || invalid(data_type, text);
    let mut sum = IntervalSum::default();
    let body = text.trim().trim_start_matches('@').trim_start();
    if body.is_empty() {
        return Err(wrong());
    }
    if let Some(iso) = body.strip_prefix('P') {
        iso_interval(iso, &mut sum).ok_or_else(wrong)?;
    } else {
        let mut tokens = tokens(body).into_iter().peekable();
        while let Some(token) = tokens.next() {
            if token.contains(':') {
                sum.clock(token).ok_or_else(wrong)?;
            } else if token.eq_ignore_ascii_case("ago") && tokens.peek().is_none() {
                sum.negate();
            } else {
                let amount: f64 = token.parse().ok().filter(|a: &f64| a.is_finite()).ok_or_else(wrong)?;
                let unit = tokens.next().unwrap_or("seconds");
                sum.add(amount, unit).ok_or_else(wrong)?;
            }
        }
    }
    sum.finish().ok_or_else(|| Error::user(SqlState::DATETIME_OVERFLOW, format!("interval field value out of range: \"{text}\"")))
}

/// Words, numbers and clocks; `3days` is two tokens.
fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for word in text.split_whitespace() {
        match word.find(|c: char| c.is_ascii_alphabetic()) {
            Some(at) if at > 0 && !word.contains(':') => found.extend([&word[..at], &word[at..]]),
            _ => found.push(word),
        }
    }
    found
}

fn iso_interval(text: &str, sum: &mut IntervalSum) -> Option<()> {
    let (date, time) = text.split_once('T').unwrap_or((text, ""));
    if date.is_empty() && time.is_empty() {
        return None;
    }
    for (part, units) in [
        (date, [('Y', "year"), ('M', "mon"), ('W', "week"), ('D', "day")]),
        (time, [('H', "hour"), ('M', "minute"), ('S', "second"), ('?', "")]),
    ] {
        let mut rest = part;
        while !rest.is_empty() {
            let at = rest.find(|c: char| c.is_ascii_alphabetic())?;
            let unit = units.iter().find(|(letter, _)| rest[at..].starts_with(*letter))?.1;
            sum.add(rest[..at].parse().ok()?, unit)?;
            rest = &rest[at + 1..];
        }
    }
    Some(())
}

/// The parts of an interval, wider than the result.
#[derive(Default)]
struct IntervalSum {
    months: i128,
    days: i128,
    nanos: i128,
}

impl IntervalSum {
    /// Fractions go down into the next smaller part, with months of 30 days, as in Postgres.
    fn add(&mut self, amount: f64, unit: &str) -> Option<()> {
        if amount.abs() > 1e18 {
            return None;
        }
        let unit = unit.to_ascii_lowercase();
        let months = match unit.trim_end_matches('s') {
            "year" | "yr" | "y" => 12.0,
            "decade" => 120.0,
            "century" | "centurie" => 1200.0,
            "millennium" | "millennia" => 12_000.0,
            "month" | "mon" => 1.0,
            _ => 0.0,
        };
        if months > 0.0 {
            let total = amount * months;
            self.months += total.trunc() as i128;
            return self.add(total.fract() * 30.0, "day");
        }
        let days = match unit.trim_end_matches('s') {
            "day" | "d" => 1.0,
            "week" | "w" => 7.0,
            _ => 0.0,
        };
        if days > 0.0 {
            let total = amount * days;
            self.days += total.trunc() as i128;
            self.nanos += (total.fract() * 86_400e6).round() as i128 * 1000;
            return Some(());
        }
        let micros = match unit.as_str() {
            "hour" | "hours" | "hr" | "hrs" | "h" => 3_600e6,
            "minute" | "minutes" | "min" | "mins" | "m" => 60e6,
            "second" | "seconds" | "sec" | "secs" | "s" => 1e6,
            "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => 1e3,
            "microsecond" | "microseconds" | "usec" | "usecs" | "us" => 1.0,
            _ => return None,
        };
        self.nanos += (amount * micros).round() as i128 * 1000;
        Some(())
    }

    /// `[+-]H+:MM[:SS[.fraction]]`, nanoseconds kept.
    fn clock(&mut self, text: &str) -> Option<()> {
        let (negative, digits) = match text.split_at_checked(1)? {
            ("-", rest) => (true, rest),
            ("+", rest) => (false, rest),
            _ => (false, text),
        };
        let mut parts = digits.split(':');
        let number = |part: &str| if part.bytes().all(|b| b.is_ascii_digit()) { part.parse::<u32>().ok().map(i128::from) } else { None };
        let (hours, minutes) = (number(parts.next()?)?, number(parts.next()?).filter(|m| *m < 60)?);
        let (seconds, fraction) = match parts.next() {
            None => (0, 0),
            Some(part) => {
                let (second, fraction) = part.split_once('.').unwrap_or((part, ""));
                let padded: String = fraction.chars().chain("000000000".chars()).take(9).collect();
                (number(second).filter(|s| *s < 60)?, number(&padded)?)
            }
        };
        if parts.next().is_some() {
            return None;
        }
        let nanos = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + fraction;
        self.nanos += if negative { -nanos } else { nanos };
        Some(())
    }

    fn negate(&mut self) {
        *self = IntervalSum { months: -self.months, days: -self.days, nanos: -self.nanos };
    }

    fn finish(self) -> Option<IntervalMonthDayNano> {
        Some(IntervalMonthDayNano::new(self.months.try_into().ok()?, self.days.try_into().ok()?, self.nanos.try_into().ok()?))
    }
}

fn gather_lists(field: &FieldRef, lists: Vec<Option<ArrayRef>>) -> Result<ArrayRef> {
    let lengths = lists.iter().map(|l| l.as_ref().map_or(0, |l| l.len()));
    let offsets = arrow::buffer::OffsetBuffer::from_lengths(lengths);
    let valid: Vec<bool> = lists.iter().map(Option::is_some).collect();
    let parts: Vec<&dyn Array> = lists.iter().flatten().map(|l| l.as_ref()).collect();
    let values = if parts.is_empty() { new_empty_array(field.data_type()) } else { concat(&parts)? };
    Ok(Arc::new(ListArray::try_new(field.clone(), offsets, values, Some(valid.into()))?))
}

/// `{1,NULL,"a b",{2}}`: the elements as an array.
fn parse_list(field: &FieldRef, text: &str) -> Result<ArrayRef> {
    let wrong = || Error::user(SqlState::INVALID_TEXT, format!("malformed array literal: \"{text}\""));
    let inner = text.trim().strip_prefix('{').and_then(|t| t.strip_suffix('}')).ok_or_else(wrong)?;
    let elements = split_elements(inner, '{', '}', true).ok_or_else(wrong)?;
    let texts: Vec<Option<&str>> = elements.iter().map(|e| e.as_deref()).collect();
    parse_column(field.data_type(), &texts)
}

fn parse_structs(fields: &Fields, texts: &[Option<&str>]) -> Result<ArrayRef> {
    let mut rows: Vec<Vec<Option<String>>> = Vec::with_capacity(texts.len());
    for text in texts {
        let Some(text) = text else {
            rows.push(vec![None; fields.len()]);
            continue;
        };
        let inner = text.trim().strip_prefix('(').and_then(|t| t.strip_suffix(')'));
        let row = inner.and_then(|t| split_elements(t, '(', ')', false)).filter(|r| r.len() == fields.len());
        rows.push(row.ok_or_else(|| Error::user(SqlState::INVALID_TEXT, format!("malformed record literal: \"{text}\"")))?);
    }
    let columns = (0..fields.len())
        .map(|i| parse_column(fields[i].data_type(), &rows.iter().map(|r| r[i].as_deref()).collect::<Vec<_>>()))
        .collect::<Result<Vec<_>>>()?;
    let valid: Vec<bool> = texts.iter().map(Option::is_some).collect();
    Ok(Arc::new(StructArray::try_new(fields.clone(), columns, Some(valid.into()))?))
}

/// What may stand around elements; other white space belongs to the text.
fn is_blank(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\x0b'
}

/// Splits at commas outside quotes and brackets. In a list (`null_word`) NULL is the word and nothing at all is no element; in a record an empty
/// place is NULL.
fn split_elements(text: &str, open: char, close: char, null_word: bool) -> Option<Vec<Option<String>>> {
    if null_word && text.trim_matches(is_blank).is_empty() {
        return Some(Vec::new());
    }
    let (mut elements, mut current, mut quoted, mut in_quotes, mut depth) = (Vec::new(), String::new(), false, false, 0usize);
    let mut chars = text.chars().peekable();
    let finish = |current: &mut String, quoted: &mut bool| {
        let value = std::mem::take(current);
        if std::mem::take(quoted) {
            return Some(Some(value));
        }
        let value = value.trim_matches(is_blank).to_owned();
        match (null_word, value.is_empty()) {
            (true, true) => None,
            (true, false) if value.eq_ignore_ascii_case("null") => Some(None),
            (false, true) => Some(None),
            _ => Some(Some(value)),
        }
    };
    while let Some(c) = chars.next() {
        match c {
            // Quotes inside a nested list stay, they are read with it.
            '"' if depth > 0 => {
                in_quotes = !in_quotes;
                current.push(c);
            }
            '\\' => {
                if depth > 0 {
                    current.push(c);
                }
                current.push(chars.next()?);
            }
            '"' if in_quotes && !null_word && chars.peek() == Some(&'"') => current.push(chars.next()?),
            '"' => {
                if !in_quotes && current.trim_matches(is_blank).is_empty() {
                    current.clear();
                }
                in_quotes = !in_quotes;
                quoted = true;
            }
            _ if in_quotes => current.push(c),
            ',' if depth == 0 => elements.push(finish(&mut current, &mut quoted)?),
            c => {
                if c == open {
                    depth += 1;
                } else if c == close {
                    depth = depth.checked_sub(1)?;
                }
                if !(quoted && depth == 0 && is_blank(c)) {
                    current.push(c);
                }
            }
        }
    }
    if in_quotes || depth > 0 {
        return None;
    }
    elements.push(finish(&mut current, &mut quoted)?);
    Some(elements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql_types::parse_name;
    use crate::value_text::TextColumn;

    fn show(type_name: &str, text: &str) -> String {
        let data_type = parse_name(type_name).unwrap();
        match parse_column(&data_type, &[Some(text)]) {
            Ok(column) => {
                assert_eq!(column.data_type(), &data_type);
                TextColumn::new(column.as_ref()).text(0)
            }
            Err(e) => format!("{} {}", e.sqlstate().0, e.message()),
        }
    }

    #[test]
    fn values_read_as_postgres_reads_them() {
        for (type_name, text, expected) in [
            ("int4", " 42 ", "42"),
            ("int4", "+7", "7"),
            ("bool", "yes", "t"),
            ("bool", "FAL", "f"),
            ("float8", "1e3", "1000"),
            ("float8", "-Infinity", "-Infinity"),
            ("float8", "nan", "NaN"),
            ("numeric(10,2)", "1.005", "1.01"),
            ("numeric(10,2)", "-1.005", "-1.01"),
            ("numeric(10,2)", "12e-1", "1.20"),
            ("numeric(10,2)", "1e3", "1000.00"),
            ("numeric(10,2)", "0.00499", "0.00"),
            ("numeric(10,0)", ".5", "1"),
            ("date", "2013-1-31", "2013-01-31"),
            ("date", "20130131", "2013-01-31"),
            ("date", "0044-03-15 BC", "0044-03-15 BC"),
            ("time", "12:34:56.0000005", "12:34:56.000001"),
            ("timestamp", "2013-01-31T12:00", "2013-01-31 12:00:00"),
            ("timestamp", "2013-01-31", "2013-01-31 00:00:00"),
            ("timestamp", "2013-01-31 12:00:00+05", "2013-01-31 12:00:00"),
            ("timestamptz", "2013-01-31 12:00:00+05:30", "2013-01-31 06:30:00+00"),
            ("timestamptz", "2013-01-31 12:00:00 UTC", "2013-01-31 12:00:00+00"),
            ("timestamp(3)", "2013-01-31 12:00:00.123", "2013-01-31 12:00:00.123"),
            ("interval", "1 year -2 mons +3 days -04:05:06.5", "10 mons 3 days -04:05:06.5"),
            ("interval", "1.5 days", "1 day 12:00:00"),
            ("interval", "90", "00:01:30"),
            ("interval", "2h 30m", "02:30:00"),
            ("interval", "1 week ago", "-7 days"),
            ("interval", "P1Y2M3DT4H5M6S", "1 year 2 mons 3 days 04:05:06"),
            ("bytea", "\\x00Ff", "\\x00ff"),
            ("bytea", "a\\000b\\\\", "\\x6100625c"),
            ("int4[]", "{1, NULL ,3}", "{1,NULL,3}"),
            ("int4[]", "{}", "{}"),
            ("int4[][]", "{{1,2},{},{3}}", "{{1,2},{},{3}}"),
            ("text[]", r#"{a,"b c","q\"x",NULL,"NULL",""}"#, r#"{a,"b c","q\"x",NULL,"NULL",""}"#),
            ("struct<a:int4,b:text>", r#"(1,"x ""y""")"#, r#"(1,"x ""y""")"#),
            ("struct<a:int4,b:text>", "(,)", "(,)"),
        ] {
            assert_eq!(show(type_name, text), expected, "{type_name} {text}");
        }
    }

    #[test]
    fn wrong_texts_get_the_errors_of_postgres() {
        for (type_name, text, expected) in [
            ("int4", "x", r#"22P02 invalid input syntax for type integer: "x""#),
            ("int4", "", r#"22P02 invalid input syntax for type integer: """#),
            ("int2", "40000", r#"22003 value "40000" is out of range for type smallint"#),
            ("float4", "1e40", r#"22003 value "1e40" is out of range for type real"#),
            ("bool", "maybe", r#"22P02 invalid input syntax for type boolean: "maybe""#),
            ("numeric(3,1)", "100", "22003 numeric field overflow"),
            ("numeric(3,1)", "1.2.3", r#"22P02 invalid input syntax for type numeric: "1.2.3""#),
            ("numeric(3,1)", "1e999999999", "22003 numeric field overflow"),
            ("date", "today-ish", r#"22007 invalid input syntax for type date: "today-ish""#),
            ("date", "2013-02-30", r#"22008 date/time field value out of range: "2013-02-30""#),
            ("timestamp", "2013-01-31 25:00", r#"22008 date/time field value out of range: "2013-01-31 25:00""#),
            ("timestamp", "2013-01-31 1é", r#"22007 invalid input syntax for type timestamp: "2013-01-31 1é""#),
            ("interval", "1 fortnight", r#"22007 invalid input syntax for type interval: "1 fortnight""#),
            ("interval", "999999999999 years", r#"22008 interval field value out of range: "999999999999 years""#),
            ("bytea", "\\x0", "22023 invalid hexadecimal data: odd number of digits"),
            ("int4[]", "{1,", r#"22P02 malformed array literal: "{1,""#),
            ("int4[]", "{1,,2}", r#"22P02 malformed array literal: "{1,,2}""#),
        ] {
            assert_eq!(show(type_name, text), expected, "{type_name} {text}");
        }
    }
}
