//! What a local filesystem needs beyond a write: temporary names, and fsync of the directories that hold a new file.
//!
//! opendal writes to a temporary name in the folder [`TEMPORARY`], fsyncs the file and renames it. The rename is
//! durable only when the directory is fsynced too, and a new directory only when its parent is: this file does that.

use crate::failure::map_io;
use eddyline_env::{clock, spawn};
use eddyline_types::{Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The folder below the root where half-written files live. Listings leave it out.
pub(crate) const TEMPORARY: &str = ".tmp/";

/// Temporary files that are older belong to nobody: a put does not take that long.
const TEMPORARY_AGE_MS: u64 = 60 * 60 * 1000;

/// A local root.
pub(crate) struct Directory {
    root: PathBuf,
    /// Directories whose own entry in their parent is known to be durable.
    anchored: Mutex<BTreeSet<PathBuf>>,
}

impl Directory {
    /// Creates the root durably and removes what earlier processes left half-written.
    pub(crate) fn create(root: &Path) -> Result<Self> {
        let temporary = root.join(TEMPORARY);
        std::fs::create_dir_all(&temporary).map_err(|e| map_io("create directory", root, e))?;
        for entry in std::fs::read_dir(&temporary).map_err(|e| map_io("read directory", &temporary, e))?.flatten() {
            let modified = entry.metadata().and_then(|m| m.modified()).ok();
            let modified_ms = modified.and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok()).map_or(0, |d| d.as_millis() as u64);
            if clock::unix_millis().saturating_sub(modified_ms) > TEMPORARY_AGE_MS {
                // Only space is at stake, and another process may have removed it already.
                let _ = std::fs::remove_file(entry.path());
            }
        }
        sync(root)?;
        // The root's own entry; a root that was there before may have a parent that we may not open.
        if let Some(parent) = root.parent() {
            let _ = sync(parent);
        }
        Ok(Directory { root: root.to_owned(), anchored: Mutex::default() })
    }

    /// Fsyncs the directory of an object, and those above it whose entry is new.
    pub(crate) async fn sync_parents(&self, name: &str) -> Result<()> {
        let mut directories = vec![];
        let mut relative = Path::new(name);
        while let Some(parent) = relative.parent() {
            let absolute = self.root.join(parent);
            // The object's own directory always (it has a new entry), those above until one is known.
            let known = !directories.is_empty() && self.anchored.lock().unwrap_or_else(|e| e.into_inner()).contains(&absolute);
            if known {
                break;
            }
            directories.push(absolute);
            relative = parent;
        }
        let directories = spawn::blocking(move || directories.iter().try_for_each(|d| sync(d)).map(|()| directories))
            .await
            .map_err(|e| Error::internal(format!("the task that fsyncs a directory ended: {e}")))??;
        self.anchored.lock().unwrap_or_else(|e| e.into_inner()).extend(directories);
        Ok(())
    }
}

fn sync(directory: &Path) -> Result<()> {
    std::fs::File::open(directory).and_then(|d| d.sync_all()).map_err(|e| map_io("fsync directory", directory, e))
}
