//! Which pods use a claim, by what its object says: a process whose cgroup is of such a pod is the claim's,
//! whatever became of the mounts that it sees. A process that has a container's root may leave all of them;
//! its cgroup it cannot leave.
//!
//! A claim is read when a pod appears of which it is not known, and not more often than every [`READ_INTERVAL`]. What
//! is known stays: neither does a pod that runs get another claim, nor is its UID ever another's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::node::ClaimRef;

/// How often a claim is read at most.
const READ_INTERVAL: Duration = Duration::from_secs(2);
/// How long the API server may take for one.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Claims that may wait to be read; others are asked for again at the next look.
const MAX_QUEUED: usize = 64;
/// Pods that are remembered of a claim: more than can use it.
const MAX_PODS: usize = 1024;

/// What is known of the pods of claims.
#[derive(Debug)]
pub(in crate::watchdog) struct ClaimConsumers {
    claims: Arc<Mutex<Claims>>,
    queue: mpsc::Sender<ClaimRef>,
}

/// Reads claims for [`ClaimConsumers`]; ends with them.
pub(in crate::watchdog) struct Reader {
    claims: Arc<Mutex<Claims>>,
    queue: mpsc::Receiver<ClaimRef>,
}

/// Whether a pod uses a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::watchdog) enum PodUse {
    /// It does.
    Yes,
    /// It does not, or nobody can tell.
    No,
    /// The claim is being read.
    Asked,
}

/// By UID.
type Claims = BTreeMap<String, Known>;

/// What is known of one claim's pods, all by UID.
#[derive(Debug, Default)]
struct Known {
    pods: BTreeSet<String>,
    others: BTreeSet<String>,
    /// Pods that were there when the claim began to be read.
    asked: BTreeSet<String>,
    read: Option<Instant>,
    /// Whether it is to be read and not yet answered, and whether that has not begun.
    is_reading: bool,
    is_waiting: bool,
    has_failed: bool,
}

impl ClaimConsumers {
    /// Nothing is known yet; somebody must run the reader.
    pub(in crate::watchdog) fn new() -> (Self, Reader) {
        let (sender, queue) = mpsc::channel(MAX_QUEUED);
        let claims = Arc::<Mutex<Claims>>::default();
        let reader = Reader { claims: Arc::clone(&claims), queue };
        (Self { claims, queue: sender }, reader)
    }

    /// Whether a pod uses a claim; where that is not known it is found out. Never waits.
    pub(in crate::watchdog) fn pod_use(&self, claim: &ClaimRef, pod: &str) -> PodUse {
        let mut claims = lock(&self.claims);
        let known = claims.entry(claim.uid.clone()).or_default();
        if known.pods.contains(pod) {
            return PodUse::Yes;
        }
        if known.others.contains(pod) {
            return PodUse::No;
        }
        let is_due =
            !known.is_reading && known.read.is_none_or(|read| read.elapsed() >= READ_INTERVAL);
        if is_due && self.queue.try_send(claim.clone()).is_ok() {
            (known.read, known.is_reading, known.is_waiting) = (Some(Instant::now()), true, true);
        }
        // For pods that appear while it is read the answer may be too old.
        if known.is_waiting && known.asked.len() < MAX_PODS {
            known.asked.insert(pod.to_owned());
        }
        // A server that does not answer keeps nobody from being told of who is on the GPU.
        if known.has_failed { PodUse::No } else { PodUse::Asked }
    }

    /// Forgets all claims but these, by UID.
    pub(in crate::watchdog) fn keep(&self, claims: &BTreeSet<&str>) {
        lock(&self.claims).retain(|uid, _| claims.contains(&**uid));
    }
}

impl Reader {
    /// Reads until nobody asks any more.
    pub(in crate::watchdog) async fn run(mut self, client: Client) {
        while let Some(claim) = self.queue.recv().await {
            if let Some(known) = lock(&self.claims).get_mut(&claim.uid) {
                known.is_waiting = false;
            }
            let read = timeout(TIMEOUT, reserved_for(&client, &claim)).await;
            let pods = read.ok().flatten();
            if let Some(known) = lock(&self.claims).get_mut(&claim.uid) {
                known.answered(pods);
            }
        }
    }
}

#[cfg(test)]
impl Reader {
    /// Takes it that a claim, by UID, was read and is reserved for these pods.
    pub(in crate::watchdog) fn answer(&self, claim: &str, pods: &[&str]) {
        let consumer = |uid: &&str| ResourceClaimConsumerReference {
            resource: "pods".to_owned(),
            uid: (*uid).to_owned(),
            ..ResourceClaimConsumerReference::default()
        };
        let mut claims = lock(&self.claims);
        let known = claims.entry(claim.to_owned()).or_default();
        known.answered(Some(pods.iter().map(consumer).collect()));
    }
}

impl Known {
    /// Takes which pods use the claim; `None` where the server did not say.
    fn answered(&mut self, pods: Option<Vec<ResourceClaimConsumerReference>>) {
        (self.is_reading, self.is_waiting, self.has_failed) = (false, false, pods.is_none());
        let asked = std::mem::take(&mut self.asked);
        let Some(pods) = pods else { return };
        let pods = pods.into_iter().filter(|consumer| consumer.resource == "pods");
        let quota = MAX_PODS.saturating_sub(self.pods.len());
        self.pods.extend(pods.map(|pod| pod.uid).take(quota));
        if self.others.len() >= MAX_PODS {
            self.others.clear();
        }
        // A pod runs only after the claim was reserved for it, so what is read after it was seen is final.
        self.others.extend(asked.into_iter().filter(|pod| !self.pods.contains(pod)));
    }
}

/// Whom a claim is reserved for: none where it is another claim by now; `None` where the server did not say.
pub(in crate::watchdog) async fn reserved_for(
    client: &Client,
    claim: &ClaimRef,
) -> Option<Vec<ResourceClaimConsumerReference>> {
    let api = Api::<ResourceClaim>::namespaced(client.clone(), &claim.namespace);
    let object = match api.get_opt(&claim.name).await {
        Ok(object) => object,
        Err(error) => {
            tracing::debug!(%claim, %error, "cannot read which pods use a claim");
            return None;
        }
    };
    let object = object.filter(|object| object.metadata.uid.as_ref() == Some(&claim.uid));
    let status = object.and_then(|object| object.status).unwrap_or_default();
    Some(status.reserved_for.unwrap_or_default())
}

/// Whole between statements.
fn lock(claims: &Mutex<Claims>) -> MutexGuard<'_, Claims> {
    claims.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
