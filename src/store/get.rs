//! Point reads: many keys at once, newest source first, filters before blocks, each block loaded once.

use crate::block::{self, Block};
use crate::filter;
use crate::levels::FilePart;
use crate::source::check_schema;
use crate::sst::read::{Section, SstFile};
use crate::store::Snapshot;
use arrow::array::{Array, BinaryArray, RecordBatch};
use arrow::compute::interleave;
use eddyline_types::{Epoch, Result, TableId};
use futures::{StreamExt, TryStreamExt};
use std::sync::Arc;

/// Blocks loaded side by side by one call.
const LOADS: usize = 16;

/// What is known of a key.
#[derive(Clone, Copy, PartialEq)]
enum Found {
    Open,
    Absent,
    At { block: u32, row: u32 },
}

/// The state of one call.
struct Lookup<'a> {
    keys: &'a BinaryArray,
    epoch: Epoch,
    /// Positions of distinct keys, ascending by key.
    order: Vec<u32>,
    /// By position in `order`.
    found: Vec<Found>,
    /// Positions in `order` that are still open, ascending.
    open: Vec<u32>,
    hashes: Vec<u64>,
    blocks: Vec<Arc<Block>>,
}

/// See [`Snapshot::get`].
pub(crate) async fn get(
    snapshot: &Snapshot,
    table: TableId,
    epoch: Epoch,
    keys: &BinaryArray,
    columns: Option<&[usize]>,
) -> Result<(Vec<usize>, RecordBatch)> {
    let stored = snapshot.check(table, epoch)?;
    let (mut lookup, duplicates) = Lookup::new(keys, epoch);
    if let Some(buffer) = snapshot.buffer(table) {
        for block in buffer.newest_first(epoch) {
            lookup.search_open(block);
        }
    }
    if let Some(files) = snapshot.levels().table(table) {
        'chains: for chain in &files.chains {
            for part in chain {
                if lookup.open.is_empty() {
                    break 'chains;
                }
                lookup.search_file(table, part, &stored).await?;
            }
        }
    }
    let mut positions: Vec<(usize, (usize, usize))> = vec![];
    let mut put = |position: usize, found: Found| {
        if let Found::At { block, row } = found {
            positions.push((position, (block as usize, row as usize)));
        }
    };
    for (position, found) in lookup.order.iter().zip(&lookup.found) {
        put(*position as usize, *found);
    }
    for (position, same) in duplicates {
        put(position as usize, lookup.found[same as usize]);
    }
    positions.sort_unstable_by_key(|(position, _)| *position);
    let shown = match columns {
        None => stored.clone(),
        Some(columns) => Arc::new(stored.project(columns)?),
    };
    let wanted: Vec<usize> = columns.map_or_else(|| (0..stored.fields().len()).collect(), <[usize]>::to_vec);
    let indices: Vec<(usize, usize)> = positions.iter().map(|(_, index)| *index).collect();
    let mut arrays = Vec::with_capacity(wanted.len());
    for column in wanted {
        let sources: Vec<&dyn Array> = lookup.blocks.iter().map(|b| b.rows.column(column).as_ref()).collect();
        arrays.push(match sources.is_empty() {
            true => arrow::array::new_empty_array(stored.field(column).data_type()),
            false => interleave(&sources, &indices)?,
        });
    }
    let rows = block::batch(shown, arrays, indices.len())?;
    Ok((positions.into_iter().map(|(position, _)| position).collect(), rows))
}

impl<'a> Lookup<'a> {
    /// Also gives the positions of repeated keys, each with the place in `order` of its first.
    fn new(keys: &'a BinaryArray, epoch: Epoch) -> (Self, Vec<(u32, u32)>) {
        let mut order: Vec<u32> = (0..keys.len() as u32).collect();
        if !order.is_sorted_by(|a, b| keys.value(*a as usize) < keys.value(*b as usize)) {
            order.sort_by(|a, b| keys.value(*a as usize).cmp(keys.value(*b as usize)));
        }
        let mut duplicates = vec![];
        let mut distinct: Vec<u32> = Vec::with_capacity(order.len());
        for position in order {
            match distinct.last() {
                Some(last) if keys.value(*last as usize) == keys.value(position as usize) => {
                    duplicates.push((position, distinct.len() as u32 - 1))
                }
                _ => distinct.push(position),
            }
        }
        let count = distinct.len();
        let lookup = Lookup {
            keys,
            epoch,
            order: distinct,
            found: vec![Found::Open; count],
            open: (0..count as u32).collect(),
            hashes: vec![],
            blocks: vec![],
        };
        (lookup, duplicates)
    }

