//! Real input: all flights out of New York in 2013, in three formats, against results that another engine computed.

use crate::harness::{Server, nightly, rows, run, shared};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

const FLIGHTS: &str = "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, sched_arr_time INT, \
    arr_delay INT, carrier VARCHAR, flight INT, tailnum VARCHAR, origin VARCHAR, dest VARCHAR, air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP";
const AIRLINES: &str = "carrier VARCHAR, name VARCHAR";
const PLANES: &str =
    "tailnum VARCHAR, year INT, type VARCHAR, manufacturer VARCHAR, model VARCHAR, engines INT, seats INT, speed INT, engine VARCHAR";
const WEATHER: &str = "origin VARCHAR, year INT, month INT, day INT, hour INT, temp DOUBLE PRECISION, dewp DOUBLE PRECISION, humid DOUBLE PRECISION, \
    wind_dir DOUBLE PRECISION, wind_speed DOUBLE PRECISION, wind_gust DOUBLE PRECISION, precip DOUBLE PRECISION, pressure DOUBLE PRECISION, visib DOUBLE PRECISION, time_hour TIMESTAMP";

const CSV: &str = "FORMAT PLAIN ENCODE CSV (header = 'true', delimiter = ',', null = 'NA')";
const VIEWS: [&str; 7] = ["carrier_delays", "busiest_routes", "fleet", "unknown_planes", "wind_and_delay", "daily", "bad_days"];

async fn source(client: &Client, kind: &str, name: &str, columns: &str, path: &Path, format: &str) {
    let sql = format!("CREATE {kind} {name} ({columns}) WITH (connector = 'file', path = '{}') {format}", path.display());
    run(client, &sql).await;
}

/// Lines of a CSV file of expected results, as rows of text; none of the values needs quoting but names with commas.
fn expected(folder: &Path, view: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(folder.join(format!("{view}.csv"))).expect("an expected result");
    let mut all: Vec<Vec<String>> = text.lines().skip(1).map(split).collect();
    all.sort();
    all
}

fn split(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => fields.last_mut().expect("never empty").push(other),
        }
    }
    fields.into_iter().map(|f| if f.is_empty() { "NULL".into() } else { f }).collect()
}

async fn actual(client: &Client, view: &str) -> Vec<Vec<String>> {
    let mut all = rows(client, &format!("SELECT * FROM {view}")).await;
    for row in &mut all {
        for cell in row {
            // Booleans are t and f on the wire.
            match cell.as_str() {
                "t" => *cell = "true".into(),
                "f" => *cell = "false".into(),
                _ => {}
            }
        }
    }
    all.sort();
    all
}

/// Waits until every view is as expected.
async fn check(client: &Client, folder: &Path) {
    let deadline = Instant::now() + Duration::from_secs(120);
    for view in VIEWS {
        let wanted = expected(folder, view);
        loop {
            let now = actual(client, view).await;
            if now == wanted {
                break;
            }
            if Instant::now() > deadline {
                let missing: Vec<_> = wanted.iter().filter(|r| !now.contains(r)).take(3).collect();
                let extra: Vec<_> = now.iter().filter(|r| !wanted.contains(r)).take(3).collect();
                panic!("{view}: {} rows instead of {}; missing {missing:?}, wrong {extra:?}", now.len(), wanted.len());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn views(client: &Client, data: &Path) {
    run(client, &fs::read_to_string(data.join("views.sql")).expect("the views")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn january_from_ndjson() {
    let Some(data) = shared("data/flights") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path());
    let client = server.connect().await;
    let json = "FORMAT PLAIN ENCODE JSON";
    source(&client, "SOURCE", "flights", FLIGHTS, &data.join("ndjson/flights-*.ndjson"), json).await;
    source(&client, "SOURCE", "airlines", AIRLINES, &data.join("ndjson/airlines.ndjson"), json).await;
    source(&client, "SOURCE", "planes", PLANES, &data.join("ndjson/planes.ndjson"), json).await;
    source(&client, "SOURCE", "weather", WEATHER, &data.join("csv/weather.csv"), CSV).await;
    views(&client, &data).await;
    check(&client, &data.join("expected/january")).await;
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_year_from_parquet_through_tables() {
    let Some(data) = shared("data/flights") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path());
    let client = server.connect().await;
    let parquet = "FORMAT PLAIN ENCODE PARQUET";
    // Sources and tables with a connector feed the same views.
    source(&client, "TABLE", "flights", FLIGHTS, &data.join("parquet/flights-*.parquet"), parquet).await;
    source(&client, "TABLE", "airlines", AIRLINES, &data.join("parquet/airlines.parquet"), parquet).await;
    source(&client, "SOURCE", "planes", PLANES, &data.join("parquet/planes.parquet"), parquet).await;
    source(&client, "TABLE", "weather", WEATHER, &data.join("parquet/weather.parquet"), parquet).await;
    views(&client, &data).await;
    check(&client, &data.join("expected/year")).await;
    assert_eq!(rows(&client, "SELECT count(*) FROM flights").await, [["336776"]]);
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quarter_from_csv_file_by_file_with_kills_in_between() {
    let Some(data) = shared("data/flights") else { return };
    let inbox = tempfile::tempdir().expect("a directory");
    let dir = tempfile::tempdir().expect("a directory");
    let mut server = Server::start(dir.path());
    {
        let client = server.connect().await;
        source(&client, "SOURCE", "flights", FLIGHTS, &inbox.path().join("flights-*.csv"), CSV).await;
        source(&client, "SOURCE", "airlines", AIRLINES, &inbox.path().join("airlines.csv"), CSV).await;
        source(&client, "SOURCE", "planes", PLANES, &inbox.path().join("planes.csv"), CSV).await;
        source(&client, "SOURCE", "weather", WEATHER, &inbox.path().join("weather.csv"), CSV).await;
        views(&client, &data).await;
    }
    let files = ["airlines.csv", "flights-2013-01.csv", "weather.csv", "planes.csv", "flights-2013-02.csv", "flights-2013-03.csv"];
    let pauses_ms: &[u64] = if nightly() { &[0, 50, 150, 300, 700, 1500] } else { &[0, 200, 700] };
    for (index, file) in files.iter().enumerate() {
        // An object is final when it is listed: it comes by rename.
        let coming = inbox.path().join(".coming");
        fs::copy(data.join("csv").join(file), &coming).expect("copied");
        fs::rename(&coming, inbox.path().join(file)).expect("renamed");
        tokio::time::sleep(Duration::from_millis(pauses_ms[index % pauses_ms.len()])).await;
        server.kill_hard();
        server = Server::start(dir.path());
    }
    let client = server.connect().await;
    check(&client, &data.join("expected/quarter1")).await;
    assert_eq!(server.stop(), Some(0));
}
