//! Reads one Parquet file: row groups are fetched and decoded one after another, columns are matched by name and cast.
//!
//! The offset is the number of rows read. A value that does not fit its column makes an error record of its row.

use super::fetch::{Fetched, fetch};
use super::offset::FileOffset;
use crate::columns::{shown, sql_name};
use crate::{Offsets, SourceBatch, decode_error};
use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::SchemaRef;
use arrow::util::display::array_value_to_string;
use bytes::Bytes;
use eddyline_env::spawn;
use eddyline_objects::Objects;
use eddyline_protocol::catalog::schema_of;
use eddyline_protocol::{ColumnDef, ErrorRecord};
use eddyline_types::{Error, Result, SqlState};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStream, ParquetRecordBatchStreamBuilder};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use std::ops::Range;
use std::sync::Arc;

/// Rows decoded at a time; batches are slices of them.
const DECODE_ROWS: usize = 8192;

/// Ranges of one object for the Parquet reader. Requests run on the shared runtime.
#[derive(Clone)]
pub(crate) struct ObjectReader {
    pub(crate) objects: Objects,
    pub(crate) name: String,
    pub(crate) size: u64,
}

impl AsyncFileReader for ObjectReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        let (objects, name) = (self.objects.clone(), self.name.clone());
        async move {
            let request = spawn::task("read a file", async move { fetch(&objects, &name, range).await });
            match request.await.map_err(|e| ParquetError::General(e.to_string()))? {
                Ok(Fetched::Bytes(bytes)) => Ok(bytes),
                Ok(Fetched::Gone(why)) => Err(ParquetError::General(why.to_owned())),
                Err(e) => Err(ParquetError::External(Box::new(e))),
            }
        }
        .boxed()
    }

    fn get_metadata<'a>(&'a mut self, _: Option<&'a ArrowReaderOptions>) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        async move {
            let size = self.size;
            Ok(Arc::new(ParquetMetaDataReader::new().load_and_finish(self, size).await?))
        }
        .boxed()
    }
}

/// A file being read.
pub(crate) struct ParquetFile {
    split: String,
    stream: ParquetRecordBatchStream<ObjectReader>,
    defs: Vec<ColumnDef>,
    schema: SchemaRef,
    /// For each column of the relation: its position among the columns read, if the file has it.
    mapping: Vec<Option<usize>>,
    /// Decoded rows that are not given yet.
    rest: Option<RecordBatch>,
    errors: Vec<ErrorRecord>,
    state: FileOffset,
    total_rows: u64,
}

impl ParquetFile {
    /// Opens the file behind `state.at` rows. An error means that the file is no Parquet file of these columns.
    pub(crate) async fn open(reader: ObjectReader, split: String, defs: Vec<ColumnDef>, state: FileOffset) -> Result<Self> {
        let unreadable = |e: ParquetError| Error::user(SqlState::DATA_EXCEPTION, format!("the file cannot be read as Parquet: {e}"));
        let builder = ParquetRecordBatchStreamBuilder::new(reader).await.map_err(unreadable)?;
        let fields = builder.schema().fields().clone();
        let names: Vec<&str> = fields.iter().map(|f| f.name().as_str()).collect();
        let found: Vec<Option<usize>> = defs.iter().map(|c| super::match_name(&names, &c.name)).collect();
        if found.iter().all(Option::is_none) {
            return Err(Error::user(SqlState::DATA_EXCEPTION, "the file has none of the columns"));
        }
        for (def, at) in defs.iter().zip(&found) {
            let Some(field) = at.map(|at| &fields[at]) else { continue };
            if !can_cast_types(field.data_type(), &def.data_type) {
                let wanted = sql_name(&def.data_type).unwrap_or("its type");
                let message =
                    format!("column \"{}\" has type {} in the file, which cannot be read as {wanted}", def.name, field.data_type());
                return Err(Error::user(SqlState::DATATYPE_MISMATCH, message));
            }
        }
        let mut read: Vec<usize> = found.iter().flatten().copied().collect();
        read.sort_unstable();
        read.dedup();
        let mapping = found.iter().map(|at| at.and_then(|at| read.binary_search(&at).ok())).collect();
        let mut errors = vec![];
        if state.at == 0 {
            for (def, _) in defs.iter().zip(&found).filter(|(_, at)| at.is_none()) {
                errors.push(decode_error("decode", &super::missing_column(&def.name), Some(def.name.clone()), &split, None, None));
            }
        }
        let total_rows = builder.metadata().file_metadata().num_rows().max(0) as u64;
        let mask = ProjectionMask::roots(builder.parquet_schema(), read);
        let stream =
            builder.with_projection(mask).with_offset(state.at as usize).with_batch_size(DECODE_ROWS).build().map_err(unreadable)?;
        let state = FileOffset { line: 0, done: false, ..state };
        Ok(ParquetFile { split, stream, schema: schema_of(&defs), defs, mapping, rest: None, errors, state, total_rows })
    }

