//! Object stores: URLs, operators, durability, retry, timeout and concurrency layers, metrics. The sole home of opendal.
//!
//! Reading order: [`url`] (which store a URL names), [`durable`] (what a local filesystem needs beyond a write), this file (the handle).
//! Objects are written once under unique names and never changed, so nothing here locks, compares or overwrites.

mod durable;
mod failure;
mod url;

mod reading;

use bytes::Bytes;
use eddyline_env::failpoint;
use eddyline_types::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// An object store below a root. Cheap to clone.
#[derive(Clone)]
pub struct Objects {
    operator: opendal::Operator,
    /// The local directory, if the store is one: what was written must be made durable by us.
    directory: Option<Arc<durable::Directory>>,
    /// Names this store in fail points (`objects.put@label`), so that a test can make one of several stores fail.
    label: Arc<str>,
}

impl fmt::Debug for Objects {
    // The operator's own output may hold credentials one day; the label never does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Objects({})", self.label)
    }
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

impl Objects {
    /// Opens `fs:///dir`, a plain path, `memory://label` or `s3://bucket/prefix?region=..&endpoint=..&access_key_id=..&secret_access_key=..`.
    /// A local directory is created if it is missing; each `memory://` is a store of its own. Nothing is requested from a remote store.
    pub fn open(url: &str) -> Result<Self> {
        url::open(url)
    }

    /// Writes a new object durably (on a filesystem: fsync of file and directory). Never overwrites: names are unique.
    pub async fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        let size = bytes.len() as u64;
        let result = self.put_inner(name, bytes).await;
        observe("put", size, &result);
        result
    }

    async fn put_inner(&self, name: &str, bytes: Bytes) -> Result<()> {
        self.fail("objects.put", name)?;
        self.operator.write(name, bytes).await.map_err(|e| failure::map("write", name, e))?;
        self.fail("objects.put.sync", name)?;
        if let Some(directory) = &self.directory {
            directory.sync_parents(name).await?;
        }
        self.fail("objects.put.done", name)
    }

    /// Reads a range. A range beyond the end of the object is an error.
    pub async fn get_range(&self, name: &str, range: std::ops::Range<u64>) -> Result<Bytes> {
        let wanted = range.end.saturating_sub(range.start);
        let result = self.get_range_inner(name, range).await;
        observe("get", wanted, &result);
        result
    }

    async fn get_range_inner(&self, name: &str, range: std::ops::Range<u64>) -> Result<Bytes> {
        self.fail("objects.get", name)?;
        let wanted = range.end.saturating_sub(range.start);
        let bytes = self.operator.read_with(name).range(range).await.map_err(|e| failure::map("read", name, e))?.to_bytes();
        if bytes.len() as u64 != wanted {
            return Err(Error::unavailable(format!("object \"{name}\": asked for {wanted} bytes, got {}", bytes.len())));
        }
        Ok(bytes)
    }

    /// Reads a whole object.
    pub async fn get(&self, name: &str) -> Result<Bytes> {
        let result = async {
            self.fail("objects.get", name)?;
            Ok(self.operator.read(name).await.map_err(|e| failure::map("read", name, e))?.to_bytes())
        }
        .await;
        observe("get", result.as_ref().map_or(0, |b| b.len() as u64), &result);
        result
    }

    /// Size and age of one object; `None` if it is not there.
    pub async fn stat(&self, name: &str) -> Result<Option<ObjectInfo>> {
        let result = match self.operator.stat(name).await {
            Ok(metadata) if metadata.is_file() => Ok(Some(info(name, &metadata))),
            Ok(_) => Ok(None),
            Err(e) if e.kind() == opendal::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failure::map("stat", name, e)),
        };
        observe("stat", 0, &result);
        result
    }

    /// All objects whose name starts with `prefix` (a folder with a trailing slash, or empty for all), recursively, by name.
    pub async fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        let result = self.list_inner(prefix, true).await;
        observe("list", 0, &result);
        result
    }

    pub(crate) async fn list_inner(&self, prefix: &str, recursive: bool) -> Result<Vec<ObjectInfo>> {
        self.fail("objects.list", prefix)?;
        let entries = match self.operator.list_with(prefix).recursive(recursive).await {
            Ok(entries) => entries,
            Err(e) if e.kind() == opendal::ErrorKind::NotFound => return Ok(vec![]),
            Err(e) => return Err(failure::map("list", prefix, e)),
        };
        let mut found = Vec::with_capacity(entries.len());
        for entry in entries {
            if entry.path().starts_with(durable::TEMPORARY) || entry.path().ends_with('/') {
                continue;
            }
            // The filesystem's listing gives names only. An object may go away between the listing and this request.
            if entry.metadata().last_modified().is_some() {
                found.push(info(entry.path(), entry.metadata()));
            } else if let Some(object) = self.stat(entry.path()).await? {
                found.push(object);
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Deletes; a missing object is fine.
    pub async fn delete(&self, name: &str) -> Result<()> {
        let result = async {
            self.fail("objects.delete", name)?;
            self.operator.delete(name).await.map_err(|e| failure::map("delete", name, e))
        }
        .await;
        observe("delete", 0, &result);
        result
    }

    /// Fail points: `point` is for all stores, `point@label` for one.
    fn fail(&self, point: &str, name: &str) -> Result<()> {
        if failpoint::hit(point) || (!self.label.is_empty() && failpoint::hit(&format!("{point}@{}", self.label))) {
            return Err(Error::unavailable(format!("object \"{name}\": fail point {point}")));
        }
        Ok(())
    }
}

fn info(name: &str, metadata: &opendal::Metadata) -> ObjectInfo {
    let modified_ms = metadata.last_modified().map_or(0, |t| t.into_inner().as_millisecond().max(0) as u64);
    ObjectInfo { name: name.to_owned(), size_bytes: metadata.content_length(), modified_ms }
}

fn observe<T>(operation: &'static str, bytes: u64, result: &Result<T>) {
    let outcome = if result.is_ok() { "ok" } else { "error" };
    metrics::counter!("eddyline_object_store_requests_total", "operation" => operation, "outcome" => outcome).increment(1);
    if result.is_ok() && bytes > 0 {
        metrics::counter!("eddyline_object_store_bytes_total", "operation" => operation).increment(bytes);
    }
}
