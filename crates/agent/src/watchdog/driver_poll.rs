//! What the driver says of the processes on GPUs. Its calls block for as long as the hardware pleases, so each GPU is
//! asked on a thread that may wait, one call at a time: while one hangs no other is begun for its GPU, and the
//! other GPUs are asked as before.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use octavo_gpu::{DriverError, GpuProcess};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::monitor::DriverHandle;

/// How long a look waits for the driver's answer; a call that takes longer goes on, and a later look has it.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(400);
/// From when on a call is said to hang.
const HANG_TIMEOUT: Duration = Duration::from_secs(10);

/// What the driver says of each GPU, by UUID; nothing of those that it did not answer for yet.
pub(super) type ProcessLists = BTreeMap<String, Result<Vec<GpuProcess>, DriverError>>;

/// What came of asking the driver.
#[derive(Debug)]
pub(super) enum PollResult {
    /// It told.
    Answered {
        /// Of these GPUs.
        lists: ProcessLists,
        /// And of these it has not for so long that people should know.
        hanging: BTreeSet<String>,
    },
    /// It is closed at the moment: it could not be opened, or is opened anew.
    Closed,
}

/// Asks the driver.
#[derive(Debug, Default)]
pub(super) struct DriverPoller {
    /// Calls that have not ended, by GPU.
    running: BTreeMap<String, (Call, Instant)>,
}

type Call = JoinHandle<Result<Vec<GpuProcess>, DriverError>>;

impl DriverPoller {
    /// Asks which processes are on these GPUs, or waits on for what was asked before.
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
            // What has kept a look waiting once keeps none waiting again.
            match timeout_at(*since + ANSWER_TIMEOUT, call).await {
                Ok(Ok(list)) => {
                    lists.insert(gpu.clone(), list);
                    ended.push(gpu.clone());
                }
                Ok(Err(error)) => {
                    tracing::error!(gpu, %error, "asking the driver for processes was cut short");
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
        // A GPU that lost its last share since it was asked is nobody's matter.
        lists.retain(|gpu, _| gpus.contains(gpu));
        hanging.retain(|gpu| gpus.contains(gpu));
        PollResult::Answered { lists, hanging }
    }
}

#[cfg(test)]
mod tests;
