//! What sources need of a store that is not ours: opening it without touching it, listing one folder.

use crate::{ObjectInfo, Objects, observe, url};
use eddyline_types::Result;

impl Objects {
    /// Opens what [`Objects::open`] opens, for reading only: an existing local directory is not changed and may be read-only.
    pub fn open_to_read(url: &str) -> Result<Self> {
        url::open_to_read(url)
    }

    /// The objects directly in a folder (with a trailing slash, or empty for the root), by name; a missing folder is empty.
    pub async fn list_folder(&self, folder: &str) -> Result<Vec<ObjectInfo>> {
        let result = self.list_inner(folder, false).await;
        observe("list", 0, &result);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_folder_is_listed_without_a_trace_in_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("in/deep")).unwrap();
        for name in ["in/b.csv", "in/a.csv", "in/deep/c.csv", "out.csv"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        // As sources open it: from the root of the filesystem.
        let objects = Objects::open_to_read("fs:///").unwrap();
        let root = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
        let names = |list: Vec<ObjectInfo>| list.into_iter().map(|o| o.name[root.len() + 1..].to_owned()).collect::<Vec<_>>();
        let listed = objects.list_folder(&format!("{root}/in/")).await.unwrap();
        assert!(listed.iter().all(|o| o.size_bytes == 8 && o.modified_ms > 0), "{listed:?}");
        assert_eq!(names(listed), ["in/a.csv", "in/b.csv"]);
        assert_eq!(names(objects.list(&format!("{root}/in/")).await.unwrap()), ["in/a.csv", "in/b.csv", "in/deep/c.csv"]);
        assert_eq!(objects.list_folder(&format!("{root}/nowhere/")).await.unwrap(), []);
        assert_eq!(objects.get_range(&format!("{root}/in/a.csv"), 3..8).await.unwrap(), "a.csv");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
