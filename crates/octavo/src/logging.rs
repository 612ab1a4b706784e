//! Logs on standard error, for people or for machines.

use std::io::{self, IsTerminal};

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// Verbosity and format of the logs.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Logs")]
pub struct LogArgs {
    /// Log more; twice, still more. `RUST_LOG` overrides it
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Form of the logs on standard error
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORM")]
    #[arg(env = "OCTAVO_LOG_FORMAT", hide_env_values = true)]
    log_format: LogFormat,
}

/// Format of the logs.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// Default verbosity of a program.
#[derive(Clone, Copy, Debug)]
pub enum LogProfile {
    /// An interactive command: only warnings and errors.
    Command,
    /// A long-running program: also its actions.
    Daemon,
}

/// Starts logging for the whole process.
pub fn start(args: LogArgs, profile: LogProfile) {
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new(directives(profile, args.verbose)));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let started = match args.log_format {
        LogFormat::Text => logs.with_ansi(io::stderr().is_terminal()).try_init(),
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    };
    // Fails only if logging has already been started, which is fine.
    drop(started);
}

/// Octavo's crates become verbose first; libraries only at high verbosity.
fn directives(profile: LogProfile, verbose: u8) -> String {
    let (libraries, ours) = match (profile, verbose) {
        (LogProfile::Command, 0) => ("warn", "warn"),
        (LogProfile::Command, 1) | (LogProfile::Daemon, 0) => ("warn", "info"),
        (LogProfile::Command, 2) | (LogProfile::Daemon, 1) => ("info", "debug"),
        _ => ("debug", "trace"),
    };
    let mut text = libraries.to_owned();
    for suffix in ["", "_agent", "_gpu", "_kube_io", "_lab", "_view"] {
        text.push_str(",octavo");
        text.push_str(suffix);
        text.push('=');
        text.push_str(ours);
    }
    text
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::EnvFilter;

    use super::{LogProfile, directives};

    #[test]
    fn directives_can_be_read_and_grow_with_verbosity() {
        for profile in [LogProfile::Command, LogProfile::Daemon] {
            for verbose in 0..5 {
                EnvFilter::try_new(directives(profile, verbose)).unwrap();
            }
        }
        assert!(directives(LogProfile::Command, 0).contains("octavo_view=warn"));
        assert!(directives(LogProfile::Daemon, 0).contains("octavo_agent=info"));
        assert!(directives(LogProfile::Daemon, 9).contains("octavo_agent=trace"));
    }
}