    fn key(&self, place: u32) -> &'a [u8] {
        self.keys.value(self.order[place as usize] as usize)
    }

    /// Looks for all open keys in a block of the buffer.
    fn search_open(&mut self, block: &Arc<Block>) {
        if block.len() == 0 || self.open.is_empty() {
            return;
        }
        let open = std::mem::take(&mut self.open);
        self.search(block, &open);
        self.open = open;
        self.close();
    }

    /// Looks for the keys at the given places (ascending) in a block.
    fn search(&mut self, block: &Arc<Block>, places: &[u32]) {
        let mut from = 0;
        let mut number = None;
        for place in places {
            let key = self.key(*place);
            from = block.seek(from, key, false);
            let mut row = from;
            while row < block.len() && block.key(row) == key && block.epoch(row) > self.epoch {
                row += 1;
            }
            if row == block.len() {
                if from == block.len() {
                    return;
                }
                continue;
            }
            if block.key(row) != key {
                continue;
            }
            self.found[*place as usize] = if block.is_tombstone(row) {
                Found::Absent
            } else {
                let block = *number.get_or_insert_with(|| {
                    self.blocks.push(block.clone());
                    self.blocks.len() as u32 - 1
                });
                Found::At { block, row: row as u32 }
            };
        }
    }

    fn close(&mut self) {
        let found = &self.found;
        self.open.retain(|place| found[*place as usize] == Found::Open);
    }

    /// Looks for all open keys in one table's part of a file.
    async fn search_file(&mut self, table: TableId, part: &FilePart, stored: &arrow::datatypes::SchemaRef) -> Result<()> {
        let first = self.open.partition_point(|place| self.key(*place) < &*part.table().first_key);
        let open: Vec<u32> = self.open[first..].iter().copied().take_while(|place| part.may_hold(self.key(*place))).collect();
        if open.is_empty() {
            return Ok(());
        }
        if self.hashes.is_empty() {
            self.hashes = self.order.iter().map(|position| filter::hash(self.keys.value(*position as usize))).collect();
        }
        let Some(section) = part.file.section(table).await? else { return Ok(()) };
        check_schema(table, &part.file, &section, stored)?;
        let mut wanted: Vec<(usize, Vec<u32>)> = vec![];
        for place in open {
            if !section.filter.may_contain(self.hashes[place as usize]) {
                continue;
            }
            let Some(number) = section.block_of(self.key(place)) else { continue };
            match wanted.last_mut() {
                Some((last, places)) if *last == number => places.push(place),
                _ => wanted.push((number, vec![place])),
            }
        }
        let blocks = load(table, &part.file, &section, &wanted).await?;
        for (block, (_, places)) in blocks.iter().zip(&wanted) {
            self.search(block, places);
        }
        self.close();
        Ok(())
    }
}

/// The wanted blocks, in order; those in memory at once, the others side by side.
async fn load(table: TableId, file: &Arc<SstFile>, section: &Section, wanted: &[(usize, Vec<u32>)]) -> Result<Vec<Arc<Block>>> {
    let cached: Vec<Option<Arc<Block>>> = wanted.iter().map(|(number, _)| file.cached_block(section, *number)).collect();
    if cached.iter().all(Option::is_some) {
        return Ok(cached.into_iter().flatten().collect());
    }
    // Owned items: a closure over borrowed ones would make the future's Send bound depend on every lifetime.
    let items: Vec<(Option<Arc<Block>>, usize)> = cached.into_iter().zip(wanted.iter().map(|(number, _)| *number)).collect();
    let loads = items.into_iter().map(|(cached, number)| async move {
        match cached {
            Some(block) => Ok(block),
            None => file.block(table, section, number).await,
        }
    });
    futures::stream::iter(loads).buffered(LOADS).try_collect().await
}
