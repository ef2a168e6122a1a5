//! The `nexmark` connector: the events of crate `nexmark` 0.2.0 with its defaults, one kind per source.
//!
//! Every event is a pure function of its number (1 person, 3 auctions, 46 bids in each 50; event time starts at
//! 2015-07-15T00:00:00Z and advances by 10,000 events per second), so a replay from an offset gives the same rows,
//! and sources of different kinds belong to one history.

mod bid;

use crate::columns::{check_types, of_micros, sql_name, timestamps};
use crate::options::{Options, invalid};
use crate::pace::Pace;
use crate::{Offsets, SourceBatch, SourceReader, is_split_of};
use ::nexmark::EventGenerator;
use ::nexmark::config::NexmarkConfig;
use ::nexmark::event::{Event, EventType};
use arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StringBuilder};
use arrow::datatypes::{DataType, Int64Type, SchemaRef, TimeUnit};
use async_trait::async_trait;
use bid::Bids;
use eddyline_protocol::catalog::schema_of;
use eddyline_protocol::{ColumnDef, SourceSpec};
use eddyline_types::{Error, Result, SqlState};
use std::sync::Arc;

/// Time of the first event: 2015-07-15T00:00:00Z in milliseconds.
pub const BASE_TIME_MS: u64 = 1_436_918_400_000;
/// Events per second of event time.
pub const EVENTS_PER_SECOND: usize = 10_000;
/// Nanoseconds of real time between two events (of any kind) of a source without end, unless it says otherwise.
const DEFAULT_GAP_NS: u64 = 100_000;

/// Which events a source gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Person,
    Auction,
    Bid,
}

/// A column that an event kind has.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Number,
    Text,
    Time,
}

const PERSON: &[(&str, Value)] = &[
    ("id", Value::Number),
    ("name", Value::Text),
    ("email_address", Value::Text),
    ("credit_card", Value::Text),
    ("city", Value::Text),
    ("state", Value::Text),
    ("date_time", Value::Time),
    ("extra", Value::Text),
];
const AUCTION: &[(&str, Value)] = &[
    ("id", Value::Number),
    ("item_name", Value::Text),
    ("description", Value::Text),
    ("initial_bid", Value::Number),
    ("reserve", Value::Number),
    ("date_time", Value::Time),
    ("expires", Value::Time),
    ("seller", Value::Number),
    ("category", Value::Number),
    ("extra", Value::Text),
];
const BID: &[(&str, Value)] = &[
    ("auction", Value::Number),
    ("bidder", Value::Number),
    ("price", Value::Number),
    ("channel", Value::Text),
    ("url", Value::Text),
    ("date_time", Value::Time),
    ("extra", Value::Text),
];

impl Kind {
    fn columns(self) -> &'static [(&'static str, Value)] {
        match self {
            Kind::Person => PERSON,
            Kind::Auction => AUCTION,
            Kind::Bid => BID,
        }
    }

    /// First place among each 50 events, and how many.
    fn share(self) -> (u64, u64) {
        match self {
            Kind::Person => (0, 1),
            Kind::Auction => (1, 3),
            Kind::Bid => (4, 46),
        }
    }

    /// How many of the first `events` events are of this kind.
    pub fn count_in(self, events: u64) -> u64 {
        let (first, share) = self.share();
        events / 50 * share + (events % 50).saturating_sub(first).min(share)
    }

    /// The columns in their usual order and types.
    pub fn column_defs(self) -> Vec<ColumnDef> {
        let data_type = |value| match value {
            Value::Number => DataType::Int64,
            Value::Text => DataType::Utf8,
            Value::Time => DataType::Timestamp(TimeUnit::Microsecond, None),
        };
        self.columns().iter().map(|(name, value)| ColumnDef::new(*name, data_type(*value))).collect()
    }
}

/// Checked settings.
#[derive(Clone, Debug)]
pub struct Nexmark {
    kind: Kind,
    schema: SchemaRef,
    /// For each column of the relation: its position among the kind's columns.
    fields: Vec<usize>,
    splits: u64,
    /// Events of all kinds, if there is an end.
    events: Option<u64>,
    gap_ns: u64,
}

