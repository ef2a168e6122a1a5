//! `eddyline bench ...`: drivers that measure the whole engine, one JSON object per line with `--json`.

mod latency;
mod nexmark;
mod process;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Arguments of `eddyline bench`.
#[derive(Parser)]
pub struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Nexmark queries: source, actors, store, checkpoints on
    Nexmark(nexmark::Args),
    /// How long statements take: INSERT until it is visible in a view, CREATE MATERIALIZED VIEW, SELECT; and what idling costs
    Latency(latency::Args),
}

/// Runs a benchmark.
pub fn run(args: Args) -> ExitCode {
    let done = match args.bench {
        Bench::Nexmark(args) => nexmark::run(args),
        Bench::Latency(args) => latency::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("eddyline: {error:#}");
            ExitCode::FAILURE
        }
    }
}
