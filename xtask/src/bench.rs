//! `cargo xtask bench NAME`: builds what is measured, then measures it.

pub(crate) mod compare;

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

/// Which benchmark, and how it is printed: passed on as they are.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the benchmark and its flags; `help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    rest: Vec<String>,
}

/// The program of all benchmarks, in a checkout.
const PROGRAM: &str = "target/release/octavo-bench";

/// Builds the release binaries and runs the benchmark.
pub(crate) fn run(root: &Path, args: &Args) -> anyhow::Result<()> {
    build(root)?;
    let wants_help = args.rest.iter().any(|arg| arg == "help");
    let rest = if wants_help { vec!["--help".to_owned()] } else { args.rest.clone() };
    let program = root.join(PROGRAM);
    // In this one's place: who tells this process to end tells the benchmark, which has a lab to end.
    let error = Command::new(&program).args(rest).current_dir(root).exec();
    Err(error).with_context(|| format!("run {}", program.display()))
}

/// Builds the release binaries and the benchmarks of a checkout.
fn build(root: &Path) -> anyhow::Result<()> {
    cargo(root, &["build", "--release", "--locked"])?;
    cargo(root, &["build", "--release", "--locked", "--package", "octavo-bench"])?;
    let client = ["--package", "octavo-probe", "--example", "guard_client"];
    cargo(root, &[["build", "--release", "--locked"].as_slice(), &client].concat())
}

fn cargo(root: &Path, args: &[&str]) -> anyhow::Result<()> {
    let status =
        Command::new(env!("CARGO")).args(args).current_dir(root).status().context("run cargo")?;
    if !status.success() {
        bail!("cargo {} ended with {status}", args.join(" "));
    }
    Ok(())
}
