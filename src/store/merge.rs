//! The k-way merge of sorted blocks: for every key the newest row at or below an epoch, in key order, either way.
//!
//! This file is pure: it says which input needs its next block and takes it; who reads blocks is [`crate::source`].
//! It compares 16-byte key prefixes held as integers, picks by a tournament tree, and gathers rows columnwise; a stretch of rows that
//! meets no competitor is passed on as a slice. No allocation per row.

use crate::block::{self, Block, Epochs};
use arrow::array::{Array, ArrayRef, AsArray, BinaryArray};
use arrow::compute::{concat, interleave};
use eddyline_types::{Epoch, Error, Result};
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

/// How to merge.
#[derive(Clone, Debug)]
pub(crate) struct MergeOptions {
    /// Rows of later epochs are not seen.
    pub visible: Epoch,
    /// Bounds of the keys.
    pub range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// Whether deleted keys come out (as tombstones) or not at all.
    pub keep_tombstones: bool,
    /// Descending keys.
    pub reverse: bool,
    /// Whether the output needs keys; without, they are empty.
    pub keys: bool,
    /// Rows of an output block, about.
    pub batch_rows: usize,
    /// Longest stretch that is passed on as one slice, uncopied.
    pub slice_rows: usize,
    /// All output rows get this epoch.
    pub epoch: Epoch,
}

/// What the merge wants or gives.
pub(crate) enum Step {
    /// Some inputs have no block: feed those of [`Merge::take_needed`].
    Need,
    /// The next rows.
    Out(Block),
    /// All inputs are at their end.
    Done,
}

/// One sorted input. At most one of its blocks is current.
struct Input {
    block: Option<Arc<Block>>,
    /// Position of the current block among those of the pending output, if it is there.
    slot: Option<u32>,
    /// The rows that are left: `start..end`.
    start: usize,
    end: usize,
    /// The row that competes.
    row: usize,
    /// Reverse: the first row of the competing key (all versions of it leave together).
    group: usize,
    /// The first 16 bytes of the competing key.
    prefix: u128,
    /// The competing row's epoch.
    epoch: Epoch,
}

/// Rows of one block that go out together.
struct Stretch {
    slot: u32,
    start: u32,
    len: u32,
}

/// The key that went out last (or was found deleted): its older versions are skipped.
#[derive(Default)]
struct Last {
    prefix: u128,
    epoch: Epoch,
    /// Where the key is, or the key itself after its block left.
    place: Option<(u32, u32)>,
    owned: Option<Vec<u8>>,
}

/// See the module.
pub(crate) struct Merge {
    options: MergeOptions,
    inputs: Vec<Input>,
    /// Tournament: node 1 is the winner, leaf `leaves + i` is input `i`.
    tree: Vec<u32>,
    leaves: usize,
    needed: Vec<usize>,
    /// Blocks of the pending output.
    held: Vec<Arc<Block>>,
    stretches: Vec<Stretch>,
    pending: usize,
    last: Last,
    /// How often the same input won in a row.
    streak: (usize, u32),
}

/// Wins in a row before a longer stretch is looked for: the search costs a few comparisons.
const STREAK: u32 = 3;
/// Blocks held at most by pending output.
const HELD_BLOCKS: usize = 512;

impl Merge {
    /// A merge of so many inputs; of equal keys and epochs none may exist in two of them.
    pub(crate) fn new(inputs: usize, options: MergeOptions) -> Self {
        let leaves = inputs.next_power_of_two().max(1);
        let mut tree = vec![0u32; leaves * 2];
        for leaf in 0..leaves {
            tree[leaves + leaf] = leaf as u32;
        }
        // Every node names a leaf below it, also where no input is: a stranger there would win matches that nobody plays again.
        for node in (1..leaves).rev() {
            tree[node] = tree[node * 2];
        }
        let empty = || Input { block: None, slot: None, start: 0, end: 0, row: 0, group: 0, prefix: 0, epoch: Epoch::ZERO };
        Merge {
            options,
            inputs: (0..inputs).map(|_| empty()).collect(),
            tree,
            leaves,
            needed: (0..inputs).collect(),
            held: vec![],
            stretches: vec![],
            pending: 0,
            last: Last::default(),
            streak: (usize::MAX, 0),
        }
    }