impl Nexmark {
    /// Reads and checks the options.
    pub fn parse(spec: &SourceSpec) -> Result<Self> {
        check_types(&spec.columns)?;
        let mut options = Options::new(&spec.options);
        let wanted = "'person', 'auction' or 'bid'";
        let kind = match options.required("nexmark.table.type", wanted)? {
            text if text.eq_ignore_ascii_case("person") => Kind::Person,
            text if text.eq_ignore_ascii_case("auction") => Kind::Auction,
            text if text.eq_ignore_ascii_case("bid") => Kind::Bid,
            other => return Err(invalid("nexmark.table.type", other, wanted)),
        };
        let splits = options.number("nexmark.split.num", 1, 1)?;
        let events = match options.text("nexmark.event.num") {
            // As RisingWave writes "no end".
            None | Some("-1") => None,
            Some(_) => Some(options.number("nexmark.event.num", 0, 0)?),
        };
        // Who asks for so many events wants them, not a stream to watch.
        let gap_ns = options.number("nexmark.min.event.gap.in.ns", 0, if events.is_some() { 0 } else { DEFAULT_GAP_NS })?;
        options.finish("connector \"nexmark\"")?;
        Self::new(kind, &spec.columns, splits, events, gap_ns)
    }

    fn new(kind: Kind, columns: &[ColumnDef], splits: u64, events: Option<u64>, gap_ns: u64) -> Result<Self> {
        let mut fields = vec![];
        for column in columns {
            let Some(at) = kind.columns().iter().position(|(name, _)| *name == column.name) else {
                let known: Vec<&str> = kind.columns().iter().map(|(name, _)| *name).collect();
                return Err(Error::user(SqlState::INVALID_PARAMETER_VALUE, format!("nexmark events have no column \"{}\"", column.name))
                    .with_hint(format!("The columns of this table type are: {}.", known.join(", "))));
            };
            let (good, wanted) = match kind.columns()[at].1 {
                Value::Number => (matches!(column.data_type, DataType::Int64 | DataType::Int32), "BIGINT"),
                Value::Text => (column.data_type == DataType::Utf8, "VARCHAR"),
                Value::Time => (matches!(column.data_type, DataType::Timestamp(..)), "TIMESTAMP"),
            };
            if !good {
                let is = sql_name(&column.data_type).unwrap_or("another type");
                let message = format!("column \"{}\" of nexmark events is {wanted}, not {is}", column.name);
                return Err(Error::user(SqlState::INVALID_PARAMETER_VALUE, message));
            }
            fields.push(at);
        }
        Ok(Nexmark { kind, schema: schema_of(columns), fields, splits, events, gap_ns })
    }

    /// A generator whose next event is the `at`-th (0-based) of the kind, and then every `step`-th.
    fn generator(&self, at: u64, step: u64) -> Generator {
        let events = |filter| EventGenerator::new(config()).with_type_filter(filter).with_offset(at).with_step(step);
        match self.kind {
            Kind::Person => Generator::Events(Box::new(events(EventType::Person))),
            Kind::Auction => Generator::Events(Box::new(events(EventType::Auction))),
            Kind::Bid => Generator::Bids { bids: Bids::new(&self.fields), at, step },
        }
    }

