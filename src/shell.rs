//! `eddyline sql` and `eddyline ctl`: clients of a running server, for machines without psql.

use clap::{Parser, Subcommand};
use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// Arguments of `eddyline sql`.
#[derive(Parser)]
pub struct Args {
    /// Runs these statements and ends; may be given several times
    #[arg(short, long = "command", value_name = "SQL")]
    command: Vec<String>,
    /// Where the server is
    #[arg(long, default_value = "postgres://root@127.0.0.1:4566/dev", env = "EDDYLINE_URL")]
    url: String,
}

/// Arguments of `eddyline ctl`.
#[derive(Parser)]
pub struct CtlArgs {
    #[command(subcommand)]
    command: Ctl,
    /// Where the server is
    #[arg(long, global = true, default_value = "postgres://root@127.0.0.1:4566/dev", env = "EDDYLINE_URL")]
    url: String,
}

#[derive(Subcommand)]
enum Ctl {
    /// Jobs, how fresh they are, and nodes
    Status,
    /// Nodes of the cluster
    Members,
    /// The store
    #[command(subcommand)]
    Store(StoreCommand),
}

#[derive(Subcommand)]
enum StoreCommand {
    /// Files of the current version
    List,
}

/// Runs `eddyline sql`.
pub fn run(args: Args) -> ExitCode {
    with_client(&args.url, async |client| {
        if args.command.is_empty() {
            return interactive(client).await;
        }
        for sql in &args.command {
            if !statement(client, sql).await {
                return ExitCode::FAILURE;
            }
        }
        ExitCode::SUCCESS
    })
}

/// Runs `eddyline ctl`.
pub fn ctl(args: CtlArgs) -> ExitCode {
    let queries: &[&str] = match args.command {
        Ctl::Status => &["SELECT * FROM eddy_catalog.nodes", "SELECT * FROM eddy_catalog.jobs", "SELECT * FROM eddy_catalog.freshness"],
        Ctl::Members => &["SELECT * FROM eddy_catalog.nodes"],
        Ctl::Store(StoreCommand::List) => &["SELECT * FROM eddy_catalog.sst_files"],
    };
    with_client(&args.url, async |client| {
        for sql in queries {
            if !statement(client, sql).await {
                return ExitCode::FAILURE;
            }
        }
        ExitCode::SUCCESS
    })
}

fn with_client(url: &str, work: impl AsyncFnOnce(&Client) -> ExitCode) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("eddyline: {error}");
            return ExitCode::FAILURE;
        }
    };
    runtime.block_on(async {
        let (client, connection) = match tokio_postgres::connect(url, NoTls).await {
            Ok(both) => both,
            Err(error) => {
                eprintln!("eddyline: cannot connect to {url}: {}", describe(&error));
                return ExitCode::FAILURE;
            }
        };
        tokio::select! {
            code = work(&client) => code,
            ended = connection => {
                eprintln!("eddyline: the server closed the connection{}", ended.err().map(|e| format!(": {}", describe(&e))).unwrap_or_default());
                ExitCode::FAILURE
            }
        }
    })
}

async fn interactive(client: &Client) -> ExitCode {
    let prompt = std::io::stdin().is_terminal();
    let mut pending = String::new();
    let mut all_well = true;
    loop {
        if prompt {
            print!("{}", if pending.is_empty() { "eddyline=> " } else { "eddyline-> " });
            let _ = std::io::stdout().flush();
        }
        let mut line = String::new();
        match std::io::stdin().lock().read_line(&mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        if pending.is_empty() && matches!(line.trim(), "\\q" | "quit" | "exit") {
            break;
        }
        pending.push_str(&line);
        if pending.trim_end().ends_with(';') {
            all_well &= statement(client, &std::mem::take(&mut pending)).await;
        }
    }
    if !pending.trim().is_empty() {
        all_well &= statement(client, &pending).await;
    }
    // As psql does: typed errors are seen by the person, errors of a script by its exit code.
    if prompt || all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn statement(client: &Client, sql: &str) -> bool {
    let messages = match client.simple_query(sql).await {
        Ok(messages) => messages,
        Err(error) => {
            eprintln!("{}", describe(&error));
            return false;
        }
    };
    let mut names: Vec<String> = Vec::new();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for message in &messages {
        match message {
            SimpleQueryMessage::RowDescription(columns) => names = columns.iter().map(|c| c.name().to_owned()).collect(),
            SimpleQueryMessage::Row(row) => rows.push((0..row.len()).map(|i| row.get(i).unwrap_or("NULL").to_owned()).collect()),
            SimpleQueryMessage::CommandComplete(count) if names.is_empty() => println!("OK {count}"),
            SimpleQueryMessage::CommandComplete(_) => {
                print_table(&std::mem::take(&mut names), &std::mem::take(&mut rows));
            }
            _ => {}
        }
    }
    true
}

fn print_table(names: &[String], rows: &[Vec<String>]) {
    let width = |i: usize| rows.iter().map(|r| r[i].chars().count()).chain([names[i].chars().count()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..names.len()).map(width).collect();
    let line = |cells: &[String]| {
        let padded: Vec<String> = cells.iter().zip(&widths).map(|(c, w)| format!("{c:<w$}")).collect();
        println!(" {}", padded.join(" | ").trim_end());
    };
    line(names);
    println!("-{}", widths.iter().map(|w| "-".repeat(*w)).collect::<Vec<_>>().join("-+-"));
    rows.iter().for_each(|r| line(r));
    println!("({} row{})\n", rows.len(), if rows.len() == 1 { "" } else { "s" });
}

/// The server's own words where there are any.
fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => {
            let mut text = format!("{}: {} (SQLSTATE {})", db.severity(), db.message(), db.code().code());
            for (label, part) in [("DETAIL", db.detail()), ("HINT", db.hint())] {
                if let Some(part) = part {
                    text.push_str(&format!("\n{label}: {part}"));
                }
            }
            text
        }
        None => {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(error);
            while let Some(inner) = source {
                text.push_str(&format!(": {inner}"));
                source = inner.source();
            }
            text
        }
    }
}
