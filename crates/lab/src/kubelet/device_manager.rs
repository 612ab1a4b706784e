//! Devices of plugins as counted resources, such as `nvidia.com/gpu: 1`: what the kubelet's device manager does for a node.
//!
//! ```text
//! plugin --- Register, ListAndWatch --> resources --> counts --> the Node's status
//!                                           |
//! start of a pod --> admission --> choice --+--> GetPreferredAllocation, Allocate --> allocations --> checkpoint
//!                                                                                          |            |
//! PodResources <---------------------------------------------------------------------------+        container
//! ```
//!
//! A pod's devices are recorded on disk before its containers are created, and free again once the pod has ended. Pods of a
//! node are admitted one after the other.

pub(crate) mod admission;
mod allocations;
mod checkpoint;
mod choice;
#[cfg(test)]
pub(crate) mod fake_device_plugin;
pub(crate) mod options;
mod pod_resources;
mod registration;
pub(crate) mod resources;
pub(crate) mod sockets;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{ResourceHealth, ResourceStatus};
use octavo_kubelet_api::device_plugin::v1beta1::DevicePluginOptions;
use octavo_kubelet_api::device_plugin::v1beta1::device_plugin_client::DevicePluginClient;
use tokio::sync::watch;
use tonic::transport::Channel;

use self::allocations::{Allocations, ContainerKey};
use self::options::ContainerOptions;
use self::resources::{Counts, DeviceId, Resources};
use crate::kubelet::plugins::health::Health;
use crate::kubelet::pods::worker::PodReceiver;

/// A connected plugin.
#[derive(Clone, Debug)]
struct Plugin {
    client: DevicePluginClient<Channel>,
    options: DevicePluginOptions,
}

/// The device manager of a node.
#[derive(Debug)]
pub(crate) struct DeviceManager {
    /// Folder of the plugins' sockets and of the checkpoint.
    folder: PathBuf,
    /// The socket of `PodResources`.
    pod_resources_socket: PathBuf,
    /// Folder of the pods' cgroups.
    cgroups: PathBuf,
    state: Mutex<State>,
    counts: watch::Sender<Counts>,
    /// Held while a pod is given its devices.
    admission: tokio::sync::Mutex<()>,
    /// The pods that have not ended, by UID.
    pods: Mutex<BTreeMap<String, PodReceiver>>,
}

/// What the manager knows.
#[derive(Debug, Default)]
struct State {
    resources: Resources<Plugin>,
    allocations: Allocations,
}

impl DeviceManager {
    /// The manager of the node in `folder`, with what an earlier process left. As in the kubelet, a checkpoint that cannot be
    /// read counts as none.
    pub(crate) fn open(folder: &Path) -> std::io::Result<Self> {
        let own = folder.join("kubelet/device-plugins");
        std::fs::create_dir_all(&own)?;
        let restored = checkpoint::load(&own).unwrap_or_else(|error| {
            tracing::error!(folder = %own.display(), %error, "the devices of running pods are not known");
            checkpoint::Restored::default()
        });
        let resources = Resources::known(restored.resources);
        Ok(Self {
            counts: watch::Sender::new(resources.counts()),
            state: Mutex::new(State { resources, allocations: restored.allocations }),
            folder: own,
            pod_resources_socket: folder.join("kubelet/pod-resources/kubelet.sock"),
            cgroups: folder.join("cgroup/kubepods"),
            admission: tokio::sync::Mutex::default(),
            pods: Mutex::default(),
        })
    }

    /// Number of devices of each resource. Changes as soon as a plugin's list does.
    pub(crate) fn counts(&self) -> watch::Receiver<Counts> {
        self.counts.subscribe()
    }

    /// What a container gets for its devices.
    pub(crate) fn options(&self, pod: &str, container: &str) -> ContainerOptions {
        let state = self.state();
        let devices = state.allocations.of_container(ContainerKey { pod, container });
        devices.map(ContainerOptions::of).unwrap_or_default()
    }

    /// Whether a pod has devices.
    pub(crate) fn has_devices(&self, pod: &str) -> bool {
        self.state().allocations.has_pod(pod)
    }

    /// Health of a pod's devices, by container name. As in the kubelet, a device that is not listed counts as healthy.
    pub(crate) fn health(&self, pod: &str) -> BTreeMap<String, Vec<ResourceStatus>> {
        let state = self.state();
        let mut by_container: BTreeMap<String, Vec<ResourceStatus>> = BTreeMap::new();
        for (key, name, allocated) in state.allocations.entries().filter(|it| it.0.pod == pod) {
            let health = |id: DeviceId| {
                let is_healthy = state.resources.device(name, &id).is_none_or(|it| it.is_healthy);
                let health = if is_healthy { Health::Healthy } else { Health::Unhealthy };
                let health = Some(health.as_str().to_owned());
                ResourceHealth { resource_id: id, health, message: None }
            };
            let resources = allocated.ids().into_iter().map(health).collect();
            let status = ResourceStatus { name: name.clone(), resources: Some(resources) };
            by_container.entry(key.container.to_owned()).or_default().push(status);
        }
        by_container
    }

    /// Notes a pod, which `PodResources` shows from now on.
    pub(crate) fn add_pod(&self, pod: &str, latest: PodReceiver) {
        self.pods().insert(pod.to_owned(), latest);
    }

    /// Frees the devices of a pod that has ended, and shows it no more. Idempotent.
    pub(crate) fn release(&self, pod: &str) {
        self.pods().remove(pod);
        let mut state = self.state();
        if !state.allocations.remove(pod) {
            return;
        }
        // An old file frees nothing: after a restart the pod is an orphan.
        if let Err(error) = self.save(&state) {
            tracing::warn!(pod, %error, "the checkpoint of devices was not written");
        }
        drop(state);
        drop(std::fs::remove_dir(self.cgroup(pod)));
    }

    /// Pods that have devices and are not in `living`.
    pub(crate) fn orphans(&self, living: &BTreeSet<String>) -> BTreeSet<String> {
        self.state().allocations.orphans(living)
    }

    /// Do not hold the guard across an await.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<String, PodReceiver>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the resources, writes the checkpoint, and shows the new counts.
    fn update_resources<T>(&self, change: impl FnOnce(&mut Resources<Plugin>) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state.resources);
        if let Err(error) = self.save(&state) {
            tracing::warn!(folder = %self.folder.display(), %error, "the checkpoint of devices was not written");
        }
        let counts = state.resources.counts();
        self.counts.send_if_modified(|old| {
            let is_new = *old != counts;
            *old = counts;
            is_new
        });
        result
    }

    fn save(&self, state: &State) -> std::io::Result<()> {
        let names = state.resources.names();
        let healthy = names.map(|name| {
            let ids = state.resources.healthy(name).unwrap_or_default();
            (name.clone(), ids.into_iter().collect())
        });
        checkpoint::save(&self.folder, &state.allocations, healthy.collect())
    }

    /// Makes the cgroup of a pod with devices. Agents take an entry of the checkpoint for that of a living pod only if it
    /// has one.
    fn make_cgroup(&self, pod: &str) -> std::io::Result<()> {
        if self.has_devices(pod) {
            std::fs::create_dir_all(self.cgroup(pod))?;
        }
        Ok(())
    }

    fn cgroup(&self, pod: &str) -> PathBuf {
        self.cgroups.join(format!("pod{pod}"))
    }
}

#[cfg(test)]
mod tests;
