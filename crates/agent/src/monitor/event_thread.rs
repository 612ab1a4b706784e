//! The thread that waits for a driver's events, so that the monitor's own thread is free for requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use octavo_gpu::{Driver, DriverError, EventStream, GpuEvent};

use super::no_events::NoEvents;
use super::requests::{ClosedWork, HealthMessage, Message};

/// Longest wait in the driver: an ended thread is gone after it.
const WAIT: Duration = Duration::from_millis(500);
/// Stack size of the thread.
const STACK_BYTES: usize = 256 * 1024;

/// Subscriptions to a driver's events. The newest is listened to. Earlier ones end by themselves, and all are waited for in the end.
pub(super) struct Subscriptions<'a> {
    sender: &'a Sender<Message>,
    number: u64,
    unmonitored: Vec<String>,
    threads: Vec<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl<'a> Subscriptions<'a> {
    /// Without a subscription yet.
    pub(super) fn new(sender: &'a Sender<Message>) -> Self {
        Self { sender, number: 0, unmonitored: Vec::new(), threads: Vec::new() }
    }

    /// Listens to the driver's events from now on. A driver without events has none for ever; `known` are its GPUs.
    pub(super) fn renew<'b>(
        &mut self,
        driver: &dyn Driver,
        known: impl IntoIterator<Item = &'b String>,
    ) -> Result<(), DriverError> {
        self.end();
        self.threads.retain(|(_, thread)| !thread.is_finished());
        let stream: Box<dyn EventStream> = match driver.events() {
            Err(DriverError::NotSupported { .. } | DriverError::Missing { .. }) => {
                tracing::warn!("the driver tells no events: GPUs are only polled");
                Box::new(NoEvents { deaf: known.into_iter().cloned().collect() })
            }
            stream => stream?,
        };
        self.number += 1;
        self.unmonitored = stream.unmonitored().to_vec();
        let (number, sender, ended) =
            (self.number, self.sender.clone(), Arc::new(AtomicBool::new(false)));
        let has_ended = Arc::clone(&ended);
        let thread = thread::Builder::new()
            .name("gpu-events".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || forward(stream, number, &sender, &has_ended));
        let thread = thread.map_err(|_| DriverError::NotSupported { call: "thread::spawn" })?;
        self.threads.push((ended, thread));
        Ok(())
    }

    /// UUIDs of GPUs whose events the driver does not report.
    pub(super) fn unmonitored(&self) -> &[String] {
        &self.unmonitored
    }

    /// Waits for the next event or request; `None` after the time.
    pub(super) fn wait(
        &self,
        inbox: &Receiver<Message>,
        timeout: Duration,
    ) -> Result<Option<Wakeup>, DriverError> {
        match inbox.recv_timeout(timeout) {
            // An event is none the less one if a newer subscription has begun meanwhile.
            Ok(Message::Event(_, Ok(event))) => Ok(Some(Wakeup::Event(event))),
            Ok(Message::Event(number, Err(error))) if number == self.number => Err(error),
            Ok(Message::Reread) => Ok(Some(Wakeup::Reread)),
            Ok(Message::WhileClosed(work)) => Ok(Some(Wakeup::WhileClosed(work))),
            Ok(Message::Health(message)) => Ok(Some(Wakeup::Health(message))),
            // The end of an earlier subscription. The monitor itself holds a sender.
            Ok(Message::Look | Message::Event(..)) | Err(_) => Ok(None),
        }
    }

    fn end(&self) {
        for (ended, _) in &self.threads {
            ended.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Subscriptions<'_> {
    /// Nothing of the driver is open afterwards.
    fn drop(&mut self) {
        self.end();
        for (_, thread) in self.threads.drain(..) {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

/// What ends a wait.
pub(super) enum Wakeup {
    /// An event of a GPU.
    Event(GpuEvent),
    /// The GPUs are to be read again.
    Reread,
    /// Something is to be done while the driver is closed.
    WhileClosed(ClosedWork),
    /// Something about the health of GPUs.
    Health(HealthMessage),
}

/// Sends the events of a stream until it ends, or has failed.
fn forward(
    mut stream: Box<dyn EventStream>,
    number: u64,
    sender: &Sender<Message>,
    ended: &AtomicBool,
) {
    while !ended.load(Ordering::Relaxed) {
        let event = match stream.wait(WAIT) {
            Ok(None) => continue,
            Ok(Some(event)) => Ok(event),
            Err(error) => Err(error),
        };
        let has_failed = event.is_err();
        if sender.send(Message::Event(number, event)).is_err() || has_failed {
            return;
        }
    }
}
