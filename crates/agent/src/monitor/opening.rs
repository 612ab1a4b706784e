//! Opening the driver, and what is done with one that lists no GPU.

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use octavo_gpu::{Driver, DriverHandle, Gpu, Inventory, UnreadableGpu};

use super::health::Telemetry;
use super::requests::{ClosedWork, Message};
use super::{MAX_FAILED_READS, MAX_POLL_DELAY, Monitor, Opener, REOPEN_INTERVAL, now};

/// Attempts to open the driver after which one that a reload has not loaded is loaded again: every 30 s.
const RESTORE_EVERY: u32 = 15;
/// Longest wait for a message between two looks at whether the thread is to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

impl Monitor {
    /// Opens the driver and reads its GPUs, with retries; `None` after `stop`.
    pub(super) fn open(&mut self, open: &Opener) -> Option<Arc<dyn Driver>> {
        let mut failures = 0;
        loop {
            self.stay_released();
            if self.stop.is_cancelled() {
                return None;
            }
            let opened = open().and_then(|driver| {
                self.mode_changes = driver.mig_mode_changes();
                let inventory = Inventory::read(&*driver)?;
                Ok((driver, inventory))
            });
            match opened {
                Ok((driver, inventory)) => {
                    self.adopt(inventory);
                    self.health.driver_back();
                    self.telemetry = Telemetry::default();
                    self.health.driver_opened(now());
                    self.pause_nics();
                    self.read_telemetry(&*driver);
                    // What the kernel logged of a remedy is part of it, and no fault of the test after it.
                    self.read_log_now(&*driver);
                    self.snapshot.error = None;
                    self.snapshot.is_driver_gone = false;
                    self.snapshot.driver = DriverHandle::of(&driver);
                    self.check_modules();
                    self.backoff.reset();
                    // The record, if this agent has the node by now: devices are not shown without their fences.
                    self.take_messages(Some(&*driver));
                    self.decide(&*driver);
                    self.publish();
                    return Some(driver);
                }
                Err(error) => {
                    self.metrics.driver_failure(&self.node);
                    let error = error.to_string();
                    if self.snapshot.error.as_ref() != Some(&error) {
                        tracing::error!(node = %self.node, %error, "the GPUs cannot be read; trying again");
                    }
                    self.snapshot.error = Some(error);
                    failures += 1;
                    if failures >= MAX_FAILED_READS {
                        self.driver_gone();
                    }
                    self.take_messages(None);
                    if failures.is_multiple_of(RESTORE_EVERY) && self.has_node() {
                        self.restore_driver();
                    }
                    self.go_on_without_driver();
                    self.publish();
                    self.pause(REOPEN_INTERVAL);
                }
            }
        }
    }

    /// Takes what is wanted of the health of GPUs, as far as it is there. Other messages stay for later.
    fn take_messages(&mut self, driver: Option<&dyn Driver>) {
        let messages: Vec<Message> = self.requests.inbox.try_iter().collect();
        for message in messages {
            match message {
                Message::Health(message) => self.obey(driver, message),
                // This end is there, too.
                other => drop(self.requests.sender.send(other)),
            }
        }
    }

    /// Decides, and begins a reboot that is due, once the driver is gone. A reboot alone needs no driver, and may bring it back. Pods that
    /// hold a GPU are in its way, as ever, and other processes are not known.
    fn go_on_without_driver(&mut self) {
        if !self.snapshot.is_driver_gone {
            return;
        }
        self.health.decide(now(), |_| false);
        self.count_ends();
        if let Some(work) = self.next_remedy() {
            (work.run)();
        }
    }

    /// Whether the driver lists no GPU.
    pub(super) fn has_no_gpus(&self) -> bool {
        let inventory = self.snapshot.inventory.as_ref();
        inventory.is_some_and(|found| found.gpus.is_empty() && found.unreadable.is_empty())
    }

    /// Waits a while for GPUs: those that come later, for example from another driver, are seen by a driver that is opened again. What is
    /// recorded of GPUs is shown meanwhile, and what is wanted of them is taken.
    pub(super) fn await_gpus(&mut self, driver: &dyn Driver) -> Option<ClosedWork> {
        let until = Instant::now() + MAX_POLL_DELAY;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stop.is_cancelled() || self.is_to_release() {
                return None;
            }
            match self.requests.inbox.recv_timeout(left.min(LOOK_INTERVAL)) {
                Ok(Message::WhileClosed(work)) => return Some(work),
                Ok(Message::Health(message)) => {
                    self.obey(Some(driver), message);
                    self.decide(driver);
                    self.publish();
                }
                Ok(Message::Reread) => return None,
                // The monitor itself holds a sender.
                Ok(Message::Look | Message::Event(..))
                | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if let Some(work) = self.next_remedy() {
                return Some(work);
            }
        }
    }

    /// Applies a new inventory. GPUs that became unreadable stay, unless another GPU took their place.
    pub(super) fn adopt(&mut self, mut inventory: Inventory) {
        if let Some(known) = &self.snapshot.inventory {
            for gpu in &known.gpus {
                let is_recorded = |found: &Gpu| found.uuid == gpu.uuid || found.minor == gpu.minor;
                if !inventory.gpus.iter().any(is_recorded) {
                    inventory.unreadable.retain(|unreadable| unreadable.index != gpu.index);
                    inventory.gpus.push(gpu.clone());
                }
            }
            inventory.gpus.sort_by_key(|gpu| gpu.index);
            inventory.keep_numbers(known);
        }
        if self.snapshot.inventory.as_deref() == Some(&inventory) {
            return;
        }
        for UnreadableGpu { index, error } in &inventory.unreadable {
            tracing::error!(node = %self.node, index, %error, "a GPU cannot be read; the others are served");
        }
        self.health.set_gpus(&inventory, now());
        self.metrics.gpus(&self.node, &inventory);
        self.snapshot.inventory = Some(Arc::new(inventory));
    }
}

#[cfg(test)]
mod tests;
