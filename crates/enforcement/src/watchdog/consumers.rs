//! The pods of a claim, from the claim's object. A process belongs to the claim if its cgroup is that of such a pod,
//! whatever it did to its mounts. Root in a container can leave its mounts, but not its cgroup.
//!
//! A claim is read when a pod appears that is not known for it, at most once per [`READ_INTERVAL`]. Results stay valid:
//! a running pod gets no further claims, and pod UIDs are never reused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use octavo_node::ClaimRef;

/// How often a claim is read at most.
const READ_INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of the API server per claim.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Queued claims. Others are requested again at the next poll.
const MAX_QUEUED: usize = 64;
/// Pods kept per claim; more than can use it.
const MAX_PODS: usize = 1024;

/// Known pods of claims.
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
    /// It does not, or this cannot be determined.
    No,
    /// The claim is being read.
    Asked,
}

/// By UID.
type Claims = BTreeMap<String, Known>;

/// Known pods of one claim, by UID.
#[derive(Debug, Default)]
struct Known {
    pods: BTreeSet<String>,
    others: BTreeSet<String>,
    /// Pods that were present when the read was requested.
    asked: BTreeSet<String>,
    read: Option<Instant>,
    /// Whether a read is requested or running, and whether it is still queued.
    is_reading: bool,
    is_waiting: bool,
    has_failed: bool,
}

impl ClaimConsumers {
    /// Starts empty. The caller must run the reader.
    pub(in crate::watchdog) fn new() -> (Self, Reader) {
        let (sender, queue) = mpsc::channel(MAX_QUEUED);
        let claims = Arc::<Mutex<Claims>>::default();
        let reader = Reader { claims: Arc::clone(&claims), queue };
        (Self { claims, queue: sender }, reader)
    }

    /// Whether a pod uses a claim. An unknown pod triggers a read. Never blocks.
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
        // The result may be too old for pods that appear during the read.
        if known.is_waiting && known.asked.len() < MAX_PODS {
            known.asked.insert(pod.to_owned());
        }
        // An unreachable server must not suppress reports of foreign processes.
        if known.has_failed { PodUse::No } else { PodUse::Asked }
    }

    /// Forgets all claims but these, by UID.
    pub(in crate::watchdog) fn keep(&self, claims: &BTreeSet<&str>) {
        lock(&self.claims).retain(|uid, _| claims.contains(&**uid));
    }
}

impl Reader {
    /// Reads claims until the requester is dropped.
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
    /// Simulates the result of a read: the claim is reserved for these pods.
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
    /// Applies the pods of the claim; `None` if the server did not answer.
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
        // A pod runs only after the claim was reserved for it, so a later read is final.
        self.others.extend(asked.into_iter().filter(|pod| !self.pods.contains(pod)));
    }
}

/// Consumers of a claim: empty if the name belongs to another claim by now; `None` if the server did not answer.
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
