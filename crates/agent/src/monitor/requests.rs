//! What others want of the driver's thread.

use std::sync::mpsc::{Receiver, Sender, channel};

use octavo_gpu::{DriverError, GpuEvent};
use tokio::sync::watch;

/// What wakes the thread.
pub(crate) enum Message {
    /// What is asked for has changed, or the agent stops.
    Look,
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

/// Wakes the thread. One that has ended hears nothing, and has no GPUs to read.
#[derive(Clone, Debug)]
pub(crate) struct Waker(Sender<Message>);

impl MonitorRequests {
    /// Requests by a channel, and its other end.
    pub(crate) fn new(release: watch::Receiver<Option<bool>>) -> (Self, Waker) {
        let (sender, inbox) = channel();
        let waker = Waker(sender.clone());
        (Self { release, inbox, sender }, waker)
    }
}

impl Waker {
    /// Has the GPUs read again.
    pub(crate) fn reread(&self) {
        let _ = self.0.send(Message::Reread);
    }

    /// Has the thread look at what is asked for, and whether it is to end.
    pub(crate) fn look(&self) {
        let _ = self.0.send(Message::Look);
    }
}
