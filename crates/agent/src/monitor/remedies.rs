//! Remedies of GPUs, applied on the driver's thread while it has the driver closed: nothing may have a GPU open that is reset.

mod reboot;
mod reload;

use std::path::Path;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use octavo_gpu::programs::{self, ProgramError};
use octavo_health::remedy::Remedy;
use octavo_health::signal::{Attempt, Outcome};

pub(crate) use reboot::{RebootError, Rebooter};
pub(crate) use reload::{ReloadError, Reloader};

use super::Monitor;
use super::requests::{ClosedWork, HealthMessage, Message};

/// Time for one run of `nvidia-smi`. Without persistence mode it initialises all GPUs first, and a reset of an island takes seconds a GPU.
const RESET_TIMEOUT: Duration = Duration::from_mins(5);

/// Why a remedy was not applied.
#[derive(Debug, thiserror::Error)]
enum RemedyError {
    /// `nvidia-smi` is missing, hangs, or fails, as for a GPU that a process has open.
    #[error("{0}")]
    Program(#[from] ProgramError),
    /// The driver is not reloaded.
    #[error("{0}")]
    Reload(#[from] ReloadError),
    /// The node cannot be rebooted.
    #[error("{0}; a person is to reboot the node")]
    Reboot(#[from] RebootError),
    /// The agent has no means for it.
    #[error("the agent does not apply the remedy {}; a person is to", .0.name())]
    Unsupported(Remedy),
}

impl Monitor {
    /// The next remedy that is to begin, as work for the time in which the driver is closed. Its end comes as a message.
    pub(super) fn next_remedy(&mut self) -> Option<ClosedWork> {
        if !self.has_node() {
            return None;
        }
        let (attempt, remedy, uuids) = self.health.next_remedy()?;
        let period = self.health.period()?.clone();
        let (root, node) = (self.driver_root.clone(), self.node.clone());
        let (rebooter, reloader) = (self.rebooter.clone(), self.reloader.clone());
        let stop = self.stop.clone();
        let (sender, end) = (self.requests.sender.clone(), End::Postponed);
        let end = Ending { sender, attempt, begun: Instant::now(), end };
        let what = format!("the remedy {} of {}", remedy.name(), uuids.join(", "));
        let run = Box::new(move || {
            let mut end = end;
            // The driver is closed by now, which may have taken long.
            if !period.goes_on() {
                return;
            }
            let remedied = |()| End::Now(Outcome::Remedied);
            let applied = match remedy {
                Remedy::Reboot => {
                    tracing::warn!(node, gpus = ?uuids, "the node is rebooted as a remedy of its GPUs");
                    rebooter.reboot().map(|()| End::WithBoot).map_err(RemedyError::from)
                }
                Remedy::ReloadDriver => {
                    tracing::warn!(node, gpus = ?uuids, "the driver is reloaded as a remedy of its GPUs");
                    reloader.reload(&root, &stop).map(remedied).map_err(RemedyError::from)
                }
                _ => apply(&root, remedy, &uuids).map(remedied),
            };
            end.end = applied.unwrap_or_else(|error| {
                tracing::error!(node, remedy = remedy.name(), ?uuids, %error, "a remedy was not applied");
                End::Now(Outcome::Refused)
            });
        });
        // A call that hangs in the driver is what a reboot ends.
        Some(ClosedWork { what, has_to_be_closed: remedy != Remedy::Reboot, run })
    }

    /// Brings back what a reload of the driver took away whose agent died, or that could not load all again.
    pub(super) fn restore_driver(&self) {
        let node = &self.node;
        match self.reloader.restore(&self.driver_root) {
            Ok(true) => tracing::info!(node, "the driver is loaded again"),
            Ok(false) => {}
            Err(error) => tracing::error!(node, %error, "a reload of the driver is not at its end"),
        }
    }
}

/// When and how a remedy ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// It did not begin: work is left out if the driver cannot be closed.
    Postponed,
    /// It has ended.
    Now(Outcome),
    /// With the next boot, which the agent sees by its id.
    WithBoot,
}

/// The end of a remedy, which is a message.
struct Ending {
    sender: Sender<Message>,
    attempt: Attempt,
    /// Begin of this try. A postponed remedy has another one.
    begun: Instant,
    end: End,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let message = match self.end {
            End::Now(outcome) => {
                HealthMessage::Remedied(self.attempt, outcome, self.begun.elapsed())
            }
            End::Postponed => HealthMessage::Postponed(self.attempt),
            End::WithBoot => return,
        };
        // The thread itself has the other end.
        let _ = self.sender.send(Message::Health(message));
    }
}

/// Applies a remedy to GPUs. Blocks.
fn apply(driver_root: &Path, remedy: Remedy, uuids: &[String]) -> Result<(), RemedyError> {
    let gpus = uuids.join(",");
    let arguments: &[&str] = match remedy {
        Remedy::ResetFunction => &["-r", "-i", &gpus],
        Remedy::ResetBus => &["-r", "bus", "-i", &gpus],
        other => return Err(RemedyError::Unsupported(other)),
    };
    programs::run(driver_root, "nvidia-smi", arguments, RESET_TIMEOUT)?;
    Ok(())
}

#[cfg(test)]
mod tests;
