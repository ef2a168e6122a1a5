//! The lock on the data directory: one process at a time.

use eddyline_types::{Error, Result, SqlState};
use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

/// Held until dropped; the operating system frees it when the process ends, however it ends.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Creates the directory if needed and locks it.
    pub fn acquire(dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir).map_err(|e| unusable(dir, &e))?;
        let path = dir.join("LOCK");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(|e| unusable(dir, &e))?;
        match file.try_lock() {
            Ok(()) => Ok(DirectoryLock { _file: file }),
            Err(TryLockError::WouldBlock) => {
                Err(Error::user(SqlState::OBJECT_IN_USE, format!("data directory {} is in use by another process", dir.display())))
            }
            Err(TryLockError::Error(e)) => Err(unusable(dir, &e)),
        }
    }
}

fn unusable(dir: &Path, error: &std::io::Error) -> Error {
    Error::user(SqlState::IO_ERROR, format!("cannot use data directory {}: {error}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_refused_until_the_first_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let first = DirectoryLock::acquire(dir.path()).unwrap();
        let error = DirectoryLock::acquire(dir.path()).unwrap_err();
        assert!(error.message().contains("in use by another process"), "{error}");
        drop(first);
        DirectoryLock::acquire(dir.path()).unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let error = DirectoryLock::acquire(&dir.path().join("file")).unwrap_err();
        assert!(error.message().starts_with("cannot use data directory"), "{error}");
    }
}
