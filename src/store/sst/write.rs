//! Building a file: sections in table order, rows in key order, cut into blocks.

use super::encode::{BlockEncoder, check_schema, encode_schema};
use super::format::{FULL_KEY, Index, Part, SectionEntry, crc, encode_footer};
use crate::block::{Block, Epochs};
use crate::filter::{self, Filter};
use arrow::compute::{concat, concat_batches};
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use eddyline_protocol::SstInfo;
use eddyline_protocol::version::SstTable;
use eddyline_types::{Epoch, Error, Result, TableId};

/// Rows of a block at most, however narrow they are: point reads pay for the whole block.
const MAX_BLOCK_ROWS: usize = 8192;

/// Builds one file in memory.
pub(crate) struct SstBuilder {
    block_size: usize,
    encoder: BlockEncoder,
    out: Vec<u8>,
    sections: Vec<SectionEntry>,
    tables: Vec<SstTable>,
    current: Option<Section>,
    tombstones: u64,
    epochs: Option<(Epoch, Epoch)>,
}

/// The section that is being written.
struct Section {
    table: TableId,
    index: Index,
    hashes: Vec<u64>,
    rows: u64,
    /// Rows that wait for a full block.
    pending: Vec<Block>,
    pending_rows: usize,
    /// Rows of a block, from the width of the rows seen.
    block_rows: usize,
}

impl SstBuilder {
    pub(crate) fn new(block_size: usize) -> Result<Self> {
        Ok(SstBuilder {
            block_size,
            encoder: BlockEncoder::new()?,
            out: vec![],
            sections: vec![],
            tables: vec![],
            current: None,
            tombstones: 0,
            epochs: None,
        })
    }

    /// Starts the section of a table; tables come in ascending order.
    pub(crate) fn start_table(&mut self, table: TableId, schema: &SchemaRef) -> Result<()> {
        check_schema(schema)?;
        self.finish_table()?;
        if self.sections.last().is_some_and(|s| s.table >= table) {
            return Err(Error::internal("tables of a file are not ascending"));
        }
        self.current = Some(Section {
            table,
            index: Index { schema: encode_schema(schema), ..Index::default() },
            hashes: vec![],
            rows: 0,
            pending: vec![],
            pending_rows: 0,
            block_rows: 1,
        });
        Ok(())
    }

    /// Adds rows that come after all rows of the section so far. Versions of one key must come in one call or at least be cut by none
    /// of the caller's limits: blocks are cut only between keys.
    pub(crate) fn add(&mut self, block: Block) -> Result<()> {
        if block.len() == 0 {
            return Ok(());
        }
        let section = self.current.as_mut().expect("a table was started");
        let width = (block.memory_bytes() / block.len()).max(1);
        section.block_rows = (self.block_size / width).clamp(1, MAX_BLOCK_ROWS);
        section.rows += block.len() as u64;
        section.pending_rows += block.len();
        section.pending.push(block);
        while self.current.as_ref().is_some_and(|s| s.pending_rows >= s.block_rows) {
            self.cut()?;
        }
        Ok(())
    }

    /// Bytes written so far: tells when to begin another file.
    pub(crate) fn size(&self) -> usize {
        self.out.len()
    }

    /// Writes one block of about `block_rows` rows from the front of the pending rows.
    fn cut(&mut self) -> Result<()> {
        let section = self.current.as_mut().expect("a table was started");
        if section.pending.len() > 1 && section.pending[0].len() < section.block_rows {
            let (mut many, mut rows) = (0, 0);
            while rows < section.block_rows && many < section.pending.len() {
                rows += section.pending[many].len();
                many += 1;
            }
            let joined = join(&section.pending[..many])?;
            drop(section.pending.splice(..many, [joined]));
        }
        let front = &section.pending[0];
        let mut rows = section.block_rows.min(front.len());
        // A short rest is better in this block than alone in the next.
        if section.pending.len() == 1 && front.len() - rows < section.block_rows / 4 {
            rows = front.len();
        }
        while rows < front.len() && matches!(front.epochs, Epochs::Each(_)) && front.key(rows) == front.key(rows - 1) {
            rows += 1;
        }
        let block = front.slice(0, rows);
        if rows == front.len() {
            section.pending.remove(0);
        } else {
            section.pending[0] = front.slice(rows, front.len() - rows);
        }
        section.pending_rows -= rows;
        self.write(&block)
    }

