//! Gives the GPUs of a node the MIG devices that its label `nvidia.com/mig.config` names, one GPU after another, each once nothing
//! uses what has to go. `mig_layout.rs` shows the steps.
//!
//! Everything is computed again from the driver's facts at each step, so a process that dies in between leaves nothing to repair.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::Device;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use octavo_api::names::{LABEL_MIG_CONFIG_STATE, MIG_MANAGER};
use octavo_gpu::mig::MigInstance;
use octavo_gpu::{DriverError, Gpu, Inventory};
use octavo_kube_io::Backoff;
use serde_json::json;
use tokio::sync::watch;

use super::node_mode::published;
use super::node_settings::NodeSettings;
use super::retry::retry_delays;
use crate::claims::Claims;
use crate::config::{MigManagerSettings, MigReset, Mode, NodeConfig};
use crate::device_plugin::{self, PluginState};
use crate::devices::needs_reset;
use crate::gpu_mode::{ChangeError, reset_to_mode};
use crate::mig_layout::{Change, ClosedParts, LayoutError, NamedLayout, change, layout};
use crate::monitor::{Snapshot, Waker};
use crate::pause::sleep_for;
use crate::problems::{self, Problems};

/// Interval of looks at pods and claims that are waited for.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of looks at the file of layouts, whose changes nothing tells.
const FILE_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of looks at what is being withdrawn: at first, and at most.
const WITHDRAWAL_INTERVAL: Duration = Duration::from_millis(5);
const MAX_WITHDRAWAL_INTERVAL: Duration = Duration::from_secs(5);
/// Time after which what is not withdrawn is named.
const WITHDRAWAL_TIME: Duration = Duration::from_secs(5);
/// Delay before a GPU in use by processes, or without its driver, is looked at again.
const BUSY_INTERVAL: Duration = Duration::from_secs(10);
/// Delay before a refused change is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// Time for a reset, the end of all calls of the driver before it included.
const RESET_TIME: Duration = Duration::from_mins(5);
/// Delay before a refused reset is tried again, for which the driver is closed.
const RESET_INTERVAL: Duration = Duration::from_mins(5);

/// Keeps the layout of a node.
pub(super) struct MigManager {
    pub(super) config: Arc<NodeConfig>,
    pub(super) settings: MigManagerSettings,
    pub(super) client: Client,
    pub(super) claims: Claims,
    pub(super) snapshots: watch::Receiver<Snapshot>,
    /// The mode in which the node is.
    pub(super) reached: watch::Receiver<Option<Mode>>,
    /// Parts of GPUs that are about to change; `None` until that is known.
    pub(super) closed: watch::Sender<Option<ClosedParts>>,
    pub(super) waker: Waker,
    pub(super) problems: watch::Sender<Problems>,
    /// Name of the layout at the last step.
    pub(super) last_name: String,
    /// Changes that the driver refused, by UUID: when they are tried again, and why it did.
    pub(super) refused: BTreeMap<String, (Change, Instant, String)>,
    /// When the present parts were closed.
    pub(super) closed_at: Instant,
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
    /// Time until the next look, if no change comes before.
    look: Option<Duration>,
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
        let mut problems = Problems::default();
        for (reason, lines) in
            [("MigLayoutWaits", &self.waits), ("MigLayoutFailed", &self.failures)]
        {
            if !lines.is_empty() {
                problems.add(reason, lines.join("; "));
            }
        }
        problems
    }

    fn failed(failure: String) -> Self {
        Self { failures: vec![failure], ..Self::default() }
    }

    fn wait(&mut self, line: String, look: Duration) {
        self.waits.push(line);
        self.look_in(look);
    }

    fn look_in(&mut self, time: Duration) {
        self.look = Some(self.look.map_or(time, |look| look.min(time)));
    }
}

impl MigManager {
    /// Follows the node's label forever.
    pub(super) async fn follow(mut self, mut settings: watch::Receiver<Option<NodeSettings>>) {
        settings.mark_changed();
        let mut writes = retry_delays();
        let mut looks = Backoff::new(WITHDRAWAL_INTERVAL, MAX_WITHDRAWAL_INTERVAL);
        loop {
            let read = settings.borrow_and_update().clone().filter(|read| read.is_read);
            let snapshot = self.snapshots.borrow_and_update().clone();
            let mut pause = None;
            if let (Some(read), Some(inventory)) = (read, snapshot.inventory) {
                let has_left = *self.reached.borrow_and_update() == Some(Mode::None);
                let progress = if let Some(name) = read.mig_config.as_ref().filter(|_| !has_left) {
                    Some(self.step(name, &read, &inventory).await)
                } else {
                    self.close(ClosedParts::default());
                    None
                };
                let problems = progress.as_ref().map(Progress::problems).unwrap_or_default();
                problems::set(&self.problems, problems);
                if let Some(progress) = &progress {
                    pause = progress.look.or(self.settings.file.as_ref().map(|_| FILE_INTERVAL));
                    if progress.is_changing {
                        pause = Some(looks.next_delay());
                    } else {
                        looks.reset();
                    }
                }
                let state = progress.map(|progress| progress.state().name());
                if state != read.mig_config_state.as_deref() {
                    if self.write_state(state).await {
                        writes.reset();
                    } else {
                        pause = Some(writes.next_delay());
                    }
                }
            }
            tokio::select! {
                changed = settings.changed() => if changed.is_err() { return },
                Ok(()) = self.reached.changed() => {}
                changed = self.snapshots.changed() => {
                    looks.reset();
                    if changed.is_err() { return }
                }
                () = sleep_for(pause) => {}
            }
        }
    }