    /// The inputs that need their next block; each must be fed, with `None` at its end.
    pub(crate) fn take_needed(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.needed)
    }

    /// Gives an input its next block (the one before in reverse).
    pub(crate) fn feed(&mut self, input: usize, block: Option<Arc<Block>>) {
        if let Some(block) = block {
            let rows = block.range(&self.options.range.0, &self.options.range.1);
            let slot = &mut self.inputs[input];
            (slot.start, slot.end, slot.slot) = (rows.start, rows.end, None);
            slot.block = Some(block);
            self.settle(input);
        }
        self.replay(input);
    }

    /// Goes on until rows are ready or a block is needed.
    pub(crate) fn step(&mut self) -> Result<Step> {
        loop {
            if self.pending >= self.options.batch_rows || self.held.len() >= HELD_BLOCKS {
                return self.flush();
            }
            if !self.needed.is_empty() {
                return Ok(Step::Need);
            }
            let winner = self.tree[1] as usize;
            if self.inputs.get(winner).is_none_or(|i| i.block.is_none()) {
                return if self.pending > 0 { self.flush() } else { Ok(Step::Done) };
            }
            if self.is_last_key(winner) {
                if self.inputs[winner].epoch == self.last.epoch {
                    return Err(Error::internal("a key was written twice in one epoch"));
                }
                self.advance(winner, 1);
                continue;
            }
            self.streak = if self.streak.0 == winner { (winner, self.streak.1 + 1) } else { (winner, 0) };
            let rows = if self.streak.1 >= STREAK || self.inputs.len() == 1 { self.stretch(winner) } else { 1 };
            if rows >= self.options.batch_rows && self.pending > 0 {
                return self.flush();
            }
            self.emit(winner, rows);
        }
    }

    /// Finds the row of an input that competes next, or asks for its next block.
    fn settle(&mut self, input: usize) {
        let visible = self.options.visible;
        let slot = &mut self.inputs[input];
        let Some(block) = &slot.block else { return };
        let found = match &block.epochs {
            Epochs::Same(epoch) if *epoch > visible => None,
            Epochs::Same(_) if slot.start == slot.end => None,
            Epochs::Same(_) => Some(if self.options.reverse { (slot.end - 1, slot.end - 1) } else { (slot.start, slot.start) }),
            Epochs::Each(epochs) if !self.options.reverse => {
                let row = (slot.start..slot.end).find(|row| epochs[*row] <= visible.0);
                slot.start = row.unwrap_or(slot.end);
                row.map(|row| (row, row))
            }
            Epochs::Each(epochs) => loop {
                if slot.start == slot.end {
                    break None;
                }
                let last = slot.end - 1;
                let first = (slot.start..last).rev().take_while(|row| block.key(*row) == block.key(last)).last().unwrap_or(last);
                match (first..=last).find(|row| epochs[*row] <= visible.0) {
                    Some(row) => break Some((row, first)),
                    None => slot.end = first,
                }
            },
        };
        match found {
            Some((row, group)) => {
                (slot.row, slot.group) = (row, group);
                slot.prefix = prefix(&block.keys, row);
                slot.epoch = block.epoch(row);
            }
            None => {
                slot.block = None;
                slot.slot = None;
                self.needed.push(input);
            }
        }
    }

    /// Whether input `a` goes out before input `b`.
    fn before(&self, a: u32, b: u32) -> bool {
        let side = |i: u32| self.inputs.get(i as usize).and_then(|input| input.block.as_deref().map(|block| (input, block)));
        let ((x, left), (y, right)) = match (side(a), side(b)) {
            (Some(x), Some(y)) => (x, y),
            (x, _) => return x.is_some(),
        };
        let order = x.prefix.cmp(&y.prefix).then_with(|| left.key(x.row).cmp(right.key(y.row)));
        let order = if self.options.reverse { order.reverse() } else { order };
        order.then_with(|| y.epoch.cmp(&x.epoch)) == Ordering::Less
    }

    /// Plays the matches of one input again.
    fn replay(&mut self, input: usize) {
        let mut node = (self.leaves + input) / 2;
        while node > 0 {
            let (left, right) = (self.tree[node * 2], self.tree[node * 2 + 1]);
            self.tree[node] = if self.before(right, left) { right } else { left };
            node /= 2;
        }
    }

    fn is_last_key(&self, input: usize) -> bool {
        let slot = &self.inputs[input];
        if slot.prefix != self.last.prefix {
            return false;
        }
        let Some(block) = &slot.block else { return false };
        let key = block.key(slot.row);
        match (&self.last.place, &self.last.owned) {
            (Some((held, row)), _) => self.held[*held as usize].key(*row as usize) == key,
            (None, Some(owned)) => owned == key,
            (None, None) => false,
        }
    }

    /// How many rows of the winner can go out before another input's key comes, at least 1.
    fn stretch(&self, winner: usize) -> usize {
        let slot = &self.inputs[winner];
        let Some(block) = slot.block.as_deref() else { return 1 };
        let plain = matches!(block.epochs, Epochs::Same(_)) && (block.tombstones.is_none() || self.options.keep_tombstones);
        if !plain {
            return 1;
        }
        let left = (slot.end - slot.start).min(self.options.slice_rows);
        let Some(rival) = self.rival(winner) else { return left };
        let rival = &self.inputs[rival];
        let Some(rival_key) = rival.block.as_deref().map(|b| b.key(rival.row)) else { return left };
        // The n-th row from here (0: the competing one).
        let wins = |n: usize| {
            let key = if self.options.reverse { block.key(slot.end - 1 - n) } else { block.key(slot.start + n) };
            if self.options.reverse { key > rival_key } else { key < rival_key }
        };
        // The competing row goes out even when its key is the rival's too (an older version of it waits there).
        if left == 1 || wins(left - 1) {
            return left;
        }
        // Exponential, then binary: `low` wins, `high` does not.
        let (mut low, mut high) = (0, 1);
        while wins(high) {
            low = high;
            high = (high * 2).min(left - 1);
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if wins(middle) { low = middle } else { high = middle }
        }
        low + 1
    }

    /// The best of the others: among those that lost to the winner on its way up.
    fn rival(&self, winner: usize) -> Option<usize> {
        let mut best: Option<u32> = None;
        let mut node = self.leaves + winner;
        while node > 1 {
            let other = self.tree[node ^ 1];
            let alive = self.inputs.get(other as usize).is_some_and(|i| i.block.is_some());
            if alive && best.is_none_or(|b| self.before(other, b)) {
                best = Some(other);
            }
            node /= 2;
        }
        best.map(|b| b as usize)
    }

    /// Puts rows of the winner into the pending output and moves it on.
    fn emit(&mut self, winner: usize, rows: usize) {
        let slot = &mut self.inputs[winner];
        let Some(block) = &slot.block else { return };
        let held = *slot.slot.get_or_insert_with(|| {
            self.held.push(block.clone());
            self.held.len() as u32 - 1
        });
        let (start, end_row) = match (self.options.reverse, rows) {
            (_, 1) => (slot.row, slot.row),
            (false, _) => (slot.start, slot.start + rows - 1),
            (true, _) => (slot.end - rows, slot.end - rows),
        };
        if rows > 1 || self.options.keep_tombstones || !block.is_tombstone(slot.row) {
            self.pending += rows;
            match self.stretches.last_mut() {
                Some(last) if !self.options.reverse && last.slot == held && (last.start + last.len) as usize == start => {
                    last.len += rows as u32
                }
                _ => self.stretches.push(Stretch { slot: held, start: start as u32, len: rows as u32 }),
            }
        }
        self.last.place = Some((held, end_row as u32));
        self.last.prefix = if rows == 1 { slot.prefix } else { prefix(&block.keys, end_row) };
        self.last.epoch = slot.epoch;
        self.advance(winner, rows);
    }

    fn advance(&mut self, input: usize, rows: usize) {
        let slot = &mut self.inputs[input];
        if !self.options.reverse {
            slot.start = slot.row + rows;
        } else if rows > 1 {
            slot.end -= rows;
        } else {
            slot.end = slot.group;
        }
        self.settle(input);
        self.replay(input);
    }

    fn flush(&mut self) -> Result<Step> {
        if let Some((held, row)) = self.last.place.take() {
            self.last.owned = Some(self.held[held as usize].key(row as usize).to_vec());
        }
        let out = self.gather()?;
        self.held.clear();
        self.stretches.clear();
        self.pending = 0;
        for input in &mut self.inputs {
            input.slot = None;
        }
        match out {
            Some(block) => Ok(Step::Out(block)),
            None => self.step(),
        }
    }

    /// The pending rows as one block.
    fn gather(&self) -> Result<Option<Block>> {
        let Some(first) = self.stretches.first() else { return Ok(None) };
        let slot = |s: &Stretch| &self.held[s.slot as usize];
        let forward = !self.options.reverse || self.stretches.iter().all(|s| s.len == 1);
        let any_tombstone = self.options.keep_tombstones && self.stretches.iter().any(|s| slot(s).tombstones.is_some());
        let epochs = Epochs::Same(self.options.epoch);
        if self.stretches.len() == 1 && forward {
            let mut block = slot(first).slice(first.start as usize, first.len as usize);
            block.epochs = epochs;
            if !any_tombstone {
                block.tombstones = None;
            }
            return Ok(Some(block));
        }
        let gatherer = if forward && self.pending >= self.stretches.len() * 16 { Gatherer::Slices } else { Gatherer::Rows(self.indices()) };
        let column = |get: &dyn Fn(&Block) -> &dyn Array| -> Result<ArrayRef> {
            let arrays: Vec<&dyn Array> = self.held.iter().map(|b| get(b)).collect();
            Ok(match &gatherer {
                Gatherer::Rows(indices) => interleave(&arrays, indices)?,
                Gatherer::Slices => {
                    let slices: Vec<ArrayRef> =
                        self.stretches.iter().map(|s| arrays[s.slot as usize].slice(s.start as usize, s.len as usize)).collect();
                    concat(&slices.iter().map(|a| a.as_ref()).collect::<Vec<_>>())?
                }
            })
        };
        let keys = if self.options.keys { column(&|b| &b.keys)?.as_binary::<i32>().clone() } else { no_keys(self.pending) };
        let schema = self.held[0].rows.schema();
        let columns = (0..schema.fields().len()).map(|c| column(&|b| b.rows.column(c).as_ref())).collect::<Result<_>>()?;
        let rows = block::batch(schema, columns, self.pending)?;
        let tombstones = any_tombstone.then(|| self.indices().into_iter().map(|(held, row)| self.held[held].is_tombstone(row)).collect());
        Ok(Some(Block { keys, epochs, tombstones, rows }))
    }

    /// (held block, row) of every pending row.
    fn indices(&self) -> Vec<(usize, usize)> {
        let mut indices = Vec::with_capacity(self.pending);
        for s in &self.stretches {
            let rows = s.start as usize..(s.start + s.len) as usize;
            if self.options.reverse {
                indices.extend(rows.rev().map(|row| (s.slot as usize, row)));
            } else {
                indices.extend(rows.map(|row| (s.slot as usize, row)));
            }
        }
        indices
    }
}

enum Gatherer {
    /// Copy whole stretches.
    Slices,
    /// Copy row by row.
    Rows(Vec<(usize, usize)>),
}

/// Empty keys where nobody asked for them.
fn no_keys(rows: usize) -> BinaryArray {
    BinaryArray::new(arrow::buffer::OffsetBuffer::new_zeroed(rows), arrow::buffer::Buffer::from([0u8; 0]), None)
}

/// The first 16 bytes of a key as a number that orders as they do; shorter keys are filled with zeros.
fn prefix(keys: &BinaryArray, row: usize) -> u128 {
    let offsets = keys.value_offsets();
    let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
    let values = keys.value_data();
    let len = end - start;
    match values.get(start..start + 16) {
        Some(bytes) => {
            let word = u128::from_be_bytes(bytes.try_into().expect("sixteen bytes"));
            match len {
                0 => 0,
                1..16 => word & (u128::MAX << (128 - 8 * len)),
                _ => word,
            }
        }
        None => {
            let mut bytes = [0; 16];
            bytes[..len.min(16)].copy_from_slice(&values[start..start + len.min(16)]);
            u128::from_be_bytes(bytes)
        }
    }
}
