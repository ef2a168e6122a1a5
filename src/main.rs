//! The program: arguments, settings, logging, then a node until a signal.

use clap::{Parser, Subcommand};
use eddyline::config::Flags;
use eddyline::{Node, bench, demo, shell};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A wrong flag, setting or data directory.
const EXIT_USAGE: u8 = 2;

#[derive(Parser)]
#[command(
    name = "eddyline",
    version,
    about = "A streaming database: SQL views over event streams, always fresh.",
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Subcommand)]
enum Command {
    /// Everything in one process (the default)
    Standalone(Flags),
    /// Runs the tutorial on a throw-away directory and shows the view changing live
    Demo(demo::Args),
    /// A small SQL shell
    Sql(shell::Args),
    /// Operates a running server
    Ctl(shell::CtlArgs),
    /// Measures
    Bench(bench::Args),
    /// Prints the settings that hold, with the source of each
    Config(Flags),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    if let Err(message) = eddyline_env::failpoint::install_from_env() {
        eprintln!("eddyline: {message}");
        return ExitCode::from(EXIT_USAGE);
    }
    match cli.command {
        None => serve(&cli.flags),
        Some(Command::Standalone(flags)) => serve(&flags),
        Some(Command::Demo(args)) => demo::run(args),
        Some(Command::Sql(args)) => shell::run(args),
        Some(Command::Ctl(args)) => shell::ctl(args),
        Some(Command::Bench(args)) => bench::run(args),
        Some(Command::Config(flags)) => match flags.explain() {
            Ok(lines) => {
                lines.iter().for_each(|l| println!("{l}"));
                ExitCode::SUCCESS
            }
            Err(error) => wrong(&error),
        },
    }
}

/// Help and version go to the terminal as they are; a wrong flag is one clear line.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    let first = text.lines().next().unwrap_or("wrong arguments").trim_start_matches("error: ");
    eprintln!("eddyline: {first} (see eddyline --help)");
    ExitCode::from(EXIT_USAGE)
}

fn wrong(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("eddyline: {error}");
    ExitCode::from(EXIT_USAGE)
}

fn serve(flags: &Flags) -> ExitCode {
    let config = match flags.resolve() {
        Ok(config) => config,
        Err(error) => return wrong(&error),
    };
    if let Err(error) = eddyline::logging::install(&config.log) {
        return wrong(&error);
    }
    let runtime = match eddyline::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return wrong(&error),
    };
    runtime.block_on(async {
        let node = match Node::start(config).await {
            Ok(node) => node,
            Err(error) => {
                eprintln!("eddyline: {error}");
                return ExitCode::from(EXIT_USAGE);
            }
        };
        node.greet();
        eddyline::wait_for_signal().await;
        match node.shutdown().await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("eddyline: {error}");
                ExitCode::FAILURE
            }
        }
    })
}
