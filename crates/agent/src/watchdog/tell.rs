//! Tells people: events of the claim and a condition through the claims' own reports, events of the pods that
//! use the claim, and of the node. Never in the way of a look: events go to a worker, and what it has no room
//! for is lost, as events are.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use octavo_kube_io::events::{self, EventType, Events};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::brake::Brake;
use super::consumers::reserved_for;
use super::sight::Blindness;
use crate::claims::{Claims, LiveShare, ShareNews};
use crate::node::ClaimRef;

/// News that may wait; more is lost.
const QUEUE: usize = 64;
/// How long the API server may take for one.
const DEADLINE: Duration = Duration::from_secs(10);
/// Pods of a claim that are told.
const MOST_PODS: usize = 16;
/// Pids that are named in an event.
const MOST_PIDS: usize = 16;

/// Takes news; must not block.
pub(super) trait Tell: Send + Sync {
    /// Something was found of a share.
    fn share(&self, share: &LiveShare, news: ShareNews);
    /// Processes are on a GPU with shares and of no share.
    fn foreign(&self, gpu: &str, pids: &[u32]);
    /// Why what goes round the walls on a GPU is not seen has changed; `None`: it is seen.
    fn sight(&self, gpu: &str, before: Option<Blindness>, now: Option<Blindness>);
}

/// Tells the API server, through a [`Worker`].
pub(super) struct Teller {
    claims: Claims,
    queue: mpsc::Sender<Message>,
    brake: Mutex<Brake>,
}

/// Sends what a [`Teller`] was given; ends with it.
pub(super) struct Worker {
    client: Client,
    node: String,
    events: Events,
    queue: mpsc::Receiver<Message>,
}

enum Message {
    Pods { claim: ClaimRef, reason: &'static str, tone: EventType, note: String },
    Node { reason: &'static str, tone: EventType, note: String },
}

impl Teller {
    /// A teller, and the worker that somebody must run.
    pub(super) fn new(
        claims: Claims,
        client: Client,
        node: String,
        events: Events,
    ) -> (Arc<Self>, Worker) {
        let (sender, queue) = mpsc::channel(QUEUE);
        let teller = Self { claims, queue: sender, brake: Mutex::default() };
        (Arc::new(teller), Worker { client, node, events, queue })
    }

    fn send(&self, message: Message) {
        if let Err(error) = self.queue.try_send(message) {
            tracing::debug!(%error, "news of a share was dropped");
        }
    }
}

impl Tell for Teller {
    fn share(&self, share: &LiveShare, mut news: ShareNews) {
        let is_good = news.is_good();
        let kind = (share.claim.uid.clone(), share.share_id.clone(), news.reason);
        let passed = lock(&self.brake).pass(kind, Instant::now());
        if let Some(missed) = passed {
            if missed > 0 {
                let _ = write!(news.message, " ({missed} times more since this was told last)");
            }
            let (claim, reason, note) = (share.claim.clone(), news.reason, news.message.clone());
            if is_good {
                tracing::info!(%claim, share = %share.share_id, reason, "{note}");
            } else {
                tracing::warn!(%claim, share = %share.share_id, reason, "{note}");
            }
            let tone = if is_good { EventType::Normal } else { EventType::Warning };
            self.send(Message::Pods { claim, reason, tone, note });
        }
        // The condition says how it stands, also where no event is made of it.
        self.claims.tell_of_share(&share.claim.uid, &share.share_id, news, passed.is_some());
    }

    fn foreign(&self, gpu: &str, pids: &[u32]) {
        let named: Vec<_> = pids.iter().take(MOST_PIDS).map(u32::to_string).collect();
        let more = if pids.len() > MOST_PIDS { ", ..." } else { "" };
        let note = format!(
            "processes are on {gpu}, which is given in shares, and are of no container with a share: pid {}{more}; \
             what they have is missing to the shares",
            named.join(", ")
        );
        tracing::warn!("{note}");
        self.send(Message::Node { reason: "ForeignProcess", tone: EventType::Warning, note });
    }

    fn sight(&self, gpu: &str, before: Option<Blindness>, now: Option<Blindness>) {
        let (reason, tone, note) = if let Some(kind) = now {
            let hangs = kind == Blindness::Hangs;
            let reason = if hangs { "GpuDriverHangs" } else { "GpuNotWatched" };
            let words = kind.words();
            let note = format!("what goes round the walls of shares on {gpu} is not seen: {words}");
            (reason, EventType::Warning, note)
        } else {
            let hung = before == Some(Blindness::Hangs);
            let reason = if hung { "GpuDriverAnswers" } else { "GpuWatched" };
            let note = format!("what goes round the walls of shares on {gpu} is seen, again");
            (reason, EventType::Normal, note)
        };
        tracing::warn!("{note}");
        self.send(Message::Node { reason, tone, note });
    }
}

/// Whole between statements.
fn lock(brake: &Mutex<Brake>) -> MutexGuard<'_, Brake> {
    brake.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Worker {
    /// Sends until the teller is gone.
    pub(super) async fn run(mut self) {
        while let Some(message) = self.queue.recv().await {
            if timeout(DEADLINE, self.tell(message)).await.is_err() {
                tracing::debug!("telling of a share took too long");
            }
        }
    }

    async fn tell(&self, message: Message) {
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
            reserved.into_iter().filter(|consumer| consumer.resource == "pods").take(MOST_PODS);
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
