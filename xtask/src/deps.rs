//! Dependencies: every one is used, and has a licence that lets anybody use Eddyline.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Licences whose terms fit Apache-2.0 software.
const LICENCES: &[&str] = &[
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "0BSD",
    "ISC",
    "Zlib",
    "Unlicense",
    "CC0-1.0",
    "Unicode-3.0",
    "CDLA-Permissive-2.0",
    "BSL-1.0",
    "MPL-2.0",
    "bzip2-1.0.6",
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    license: Option<String>,
    license_file: Option<String>,
    source: Option<String>,
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    rename: Option<String>,
}

/// Declared for a feature alone: the types' serialisation.
const FEATURE_ONLY: [(&str, &str); 2] = [("eddyline-types", "arrow-schema"), ("eddyline-protocol", "arrow-schema")];

/// Runs both rules.
pub fn check(root: &Path) -> Result<()> {
    let output = Command::new(env!("CARGO")).args(["metadata", "--format-version", "1", "--locked"]).current_dir(root).output()?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("cannot read cargo's metadata")?;
    let mut found = Vec::new();
    for package in &metadata.packages {
        if package.source.is_none() && package.name != "one-feature-set" {
            unused(package, &mut found)?;
        }
        licence(package, &mut found);
    }
    for line in &found {
        eprintln!("dependencies: {line}");
    }
    if found.is_empty() { Ok(()) } else { bail!("{} dependency rules broken", found.len()) }
}

fn licence(package: &Package, found: &mut Vec<String>) {
    let Some(expression) = &package.license else {
        if package.license_file.is_none() {
            found.push(format!("{} has no licence", package.name));
        }
        return;
    };
    // Every AND part needs one acceptable OR alternative.
    let acceptable = |text: &str| {
        let text = text.trim().trim_matches(|c| c == '(' || c == ')').trim();
        LICENCES.contains(&text)
    };
    let fine = expression.replace('/', " OR ").split(" AND ").all(|part| part.split(" OR ").any(acceptable));
    if !fine {
        found.push(format!("{} has the licence {expression}", package.name));
    }
}

/// A declared dependency whose name occurs nowhere in the crate's sources.
fn unused(package: &Package, found: &mut Vec<String>) -> Result<()> {
    let folder = Path::new(&package.manifest_path).parent().context("a manifest lies in a folder")?;
    let mut text = String::new();
    // The root package holds the members' folders: only its own files count.
    let nested = folder.join("src").join("types").join("Cargo.toml").is_file();
    collect(folder, nested, &mut text)?;
    for dependency in &package.dependencies {
        if FEATURE_ONLY.contains(&(package.name.as_str(), dependency.name.as_str())) {
            continue;
        }
        // The package md-5 calls its library md5.
        let declared = dependency.rename.as_ref().unwrap_or(&dependency.name);
        let name = if declared == "md-5" { "md5".to_owned() } else { declared.replace('-', "_") };
        if !text.contains(&format!("{name}::")) && !text.contains(&format!("use {name}")) && !text.contains(&format!("{name};")) {
            found.push(format!("{} declares {} and does not use it", package.name, dependency.name));
        }
    }
    Ok(())
}

fn collect(folder: &Path, skip_members: bool, text: &mut String) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            let member = path.join("Cargo.toml").is_file();
            if path.file_name().is_some_and(|n| n == "target" || n == ".git") || (skip_members && member) {
                continue;
            }
            collect(&path, skip_members, text)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            text.push_str(&fs::read_to_string(&path)?);
        }
    }
    Ok(())
}
