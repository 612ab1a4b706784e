//! Moves of memory by the guards of a share's processes, which the agent asks by their lease pages. The processes stay on the GPU with
//! their contexts; only plain memory leaves it.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use octavo_guard_abi::lease_page::{MOVE_BUSY, MOVE_NO_MEMORY, MOVE_UNKNOWN_CONTEXT};
use octavo_node::failpoint;
use octavo_process_checkpoint::CheckpointError;

use super::checkpoint::StepError;
use super::mover::MoveError;
use super::record::{Record, remove_record};
use crate::gpu_time::{GpuTime, PageMove, ProcessMove};
use crate::process::proc::Proc;

/// How long the guards may show no progress. They wait for calls and work for ten seconds at most, and show each piece that they have
/// copied.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval at which their answers are looked for.
const INTERVAL: Duration = Duration::from_millis(5);

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;

/// Moves the memory of a share to the host. If a process keeps its own, that of the others comes back.
pub(super) fn move_out(gpu_time: &GpuTime, share: &str, folder: &Path) -> Result<(), MoveError> {
    let Err(error) = step(&gpu_time.page_move(share, true), &[], STALL_TIMEOUT) else {
        failpoint::hit("swap.out");
        return Ok(());
    };
    // One that does not answer has moved nothing yet, and will not once it is asked for this.
    let back = gpu_time.page_move(share, false);
    let _ = step(&back, &[], STALL_TIMEOUT);
    // The record stays while memory may be on the host.
    let is_whole = back.ask().iter().all(|it| it.moved == 0) && remove_record(folder).is_ok();
    Err(if is_whole { MoveError::Refused(error) } else { MoveError::Stuck(error) })
}

/// Moves the memory of a share back. The recorded processes may not have connected to this agent yet.
pub(super) fn move_back(
    gpu_time: &GpuTime,
    share: &str,
    proc: &Proc,
    folder: &Path,
) -> Result<(), MoveError> {
    let recorded = Record::read(folder).map(|record| record.processes).unwrap_or_default();
    let living = recorded.into_iter().filter(|process| process.is_there(proc));
    let mut pids: Vec<_> =
        living.map(|process| crate::process::Process::from(process).pid).collect();
    // A program that the process has executed since has none of its memory, and perhaps no guard.
    pids.retain(|pid| proc.maps_memory_file(*pid, octavo_lease_page::NAME));
    step(&gpu_time.page_move(share, false), &pids, STALL_TIMEOUT).map_err(MoveError::Refused)?;
    failpoint::hit("swap.in");
    remove_record(folder).map_err(MoveError::Remove)
}

/// Asks the guards of a share, and waits until all that move memory have ended the move, `expected` ones among them. A process that ends
/// meanwhile is no longer awaited, unless it is expected.
fn step(asked: &PageMove<'_>, expected: &[u32], stall: Duration) -> Result<(), StepError> {
    let failed = |message| StepError { reason: CheckpointError::Failed, message };
    let (mut seen, mut since) = (Vec::new(), Instant::now());
    loop {
        let mut answers = asked.ask();
        answers.retain(|it| it.can_move);
        let is_connected = |pid: &&u32| answers.iter().any(|it| it.pid == **pid);
        let missing = expected.iter().find(|pid| !is_connected(pid));
        let pending = answers.iter().find(|it| !it.is_done).map(|it| it.pid);
        let Some(pid) = missing.copied().or(pending) else {
            return answers.iter().map(of_process).find(Result::is_err).unwrap_or(Ok(()));
        };
        if answers != seen {
            (seen, since) = (answers, Instant::now());
        } else if since.elapsed() > stall {
            let seconds = stall.as_secs();
            let what = if missing.is_some() { "has not connected" } else { "has not answered" };
            return Err(failed(format!("the guard of process {pid} {what} within {seconds} s")));
        }
        thread::sleep(INTERVAL);
    }
}

/// What a process answers.
fn of_process(answer: &ProcessMove) -> Result<(), StepError> {
    let pid = answer.pid;
    let (reason, message) = match answer.status {
        0 => return Ok(()),
        MOVE_BUSY => (
            CheckpointError::LockTimedOut,
            format!("a call, work or a capture of process {pid} did not end in time"),
        ),
        MOVE_NO_MEMORY => (
            CheckpointError::Failed,
            format!("process {pid} got no memory of the host, perhaps by a limit of its own"),
        ),
        MOVE_UNKNOWN_CONTEXT => (
            CheckpointError::Refused,
            format!(
                "process {pid} has a context of the GPU that its guard does not know, so it cannot \
                 wait for the work there"
            ),
        ),
        OUT_OF_MEMORY => (
            CheckpointError::NoMemory,
            format!("the GPU has too little free memory for process {pid}"),
        ),
        code => (
            CheckpointError::Refused,
            format!("the driver did not move memory of process {pid} (CUDA error {code})"),
        ),
    };
    Err(StepError { reason, message })
}

#[cfg(test)]
mod tests;
