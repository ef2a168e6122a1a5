//! Objects that were written and that no installed version names yet: they look like garbage and must not be taken for it.

use eddyline_env::clock;
use eddyline_protocol::{SstInfo, Version};
use eddyline_types::TableId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// A compaction whose delta was not installed within this time is taken for lost: its inputs may be compacted again.
const COMPACTION_LEASE_MS: u64 = 10 * 60 * 1000;

/// See the module.
#[derive(Default)]
pub(crate) struct Pending {
    objects: Mutex<BTreeMap<String, Entry>>,
}

struct Entry {
    tables: Vec<TableId>,
    /// The files that a compaction read; empty for uploads.
    inputs: Vec<String>,
    since_ms: u64,
}

impl Pending {
    pub(crate) fn add(&self, info: &SstInfo, inputs: &[String]) {
        let tables = info.tables.iter().map(|t| t.table).collect();
        let entry = Entry { tables, inputs: inputs.to_vec(), since_ms: clock::unix_millis() };
        self.objects.lock().insert(info.object.clone(), entry);
    }

    /// Their task failed, or its result is void.
    pub(crate) fn forget<'a>(&self, names: impl Iterator<Item = &'a str>) {
        let mut objects = self.objects.lock();
        for name in names {
            objects.remove(name);
        }
    }

    /// A version was installed: what it names is safe, and a compaction whose inputs it no longer has is over.
    pub(crate) fn installed(&self, version: &Version) {
        let mut objects = self.objects.lock();
        if objects.is_empty() {
            return;
        }
        let named: BTreeSet<&str> = version.files().map(|f| f.object.as_str()).collect();
        objects.retain(|name, entry| !named.contains(name.as_str()) && entry.inputs.iter().all(|input| named.contains(input.as_str())));
    }

    /// Tables were rolled back: their uploads will not be committed.
    pub(crate) fn discarded(&self, tables: &[TableId]) {
        self.objects.lock().retain(|_, entry| !entry.inputs.is_empty() || !entry.tables.iter().any(|t| tables.contains(t)));
    }

    /// Whether the result of a compaction waits for its commit.
    pub(crate) fn compacting(&self) -> bool {
        self.expire();
        self.objects.lock().values().any(|e| !e.inputs.is_empty())
    }

    /// The names that are no garbage.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.expire();
        self.objects.lock().keys().cloned().collect()
    }

    fn expire(&self) {
        let now = clock::unix_millis();
        self.objects.lock().retain(|_, e| e.inputs.is_empty() || now.saturating_sub(e.since_ms) < COMPACTION_LEASE_MS);
    }
}
