//! The write path from the shared buffer into files: merge, encode on the blocking pool, put, report.

use crate::block::{Block, Epochs};
use crate::buffer::Sealed;
use crate::merge::{Merge, MergeOptions, Step};
use crate::scan::chains;
use crate::sst::write::{SstBuilder, object_name};
use bytes::Bytes;
use eddyline_protocol::SstInfo;
use eddyline_types::{Epoch, Result, TableId};
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Rows that the merge gathers at once.
const MERGE_ROWS: usize = 4096;

/// One table of an upload.
pub(crate) struct UploadTable {
    pub table: TableId,
    /// Oldest epoch first.
    pub blocks: Vec<Arc<Block>>,
    /// Deleted keys may have rows in older files.
    pub keep_tombstones: bool,
}

impl UploadTable {
    pub(crate) fn new(sealed: Sealed, has_files: bool) -> Self {
        UploadTable { table: sealed.table, keep_tombstones: sealed.behind || has_files, blocks: sealed.blocks }
    }
}

/// Sizes of what is written.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub block_bytes: usize,
    pub file_bytes: usize,
}

/// Merges and encodes the tables (ascending ids) into files, which go out one by one. Runs on a blocking thread.
/// Every row gets `epoch`: nobody reads below an epoch that is committed, and one epoch per file lets readers pass blocks through.
pub(crate) fn encode(tables: Vec<UploadTable>, epoch: Epoch, sizes: Sizes, files: &mpsc::Sender<(Bytes, SstInfo)>) -> Result<()> {
    let mut builder = SstBuilder::new(sizes.block_bytes)?;
    for table in tables {
        let Some(schema) = table.blocks.iter().find(|b| b.len() > 0).map(|b| b.rows.schema()) else { continue };
        builder.start_table(table.table, &schema)?;
        let mut merge = merge(&table, epoch);
        loop {
            match merge.0.step()? {
                Step::Need => {
                    for input in merge.0.take_needed() {
                        merge.0.feed(input, merge.1[input].pop_front());
                    }
                }
                Step::Out(block) => {
                    builder.add(block)?;
                    if builder.size() >= sizes.file_bytes {
                        send(std::mem::replace(&mut builder, SstBuilder::new(sizes.block_bytes)?), files)?;
                        builder.start_table(table.table, &schema)?;
                    }
                }
                Step::Done => break,
            }
        }
    }
    send(builder, files)
}

/// The merge of a table's buffered blocks and the inputs that feed it.
fn merge(table: &UploadTable, epoch: Epoch) -> (Merge, Vec<VecDeque<Arc<Block>>>) {
    let mut epochs: Vec<Vec<Arc<Block>>> = vec![];
    for block in &table.blocks {
        let same = |other: &Vec<Arc<Block>>| matches!((&other[0].epochs, &block.epochs), (Epochs::Same(a), Epochs::Same(b)) if a == b);
        match epochs.last_mut() {
            Some(last) if same(last) => last.push(block.clone()),
            _ => epochs.push(vec![block.clone()]),
        }
    }
    let inputs: Vec<VecDeque<Arc<Block>>> = epochs.iter().flat_map(|blocks| chains(blocks)).map(VecDeque::from).collect();
    let options = MergeOptions {
        visible: epoch,
        range: (Bound::Unbounded, Bound::Unbounded),
        keep_tombstones: table.keep_tombstones,
        reverse: false,
        keys: true,
        batch_rows: MERGE_ROWS,
        slice_rows: 1 << 16,
        epoch,
    };
    (Merge::new(inputs.len(), options), inputs)
}

/// Hands a finished file over. Waits while earlier ones are still being put: so few are in memory at once.
fn send(builder: SstBuilder, files: &mpsc::Sender<(Bytes, SstInfo)>) -> Result<()> {
    if let Some(file) = builder.finish(object_name())? {
        // A receiver that is gone has failed already and says why.
        let _ = files.blocking_send(file);
    }
    Ok(())
}