    /// Does what can be done now.
    async fn step(&mut self, name: &str, read: &NodeSettings, inventory: &Inventory) -> Progress {
        if self.last_name != name {
            name.clone_into(&mut self.last_name);
            self.refused.clear();
        }
        let layout = match layout(self.settings.file.as_deref(), name) {
            Ok(layout) => layout,
            Err(problem) => {
                self.close(ClosedParts::default());
                return Progress::failed(problem.to_string());
            }
        };
        if let Some(error) = layout.means_none(&inventory.gpus) {
            self.close(ClosedParts::default());
            return Progress::failed(error.to_string());
        }
        let none = BTreeMap::new();
        let lacks = |gpu: &Gpu| matches!(self.pending(gpu, &layout, read, &none), Ok(Some(_)));
        let mut progress = Progress::default();
        let state = if inventory.gpus.iter().any(lacks) {
            match device_plugin::plugin_state(&self.config.paths).await {
                Ok(state) => state,
                Err(error) => {
                    let line = format!("it is not known which pods have GPUs: {error:#}");
                    progress.wait(line, LOOK_INTERVAL);
                    return progress;
                }
            }
        } else {
            PluginState::default()
        };
        let pods = by_part(&state);
        let mut pending = Vec::new();
        for gpu in &inventory.gpus {
            match self.pending(gpu, &layout, read, &pods) {
                Ok(None) => {}
                Ok(Some(found)) => match self.refusal(&found) {
                    Some(refusal) => {
                        progress.failures.push(refusal);
                        progress.look_in(RETRY_INTERVAL);
                    }
                    None => pending.push(found),
                },
                Err(error) => progress.failures.push(error.to_string()),
            }
        }
        let mut all = ClosedParts::default();
        for pending in &pending {
            all.extend(&pending.parts);
        }
        if self.close(all) {
            // What has the parts is asked after that, so nothing can come between.
            progress.is_changing = !pending.is_empty();
            return progress;
        }
        let mut published = None;
        for pending in pending {
            let holders = self.holders(&pending, inventory, &pods);
            if !holders.is_empty() {
                let line = format!("GPU {} waits for {}", pending.gpu.index, holders.join(", "));
                progress.wait(line, LOOK_INTERVAL);
                continue;
            }
            if published.is_none() {
                match published_uuids(&self.client, &self.config.node_name).await {
                    Ok(uuids) => published = Some(uuids),
                    Err(error) => {
                        let line = format!("it is not known what the node publishes: {error}");
                        progress.wait(line, BUSY_INTERVAL);
                        return progress;
                    }
                }
            }
            let uuids = pending.parts.uuids(inventory);
            let mut offered = published.iter().flatten().chain(state.offered.values().flatten());
            if offered.any(|uuid| uuids.contains(uuid)) {
                progress.is_changing = true;
                if self.closed_at.elapsed() > WITHDRAWAL_TIME {
                    let line = "waits until slices and device plugins offer it no more";
                    progress.waits.push(format!("GPU {} {line}", pending.gpu.index));
                }
                continue;
            }
            self.change(pending, &mut progress).await;
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
        // A device plugin's GPUs are under no dynamic MIG.
        if read.mode == Mode::Dra && read.dynamic.has(gpu) {
            return Err(LayoutError::Dynamic { gpu: gpu.index });
        }
        let is_used = |instance: &MigInstance| {
            let mut parts = ClosedParts::default();
            parts.add_place(&gpu.uuid, instance.placement);
            let mut uuids = instance.compute_instances.iter().map(|compute| &compute.uuid);
            uuids.any(|uuid| pods.contains_key(uuid)) || !self.claims.holders(&parts).is_empty()
        };
        let change = change(gpu, &wanted, &is_used)?;
        if change.is_empty() {
            return Ok(None);
        }
        let may_reset = self.settings.reset == MigReset::Gpu;
        if let Some(is_on) = change.mode.filter(|_| needs_reset(gpu) && !may_reset) {
            return Err(LayoutError::NeedsReset { gpu: gpu.index, switch: u8::from(is_on) });
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

    /// Why the driver refused this change a short time ago.
    fn refusal(&self, pending: &PendingGpu<'_>) -> Option<String> {
        let (change, until, why) = self.refused.get(&pending.gpu.uuid)?;
        (*change == pending.change && Instant::now() < *until).then(|| why.clone())
    }

    /// The claims and pods that have parts of a GPU that change. A pod with the GPU as a whole may use any part.
    fn holders(
        &self,
        PendingGpu { gpu, parts, .. }: &PendingGpu<'_>,
        inventory: &Inventory,
        pods: &BTreeMap<String, BTreeSet<String>>,
    ) -> Vec<String> {
        let mut holders = self.claims.holders(parts);
        let uuids = parts.uuids(inventory);
        let uuids = uuids.iter().chain([&gpu.uuid]);
        holders.extend(uuids.filter_map(|uuid| pods.get(uuid)).flatten().cloned());
        holders.into_iter().collect()
    }

    /// Changes a GPU, of which nothing has or gets the parts that change.
    async fn change(
        &mut self,
        PendingGpu { gpu, change, .. }: PendingGpu<'_>,
        progress: &mut Progress,
    ) {
        let (node, index) = (&self.config.node_name, gpu.index);
        tracing::info!(
            %node, gpu = index, destroyed = change.destroyed.len(), created = change.created.len(),
            mode = ?change.mode, "a GPU gets its MIG layout"
        );
        let changed = self.claims.change_gpu(gpu.clone(), change.clone()).await;
        // The next step sees what the driver has now.
        self.waker.reread();
        match changed {
            Ok(()) | Err(ChangeError::Stale) => progress.is_changing = true,
            Err(ChangeError::NeedsReset { is_on }) => {
                self.reset(gpu, is_on, change, progress).await;
            }
            Err(ChangeError::Closed) => {
                let line = format!("GPU {index} waits for its driver, which is closed");
                progress.wait(line, BUSY_INTERVAL);
            }
            Err(ChangeError::Driver(error))
                if matches!(error.cause(), DriverError::InUse { .. }) =>
            {
                progress
                    .wait(format!("GPU {index} waits for its processes: {error}"), BUSY_INTERVAL);
            }
            Err(error) => self.refuse(gpu, change, &error, RETRY_INTERVAL, progress),
        }
    }

    /// Resets a GPU into its MIG mode. The agent lets the driver go meanwhile, and opens it again.
    async fn reset(&mut self, gpu: &Gpu, is_on: bool, change: Change, progress: &mut Progress) {
        let (root, uuid) = (self.config.paths.driver_root_seen.clone(), gpu.uuid.clone());
        let what = format!("GPU {} is reset into its MIG mode", gpu.index);
        let work = move || reset_to_mode(&root, &uuid, is_on);
        let done = tokio::time::timeout(RESET_TIME, self.waker.while_closed(what, work)).await;
        match done.ok().flatten() {
            Some(Ok(())) => progress.is_changing = true,
            Some(Err(error)) => {
                // What it had is destroyed.
                let change = Change { destroyed: Vec::new(), ..change };
                self.refuse(gpu, change, &error, RESET_INTERVAL, progress);
            }
            // The driver is released or gone, or the agent stops. A reset that has not begun is left out.
            None => {
                let line = format!("GPU {} waits for its driver, which is closed", gpu.index);
                progress.wait(line, BUSY_INTERVAL);
            }
        }
    }

    /// Notes a change that failed, which is tried again after a time.
    fn refuse(
        &mut self,
        gpu: &Gpu,
        change: Change,
        error: &dyn Display,
        retry: Duration,
        progress: &mut Progress,
    ) {
        let why = format!("GPU {} did not change: {error}", gpu.index);
        self.refused.insert(gpu.uuid.clone(), (change, Instant::now() + retry, why.clone()));
        progress.failures.push(why);
        progress.look_in(retry);
    }

    /// Closes parts, and opens all others. Returns whether that is new.
    fn close(&mut self, parts: ClosedParts) -> bool {
        self.claims.close_parts(parts.clone());
        let is_new = self.closed.send_if_modified(|old| {
            let is_new = old.as_ref() != Some(&parts);
            *old = Some(parts);
            is_new
        });
        if is_new {
            self.closed_at = Instant::now();
        }
        is_new
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

/// Pods of the device plugin, by the UUIDs of their devices.
fn by_part(state: &PluginState) -> BTreeMap<String, BTreeSet<String>> {
    let mut by_part: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (pod, uuids) in &state.pods {
        for uuid in uuids {
            by_part.entry(uuid.clone()).or_default().insert(pod.clone());
        }
    }
    by_part
}

/// The UUIDs of the GPUs and MIG devices that the API server has in the node's slices.
async fn published_uuids(client: &Client, node: &str) -> kube::Result<BTreeSet<String>> {
    let devices = published(client, node).await?;
    let uuid = |device: Device| device.attributes?.remove("uuid")?.string;
    Ok(devices.into_iter().filter_map(uuid).collect())
}
