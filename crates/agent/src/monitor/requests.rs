//! What others want of the driver's thread.

use std::sync::mpsc::{Receiver, Sender, channel};

use octavo_gpu::{DriverError, GpuEvent};
use tokio::sync::watch;

/// What wakes the thread.
pub(crate) enum Message {
    /// The GPUs are to be read again.
    Reread,
    /// An event of the driver, or why there are none any more, with the number of the subscription.
    Event(u64, Result<GpuEvent, DriverError>),
}

/// What the thread is asked for.
pub(crate) struct MonitorRequests {
    /// Whether the driver is to be released; `None` until the node's settings were read.
    pub(crate) release: watch::Receiver<Option<bool>>,
    /// What wakes the thread, and the other end of it.
    pub(super) inbox: Receiver<Message>,
    pub(super) sender: Sender<Message>,
}

/// Asks the thread to read the GPUs again, soon.
#[derive(Clone, Debug)]
pub(crate) struct RereadRequest(Sender<Message>);

impl MonitorRequests {
    /// Requests by a channel, and the end with which the GPUs are read again.
    pub(crate) fn new(release: watch::Receiver<Option<bool>>) -> (Self, RereadRequest) {
        let (sender, inbox) = channel();
        let reread = RereadRequest(sender.clone());
        (Self { release, inbox, sender }, reread)
    }
}

impl RereadRequest {
    /// Asks for it. A thread that has ended has no GPUs to read.
    pub(crate) fn send(&self) {
        let _ = self.0.send(Message::Reread);
    }
}
