//! Planner goldens: `planner/*.txt` hold statements, a line `----`, and what their EXPLAINs print. `BLESS=1` rewrites them.

use super::Session;
use crate::statement::Bound;
use std::fmt::Write;
use std::path::Path;

fn explain(sql: &str) -> String {
    let mut session = Session::new();
    let mut out = String::new();
    for parsed in crate::parse(sql).unwrap_or_else(|e| panic!("{e:?}")) {
        let bound = session.bind_parsed(&parsed, &[]).unwrap_or_else(|e| panic!("{e:?} in {}", parsed.text));
        if let Bound::Explain(lines) = &bound {
            let _ = writeln!(out, "# {}", parsed.text.split_whitespace().collect::<Vec<_>>().join(" "));
            lines.iter().for_each(|l| {
                let _ = writeln!(out, "{}", l.trim_end());
            });
            out.push('\n');
        }
        session.apply(&bound);
    }
    out.trim_end().to_string() + "\n"
}

#[test]
fn plans_are_as_blessed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/planner");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 3, "the goldens are there");
    let mut wrong = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let (sql, expected) = text.split_once("\n----\n").unwrap_or((text.trim_end(), ""));
        let got = explain(sql);
        if got != expected {
            if std::env::var_os("BLESS").is_some() {
                std::fs::write(&file, format!("{sql}\n----\n{got}")).unwrap();
            } else {
                wrong.push(format!("{}:\n{got}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "plans changed; look at them and run with BLESS=1:\n{}", wrong.join("\n"));
}
