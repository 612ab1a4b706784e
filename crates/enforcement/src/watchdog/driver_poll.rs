//! Polls the driver for the processes on GPUs.
//!
//! Driver calls may block for any time. Each GPU is polled on its own thread, one call at a time. While a call hangs,
//! no other begins for its GPU, and the other GPUs are polled as before.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use octavo_gpu::{DriverError, GpuProcess};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use octavo_gpu::DriverHandle;

/// Maximum wait of a poll for the driver. A longer call continues, and a later poll gets its result.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(400);
/// Duration after which a call counts as hanging.
const HANG_TIMEOUT: Duration = Duration::from_secs(10);

/// Results by GPU UUID. GPUs without an answer yet are absent.
pub(super) type ProcessLists = BTreeMap<String, Result<Vec<GpuProcess>, DriverError>>;

/// Result of a poll.
#[derive(Debug)]
pub(super) enum PollResult {
    /// The driver is open.
    Answered {
        /// Of these GPUs.
        lists: ProcessLists,
        /// GPUs whose calls hang.
        hanging: BTreeSet<String>,
    },
    /// The driver is closed: it could not be opened, or is being reopened.
    Closed,
}

/// Polls the driver.
#[derive(Debug, Default)]
pub(super) struct DriverPoller {
    /// Calls that have not ended, by GPU.
    running: BTreeMap<String, (Call, Instant)>,
}

type Call = JoinHandle<Result<Vec<GpuProcess>, DriverError>>;

impl DriverPoller {
    /// Polls the processes on these GPUs, or waits for running calls.
    pub(super) async fn poll(&mut self, driver: &DriverHandle, gpus: &[String]) -> PollResult {
        let new = gpus.iter().filter(|gpu| !self.running.contains_key(*gpu)).collect::<Vec<_>>();
        if !new.is_empty() {
            let Some(driver) = driver.get() else { return PollResult::Closed };
            for gpu in new {
                let (driver, uuid) = (driver.clone(), gpu.clone());
                let call = tokio::task::spawn_blocking(move || driver.processes(&uuid));
                self.running.insert(gpu.clone(), (call, Instant::now()));
            }
        }
        let (mut lists, mut hanging) = (ProcessLists::new(), BTreeSet::new());
        let mut ended = Vec::new();
        for (gpu, (call, since)) in &mut self.running {
            // A call that exceeded the timeout once delays no later poll.
            match timeout_at(*since + ANSWER_TIMEOUT, call).await {
                Ok(Ok(list)) => {
                    lists.insert(gpu.clone(), list);
                    ended.push(gpu.clone());
                }
                Ok(Err(error)) => {
                    tracing::error!(gpu, %error, "the task that polls the driver's processes failed");
                    ended.push(gpu.clone());
                }
                Err(_) if since.elapsed() >= HANG_TIMEOUT => {
                    hanging.insert(gpu.clone());
                }
                Err(_) => {}
            }
        }
        for gpu in ended {
            self.running.remove(&gpu);
        }
        // A GPU may have lost its last share since the call began.
        lists.retain(|gpu, _| gpus.contains(gpu));
        hanging.retain(|gpu| gpus.contains(gpu));
        PollResult::Answered { lists, hanging }
    }
}

#[cfg(test)]
mod tests;
