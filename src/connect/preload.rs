//! The `preload` connector: chunks that this process put into memory before, for benchmarks that must not count the source.
//!
//! It is not meant for SQL users: nothing survives the process. Offsets are the number of chunks given.

use crate::options::Options;
use crate::{Offsets, SourceBatch, SourceReader, is_split_of};
use arrow::array::RecordBatch;
use async_trait::async_trait;
use eddyline_protocol::SourceSpec;
use eddyline_protocol::catalog::schema_of;
use eddyline_types::{Error, Result, SqlState};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

type Registry = Mutex<BTreeMap<String, Arc<Vec<RecordBatch>>>>;

fn registry() -> &'static Registry {
    static CHUNKS: OnceLock<Registry> = OnceLock::new();
    CHUNKS.get_or_init(Mutex::default)
}

/// Keeps chunks under a name, for sources `WITH (connector = 'preload', preload.name = '<name>')`. Replaces earlier ones.
pub fn put(name: &str, chunks: Vec<RecordBatch>) {
    registry().lock().insert(name.to_owned(), Arc::new(chunks));
}

/// Forgets the chunks of a name. Readers that are open keep them.
pub fn remove(name: &str) {
    registry().lock().remove(name);
}

/// Name and number of splits.
fn settings(spec: &SourceSpec) -> Result<(String, u64)> {
    let mut options = Options::new(&spec.options);
    let name = options.required("preload.name", "the name that the chunks were put under")?.to_owned();
    let splits = options.number("preload.split.num", 1, 1)?;
    options.finish("connector \"preload\"")?;
    Ok((name, splits))
}

fn find(name: &str) -> Result<Arc<Vec<RecordBatch>>> {
    registry()
        .lock()
        .get(name)
        .cloned()
        .ok_or_else(|| Error::user(SqlState::INVALID_PARAMETER_VALUE, format!("no chunks were put into memory under the name \"{name}\"")))
}

/// Checks options and that the chunks have the source's columns.
pub(crate) fn check(spec: &SourceSpec) -> Result<()> {
    let (name, _) = settings(spec)?;
    positions(spec, &find(&name)?).map(drop)
}

/// Where the source's columns are in the chunks.
fn positions(spec: &SourceSpec, chunks: &[RecordBatch]) -> Result<Vec<usize>> {
    let Some(chunk) = chunks.first() else { return Ok(vec![]) };
    let schema = chunk.schema();
    let position = |c: &eddyline_protocol::ColumnDef| {
        schema.fields().iter().position(|f| *f.name() == c.name && *f.data_type() == c.data_type).ok_or_else(|| {
            let message = format!("the chunks in memory have no column \"{}\" of type {}", c.name, c.data_type);
            Error::user(SqlState::INVALID_PARAMETER_VALUE, message)
        })
    };
    spec.columns.iter().map(position).collect()
}

/// Gives the chunks of one shard's splits. Split s of n has chunks s, s + n, ...
pub(crate) struct PreloadReader {
    chunks: Arc<Vec<RecordBatch>>,
    schema: arrow::datatypes::SchemaRef,
    positions: Vec<usize>,
    count: u64,
    /// Split number and chunks given.
    splits: Vec<(u64, u64)>,
}

impl PreloadReader {
    pub(crate) fn new(spec: &SourceSpec, index: u32, count: u32, offsets: &Offsets) -> Result<Self> {
        let (name, split_count) = settings(spec)?;
        let chunks = find(&name)?;
        let positions = positions(spec, &chunks)?;
        let mut splits = vec![];
        for split in (0..split_count).filter(|s| is_split_of(&s.to_string(), index, count)) {
            let given = offsets.get(&split.to_string()).map_or(Ok(0), |text| text.parse());
            splits.push((split, given.map_err(|e| Error::corruption(format!("the offset of split {split} cannot be read: {e}")))?));
        }
        Ok(PreloadReader { chunks, schema: schema_of(&spec.columns), positions, count: split_count, splits })
    }
}

#[async_trait]
impl SourceReader for PreloadReader {
    /// A chunk is given whole, whatever `max_rows` says: cutting it would be counted to the engine.
    async fn next(&mut self, _max_rows: usize) -> Result<Option<SourceBatch>> {
        let left = |(split, given): &(u64, u64)| ((split + given * self.count) as usize) < self.chunks.len();
        let Some(at) = (0..self.splits.len()).filter(|&i| left(&self.splits[i])).min_by_key(|&i| self.splits[i].1) else { return Ok(None) };
        let (split, given) = &mut self.splits[at];
        let chunk = &self.chunks[(*split + *given * self.count) as usize];
        let columns = self.positions.iter().map(|&p| chunk.column(p).clone()).collect();
        let rows = RecordBatch::try_new(self.schema.clone(), columns)?;
        *given += 1;
        Ok(Some(SourceBatch { rows, errors: vec![], offsets: Offsets::from([(split.to_string(), given.to_string())]) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nexmark::{Kind, chunks};

    #[tokio::test]
    async fn chunks_come_back_by_split_and_offset() {
        put("preload-test", chunks(Kind::Person, 1000, 4).unwrap());
        let options = [("connector", "preload"), ("preload.name", "preload-test"), ("preload.split.num", "2")];
        let spec = SourceSpec {
            connector: "preload".into(),
            options: options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            columns: Kind::Person.column_defs()[..2].to_vec(),
            ..SourceSpec::default()
        };
        crate::validate(&spec).unwrap();
        let mut rows = 0;
        for index in 0..2 {
            let mut reader = crate::open(&spec, index, 2, Offsets::new()).await.unwrap();
            let first = reader.next(1).await.unwrap().unwrap();
            rows += first.rows.num_rows();
            let mut reader = crate::open(&spec, index, 2, first.offsets).await.unwrap();
            while let Some(batch) = reader.next(1).await.unwrap() {
                rows += batch.rows.num_rows();
            }
        }
        assert_eq!(rows, 20);
        remove("preload-test");
        assert!(crate::validate(&spec).unwrap_err().message().contains("preload-test"));
    }
}
