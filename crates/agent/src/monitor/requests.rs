//! What others want of the driver's thread.

use tokio::sync::watch;

/// What the thread is asked for.
#[derive(Clone)]
pub(crate) struct MonitorRequests {
    /// Whether the driver is to be released; `None` until the node's settings were read.
    pub(crate) release: watch::Receiver<Option<bool>>,
    /// Grows when the GPUs are to be read again.
    pub(crate) rereads: watch::Receiver<u64>,
}
