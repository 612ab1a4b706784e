//! The task that writes status updates, one at a time, rate-limited, after the bindings.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use octavo_kube_io::Backoff;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::denied::DeniedStatuses;
use super::rate_limit::RateLimit;
use super::status_queue::{Due, StatusQueue};
use super::write::{EventSource, write};
use super::{ScheduledEvents, StatusUpdate};
use crate::bind::{Api, ApiError, Leadership, Load};
use crate::metrics::Metrics;

/// More writes a second than one after another are possible.
const UNLIMITED: u32 = 10_000;

/// Longest wait for an overloaded server, whatever it asks for: until then no status is written.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

/// How statuses are written.
#[derive(Clone, Debug)]
pub struct StatusOptions {
    /// Most writes a second.
    pub per_second: u32,
    /// Most writes a second while bindings are being written.
    pub while_busy: u32,
    /// Timeout of one request.
    pub timeout: Duration,
    /// Which bound pods get an event.
    pub scheduled_events: ScheduledEvents,
    /// Name of the program in events (`reportingController`).
    pub controller: String,
    /// Name of its pod or host in events (`reportingInstance`).
    pub instance: String,
}

/// A running status writer.
#[derive(Debug)]
pub struct StatusWriter {
    /// Takes updates.
    pub sender: StatusSender,
    /// Ends at `stop`.
    pub task: JoinHandle<()>,
}

/// Takes updates without ever blocking. Superseded and excess updates are dropped.
#[derive(Clone, Debug)]
pub struct StatusSender(Arc<Inbox>);

#[derive(Debug)]
struct Inbox {
    pending: Mutex<StatusQueue>,
    wakeup: Notify,
    /// Whether updates were dropped because the lease was lost.
    was_cleared: AtomicBool,
}

impl StatusOptions {
    /// The default rates, for a program of this name.
    pub fn new(controller: &str, instance: &str) -> Self {
        Self {
            per_second: 50,
            while_busy: 10,
            timeout: Duration::from_secs(10),
            scheduled_events: ScheduledEvents::BestEffort,
            controller: controller.to_owned(),
            instance: instance.to_owned(),
        }
    }

    /// These options with other events of bound pods. To write one for each pod, the writer must be
    /// as fast as the bindings: writes still follow one another, but without a limit for a second.
    #[must_use]
    pub fn with_scheduled_events(self, scheduled_events: ScheduledEvents) -> Self {
        match scheduled_events {
            ScheduledEvents::BestEffort => self,
            ScheduledEvents::All => {
                Self { scheduled_events, per_second: UNLIMITED, while_busy: UNLIMITED, ..self }
            }
        }
    }
}

impl StatusSender {
    /// Queues an update. Never waits for a write.
    pub fn send(&self, report: StatusUpdate) {
        self.lock().take(report);
        self.0.wakeup.notify_one();
    }

    /// Whether updates were dropped since the last call because the lease was lost. The leader must
    /// then send all of them again. The lease may be lost so briefly that nothing else notices.
    pub fn take_cleared(&self) -> bool {
        self.0.was_cleared.swap(false, Ordering::AcqRel)
    }

    fn clear(&self) {
        self.lock().clear();
        // Set after clearing: updates sent from here on are kept.
        self.0.was_cleared.store(true, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, StatusQueue> {
        // Updates lost to a panic are sent again when they change.
        self.0.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StatusWriter {
    /// Starts a writer that yields to the binder of `load`.
    pub fn start(
        client: Client,
        options: StatusOptions,
        leadership: Leadership,
        load: Load,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> Self {
        let pending = Mutex::new(StatusQueue::new(metrics.clone(), options.scheduled_events));
        let sender = StatusSender(Arc::new(Inbox {
            pending,
            wakeup: Notify::new(),
            was_cleared: AtomicBool::new(false),
        }));
        let api = Api { client, leadership, metrics, timeout: options.timeout };
        let run = run(api, options, sender.clone(), load);
        let task = tokio::spawn(async move {
            // Updates left at shutdown are sent by the next leader.
            stop.run_until_cancelled(run).await;
        });
        Self { sender, task }
    }
}

async fn run(api: Api, options: StatusOptions, sender: StatusSender, load: Load) {
    let reporter = EventSource { controller: options.controller, instance: options.instance };
    let mut rate_limit = RateLimit::new(options.per_second, options.while_busy);
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
    let mut denied = DeniedStatuses::default();
    loop {
        let due = sender.lock().due();
        match due {
            Due::Now => {}
            Due::At(at) => {
                tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = sender.0.wakeup.notified() => {}
                }
                continue;
            }
            Due::Never => {
                sender.0.wakeup.notified().await;
                continue;
            }
        }
        tokio::time::sleep_until(rate_limit.reserve(load.ops() > 0)).await;
        // Taken after the wait, to get the newest state.
        let Some(job) = sender.lock().next() else { continue };
        let error = match write(&api, &reporter, &job).await {
            Ok(()) => {
                backoff.reset();
                denied.record_written(&job);
                continue;
            }
            Err(error) => error,
        };
        let retry_after = match error {
            // The next leader sends what it observes, even if it is this process again.
            ApiError::NotLeader => {
                sender.clear();
                continue;
            }
            // A starting server denies requests until it has its RBAC data.
            ApiError::Rejected(rejection)
                if rejection.code == 429
                    || (rejection.is_access_denial && denied.should_retry(&job)) =>
            {
                rejection.retry_after.unwrap_or_default().min(MAX_RETRY_AFTER)
            }
            ApiError::Rejected(rejection) => {
                // The object is gone, replaced, or not writable by us: no retry.
                tracing::debug!(refusal = %rejection, ?job, "a status was rejected");
                continue;
            }
            ApiError::Indeterminate { message, .. } => {
                tracing::debug!(message, "a status may not have been written");
                Duration::ZERO
            }
        };
        sender.lock().put_back(job);
        tokio::time::sleep(backoff.next_delay().max(retry_after)).await;
    }
}
