//! The cluster as observed by watches: when pods were bound or removed, and why they wait.
//!
//! Every contender has the same watches. Only the fields below are decoded.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::api::{Api, Kind};
use watched::{Claim, Group, Pod};

mod watched;

/// Observes the cluster until it is dropped.
pub(super) struct Observer {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

struct Shared {
    seen: Mutex<ObservedState>,
    changed: Notify,
}

/// The observed state.
#[derive(Default)]
pub(super) struct ObservedState {
    /// Existing pods.
    pub(super) pods: HashMap<String, ObservedPod>,
    /// How many pods of a set are bound. A pod's set is its name without the number.
    bound: BTreeMap<String, usize>,
    /// Pods that got a deletion timestamp, in order, with the time.
    pub(super) ending: Vec<(String, Instant)>,
    /// Removed pods in order, with the time.
    pub(super) gone: Vec<(String, Instant)>,
    /// Claims by the pod that they were made for.
    pub(super) claims: HashMap<String, ObservedClaim>,
    /// Why gangs wait, by name.
    pub(super) groups: BTreeMap<String, ObservedReason>,
}

/// A pod.
pub(super) struct ObservedPod {
    pub(super) uid: String,
    /// Whether its phase is `Running`.
    pub(super) is_running: bool,
    /// When it was first seen with a deletion timestamp.
    pub(super) ending: Option<Instant>,
    /// Its node.
    pub(super) node: Option<String>,
    /// When it was first seen with a node.
    pub(super) bound: Option<Instant>,
    /// Why it waits.
    pub(super) waiting: Option<ObservedReason>,
}

/// A claim.
pub(super) struct ObservedClaim {
    pub(super) name: String,
    pub(super) uid: String,
}

/// A reason, and when it was seen.
#[derive(Clone, Debug)]
pub(super) struct ObservedReason {
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) at: Instant,
}

/// A change reported by a watch.
enum Change<T> {
    Replace(Vec<T>),
    Upsert(T),
    Delete(T),
}

impl ObservedState {
    /// How many pods of a set are bound.
    pub(super) fn bound(&self, set: &str) -> usize {
        self.bound.get(set).copied().unwrap_or_default()
    }

    /// When the last pod of a set was bound.
    pub(super) fn last_bound(&self, set: &str) -> Option<Instant> {
        self.of(set).filter_map(|pod| pod.bound).max()
    }

    /// The pods of a set.
    pub(super) fn of(&self, set: &str) -> impl Iterator<Item = &ObservedPod> {
        self.pods.iter().filter(move |(name, _)| set_of(name) == set).map(|(_, pod)| pod)
    }

    fn pod(&mut self, change: Change<Pod>) {
        match change {
            Change::Upsert(pod) => self.set_pod(pod),
            Change::Delete(pod) => self.remove_pod(&pod.metadata.name),
            Change::Replace(pods) => {
                let listed: HashSet<&str> =
                    pods.iter().map(|pod| pod.metadata.name.as_str()).collect();
                let is_lost = |name: &&String| !listed.contains(name.as_str());
                let lost: Vec<String> = self.pods.keys().filter(is_lost).cloned().collect();
                for name in lost {
                    self.remove_pod(&name);
                }
                for pod in pods {
                    self.set_pod(pod);
                }
            }
        }
    }

    fn set_pod(&mut self, pod: Pod) {
        let now = Instant::now();
        // A new pod of the same name; the removal of the old one was not observed.
        if self
            .pods
            .get(&pod.metadata.name)
            .is_some_and(|pod_seen| pod_seen.uid != pod.metadata.uid)
        {
            self.remove_pod(&pod.metadata.name);
        }
        let waiting = pod.waiting_reason();
        let (is_running, is_ending) = (pod.is_running(), pod.metadata.deletion_timestamp.is_some());
        let name = pod.metadata.name;
        let set = set_of(&name).to_owned();
        let pod_seen = self.pods.entry(name.clone()).or_insert_with(|| ObservedPod {
            uid: pod.metadata.uid,
            is_running: false,
            ending: None,
            node: None,
            bound: None,
            waiting: None,
        });
        if let Some((reason, message)) = waiting
            && pod_seen.waiting.is_none()
        {
            pod_seen.waiting = Some(ObservedReason { reason, message, at: now });
        }
        pod_seen.is_running = is_running;
        if is_ending && pod_seen.ending.is_none() {
            pod_seen.ending = Some(now);
            self.ending.push((name, now));
        }
        if pod.spec.node_name.is_some() && pod_seen.bound.is_none() {
            pod_seen.node = pod.spec.node_name;
            pod_seen.bound = Some(now);
            *self.bound.entry(set).or_default() += 1;
        }
    }

