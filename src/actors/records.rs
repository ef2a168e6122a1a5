//! Error records of one shard: collected while an epoch runs, written to the job's errors table at its barrier.
//!
//! At most `MAX_RECORDS_PER_EPOCH` records a shard and epoch are kept; the rest is counted and told in one more record.
//! The id is a hash of the shard's operator and of what failed, so equal failures of one epoch are one record.

use arrow::array::{ArrayRef, BinaryBuilder, Int32Array, Int64Array, Int64Builder, RecordBatch, StringBuilder, TimestampMicrosecondArray};
use arrow::compute;
use eddyline_env::clock;
use eddyline_protocol::{ErrorRecord, TableDesc, report};
use eddyline_store::TableWrite;
use eddyline_types::{Epoch, Error, JobId, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// See the module's documentation.
pub struct ErrorLog {
    job: JobId,
    shard: u32,
    table: Option<TableDesc>,
    /// By operator and id: the order of the table's key within an epoch.
    records: BTreeMap<(Arc<str>, i64), ErrorRecord>,
    /// Records that were not kept, in this epoch.
    surplus: u64,
    /// All records so far.
    total: u64,
}

impl ErrorLog {
    /// An empty log; without a table records are only counted.
    pub fn new(job: JobId, shard: u32, table: Option<TableDesc>) -> Self {
        ErrorLog { job, shard, table, records: BTreeMap::new(), surplus: 0, total: 0 }
    }

    /// Takes what an operator recorded.
    pub fn take(&mut self, operator: &Arc<str>, records: &mut Vec<ErrorRecord>) {
        self.total += records.len() as u64;
        for record in records.drain(..) {
            if self.records.len() >= report::MAX_RECORDS_PER_EPOCH {
                self.surplus += 1;
                continue;
            }
            let id = self.id_of(operator, &record);
            self.records.insert((operator.clone(), id), record);
        }
    }

    /// Records since the shard started.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The epoch's records as a write to the errors table; the log is empty afterwards.
    pub fn seal(&mut self, epoch: Epoch) -> Result<Option<TableWrite>> {
        if self.surplus > 0 {
            let message = format!("{} more records of this shard and epoch were counted but not kept", self.surplus);
            let record = ErrorRecord { kind: "surplus".into(), sqlstate: "54000".into(), message, ..ErrorRecord::default() };
            let operator: Arc<str> = "ErrorLog".into();
            let id = self.id_of(&operator, &record);
            self.records.insert((operator, id), record);
            self.surplus = 0;
        }
        let records = std::mem::take(&mut self.records);
        let Some(table) = &self.table else { return Ok(None) };
        if records.is_empty() {
            return Ok(None);
        }
        let rows = self.batch(records, epoch)?;
        sorted_write(table, rows, None).map(Some)
    }

    fn id_of(&self, operator: &str, record: &ErrorRecord) -> i64 {
        let mut hash = Xxh3::new();
        let mut part = |bytes: Option<&[u8]>| {
            hash.update(&(bytes.map_or(u64::MAX, |b| b.len() as u64)).to_le_bytes());
            hash.update(bytes.unwrap_or_default());
        };
        part(Some(&self.shard.to_le_bytes()));
        part(Some(operator.as_bytes()));
        part(Some(record.kind.as_bytes()));
        part(record.expression.as_ref().map(String::as_bytes));
        part(record.source_position.as_ref().map(String::as_bytes));
        part(record.payload.as_deref());
        part(record.row.as_ref().map(String::as_bytes));
        part(Some(record.message.as_bytes()));
        hash.digest() as i64
    }

    fn batch(&self, records: BTreeMap<(Arc<str>, i64), ErrorRecord>, epoch: Epoch) -> Result<RecordBatch> {
        let count = records.len();
        let mut ids = Int64Builder::with_capacity(count);
        let mut payloads = BinaryBuilder::new();
        let mut texts: [StringBuilder; 7] = Default::default();
        let [operators, kinds, expressions, positions, rows, sqlstates, messages] = &mut texts;
        for ((operator, id), record) in records {
            ids.append_value(id);
            operators.append_value(operator);
            kinds.append_value(record.kind);
            expressions.append_option(record.expression);
            positions.append_option(record.source_position);
            payloads.append_option(record.payload);
            rows.append_option(record.row);
            sqlstates.append_value(record.sqlstate);
            messages.append_value(record.message);
        }
        let [operators, kinds, expressions, positions, rows, sqlstates, messages] =
            texts.each_mut().map(|t| Arc::new(t.finish()) as ArrayRef);
        let times = TimestampMicrosecondArray::from(vec![clock::unix_micros() as i64; count]).with_timezone("UTC");
        let columns: Vec<ArrayRef> = vec![
            Arc::new(ids.finish()),
            Arc::new(times),
            Arc::new(Int64Array::from(vec![epoch.0 as i64; count])),
            Arc::new(Int32Array::from(vec![self.job.0 as i32; count])),
            operators,
            kinds,
            expressions,
            positions,
            Arc::new(payloads.finish()),
            rows,
            sqlstates,
            messages,
        ];
        Ok(RecordBatch::try_new(report::errors_schema(), columns)?)
    }
}

/// Rows of a table as a write, with their keys in ascending order.
pub fn sorted_write(table: &TableDesc, rows: RecordBatch, tombstones: Option<arrow::array::BooleanArray>) -> Result<TableWrite> {
    let columns: Vec<ArrayRef> = table.key_columns().into_iter().map(|c| rows.column(c).clone()).collect();
    let keys = table.key_codec()?.encode(&columns, rows.num_rows())?;
    let order = compute::sort_to_indices(&keys, None, None)?;
    let keys = compute::take(&keys, &order, None)?;
    let keys = keys.as_any().downcast_ref().cloned().ok_or_else(|| Error::internal("take keeps the type"))?;
    let tombstones = match tombstones {
        Some(t) => compute::take(&t, &order, None)?.as_any().downcast_ref().cloned(),
        None => None,
    };
    Ok(TableWrite { table: table.id, keys, rows: compute::take_record_batch(&rows, &order)?, tombstones })
}