    /// The next rows, or `None` at the end. Cancel-safe: what was decoded is kept in `self` before anything is given.
    pub(crate) async fn next(&mut self, max_rows: usize) -> Result<Option<SourceBatch>> {
        if self.state.done {
            return Ok(None);
        }
        if self.rest.is_none() {
            match self.stream.next().await {
                Some(Ok(batch)) => self.rest = Some(batch),
                Some(Err(e)) => {
                    let error = Error::user(SqlState::DATA_EXCEPTION, format!("the file cannot be read as Parquet: {e}"));
                    self.errors.push(decode_error("source", &error, None, &self.split, None, None));
                    self.state = std::mem::take(&mut self.state).abandon();
                }
                None => self.state.done = true,
            }
        }
        let rows = match self.rest.take() {
            None => RecordBatch::new_empty(self.schema.clone()),
            Some(batch) => {
                let n = batch.num_rows().min(max_rows.max(1));
                if n < batch.num_rows() {
                    self.rest = Some(batch.slice(n, batch.num_rows() - n));
                }
                let rows = self.convert(&batch.slice(0, n))?;
                self.state.at += n as u64;
                self.state.done = self.state.at >= self.total_rows;
                rows
            }
        };
        let offsets = Offsets::from([(self.split.clone(), self.state.to_text())]);
        Ok(Some(SourceBatch { rows, errors: std::mem::take(&mut self.errors), offsets }))
    }

    /// Casts to the relation's columns; rows with a value that does not fit become errors.
    fn convert(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let mut bad = BadRows { rows: vec![false; batch.num_rows()], errors: vec![], split: &self.split, before: self.state.at };
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.defs.len());
        for (def, at) in self.defs.iter().zip(&self.mapping) {
            let array = match at {
                None => new_null_array(&def.data_type, batch.num_rows()),
                Some(at) => cast(batch.column(*at), def, &mut bad)?,
            };
            if !def.nullable && array.null_count() > 0 {
                for row in (0..array.len()).filter(|&r| array.is_null(r)) {
                    let message = format!("null value in column \"{}\" violates not-null constraint", def.name);
                    bad.reject(row, &Error::user(SqlState::NOT_NULL_VIOLATION, message), &def.name);
                }
            }
            arrays.push(array);
        }
        let keep: BooleanArray = bad.rows.iter().map(|b| Some(!b)).collect();
        let rows = keep.true_count();
        if rows < batch.num_rows() {
            // The final schema may forbid NULL where a bad row has one: filter first, without it.
            for array in &mut arrays {
                *array = arrow::compute::filter(array, &keep)?;
            }
        }
        self.errors.append(&mut bad.errors);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?)
    }
}

/// A column of the file in the relation's type.
fn cast(from: &ArrayRef, def: &ColumnDef, bad: &mut BadRows) -> Result<ArrayRef> {
    if from.data_type() == &def.data_type {
        return Ok(from.clone());
    }
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let to = cast_with_options(from, &def.data_type, &options)?;
    if to.null_count() > from.null_count() {
        for row in (0..to.len()).filter(|&r| to.is_null(r) && from.is_valid(r)) {
            let value = array_value_to_string(from, row).unwrap_or_default();
            let type_name = sql_name(&def.data_type).unwrap_or("its type");
            let message = format!("column \"{}\": value \"{}\" cannot be read as {type_name}", def.name, shown(value.as_bytes()));
            bad.reject(row, &Error::user(SqlState::INVALID_TEXT, message), &def.name);
        }
    }
    Ok(to)
}

/// Rows of a batch that cannot be given, each with its first error.
struct BadRows<'a> {
    rows: Vec<bool>,
    errors: Vec<ErrorRecord>,
    split: &'a str,
    /// Rows of the file before the batch.
    before: u64,
}

impl BadRows<'_> {
    /// Records a row's first error; the position is the 1-based row of the file.
    fn reject(&mut self, row: usize, error: &Error, column: &str) {
        if !std::mem::replace(&mut self.rows[row], true) {
            let mut record = decode_error("decode", error, Some(column.to_owned()), self.split, None, None);
            record.source_position = Some(serde_json::json!({"file": self.split, "row": self.before + row as u64 + 1}).to_string());
            self.errors.push(record);
        }
    }
}