    fn remove_pod(&mut self, name: &str) {
        let Some(pod) = self.pods.remove(name) else { return };
        if pod.bound.is_some()
            && let Some(count) = self.bound.get_mut(set_of(name))
        {
            *count -= 1;
        }
        self.gone.push((name.to_owned(), Instant::now()));
    }

    fn claim(&mut self, change: Change<Claim>) {
        match change {
            Change::Upsert(claim) => self.set_claim(claim),
            Change::Delete(claim) => {
                self.claims.retain(|_, claim_seen| claim_seen.uid != claim.metadata.uid);
            }
            Change::Replace(claims) => {
                self.claims.clear();
                for claim in claims {
                    self.set_claim(claim);
                }
            }
        }
    }

    fn set_claim(&mut self, claim: Claim) {
        let Some(owner) = claim.metadata.owner_references.into_iter().next() else { return };
        let seen = ObservedClaim { name: claim.metadata.name, uid: claim.metadata.uid };
        self.claims.insert(owner.name, seen);
    }

    fn group(&mut self, change: Change<Group>) {
        let groups = match change {
            Change::Upsert(group) => vec![group],
            Change::Replace(groups) => groups,
            Change::Delete(group) => {
                self.groups.remove(&group.metadata.name);
                return;
            }
        };
        for group in groups {
            if let Some((reason, message)) = group.waiting_reason() {
                let waiting = ObservedReason { reason, message, at: Instant::now() };
                self.groups.entry(group.metadata.name).or_insert(waiting);
            }
        }
    }
}

impl Observer {
    /// Starts the watches: pods always, claims and gangs if requested.
    pub(super) async fn start(api: &Api, claims: bool, groups: bool) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared { seen: Mutex::default(), changed: Notify::new() });
        let mut tasks = vec![watched::follow(api, Kind::Pods, &shared, ObservedState::pod).await?];
        if claims {
            tasks.push(watched::follow(api, Kind::Claims, &shared, ObservedState::claim).await?);
        }
        if groups {
            tasks.push(watched::follow(api, Kind::Groups, &shared, ObservedState::group).await?);
        }
        Ok(Self { shared, tasks })
    }

    /// The state observed so far.
    pub(super) fn seen(&self) -> MutexGuard<'_, ObservedState> {
        self.shared.lock()
    }

    /// Waits until the observed state has the wanted property.
    pub(super) async fn until<T>(
        &self,
        what: &str,
        timeout: Duration,
        mut wanted: impl FnMut(&ObservedState) -> Option<T>,
    ) -> anyhow::Result<T> {
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            let changed = self.shared.changed.notified();
            if let Some(found) = wanted(&self.seen()) {
                return Ok(found);
            }
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                bail!("not within {} s: {what}; {}", timeout.as_secs(), self.progress_summary());
            }
        }
    }

    /// Waits until `count` pods of a set are bound. Returns when the last was bound.
    pub(super) async fn all_bound(
        &self,
        set: &str,
        count: usize,
        timeout: Duration,
    ) -> anyhow::Result<Instant> {
        let what = format!("{count} pods of {set} bound");
        self.until(&what, timeout, |seen| (seen.bound(set) >= count).then_some(())).await?;
        self.seen().last_bound(set).context("no pod is bound")
    }

    fn progress_summary(&self) -> String {
        let seen = self.seen();
        let mut unbound = seen.pods.values().filter(|pod| pod.bound.is_none());
        let waiting = unbound.find_map(|pod| pod.waiting.as_ref());
        let waiting =
            waiting.map(|waiting| format!(", one waits: {}: {}", waiting.reason, waiting.message));
        format!(
            "bound so far: {:?} of {} pods{}",
            seen.bound,
            seen.pods.len(),
            waiting.unwrap_or_default()
        )
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, ObservedState> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The set of a pod: its name without the number at the end.
pub(super) fn set_of(name: &str) -> &str {
    name.rsplit_once('-').map_or(name, |(set, _)| set)
}

#[cfg(test)]
mod tests;
