//! Text of one value to its number: integers, numerics, floats, booleans, dates, times, byte strings, as Postgres reads them.
//!
//! Pure functions over bytes, used by the CSV and JSON decoders; they never allocate on success. Where Postgres accepts
//! words (`infinity`, `now`) or local formats these functions refuse: data files carry ISO text.

use chrono::{Datelike, NaiveDate};

/// Why a text is no value of the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bad {
    /// It does not look like one.
    Syntax,
    /// It looks like one but does not fit.
    Range,
}

/// Days from 0001-01-01 to 1970-01-01, as chrono counts.
const UNIX_EPOCH_DAYS_CE: i32 = 719_163;
pub(crate) const MICROS_PER_DAY: i64 = 86_400_000_000;

/// Without blanks around it.
pub(crate) fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}

/// A whole number with an optional sign.
pub(crate) fn integer(text: &[u8]) -> Result<i64, Bad> {
    let (negative, digits) = signed(text);
    match short_digits(digits) {
        Some(value) => Ok(if negative { -value } else { value }),
        None => long_integer(trim(text)),
    }
}

fn signed(text: &[u8]) -> (bool, &[u8]) {
    match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    }
}

/// 1 to 18 digits and nothing else: what nearly all numbers of data files are.
fn short_digits(digits: &[u8]) -> Option<i64> {
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut value = 0u64;
    for &b in digits {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // 18 digits fit.
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
    }
    Some(value as i64)
}

fn long_integer(text: &[u8]) -> Result<i64, Bad> {
    let (negative, digits) = signed(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Bad::Syntax);
    }
    let mut value = 0i128;
    for &b in digits {
        value = value * 10 + i128::from(b - b'0');
        if value > i128::from(u64::MAX) {
            return Err(Bad::Range);
        }
    }
    i64::try_from(if negative { -value } else { value }).map_err(|_| Bad::Range)
}

/// A whole number that may be written as `6.0` or `1e2`: JSON numbers have no integer type.
pub(crate) fn json_integer(text: &[u8]) -> Result<i64, Bad> {
    match integer(text) {
        Err(Bad::Syntax) => {
            let (mantissa, scale) = decimal_parts(trim(text))?;
            let value = rescale(mantissa, -scale)?;
            let exact = scale <= 0 || mantissa % 10i128.pow(scale.min(38) as u32) == 0;
            if exact { i64::try_from(value).map_err(|_| Bad::Range) } else { Err(Bad::Syntax) }
        }
        other => other,
    }
}

/// A floating-point number; finite text that overflows is out of range.
pub(crate) fn float(text: &[u8]) -> Result<f64, Bad> {
    let text = std::str::from_utf8(trim(text)).map_err(|_| Bad::Syntax)?;
    let value: f64 = text.parse().map_err(|_| Bad::Syntax)?;
    if value.is_infinite() && text.bytes().any(|b| b.is_ascii_digit()) { Err(Bad::Range) } else { Ok(value) }
}

/// A number as an integer of `scale` decimals, rounded half away from zero, below `10^precision`.
pub(crate) fn decimal(text: &[u8], precision: u8, scale: i8) -> Result<i128, Bad> {
    let (mantissa, digits) = decimal_parts(trim(text))?;
    let value = rescale(mantissa, i32::from(scale) - digits)?;
    if value.unsigned_abs() >= 10u128.pow(u32::from(precision.min(38))) { Err(Bad::Range) } else { Ok(value) }
}

/// `mantissa * 10^power`, rounded half away from zero.
fn rescale(mantissa: i128, power: i32) -> Result<i128, Bad> {
    if mantissa == 0 {
        return Ok(0);
    }
    if power >= 0 {
        let factor = 10i128.checked_pow(power as u32).ok_or(Bad::Range)?;
        return mantissa.checked_mul(factor).ok_or(Bad::Range);
    }
    let Some(divisor) = 10i128.checked_pow(power.unsigned_abs()) else { return Ok(0) };
    let (quotient, rest) = (mantissa / divisor, mantissa % divisor);
    let up = rest.unsigned_abs() >= (divisor.unsigned_abs()).div_ceil(2);
    Ok(if up { quotient + mantissa.signum() } else { quotient })
}

