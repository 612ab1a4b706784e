//! Gives the GPUs of a node the MIG devices that its label `nvidia.com/mig.config` names, one GPU after another, each once nothing
//! uses what has to go. `mig_layout.rs` shows the steps.
//!
//! Everything is computed again from the driver's facts at each step, so a process that dies in between leaves nothing to repair.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use octavo_api::names::{LABEL_MIG_CONFIG_STATE, MIG_MANAGER};
use octavo_gpu::{DriverError, Gpu, Inventory};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;

use super::node_settings::NodeSettings;
use super::retry::retry_delays;
use crate::claims::Claims;
use crate::config::{MigManagerSettings, NodeConfig};
use crate::device_plugin;
use crate::gpu_mode::ChangeError;
use crate::mig_layout::{Change, ClosedParts, LayoutError, NamedLayout, change, layouts};
use crate::monitor::Snapshot;
use crate::node::DraDriver;
use crate::problems::Problems;

/// Interval of looks at what is waited for, and at the file of layouts, whose changes nothing tells.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of looks at what is being withdrawn.
const WITHDRAWAL_INTERVAL: Duration = Duration::from_millis(100);
/// Delay before a refused change is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Keeps the layout of a node.
pub(super) struct MigManager {
    pub(super) config: Arc<NodeConfig>,
    pub(super) settings: MigManagerSettings,
    pub(super) client: Client,
    pub(super) claims: Claims,
    pub(super) snapshots: watch::Receiver<Snapshot>,
    pub(super) closed: watch::Sender<ClosedParts>,
    pub(super) reread: watch::Sender<u64>,
    pub(super) problems: watch::Sender<Problems>,
}

/// Values of the label with the layout's state, as of NVIDIA's MIG manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending,
    Success,
    Failed,
}

/// How far a layout is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Progress {
    /// What is waited for: a line for each GPU.
    waits: Vec<String>,
    /// What cannot be: a line for each GPU, or one for all.
    failures: Vec<String>,
    /// Whether something changes at the moment, or is being withdrawn.
    is_changing: bool,
    /// Whether a refused change is to be tried again.
    is_refused: bool,
}

/// A GPU that does not have its layout yet.
struct PendingGpu<'a> {
    gpu: &'a Gpu,
    change: Change,
    /// The parts that change.
    parts: ClosedParts,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Success => "success",
            Self::Failed => "failed",
        }
    }
}

impl Progress {
    fn state(&self) -> State {
        if self.is_changing || !self.waits.is_empty() {
            State::Pending
        } else if self.failures.is_empty() {
            State::Success
        } else {
            State::Failed
        }
    }

    fn problems(&self) -> Problems {
        let lines = [("MigLayoutWaits", &self.waits), ("MigLayoutFailed", &self.failures)];
        let lines = lines.into_iter().filter(|(_, lines)| !lines.is_empty());
        lines.map(|(reason, lines)| (reason, lines.join("; "))).collect()
    }

    fn failed(failure: String) -> Self {
        Self { failures: vec![failure], ..Self::default() }
    }

    /// Time until the next look without a change.
    fn interval(&self) -> Option<Duration> {
        if self.is_changing {
            Some(WITHDRAWAL_INTERVAL)
        } else if !self.waits.is_empty() {
            Some(LOOK_INTERVAL)
        } else {
            self.is_refused.then_some(RETRY_INTERVAL)
        }
    }
}

