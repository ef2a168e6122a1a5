//! The command line: wrong flags, settings and directories are one clear line and exit code 2.

use crate::harness::{Server, program};
use std::process::Output;

fn output(words: &[&str]) -> Output {
    program().args(words).output().expect("the binary runs")
}

fn refused(words: &[&str]) -> String {
    let output = output(words);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
    assert_eq!(text.lines().count(), 1, "{words:?}: {text}");
    text
}

#[test]
fn wrong_flags_and_values() {
    assert!(refused(&["--no-such-flag"]).contains("--no-such-flag"));
    assert!(refused(&["standalone", "--parallelism", "0"]).contains("parallelism"));
    assert!(refused(&["standalone", "--barrier-interval", "soon"]).contains("barrier_interval"));
    assert!(refused(&["standalone", "--store-url", "gopher://x", "--data-dir", "/tmp/eddyline-never"]).contains("gopher"));
    assert!(refused(&["standalone", "--config", "/no/such/file.toml"]).contains("/no/such/file.toml"));
    assert!(refused(&["frobnicate"]).contains("frobnicate"));
}

#[test]
fn an_unknown_key_in_a_file_or_variable() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("settings.toml");
    std::fs::write(&file, "checkpoint_intervall = \"1s\"\n").expect("written");
    assert!(refused(&["standalone", "--config", &file.display().to_string()]).contains("checkpoint_intervall"));
    let output = program().arg("config").env("EDDYLINE_CHEKPOINT_INTERVAL", "1s").output().expect("runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("chekpoint_interval"), "{output:?}");
}

#[test]
fn config_prints_each_value_with_its_source() {
    let output = program().args(["config", "--parallelism", "3"]).env("EDDYLINE_BARRIER_INTERVAL", "50ms").output().expect("runs");
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |key: &str| text.lines().find(|l| l.starts_with(key)).unwrap_or_else(|| panic!("{key} in {text}")).to_owned();
    assert!(line("parallelism").contains('3') && line("parallelism").ends_with("# flag"), "{text}");
    assert!(line("barrier_interval").contains("50ms") && line("barrier_interval").contains("EDDYLINE_BARRIER_INTERVAL"), "{text}");
    assert!(line("log").ends_with("# default"), "{text}");
}

#[test]
fn an_unwritable_data_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("a-file");
    std::fs::write(&file, "x").expect("written");
    let text = refused(&[
        "standalone",
        "--pg-listen",
        "127.0.0.1:0",
        "--http-listen",
        "127.0.0.1:0",
        "--data-dir",
        &file.join("data").display().to_string(),
    ]);
    assert!(text.contains("a-file"), "{text}");
}

#[test]
fn a_second_process_on_the_same_directory_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path());
    let text = refused(&[
        "standalone",
        "--pg-listen",
        "127.0.0.1:0",
        "--http-listen",
        "127.0.0.1:0",
        "--data-dir",
        &dir.path().display().to_string(),
    ]);
    assert!(text.contains("in use"), "{text}");
    assert_eq!(server.stop(), Some(0));
}
