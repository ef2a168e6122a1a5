//! Text scripts: events in, blessed events out. `BLESS=1` writes what happens as what is expected.
//!
//! Lines: `# comment`; `push PORT` followed by a chunk's text and an empty line; `barrier`, `checkpoint`, `background`; `recover` drops the operator and
//! builds it again from what was written at the last checkpoint. What an event gives stands below it behind `>`.

use super::agg::{self, call};
use super::backfill::{Pair, upstream};
use super::driver::{Driver, Tables};
use super::join;
use super::rows::table;
use crate::operators::materialize::{Keyed, Multiset, Overwrite};
use arrow::array::Array;
use arrow::datatypes::DataType;
use eddyline_protocol::BarrierKind;
use eddyline_protocol::plan::{AggCall, AggFunction, JoinKind};
use eddyline_store::TableWrite;
use eddyline_types::{Chunk, TableId};
use std::fmt::Write;

const INT: DataType = DataType::Int64;

/// What runs a script's events.
trait Subject {
    fn push(&mut self, port: usize, chunk: Chunk) -> Vec<Chunk>;
    fn barrier(&mut self, kind: BarrierKind) -> (Vec<Chunk>, Vec<TableWrite>);
    fn background(&mut self) -> Vec<Chunk>;
    fn recover(&mut self);
    fn driver(&mut self) -> &mut Driver;
}

impl Subject for Driver {
    fn push(&mut self, port: usize, chunk: Chunk) -> Vec<Chunk> {
        Driver::push(self, port, chunk)
    }
    fn barrier(&mut self, kind: BarrierKind) -> (Vec<Chunk>, Vec<TableWrite>) {
        let out = Driver::barrier(self, kind);
        (out, self.writes.clone())
    }
    fn background(&mut self) -> Vec<Chunk> {
        Driver::background(self)
    }
    fn recover(&mut self) {
        Driver::recover(self);
    }
    fn driver(&mut self) -> &mut Driver {
        self
    }
}

impl Subject for Pair {
    fn push(&mut self, _port: usize, chunk: Chunk) -> Vec<Chunk> {
        let changes = self.upstream.push(0, chunk);
        changes.into_iter().flat_map(|c| self.backfill.push(0, c)).collect()
    }
    fn barrier(&mut self, kind: BarrierKind) -> (Vec<Chunk>, Vec<TableWrite>) {
        // 256 rows of progress say the same: they are not shown.
        (Pair::barrier(self, kind), Vec::new())
    }
    fn background(&mut self) -> Vec<Chunk> {
        self.backfill.background()
    }
    fn recover(&mut self) {
        Pair::recover(self);
    }
    fn driver(&mut self) -> &mut Driver {
        &mut self.backfill
    }
}

fn quote(out: &mut String, text: &str) {
    for line in text.lines() {
        writeln!(out, "> {line}").unwrap();
    }
}

fn show(out: &mut String, chunks: &[Chunk]) {
    chunks.iter().for_each(|c| quote(out, &c.to_string()));
}

fn show_writes(out: &mut String, tables: &Tables, writes: &[TableWrite]) {
    for write in writes {
        let deleted = |i: usize| write.tombstones.as_ref().is_some_and(|t| t.value(i));
        let weights = (0..write.keys.len()).map(|i| if deleted(i) { -1 } else { 1 }).collect();
        quote(out, &format!("write {}", tables.desc(write.table).name));
        quote(out, &Chunk::compacted(write.rows.clone(), weights).unwrap().to_string());
    }
}

fn run(script: &str, subject: &mut dyn Subject) -> String {
    let mut out = String::new();
    let mut lines = script.lines().filter(|l| !l.starts_with('>'));
    let mut errors = 0;
    while let Some(line) = lines.next() {
        writeln!(out, "{line}").unwrap();
        let kind = match line {
            "barrier" => Some(BarrierKind::Plain),
            "checkpoint" => Some(BarrierKind::Checkpoint),
            _ => None,
        };
        if let Some(kind) = kind {
            let (chunks, writes) = subject.barrier(kind);
            show(&mut out, &chunks);
            let tables = subject.driver().tables.clone();
            show_writes(&mut out, &tables, &writes);
        } else if let Some(port) = line.strip_prefix("push ") {
            let text: String = lines.by_ref().take_while(|l| !l.is_empty()).fold(String::new(), |text, l| text + l + "\n");
            writeln!(out, "{text}").unwrap();
            let chunks = subject.push(port.parse().unwrap(), text.parse().unwrap());
            show(&mut out, &chunks);
        } else if line == "recover" {
            subject.recover();
        } else if line == "background" {
            let chunks = subject.background();
            show(&mut out, &chunks);
            quote(&mut out, if subject.driver().is_backfilled() { "complete" } else { "not complete" });
        } else {
            assert!(line.is_empty() || line.starts_with('#'), "not an event: {line}");
        }
        for error in &subject.driver().errors[errors..] {
            quote(&mut out, &format!("error {} {}", error.sqlstate, error.message));
        }
        errors = subject.driver().errors.len();
    }
    out
}

fn script(name: &str, subject: &mut dyn Subject) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("operators/scripts").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let found = run(&text, subject);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, found).unwrap();
    } else {
        assert_eq!(found, text, "{name} differs; BLESS=1 accepts what happens now");
    }
}

#[test]
fn hash_agg() {
    let calls = vec![
        call(AggFunction::Count, None, INT),
        call(AggFunction::Sum, Some(1), INT),
        call(AggFunction::Max, Some(1), INT),
        AggCall { distinct: true, ..call(AggFunction::Count, Some(1), INT) },
    ];
    script("hash_agg.txt", &mut agg::Case::new(&[("k", INT), ("v", INT)], &[0], calls, false).driver());
}

#[test]
fn global_agg() {
    let calls = vec![call(AggFunction::Count, None, INT), call(AggFunction::Sum, Some(0), INT)];
    script("global_agg.txt", &mut agg::Case::new(&[("v", INT)], &[], calls, false).driver());
}

#[test]
fn full_join() {
    let columns = [vec![("k", INT), ("a", INT)], vec![("j", INT), ("b", INT)]];
    script("full_join.txt", &mut join::Case::new(JoinKind::Full, columns, [&[0], &[0]]).less(1, 3).driver());
}

#[test]
fn materialize() {
    let columns = vec![("k", INT), ("v", DataType::Utf8)];
    let mut weighted = columns.clone();
    weighted.push(("_weight", INT));
    let id = TableId(1);
    let keyed = Tables::new([table(1, "view", &columns, &[0], 1)]);
    script("keyed.txt", &mut Driver::started(keyed.clone(), move |t| Box::new(Keyed::new(t.desc(id)).unwrap())));
    script("overwrite.txt", &mut Driver::started(keyed, move |t| Box::new(Overwrite::new(t.desc(id)).unwrap())));
    let bag = Tables::new([table(1, "view", &weighted, &[0, 1], 2)]);
    script("multiset.txt", &mut Driver::started(bag, move |t| Box::new(Multiset::new(t.desc(id)).unwrap())));
}

#[test]
fn backfill() {
    let mut up = upstream(false);
    let rows = " w k:int8 v:text\n+1 1 a\n+1 2 b\n+1 3 c\n+1 4 d\n+1 5 e\n+1 6 f\n+1 7 g\n";
    up.push(0, rows.parse().unwrap());
    up.barrier(BarrierKind::Checkpoint);
    script("backfill.txt", &mut Pair::attach(up));
}