    fn make(&self, generator: &mut Generator, count: usize) -> Result<RecordBatch> {
        let columns: Vec<ArrayRef> = match generator {
            Generator::Bids { bids, at, step } => {
                let columns = bids.make(*at, *step, count)?;
                *at += *step * count as u64;
                columns.to_vec()
            }
            Generator::Events(events) => {
                let mut columns: Vec<Builder> = self.kind.columns().iter().map(|(_, value)| Builder::new(*value, count)).collect();
                for event in events.take(count) {
                    append(&mut columns, &event);
                }
                columns.iter_mut().map(Builder::array).collect()
            }
        };
        let mut arrays = Vec::with_capacity(self.fields.len());
        for (at, field) in self.fields.iter().zip(self.schema.fields()) {
            arrays.push(of_type(&columns[*at], field.data_type())?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?)
    }
}

/// The crate's defaults with our base time and rate.
fn config() -> NexmarkConfig {
    NexmarkConfig { base_time: BASE_TIME_MS, first_rate: EVENTS_PER_SECOND, next_rate: EVENTS_PER_SECOND, ..NexmarkConfig::default() }
}

/// Where a split's rows come from.
enum Generator {
    Events(Box<EventGenerator>),
    /// The `at`-th bid is the next, then every `step`-th.
    Bids {
        bids: Bids,
        at: u64,
        step: u64,
    },
}

/// A column (numbers and milliseconds are 64-bit integers) in the relation's type.
fn of_type(column: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    let numbers = |column: &ArrayRef| column.as_primitive::<Int64Type>().values().clone();
    Ok(match data_type {
        DataType::Int32 => {
            let narrow = numbers(column).iter().map(|v| i32::try_from(*v)).collect::<Result<Vec<_>, _>>();
            let too_large =
                |_| Error::user(SqlState::NUMERIC_OUT_OF_RANGE, "a nexmark event does not fit type integer").with_hint("Use BIGINT.");
            Arc::new(Int32Array::from(narrow.map_err(too_large)?))
        }
        DataType::Timestamp(unit, zone) => {
            let values = numbers(column).iter().map(|ms| of_micros(ms * 1000, *unit)).collect::<Result<Vec<i64>, _>>();
            let values = values.map_err(|_| Error::user(SqlState::DATETIME_OVERFLOW, "a nexmark time is out of range"))?;
            timestamps(values.into(), None, *unit, zone.clone())
        }
        _ => column.clone(),
    })
}

/// All rows of a kind among the first `events` events, in chunks of `chunk_rows`, with the kind's usual columns.
pub fn chunks(kind: Kind, events: u64, chunk_rows: usize) -> Result<Vec<RecordBatch>> {
    let nexmark = Nexmark::new(kind, &kind.column_defs(), 1, Some(events), 0)?;
    let mut generator = nexmark.generator(0, 1);
    let mut left = kind.count_in(events) as usize;
    let mut out = vec![];
    while left > 0 {
        let count = left.min(chunk_rows.max(1));
        out.push(nexmark.make(&mut generator, count)?);
        left -= count;
    }
    Ok(out)
}

/// A column being filled.
enum Builder {
    Number(Vec<i64>),
    Text(StringBuilder),
    /// Milliseconds.
    Time(Vec<i64>),
}

impl Builder {
    fn new(value: Value, rows: usize) -> Self {
        match value {
            Value::Number => Builder::Number(Vec::with_capacity(rows)),
            Value::Text => Builder::Text(StringBuilder::with_capacity(rows, rows * 16)),
            Value::Time => Builder::Time(Vec::with_capacity(rows)),
        }
    }

    fn number(&mut self, value: usize) {
        if let Builder::Number(out) = self {
            out.push(value as i64);
        }
    }

    fn text(&mut self, value: &str) {
        if let Builder::Text(out) = self {
            out.append_value(value);
        }
    }

    fn time(&mut self, millis: u64) {
        if let Builder::Time(out) = self {
            out.push(millis as i64);
        }
    }

