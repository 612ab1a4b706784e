//! What the driver says of the processes on GPUs. Its calls block for as long as the hardware pleases, so they
//! are made on a thread that may wait, one at a time: while one hangs no other is begun.

use std::collections::BTreeMap;
use std::time::Duration;

use octavo_gpu::{DriverError, GpuProcess};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::monitor::OpenDriver;

/// How long a look waits for the driver's answer; a call that takes longer goes on, and a later look has it.
const PATIENCE: Duration = Duration::from_secs(1);
/// From when on a call is said to hang.
const HANGS: Duration = Duration::from_secs(10);

/// What the driver says of each GPU, by UUID.
pub(super) type Lists = BTreeMap<String, Result<Vec<GpuProcess>, DriverError>>;

/// What came of asking the driver.
#[derive(Debug)]
pub(super) enum Answer {
    /// It told.
    Told(Lists),
    /// It is closed at the moment: it could not be opened, or is opened anew.
    Closed,
    /// It has not answered yet.
    Waiting {
        /// Whether for so long that people should know.
        is_hanging: bool,
    },
}

/// Asks the driver.
#[derive(Debug, Default)]
pub(super) struct Truth {
    running: Option<(JoinHandle<Lists>, Instant)>,
}

impl Truth {
    /// Asks which processes are on these GPUs, or waits on for what was asked before.
    pub(super) async fn ask(&mut self, driver: &OpenDriver, gpus: Vec<String>) -> Answer {
        if self.running.is_none() {
            let Some(driver) = driver.get() else { return Answer::Closed };
            let ask = move || {
                let told = gpus.into_iter().map(|gpu| {
                    let processes = driver.processes(&gpu);
                    (gpu, processes)
                });
                told.collect()
            };
            self.running = Some((tokio::task::spawn_blocking(ask), Instant::now()));
        }
        let Some((task, since)) = &mut self.running else { return Answer::Closed };
        let Ok(told) = timeout(PATIENCE, task).await else {
            return Answer::Waiting { is_hanging: since.elapsed() >= HANGS };
        };
        self.running = None;
        match told {
            Ok(lists) => Answer::Told(lists),
            Err(error) => {
                tracing::error!(%error, "asking the driver for processes was cut short");
                Answer::Closed
            }
        }
    }
}

#[cfg(test)]
mod tests;
