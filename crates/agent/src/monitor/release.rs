//! Closing the driver, and releasing it: nothing of it is open while a label of the node says so.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use octavo_gpu::{Driver, DriverHandle};

use super::{Monitor, RELEASE_CHECK_INTERVAL, now};

/// Longest time that the first opening of the driver waits for the node's settings, which may say not to.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(5);
const SETTINGS_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Timeout for running calls to a driver that is being closed, and its poll interval. Hanging calls must not leave the
/// node without a driver.
const DRIVER_CLOSE_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 30 });
const DRIVER_CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(20);

impl Monitor {
    /// Closes the driver after all calls have ended: two driver releases conflict with each other. Returns whether it is closed.
    pub(super) fn close(&self, driver: Arc<dyn Driver>) -> bool {
        let (open, until) = (Arc::downgrade(&driver), Instant::now() + DRIVER_CLOSE_TIMEOUT);
        drop(driver);
        while open.strong_count() > 0 && !self.stop.is_cancelled() {
            if Instant::now() >= until {
                tracing::warn!(node = %self.node, "a call hangs in the old driver; the new one is opened without waiting for it");
                return false;
            }
            thread::sleep(DRIVER_CLOSE_POLL_INTERVAL);
        }
        open.strong_count() == 0
    }

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
        self.health.driver_released(now());
        self.publish();
        while self.is_to_release() && !self.stop.is_cancelled() {
            thread::sleep(RELEASE_CHECK_INTERVAL);
        }
        tracing::info!(node = %self.node, "the driver is no longer released");
        self.snapshot.is_driver_released = false;
    }
}