    fn array(&mut self) -> ArrayRef {
        match self {
            Builder::Number(v) | Builder::Time(v) => Arc::new(Int64Array::from(std::mem::take(v))),
            Builder::Text(out) => Arc::new(out.finish()),
        }
    }
}

fn append(columns: &mut [Builder], event: &Event) {
    match event {
        Event::Person(p) => {
            columns[0].number(p.id);
            for (column, text) in columns[1..].iter_mut().zip([&p.name, &p.email_address, &p.credit_card, &p.city, &p.state]) {
                column.text(text);
            }
            columns[6].time(p.date_time);
            columns[7].text(&p.extra);
        }
        Event::Auction(a) => {
            columns[0].number(a.id);
            columns[1].text(&a.item_name);
            columns[2].text(&a.description);
            columns[3].number(a.initial_bid);
            columns[4].number(a.reserve);
            columns[5].time(a.date_time);
            columns[6].time(a.expires);
            columns[7].number(a.seller);
            columns[8].number(a.category);
            columns[9].text(&a.extra);
        }
        // Bids have a generator of their own.
        Event::Bid(_) => {}
    }
}

/// A split's progress. Split s of n gives the kind's events s, s + n, ...
struct Split {
    number: u64,
    /// Rows given so far: the offset.
    next: u64,
    generator: Generator,
}

/// Gives the events of one shard's splits.
pub struct NexmarkReader {
    nexmark: Nexmark,
    pace: Pace,
    splits: Vec<Split>,
}

impl NexmarkReader {
    /// A reader that goes on at the saved offsets.
    pub fn new(nexmark: Nexmark, index: u32, count: u32, offsets: &Offsets) -> Result<Self> {
        let mut splits = vec![];
        for number in (0..nexmark.splits).filter(|s| is_split_of(&s.to_string(), index, count)) {
            let next = match offsets.get(&number.to_string()) {
                None => 0,
                Some(text) => {
                    text.parse().map_err(|e| Error::corruption(format!("the offset of nexmark split {number} cannot be read: {e}")))?
                }
            };
            let generator = nexmark.generator(number + next * nexmark.splits, nexmark.splits);
            splits.push(Split { number, next, generator });
        }
        let (_, share) = nexmark.kind.share();
        let share = share as f64 / 50.0 * splits.len() as f64 / nexmark.splits as f64;
        let per_second = (nexmark.gap_ns > 0).then(|| (1e9 / nexmark.gap_ns as f64 * share).max(f64::MIN_POSITIVE));
        Ok(NexmarkReader { nexmark, pace: Pace::new(per_second), splits })
    }

