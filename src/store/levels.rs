//! A version, opened: for every table the files that may hold its rows, newest first.
//!
//! Invariant (of versions): data in a lower level is newer than data of the same key in a higher one; in level 0 later files are newer;
//! in every other level the files of one table follow each other without overlap.

use crate::cache::Cache;
use crate::sst::read::SstFile;
use eddyline_objects::Objects;
use eddyline_protocol::Version;
use eddyline_protocol::version::SstTable;
use eddyline_types::{Epoch, TableId};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// A file's part of one table.
#[derive(Clone)]
pub(crate) struct FilePart {
    pub file: Arc<SstFile>,
    /// Position in the file's list of tables.
    entry: usize,
}

impl FilePart {
    pub(crate) fn table(&self) -> &SstTable {
        &self.file.info.tables[self.entry]
    }

    pub(crate) fn may_hold(&self, key: &[u8]) -> bool {
        let table = self.table();
        *table.first_key <= *key && *key <= *table.last_key
    }

    /// Whether keys inside the bounds may be here.
    pub(crate) fn overlaps(&self, (low, high): &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> bool {
        let table = self.table();
        let above = match low {
            Bound::Unbounded => true,
            Bound::Included(key) => table.last_key >= *key,
            Bound::Excluded(key) => table.last_key > *key,
        };
        let below = match high {
            Bound::Unbounded => true,
            Bound::Included(key) => table.first_key <= *key,
            Bound::Excluded(key) => table.first_key < *key,
        };
        above && below
    }
}

/// One table's files: chains from the newest to the oldest; the files of a chain follow each other.
#[derive(Clone, Default)]
pub(crate) struct TableFiles {
    pub chains: Vec<Vec<FilePart>>,
}

/// See the module.
pub(crate) struct Levels {
    pub version: Arc<Version>,
    files: BTreeMap<String, Arc<SstFile>>,
    tables: BTreeMap<TableId, TableFiles>,
}

impl Levels {
    /// Opens a version; files that the previous one has are kept open.
    pub(crate) fn open(version: Arc<Version>, previous: Option<&Levels>, objects: &Objects, cache: &Cache) -> Self {
        let mut files = BTreeMap::new();
        let mut tables: BTreeMap<TableId, TableFiles> = BTreeMap::new();
        for (level, ssts) in version.levels.iter().enumerate() {
            let mut chains: BTreeMap<TableId, Vec<FilePart>> = BTreeMap::new();
            let newest_first: Box<dyn Iterator<Item = _>> = if level == 0 { Box::new(ssts.iter().rev()) } else { Box::new(ssts.iter()) };
            for info in newest_first {
                let open = previous.and_then(|p| p.files.get(&info.object)).cloned();
                let file = open.unwrap_or_else(|| Arc::new(SstFile::new(info.clone(), objects.clone(), cache.clone())));
                files.insert(info.object.clone(), file.clone());
                for (entry, table) in info.tables.iter().enumerate() {
                    let part = FilePart { file: file.clone(), entry };
                    if level == 0 {
                        tables.entry(table.table).or_default().chains.push(vec![part]);
                    } else {
                        chains.entry(table.table).or_default().push(part);
                    }
                }
            }
            for (table, mut chain) in chains {
                chain.sort_by(|a, b| a.table().first_key.cmp(&b.table().first_key));
                tables.entry(table).or_default().chains.push(chain);
            }
        }
        Levels { version, files, tables }
    }

    pub(crate) fn table(&self, table: TableId) -> Option<&TableFiles> {
        self.tables.get(&table)
    }

    pub(crate) fn file(&self, object: &str) -> Option<&Arc<SstFile>> {
        self.files.get(object)
    }

    /// The newest durable epoch of a table; zero if it has none.
    pub(crate) fn committed(&self, table: TableId) -> Epoch {
        self.version.committed.get(&table).copied().unwrap_or_default()
    }
}
