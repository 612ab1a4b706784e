//! What watches show of GPUs, and when.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::bail;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use octavo_api::NodeHealth;
use octavo_api::names::{TAINT_HEALTH, TAINT_RECOVERY_ACTION, TAINT_XID};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// What a watch showed.
enum Seen {
    Health(Box<NodeHealth>),
    Slice(Box<ResourceSlice>),
    Pod(Box<Pod>),
}

/// A GPU: its node and its name in slices.
pub(super) type Name = (String, String);

/// What is known of the cluster.
pub(super) struct Observer {
    seen: mpsc::Receiver<Seen>,
    _watches: JoinSet<()>,
    /// GPUs out of service by their taints, and when that was seen first. A look at the driver may find
    /// its advice before the XID comes, and one that fails a third time is retired.
    pub(super) tainted: BTreeMap<Name, Instant>,
    /// When GPUs were seen first with such a taint, also those that are back.
    pub(super) first_taints: BTreeMap<Name, Instant>,
    /// States and attempts of GPUs.
    pub(super) states: BTreeMap<Name, (String, i64)>,
    /// GPUs of which a remedy runs or ran, and when that was seen first.
    pub(super) remedied: BTreeMap<Name, Instant>,
    /// Pods that run, by name, with their nodes.
    pub(super) running: BTreeMap<String, String>,
}

impl Observer {
    /// Starts to watch. Pods are those of a namespace.
    pub(super) fn start(client: &Client, namespace: &str) -> Self {
        let (sender, seen) = mpsc::channel(4_096);
        let mut watches = JoinSet::new();
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        watches.spawn(follow(Api::all(client.clone()), sender.clone(), |it| {
            Seen::Health(Box::new(it))
        }));
        watches.spawn(follow(Api::all(client.clone()), sender.clone(), |it| {
            Seen::Slice(Box::new(it))
        }));
        watches.spawn(follow(pods, sender, |it| Seen::Pod(Box::new(it))));
        Self {
            seen,
            _watches: watches,
            tainted: BTreeMap::new(),
            first_taints: BTreeMap::new(),
            states: BTreeMap::new(),
            remedied: BTreeMap::new(),
            running: BTreeMap::new(),
        }
    }

    /// Takes what is seen until something holds.
    pub(super) async fn until(
        &mut self,
        what: &str,
        timeout: Duration,
        holds: impl Fn(&Self) -> bool,
    ) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + timeout;
        while !holds(self) {
            match tokio::time::timeout_at(deadline, self.seen.recv()).await {
                Ok(Some(seen)) => self.take(seen),
                _ => bail!("not within {} s: {what}; {}", timeout.as_secs(), self.summary()),
            }
        }
        Ok(())
    }

    /// GPUs by state, taints and running pods, for an error.
    fn summary(&self) -> String {
        let mut states: BTreeMap<&str, usize> = BTreeMap::new();
        for (state, _) in self.states.values() {
            *states.entry(state).or_default() += 1;
        }
        let (taints, pods) = (self.tainted.len(), self.running.len());
        format!("GPUs by state: {states:?}, with a taint: {taints}, running pods: {pods}")
    }

    /// Forgets when things were seen.
    pub(super) fn forget_times(&mut self) {
        self.remedied.clear();
        self.tainted.clear();
        self.first_taints.clear();
    }

    fn take(&mut self, seen: Seen) {
        let now = Instant::now();
        match seen {
            Seen::Health(health) => {
                let node = health.metadata.name.unwrap_or_default();
                for device in health.status.into_iter().flat_map(|status| status.devices) {
                    let name = (node.clone(), device.name);
                    let old =
                        self.states.insert(name.clone(), (device.state.clone(), device.attempt));
                    let is_later = old.is_some_and(|(_, attempt)| device.attempt > attempt);
                    if device.state == "Resetting" || is_later {
                        self.remedied.entry(name).or_insert(now);
                    }
                }
            }
            Seen::Slice(slice) => {
                let Some(node) = slice.spec.node_name else { return };
                for device in slice.spec.devices.into_iter().flatten() {
                    let mut taints = device.taints.into_iter().flatten();
                    let name = (node.clone(), device.name);
                    let keys = [TAINT_XID, TAINT_RECOVERY_ACTION, TAINT_HEALTH];
                    if taints
                        .any(|taint| keys.contains(&&*taint.key) && taint.effect == "NoSchedule")
                    {
                        self.first_taints.entry(name.clone()).or_insert(now);
                        self.tainted.entry(name).or_insert(now);
                    } else {
                        self.tainted.remove(&name);
                    }
                }
            }
            Seen::Pod(pod) => {
                let name = pod.metadata.name.unwrap_or_default();
                let phase = pod.status.and_then(|status| status.phase);
                let runs = phase.as_deref() == Some("Running")
                    && pod.metadata.deletion_timestamp.is_none();
                let node = pod.spec.and_then(|spec| spec.node_name);
                match node.filter(|_| runs) {
                    Some(node) => self.running.insert(name, node),
                    None => self.running.remove(&name),
                };
            }
        }
    }
}

/// Sends objects as they are written. A deleted one comes as it was last.
async fn follow<K>(api: Api<K>, sender: mpsc::Sender<Seen>, seen: fn(K) -> Seen)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut events = pin!(watcher::watcher(api, watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        if let Ok(Event::Apply(object) | Event::InitApply(object)) = event
            && sender.send(seen(object)).await.is_err()
        {
            return;
        }
    }
}