    fn left(&self, split: &Split) -> u64 {
        let rows = self.nexmark.events.map_or(u64::MAX, |e| self.nexmark.kind.count_in(e));
        rows.saturating_sub(split.number).div_ceil(self.nexmark.splits).saturating_sub(split.next)
    }
}

#[async_trait]
impl SourceReader for NexmarkReader {
    async fn next(&mut self, max_rows: usize) -> Result<Option<SourceBatch>> {
        let unfinished = (0..self.splits.len()).filter(|&i| self.left(&self.splits[i]) > 0);
        let Some(at) = unfinished.min_by_key(|&i| self.splits[i].next) else { return Ok(None) };
        let due = self.pace.due(max_rows).await;
        // Nothing is awaited from here on: a dropped call has made no row.
        let count = (due as u64).min(self.left(&self.splits[at])) as usize;
        let split = &mut self.splits[at];
        let rows = self.nexmark.make(&mut split.generator, count)?;
        split.next += count as u64;
        self.pace.give(count);
        Ok(Some(SourceBatch { rows, errors: vec![], offsets: Offsets::from([(split.number.to_string(), split.next.to_string())]) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::compute::concat_batches;
    use arrow::datatypes::TimestampMicrosecondType;
    use std::collections::BTreeMap;

    fn spec(kind: &str, columns: Vec<ColumnDef>, options: &[(&str, &str)]) -> SourceSpec {
        let mut all = BTreeMap::from([
            ("connector".to_owned(), "nexmark".to_owned()),
            ("nexmark.table.type".to_owned(), kind.to_owned()),
            ("nexmark.min.event.gap.in.ns".to_owned(), "0".to_owned()),
        ]);
        all.extend(options.iter().map(|(k, v)| (k.to_string(), v.to_string())));
        SourceSpec { connector: "nexmark".into(), options: all, columns, ..SourceSpec::default() }
    }

    #[test]
    fn kinds_share_one_history() {
        let whole: Vec<Event> = EventGenerator::new(config()).take(1037).collect();
        for (kind, filter) in [(Kind::Person, EventType::Person), (Kind::Auction, EventType::Auction), (Kind::Bid, EventType::Bid)] {
            let wanted: Vec<&Event> = whole.iter().filter(|e| e.event_type() == filter).collect();
            assert_eq!(kind.count_in(1037) as usize, wanted.len());
            let parts = chunks(kind, 1037, 100).unwrap();
            let rows = concat_batches(&parts[0].schema(), &parts).unwrap();
            assert_eq!(rows.num_rows(), wanted.len());
            let times = rows.column_by_name("date_time").unwrap().as_primitive::<TimestampMicrosecondType>();
            let first = rows.column(0).as_primitive::<Int64Type>();
            let extra = rows.column_by_name("extra").unwrap().as_string::<i32>();
            for (i, event) in wanted.iter().enumerate() {
                let (id, text) = match event {
                    Event::Person(p) => (p.id, &p.extra),
                    Event::Auction(a) => (a.id, &a.extra),
                    Event::Bid(b) => (b.auction, &b.extra),
                };
                assert_eq!((times.value(i), first.value(i), extra.value(i)), (event.timestamp() as i64 * 1000, id as i64, text.as_str()));
            }
        }
    }

    /// Far out too, where times are rounded in single precision, and with only some columns.
    #[test]
    fn bids_are_those_of_the_crate() {
        let all = Nexmark::new(Kind::Bid, &Kind::Bid.column_defs(), 1, None, 0).unwrap();
        let numbers = Nexmark::new(Kind::Bid, &Kind::Bid.column_defs()[..3], 1, None, 0).unwrap();
        for (start, step) in [(0, 1), (45, 3), (1_000_003, 1), (987_654_321, 2)] {
            let events = EventGenerator::new(config()).with_type_filter(EventType::Bid).with_offset(start).with_step(step);
            let rows = all.make(&mut all.generator(start, step), 5000).unwrap();
            assert_eq!(numbers.make(&mut numbers.generator(start, step), 5000).unwrap(), rows.project(&[0, 1, 2]).unwrap());
            let number = |c: usize, i: usize| rows.column(c).as_primitive::<Int64Type>().value(i) as usize;
            let text = |c: usize, i: usize| rows.column(c).as_string::<i32>().value(i).to_owned();
            let times = rows.column(5).as_primitive::<TimestampMicrosecondType>();
            for (i, event) in events.take(5000).enumerate() {
                let Event::Bid(wanted) = event else { panic!("only bids") };
                let bid = ::nexmark::event::Bid {
                    auction: number(0, i),
                    bidder: number(1, i),
                    price: number(2, i),
                    channel: text(3, i),
                    url: text(4, i),
                    date_time: times.value(i) as u64 / 1000,
                    extra: text(6, i),
                };
                assert_eq!(bid, wanted, "bid {i} from {start} by {step}");
            }
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_bounded_source_ends_and_goes_on_after_a_restart() {
        let spec = spec("Bid", Kind::Bid.column_defs(), &[("nexmark.event.num", "1000")]);
        let all = chunks(Kind::Bid, 1000, usize::MAX).unwrap().remove(0);
        let mut reader = crate::open(&spec, 0, 1, Offsets::new()).await.unwrap();
        let first = reader.next(300).await.unwrap().unwrap();
        assert_eq!(first.rows, all.slice(0, 300));
        let mut again = crate::open(&spec, 0, 1, first.offsets).await.unwrap();
        let rest = again.next(10_000).await.unwrap().unwrap();
        assert_eq!(rest.rows, all.slice(300, 620));
        assert!(again.next(10_000).await.unwrap().is_none());
    }

    #[test]
    fn wrong_options_and_columns_are_named() {
        let bid = Kind::Bid.column_defs();
        let message = |spec: SourceSpec| crate::validate(&spec).unwrap_err().message().to_owned();
        assert!(message(spec("bids", bid.clone(), &[])).contains("\"bids\""));
        assert!(message(spec("bid", bid.clone(), &[("nexmark.splitnum", "1")])).contains("\"nexmark.splitnum\""));
        assert!(message(spec("bid", vec![ColumnDef::new("seller", DataType::Int64)], &[])).contains("\"seller\""));
        assert!(message(spec("bid", vec![ColumnDef::new("price", DataType::Utf8)], &[])).contains("\"price\""));
        assert!(crate::validate(&spec("BID", bid, &[("nexmark.event.num", "-1")])).is_ok());
    }
}
