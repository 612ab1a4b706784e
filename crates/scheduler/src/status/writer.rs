//! The task that tells: one write at a time, at its own pace, after the bindings.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use octavo_kube_io::Backoff;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::StatusUpdate;
use super::denied::DeniedStatuses;
use super::rate_limit::RateLimit;
use super::status_queue::{Due, StatusQueue};
use super::write::{EventSource, write};
use crate::bind::{Api, ApiError, Leadership, Load};
use crate::metrics::Metrics;

/// How statuses are written.
#[derive(Clone, Debug)]
pub struct StatusOptions {
    /// Most writes a second.
    pub per_second: u32,
    /// Most writes a second while bindings are being written.
    pub while_busy: u32,
    /// Longest time for one request.
    pub timeout: Duration,
    /// Who writes, as events have it (`reportingController`).
    pub controller: String,
    /// Which of them: the name of its pod or host (`reportingInstance`).
    pub instance: String,
}

/// A writer of statuses at work.
#[derive(Debug)]
pub struct StatusWriter {
    /// Takes reports.
    pub sender: StatusSender,
    /// Ends at `stop`.
    pub task: JoinHandle<()>,
}

/// Takes reports, at once and always: what is superseded is dropped, and what is too much.
#[derive(Clone, Debug)]
pub struct StatusSender(Arc<Inbox>);

#[derive(Debug)]
struct Inbox {
    pending: Mutex<StatusQueue>,
    wakeup: Notify,
    /// Whether reports were forgotten because the lease was lost.
    was_cleared: AtomicBool,
}

impl StatusOptions {
    /// The usual pace, for a program of this name.
    pub fn new(controller: &str, instance: &str) -> Self {
        Self {
            per_second: 50,
            while_busy: 10,
            timeout: Duration::from_secs(10),
            controller: controller.to_owned(),
            instance: instance.to_owned(),
        }
    }
}

impl StatusSender {
    /// Takes a report in. Never waits for a write.
    pub fn send(&self, report: StatusUpdate) {
        self.lock().take(report);
        self.0.wakeup.notify_one();
    }

    /// Whether reports were forgotten since this was asked last, because the lease was lost: who leads has
    /// to tell all anew. It may be lost for so short that nobody else notices.
    pub fn take_cleared(&self) -> bool {
        self.0.was_cleared.swap(false, Ordering::AcqRel)
    }

    fn clear(&self) {
        self.lock().clear();
        // After it: what is told from here on stays.
        self.0.was_cleared.store(true, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, StatusQueue> {
        // Reports that a panic cut short are told again when they change.
        self.0.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StatusWriter {
    /// Starts a writer that gives way to the binder of `load`.
    pub fn start(
        client: Client,
        options: StatusOptions,
        leadership: Leadership,
        load: Load,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> Self {
        let pending = Mutex::new(StatusQueue::new(metrics.clone()));
        let sender = StatusSender(Arc::new(Inbox {
            pending,
            wakeup: Notify::new(),
            was_cleared: AtomicBool::new(false),
        }));
        let api = Api { client, leadership, metrics, timeout: options.timeout };
        let run = run(api, options, sender.clone(), load);
        let task = tokio::spawn(async move {
            // What is not told when the program ends is told by the next leader.
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
        // Taken after the wait: what came meanwhile is newer.
        let Some(job) = sender.lock().next() else { continue };
        let error = match write(&api, &reporter, &job).await {
            Ok(()) => {
                backoff.reset();
                denied.record_written(&job);
                continue;
            }
            Err(error) => error,
        };
        match error {
            // Who leads next tells what it sees, also where that is this one again.
            ApiError::NotLeader => sender.clear(),
            // A server that starts does not know yet who may do what.
            ApiError::Rejected(rejection)
                if rejection.is_access_denial && denied.should_retry(&job) =>
            {
                sender.lock().put_back(job);
                tokio::time::sleep(backoff.next_delay()).await;
            }
            ApiError::Rejected(rejection) if rejection.code != 429 => {
                // Gone, another of its name, or not ours to write: it is not tried again.
                tracing::debug!(refusal = %rejection, ?job, "a status was refused");
            }
            ApiError::Rejected(rejection) => {
                sender.lock().put_back(job);
                let retry_after = rejection.retry_after.unwrap_or_default();
                tokio::time::sleep(backoff.next_delay().max(retry_after)).await;
            }
            ApiError::Indeterminate { message, .. } => {
                tracing::debug!(message, "a status may not have been written");
                sender.lock().put_back(job);
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
    }
}