    fn write(&mut self, block: &Block) -> Result<()> {
        let section = self.current.as_mut().expect("a table was started");
        let last = block.len() - 1;
        if section.index.last_keys.last().is_some_and(|k| **k >= *block.key(0)) {
            return Err(Error::internal(format!("keys of table {} are not ascending in a new file", section.table)));
        }
        let entry = self.encoder.encode(block, &mut self.out)?;
        section.index.first_keys.push(block.key(0).into());
        section.index.last_keys.push(block.key(last).into());
        section.hashes.extend((0..block.len()).map(|row| filter::hash(block.key(row))));
        let (low, high) = entry.epochs;
        self.epochs = Some(self.epochs.map_or((low, high), |(l, h)| (l.min(low), h.max(high))));
        self.tombstones += block.tombstones.as_ref().map_or(0, |t| t.count_set_bits() as u64);
        section.index.blocks.push(entry);
        Ok(())
    }

    fn finish_table(&mut self) -> Result<()> {
        while self.current.as_ref().is_some_and(|s| s.pending_rows > 0) {
            self.cut()?;
        }
        let Some(section) = self.current.take() else { return Ok(()) };
        let (Some(first), Some(last)) = (section.index.first_keys.first(), section.index.last_keys.last()) else { return Ok(()) };
        self.tables.push(SstTable { table: section.table, first_key: first.to_vec(), last_key: last.to_vec(), rows: section.rows });
        let filter = self.append(&Filter::build(&section.hashes).to_bytes());
        let index = self.append(&section.index.encode());
        self.sections.push(SectionEntry { table: section.table, rows: section.rows, index, filters: vec![(FULL_KEY, filter)] });
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Part {
        let part = Part { offset: self.out.len() as u64, len: bytes.len() as u32, crc: crc(bytes) };
        self.out.extend_from_slice(bytes);
        part
    }

    /// The file and what a version says of it; `None` if nothing was added.
    pub(crate) fn finish(mut self, object: String) -> Result<Option<(Bytes, SstInfo)>> {
        self.finish_table()?;
        let Some(epochs) = self.epochs else { return Ok(None) };
        self.out.extend_from_slice(&encode_footer(&self.sections));
        let info = SstInfo {
            object,
            size_bytes: self.out.len() as u64,
            rows: self.tables.iter().map(|t| t.rows).sum(),
            tombstones: self.tombstones,
            tables: self.tables,
            epochs,
        };
        Ok(Some((Bytes::from(self.out), info)))
    }
}

/// One block of several that follow each other.
pub(crate) fn join(blocks: &[Block]) -> Result<Block> {
    let keys: Vec<&dyn arrow::array::Array> = blocks.iter().map(|b| &b.keys as &dyn arrow::array::Array).collect();
    let keys = arrow::array::AsArray::as_binary::<i32>(concat(&keys)?.as_ref()).clone();
    let rows = concat_batches(&blocks[0].rows.schema(), blocks.iter().map(|b| &b.rows))?;
    let same = match blocks[0].epochs {
        Epochs::Same(first) => blocks.iter().all(|b| matches!(b.epochs, Epochs::Same(e) if e == first)).then_some(first),
        Epochs::Each(_) => None,
    };
    let epochs = same.map_or_else(
        || Epochs::Each(blocks.iter().flat_map(|b| (0..b.len()).map(|row| b.epoch(row).0)).collect::<Vec<_>>().into()),
        Epochs::Same,
    );
    let tombstones = blocks
        .iter()
        .any(|b| b.tombstones.is_some())
        .then(|| blocks.iter().flat_map(|b| (0..b.len()).map(|row| b.is_tombstone(row))).collect());
    Ok(Block { keys, epochs, tombstones, rows })
}

/// A name that no other object ever had: the time sorts listings, the random part makes it unique.
pub(crate) fn object_name() -> String {
    format!("{FOLDER}{:012x}-{:016x}.sst", eddyline_env::clock::unix_millis(), eddyline_env::random::next_u64())
}

/// The folder of all files of the store.
pub(crate) const FOLDER: &str = "sst/";

/// When an object was made, by its name; 0 if the name does not tell.
pub(crate) fn object_time_ms(name: &str) -> u64 {
    name.strip_prefix(FOLDER).and_then(|n| n.get(..12)).and_then(|t| u64::from_str_radix(t, 16).ok()).unwrap_or(0)
}
