//! One side of a join: its rows in an arena, chained by join key, with match counts where unmatched rows are padded.
//!
//! A retractable side (and one whose rows may repeat) also has an index by the hash of the whole row, so that a retraction finds its row and equal
//! rows are one row with a weight. An append-only side with a stream key needs none: rows are only added.

use crate::operators::state::arena::RowArena;
use crate::operators::state::column::NIL;
use crate::operators::state::hash;
use crate::operators::state::index::{Found, HashIndex};
use crate::operators::state::keys::KeyTable;
use crate::operators::state::write::StateTable;
use arrow::array::{ArrayRef, Int64Array};
use eddyline_protocol::TableDesc;
use eddyline_protocol::plan::JoinSide;
use eddyline_store::TableWrite;
use eddyline_types::{Error, Result};
use std::sync::Arc;

/// See the module's documentation.
pub struct Side {
    table: StateTable,
    /// The rows.
    pub rows: RowArena,
    /// The next row with the same join key.
    pub next: Vec<u32>,
    unique: Option<Unique>,
    /// For each row, the sum of the weights of the rows that it matches; only where unmatched rows are padded.
    pub matched: Option<Vec<i64>>,
    /// Half of the key record's heads word that is this side's: 0 or 32.
    shift: u32,
}

/// What it takes to find and unlink a row.
#[derive(Default)]
struct Unique {
    index: HashIndex,
    hashes: Vec<u32>,
    previous: Vec<u32>,
    slot: Vec<u32>,
    scratch: Vec<u64>,
}

/// Word of a key's record: the first row of the left side (plus 1) in the lower half, of the right side in the upper.
pub const HEADS: usize = 1;

impl Side {
    /// An empty side; `padded`: its unmatched rows are output. `port` is 0 for left, 1 for right.
    pub fn new(side: &JoinSide, table: TableDesc, padded: bool, port: usize) -> Result<Self> {
        let appends = side.append_only && !side.stream_key.is_empty();
        Ok(Side {
            rows: RowArena::new(&side.schema)?,
            table: StateTable::new(table)?,
            next: Vec::new(),
            unique: if appends { None } else { Some(Unique::default()) },
            matched: padded.then(Vec::new),
            shift: port as u32 * 32,
        })
    }

    /// The table that it is kept in.
    pub fn table(&self) -> eddyline_types::TableId {
        self.table.desc.id
    }

    /// The first row of a key.
    #[inline]
    pub fn head(&self, record: &[u64]) -> u32 {
        ((record[HEADS] >> self.shift) as u32).wrapping_sub(1)
    }

    fn set_head(&self, record: &mut [u64], row: u32) {
        let half = u64::from(row.wrapping_add(1)) << self.shift;
        record[HEADS] = record[HEADS] & !(u64::from(u32::MAX) << self.shift) | half;
    }

    /// Adds rows with weights to the keys `slots`; `numbers` gets each row's number, or `NIL` where it cancelled an equal row.
    pub fn insert(
        &mut self,
        keys: &mut KeyTable,
        columns: &[ArrayRef],
        weights: Option<&[i64]>,
        slots: &[u32],
        persisted: bool,
        numbers: &mut Vec<u32>,
    ) -> Result<()> {
        self.rows.insert(columns, weights, slots.len(), persisted, numbers)?;
        let size = self.rows.capacity();
        self.next.resize(size, NIL);
        if let Some(matched) = &mut self.matched {
            matched.resize(size, 0);
        }
        let Some(mut unique) = self.unique.take() else {
            if weights.is_some() {
                return Err(Error::internal(format!(
                    "the append-only input of {} has a row of a weight other than 1",
                    self.table.desc.name
                )));
            }
            for (number, slot) in numbers.iter().zip(slots) {
                let record = keys.record_mut(*slot);
                self.next[*number as usize] = self.head(record);
                self.set_head(record, *number);
            }
            return Ok(());
        };
        let result = self.merge(&mut unique, keys, columns, slots, numbers);
        self.unique = Some(unique);
        result
    }

    fn merge(&mut self, unique: &mut Unique, keys: &mut KeyTable, columns: &[ArrayRef], slots: &[u32], numbers: &mut [u32]) -> Result<()> {
        let size = self.rows.capacity();
        unique.hashes.resize(size, 0);
        unique.previous.resize(size, NIL);
        unique.slot.resize(size, 0);
        let mut hashes = std::mem::take(&mut unique.scratch);
        hash::rows(columns, slots.len(), &mut hashes)?;
        unique.index.reserve(slots.len());
        unique.index.touch(hashes.iter().map(|h| (h >> 32) as u32));
        for (i, number) in numbers.iter_mut().enumerate() {
            let hash = (hashes[i] >> 32) as u32;
            let (new, slot) = (*number, slots[i]);
            match unique.index.find(hash, |old| self.rows.equal(old, new)) {
                Found::Vacant(at) => {
                    unique.index.occupy(at, hash, new);
                    unique.hashes[new as usize] = hash;
                    unique.slot[new as usize] = slot;
                    unique.previous[new as usize] = NIL;
                    let record = keys.record_mut(slot);
                    let head = self.head(record);
                    self.next[new as usize] = head;
                    if head != NIL {
                        unique.previous[head as usize] = new;
                    }
                    self.set_head(record, new);
                    if let Some(matched) = &mut self.matched {
                        matched[new as usize] = 0;
                    }
                }
                Found::Number(old) => {
                    let weight =
                        self.rows.weight(old).checked_add(self.rows.weight(new)).ok_or_else(|| Error::internal("weight overflow"))?;
                    self.rows.forget(new);
                    self.rows.set_weight(old, weight);
                    *number = old;
                    if weight == 0 {
                        unique.index.remove(hash, old);
                        self.unlink(unique, keys, old);
                        *number = NIL;
                    }
                }
            }
        }
        unique.scratch = hashes;
        Ok(())
    }

    fn unlink(&mut self, unique: &mut Unique, keys: &mut KeyTable, row: u32) {
        let (previous, next) = (unique.previous[row as usize], self.next[row as usize]);
        if next != NIL {
            unique.previous[next as usize] = previous;
        }
        if previous == NIL {
            self.set_head(keys.record_mut(unique.slot[row as usize]), next);
        } else {
            self.next[previous as usize] = next;
        }
    }

    /// Columns with a last column of weights, as the table has them.
    fn table_columns(&self, rows: &[u32]) -> Result<Vec<ArrayRef>> {
        let mut columns = self.rows.gather_all(rows)?;
        columns.push(Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| self.rows.weight(*r)))));
        Ok(columns)
    }

    /// What changed since the last checkpoint.
    pub fn checkpoint(&mut self) -> Result<Option<TableWrite>> {
        let changes = self.rows.changes();
        let write = self.table.write(self.table_columns(&changes.rows)?, &changes.deleted)?;
        self.rows.checkpointed();
        Ok(write)
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        let unique = self.unique.as_ref().map_or(0, |u| {
            u.index.memory_bytes() + (u.hashes.capacity() + u.previous.capacity() + u.slot.capacity()) * 4 + u.scratch.capacity() * 8
        });
        self.rows.memory_bytes() + self.next.capacity() * 4 + unique + self.matched.as_ref().map_or(0, |m| m.capacity() * 8)
    }
}
