//! The watches of a run: what the API server shows of GPUs, claims and pods.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod as KubePod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt as _};
use octavo_api::names::TAINT_OWNER;
use octavo_api::node_health::NodeHealth;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::judge::{Claim, DeviceName, Pod, Reported, Seen};

/// Keys of the taints of GPUs that are not well.
const TAINT_DOMAINS: [&str; 2] = ["gpu.nvidia.com/", "octavo.dev/"];
/// Effect of taints that keep pods away.
const NO_SCHEDULE: [&str; 2] = ["NoSchedule", "NoExecute"];

/// What a kind's objects show: of one that is there, and of one that is gone.
trait Shown: Sized {
    fn shown(&self) -> Vec<Seen>;
    fn gone(&self) -> Vec<Seen>;

    /// What an interrupted watch leaves unknown.
    fn unknown() -> Option<Seen> {
        None
    }
}

/// Watches begin again soon: what they miss meanwhile is judged late.
struct Soon;

impl Iterator for Soon {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(250))
    }
}

impl Backoff for Soon {
    fn reset(&mut self) {}
}

/// Starts the watches. They end with what is returned.
pub(super) fn start(client: &Client, namespace: &str, sender: &mpsc::Sender<Seen>) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    watches.spawn(follow::<NodeHealth>(Api::all(client.clone()), sender.clone()));
    watches.spawn(follow::<ResourceSlice>(Api::all(client.clone()), sender.clone()));
    // Claims of this namespace ask for whole GPUs.
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), namespace);
    watches.spawn(follow(claims, sender.clone()));
    watches.spawn(follow::<KubePod>(Api::namespaced(client.clone(), namespace), sender.clone()));
    watches
}

/// Follows a kind until the receiver is gone. A list names what an interrupted watch missed.
async fn follow<K>(api: Api<K>, sender: mpsc::Sender<Seen>)
where
    K: Shown + Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let mut events = pin!(watcher::watcher(api, watcher::Config::default()).backoff(Soon));
    let mut known: BTreeMap<String, K> = BTreeMap::new();
    let mut unlisted: BTreeSet<String> = BTreeSet::new();
    while let Some(event) = events.next().await {
        let seen = match event {
            Ok(Event::Init) => {
                unlisted = known.keys().cloned().collect();
                Vec::new()
            }
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                let uid = object.uid().unwrap_or_default();
                unlisted.remove(&uid);
                let seen = object.shown();
                known.insert(uid, object);
                seen
            }
            Ok(Event::InitDone) => {
                let gone = std::mem::take(&mut unlisted);
                gone.iter().filter_map(|uid| known.remove(uid)).flat_map(|it| it.gone()).collect()
            }
            Ok(Event::Delete(object)) => {
                known.remove(&object.uid().unwrap_or_default());
                object.gone()
            }
            Err(error) => {
                tracing::debug!(%error, "a watch is interrupted");
                K::unknown().into_iter().collect()
            }
        };
        for seen in seen {
            if sender.send(seen).await.is_err() {
                return;
            }
        }
    }
}

impl Shown for NodeHealth {
    fn shown(&self) -> Vec<Seen> {
        let node = self.name_any();
        let devices = self.status.iter().flat_map(|status| &status.devices);
        let seen = devices.map(|device| {
            let name = DeviceName { node: node.clone(), device: device.name.clone() };
            let reported = Reported {
                state: device.state.clone(),
                reason: device.reason.clone(),
                attempt: device.attempt,
                order: device.order,
                waits: device.waits.clone(),
                is_occupied: device.occupied,
            };
            Seen::Device(name, reported)
        });
        seen.collect()
    }

    /// A fence is the agent's, whatever becomes of the object.
    fn gone(&self) -> Vec<Seen> {
        Vec::new()
    }

    fn unknown() -> Option<Seen> {
        Some(Seen::ReportsUnknown)
    }
}

impl Shown for ResourceSlice {
    fn shown(&self) -> Vec<Seen> {
        let Some(node) = &self.spec.node_name else { return Vec::new() };
        let devices = self.spec.devices.iter().flatten();
        let seen = devices.map(|device| {
            let is_tainted = device.taints.iter().flatten().any(|taint| {
                // Nodes of Octavo's scheduler have a taint on all devices.
                taint.key != TAINT_OWNER
                    && TAINT_DOMAINS.iter().any(|domain| taint.key.starts_with(domain))
                    && NO_SCHEDULE.contains(&taint.effect.as_str())
            });
            Seen::Taint(DeviceName { node: node.clone(), device: device.name.clone() }, is_tainted)
        });
        seen.collect()
    }

    /// Slices are written again with other names.
    fn gone(&self) -> Vec<Seen> {
        Vec::new()
    }

    fn unknown() -> Option<Seen> {
        Some(Seen::TaintsUnknown)
    }
}

impl Shown for ResourceClaim {
    fn shown(&self) -> Vec<Seen> {
        let allocation = self.status.iter().flat_map(|status| &status.allocation);
        let devices = allocation.flat_map(|allocation| &allocation.devices);
        let results = devices.flat_map(|devices| devices.results.iter().flatten());
        let devices = results
            .map(|result| DeviceName { node: result.pool.clone(), device: result.device.clone() })
            .collect();
        let uid = self.uid().unwrap_or_default();
        vec![Seen::Claim(uid, Some(Claim { name: self.name_any(), devices }))]
    }

    fn gone(&self) -> Vec<Seen> {
        vec![Seen::Claim(self.uid().unwrap_or_default(), None)]
    }
}

impl Shown for KubePod {
    fn shown(&self) -> Vec<Seen> {
        let status = self.status.clone().unwrap_or_default();
        let claims = status.resource_claim_statuses.unwrap_or_default();
        let phase = status.phase.unwrap_or_default();
        let pod = Pod {
            name: self.name_any(),
            claims: claims.into_iter().filter_map(|claim| claim.resource_claim_name).collect(),
            is_running: phase == "Running",
            is_leaving: self.metadata.deletion_timestamp.is_some() || phase == "Failed",
            devices: BTreeSet::new(),
        };
        vec![Seen::Pod(self.uid().unwrap_or_default(), Some(pod))]
    }

    fn gone(&self) -> Vec<Seen> {
        vec![Seen::Pod(self.uid().unwrap_or_default(), None)]
    }
}
