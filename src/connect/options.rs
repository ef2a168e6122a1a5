//! Reading the options of `WITH (...)` and `ENCODE x (...)`: each is asked for once, what nobody asked for is an error.

use eddyline_types::{Error, Result, SqlState};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::time::Duration;

/// Options of one clause, and which of them were known.
pub(crate) struct Options<'a> {
    values: &'a BTreeMap<String, String>,
    known: BTreeSet<String>,
}

/// An error about an option's value.
pub(crate) fn invalid(name: &str, value: &str, wanted: &str) -> Error {
    Error::user(SqlState::INVALID_PARAMETER_VALUE, format!("invalid value for option \"{name}\": \"{value}\""))
        .with_hint(format!("Use {wanted}."))
}

impl<'a> Options<'a> {
    /// Reads from a clause; `connector` is always known.
    pub(crate) fn new(values: &'a BTreeMap<String, String>) -> Self {
        Options { values, known: BTreeSet::from(["connector".to_owned()]) }
    }

    /// The text of an option.
    pub(crate) fn text(&mut self, name: &str) -> Option<&'a str> {
        self.known.insert(name.to_owned());
        self.values.get(name).map(String::as_str)
    }

    /// An option that has to be there.
    pub(crate) fn required(&mut self, name: &str, wanted: &str) -> Result<&'a str> {
        self.text(name).ok_or_else(|| {
            Error::user(SqlState::INVALID_PARAMETER_VALUE, format!("option \"{name}\" is missing")).with_hint(format!("Give {wanted}."))
        })
    }

    /// A value that parses, or nothing.
    pub(crate) fn parse<T: FromStr>(&mut self, name: &str, wanted: &str) -> Result<Option<T>> {
        match self.text(name) {
            None => Ok(None),
            Some(text) => text.trim().parse().map(Some).map_err(|_| invalid(name, text, wanted)),
        }
    }

    /// A whole number of at least `least`.
    pub(crate) fn number(&mut self, name: &str, least: u64, default: u64) -> Result<u64> {
        let wanted = format!("a whole number of at least {least}");
        match self.parse::<u64>(name, &wanted)? {
            Some(n) if n < least => Err(invalid(name, &n.to_string(), &wanted)),
            n => Ok(n.unwrap_or(default)),
        }
    }

    /// `true` or `false`.
    pub(crate) fn flag(&mut self, name: &str, default: bool) -> Result<bool> {
        match self.text(name) {
            None => Ok(default),
            Some(text) => crate::parse::boolean(text.as_bytes()).map_err(|_| invalid(name, text, "true or false")),
        }
    }

    /// A length of time such as `10s`, `2h 37min`, `1 day`.
    pub(crate) fn duration(&mut self, name: &str, default: Duration) -> Result<Duration> {
        match self.text(name) {
            None => Ok(default),
            Some(text) => duration(text).ok_or_else(|| invalid(name, text, "a duration such as '500ms', '10s', '2h 37min' or '1 day'")),
        }
    }

    /// A single character.
    pub(crate) fn character(&mut self, name: &str, default: u8) -> Result<u8> {
        match self.text(name) {
            None => Ok(default),
            Some("\\t") => Ok(b'\t'),
            Some(text) => match text.as_bytes() {
                [b] if b.is_ascii() && !matches!(b, b'\n' | b'\r') => Ok(*b),
                _ => Err(invalid(name, text, "one ASCII character that does not end a line")),
            },
        }
    }

    /// Refuses options that nobody asked for.
    pub(crate) fn finish(self, of: &str) -> Result<()> {
        match self.values.keys().find(|name| !self.known.contains(*name)) {
            None => Ok(()),
            Some(name) => {
                let known: Vec<&str> = self.known.iter().map(String::as_str).filter(|n| *n != "connector").collect();
                let error = Error::user(SqlState::INVALID_PARAMETER_VALUE, format!("unknown option \"{name}\" of {of}"));
                Err(if known.is_empty() { error } else { error.with_hint(format!("Known options: {}.", known.join(", "))) })
            }
        }
    }
}

/// Parses number and unit pairs; months count 30 days and years 365, which is close enough for "how old".
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..end].parse().ok()?;
        rest = rest[end..].trim_start();
        let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let seconds = match rest[..end].to_ascii_lowercase().as_str() {
            "us" | "usec" | "microsecond" | "microseconds" => 1e-6,
            "ms" | "msec" | "millisecond" | "milliseconds" => 1e-3,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86_400.0,
            "w" | "week" | "weeks" => 604_800.0,
            "mon" | "mons" | "month" | "months" => 2_592_000.0,
            "y" | "year" | "years" => 31_536_000.0,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = rest[end..].trim_start();
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_pairs_of_number_and_unit() {
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("2h 37min"), Some(Duration::from_secs(157 * 60)));
        assert_eq!(duration("1 day"), Some(Duration::from_secs(86_400)));
        assert_eq!(duration("1.5s"), Some(Duration::from_millis(1500)));
        for bad in ["", "5", "s", "5 parsecs", "-1s", "1s x", "1e400s"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn unknown_options_are_named() {
        let values = BTreeMap::from([("connector".to_owned(), "file".to_owned()), ("pth".to_owned(), "x".to_owned())]);
        let mut options = Options::new(&values);
        assert_eq!(options.text("path"), None);
        let error = options.finish("connector \"file\"").unwrap_err();
        assert_eq!(error.message(), "unknown option \"pth\" of connector \"file\"");
        assert_eq!(error.hint(), Some("Known options: path."));
        assert_eq!(error.sqlstate(), SqlState::INVALID_PARAMETER_VALUE);
    }
}
