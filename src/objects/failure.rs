//! What an object store's error means for the caller: missing, full, refused, or away for the moment.

use eddyline_types::{Error, ErrorKind, SqlState};

/// Turns an error of an operation on an object into ours. The text of the store goes into the detail.
pub(crate) fn map(operation: &str, name: &str, error: opendal::Error) -> Error {
    use opendal::ErrorKind as K;
    let text = format!("{error}");
    let full = std::error::Error::source(&error)
        .and_then(|s| s.downcast_ref::<std::io::Error>())
        .is_some_and(|e| e.kind() == std::io::ErrorKind::StorageFull)
        || text.contains("No space left on device");
    let made = if full {
        Error::new(ErrorKind::Unavailable, SqlState::DISK_FULL, format!("could not {operation} object \"{name}\": the disk is full"))
            .with_hint("Free space on the device that holds the object store.")
    } else {
        match error.kind() {
            K::NotFound => Error::user(SqlState::UNDEFINED_OBJECT, format!("object \"{name}\" does not exist")),
            K::PermissionDenied => Error::new(
                ErrorKind::Unavailable,
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("permission denied to {operation} object \"{name}\""),
            ),
            K::ConfigInvalid => Error::user(SqlState::INVALID_PARAMETER_VALUE, "the object store's URL is not valid".to_owned()),
            _ => Error::new(ErrorKind::Unavailable, SqlState::IO_ERROR, format!("could not {operation} object \"{name}\"")),
        }
    };
    made.with_detail(text)
}

/// The same for errors of the local filesystem.
pub(crate) fn map_io(operation: &str, path: &std::path::Path, error: std::io::Error) -> Error {
    let state = match error.kind() {
        std::io::ErrorKind::StorageFull => SqlState::DISK_FULL,
        std::io::ErrorKind::PermissionDenied => SqlState::INSUFFICIENT_PRIVILEGE,
        _ => SqlState::IO_ERROR,
    };
    Error::new(ErrorKind::Unavailable, state, format!("could not {operation} \"{}\": {error}", path.display()))
}
