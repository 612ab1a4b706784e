//! The memory that the driver counts for a running command.

use std::process::{Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use octavo_gpu::Driver;
use octavo_gpu::nvml::Nvml;

/// Allowed excess of a share before the agent acts: 64 MiB or two percent.
const TOLERANCE_BYTES: u64 = 64 << 20;
const TOLERANCE_DIVISOR: u64 = 50;
/// Longer than any command here takes.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(2);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Observations of a command.
#[derive(Debug)]
pub(super) struct CommandReport {
    /// Exit status; `None` if the command had to be killed.
    pub(super) status: Option<ExitStatus>,
    /// Peak use in bytes.
    pub(super) most: u64,
    /// Time from the first poll above the limit to the command's end.
    pub(super) over: Option<Duration>,
}

/// Runs a command, which stays one process, in a share of `memory` bytes.
pub(super) fn run(
    command: &mut Command,
    driver: &Nvml,
    gpu: &str,
    memory: u64,
) -> anyhow::Result<CommandReport> {
    let mut child = command.spawn().context("start a command in the share")?;
    let limit = memory + TOLERANCE_BYTES.max(memory / TOLERANCE_DIVISOR);
    let begun = Instant::now();
    let (mut over_since, mut most) = (None, 0);
    let status = loop {
        if let Some(status) = child.try_wait().context("wait for a command in the share")? {
            break Some(status);
        }
        if begun.elapsed() > COMMAND_TIMEOUT {
            child.kill()?;
            child.wait()?;
            break None;
        }
        let processes = driver.processes(gpu).context("ask the driver for its processes")?;
        let used = processes.iter().find(|process| process.pid == child.id());
        let used = used.and_then(|process| process.used_bytes).unwrap_or(0);
        most = most.max(used);
        if used > limit && over_since.is_none() {
            over_since = Some(Instant::now());
        }
        thread::sleep(POLL_INTERVAL);
    };
    let over = over_since.map(|since: Instant| since.elapsed());
    Ok(CommandReport { status, most, over })
}
