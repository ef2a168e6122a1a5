//! Bytes of the shared nouns, for the Raft log and snapshots: one version byte, then bincode.
//!
//! bincode 2 is no longer maintained: it is used in this one module only, so that it can be replaced by a version bump.

use eddyline_types::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Version of all encodings of this module.
const VERSION: u8 = 1;

/// Encodes a value.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    let mut bytes = vec![VERSION];
    bincode::serde::encode_into_std_write(value, &mut bytes, bincode::config::standard())
        .map_err(|e| Error::internal(format!("cannot encode: {e}")))?;
    Ok(bytes)
}

/// Decodes a value; trailing bytes, an unknown version or malformed bytes are an error of kind `Corruption`.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let (version, rest) = bytes.split_first().ok_or_else(|| Error::corruption("empty record"))?;
    if *version != VERSION {
        return Err(Error::corruption(format!("record has version {version}, this program reads {VERSION}")));
    }
    let (value, read) = bincode::serde::decode_from_slice(rest, bincode::config::standard())
        .map_err(|e| Error::corruption(format!("cannot decode: {e}")))?;
    if read != rest.len() {
        return Err(Error::corruption("record has trailing bytes"));
    }
    Ok(value)
}
