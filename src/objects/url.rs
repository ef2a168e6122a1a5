//! Which store a URL names, and the layers around its operator.

use crate::durable::{Directory, TEMPORARY};
use crate::{Objects, failure};
use eddyline_types::{Error, Result, SqlState};
use opendal::layers::{ConcurrentLimitLayer, RetryLayer, TimeoutLayer};
use opendal::{Operator, services};
use std::collections::BTreeMap;
use std::sync::{Arc, Once};
use std::time::Duration;

/// Requests in flight per store. More only queue up in the device or run into the service's limits.
const CONCURRENT_REQUESTS: usize = 64;

/// Opens the store that a URL names.
pub(crate) fn open(url: &str) -> Result<Objects> {
    match url.split_once("://") {
        None => open_directory(url),
        Some(("fs" | "file", path)) => open_directory(path),
        Some(("memory", label)) => {
            let operator = Operator::new(services::Memory::default()).map_err(|e| failure::map("open", url, e))?;
            Ok(Objects { operator, directory: None, label: label.trim_matches('/').into() })
        }
        Some(("s3", rest)) => open_s3(rest),
        Some((scheme, _)) => Err(invalid(format!("unknown object store scheme \"{scheme}\""))
            .with_hint("Use a path, fs:///dir, memory:// or s3://bucket/prefix.")),
    }
}

fn open_directory(path: &str) -> Result<Objects> {
    if path.is_empty() {
        return Err(invalid("the object store's path is empty"));
    }
    let root = std::path::absolute(path).map_err(|e| failure::map_io("resolve", path.as_ref(), e))?;
    let directory = Directory::create(&root)?;
    let text = root.to_str().ok_or_else(|| invalid("the object store's path is not valid UTF-8"))?;
    let temporary = root.join(TEMPORARY);
    let temporary = temporary.to_str().ok_or_else(|| invalid("the object store's path is not valid UTF-8"))?;
    let builder = services::Fs::default().root(text).atomic_write_dir(temporary);
    let operator = Operator::new(builder).map_err(|e| failure::map("open", text, e))?;
    Ok(Objects { operator: layered(operator), directory: Some(Arc::new(directory)), label: "".into() })
}

/// Opens the store that a URL names without preparing a local directory for writes.
pub(crate) fn open_to_read(url: &str) -> Result<Objects> {
    let path = match url.split_once("://") {
        None => url,
        Some(("fs" | "file", path)) => path,
        Some(_) => return open(url),
    };
    let operator = Operator::new(services::Fs::default().root(path)).map_err(|e| failure::map("open", path, e))?;
    Ok(Objects { operator: layered(operator), directory: None, label: "".into() })
}

fn open_s3(rest: &str) -> Result<Objects> {
    install_tls_provider();
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    if bucket.is_empty() {
        return Err(invalid("the object store's URL names no bucket").with_hint("Write s3://bucket/prefix?region=.."));
    }
    let mut options = parse_query(query)?;
    let mut take = |name: &str| options.remove(name);
    let mut builder =
        services::S3::default().bucket(bucket).root(&format!("/{prefix}")).region(&take("region").unwrap_or("us-east-1".into()));
    if let Some(endpoint) = take("endpoint") {
        builder = builder.endpoint(&endpoint);
    }
    if let Some(key) = take("access_key_id") {
        builder = builder.access_key_id(&key);
    }
    if let Some(key) = take("secret_access_key") {
        builder = builder.secret_access_key(&key);
    }
    if let Some(token) = take("session_token") {
        builder = builder.session_token(&token);
    }
    if take("virtual_host_style").is_some_and(|v| v == "true") {
        builder = builder.enable_virtual_host_style();
    }
    if let Some(name) = options.keys().next() {
        return Err(invalid(format!("unknown option \"{name}\" in the object store's URL"))
            .with_hint("Known: region, endpoint, access_key_id, secret_access_key, session_token, virtual_host_style."));
    }
    let operator = Operator::new(builder).map_err(|e| failure::map("open", bucket, e))?;
    Ok(Objects { operator: layered(operator), directory: None, label: bucket.into() })
}

/// Timeout inside retry: a request that hangs is given up and tried again. Retries end well before a checkpoint is called stuck.
fn layered(operator: Operator) -> Operator {
    operator
        .layer(ConcurrentLimitLayer::new(CONCURRENT_REQUESTS))
        .layer(TimeoutLayer::new().with_timeout(Duration::from_secs(20)).with_io_timeout(Duration::from_secs(20)))
        .layer(
            RetryLayer::new()
                .with_max_times(4)
                .with_min_delay(Duration::from_millis(50))
                .with_max_delay(Duration::from_secs(5))
                .with_jitter(),
        )
}

/// opendal's HTTP client asks for a process-wide TLS provider. A program that has one keeps it.
fn install_tls_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

fn parse_query(query: &str) -> Result<BTreeMap<String, String>> {
    let mut options = BTreeMap::new();
    for pair in query.split('&').filter(|p| !p.is_empty()) {
        let (name, value) =
            pair.split_once('=').ok_or_else(|| invalid(format!("option \"{pair}\" of the object store's URL has no value")))?;
        options.insert(name.to_owned(), percent_decode(value)?);
    }
    Ok(options)
}

fn percent_decode(text: &str) -> Result<String> {
    let bad = || invalid("the object store's URL has a broken percent escape");
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            let digits = text.get(at + 1..at + 3).ok_or_else(bad)?;
            out.push(u8::from_str_radix(digits, 16).map_err(|_| bad())?);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(out).map_err(|_| bad())
}

fn invalid(message: impl Into<String>) -> Error {
    Error::user(SqlState::INVALID_PARAMETER_VALUE, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded_and_checked() {
        let options = parse_query("region=eu&secret_access_key=a%2Fb%2Bc").unwrap();
        assert_eq!(options["secret_access_key"], "a/b+c");
        assert!(parse_query("region").is_err());
        assert!(percent_decode("%2").is_err());
        assert!(percent_decode("%zz").is_err());
    }

    #[test]
    fn wrong_urls_say_what_is_wrong() {
        for (url, part) in [
            ("ftp://x", "unknown object store scheme"),
            ("s3:///p", "no bucket"),
            ("s3://b/p?regoin=x", "unknown option"),
            ("fs://", "empty"),
        ] {
            let error = Objects::open(url).unwrap_err();
            assert!(error.message().contains(part), "{url}: {error}");
            assert_eq!(error.sqlstate(), SqlState::INVALID_PARAMETER_VALUE);
        }
        assert!(Objects::open("s3://bucket/prefix?region=eu-west-1&access_key_id=a&secret_access_key=b").is_ok());
        assert!(!format!("{:?}", Objects::open("s3://bucket/?secret_access_key=hush").unwrap()).contains("hush"));
    }
}
