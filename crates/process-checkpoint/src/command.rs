//! The command `octavo process-checkpoint`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use octavo_gpu::nvml::find_cuda_library;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;

use crate::driver::{CudaProcess, Driver};
use crate::error::CheckpointError;
use crate::steps::{Action, ActionError, ProcessState, Step, Target, act};

/// Arguments of `octavo process-checkpoint`.
#[derive(Clone, Debug, clap::Args)]
pub struct ProcessCheckpointArgs {
    /// What to do
    #[arg(value_enum)]
    pub action: Action,

    /// The process, by its pid here
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: i32,

    /// Longest wait of a lock for the process's calls and work
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_timeout)]
    pub timeout: Duration,

    /// Folder under which the NVIDIA driver is installed
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub driver_root: PathBuf,
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let time = text.parse::<jiff::SignedDuration>().map_err(|error| error.to_string())?;
    let time = Duration::try_from(time).map_err(|error| error.to_string())?;
    if time.is_zero() { Err("it must be longer than nothing".to_owned()) } else { Ok(time) }
}

/// What the command prints.
#[derive(Debug, Serialize)]
struct Report {
    pid: i32,
    /// State of the process at the end.
    state: ProcessState,
    /// Durations of the steps that were taken.
    milliseconds: BTreeMap<Step, f64>,
}

/// Carries the action out, and prints a report. Its exit code tells why it failed.
pub fn run(
    args: &ProcessCheckpointArgs,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    match report(args) {
        Ok(report) => {
            let text = serde_json::to_string(&report).context("write the report")?;
            writeln!(out, "{text}").context("write the report")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) if error.reason == CheckpointError::Failed => Err(error.into()),
        Err(error) => {
            writeln!(errors, "error: {error}").context("write the error")?;
            Ok(error.reason.exit_code().into())
        }
    }
}

fn report(args: &ProcessCheckpointArgs) -> Result<Report, ActionError> {
    // Without its caller nothing would bring the process back. The next caller begins at the state that it finds.
    let died_with = set_parent_process_death_signal(Some(Signal::KILL));
    died_with.map_err(|error| ActionError::new(CheckpointError::Failed, error.to_string()))?;
    let library = find_cuda_library(&args.driver_root)
        .map_err(|error| ActionError::new(CheckpointError::Failed, error.to_string()))?;
    let driver = Driver::open(&library)?;
    let process = CudaProcess { driver: &driver, pid: args.pid };
    let mut target = Timed { target: process, milliseconds: BTreeMap::new() };
    let state = act(&mut target, args.action, args.timeout)?;
    Ok(Report { pid: args.pid, state, milliseconds: target.milliseconds })
}

/// Measures the steps of a target.
struct Timed<T> {
    target: T,
    milliseconds: BTreeMap<Step, f64>,
}

impl<T: Target> Target for Timed<T> {
    fn state(&self) -> Result<ProcessState, ActionError> {
        self.target.state()
    }

    fn step(&mut self, step: Step, timeout: Duration) -> Result<(), ActionError> {
        let began = Instant::now();
        let result = self.target.step(step, timeout);
        // Whole microseconds.
        let took = (began.elapsed().as_secs_f64() * 1e6).round() / 1e3;
        self.milliseconds.insert(step, took);
        result
    }
}
