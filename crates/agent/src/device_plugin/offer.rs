//! What a node offers at the moment, and how it follows GPUs, settings and mode.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use octavo_api::plugin_config::{ImexChannel, PluginConfig, SharingStrategy};
use octavo_cdi::{DriverFiles, Majors};
use octavo_gpu::{CharDevices, Inventory};
use octavo_kubelet_api::device_plugin::v1beta1::ContainerAllocateResponse;
use octavo_node::NodePaths;
use octavo_node::mps::MpsFolder;
use tokio::sync::watch;

use super::allocation::{self, AllocationError, NodeFacts};
use super::cdi_specs::{self, SpecSource};
use super::mps;
use super::mps_owner::{PluginDaemons, WantedDaemons};
use super::preference;
use super::resources::{GpuPart, Resource, resources};
use crate::compute_domain::CHANNELS;
use crate::config::NodeConfig;
use crate::health::takes_pods;
use crate::metrics::PluginMetrics;
use crate::mig_layout::ClosedParts;
use crate::monitor::Snapshot;
use crate::pause::sleep_for;
use crate::problems::{self, Problems};

/// Interval of looks at what was missing.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What a node offers.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    inventory: Arc<Inventory>,
    config: PluginConfig,
    resources: Vec<Resource>,
    facts: Facts,
    /// Answers so far.
    answers: AtomicU64,
}

/// What of the node is in answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Facts {
    /// Device nodes that every container with a GPU needs.
    common_nodes: Vec<String>,
    /// Device nodes of each part, by its UUID.
    nodes: BTreeMap<String, Vec<String>>,
    /// CDI classes of other device nodes.
    extra_classes: Vec<&'static str>,
    /// The host's folder that has `/dev`.
    dev_root: String,
    /// Whether IMEX channel 0 exists.
    has_channel: bool,
    /// Files of MPS daemons.
    mps: MpsFolder,
}

impl Offer {
    /// All resources, by name.
    pub(crate) fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// A resource.
    pub(super) fn resource(&self, name: &str) -> Option<&Resource> {
        self.resources.iter().find(|resource| resource.name == name)
    }

    /// The devices that a container should have.
    pub(super) fn preferred(
        &self,
        resource: &Resource,
        sets: (&[String], &[String]),
        size: usize,
    ) -> Vec<String> {
        let policy = self.config.allocation_policy;
        preference::preferred(&self.inventory, resource, policy, sets, size)
    }

    /// What a container needs to use its devices.
    pub(super) fn allocate(
        &self,
        resource: &Resource,
        ids: &[String],
    ) -> Result<ContainerAllocateResponse, AllocationError> {
        let nodes = |part: &GpuPart| self.facts.nodes.get(&part.uuid).cloned().unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        let node = NodeFacts {
            common_nodes: &self.facts.common_nodes,
            nodes: &nodes,
            extra_classes: &self.facts.extra_classes,
            dev_root: &self.facts.dev_root,
            has_channel: self.facts.has_channel,
            mps: &self.facts.mps,
            answer_id: format!("{:x}-{number}", now.as_nanos()),
        };
        allocation::answer(resource, ids, &self.config, &node)
    }

    /// All GPUs of an inventory, with the defaults.
    #[cfg(test)]
    pub(crate) fn of_gpus(inventory: Inventory) -> Self {
        let config = PluginConfig::default();
        let health = crate::health::Health::new();
        let resources = resources(&inventory, &health, &config).unwrap_or_default();
        Self { inventory: Arc::new(inventory), config, resources, ..Self::default() }
    }

    /// Whether it is the same to the kubelet and to containers.
    fn is_same(&self, other: &Self) -> bool {
        self.inventory == other.inventory
            && self.config == other.config
            && self.resources == other.resources
            && self.facts == other.facts
    }
}

/// What decides the offer besides GPUs and settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PluginInput {
    /// Whether the node's mode permits an offer.
    pub(crate) is_offering: bool,
    /// The node's label that chooses a config.
    pub(crate) label: Option<String>,
    /// Whether the node's labels were read, so that all this is known.
    pub(crate) is_known: bool,
}

/// Follows a node's GPUs, settings and mode.
pub(crate) struct Follower {
    pub(crate) config: Arc<NodeConfig>,
    pub(crate) snapshots: watch::Receiver<Snapshot>,
    pub(crate) configs: watch::Receiver<Option<PluginConfig>>,
    pub(crate) input: watch::Receiver<PluginInput>,
    /// Parts of GPUs that are not offered, because they are about to change; `None` until that is known.
    pub(crate) closed: watch::Receiver<Option<ClosedParts>>,
    /// The MPS daemons that the offer needs, and what they are.
    pub(crate) daemons: watch::Sender<Option<WantedDaemons>>,
    pub(crate) daemon_state: watch::Receiver<PluginDaemons>,
    pub(crate) offers: watch::Sender<Arc<Offer>>,
    pub(crate) problems: watch::Sender<Problems>,
    pub(crate) metrics: Arc<PluginMetrics>,
}

