//! The driver's checkpoints of processes, by `octavo process-checkpoint`. It is a program of its own: the agent has no CUDA driver
//! loaded, and a step that hangs in the driver ends with it.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use octavo_process_checkpoint::CheckpointError;

/// How long the driver may wait for calls and work of a process before it moves it.
const LOCK_TIMEOUT: &str = "10s";

/// How long a move may take: of all memory of a GPU at a tenth of a GiB a second. A longer one hangs.
const MOVE_TIMEOUT: Duration = Duration::from_mins(30);

/// Interval at which the end of the program is looked for.
const INTERVAL: Duration = Duration::from_millis(5);

/// Longest message that is kept, in bytes.
const MAX_MESSAGE: u64 = 4096;

/// Where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the host.
    Out,
    /// To the GPU.
    In,
}

/// Why a process was not moved, and the program's own words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct StepError {
    pub(crate) reason: CheckpointError,
    pub(crate) message: String,
}

/// Runs the program.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoints {
    /// `octavo`.
    pub(crate) program: PathBuf,
    /// Root of the driver's files.
    pub(crate) driver_root: PathBuf,
}

impl Checkpoints {
    /// Moves the GPU memory of a process. Blocks.
    pub(crate) fn step(&self, pid: u32, direction: Direction) -> Result<(), StepError> {
        let failed = |message| StepError { reason: CheckpointError::Failed, message };
        let mut child = self.start(pid, direction).map_err(|error| {
            failed(format!("{} cannot be started: {error}", self.program.display()))
        })?;
        let deadline = Instant::now() + MOVE_TIMEOUT;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < deadline => thread::sleep(INTERVAL),
                Ok(None) => {
                    // It is in the driver, which may not let it go. So its end is not waited for here.
                    let _ = child.kill();
                    thread::spawn(move || child.wait());
                    return Err(failed(format!(
                        "the driver has not moved process {pid} within half an hour"
                    )));
                }
                Err(error) => return Err(failed(format!("its end is not known: {error}"))),
            }
        };
        if status.success() {
            return Ok(());
        }
        let mut message = String::new();
        if let Some(errors) = child.stderr.take() {
            // The exit code says the reason in any case.
            let _ = errors.take(MAX_MESSAGE).read_to_string(&mut message);
        }
        let message = message.trim();
        let message = message.strip_prefix("error: ").unwrap_or(message);
        let message =
            if message.is_empty() { format!("it ended with {status}") } else { message.to_owned() };
        Err(StepError { reason: CheckpointError::from_exit_code(status.code()), message })
    }

    fn start(&self, pid: u32, direction: Direction) -> std::io::Result<Child> {
        let action = match direction {
            Direction::Out => "out",
            Direction::In => "in",
        };
        Command::new(&self.program)
            .args(["process-checkpoint", action, "--timeout", LOCK_TIMEOUT, "--pid"])
            .arg(pid.to_string())
            .arg("--driver-root")
            .arg::<&Path>(&self.driver_root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
    }
}
