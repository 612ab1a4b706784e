//! The repository's own chores: `cargo xtask help` lists them.

#![forbid(unsafe_code)]

mod bench;
mod chart;
mod generate;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The repository's own chores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

/// One chore.
#[derive(Debug, Subcommand)]
enum Chore {
    /// Runs a benchmark and prints its figures.
    Bench(bench::Args),
    /// Runs a benchmark in two checkouts by turns and prints what changed.
    Compare(bench::compare::Args),
    /// Checks the Helm chart and writes what is made from it.
    Chart(chart::Args),
    /// Writes the files of the repository that are made from others.
    Generate(generate::Args),
    /// Checks what the compiler does not: edges between crates, file sizes, words, links.
    Tidy,
}

fn main() -> ExitCode {
    let root = root();
    let done = match Cli::parse().chore {
        Chore::Bench(args) => bench::run(&root, &args),
        Chore::Compare(args) => bench::compare::run(&root, &args),
        Chore::Chart(args) => chart::run(&args),
        Chore::Generate(args) => generate::run(&args),
        Chore::Tidy => tidy::run(&root),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// The repository's root: the folder above this package.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}

#[expect(clippy::print_stderr, reason = "a chore talks to the person who started it")]
fn complain(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}
