//! The `datagen` connector: rows made up by column, at a rate.
//!
//! Every value is a pure function of its row number, the column's seed and, for times, the base time that is stored with the
//! offset: a replay from an offset gives the same rows.

mod field;

use crate::columns::check_types;
use crate::options::Options;
use crate::pace::Pace;
use crate::{Offsets, SourceBatch, SourceReader, is_split_of};
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use eddyline_env::clock;
use eddyline_protocol::SourceSpec;
use eddyline_protocol::catalog::schema_of;
use eddyline_types::{Error, Result, SqlState};
use field::Field;
use serde::{Deserialize, Serialize};

/// Checked settings of a generator.
#[derive(Clone, Debug)]
pub struct Datagen {
    schema: SchemaRef,
    fields: Vec<Field>,
    per_second: f64,
    splits: u64,
    /// Rows there are, if a sequence ends.
    rows: Option<u64>,
}

/// Rows a generator makes: numbers `first`, `first + step`, ... and the moment that row 0 stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub(crate) first: u64,
    pub(crate) step: u64,
    pub(crate) count: usize,
    /// Microseconds since the Unix epoch.
    pub(crate) base_us: i64,
    /// Rows per second: row n is made `n / per_second` after the base time.
    pub(crate) per_second: f64,
}

impl Rows {
    /// The row numbers.
    pub(crate) fn numbers(self) -> impl Iterator<Item = u64> {
        (0..self.count as u64).map(move |i| self.first + i * self.step)
    }
}

impl Datagen {
    /// Reads and checks the options.
    pub fn parse(spec: &SourceSpec) -> Result<Self> {
        check_types(&spec.columns)?;
        if !matches!(spec.format.as_str(), "" | "plain" | "native") || !matches!(spec.encode.as_str(), "" | "json" | "native") {
            return Err(Error::user(SqlState::INVALID_PARAMETER_VALUE, "connector \"datagen\" makes rows itself and decodes nothing")
                .with_hint("Use FORMAT PLAIN ENCODE JSON, or leave the clause out."));
        }
        Options::new(&spec.encode_options).finish("ENCODE of connector \"datagen\"")?;
        let mut options = Options::new(&spec.options);
        let per_second = options.number("datagen.rows.per.second", 1, 5000)? as f64;
        let splits = options.number("datagen.split.num", 1, 1)?;
        let fields = spec.columns.iter().map(|c| Field::parse(c, &mut options)).collect::<Result<Vec<_>>>()?;
        options.finish("connector \"datagen\"")?;
        let rows = fields.iter().filter_map(Field::rows).min();
        Ok(Datagen { schema: schema_of(&spec.columns), fields, per_second, splits, rows })
    }

    fn make(&self, rows: Rows) -> Result<RecordBatch> {
        let arrays = self.fields.iter().map(|f| f.array(rows)).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.count));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?)
    }
}

/// Offset of a split: rows made by it so far, and the base time of its times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct SplitOffset {
    next: u64,
    base_us: i64,
}

/// Makes the rows of one shard's splits.
pub struct DatagenReader {
    datagen: Datagen,
    pace: Pace,
    /// Split number and where it is. Split s of n makes rows s, s + n, ...
    splits: Vec<(u64, SplitOffset)>,
}

impl DatagenReader {
    /// A reader that goes on at the saved offsets. A split without one starts at row 0, now.
    pub fn new(datagen: Datagen, index: u32, count: u32, offsets: &Offsets) -> Result<Self> {
        let now = clock::unix_micros() as i64;
        let mut splits = vec![];
        for split in (0..datagen.splits).filter(|s| is_split_of(&s.to_string(), index, count)) {
            let offset = match offsets.get(&split.to_string()) {
                None => SplitOffset { next: 0, base_us: now },
                Some(text) => serde_json::from_str(text)
                    .map_err(|e| Error::corruption(format!("the offset of datagen split {split} cannot be read: {e}")))?,
            };
            splits.push((split, offset));
        }
        let share = splits.len() as f64 / datagen.splits as f64;
        let pace = Pace::new(Some((datagen.per_second * share).max(f64::MIN_POSITIVE)));
        Ok(DatagenReader { datagen, pace, splits })
    }

    /// Rows that a split has in all.
    fn rows_of(&self, split: u64) -> u64 {
        self.datagen.rows.map_or(u64::MAX, |rows| rows.saturating_sub(split).div_ceil(self.datagen.splits))
    }
}

