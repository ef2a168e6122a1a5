//! `eddyline demo`: the tutorial on a throw-away directory, with the view changing live in the terminal.

use crate::config::Flags;
use crate::{Node, logging, runtime, wait_for_signal};
use clap::Parser;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// Arguments of `eddyline demo`.
#[derive(Parser)]
pub struct Args {
    /// Ends by itself after so many seconds (0: runs until Ctrl-C)
    #[arg(long, default_value_t = 0)]
    seconds: u64,
    #[command(flatten)]
    flags: Flags,
}

/// The statements of the tutorial, in the order in which they are typed.
pub const TUTORIAL: [&str; 2] = [
    "CREATE SOURCE page_visits (user_id BIGINT, url VARCHAR, ts TIMESTAMP)
  WITH (connector = 'datagen', fields.user_id.min = '1', fields.user_id.max = '1000')
  FORMAT PLAIN ENCODE JSON",
    "CREATE MATERIALIZED VIEW user_visit_counts AS
  SELECT user_id, COUNT(*) AS visits, MAX(ts) AS last_seen
  FROM page_visits GROUP BY user_id",
];

const SHOWN: &str = "SELECT user_id, visits, last_seen FROM user_visit_counts ORDER BY visits DESC, user_id LIMIT 10";
const TOTALS: &str = "SELECT count(*) AS users, sum(visits) AS visits FROM user_visit_counts";

/// Runs the demo.
pub fn run(args: Args) -> ExitCode {
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("eddyline: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: Args) -> anyhow::Result<()> {
    let directory = tempfile::Builder::new().prefix("eddyline-demo-").tempdir()?;
    let config = args.flags.with_log("warn").with_data_dir(directory.path()).resolve()?;
    logging::install(&config.log)?;
    runtime()?.block_on(async {
        let node = Node::start(config).await?;
        node.greet();
        let shown = tokio::select! {
            shown = show(&node, args.seconds) => shown,
            () = wait_for_signal() => Ok(()),
        };
        node.shutdown().await?;
        shown
    })
}

async fn show(node: &Node, seconds: u64) -> anyhow::Result<()> {
    let url = format!("postgres://root@{}/dev", node.pg_address());
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    let driver = eddyline_env::spawn::task("demo connection", async move {
        let _ = connection.await;
    });
    for statement in TUTORIAL {
        println!("\ndev=> {statement};");
        client.batch_execute(statement).await?;
    }
    println!("\ndev=> {SHOWN};\n");
    let live = std::io::stdout().is_terminal();
    let started = eddyline_env::clock::now();
    let mut lines_shown = 0;
    while seconds == 0 || started.elapsed() < Duration::from_secs(seconds) {
        let mut text = String::new();
        for sql in [SHOWN, TOTALS] {
            text.push_str(&table(&client.simple_query(sql).await?));
            text.push('\n');
        }
        if live && lines_shown > 0 {
            print!("\x1b[{lines_shown}A\x1b[J");
        }
        lines_shown = text.lines().count();
        print!("{text}");
        std::io::stdout().flush()?;
        eddyline_env::clock::sleep(Duration::from_millis(if live { 500 } else { 1000 })).await;
    }
    drop(client);
    driver.abort();
    Ok(())
}

fn table(messages: &[SimpleQueryMessage]) -> String {
    let mut text = String::new();
    for message in messages {
        match message {
            SimpleQueryMessage::RowDescription(columns) => {
                let names: Vec<String> = columns.iter().map(|c| format!("{:>26}", c.name())).collect();
                text.push_str(&format!("{}\n", names.join(" |")));
            }
            SimpleQueryMessage::Row(row) => {
                let cells: Vec<String> = (0..row.len()).map(|i| format!("{:>26}", row.get(i).unwrap_or("NULL"))).collect();
                text.push_str(&format!("{}\n", cells.join(" |")));
            }
            _ => {}
        }
    }
    text
}
