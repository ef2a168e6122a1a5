//! The footer, the section index and their bytes: all integers little endian, all lengths explicit.
//!
//! Readers trust nothing: a length that leads outside is an error, never a panic nor a large allocation.

use eddyline_types::{Epoch, TableId};

/// The last eight bytes of a file.
pub(crate) const MAGIC: [u8; 8] = *b"EDDYSST\n";
/// Written into every file; a reader refuses others by name.
pub(crate) const VERSION: u32 = 1;
/// Bytes of the tail: footer length, footer checksum, version, magic.
pub(crate) const TAIL: usize = 4 + 4 + 4 + 8;

/// Where a part of the file is, and what its bytes must sum up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub offset: u64,
    pub len: u32,
    pub crc: u32,
}

/// One table's part of a file, as the footer tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SectionEntry {
    pub table: TableId,
    pub rows: u64,
    /// The index (schema and blocks).
    pub index: Part,
    /// Filters over the keys, by how many bytes of the key they cover (`FULL_KEY`: all).
    pub filters: Vec<(u32, Part)>,
}

/// Filter over whole keys.
pub(crate) const FULL_KEY: u32 = u32::MAX;

/// One block, as the index tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockEntry {
    pub part: Part,
    /// Bytes of the IPC metadata at the start of the block; the IPC body is the rest.
    pub metadata_len: u32,
    pub rows: u32,
    /// Length of all keys if they have one length (then the key column is FixedSizeBinary), else 0.
    pub key_len: u32,
    /// [`HAS_EPOCHS`] and [`HAS_TOMBSTONES`].
    pub flags: u8,
    /// Smallest and largest epoch; equal if the block has no epoch column.
    pub epochs: (Epoch, Epoch),
}

/// The block has an `_epoch` column.
pub(crate) const HAS_EPOCHS: u8 = 1;
/// The block has a `_tombstone` column.
pub(crate) const HAS_TOMBSTONES: u8 = 2;

/// The index of a section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    /// The Arrow IPC schema (flatbuffer) of the table's columns.
    pub schema: Vec<u8>,
    pub blocks: Vec<BlockEntry>,
    /// First and last key of each block.
    pub first_keys: Vec<Box<[u8]>>,
    pub last_keys: Vec<Box<[u8]>>,
}

/// Checksum of a part.
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Encodes the footer and the tail.
pub(crate) fn encode_footer(sections: &[SectionEntry]) -> Vec<u8> {
    let mut out = vec![];
    put_u32(&mut out, sections.len() as u32);
    for section in sections {
        put_u32(&mut out, section.table.0);
        put_u64(&mut out, section.rows);
        put_part(&mut out, &section.index);
        put_u32(&mut out, section.filters.len() as u32);
        for (prefix, part) in &section.filters {
            put_u32(&mut out, *prefix);
            put_part(&mut out, part);
        }
    }
    let (len, sum) = (out.len() as u32, crc(&out));
    put_u32(&mut out, len);
    put_u32(&mut out, sum);
    put_u32(&mut out, VERSION);
    out.extend_from_slice(&MAGIC);
    out
}

/// Reads the tail: length and checksum of the footer. The error says what is wrong.
pub(crate) fn decode_tail(tail: &[u8]) -> Result<(u32, u32), String> {
    let mut reader = Reader { bytes: tail };
    let (len, sum, version) = (reader.u32()?, reader.u32()?, reader.u32()?);
    if reader.bytes != MAGIC {
        return Err("the magic bytes at its end are missing".into());
    }
    if version != VERSION {
        return Err(format!("format version {version} is not known (this program reads {VERSION})"));
    }
    Ok((len, sum))
}

/// Reads a footer whose checksum was verified.
pub(crate) fn decode_footer(bytes: &[u8]) -> Result<Vec<SectionEntry>, String> {
    let mut reader = Reader { bytes };
    let count = reader.count(32)?;
    let mut sections = Vec::with_capacity(count);
    for _ in 0..count {
        let table = TableId(reader.u32()?);
        let rows = reader.u64()?;
        let index = reader.part()?;
        let filters = (0..reader.count(20)?).map(|_| Ok((reader.u32()?, reader.part()?))).collect::<Result<_, String>>()?;
        sections.push(SectionEntry { table, rows, index, filters });
    }
    reader.end()?;
    Ok(sections)
}

