//! From a parsed command line to the program that it names.

mod typed;

use std::env;
use std::ffi::OsStr;
use std::future::Future;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use octavo_view::Outcome;
use tokio::runtime::{Builder, Runtime};

use crate::cli::{Cli, Generated, Program, VersionForm, command};
use crate::logging::{self, Habit};
use crate::{reference, snapshot, version};

/// Exit code for "it works, and what was asked about is waiting".
const PENDING: u8 = 3;

/// Threads of programs that serve many calls at once.
const WORKERS: usize = 2;

/// Threads at most for calls that block, files mostly: a process of hundreds of nodes would
/// start as many at once.
const BLOCKING: usize = 64;

/// Runs a program to its end.
pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.program {
        // Starts with each container: no runtime, no TLS, no logs.
        Program::CdiHook(args) => octavo_agent::hook::run(&args)?,
        Program::Agent(args) => {
            logging::start(cli.log, Habit::Daemon);
            with_tls(&serving()?, octavo_agent::run(*args))?;
        }
        Program::Scheduler(args) => {
            logging::start(cli.log, Habit::Daemon);
            with_tls(&serving()?, octavo_scheduler::run(args))?;
        }
        Program::Lab(args) => {
            logging::start(cli.log, Habit::Command);
            with_tls(&serving()?, octavo_lab::run(*args))?;
        }
        Program::Top(args) => {
            logging::start(cli.log, Habit::Command);
            with_tls(&asking()?, async { Ok(octavo_view::run_top(&args).await?) })?;
        }
        Program::Explain(args) => {
            logging::start(cli.log, Habit::Command);
            let outcome =
                with_tls(&asking()?, async { Ok(octavo_view::run_explain(&args).await?) })?;
            if outcome == Outcome::Pending {
                return Ok(ExitCode::from(PENDING));
            }
        }
        Program::Snapshot(args) => {
            logging::start(cli.log, Habit::Command);
            write(with_tls(&asking()?, snapshot::run(&args))?.as_bytes())?;
        }
        // Pure arithmetic and files: no runtime, no TLS.
        Program::Sim(args) => {
            logging::start(cli.log, Habit::Command);
            let outcome = octavo_sim::run::run(&args, typed::typed(env::args_os()))?;
            if outcome == octavo_sim::run::Outcome::DoesNotFit {
                return Ok(ExitCode::from(PENDING));
            }
        }
        // No threads and no TLS before somebody else's library is opened.
        Program::Probe(args) => {
            logging::start(cli.log, Habit::Command);
            let mut out = io::stdout().lock();
            if octavo_probe::run(&args, &mut out)? == octavo_probe::Outcome::Leaks {
                return Ok(ExitCode::FAILURE);
            }
        }
        Program::Share(args) => {
            logging::start(cli.log, Habit::Command);
            return octavo_agent::standalone_share::run(&args);
        }
        Program::Completion { shell } => {
            let mut script = Vec::new();
            let mut command = command(OsStr::new("octavo"));
            clap_complete::generate(shell, &mut command, "octavo", &mut script);
            write(&script)?;
        }
        Program::Version { output: VersionForm::Text } => write(version::line().as_bytes())?,
        Program::Version { output: VersionForm::Json } => write(version::json().as_bytes())?,
        Program::Generate { what: Generated::CliReference } => {
            write(reference::markdown(command(OsStr::new("octavo"))).as_bytes())?;
        }
        Program::Generate { what: Generated::SchedulerMetrics } => {
            write(octavo_scheduler::metrics::reference().as_bytes())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a future that speaks TLS. rustls takes its cryptography from the process, once.
fn with_tls<T>(
    runtime: &Runtime,
    program: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another TLS library was installed before"))?;
    runtime.block_on(Box::pin(program))
}

/// A runtime for a command that asks and ends: this thread is enough.
fn asking() -> anyhow::Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("the runtime cannot start")
}

/// A runtime for a program that serves.
fn serving() -> anyhow::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING)
        .enable_all()
        .build()
        .context("the runtime cannot start")
}

/// Writes to standard output. That nobody reads any more is no error, as in `octavo version | true`.
fn write(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}
