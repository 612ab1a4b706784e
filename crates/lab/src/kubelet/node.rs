//! A simulated node: the folders, plugins and claims shared by its tasks.

pub(crate) mod heartbeat;
mod object;
mod shown_devices;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource as _};
use octavo_machine::Machine;
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use crate::kubelet::claims::claim_info::ClaimInfoCache;
use crate::kubelet::device_manager::DeviceManager;
use crate::kubelet::plugins::Plugins;
use crate::kubelet::plugins::health::{Reports, SharedReports};
use crate::kubelet::pod_addresses::PodAddresses;
use crate::kubelet::pods::processes::ProcessHost;

/// A simulated node.
pub(crate) struct Node {
    /// Name of the node.
    pub(crate) name: String,
    /// Folder of the node: `kubelet/`, `cdi/`, `driver/`.
    folder: PathBuf,
    /// Address that the node reports.
    pub(crate) address: Ipv4Addr,
    /// The machine description, if the node's folder has one.
    pub(crate) machine: Option<Machine>,
    /// Connection to the API server.
    pub(crate) client: Client,
    /// Registered plugins.
    pub(crate) plugins: Plugins,
    /// Device health reported by the plugins.
    pub(crate) reports: SharedReports,
    /// Devices of device plugins.
    pub(crate) devices: DeviceManager,
    /// Pod addresses, from one range for all nodes.
    pub(crate) pod_addresses: Arc<PodAddresses>,
    /// Where containers run that are processes of this machine.
    pub(crate) host: Arc<ProcessHost>,
    /// Cancels all tasks of the node.
    pub(crate) shutdown: CancellationToken,
    claim_infos: Mutex<ClaimInfoCache>,
    locks: ClaimLocks,
    recorder: Recorder,
}

/// One lock per claim that is being prepared or unprepared.
#[derive(Debug, Default)]
struct ClaimLocks {
    locks: Mutex<BTreeMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

impl Node {
    /// Opens the node in `folder`, the `ordinal`th of its lab. Creates the kubelet's folders and
    /// loads the state of an earlier process.
    pub(crate) fn open(
        folder: PathBuf,
        ordinal: usize,
        client: Client,
        (pod_addresses, host): (Arc<PodAddresses>, Arc<ProcessHost>),
        shutdown: CancellationToken,
    ) -> anyhow::Result<Self> {
        let name = folder
            .file_name()
            .and_then(|name| name.to_str())
            .with_context(|| format!("the folder {} has no node's name", folder.display()))?
            .to_owned();
        for part in ["kubelet/plugins", "kubelet/plugins_registry", "kubelet/pods", "cdi"] {
            let part = folder.join(part);
            std::fs::create_dir_all(&part)
                .with_context(|| format!("cannot make the folder {}", part.display()))?;
        }
        let description = folder.join("driver/usr/lib64/machine.yaml");
        let machine = description.exists().then(|| Machine::read(&description)).transpose()?;
        let claim_infos_path = claim_infos_path(&folder);
        let claim_infos = ClaimInfoCache::load(&claim_infos_path).with_context(|| {
            format!(
                "cannot read the prepared claims of node {name} from {}; if no pod runs there, \
                 remove the file",
                claim_infos_path.display()
            )
        })?;
        let devices = DeviceManager::open(&folder)
            .with_context(|| format!("cannot make the folder of device plugins of node {name}"))?;
        let reporter = Reporter { controller: "kubelet".to_owned(), instance: Some(name.clone()) };
        Ok(Self {
            address: node_address(ordinal),
            machine,
            plugins: Plugins::new(),
            reports: SharedReports::new(Reports::default()),
            devices,
            pod_addresses,
            host,
            shutdown,
            claim_infos: Mutex::new(claim_infos),
            locks: ClaimLocks::default(),
            recorder: Recorder::new(client.clone(), reporter),
            client,
            folder,
            name,
        })
    }

    /// Folder of the plugins' registration sockets.
    pub(crate) fn plugins_registry(&self) -> PathBuf {
        self.folder.join("kubelet/plugins_registry")
    }

    /// Folder of CDI specs.
    pub(crate) fn cdi(&self) -> PathBuf {
        self.folder.join("cdi")
    }

    /// Folder of the driver's programs.
    pub(crate) fn driver_programs(&self) -> PathBuf {
        self.folder.join("driver/usr/bin")
    }

    /// Folder of the container records of pod `uid`.
    pub(crate) fn pod_folder(&self, uid: &str) -> PathBuf {
        self.folder.join("kubelet/pods").join(uid)
    }

    /// The claims prepared on the node. Do not hold the guard across an await.
    pub(crate) fn claim_infos(&self) -> MutexGuard<'_, ClaimInfoCache> {
        self.claim_infos.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the claim cache and saves it before returning.
    pub(crate) fn update_claim_infos<T>(
        &self,
        change: impl FnOnce(&mut ClaimInfoCache) -> T,
    ) -> std::io::Result<T> {
        let mut cache = self.claim_infos();
        let result = change(&mut cache);
        cache.save(&claim_infos_path(&self.folder))?;
        Ok(result)
    }

    /// Locks claims against concurrent prepare and unprepare by other pods. The order of the set
    /// prevents deadlocks between two pods.
    pub(crate) async fn lock_claims(&self, keys: &BTreeSet<String>) -> Vec<OwnedMutexGuard<()>> {
        let mut guards = Vec::with_capacity(keys.len());
        for key in keys {
            guards.push(self.locks.get(key).lock_owned().await);
        }
        guards
    }

    /// Publishes an event about `pod`. A failure is only logged.
    pub(crate) async fn event(&self, pod: &Pod, type_: EventType, reason: &str, note: &str) {
        // The API limits notes to 1 kB.
        let note = note.get(..note.floor_char_boundary(1000)).unwrap_or_default();
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note.to_owned()),
            action: reason.to_owned(),
            secondary: None,
        };
        let reference = pod.object_ref(&());
        let publish = self.recorder.publish(&event, &reference);
        match tokio::time::timeout(crate::kubelet::API_TIMEOUT, publish).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(node = self.name, reason, %error, "event not written"),
            Err(_) => tracing::warn!(node = self.name, reason, "event not written in time"),
        }
    }
}

impl ClaimLocks {
    fn get(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(key).and_then(Weak::upgrade) {
            return lock;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::new(tokio::sync::Mutex::new(()));
        locks.insert(key.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

/// A loopback address per node on which no program listens. Requests for logs are therefore refused
/// at once instead of timing out.
fn node_address(ordinal: usize) -> Ipv4Addr {
    let [_, _, high, low] = u32::try_from(ordinal + 1).unwrap_or_default().to_be_bytes();
    Ipv4Addr::new(127, 66, high, low)
}

fn claim_infos_path(folder: &Path) -> PathBuf {
    folder.join("kubelet/dra_state.json")
}
