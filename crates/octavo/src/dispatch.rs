//! Dispatches a parsed command line to its program.

mod shell_line;

use std::env;
use std::ffi::OsStr;
use std::future::Future;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use tokio::runtime::{Builder, Runtime};

use crate::cli::{Cli, Generated, Program, VersionForm, command};
use crate::exit_status::ExitStatus;
use crate::logging::{self, LogProfile};
use crate::{reference, snapshot, version};

/// Threads of programs that serve many calls at once.
const WORKER_THREADS: usize = 2;

/// Largest number of threads for blocking calls, mostly on files. A process for hundreds of nodes
/// would otherwise start as many at once.
const MAX_BLOCKING_THREADS: usize = 64;

/// Runs a program to its end.
pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.program {
        // Runs at the start of each container: no runtime, no TLS, no logs.
        Program::CdiHook(args) => octavo_hook::run(&args)?,
        Program::Agent(args) => {
            logging::start(cli.log, LogProfile::Daemon);
            with_tls(&server_runtime()?, octavo_agent::run(*args))?;
        }
        Program::Scheduler(args) => {
            logging::start(cli.log, LogProfile::Daemon);
            with_tls(&server_runtime()?, octavo_scheduler::run(args))?;
        }
        Program::Lab(args) => {
            logging::start(cli.log, LogProfile::Command);
            with_tls(&server_runtime()?, octavo_lab::run(*args))?;
        }
        Program::Top(args) => {
            logging::start(cli.log, LogProfile::Command);
            with_tls(&client_runtime()?, async { Ok(octavo_view::run_top(&args).await?) })?;
        }
        Program::Explain(args) => {
            logging::start(cli.log, LogProfile::Command);
            let status =
                with_tls(&client_runtime()?, async { Ok(octavo_view::run_explain(&args).await?) })?;
            return Ok(ExitStatus::from(status).into());
        }
        Program::Doctor(args) => {
            logging::start(cli.log, LogProfile::Command);
            let status =
                with_tls(&client_runtime()?, async { Ok(octavo_view::run_doctor(&args).await?) })?;
            return Ok(ExitStatus::from(status).into());
        }
        Program::Driver(args) => {
            logging::start(cli.log, LogProfile::Command);
            with_tls(&client_runtime()?, async { Ok(octavo_view::run_driver(&args).await?) })?;
        }
        Program::Snapshot(args) => {
            logging::start(cli.log, LogProfile::Command);
            write(with_tls(&client_runtime()?, snapshot::run(&args))?.as_bytes())?;
        }
        // Only arithmetic and files: no runtime, no TLS.
        Program::Sim(args) => {
            logging::start(cli.log, LogProfile::Command);
            let status = octavo_sim::run::run(&args, shell_line::shell_line(env::args_os()))?;
            return Ok(ExitStatus::from(status).into());
        }
        // No threads and no TLS before the driver's library is loaded.
        Program::Probe(args) => {
            logging::start(cli.log, LogProfile::Command);
            let mut out = io::stdout().lock();
            if octavo_probe::run(&args, &mut out)? == octavo_probe::ProbeResult::Leaks {
                return Ok(ExitStatus::CheckFailed.into());
            }
        }
        Program::Share(args) => {
            logging::start(cli.log, LogProfile::Command);
            return octavo_enforcement::standalone::run(&args);
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
        Program::Generate { what: Generated::Reasons } => {
            write(octavo_api::reasons::reference().as_bytes())?;
        }
        Program::Generate { what: Generated::AgentMetrics } => {
            write(octavo_agent::metrics_reference().as_bytes())?;
        }
        Program::Generate { what: Generated::SchedulerMetrics } => {
            write(octavo_scheduler::metrics::reference().as_bytes())?;
        }
    }
    Ok(ExitStatus::Success.into())
}

/// Runs a future that uses TLS. rustls takes its cryptography provider from the process, once.
fn with_tls<T>(
    runtime: &Runtime,
    program: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another TLS library was installed before"))?;
    runtime.block_on(Box::pin(program))
}

/// A runtime for a client command; the current thread suffices.
fn client_runtime() -> anyhow::Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("the runtime cannot start")
}

/// A runtime for a server.
fn server_runtime() -> anyhow::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(WORKER_THREADS)
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .enable_all()
        .build()
        .context("the runtime cannot start")
}

/// Writes to standard output. A closed pipe is not an error, as in `octavo version | true`.
fn write(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}
