//! The events of a driver that has none.

use std::thread;
use std::time::Duration;

use octavo_gpu::{DriverError, EventStream, GpuEvent};

/// Stands in for events where a driver has none.
pub(super) struct NoEvents {
    /// UUIDs of the GPUs.
    pub(super) deaf: Vec<String>,
}

impl EventStream for NoEvents {
    fn wait(&mut self, timeout: Duration) -> Result<Option<GpuEvent>, DriverError> {
        thread::sleep(timeout);
        Ok(None)
    }

    fn unmonitored(&self) -> &[String] {
        &self.deaf
    }
}
