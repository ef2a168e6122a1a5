//! Opening a file: footer, then sections on demand, then blocks; through the cache where that pays.
//!
//! An error of kind `Corruption` names object, table and block. Nothing is trusted before its checksum was verified.

use super::encode::{decode, decode_schema};
use super::format::{FULL_KEY, Index, Part, SectionEntry, TAIL, crc, decode_footer, decode_tail};
use crate::block::Block;
use crate::cache::Cache;
use crate::filter::Filter;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use eddyline_objects::Objects;
use eddyline_protocol::SstInfo;
use eddyline_types::{Error, ErrorKind, Result, SqlState, TableId};
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::OnceCell;

/// The first read of a file takes so much of its end: usually the whole metadata of a small file.
const TAIL_READ: u64 = 16 * 1024;

/// An open file.
pub(crate) struct SstFile {
    /// A number of this process, for the cache.
    id: u64,
    pub info: Arc<SstInfo>,
    objects: Objects,
    cache: Cache,
    footer: OnceCell<Vec<SectionEntry>>,
}

/// One table's metadata in a file.
pub(crate) struct Section {
    pub schema: SchemaRef,
    pub index: Index,
    pub filter: Filter,
}

impl Section {
    pub(crate) fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.filter.memory_bytes() + 1024
    }

    /// The block that holds the key, if any does.
    pub(crate) fn block_of(&self, key: &[u8]) -> Option<usize> {
        let block = self.index.first_keys.partition_point(|first| **first <= *key).checked_sub(1)?;
        (*self.index.last_keys[block] >= *key).then_some(block)
    }

    /// The blocks that may hold keys inside the bounds.
    pub(crate) fn blocks_in(&self, low: &Bound<Vec<u8>>, high: &Bound<Vec<u8>>) -> Range<usize> {
        let start = match low {
            Bound::Unbounded => 0,
            Bound::Included(key) => self.index.last_keys.partition_point(|last| **last < **key),
            Bound::Excluded(key) => self.index.last_keys.partition_point(|last| **last <= **key),
        };
        let end = match high {
            Bound::Unbounded => self.index.blocks.len(),
            Bound::Included(key) => self.index.first_keys.partition_point(|first| **first <= **key),
            Bound::Excluded(key) => self.index.first_keys.partition_point(|first| **first < **key),
        };
        start..end.max(start)
    }
}

