//! Deleting objects that nothing can name any more.
//!
//! Proof, not bookkeeping: list the folder, subtract what the current version, versions that readers hold, and running or uncommitted tasks
//! name, and leave what is young (another node may have put it and not committed yet). The names are collected before and after
//! the listing: what was put in between is young, what was committed in between was pending before.

use crate::sst::write::{FOLDER, object_time_ms};
use crate::store::Inner;
use eddyline_env::clock;
use eddyline_types::Result;
use std::collections::BTreeSet;

/// Deletes at most so many objects in one call: the next goes on.
const MOST: usize = 1000;

/// See the module. Returns how many were deleted.
pub(crate) async fn collect(inner: &Inner) -> Result<usize> {
    let before = named(inner);
    let listed = inner.objects.list(FOLDER).await?;
    let after = named(inner);
    let now = clock::unix_millis();
    let mut deleted = 0;
    for object in listed {
        let age = now.saturating_sub(object.modified_ms.max(object_time_ms(&object.name)));
        if age < inner.config.garbage_age_ms || before.contains(&object.name) || after.contains(&object.name) {
            continue;
        }
        inner.objects.delete(&object.name).await?;
        deleted += 1;
        metrics::counter!("eddyline_store_garbage_deleted_total").increment(1);
        if deleted == MOST {
            break;
        }
    }
    Ok(deleted)
}

fn named(inner: &Inner) -> BTreeSet<String> {
    let mut names = inner.pending.names();
    for levels in inner.live_levels() {
        names.extend(levels.version.files().map(|f| f.object.clone()));
    }
    names
}
