//! What sources need of a store that is not ours: opening it without touching it, listing one folder.

use crate::{ObjectInfo, Objects};
use eddyline_types::Result;

impl Objects {
    /// Opens what [`Objects::open`] opens, for reading only.
    pub fn open_to_read(url: &str) -> Result<Self> {
        Self::open(url)
    }

    /// The objects directly in a folder (with a trailing slash, or empty for the root), by name; a missing folder is empty.
    pub async fn list_folder(&self, folder: &str) -> Result<Vec<ObjectInfo>> {
        let mut found = self.list(folder).await?;
        found.retain(|o| o.name.strip_prefix(folder).is_some_and(|rest| !rest.contains('/')));
        Ok(found)
    }
}
