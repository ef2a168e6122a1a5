//! `cargo xtask ...`: the project's chores, so that the gate is one command and the same for everybody.
//!
//! `check` changes nothing; `fix` and `bless` are the only writers; `test` is the README's test command: the gate and everything quick.

mod deps;
mod tidy;

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

const HELP: &str = "usage: cargo xtask <command>
  check            format, lints, layer law and house rules, docs, dependencies; changes nothing
  fix              formats and applies the lints' suggestions
  bless            rewrites expected outputs of golden tests
  test             check, then all quick tests
  test --nightly   the same with all seeds, corpora and outside servers
  dev [ARGS]       builds and runs a server on a throw-away directory";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["check"] => check(),
        ["fix"] => fix(),
        ["tidy"] => tidy::check(&root()).and_then(|()| deps::check(&root())),
        ["bless"] => test(&[("BLESS", "1")]),
        ["test"] => check().and_then(|()| test(&[])),
        ["test", "--nightly"] => check().and_then(|()| test(&[("EDDYLINE_NIGHTLY", "1")])),
        ["dev", rest @ ..] => dev(rest),
        _ => {
            eprintln!("{HELP}");
            std::process::exit(2);
        }
    };
    if let Err(error) = done {
        eprintln!("xtask: {error:#}");
        std::process::exit(1);
    }
}

/// The workspace's root.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

/// Runs cargo in the root; its output goes to the terminal.
fn cargo(args: &[&str], variables: &[(&str, &str)]) -> Result<()> {
    println!("$ cargo {}", args.join(" "));
    let mut command = Command::new(env!("CARGO"));
    // What cargo tells this program about itself is not for the builds that it starts: build scripts that look at it (ring's) would run again
    // with every change between `cargo xtask` and plain `cargo`.
    let own = std::env::vars().map(|(name, _)| name).filter(|n| n.starts_with("CARGO_PKG_") || n.starts_with("CARGO_MANIFEST_"));
    for name in own {
        command.env_remove(name);
    }
    let status = command.args(args).envs(variables.iter().copied()).current_dir(root()).status();
    let status = status.context("cannot start cargo")?;
    if !status.success() {
        bail!("cargo {} failed", args.join(" "));
    }
    Ok(())
}

fn check() -> Result<()> {
    cargo(&["fmt", "--all", "--check"], &[])?;
    tidy::check(&root())?;
    deps::check(&root())?;
    cargo(&["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])?;
    cargo(
        &["doc", "--release", "--workspace", "--no-deps", "--document-private-items"],
        &[("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links")],
    )
}

fn fix() -> Result<()> {
    cargo(&["fmt", "--all"], &[])?;
    cargo(&["clippy", "--release", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged"], &[])?;
    cargo(&["fmt", "--all"], &[])
}

/// All tests. nextest where it is installed (one process per test), else the built-in runner.
fn test(variables: &[(&str, &str)]) -> Result<()> {
    let nextest = Command::new(env!("CARGO")).args(["nextest", "--version"]).output().is_ok_and(|o| o.status.success());
    if nextest {
        cargo(&["nextest", "run", "--release", "--workspace", "--no-fail-fast"], variables)
    } else {
        cargo(&["test", "--release", "--workspace", "--no-fail-fast"], variables)
    }
}

fn dev(args: &[&str]) -> Result<()> {
    let directory = std::env::temp_dir().join(format!("eddyline-dev-{}", std::process::id()));
    let directory = directory.display().to_string();
    let mut all = vec!["run", "--release", "--bin", "eddyline", "--", "standalone", "--data-dir", &directory];
    all.extend(args);
    cargo(&all, &[])
}
