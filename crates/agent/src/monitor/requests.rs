//! What others want of the driver's thread.

use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use octavo_gpu::{DriverError, GpuEvent};
use octavo_health::signal::{Attempt, Outcome};
use tokio::sync::{oneshot, watch};

use crate::health::{CardLook, Orders, Period, Periods, TestResult};

/// What wakes the thread.
pub(crate) enum Message {
    /// What is asked for has changed, or the agent stops.
    Look,
    /// The GPUs are to be read again.
    Reread,
    /// Something is to be done while the driver is closed.
    WhileClosed(ClosedWork),
    /// Something about the health of GPUs.
    Health(HealthMessage),
    /// An event of the driver, or why there are none any more, with the number of the subscription.
    Event(u64, Result<GpuEvent, DriverError>),
}

/// What the thread learns about the health of GPUs.
pub(crate) enum HealthMessage {
    /// This agent has the node, and with it the record, for a period. The answer comes once the record is read.
    Serve(Period, oneshot::Sender<()>),
    /// Another agent gets the node.
    Rest,
    /// What API server and persons want.
    Orders(Box<Orders>),
    /// What became of a remedy, and how long it took.
    Remedied(Attempt, Outcome, Duration),
    /// What became of tests on GPUs, each with its number and the GPU's UUID.
    Tested(Vec<(Attempt, String, TestResult)>),
    /// A remedy did not begin.
    Postponed(Attempt),
    /// What a look at the node's network cards with this number found.
    Nics(u64, io::Result<Vec<CardLook>>),
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
pub(crate) struct Waker {
    sender: Sender<Message>,
    periods: Periods,
}

impl MonitorRequests {
    /// Requests by a channel, and its other end.
    pub(crate) fn new(release: watch::Receiver<Option<bool>>) -> (Self, Waker) {
        let (sender, inbox) = channel();
        let waker = Waker { sender: sender.clone(), periods: Periods::default() };
        (Self { release, inbox, sender }, waker)
    }
}

/// Work that needs the driver closed, such as the reset of a GPU: nothing may have a GPU open that is reset.
pub(crate) struct ClosedWork {
    /// What happens, for people.
    pub(super) what: String,
    /// Whether it is left out if a call hangs in the driver, so that it cannot be closed.
    pub(super) has_to_be_closed: bool,
    /// Does it, unless its caller waits no more.
    pub(super) run: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for ClosedWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClosedWork").field(&self.what).finish()
    }
}

impl Waker {
    /// Has `work` done on the thread while this process has nothing of the driver open. The driver is opened again after it. `None`:
    /// the thread has ended. Work whose caller waits no more when its turn comes is left out.
    pub(crate) async fn while_closed<T: Send + 'static>(
        &self,
        what: String,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, done) = oneshot::channel();
        let run = Box::new(move || {
            if !answer.is_closed() {
                let _ = answer.send(work());
            }
        });
        let _ = self.sender.send(Message::WhileClosed(ClosedWork {
            what,
            has_to_be_closed: true,
            run,
        }));
        done.await.ok()
    }

    /// Sets what API server and persons want for the health of GPUs.
    pub(crate) fn set_orders(&self, orders: Orders) {
        let _ = self.sender.send(Message::Health(HealthMessage::Orders(Box::new(orders))));
    }

    /// Has the record of health read, since this agent has the node now. Waits until that is done, or the thread has ended.
    pub(crate) async fn serve(&self) {
        let (answer, done) = oneshot::channel();
        let message = HealthMessage::Serve(self.periods.begin(), answer);
        let _ = self.sender.send(Message::Health(message));
        let _ = done.await;
    }

    /// Leaves the record of health to another agent. On return nothing is written to it any more.
    pub(crate) async fn rest(&self) {
        let periods = self.periods.clone();
        // A write is waited for, as long as the disk takes. Only a panic would be an error.
        let _ = tokio::task::spawn_blocking(move || periods.end()).await;
        let _ = self.sender.send(Message::Health(HealthMessage::Rest));
    }

    /// Has the GPUs read again.
    pub(crate) fn reread(&self) {
        let _ = self.sender.send(Message::Reread);
    }

    /// Has the thread look at what is asked for, and whether it is to end.
    pub(crate) fn look(&self) {
        let _ = self.sender.send(Message::Look);
    }
}