impl MigManager {
    /// Follows the node's label forever.
    pub(super) async fn follow(mut self, mut settings: watch::Receiver<Option<NodeSettings>>) {
        settings.mark_changed();
        let mut backoff = retry_delays();
        loop {
            let read = settings.borrow_and_update().clone().filter(|read| read.is_read);
            let snapshot = self.snapshots.borrow_and_update().clone();
            let mut pause = None;
            if let (Some(read), Some(inventory)) = (read, snapshot.inventory) {
                let progress = if let Some(name) = &read.mig_config {
                    Some(self.step(name, &read, &inventory).await)
                } else {
                    self.close(ClosedParts::default());
                    None
                };
                let problems = progress.as_ref().map(Progress::problems).unwrap_or_default();
                self.problems.send_if_modified(|old| std::mem::replace(old, problems) != *old);
                let has_file = progress.is_some() && self.settings.file.is_some();
                pause = progress.as_ref().and_then(Progress::interval);
                pause = pause.or_else(|| has_file.then_some(LOOK_INTERVAL));
                let state = progress.map(|progress| progress.state().name());
                if state != read.mig_config_state.as_deref() {
                    if self.write_state(state).await {
                        backoff.reset();
                    } else {
                        pause = Some(backoff.next_delay());
                    }
                }
            }
            let look = async {
                match pause {
                    Some(pause) => sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = settings.changed() => if changed.is_err() { return },
                changed = self.snapshots.changed() => if changed.is_err() { return },
                () = look => {}
            }
        }
    }

    /// Does what can be done now.
    async fn step(&self, name: &str, read: &NodeSettings, inventory: &Inventory) -> Progress {
        let layout = match layouts(self.settings.file.as_deref(), name) {
            Ok(layout) => layout,
            // The parts that were closed for the last good one stay open.
            Err(problem) => {
                self.close(ClosedParts::default());
                return Progress::failed(problem.to_string());
            }
        };
        if layout.is_builtin() && inventory.gpus.iter().all(|gpu| gpu.mig.is_none()) {
            return Progress::failed(LayoutError::NoMigAnywhere.to_string());
        }
        let mut progress = Progress::default();
        let none = BTreeMap::new();
        let lacks = |gpu: &Gpu| !matches!(self.pending(gpu, &layout, read, &none), Ok(None));
        if !inventory.gpus.iter().any(lacks) {
            self.close(ClosedParts::default());
            return progress;
        }
        let pods = match self.pods_by_part().await {
            Ok(pods) => pods,
            Err(error) => {
                progress.waits.push(format!("it is not known which pods have GPUs: {error:#}"));
                return progress;
            }
        };
        let mut pending = Vec::new();
        for gpu in &inventory.gpus {
            match self.pending(gpu, &layout, read, &pods) {
                Ok(found) => pending.extend(found),
                Err(error) => progress.failures.push(error.to_string()),
            }
        }
        let mut all = ClosedParts::default();
        for pending in &pending {
            all.extend(&pending.parts);
        }
        self.close(all);
        for pending in &pending {
            self.try_change(pending, inventory, &pods, &mut progress).await;
        }
        progress
    }

    /// What a GPU lacks for its layout; `None`: nothing.
    fn pending<'a>(
        &self,
        gpu: &'a Gpu,
        layout: &NamedLayout,
        read: &NodeSettings,
        pods: &BTreeMap<String, BTreeSet<String>>,
    ) -> Result<Option<PendingGpu<'a>>, LayoutError> {
        let Some(wanted) = layout.of(gpu)? else { return Ok(None) };
        let is_used = |instance: &octavo_gpu::mig::MigInstance| {
            let mut parts = ClosedParts::default();
            parts.add_place(&gpu.uuid, instance.placement);
            let mut uuids = instance.compute_instances.iter().map(|compute| &compute.uuid);
            uuids.any(|uuid| pods.contains_key(uuid)) || !self.claims.holders(&parts).is_empty()
        };
        let change = change(gpu, &wanted, &is_used)?;
        if change.is_empty() {
            return Ok(None);
        }
        if read.dynamic.has(gpu) {
            return Err(LayoutError::Dynamic { gpu: gpu.index });
        }
        let mut parts = ClosedParts::default();
        if change.mode.is_some() {
            parts.add_gpu(&gpu.uuid);
        }
        let places = change.destroyed.iter().map(|instance| instance.placement);
        let places = places.chain(change.created.iter().map(|(_, place)| *place));
        places.for_each(|place| parts.add_place(&gpu.uuid, place));
        Ok(Some(PendingGpu { gpu, change, parts }))
    }

    /// Changes a GPU if nothing has the parts that change.
    async fn try_change(
        &self,
        PendingGpu { gpu, change, parts }: &PendingGpu<'_>,
        inventory: &Inventory,
        pods: &BTreeMap<String, BTreeSet<String>>,
        progress: &mut Progress,
    ) {
        let index = gpu.index;
        let uuids = parts.uuids(inventory);
        let mut holders = self.claims.holders(parts);
        holders.extend(uuids.iter().filter_map(|uuid| pods.get(uuid)).flatten().cloned());
        if !holders.is_empty() {
            let holders: Vec<String> = holders.into_iter().collect();
            progress.waits.push(format!("GPU {index} waits for {}", holders.join(", ")));
            return;
        }
        match self.is_offered(&uuids).await {
            Ok(false) => {}
            Ok(true) => {
                progress.is_changing = true;
                return;
            }
            Err(error) => {
                progress
                    .waits
                    .push(format!("GPU {index}: it is not known what is offered: {error:#}"));
                return;
            }
        }
        match self.change(gpu, change).await {
            // The next step sees what the driver has now.
            Ok(()) | Err(ChangeError::Stale) => {
                progress.is_changing = true;
                self.reread.send_modify(|count| *count += 1);
            }
            Err(ChangeError::Closed) => {
                progress.waits.push(format!("GPU {index} waits for its driver, which is closed"));
            }
            Err(ChangeError::Driver(error))
                if matches!(error.cause(), DriverError::InUse { .. }) =>
            {
                progress.waits.push(format!("GPU {index} waits for its processes: {error}"));
                self.reread.send_modify(|count| *count += 1);
            }
            Err(error) => {
                progress.failures.push(format!("GPU {index} did not change: {error}"));
                progress.is_refused = true;
                self.reread.send_modify(|count| *count += 1);
            }
        }
    }

    async fn change(&self, gpu: &Gpu, change: &Change) -> Result<(), ChangeError> {
        let Some(turn) = self.claims.turn(&gpu.uuid).await else { return Err(ChangeError::Closed) };
        let (gpu, change) = (gpu.clone(), change.clone());
        let (node, index) = (&self.config.node_name, gpu.index);
        tracing::info!(
            %node, gpu = index, destroyed = change.destroyed.len(), created = change.created.len(),
            mode = ?change.mode, "a GPU gets its MIG layout"
        );
        let task = tokio::task::spawn_blocking(move || turn.apply(&gpu, &change));
        // A task ends early only with the process.
        task.await.unwrap_or(Err(ChangeError::Stale))
    }

    fn close(&self, parts: ClosedParts) {
        self.claims.close_parts(parts.clone());
        self.closed.send_if_modified(|old| std::mem::replace(old, parts) != *old);
    }

    /// Pods of the device plugin, by the UUIDs of their devices.
    async fn pods_by_part(&self) -> anyhow::Result<BTreeMap<String, BTreeSet<String>>> {
        let state = device_plugin::plugin_state(&self.config.paths).await?;
        let mut by_part: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (pod, uuids) in state.pods {
            for uuid in uuids {
                by_part.entry(uuid).or_default().insert(pod.clone());
            }
        }
        Ok(by_part)
    }

    /// Whether a GPU or MIG device is still offered, in slices or by the device plugin.
    async fn is_offered(&self, uuids: &BTreeSet<String>) -> anyhow::Result<bool> {
        let state = device_plugin::plugin_state(&self.config.paths).await?;
        if state.offered.values().flatten().any(|uuid| uuids.contains(uuid)) {
            return Ok(true);
        }
        let slices: Api<ResourceSlice> = Api::all(self.client.clone());
        let (driver, node) = (DraDriver::GPU.name(), &self.config.node_name);
        let ours =
            ListParams::default().fields(&format!("spec.driver={driver},spec.nodeName={node}"));
        let slices = slices.list(&ours).await?.items;
        let devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
        let mut offered =
            devices.filter_map(|device| device.attributes.as_ref()?.get("uuid")?.string.as_ref());
        Ok(offered.any(|uuid| uuids.contains(uuid)))
    }

    /// Writes or removes the label with the state. Returns whether the API server took it.
    async fn write_state(&self, state: Option<&str>) -> bool {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let labels =
            state.map_or_else(|| json!({}), |state| json!({LABEL_MIG_CONFIG_STATE: state}));
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"labels": labels}});
        // The former value may be of NVIDIA's manager.
        let params = PatchParams::apply(MIG_MANAGER).force();
        let node = &self.config.node_name;
        match nodes.patch_metadata(node, &params, &Patch::Apply(&object)).await {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(%node, ?state, %error, "the label {LABEL_MIG_CONFIG_STATE} is not written yet");
                false
            }
        }
    }
}
