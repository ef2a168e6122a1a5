//! The small awkward files of `testdata/`: which rows come out, and which errors with file and line.

use crate::{Offsets, SourceBatch, SourceReader};
use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Decimal128Type, Int32Type, TimeUnit, TimestampMicrosecondType};
use eddyline_protocol::{ColumnDef, ErrorRecord, SourceSpec};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) fn columns() -> Vec<ColumnDef> {
    vec![
        ColumnDef::new("id", DataType::Int32),
        ColumnDef::new("name", DataType::Utf8),
        ColumnDef::new("amount", DataType::Decimal128(10, 2)),
        ColumnDef::new("at", DataType::Timestamp(TimeUnit::Microsecond, None)),
    ]
}

pub(super) fn spec(path: &str, encode: &str, options: &[(&str, &str)], encode_options: &[(&str, &str)]) -> SourceSpec {
    let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect::<BTreeMap<_, _>>();
    let mut all = map(&[("connector", "file"), ("path", path), ("settle", "0s"), ("poll_interval", "5ms")]);
    all.extend(map(options));
    SourceSpec {
        connector: "file".into(),
        options: all,
        format: "plain".into(),
        encode: encode.into(),
        encode_options: map(encode_options),
        columns: columns(),
    }
}

/// Everything that a bounded source gives.
pub(super) async fn read_all(spec: &SourceSpec, offsets: Offsets) -> (Vec<SourceBatch>, Offsets) {
    let mut reader = crate::open(spec, 0, 1, offsets.clone()).await.unwrap();
    let (mut batches, mut after) = (vec![], offsets);
    while let Some(batch) = reader.next(3).await.unwrap() {
        after.extend(batch.offsets.clone());
        batches.push(batch);
    }
    (batches, after)
}

pub(super) fn rows(batches: &[SourceBatch]) -> Vec<String> {
    let mut out = vec![];
    for batch in batches {
        let (id, name) = (batch.rows.column(0).as_primitive::<Int32Type>(), batch.rows.column(1).as_string::<i32>());
        let (amount, at) =
            (batch.rows.column(2).as_primitive::<Decimal128Type>(), batch.rows.column(3).as_primitive::<TimestampMicrosecondType>());
        for i in 0..batch.rows.num_rows() {
            let show = |null: bool, text: String| if null { "NULL".to_owned() } else { text };
            out.push(format!(
                "{}|{}|{}|{}",
                show(id.is_null(i), id.value(i).to_string()),
                show(name.is_null(i), name.value(i).to_owned()),
                show(amount.is_null(i), amount.value_as_string(i)),
                show(at.is_null(i), at.value_as_datetime(i).map(|t| t.to_string()).unwrap_or_default()),
            ));
        }
    }
    out
}

