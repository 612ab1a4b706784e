//! `octavo`. It only wires: each subcommand is implemented in another crate.

#![forbid(unsafe_code)]

mod cli;
mod discover;
mod dispatch;
mod exit_status;
mod failure;
mod migrate;
mod reference;
mod snapshot;
mod version;

use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = cli::parse();
    match dispatch::run(cli) {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}
