//! Releasing the driver: nothing of it is open while a label of the node says so.

use std::thread;
use std::time::{Duration, Instant};

use octavo_gpu::DriverHandle;

use super::{Monitor, RELEASE_CHECK_INTERVAL, now};

/// Longest time that the first opening of the driver waits for the node's settings, which may say not to.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(5);
const SETTINGS_POLL_INTERVAL: Duration = Duration::from_millis(10);

impl Monitor {
    /// Waits until the node's settings were read, for a time at most: without the API server the GPUs are read, too.
    pub(super) fn await_settings(&self) {
        let until = Instant::now() + SETTINGS_TIMEOUT;
        while self.requests.release.borrow().is_none()
            && Instant::now() < until
            && !self.stop.is_cancelled()
        {
            thread::sleep(SETTINGS_POLL_INTERVAL);
        }
    }

    /// Whether the driver is to be released.
    pub(super) fn is_to_release(&self) -> bool {
        *self.requests.release.borrow() == Some(true)
    }

    /// Tells that the driver is being released. The devices are tainted once it is closed.
    pub(super) fn begin_release(&mut self) {
        self.snapshot.error =
            Some("the driver is released, as a label of the node says".to_owned());
        self.snapshot.is_driver_released = true;
        self.snapshot.driver = DriverHandle::default();
        self.publish();
    }

    /// Waits while the driver is to be released.
    pub(super) fn stay_released(&mut self) {
        if !self.is_to_release() {
            return;
        }
        tracing::warn!(node = %self.node, "the driver is released; its devices take no new pods");
        self.begin_release();
        self.gpus.values_mut().for_each(|tracker| tracker.on_driver_released(now()));
        self.publish();
        while self.is_to_release() && !self.stop.is_cancelled() {
            thread::sleep(RELEASE_CHECK_INTERVAL);
        }
        tracing::info!(node = %self.node, "the driver is no longer released");
        self.snapshot.is_driver_released = false;
    }
}
