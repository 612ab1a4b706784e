//! The task that tells: one write at a time, at its own pace, after the bindings.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use octavo_kube_io::Backoff;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Report;
use super::pace::Pace;
use super::pending::{Due, Pending};
use super::refused::Refused;
use super::write::{Reporter, write};
use crate::bind::{Api, Fault, Leadership, Load};
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
    pub reports: Reports,
    /// Ends at `stop`.
    pub task: JoinHandle<()>,
}

/// Takes reports, at once and always: what is superseded is dropped, and what is too much.
#[derive(Clone, Debug)]
pub struct Reports(Arc<Inbox>);

#[derive(Debug)]
struct Inbox {
    pending: Mutex<Pending>,
    news: Notify,
    /// Whether reports were forgotten because the lease was lost.
    has_forgotten: AtomicBool,
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

impl Reports {
    /// Takes a report in. Never waits for a write.
    pub fn send(&self, report: Report) {
        self.lock().take(report);
        self.0.news.notify_one();
    }

    /// Whether reports were forgotten since this was asked last, because the lease was lost: who leads has
    /// to tell all anew. It may be lost for so short that nobody else notices.
    pub fn take_forgotten(&self) -> bool {
        self.0.has_forgotten.swap(false, Ordering::AcqRel)
    }

    fn forget(&self) {
        self.lock().clear();
        // After it: what is told from here on stays.
        self.0.has_forgotten.store(true, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
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
        let pending = Mutex::new(Pending::new(metrics.clone()));
        let reports = Reports(Arc::new(Inbox {
            pending,
            news: Notify::new(),
            has_forgotten: AtomicBool::new(false),
        }));
        let api = Api { client, leadership, metrics, timeout: options.timeout };
        let run = run(api, options, reports.clone(), load);
        let task = tokio::spawn(async move {
            // What is not told when the program ends is told by the next leader.
            stop.run_until_cancelled(run).await;
        });
        Self { reports, task }
    }
}

async fn run(api: Api, options: StatusOptions, reports: Reports, load: Load) {
    let reporter = Reporter { controller: options.controller, instance: options.instance };
    let mut pace = Pace::new(options.per_second, options.while_busy);
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
    let mut refused = Refused::default();
    loop {
        let due = reports.lock().due();
        match due {
            Due::Now => {}
            Due::At(at) => {
                tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = reports.0.news.notified() => {}
                }
                continue;
            }
            Due::Never => {
                reports.0.news.notified().await;
                continue;
            }
        }
        tokio::time::sleep_until(pace.turn(load.orders() > 0)).await;
        // Taken after the wait: what came meanwhile is newer.
        let Some(job) = reports.lock().next() else { continue };
        let fault = match write(&api, &reporter, &job).await {
            Ok(()) => {
                backoff.reset();
                refused.forget(&job);
                continue;
            }
            Err(fault) => fault,
        };
        match fault {
            // Who leads next tells what it sees, also where that is this one again.
            Fault::NotLeader => reports.forget(),
            // A server that starts does not know yet who may do what.
            Fault::Refused(refusal) if refusal.is_of_rights && refused.may_pass(&job) => {
                reports.lock().put_back(job);
                tokio::time::sleep(backoff.next_delay()).await;
            }
            Fault::Refused(refusal) if refusal.code != 429 => {
                // Gone, another of its name, or not ours to write: it is not tried again.
                tracing::debug!(%refusal, ?job, "a status was refused");
            }
            Fault::Refused(refusal) => {
                reports.lock().put_back(job);
                let wait = refusal.wait.unwrap_or_default();
                tokio::time::sleep(backoff.next_delay().max(wait)).await;
            }
            Fault::Unknown { message, .. } => {
                tracing::debug!(message, "a status may not have been written");
                reports.lock().put_back(job);
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
    }
}
