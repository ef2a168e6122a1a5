//! House rules that a compiler does not know: the layer law, homes of heavy dependencies, module docs, `unsafe`, file sizes, dead links,
//! and the two journeys of the README.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Layer of every crate under `src/`. A crate depends only on lower layers.
const LAYERS: &[(&str, u32)] = &[
    ("types", 0),
    ("env", 0),
    ("objects", 1),
    ("expr", 1),
    ("rpc", 1),
    ("protocol", 2),
    ("store", 3),
    ("connect", 3),
    ("sql", 4),
    ("raft_meta", 4),
    ("actors", 4),
    ("serving", 4),
    ("session", 5),
    ("pgwire", 6),
    ("http", 6),
];

/// Dependencies that only some crates may name.
const HOMES: &[(&str, &[&str])] = &[
    ("opendal", &["objects"]),
    ("actix", &["actors"]),
    ("actix-rt", &["actors"]),
    ("actix-web", &["http"]),
    ("openraft", &["raft_meta"]),
    ("redb", &["raft_meta"]),
    ("sqlparser", &["sql"]),
    ("pgwire", &["pgwire"]),
    ("bincode", &["protocol"]),
    ("prost", &["protocol", "rpc", "raft_meta"]),
    ("parquet", &["connect"]),
    ("datafusion", &["expr", "sql", "serving", "actors"]),
    ("datafusion-proto", &["expr"]),
    ("datafusion-pg-catalog", &["serving"]),
    ("metrics-exporter-prometheus", &["env"]),
];

/// Lines after which a file surely has a second responsibility.
const MAX_LINES: usize = 1200;

/// Runs all rules; every violation is printed.
pub fn check(root: &Path) -> Result<()> {
    let mut found = Vec::new();
    layer_law(root, &mut found)?;
    for file in files(root, &["src", "tests", "benches", "xtask"], "rs")? {
        source_rules(root, &file, &mut found)?;
    }
    let mut documents = files(root, &["docs"], "md")?;
    documents.push(root.join("README.md"));
    for document in documents {
        links(root, &document, &mut found)?;
    }
    journeys(root, &mut found)?;
    for line in &found {
        eprintln!("tidy: {line}");
    }
    if found.is_empty() { Ok(()) } else { bail!("{} house rules broken", found.len()) }
}

fn layer_law(root: &Path, found: &mut Vec<String>) -> Result<()> {
    let layers: BTreeMap<&str, u32> = LAYERS.iter().copied().collect();
    for (name, layer) in LAYERS {
        let path = root.join("src").join(name).join("Cargo.toml");
        let manifest: toml::Table = fs::read_to_string(&path).with_context(|| path.display().to_string())?.parse()?;
        for section in ["dependencies", "build-dependencies"] {
            let Some(dependencies) = manifest.get(section).and_then(toml::Value::as_table) else { continue };
            for dependency in dependencies.keys() {
                if let Some(ours) = dependency.strip_prefix("eddyline-") {
                    match layers.get(ours.replace('-', "_").as_str()) {
                        Some(below) if below < layer => {}
                        Some(below) => found.push(format!("src/{name} (layer {layer}) depends on {ours} (layer {below})")),
                        None => found.push(format!("src/{name} depends on {ours}, which has no layer")),
                    }
                }
                if let Some((_, homes)) = HOMES.iter().find(|(d, _)| d == dependency)
                    && !homes.contains(name)
                {
                    found.push(format!("src/{name} depends on {dependency}, whose home is {}", homes.join(", ")));
                }
            }
        }
    }
    for entry in fs::read_dir(root.join("src"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().join("Cargo.toml").is_file() && !layers.contains_key(name.as_str()) {
            found.push(format!("src/{name} has no layer"));
        }
    }
    Ok(())
}

fn source_rules(root: &Path, file: &Path, found: &mut Vec<String>) -> Result<()> {
    let text = fs::read_to_string(file)?;
    let name = file.strip_prefix(root).unwrap_or(file).display().to_string();
    if !text.trim_start().starts_with("//!") {
        found.push(format!("{name}: no module documentation at the top"));
    }
    let lines = text.lines().count();
    if lines > MAX_LINES {
        found.push(format!("{name}: {lines} lines; find the second responsibility"));
    }
    let may_be_unsafe = file.file_stem().is_some_and(|s| s.to_string_lossy().contains("unsafe"));
    if !may_be_unsafe && text.contains(concat!("allow(", "unsafe_code)")) {
        found.push(format!("{name}: unsafe code outside a file whose name says so"));
    }
    for banned in [concat!("todo", "!("), concat!("unimplemented", "!(")] {
        if text.contains(banned) {
            found.push(format!("{name}: {banned})"));
        }
    }
    Ok(())
}

/// Relative links of a document must lead somewhere.
fn links(root: &Path, document: &Path, found: &mut Vec<String>) -> Result<()> {
    let text = fs::read_to_string(document).with_context(|| document.display().to_string())?;
    let folder = document.parent().unwrap_or(root);
    for part in text.split("](").skip(1) {
        let Some(target) = part.split(')').next() else { continue };
        let target = target.split('#').next().unwrap_or("");
        if target.is_empty() || target.contains("://") || target.contains(' ') {
            continue;
        }
        if !folder.join(target).exists() {
            found.push(format!("{}: dead link {target}", document.strip_prefix(root).unwrap_or(document).display()));
        }
    }
    Ok(())
}

/// Every `src/...rs::function` that the README's journeys name must exist.
fn journeys(root: &Path, found: &mut Vec<String>) -> Result<()> {
    let text = fs::read_to_string(root.join("README.md"))?;
    let mut stops = 0;
    for quoted in text.split('`').skip(1).step_by(2) {
        let Some((file, function)) = quoted.split_once(".rs::") else { continue };
        stops += 1;
        let path = root.join(format!("{file}.rs"));
        let function = function.rsplit("::").next().unwrap_or(function);
        let exists = fs::read_to_string(&path).is_ok_and(|source| {
            [format!("fn {function}("), format!("fn {function}<"), format!("struct {function}"), format!("enum {function}")]
                .iter()
                .any(|wanted| source.contains(wanted.as_str()))
        });
        if !exists {
            found.push(format!("README.md: the journey names {quoted}, which is not there"));
        }
    }
    if stops < 8 {
        found.push(format!("README.md: the two journeys name only {stops} places"));
    }
    Ok(())
}

fn files(root: &Path, folders: &[&str], extension: &str) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    let mut pending: Vec<PathBuf> = folders.iter().map(|f| root.join(f)).filter(|f| f.is_dir()).collect();
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                if path.file_name().is_none_or(|n| n != "target") {
                    pending.push(path);
                }
            } else if path.extension().is_some_and(|e| e == extension) {
                all.push(path);
            }
        }
    }
    all.sort();
    Ok(all)
}