/// Splits `-12.5e3` into mantissa and number of decimals (negative: zeros to append).
/// Decimals beyond 37 significant digits are dropped, which no scale of ours can see.
fn decimal_parts(text: &[u8]) -> Result<(i128, i32), Bad> {
    let (negative, body) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    };
    let (mut mantissa, mut decimals, mut any, mut point) = (0i128, 0i32, false, false);
    const ROOM: i128 = 10i128.pow(37);
    let mut i = 0;
    let mut zeros_owed = 0i32;
    while i < body.len() {
        match body[i] {
            b @ b'0'..=b'9' => {
                any = true;
                if mantissa < ROOM {
                    mantissa = mantissa * 10 + i128::from(b - b'0');
                    decimals += i32::from(point);
                } else if !point {
                    zeros_owed += 1;
                }
            }
            b'.' if !point => point = true,
            b'e' | b'E' if any => break,
            _ => return Err(Bad::Syntax),
        }
        i += 1;
    }
    if !any {
        return Err(Bad::Syntax);
    }
    let mut exponent = 0i32;
    if i < body.len() {
        exponent = match integer_exact(&body[i + 1..])? {
            e if e.abs() <= 10_000 => e as i32,
            _ if mantissa == 0 => 0,
            e if e > 0 => return Err(Bad::Range),
            _ => -10_000,
        };
    }
    Ok((if negative { -mantissa } else { mantissa }, decimals - zeros_owed - exponent))
}

fn integer_exact(text: &[u8]) -> Result<i64, Bad> {
    if text.first().is_some_and(u8::is_ascii_whitespace) { Err(Bad::Syntax) } else { integer(text) }
}

/// The words of Postgres, and their unique prefixes.
pub(crate) fn boolean(text: &[u8]) -> Result<bool, Bad> {
    let lower = trim(text).to_ascii_lowercase();
    let is = |word: &str, least: usize| lower.len() >= least && word.as_bytes().starts_with(&lower);
    if is("true", 1) || is("yes", 1) || is("on", 2) || lower == b"1" {
        Ok(true)
    } else if is("false", 1) || is("no", 1) || is("off", 2) || lower == b"0" {
        Ok(false)
    } else {
        Err(Bad::Syntax)
    }
}

/// Digits at the start: their value and count.
fn digits(text: &[u8], most: usize) -> (u32, usize) {
    let mut value = 0u32;
    let mut n = 0;
    while n < most && n < text.len() && text[n].is_ascii_digit() {
        value = value * 10 + u32::from(text[n] - b'0');
        n += 1;
    }
    (value, n)
}

/// `YYYY-MM-DD` at the start: days since 1970-01-01 and what follows.
fn date_part(text: &[u8]) -> Result<(i32, &[u8]), Bad> {
    let (year, n) = digits(text, 6);
    if n < 4 || text.get(n) != Some(&b'-') {
        return Err(Bad::Syntax);
    }
    let text = &text[n + 1..];
    let (month, n) = digits(text, 2);
    if n == 0 || text.get(n) != Some(&b'-') {
        return Err(Bad::Syntax);
    }
    let text = &text[n + 1..];
    let (day, n) = digits(text, 2);
    if n == 0 {
        return Err(Bad::Syntax);
    }
    let date = NaiveDate::from_ymd_opt(year as i32, month, day).ok_or(Bad::Range)?;
    Ok((date.num_days_from_ce() - UNIX_EPOCH_DAYS_CE, &text[n..]))
}

/// `HH:MM[:SS[.ffffff]]` at the start: microseconds of the day and what follows. 24:00:00 is the end of the day.
fn time_part(text: &[u8]) -> Result<(i64, &[u8]), Bad> {
    let (hour, n) = digits(text, 2);
    if n == 0 || text.get(n) != Some(&b':') {
        return Err(Bad::Syntax);
    }
    let text = &text[n + 1..];
    let (minute, n) = digits(text, 2);
    if n != 2 {
        return Err(Bad::Syntax);
    }
    let mut text = &text[n..];
    let (mut second, mut micros) = (0, 0i64);
    if text.first() == Some(&b':') {
        let n;
        (second, n) = digits(&text[1..], 2);
        if n != 2 {
            return Err(Bad::Syntax);
        }
        text = &text[3..];
        if text.first() == Some(&b'.') {
            (micros, text) = fraction(&text[1..]);
        }
    }
    let total = i64::from(hour) * 3_600_000_000 + i64::from(minute) * 60_000_000 + i64::from(second) * 1_000_000 + micros;
    if minute > 59 || second > 59 || total > MICROS_PER_DAY { Err(Bad::Range) } else { Ok((total, text)) }
}

