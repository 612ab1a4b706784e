//! `octavo-agent`: `octavo agent` as a program of its own, as the chart runs it on each node.
//!
//! It has neither scheduler nor simulator nor lab. So the privileged program of a node is a third as large, and needs less
//! memory.

#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;
use octavo::error_text::error_text;
use octavo::logging::{self, LogArgs, LogProfile};
use octavo::runtime::{server_runtime, with_tls};

/// Publish a node's GPUs and prepare them for containers; the same as `octavo agent`
#[derive(Debug, Parser)]
#[command(name = "octavo-agent", version = octavo::VERSION, disable_help_subcommand = true)]
#[command(max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    agent: octavo_agent::AgentArgs,
    #[command(flatten)]
    log: LogArgs,
}

/// The program that the agent runs to move a process's GPU memory; the same as `octavo process-checkpoint`.
#[derive(Debug, Parser)]
#[command(name = "octavo-agent process-checkpoint")]
struct CheckpointCli {
    #[command(flatten)]
    args: octavo_process_checkpoint::ProcessCheckpointArgs,
}

/// The program that the agent runs to test GPUs; the same as `octavo probe`.
#[derive(Debug, Parser)]
#[command(name = "octavo-agent probe")]
struct ProbeCli {
    #[command(flatten)]
    args: octavo_probe::ProbeArgs,
}

fn main() -> ExitCode {
    let word = std::env::args_os().nth(1).unwrap_or_default();
    let ended = match word.to_str() {
        // Without `hookDir` this program is that of the CDI hooks, too.
        Some("cdi-hook") => octavo_hook::run_program().map(|()| ExitCode::SUCCESS),
        Some("process-checkpoint") => {
            let CheckpointCli { args } = CheckpointCli::parse_from(std::env::args_os().skip(1));
            octavo_process_checkpoint::run(&args, &mut io::stdout(), &mut io::stderr())
        }
        Some("probe") => {
            let ProbeCli { args } = ProbeCli::parse_from(std::env::args_os().skip(1));
            let result = octavo_probe::run(&args, &mut io::stdout());
            result.map(|result| ExitCode::from(result.exit_code()))
        }
        _ => {
            let cli = Cli::parse();
            logging::start(cli.log, LogProfile::Daemon);
            let run = server_runtime().and_then(|it| with_tls(&it, octavo_agent::run(cli.agent)));
            run.map(|()| ExitCode::SUCCESS)
        }
    };
    ended.unwrap_or_else(|error| {
        // Ignored: standard error may be closed.
        let _ = io::stderr().lock().write_all(error_text(&error).as_bytes());
        ExitCode::FAILURE
    })
}