impl Follower {
    /// Keeps the offer as all these are, forever. Devices that cannot be served stay listed, as unhealthy.
    pub(crate) async fn run(mut self) {
        let mut files: Option<(String, DriverFiles)> = None;
        loop {
            let snapshot = self.snapshots.borrow_and_update().clone();
            let closed = self.closed.borrow_and_update().clone();
            let config = self.configs.borrow_and_update().clone();
            let PluginInput { is_offering, is_known, .. } = self.input.borrow_and_update().clone();
            let mut problems = Problems::default();
            if !is_offering {
                // Until the node's mode is known, daemons of an earlier agent may be wanted.
                if is_known {
                    self.want(WantedDaemons::new());
                }
                self.send(Offer::default());
            } else if let (Some(config), Some(closed)) = (config, closed)
                && let Some(offer) =
                    self.offer(&snapshot, &closed, config, &mut files, &mut problems)
            {
                self.send(offer);
            }
            let waits = !problems.is_empty();
            problems::set(&self.problems, problems);
            let look = waits.then_some(LOOK_INTERVAL);
            tokio::select! {
                changed = self.snapshots.changed() => if changed.is_err() { return },
                Ok(()) = self.configs.changed() => {}
                Ok(()) = self.input.changed() => {}
                Ok(()) = self.closed.changed() => {}
                Ok(()) = self.daemon_state.changed() => {}
                () = sleep_for(look) => {}
            }
        }
    }

    fn send(&self, offer: Offer) {
        self.offers.send_if_modified(|old| {
            if old.is_same(&offer) {
                return false;
            }
            let node = &self.config.node_name;
            for resource in &old.resources {
                self.metrics.listed(node, &resource.name, 0, 0);
            }
            for Resource { name, devices, .. } in &offer.resources {
                let healthy = devices.iter().filter(|device| device.is_healthy).count();
                self.metrics.listed(node, name, healthy, devices.len() - healthy);
            }
            *old = Arc::new(offer);
            true
        });
    }

    /// The present offer; `None`: the GPUs are not known yet.
    fn offer(
        &mut self,
        snapshot: &Snapshot,
        closed: &ClosedParts,
        config: PluginConfig,
        files: &mut Option<(String, DriverFiles)>,
        problems: &mut Problems,
    ) -> Option<Offer> {
        let inventory = Arc::clone(snapshot.inventory.as_ref()?);
        let found = match resources(&inventory, &snapshot.health, &config) {
            Ok(found) => found,
            Err(mismatch) => {
                problems.add("MigLayoutMismatched", mismatch.to_string());
                self.present(&inventory, snapshot)
            }
        };
        let (found, facts) = match self.facts(&inventory, &config, &found, files) {
            Ok(facts) => (found, facts),
            Err((reason, note)) => {
                problems.add(reason, note);
                (unhealthy(found, |_| true), self.offers.borrow().facts.clone())
            }
        };
        let resources = without(found, &closed.uuids(&inventory));
        let (config, resources, facts) = match mps::daemons(&resources, &inventory) {
            // A daemon keeps the driver open.
            Ok(_) if snapshot.is_driver_released => {
                self.want(WantedDaemons::new());
                (config, resources, facts)
            }
            Ok(daemons) => {
                self.want(daemons);
                (config, resources, facts)
            }
            Err(problem) => {
                problems.add("PluginConfigInvalid", problem);
                let last = Arc::clone(&self.offers.borrow());
                let resources = self.present(&inventory, snapshot);
                (last.config.clone(), resources, last.facts.clone())
            }
        };
        let resources = self.with_daemons(resources);
        Some(Offer { inventory, config, resources, facts, answers: AtomicU64::new(0) })
    }

    /// The resources, with devices as unhealthy whose MPS daemon does not serve them.
    fn with_daemons(&mut self, resources: Vec<Resource>) -> Vec<Resource> {
        let state = self.daemon_state.borrow_and_update();
        let serve = |mut resource: Resource| {
            let is_mps = resource.sharing == Some(SharingStrategy::Mps);
            let unserved: Vec<bool> = resource
                .devices
                .iter()
                .map(|device| {
                    let name = mps::daemon_name(&resource, &device.part);
                    let is_other = state.leaving.contains(&device.part.uuid);
                    is_other || (is_mps && !state.ready.contains(&name))
                })
                .collect();
            for (device, is_unserved) in resource.devices.iter_mut().zip(unserved) {
                device.is_healthy &= !is_unserved;
            }
            resource
        };
        resources.into_iter().map(serve).collect()
    }

    fn want(&self, daemons: WantedDaemons) {
        self.daemons.send_if_modified(|old| {
            let is_new = old.as_ref() != Some(&daemons);
            *old = Some(daemons);
            is_new
        });
    }