impl Index {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![];
        put_bytes(&mut out, &self.schema);
        put_u32(&mut out, self.blocks.len() as u32);
        for (i, block) in self.blocks.iter().enumerate() {
            put_part(&mut out, &block.part);
            put_u32(&mut out, block.metadata_len);
            put_u32(&mut out, block.rows);
            put_u32(&mut out, block.key_len);
            out.push(block.flags);
            put_u64(&mut out, block.epochs.0.0);
            put_u64(&mut out, block.epochs.1.0);
            put_bytes(&mut out, &self.first_keys[i]);
            put_bytes(&mut out, &self.last_keys[i]);
        }
        out
    }

    /// Reads an index whose checksum was verified.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Index, String> {
        let mut reader = Reader { bytes };
        let mut index = Index { schema: reader.bytes()?.to_vec(), ..Index::default() };
        for _ in 0..reader.count(53)? {
            index.blocks.push(BlockEntry {
                part: reader.part()?,
                metadata_len: reader.u32()?,
                rows: reader.u32()?,
                key_len: reader.u32()?,
                flags: reader.u8()?,
                epochs: (Epoch(reader.u64()?), Epoch(reader.u64()?)),
            });
            index.first_keys.push(reader.bytes()?.into());
            index.last_keys.push(reader.bytes()?.into());
        }
        reader.end()?;
        Ok(index)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let keys = self.first_keys.iter().chain(&self.last_keys).map(|k| k.len() + 32).sum::<usize>();
        self.schema.len() + self.blocks.len() * size_of::<BlockEntry>() + keys
    }
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

fn put_part(out: &mut Vec<u8>, part: &Part) {
    put_u64(out, part.offset);
    put_u32(out, part.len);
    put_u32(out, part.crc);
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or("it ends too early")?;
        self.bytes = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?[0])
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    fn bytes(&mut self) -> Result<&'a [u8], String> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    fn part(&mut self) -> Result<Part, String> {
        Ok(Part { offset: self.u64()?, len: self.u32()?, crc: self.u32()? })
    }

    /// A count of things that take at least `least` bytes each.
    fn count(&mut self, least: usize) -> Result<usize, String> {
        let count = self.u32()? as usize;
        if count.saturating_mul(least) > self.bytes.len() {
            return Err("it names more parts than it holds".into());
        }
        Ok(count)
    }

    fn end(&self) -> Result<(), String> {
        if self.bytes.is_empty() { Ok(()) } else { Err("it has bytes left over".into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections() -> Vec<SectionEntry> {
        let part = |offset| Part { offset, len: 7, crc: 9 };
        vec![
            SectionEntry { table: TableId(3), rows: 10, index: part(1), filters: vec![(FULL_KEY, part(2)), (4, part(3))] },
            SectionEntry { table: TableId(9), rows: 1, index: part(4), filters: vec![] },
        ]
    }

    #[test]
    fn footers_and_indexes_come_back_and_cut_ones_are_errors() {
        let bytes = encode_footer(&sections());
        let (footer, tail) = bytes.split_at(bytes.len() - TAIL);
        assert_eq!(decode_tail(tail).unwrap(), (footer.len() as u32, crc(footer)));
        assert_eq!(decode_footer(footer).unwrap(), sections());
        assert!((0..footer.len()).all(|n| decode_footer(&footer[..n]).is_err()));
        let index = Index {
            schema: vec![1, 2, 3],
            blocks: vec![BlockEntry {
                part: Part { offset: 1, len: 2, crc: 3 },
                metadata_len: 1,
                rows: 2,
                key_len: 3,
                flags: HAS_EPOCHS,
                epochs: (Epoch(1), Epoch(2)),
            }],
            first_keys: vec![b"a".to_vec().into()],
            last_keys: vec![b"bc".to_vec().into()],
        };
        let bytes = index.encode();
        assert_eq!(Index::decode(&bytes).unwrap(), index);
        assert!((0..bytes.len()).all(|n| Index::decode(&bytes[..n]).is_err()));
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = encode_footer(&[]);
        let at = bytes.len() - 12;
        bytes[at] = 77;
        assert!(decode_tail(&bytes[bytes.len() - TAIL..]).unwrap_err().contains("77"));
    }
}
