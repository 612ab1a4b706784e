//! Dispatches a parsed command line to its program.

mod shell_line;

use std::env;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::process::ExitCode;

use octavo::logging::{self, LogProfile};
use octavo::runtime::{client_runtime, server_runtime, with_tls};
use octavo_mps_daemon::{MpsDaemonArgs, MpsDaemonCommand};

use crate::cli::{Cli, Generated, Program, VersionForm, command};
use crate::discover::run_discover;
use crate::exit_status::ExitStatus;
use crate::migrate::{MigrateArgs, MigrateCommand, run_manifests, run_plan};
use crate::{reference, snapshot, version};

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
        Program::Controller(args) => {
            logging::start(cli.log, LogProfile::Daemon);
            with_tls(&server_runtime()?, octavo_controller::run(*args))?;
        }
        Program::ImexDaemon(args) => {
            logging::start(cli.log, LogProfile::Daemon);
            with_tls(&client_runtime()?, octavo_imex_daemon::run(args))?;
        }
        // It becomes another program: no runtime.
        Program::MpsDaemon(MpsDaemonArgs { command: MpsDaemonCommand::Enter(args) }) => {
            logging::start(cli.log, LogProfile::Daemon);
            octavo_mps_daemon::enter(&args)?;
        }
        Program::MpsDaemon(args) => {
            logging::start(cli.log, LogProfile::Daemon);
            client_runtime()?.block_on(octavo_mps_daemon::run(args))?;
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
        Program::Health(args) => {
            logging::start(cli.log, LogProfile::Command);
            let status =
                with_tls(&client_runtime()?, async { Ok(octavo_view::run_health(&args).await?) })?;
            return Ok(ExitStatus::from(status).into());
        }
        Program::Driver(args) => {
            logging::start(cli.log, LogProfile::Command);
            with_tls(&client_runtime()?, async { Ok(octavo_view::run_driver(&args).await?) })?;
        }
        Program::Discover(args) => {
            logging::start(cli.log, LogProfile::Daemon);
            with_tls(&client_runtime()?, run_discover(&args))?;
        }
        Program::Validate(args) => {
            logging::start(cli.log, LogProfile::Command);
            let status = with_tls(&client_runtime()?, octavo_validate::run(&args))?;
            return Ok(ExitStatus::from(status).into());
        }
        Program::Install(args) => {
            logging::start(cli.log, LogProfile::Command);
            let status = with_tls(&client_runtime()?, octavo_install::run_install(&args))?;
            return Ok(ExitStatus::from(status).into());
        }
        Program::Upgrade(args) => {
            logging::start(cli.log, LogProfile::Command);
            let status = with_tls(&client_runtime()?, octavo_install::run_upgrade(&args))?;
            return Ok(ExitStatus::from(status).into());
        }
        Program::Uninstall(args) => {
            logging::start(cli.log, LogProfile::Command);
            let status = with_tls(&client_runtime()?, octavo_install::run_uninstall(&args))?;
            return Ok(ExitStatus::from(status).into());
        }
        Program::Snapshot(args) => {
            logging::start(cli.log, LogProfile::Command);
            write(with_tls(&client_runtime()?, snapshot::run(&args))?.as_bytes())?;
        }
        Program::Migrate(MigrateArgs { command: MigrateCommand::Manifests(args) }) => {
            logging::start(cli.log, LogProfile::Command);
            let mut text = Vec::new();
            let is_whole = run_manifests(&args, &mut text, &mut io::stderr().lock())?;
            write(&text)?;
            if !is_whole {
                return Ok(ExitStatus::CheckFailed.into());
            }
        }
        Program::Migrate(MigrateArgs { command: MigrateCommand::Plan(args) }) => {
            logging::start(cli.log, LogProfile::Command);
            let (text, is_clear) = with_tls(&client_runtime()?, run_plan(&args))?;
            write(text.as_bytes())?;
            if !is_clear {
                return Ok(ExitStatus::NotSatisfied.into());
            }
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
            // Not locked: its threads may write.
            let result = octavo_probe::run(&args, &mut io::stdout())?;
            return Ok(ExitCode::from(result.exit_code()));
        }
        // Only the driver's library: no runtime, no TLS.
        Program::ProcessCheckpoint(args) => {
            logging::start(cli.log, LogProfile::Command);
            let (out, errors) = (&mut io::stdout().lock(), &mut io::stderr().lock());
            return octavo_process_checkpoint::run(&args, out, errors);
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
        Program::Generate { what: Generated::ControllerMetrics } => {
            write(octavo_controller::metrics::reference().as_bytes())?;
        }
        Program::Generate { what: Generated::SchedulerMetrics } => {
            write(octavo_scheduler::metrics::reference().as_bytes())?;
        }
    }
    Ok(ExitStatus::Success.into())
}

/// Writes to standard output. A closed pipe is not an error, as in `octavo version | true`.
fn write(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}
