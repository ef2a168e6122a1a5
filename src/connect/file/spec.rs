//! The `file` connector's options, checked.

use super::csv::CsvFormat;
use super::place::Place;
use crate::columns::check_types;
use crate::options::{Options, invalid};
use eddyline_protocol::SourceSpec;
use eddyline_types::{Error, Result, SqlState};
use std::time::Duration;

/// How the bytes of a file become rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Csv(CsvFormat),
    Ndjson,
    Parquet,
}

/// Whether files change after they are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A file is final when it is listed; an unterminated last line is a row.
    Immutable,
    /// Files grow; only terminated lines count.
    Append,
}

/// The connector's settings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FileSpec {
    pub(crate) place: Place,
    pub(crate) encoding: Encoding,
    pub(crate) mode: Mode,
    /// Time between two listings.
    pub(crate) poll_interval: Duration,
    /// A file that was modified less than this ago may still be being written, and waits (immutable mode).
    pub(crate) settle: Duration,
    /// Ends when the files of the first listing are read.
    pub(crate) bounded: bool,
    /// A longer record is an error record.
    pub(crate) max_record_bytes: usize,
}

impl FileSpec {
    /// Reads and checks the options.
    pub(crate) fn parse(spec: &SourceSpec) -> Result<Self> {
        check_types(&spec.columns)?;
        if !matches!(spec.format.as_str(), "" | "plain") {
            return Err(Error::user(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("connector \"file\" cannot read FORMAT {}", spec.format.to_uppercase()),
            )
            .with_hint("Use FORMAT PLAIN."));
        }
        let encoding = encoding(spec)?;
        let mut options = Options::new(&spec.options);
        let place = Place::parse(
            options.required("path", "a path or URL such as '/dir/flights-*.csv' or 's3://bucket/prefix/*.parquet?region=..'")?,
        )?;
        let mode = match options.text("mode").unwrap_or("immutable") {
            "immutable" => Mode::Immutable,
            "append" if encoding == Encoding::Parquet => {
                return Err(Error::user(SqlState::INVALID_PARAMETER_VALUE, "option \"mode\" cannot be \"append\" for Parquet files")
                    .with_hint("A Parquet file ends with its index and cannot grow: use mode = 'immutable'."));
            }
            "append" => Mode::Append,
            other => return Err(invalid("mode", other, "'immutable' or 'append'")),
        };
        let poll_interval = options.duration("poll_interval", Duration::from_secs(1))?;
        if poll_interval < Duration::from_millis(1) {
            return Err(invalid("poll_interval", options.text("poll_interval").unwrap_or_default(), "at least 1ms"));
        }
        let settle = options.duration("settle", Duration::from_millis(500))?;
        let bounded = options.flag("bounded", false)?;
        let max_record_bytes = options.number("max_record_bytes", 1, 16 << 20)? as usize;
        options.finish("connector \"file\"")?;
        Ok(FileSpec { place, encoding, mode, poll_interval, settle, bounded, max_record_bytes })
    }
}

fn encoding(spec: &SourceSpec) -> Result<Encoding> {
    let mut options = Options::new(&spec.encode_options);
    let encoding = match spec.encode.as_str() {
        "csv" => {
            let without = options.flag("without_header", false)?;
            let header = options.flag("header", !without)?;
            let delimiter = options.character("delimiter", b',')?;
            let quote = options.character("quote", b'"')?;
            if delimiter == quote {
                return Err(Error::user(SqlState::INVALID_PARAMETER_VALUE, "options \"delimiter\" and \"quote\" must be different"));
            }
            let null = options.text("null").unwrap_or_default().as_bytes().to_vec();
            Encoding::Csv(CsvFormat { header, delimiter, quote, null })
        }
        "json" | "ndjson" => Encoding::Ndjson,
        "parquet" => Encoding::Parquet,
        other => {
            let message = match other {
                "" => "connector \"file\" needs an ENCODE clause".to_owned(),
                other => format!("connector \"file\" cannot read ENCODE {}", other.to_uppercase()),
            };
            return Err(Error::user(SqlState::INVALID_PARAMETER_VALUE, message).with_hint("Use ENCODE CSV, JSON or PARQUET."));
        }
    };
    options.finish(&format!("ENCODE {}", spec.encode.to_uppercase()))?;
    Ok(encoding)
}