    /// The last resources. Devices that are gone, or whose GPU is not well, are unhealthy.
    fn present(&self, inventory: &Inventory, snapshot: &Snapshot) -> Vec<Resource> {
        let uuids: BTreeSet<&str> = inventory
            .gpus
            .iter()
            .flat_map(|gpu| {
                let parts = gpu.mig_instances.iter().flat_map(|it| &it.compute_instances);
                [gpu.uuid.as_str()].into_iter().chain(parts.map(|part| part.uuid.as_str()))
            })
            .collect();
        let last = self.offers.borrow().resources.clone();
        unhealthy(last, |part| {
            !uuids.contains(part.uuid.as_str()) || !takes_pods(&snapshot.health, &part.gpu)
        })
    }

    /// What of the node is in answers. The CDI specs are written first, so that an answer names what exists.
    fn facts(
        &self,
        inventory: &Inventory,
        config: &PluginConfig,
        resources: &[Resource],
        files: &mut Option<(String, DriverFiles)>,
    ) -> Result<Facts, (&'static str, String)> {
        let paths = &self.config.paths;
        let devices = CharDevices::read(&paths.proc_root)
            .map_err(|error| ("DeviceNumbersUnknown", error.to_string()))?;
        let has_channel = devices.major(CHANNELS).is_some();
        if config.imex == ImexChannel::Required && !has_channel {
            let note = "imex.required is set, and the driver of this node has no IMEX channels: load the kernel module nvidia with them, or remove it";
            return Err(("PluginConfigInvalid", note.to_owned()));
        }
        let version = &inventory.versions.driver;
        if files.as_ref().is_none_or(|(known, _)| known != version) {
            let found = DriverFiles::discover(&paths.driver_root_seen, version);
            *files = Some((version.clone(), found));
        }
        let empty = DriverFiles::default();
        let files = files.as_ref().map_or(&empty, |(_, files)| files);
        let gpu = |part: &GpuPart| {
            let gpu = inventory.gpus.iter().find(|gpu| gpu.uuid == part.gpu)?;
            Some((gpu.minor, gpu.pci.to_string()))
        };
        let (extra, missing) = cdi_specs::extra_nodes(paths, &devices, config);
        for module in missing {
            tracing::debug!(module = module.module, "containers get no {}", module.device);
        }
        let source =
            SpecSource { paths, files, devices: &devices, config, extra: &extra, gpu: &gpu };
        source.write(resources).map_err(|error| ("CdiSpecsNotWritten", error.to_string()))?;
        let common = Majors::of(&devices).map(Majors::common_nodes).unwrap_or_default();
        Ok(Facts {
            common_nodes: common.into_iter().map(|node| node.path).collect(),
            nodes: nodes(paths, resources, &gpu),
            extra_classes: extra.keys().copied().collect(),
            dev_root: dev_root(paths),
            has_channel,
            mps: MpsFolder::below(&paths.run_root),
        })
    }
}

/// The same resources, with devices as unhealthy.
fn unhealthy(mut resources: Vec<Resource>, is_meant: impl Fn(&GpuPart) -> bool) -> Vec<Resource> {
    for device in resources.iter_mut().flat_map(|resource| &mut resource.devices) {
        device.is_healthy &= !is_meant(&device.part);
    }
    resources
}

/// The resources without these devices. Their CDI devices stay: containers that have them may start again.
fn without(mut resources: Vec<Resource>, uuids: &BTreeSet<String>) -> Vec<Resource> {
    for resource in &mut resources {
        resource.devices.retain(|device| !uuids.contains(&device.part.uuid));
    }
    resources.retain(|resource| !resource.devices.is_empty());
    resources
}

/// The host's folder that has the driver's `/dev`: its own root where a container has the driver, else `/`.
fn dev_root(paths: &NodePaths) -> String {
    let is_own = paths.driver_seen(Path::new("/dev/nvidiactl")).exists();
    let root = if is_own { paths.driver_root.as_path() } else { Path::new("/") };
    root.display().to_string()
}

/// Paths of the device nodes of all parts.
fn nodes(
    paths: &NodePaths,
    resources: &[Resource],
    gpu: &dyn Fn(&GpuPart) -> Option<(u32, String)>,
) -> BTreeMap<String, Vec<String>> {
    let parts = resources.iter().flat_map(|it| it.devices.iter().map(|device| &device.part));
    let nodes = parts.filter_map(|part| {
        let (minor, _) = gpu(part)?;
        let mut own = vec![format!("/dev/nvidia{minor}")];
        if let Some((instance, inner)) = part.instance {
            let caps = octavo_gpu::mig::caps(&paths.proc_root, minor, instance, inner).ok()?;
            let caps = [caps.gpu_instance.minor, caps.compute_instance.minor];
            own.extend(caps.map(|minor| format!("/dev/nvidia-caps/nvidia-cap{minor}")));
        }
        Some((part.uuid.clone(), own))
    });
    nodes.collect()
}