#[async_trait]
impl SourceReader for DatagenReader {
    async fn next(&mut self, max_rows: usize) -> Result<Option<SourceBatch>> {
        let left = |r: &Self, (split, offset): (u64, SplitOffset)| r.rows_of(split).saturating_sub(offset.next);
        // The split that is furthest behind, so that all advance alike.
        let at = (0..self.splits.len()).filter(|&i| left(self, self.splits[i]) > 0).min_by_key(|&i| self.splits[i].1.next);
        let Some(at) = at else { return Ok(None) };
        let due = self.pace.due(max_rows).await;
        // Nothing is awaited from here on: a dropped call has made no row.
        let (split, offset) = self.splits[at];
        let share = due.div_ceil(self.splits.len()).max(1);
        let count = (share as u64).min(left(self, self.splits[at])) as usize;
        let rows = self.datagen.make(Rows {
            first: split + offset.next * self.datagen.splits,
            step: self.datagen.splits,
            count,
            base_us: offset.base_us,
            per_second: self.datagen.per_second,
        })?;
        let offset = SplitOffset { next: offset.next + count as u64, ..offset };
        self.splits[at].1 = offset;
        self.pace.give(count);
        let text = serde_json::to_string(&offset).expect("two numbers have a JSON form");
        Ok(Some(SourceBatch { rows, errors: vec![], offsets: Offsets::from([(split.to_string(), text)]) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;
    use arrow::datatypes::{DataType, Int64Type, TimeUnit, TimestampMicrosecondType};
    use eddyline_protocol::ColumnDef;
    use std::collections::BTreeMap;

    pub(crate) fn spec(columns: &[(&str, DataType)], options: &[(&str, &str)]) -> SourceSpec {
        SourceSpec {
            connector: "datagen".into(),
            options: options.iter().map(|(k, v)| (k.to_string(), v.to_string())).chain([("connector".into(), "datagen".into())]).collect(),
            format: "plain".into(),
            encode: "json".into(),
            encode_options: BTreeMap::new(),
            columns: columns.iter().map(|(n, t)| ColumnDef::new(*n, t.clone())).collect(),
        }
    }

    fn all_types() -> Vec<(&'static str, DataType)> {
        use arrow::datatypes::IntervalUnit;
        vec![
            ("b", DataType::Boolean),
            ("i2", DataType::Int16),
            ("i4", DataType::Int32),
            ("i8", DataType::Int64),
            ("f4", DataType::Float32),
            ("f8", DataType::Float64),
            ("n", DataType::Decimal128(10, 2)),
            ("s", DataType::Utf8),
            ("x", DataType::Binary),
            ("d", DataType::Date32),
            ("t", DataType::Time64(TimeUnit::Microsecond)),
            ("ts", DataType::Timestamp(TimeUnit::Microsecond, None)),
            ("tz", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
            ("iv", DataType::Interval(IntervalUnit::MonthDayNano)),
        ]
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_restart_goes_on_with_the_next_row_and_gives_the_same_rows() {
        let spec = spec(&all_types(), &[("datagen.rows.per.second", "1000000"), ("fields.i8.kind", "sequence"), ("fields.i8.start", "5")]);
        let mut reader = crate::open(&spec, 0, 1, Offsets::new()).await.unwrap();
        let first = reader.next(10).await.unwrap().unwrap();
        assert_eq!(first.rows.num_rows(), 10);
        let second = reader.next(10).await.unwrap().unwrap();
        let mut again = crate::open(&spec, 0, 1, first.offsets.clone()).await.unwrap();
        let replayed = again.next(10).await.unwrap().unwrap();
        assert_eq!(replayed.rows, second.rows);
        assert_eq!(replayed.offsets, second.offsets);
        let sequence = second.rows.column_by_name("i8").unwrap().as_primitive::<Int64Type>();
        assert_eq!((sequence.value(0), sequence.value(9)), (15, 24));
        let now = clock::unix_micros() as i64;
        let times = first.rows.column_by_name("ts").unwrap().as_primitive::<TimestampMicrosecondType>();
        assert!(times.values().iter().all(|t| *t <= now && *t > now - 86_400_000_000 - 10_000_000));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn splits_cover_a_sequence_once_and_it_ends() {
        let options = [
            ("datagen.split.num", "3"),
            ("datagen.rows.per.second", "1000000"),
            ("fields.id.kind", "sequence"),
            ("fields.id.start", "1"),
            ("fields.id.end", "1000"),
        ];
        let spec = spec(&[("id", DataType::Int64)], &options);
        let mut seen = vec![];
        for index in 0..2 {
            let mut reader = crate::open(&spec, index, 2, Offsets::new()).await.unwrap();
            while let Some(batch) = reader.next(64).await.unwrap() {
                seen.extend_from_slice(batch.rows.column(0).as_primitive::<Int64Type>().values());
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (1..=1000).collect::<Vec<_>>());
    }

    #[test]
    fn wrong_options_are_named() {
        let columns = [("user_id", DataType::Int64), ("url", DataType::Utf8), ("ts", DataType::Timestamp(TimeUnit::Microsecond, None))];
        for (name, value, part) in [
            ("fields.nobody.min", "1", "\"fields.nobody.min\""),
            ("fields.user_id.mim", "1", "\"fields.user_id.mim\""),
            ("fields.user_id.min", "one", "\"one\""),
            ("fields.user_id.kind", "sequenc", "\"sequenc\""),
            ("fields.user_id.min", "40000", "min"),
            ("fields.url.length", "-1", "\"-1\""),
            ("fields.url.kind", "sequence", "sequence"),
            ("fields.ts.max_past", "long ago", "\"long ago\""),
            ("fields.ts.max_past_mode", "sometimes", "\"sometimes\""),
            ("datagen.rows.per.second", "0", "datagen.rows.per.second"),
            ("datagen.rowsper.second", "5", "\"datagen.rowsper.second\""),
        ] {
            let error = crate::validate(&spec(&columns, &[(name, value)])).unwrap_err();
            assert!(error.message().contains(part), "{name}: {error}");
            assert_eq!(error.sqlstate(), SqlState::INVALID_PARAMETER_VALUE);
        }
        assert!(crate::validate(&spec(&columns, &[("fields.user_id.min", "1"), ("fields.user_id.max", "1000")])).is_ok());
        let list = DataType::List(std::sync::Arc::new(arrow::datatypes::Field::new("item", DataType::Int32, true)));
        assert!(crate::validate(&spec(&[("l", list)], &[])).is_err());
    }
}
