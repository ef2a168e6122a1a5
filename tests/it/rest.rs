//! REST: the same engine over HTTP, spoken to with plain sockets.

use crate::harness::{Server, run};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Status and body of one request.
pub fn request(server: &Server, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut socket = TcpStream::connect(&server.http).expect("connects");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: eddyline\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).and_then(|()| socket.write_all(body.as_bytes())).expect("sent");
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("received");
    let text = String::from_utf8_lossy(&answer).into_owned();
    let (head, rest) = text.split_once("\r\n\r\n").expect("an HTTP answer");
    let status = head.split_whitespace().nth(1).and_then(|s| s.parse().ok()).expect("a status");
    let rest = if head.to_ascii_lowercase().contains("transfer-encoding: chunked") { dechunk(rest) } else { rest.to_owned() };
    (status, rest)
}

fn dechunk(mut text: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = text.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).expect("a chunk size");
        if size == 0 {
            break;
        }
        whole.push_str(&rest[..size]);
        text = &rest[size + 2..];
    }
    whole
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_health_and_metrics() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path());
    let client = server.connect().await;
    run(&client, "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR); INSERT INTO t VALUES (1, 'one'), (2, NULL)").await;

    let (status, body) = request(&server, "POST", "/v1/sql", Some(&json!({"sql": "SELECT id, name FROM t ORDER BY id"})));
    assert_eq!(status, 200, "{body}");
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(body["results"][0]["rows"], json!([[1, "one"], [2, null]]));
    assert_eq!(body["results"][0]["columns"][0]["name"], "id");

    let (status, body) = request(&server, "POST", "/v1/sql", Some(&json!({"sql": "SELECT * FROM nowhere"})));
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(body["error"]["code"], "42P01", "{body}");
    assert_eq!(status, 404, "{body}");

    assert_eq!(request(&server, "GET", "/healthz", None).0, 200);
    assert_eq!(request(&server, "GET", "/readyz", None).0, 200);
    let (status, metrics) = request(&server, "GET", "/metrics", None);
    assert_eq!(status, 200);
    for name in ["eddyline_sql_seconds", "eddyline_barrier_latency_seconds", "eddyline_object_store_requests_total"] {
        assert!(metrics.contains(name), "{name} is not in {metrics}");
    }
    assert_eq!(server.stop(), Some(0));
}

/// The status and the answer as JSON.
fn json_of(server: &Server, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let (status, text) = request(server, method, path, body);
    (status, serde_json::from_str(&text).unwrap_or_else(|_| if text.is_empty() { Value::Null } else { panic!("no JSON: {text}") }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_rows_and_ingestion() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path());
    let columns = json!([{"name": "id", "type": "int", "nullable": false}, {"name": "name", "type": "varchar"}, {"name": "n", "type": "numeric(10,2)"}]);
    let table = json!({"name": "t", "columns": columns, "primary_key": ["id"]});
    let (status, made) = json_of(&server, "POST", "/v1/tables", Some(&table));
    assert_eq!((status, &made["key"]), (201, &json!(["id"])), "{made}");
    assert_eq!(json_of(&server, "POST", "/v1/tables", Some(&table)).0, 409);
    let view = json!({"name": "v", "query": "SELECT name, count(*) AS k, sum(n) AS total FROM t GROUP BY name"});
    assert_eq!(json_of(&server, "POST", "/v1/views", Some(&view)).0, 201);

    let (status, wrong) = json_of(&server, "POST", "/v1/views", Some(&json!({"name": "w", "query": "SELECT nope FROM t"})));
    assert_eq!((status, &wrong["error"]["code"], &wrong["error"]["position"]), (400, &json!("42703"), &json!(8)), "{wrong}");

    let rows = json!([{"id": 1, "name": "a", "n": "1.50"}, {"id": 2, "name": "b"}, {"id": 3, "name": "a", "n": 2.25}]);
    let (status, told) = json_of(&server, "POST", "/v1/tables/t/rows", Some(&rows));
    assert_eq!((status, &told["rows"]), (200, &json!(3)), "{told}");
    let (status, told) = json_of(&server, "POST", "/v1/tables/t/rows", Some(&json!([{"id": 4}, {"id": "x"}])));
    assert_eq!((status, &told["error"]["code"]), (400, &json!("22P02")), "{told}");

    // What was acknowledged is seen, in the table and downstream; the row beside the bad one is not there.
    let (_, all) = json_of(&server, "GET", "/v1/tables/t/rows?columns=id", None);
    assert_eq!(all["rows"].as_array().map(Vec::len), Some(3), "{all}");
    let (_, filtered) = json_of(&server, "GET", "/v1/views/v/rows?name=a&columns=k,total", None);
    assert_eq!(filtered["rows"], json!([[2, "3.75"]]), "{filtered}");
    let lookup = json!({"keys": [["b"], ["nobody"], ["a"]], "columns": ["k"]});
    let (_, found) = json_of(&server, "POST", "/v1/views/v/lookup", Some(&lookup));
    assert_eq!(found["rows"], json!([[1], null, [2]]), "{found}");

    let (status, kept) = json_of(&server, "DELETE", "/v1/tables/t", None);
    assert_eq!((status, &kept["error"]["code"]), (409, &json!("2BP01")), "{kept}");
    assert_eq!(json_of(&server, "DELETE", "/v1/tables/t?cascade=true", None).0, 204);
    assert_eq!(json_of(&server, "GET", "/v1/views/v", None).0, 404);
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_gets_an_error_with_a_code() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path());
    for (method, path, body, status) in [
        ("POST", "/v1/sql", json!([]), 400),
        ("POST", "/v1/sql", json!({"sql": 1}), 400),
        ("POST", "/v1/sql", json!({"sql": "SELECT 1", "unknown": 1}), 400),
        ("POST", "/v1/sql", json!({"sql": "SELECT $1"}), 400),
        ("POST", "/v1/sql", json!({"sql": "SELECT 1; SELECT 2", "params": [1]}), 400),
        ("POST", "/v1/sql", json!({"sql": "SELECT 1/0"}), 400),
        ("POST", "/v1/sql", json!({"sql": "SELECT 1", "database": "nowhere"}), 404),
        ("GET", "/v1/sql", json!({}), 405),
        ("GET", "/v1/nothing", json!({}), 404),
        ("GET", "/v1/views/nobody/rows", json!({}), 404),
        ("GET", "/v1/jobs/x", json!({}), 400),
        ("POST", "/v1/tables/nobody/rows", json!([{"a": 1}]), 404),
        ("DELETE", "/v1/views/nobody?cascade=maybe", json!({}), 400),
    ] {
        let (got, answer) = json_of(&server, method, path, Some(&body));
        assert_eq!(got, status, "{method} {path} {body}: {answer}");
        assert!(answer["error"]["code"].as_str().is_some_and(|c| c.len() == 5), "{method} {path} {body}: {answer}");
    }
    assert_eq!(request(&server, "GET", "/healthz", None).0, 200);
    assert_eq!(server.stop(), Some(0));
}