impl SstFile {
    pub(crate) fn new(info: Arc<SstInfo>, objects: Objects, cache: Cache) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        SstFile { id: NEXT.fetch_add(1, Ordering::Relaxed), info, objects, cache, footer: OnceCell::new() }
    }

    fn corrupt(&self, what: impl std::fmt::Display) -> Error {
        Error::corruption(format!("object \"{}\" is damaged: {what}", self.info.object))
            .with_hint("Restore the object from a copy; `eddyline ctl store verify` lists all that are damaged.")
    }

    /// A missing object of a version is damage too, not a user's mistake.
    fn missing(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::User && error.sqlstate() == SqlState::UNDEFINED_OBJECT {
            self.corrupt("it is missing")
        } else {
            error
        }
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        if range.start > range.end || range.end > self.info.size_bytes {
            return Err(self.corrupt(format!("bytes {} to {} are outside of it", range.start, range.end)));
        }
        self.objects.get_range(&self.info.object, range).await.map_err(|e| self.missing(e))
    }

    /// Reads a part and verifies its checksum.
    async fn part(&self, part: &Part, what: impl Fn() -> String) -> Result<Bytes> {
        let bytes = self.read(part.offset..part.offset.saturating_add(part.len.into())).await?;
        if crc(&bytes) != part.crc {
            return Err(self.corrupt(format!("the checksum of {} is wrong", what())));
        }
        Ok(bytes)
    }

    /// The footer, read once.
    pub(crate) async fn footer(&self) -> Result<&[SectionEntry]> {
        let footer = self
            .footer
            .get_or_try_init(|| async {
                let size = self.info.size_bytes;
                if size < TAIL as u64 {
                    return Err(self.corrupt("it is too short"));
                }
                let end = self.read(size.saturating_sub(TAIL_READ)..size).await?;
                let (rest, tail) = end.split_at_checked(end.len().wrapping_sub(TAIL)).ok_or_else(|| self.corrupt("it is too short"))?;
                let (len, sum) = decode_tail(tail).map_err(|e| self.corrupt(e))?;
                let start =
                    (size - TAIL as u64).checked_sub(len.into()).ok_or_else(|| self.corrupt("its footer is longer than the file"))?;
                let bytes = match rest.len().checked_sub(len as usize) {
                    Some(at) => Bytes::copy_from_slice(&rest[at..]),
                    None => self.read(start..size - TAIL as u64).await?,
                };
                if crc(&bytes) != sum {
                    return Err(self.corrupt("the checksum of its footer is wrong"));
                }
                decode_footer(&bytes).map_err(|e| self.corrupt(format!("its footer cannot be read, {e}")))
            })
            .await?;
        Ok(footer)
    }

    /// A table's metadata, through the cache; `None` if the file has nothing of the table.
    pub(crate) async fn section(&self, table: TableId) -> Result<Option<Arc<Section>>> {
        let Some(entry) = self.footer().await?.iter().find(|s| s.table == table) else { return Ok(None) };
        let key = (self.id, entry.index.offset);
        if let Some(section) = self.cache.section(key) {
            return Ok(Some(section));
        }
        let bytes = self.part(&entry.index, || format!("the index of table {table}")).await?;
        let index = Index::decode(&bytes).map_err(|e| self.corrupt(format!("the index of table {table} cannot be read, {e}")))?;
        let schema = decode_schema(&index.schema).map_err(|e| self.corrupt(format!("the schema of table {table} cannot be read: {e}")))?;
        let filter = match entry.filters.iter().find(|(covers, _)| *covers == FULL_KEY) {
            Some((_, part)) => {
                let bytes = self.part(part, || format!("the filter of table {table}")).await?;
                Filter::from_bytes(&bytes).ok_or_else(|| self.corrupt(format!("the filter of table {table} cannot be read")))?
            }
            None => return Err(self.corrupt(format!("table {table} has no filter"))),
        };
        let section = Arc::new(Section { schema, index, filter });
        self.cache.insert_section(key, &section);
        Ok(Some(section))
    }

    /// Reads a whole block that was not in memory, and keeps it there.
    pub(crate) async fn block(&self, table: TableId, section: &Section, number: usize) -> Result<Arc<Block>> {
        let entry = &section.index.blocks[number];
        let bytes = self.part(&entry.part, || format!("block {number} of table {table}")).await?;
        let block = Arc::new(self.decode(table, section, number, None, bytes)?);
        self.cache.insert_block((self.id, entry.part.offset), &block);
        Ok(block)
    }

    /// Reads several whole blocks that follow each other in one request, and keeps them in memory.
    pub(crate) async fn blocks_to_keep(&self, table: TableId, section: &Section, numbers: Range<usize>) -> Result<Vec<Arc<Block>>> {
        let mut kept = Vec::with_capacity(numbers.len());
        for (number, bytes) in numbers.clone().zip(self.pieces(table, section, numbers).await?) {
            // A copy of its own: a buffer that is stored uncompressed would keep the whole request's bytes alive.
            let block = Arc::new(self.decode(table, section, number, None, Bytes::copy_from_slice(&bytes))?);
            self.cache.insert_block((self.id, section.index.blocks[number].part.offset), &block);
            kept.push(block);
        }
        Ok(kept)
    }

    /// A whole block if it is in memory.
    pub(crate) fn cached_block(&self, section: &Section, number: usize) -> Option<Arc<Block>> {
        self.cache.block((self.id, section.index.blocks[number].part.offset))
    }

    /// Reads columns of several blocks that follow each other in one request, past the cache.
    pub(crate) async fn blocks(
        &self,
        table: TableId,
        section: &Section,
        numbers: Range<usize>,
        columns: Option<&[usize]>,
    ) -> Result<Vec<Block>> {
        let pieces = self.pieces(table, section, numbers.clone()).await?;
        numbers.zip(pieces).map(|(number, bytes)| self.decode(table, section, number, columns, bytes)).collect()
    }

    /// The bytes of blocks that follow each other, verified.
    async fn pieces(&self, table: TableId, section: &Section, numbers: Range<usize>) -> Result<Vec<Bytes>> {
        let parts = &section.index.blocks[numbers.clone()];
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return Ok(vec![]) };
        let start = first.part.offset;
        let bytes = self.read(start..last.part.offset.saturating_add(last.part.len.into())).await?;
        let mut pieces = Vec::with_capacity(parts.len());
        for (number, entry) in numbers.zip(parts) {
            let at = entry.part.offset.checked_sub(start).and_then(|at| usize::try_from(at).ok());
            let end = at.and_then(|at| at.checked_add(entry.part.len as usize)).filter(|end| *end <= bytes.len());
            let (Some(at), Some(end)) = (at, end) else {
                return Err(self.corrupt(format!("block {number} of table {table} is out of order")));
            };
            let piece = bytes.slice(at..end);
            if crc(&piece) != entry.part.crc {
                return Err(self.corrupt(format!("the checksum of block {number} of table {table} is wrong")));
            }
            pieces.push(piece);
        }
        Ok(pieces)
    }

    fn decode(&self, table: TableId, section: &Section, number: usize, columns: Option<&[usize]>, bytes: Bytes) -> Result<Block> {
        decode(&section.index.blocks[number], &section.schema, columns, bytes)
            .map_err(|e| self.corrupt(format!("block {number} of table {table} cannot be read: {e}")))
    }
}
