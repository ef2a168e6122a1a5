//! Starts, kills and talks to servers.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// How long anything may take before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running server. Killed when dropped.
pub struct Server {
    child: Child,
    /// Host and port of the Postgres wire.
    pub pg: String,
    /// Host and port of HTTP.
    pub http: String,
}

/// The program under test.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_eddyline"));
    for (name, _) in std::env::vars().filter(|(n, _)| n.starts_with("EDDYLINE_")) {
        command.env_remove(name);
    }
    command
}

impl Server {
    /// Starts a server on a data directory and waits until it says that it is ready.
    pub fn start(data_dir: &Path) -> Server {
        Self::start_with(data_dir, &[], &[])
    }

    /// The same with further flags and variables.
    pub fn start_with(data_dir: &Path, flags: &[&str], variables: &[(&str, &str)]) -> Server {
        let mut command = program();
        command.args(["standalone", "--pg-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--log", "warn", "--data-dir"]);
        command.arg(data_dir).args(flags).envs(variables.iter().copied());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
        let mut pg = None;
        let mut http = None;
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        while pg.is_none() || http.is_none() {
            let Some(Ok(line)) = lines.next() else {
                let status = child.wait();
                panic!("the server ended before it was ready: {status:?}");
            };
            if let Some((_, rest)) = line.split_once("postgres://root@") {
                pg = rest.split('/').next().map(str::to_owned);
            } else if let Some((_, rest)) = line.split_once("http://") {
                http = Some(rest.trim().trim_end_matches('/').to_owned());
            }
        }
        // Keep reading, so that the server never blocks on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Server { child, pg: pg.expect("seen"), http: http.expect("seen") }
    }

    /// A client of the Postgres wire.
    pub async fn connect(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&format!("postgres://root@{}/dev", self.pg), NoTls).await.expect("connects");
        tokio::spawn(async move {
            let _ = connection.await;
        });
        client
    }

    /// SIGKILL, and waits for the end.
    pub fn kill_hard(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("waited");
    }

    /// SIGTERM; gives the exit code.
    pub fn stop(mut self) -> Option<i32> {
        let done = Command::new("kill").arg(self.child.id().to_string()).status().expect("kill runs");
        assert!(done.success());
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("waited") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the server did not end after SIGTERM");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Rows of a query as text, NULL as `NULL`.
pub async fn rows(client: &Client, sql: &str) -> Vec<Vec<String>> {
    let messages = client.simple_query(sql).await.unwrap_or_else(|e| panic!("{sql}: {}", tell(&e)));
    let cells = |row: &tokio_postgres::SimpleQueryRow| (0..row.len()).map(|i| row.get(i).unwrap_or("NULL").to_owned()).collect();
    messages.iter().filter_map(|m| if let SimpleQueryMessage::Row(row) = m { Some(cells(row)) } else { None }).collect()
}

/// The single value of a query.
pub async fn value(client: &Client, sql: &str) -> String {
    let rows = rows(client, sql).await;
    assert_eq!(rows.len(), 1, "{sql}: {rows:?}");
    rows[0][0].clone()
}

/// Runs statements.
pub async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {}", tell(&e)));
}

/// SQLSTATE and message of a statement that must fail.
pub async fn refused(client: &Client, sql: &str) -> (String, String) {
    let error = client.simple_query(sql).await.expect_err(sql);
    let db = error.as_db_error().unwrap_or_else(|| panic!("{sql}: {}", tell(&error)));
    (db.code().code().to_owned(), db.message().to_owned())
}

/// The server's words of an error.
pub fn tell(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |e| format!("[{}] {} {:?}", e.code().code(), e.message(), e.detail()))
}

/// Asks until the answer fits.
pub async fn until(client: &Client, sql: &str, fits: impl Fn(&[Vec<String>]) -> bool) -> Vec<Vec<String>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = rows(client, sql).await;
        if fits(&now) {
            return now;
        }
        assert!(Instant::now() < deadline, "{sql} stays at {now:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The folder of inputs beside the checkout. `None` where there is none (then the test says that it was skipped; in CI that fails).
pub fn shared(path: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = root.ancestors().skip(1).map(|a| a.join("shared").join(path)).find(|p| p.exists());
    if found.is_none() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "skipped in CI: shared/{path} is not there");
        println!("skipped: shared/{path} is not there");
    }
    found
}

/// Whether long runs are wanted.
pub fn nightly() -> bool {
    std::env::var_os("EDDYLINE_NIGHTLY").is_some()
}
