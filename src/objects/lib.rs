//! Object stores: URLs, operators, retry, timeout and metrics layers. The sole home of opendal.

mod reading;

use bytes::Bytes;
use eddyline_types::Result;

/// An object store below a root. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Objects {
    #[allow(dead_code)]
    operator: opendal::Operator,
}

/// What a listing tells of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Name below the root.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Milliseconds since the Unix epoch, 0 if the store does not tell.
    pub modified_ms: u64,
}

#[allow(unused_variables)]
impl Objects {
    /// Opens `fs:///dir`, a plain path, `memory://` or `s3://bucket/prefix?region=..&endpoint=..&access_key_id=..&secret_access_key=..`.
    pub fn open(url: &str) -> Result<Self> {
        Err(eddyline_types::Error::internal("not written yet"))
    }

    /// Writes a new object durably (on a filesystem: fsync of file and directory). Never overwrites: names are unique.
    pub async fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        Ok(())
    }

    /// Reads a range.
    pub async fn get_range(&self, name: &str, range: std::ops::Range<u64>) -> Result<Bytes> {
        Ok(Bytes::new())
    }

    /// Reads a whole object.
    pub async fn get(&self, name: &str) -> Result<Bytes> {
        Ok(Bytes::new())
    }

    /// Size and age of one object; `None` if it is not there.
    pub async fn stat(&self, name: &str) -> Result<Option<ObjectInfo>> {
        Ok(None)
    }

    /// All objects whose name starts with `prefix` (a folder with a trailing slash, or empty for all), recursively, by name.
    pub async fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        Ok(vec![])
    }

    /// Deletes; a missing object is fine.
    pub async fn delete(&self, name: &str) -> Result<()> {
        Ok(())
    }
}
