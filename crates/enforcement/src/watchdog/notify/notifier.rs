//! Sends findings as events and conditions: of the claim through its reporter, of its pods, and of the node.
//!
//! Polls are never delayed. A worker sends the events, and those beyond its queue are lost, as events may be.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use octavo_kube_io::events::{self, EventType, Events};
use octavo_node::ClaimRef;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::share::{ActiveShare, ShareFinding, ShareReports};
use crate::watchdog::consumers::reserved_for;
use crate::watchdog::notify::event_throttle::EventThrottle;
use crate::watchdog::visibility::BlindSpot;

/// Notice that may wait; more is lost.
const MAX_QUEUED: usize = 64;
/// Timeout of the API server per event.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pods of a claim that get events.
const MAX_PODS: usize = 16;
/// Pids that are named in an event.
const MAX_PIDS: usize = 16;

/// Takes news; must not block.
pub(in crate::watchdog) trait Notify: Send + Sync {
    /// Something was found of a share.
    fn share(&self, share: &ActiveShare, finding: ShareFinding);
    /// Foreign processes were found on a GPU with shares.
    fn foreign_processes(&self, gpu: &str, pids: &[u32]);
    /// The visibility of a GPU changed; `None`: no blind spot.
    fn visibility(&self, gpu: &str, before: Option<BlindSpot>, now: Option<BlindSpot>);
}

/// Sends findings to the API server, through a [`Worker`].
pub(in crate::watchdog) struct Notifier {
    reports: Arc<dyn ShareReports>,
    queue: mpsc::Sender<Message>,
    throttle: Mutex<EventThrottle>,
}

/// Sends the events of a [`Notifier`]. It ends with the notifier.
pub(in crate::watchdog) struct Worker {
    client: Client,
    node: String,
    events: Events,
    queue: mpsc::Receiver<Message>,
}

enum Message {
    Pods { claim: ClaimRef, reason: &'static str, tone: EventType, note: String },
    Node { reason: &'static str, tone: EventType, note: String },
}

impl Notifier {
    /// A notifier, and its worker, which the caller must run.
    pub(in crate::watchdog) fn new(
        reports: Arc<dyn ShareReports>,
        client: Client,
        node: String,
        events: Events,
    ) -> (Arc<Self>, Worker) {
        let (sender, queue) = mpsc::channel(MAX_QUEUED);
        let notifier = Self { reports, queue: sender, throttle: Mutex::default() };
        (Arc::new(notifier), Worker { client, node, events, queue })
    }

    fn send(&self, message: Message) {
        if let Err(error) = self.queue.try_send(message) {
            tracing::debug!(%error, "news of a share was dropped");
        }
    }
}

impl Notify for Notifier {
    fn share(&self, share: &ActiveShare, mut finding: ShareFinding) {
        let is_good = finding.is_good();
        let kind = (share.claim.uid.clone(), share.share_id.clone(), finding.reason);
        let passed = lock(&self.throttle).admit(kind, Instant::now());
        if let Some(missed) = passed {
            if missed > 0 {
                let _ = write!(finding.message, " ({missed} more times since the last report)");
            }
            let (claim, reason, note) =
                (share.claim.clone(), finding.reason, finding.message.clone());
            if is_good {
                tracing::info!(%claim, share = %share.share_id, reason, "{note}");
            } else {
                tracing::warn!(%claim, share = %share.share_id, reason, "{note}");
            }
            let tone = if is_good { EventType::Normal } else { EventType::Warning };
            self.send(Message::Pods { claim, reason, tone, note });
        }
        // The condition is updated even if the event is suppressed.
        self.reports.report_share(&share.claim.uid, &share.share_id, finding, passed.is_some());
    }

    fn foreign_processes(&self, gpu: &str, pids: &[u32]) {
        let named: Vec<_> = pids.iter().take(MAX_PIDS).map(u32::to_string).collect();
        let more = if pids.len() > MAX_PIDS { ", ..." } else { "" };
        let note = format!(
            "foreign processes use {gpu}, which is allocated in shares: pid {}{more}; their memory is missing \
             to the shares, so end them or move them to a pod with a share",
            named.join(", ")
        );
        tracing::warn!("{note}");
        self.send(Message::Node { reason: "ForeignProcess", tone: EventType::Warning, note });
    }

    fn visibility(&self, gpu: &str, before: Option<BlindSpot>, now: Option<BlindSpot>) {
        let (reason, tone, note) = if let Some(kind) = now {
            let hangs = kind == BlindSpot::DriverHangs;
            let reason = if hangs { "GpuDriverHangs" } else { "GpuNotWatched" };
            let words = kind.explanation();
            let note = format!(
                "allocations that bypass the shares' limits on {gpu} are not detected: {words}"
            );
            (reason, EventType::Warning, note)
        } else {
            let hung = before == Some(BlindSpot::DriverHangs);
            let reason = if hung { "GpuDriverAnswers" } else { "GpuWatched" };
            let note =
                format!("allocations that bypass the shares' limits on {gpu} are detected again");
            (reason, EventType::Normal, note)
        };
        tracing::warn!("{note}");
        self.send(Message::Node { reason, tone, note });
    }
}

/// Whole between statements.
fn lock(throttle: &Mutex<EventThrottle>) -> MutexGuard<'_, EventThrottle> {
    throttle.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Worker {
    /// Sends until the teller is gone.
    pub(in crate::watchdog) async fn run(mut self) {
        while let Some(message) = self.queue.recv().await {
            if timeout(TIMEOUT, self.send_events(message)).await.is_err() {
                tracing::debug!("telling of a share took too long");
            }
        }
    }

    async fn send_events(&self, message: Message) {
        match message {
            Message::Node { reason, tone, note } => {
                let node = events::node(&self.node);
                self.events.record(&node, tone, reason, "Watch", &note).await;
            }
            Message::Pods { claim, reason, tone, note } => {
                for pod in self.pods(&claim).await {
                    self.events.record(&pod, tone, reason, "Watch", &note).await;
                }
            }
        }
    }

    /// The pods for which a claim is reserved.
    async fn pods(&self, claim: &ClaimRef) -> Vec<ObjectReference> {
        let reserved = reserved_for(&self.client, claim).await.unwrap_or_default();
        let pods =
            reserved.into_iter().filter(|consumer| consumer.resource == "pods").take(MAX_PODS);
        let pods = pods.map(|consumer| ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(claim.namespace.clone()),
            name: Some(consumer.name),
            uid: Some(consumer.uid),
            ..ObjectReference::default()
        });
        pods.collect()
    }
}

#[cfg(test)]
mod tests;