/// Decimals of a second to microseconds, rounded at the seventh.
fn fraction(text: &[u8]) -> (i64, &[u8]) {
    let n = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let mut micros = 0i64;
    for k in 0..6 {
        micros = micros * 10 + text[..n].get(k).map_or(0, |b| i64::from(b - b'0'));
    }
    micros += i64::from(text[..n].get(6).is_some_and(|&b| b >= b'5'));
    (micros, &text[n..])
}

/// `Z`, `UTC`, `+HH`, `+HHMM`, `+HH:MM`: microseconds east of Greenwich, or nothing.
fn zone_part(text: &[u8]) -> Result<Option<i64>, Bad> {
    let text = trim(text);
    let (sign, body) = match text.split_first() {
        None => return Ok(None),
        Some((b'+', rest)) => (1, rest),
        Some((b'-', rest)) => (-1, rest),
        Some(_) if text.eq_ignore_ascii_case(b"z") || text.eq_ignore_ascii_case(b"utc") || text.eq_ignore_ascii_case(b"gmt") => {
            return Ok(Some(0));
        }
        Some(_) => return Err(Bad::Syntax),
    };
    let (hour, n) = digits(body, 2);
    let rest = &body[n..];
    let rest = rest.strip_prefix(b":").unwrap_or(rest);
    let (minute, m) = digits(rest, 2);
    if n == 0 || !(m == 0 && rest.is_empty() && !body.ends_with(b":") || m == 2 && rest.len() == 2) {
        return Err(Bad::Syntax);
    }
    if hour > 15 || minute > 59 {
        return Err(Bad::Range);
    }
    Ok(Some(sign * (i64::from(hour) * 3600 + i64::from(minute) * 60) * 1_000_000))
}

/// Days since 1970-01-01; a time behind the date is checked and cut off.
pub(crate) fn date(text: &[u8]) -> Result<i32, Bad> {
    let text = trim(text);
    let (days, rest) = date_part(text)?;
    if !rest.is_empty() {
        timestamp(text, false)?;
    }
    Ok(days)
}

/// Microseconds since midnight.
pub(crate) fn time(text: &[u8]) -> Result<i64, Bad> {
    let (micros, rest) = time_part(trim(text))?;
    if rest.is_empty() { Ok(micros) } else { Err(Bad::Syntax) }
}

/// Microseconds since the Unix epoch. A zone in the text moves the instant of a `TIMESTAMP WITH TIME ZONE`
/// (`zoned`; none means UTC) and is ignored for a plain `TIMESTAMP`, as in Postgres.
pub(crate) fn timestamp(text: &[u8], zoned: bool) -> Result<i64, Bad> {
    let text = trim(text);
    let (days, rest) = date_part(text)?;
    let (micros, zone) = match rest.split_first() {
        None => (0, None),
        Some((b'T' | b't' | b' ', rest)) => {
            let (micros, rest) = time_part(rest)?;
            (micros, zone_part(rest)?)
        }
        Some(_) => return Err(Bad::Syntax),
    };
    let local = i64::from(days).checked_mul(MICROS_PER_DAY).and_then(|d| d.checked_add(micros)).ok_or(Bad::Range)?;
    Ok(if zoned { local - zone.unwrap_or(0) } else { local })
}