pub(super) fn errors(batches: &[SourceBatch]) -> Vec<ErrorRecord> {
    batches.iter().flat_map(|b| b.errors.clone()).collect()
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

/// Rows and `line: message` of a file of the test data.
async fn read(name: &str) -> (Vec<String>, Vec<String>) {
    let encode = if name.ends_with(".csv") { "csv" } else { "json" };
    let path = data(name);
    let (batches, after) = read_all(&spec(path.to_str().unwrap(), encode, &[("bounded", "true")], &[]), Offsets::new()).await;
    let errors = errors(&batches);
    let lines = errors.iter().map(|e| {
        let position: serde_json::Value = serde_json::from_str(e.source_position.as_ref().unwrap()).unwrap();
        assert_eq!(position["file"], path.to_str().unwrap());
        assert_eq!(e.kind, "decode");
        assert!(e.payload.as_ref().is_some_and(|p| !p.is_empty()), "{e:?}");
        format!("{}: {}", position["line"], e.message)
    });
    // A second reader at the offsets after everything has nothing to give.
    let (again, _) = read_all(&spec(path.to_str().unwrap(), encode, &[("bounded", "true")], &[]), after).await;
    assert!(again.iter().all(|b| b.rows.num_rows() == 0 && b.errors.is_empty()));
    (rows(&batches), lines.collect())
}

const ALPHA: &str = "1|alpha|10.50|2024-01-01 00:00:00";
const BETA: &str = "2|beta|20.25|2024-01-02 12:30:00";
const GAMMA: &str = "3|gamma|30.00|2024-01-03 00:00:00";

async fn check(name: &str, wanted_rows: &[&str], wanted_errors: &[&str]) {
    let (rows, errors) = read(name).await;
    assert_eq!(rows, wanted_rows, "{name}");
    assert_eq!(errors.len(), wanted_errors.len(), "{name}: {errors:?}");
    for (error, wanted) in errors.iter().zip(wanted_errors) {
        let (line, parts) = wanted.split_once(' ').unwrap();
        assert!(error.starts_with(&format!("{line} ")), "{name}: {error}");
        assert!(parts.split('+').all(|p| error.contains(p)), "{name}: {error} lacks {parts}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn csv_files() {
    check("clean.csv", &[ALPHA, BETA], &[]).await;
    check("crlf-bom.csv", &[ALPHA, BETA], &[]).await;
    check("no-final-newline.csv", &[ALPHA, BETA], &[]).await;
    check("quoted-newline.csv", &["1|two\nlines|1.00|2024-01-01 00:00:00", "2|comma, quote \"|2.00|2024-01-02 00:00:00"], &[]).await;
    check("missing-column.csv", &[ALPHA, GAMMA], &["3: missing data+2 of 4"]).await;
    check("extra-column.csv", &[ALPHA, GAMMA], &["3: extra data+surprise"]).await;
    let bad = [
        "2: column \"id\"+\"x\"",
        "3: column \"id\"+\"99999999999999999999\"",
        "4: column \"amount\"+\"not-a-number\"",
        "5: column \"at\"+\"2024-02-30 00:00:00\"",
    ];
    check("bad-values.csv", &["5|eps|50.00|2024-01-05 00:00:00"], &bad).await;
    check("invalid-utf8.csv", &[ALPHA, GAMMA], &["3: column \"name\"+UTF8"]).await;
    check("empty.csv", &[], &[]).await;
    check("header-only.csv", &[], &[]).await;
    check("reordered-header.csv", &[ALPHA], &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn ndjson_files() {
    let rows = [
        ALPHA,
        "2|NULL|20.25|2024-01-02 00:00:00",
        // The last of duplicate keys counts; a zone does not move a TIMESTAMP without one.
        "5|dup|100.00|2024-01-04 00:00:00",
        "7|é😀|0.00|2024-01-07 00:00:00",
    ];
    check("mixed.ndjson", &rows, &["4: json", "6: column \"name\"+array", "7: one JSON object"]).await;
    // The file is final, so its last line is a record and a broken one.
    check("unterminated.ndjson", &[ALPHA], &["2: inside a string"]).await;
}

/// Reads a source that never ends until so many rows and errors have come, and a little longer to see whether more do.
async fn drain(reader: &mut dyn SourceReader, want_rows: usize, want_errors: usize) -> Vec<SourceBatch> {
    let mut out: Vec<SourceBatch> = vec![];
    loop {
        let (rows, errors) = out.iter().fold((0, 0), |(r, e), b| (r + b.rows.num_rows(), e + b.errors.len()));
        let complete = rows >= want_rows && errors >= want_errors;
        let patience = Duration::from_millis(if complete { 100 } else { 30_000 });
        match eddyline_env::clock::timeout(patience, reader.next(100)).await {
            Some(batch) => out.push(batch.unwrap().expect("the source has no end")),
            None => {
                assert!(complete, "{rows} rows and {errors} errors of {want_rows} and {want_errors} came");
                return out;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_growing_file_counts_terminated_lines_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.ndjson");
    std::fs::copy(data("unterminated.ndjson"), &path).unwrap();
    let spec = spec(path.to_str().unwrap(), "json", &[("mode", "append")], &[]);
    let mut reader = crate::open(&spec, 0, 1, Offsets::new()).await.unwrap();
    let batches = drain(&mut *reader, 1, 0).await;
    assert_eq!(rows(&batches), [ALPHA]);
    assert!(errors(&batches).is_empty());
    use std::io::Write;
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"ten\"}\n{\"id\":3,").unwrap();
    let batches = drain(&mut *reader, 1, 0).await;
    assert_eq!(rows(&batches), ["2|still being written|NULL|NULL"]);
    let after = batches.last().unwrap().offsets.clone();
    // A restart goes on in the middle; the rest of the line arrives.
    let mut reader = crate::open(&spec, 0, 1, after).await.unwrap();
    assert!(rows(&drain(&mut *reader, 0, 0).await).is_empty());
    file.write_all(b"\"name\":\"c\"}\nnonsense\n").unwrap();
    let batches = drain(&mut *reader, 1, 1).await;
    assert_eq!(rows(&batches), ["3|c|NULL|NULL"]);
    assert!(errors(&batches)[0].source_position.as_ref().unwrap().contains("\"line\":4"));
    // Truncation is noticed once.
    drop(file);
    std::fs::write(&path, "{\"id\":9}\n").unwrap();
    let batches = drain(&mut *reader, 0, 1).await;
    assert!(rows(&batches).is_empty());
    assert_eq!(errors(&batches).len(), 1);
    assert!(errors(&batches)[0].message.contains("rewritten"));
    assert!(drain(&mut *reader, 0, 0).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn new_files_are_picked_up_and_rewritten_ones_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("*.csv");
    let spec = spec(path.to_str().unwrap(), "csv", &[], &[]);
    let mut reader = crate::open(&spec, 0, 1, Offsets::new()).await.unwrap();
    assert!(drain(&mut *reader, 0, 0).await.is_empty());
    let mut offsets = Offsets::new();
    for (n, name) in ["clean.csv", "reordered-header.csv", "missing-column.csv"].into_iter().enumerate() {
        std::fs::copy(data(name), folder.path().join(format!("{n}.csv"))).unwrap();
        let batches = drain(&mut *reader, [2, 1, 2][n], [0, 0, 1][n]).await;
        assert_eq!(rows(&batches).len(), [2, 1, 2][n], "{name}");
        batches.iter().for_each(|b| offsets.extend(b.offsets.clone()));
    }
    std::fs::write(folder.path().join(".hidden.csv"), "id\n1\n").unwrap();
    std::fs::write(folder.path().join("0.csv"), "id,name,amount,at\n9,new,1,\n").unwrap();
    let mut reader = crate::open(&spec, 0, 1, offsets).await.unwrap();
    let batches = drain(&mut *reader, 0, 1).await;
    assert!(rows(&batches).is_empty());
    let errors = errors(&batches);
    assert_eq!(errors.len(), 1);
    assert!(errors[0].message.contains("rewritten") && errors[0].kind == "source", "{errors:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn headers_nulls_and_limits() {
    let folder = tempfile::tempdir().unwrap();
    let read = async |text: &str, options: &[(&str, &str)], encode: &[(&str, &str)]| {
        let path = folder.path().join("x.csv");
        std::fs::write(&path, text).unwrap();
        let options: Vec<_> = [("bounded", "true")].into_iter().chain(options.iter().copied()).collect();
        let (batches, _) = read_all(&spec(path.to_str().unwrap(), "csv", &options, encode), Offsets::new()).await;
        (rows(&batches), errors(&batches).into_iter().map(|e| e.message).collect::<Vec<_>>())
    };
    let (rows, errors) = read("1;NA;1;NA\n\n2;\"NA\";NA;\n", &[], &[("header", "false"), ("delimiter", ";"), ("null", "NA")]).await;
    assert_eq!(rows, ["1|NULL|1.00|NULL"]);
    assert!(errors[0].contains("invalid input syntax for type timestamp: \"\""), "{errors:?}");
    let (rows, errors) = read("1,a,,\n", &[], &[]).await;
    assert!(rows.is_empty() && errors.len() == 1 && errors[0].contains("header"), "{errors:?}");
    let (rows, errors) = read("ID,Name,other\n1,a,x\n2,b,y\n", &[], &[]).await;
    assert_eq!(rows, ["1|a|NULL|NULL", "2|b|NULL|NULL"]);
    assert!(errors.len() == 2 && errors[0].contains("\"amount\"") && errors[1].contains("\"at\""), "{errors:?}");
    // The 300 kB field of the shared case, with and without room for it.
    let long = format!("id,name,amount,at\n1,{},1.00,2024-01-01 00:00:00\n2,b,2,\n", "z".repeat(300_000));
    assert_eq!(read(&long, &[], &[]).await.0.len(), 2);
    let (rows, errors) = read(&long, &[("max_record_bytes", "1000")], &[]).await;
    assert_eq!(rows, ["2|b|2.00|NULL"]);
    assert_eq!(errors, ["the record is longer than 1000 bytes"]);
    // An open quote swallows at most the limit; the lines behind it are read.
    let open = format!("id,name,amount,at\n1,\"open,1,\n{}", "3,c,3,\n".repeat(500));
    let (rows, errors) = read(&open, &[("max_record_bytes", "1000")], &[]).await;
    assert_eq!((rows.len(), errors.len()), (500, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn wrong_options_are_named() {
    for (options, encode, part) in [
        (&[("pth", "x")][..], &[][..], "\"pth\""),
        (&[("mode", "sometimes")], &[], "\"sometimes\""),
        (&[("poll_interval", "soon")], &[], "\"soon\""),
        (&[("path", "/x/{a")], &[], "brace"),
        (&[("path", "ftp://h/x")], &[], "ftp"),
        (&[], &[("headr", "true")], "\"headr\""),
        (&[], &[("delimiter", ",,")], "\",,\""),
        (&[], &[("quote", ",")], "different"),
        (&[], &[("header", "maybe")], "\"maybe\""),
    ] {
        let spec = spec("/x/*.csv", "csv", options, encode);
        let error = crate::validate(&spec).unwrap_err();
        assert!(error.message().contains(part), "{error}");
        assert_eq!(error.sqlstate(), eddyline_types::SqlState::INVALID_PARAMETER_VALUE, "{error}");
    }
    let error = crate::validate(&spec("/x", "avro", &[], &[])).unwrap_err();
    assert!(error.message().contains("AVRO"));
    let error = crate::validate(&spec("/x", "parquet", &[("mode", "append")], &[])).unwrap_err();
    assert!(error.message().contains("append"));
}
