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
    let head = format!("{method} {path} HTTP/1.1\r\nhost: eddyline\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
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