/// `\x6869`, or the bytes as they are.
pub(crate) fn bytea(text: &[u8], out: &mut Vec<u8>) -> Result<(), Bad> {
    let Some(hex) = text.strip_prefix(b"\\x") else {
        out.extend_from_slice(text);
        return Ok(());
    };
    let nibble = |b: u8| (b as char).to_digit(16).map(|d| d as u8).ok_or(Bad::Syntax);
    if !hex.len().is_multiple_of(2) {
        return Err(Bad::Syntax);
    }
    for pair in hex.chunks_exact(2) {
        out.push(nibble(pair[0])? << 4 | nibble(pair[1])?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_a_sign_blanks_and_a_range() {
        assert_eq!(integer(b" -42 "), Ok(-42));
        assert_eq!(integer(b"+7"), Ok(7));
        assert_eq!(integer(b"9223372036854775807"), Ok(i64::MAX));
        assert_eq!(integer(b"-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(integer(b"9223372036854775808"), Err(Bad::Range));
        assert_eq!(integer(b"99999999999999999999999999999999999999999999999"), Err(Bad::Range));
        for bad in [&b""[..], b"-", b"6.0", b"1 2", b"x", b"0x10"] {
            assert_eq!(integer(bad), Err(Bad::Syntax), "{bad:?}");
        }
        assert_eq!(json_integer(b"6.0"), Ok(6));
        assert_eq!(json_integer(b"1e2"), Ok(100));
        assert_eq!(json_integer(b"-1.50e1"), Ok(-15));
        assert_eq!(json_integer(b"6.5"), Err(Bad::Syntax));
        assert_eq!(json_integer(b"1e30"), Err(Bad::Range));
        assert_eq!(json_integer(b"1e-400"), Err(Bad::Syntax));
    }

    #[test]
    fn decimals_round_half_away_from_zero_and_know_their_precision() {
        assert_eq!(decimal(b"10.5", 10, 2), Ok(1050));
        assert_eq!(decimal(b"1e2", 10, 2), Ok(10_000));
        assert_eq!(decimal(b"-0.005", 10, 2), Ok(-1));
        assert_eq!(decimal(b"0.0049", 10, 2), Ok(0));
        assert_eq!(decimal(b".5", 10, 0), Ok(1));
        assert_eq!(decimal(b"99999999.99", 10, 2), Ok(9_999_999_999));
        assert_eq!(decimal(b"100000000", 10, 2), Err(Bad::Range));
        assert_eq!(decimal(b"99999999.995", 10, 2), Err(Bad::Range));
        assert_eq!(decimal(b"12345678901234567890123456789012345678", 38, 0), Ok(12345678901234567890123456789012345678));
        assert_eq!(decimal(b"0.000000000000000000000000000000000000000000000001", 38, 10), Ok(0));
        assert_eq!(decimal(b"1e99999999999999999999", 38, 0), Err(Bad::Range));
        for bad in [&b""[..], b".", b"1.2.3", b"not-a-number", b"1e", b"NaN", b"--1"] {
            assert_eq!(decimal(bad, 10, 2), Err(Bad::Syntax), "{bad:?}");
        }
    }

    #[test]
    fn timestamps_are_iso_with_an_optional_zone() {
        assert_eq!(timestamp(b"1970-01-01 00:00:00", false), Ok(0));
        assert_eq!(timestamp(b"2024-01-04T00:00:00+02:00", false), Ok(1_704_326_400_000_000));
        assert_eq!(timestamp(b"2024-01-04T00:00:00+02:00", true), Ok(1_704_326_400_000_000 - 7_200_000_000));
        assert_eq!(timestamp(b"2024-01-04 00:00:00.1234567Z", true), Ok(1_704_326_400_123_457));
        assert_eq!(timestamp(b"2024-01-04", false), Ok(1_704_326_400_000_000));
        assert_eq!(timestamp(b"1969-12-31 23:59:59.5", false), Ok(-500_000));
        assert_eq!(timestamp(b"2024-02-30 00:00:00", false), Err(Bad::Range));
        assert_eq!(timestamp(b"2024-02-03 25:00:00", false), Err(Bad::Range));
        for bad in [&b""[..], b"yesterday", b"2024-1", b"2024-01-01x", b"2024-01-01 1", b"2024-01-01 00:00:00+", b"24-01-01"] {
            assert_eq!(timestamp(bad, false), Err(Bad::Syntax), "{bad:?}");
        }
        assert_eq!(date(b"2024-03-01"), Ok(19783));
        assert_eq!(date(b"2024-03-01T10:00:00Z"), Ok(19783));
        assert_eq!(date(b"2024-03-01junk"), Err(Bad::Syntax));
        assert_eq!(time(b"10:30"), Ok(37_800_000_000));
    }

    #[test]
    fn booleans_floats_and_bytes() {
        for (text, value) in [("t", true), ("YES", true), ("on", true), ("1", true), ("f", false), ("off", false), ("n", false)] {
            assert_eq!(boolean(text.as_bytes()), Ok(value), "{text}");
        }
        assert_eq!(boolean(b"o"), Err(Bad::Syntax));
        assert_eq!(boolean(b""), Err(Bad::Syntax));
        assert_eq!(float(b" 1.5e3 "), Ok(1500.0));
        assert_eq!(float(b"1e999"), Err(Bad::Range));
        assert_eq!(float(b"-Infinity"), Ok(f64::NEG_INFINITY));
        assert!(float(b"nan").is_ok_and(f64::is_nan));
        let mut out = vec![];
        assert_eq!(bytea(b"\\x6869", &mut out), Ok(()));
        assert_eq!(out, b"hi");
        assert_eq!(bytea(b"\\x6", &mut out), Err(Bad::Syntax));
    }
}
