//! In which way a node offers its GPUs, and the change from one to another.
//!
//! ```text
//! to device-plugin: slices get no devices --> the API server has none, no claim has a GPU --> resources are listed
//! to dra:           resources get no devices --> the kubelet has none, no pod has a GPU   --> slices get their devices
//! to none:          neither has devices --> no claim and no pod has a GPU                 --> labels and files can go
//! ```
//!
//! Meanwhile claims are refused, and an event names what has GPUs. A start of the agent asks first, too. So no GPU is given out
//! twice, whatever happened while the agent was away.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use kube::api::ListParams;
use kube::{Api, Client};
use octavo_kube_io::Backoff;
use tokio::sync::watch;
use tokio::time::Instant;

use super::leave;
use super::node_settings::NodeSettings;
use crate::claims::Claims;
use crate::config::{Mode, NodeConfig};
use crate::device_plugin::{self, Offer, PluginDaemons, PluginInput, PluginState};
use crate::node::DraDriver;
use crate::pause::sleep_for;
use crate::problems::{self, Problems};

/// Interval of looks at holders of GPUs.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of looks at what is being withdrawn: at first, and at most.
const WITHDRAWAL_INTERVAL: Duration = Duration::from_millis(100);
const MAX_WITHDRAWAL_INTERVAL: Duration = Duration::from_secs(5);
/// Time in which the kubelet may still have the devices that were listed to it.
const WITHDRAWAL_TIME: Duration = Duration::from_secs(5);
/// Most holders that an event names.
const NAMED_HOLDERS: usize = 5;

/// What a node may offer now.
pub(super) struct Offering {
    /// Whether it publishes its devices in slices; `None` until that is known.
    pub(super) slices: watch::Sender<Option<bool>>,
    /// Whether it lists them to the kubelet as counted resources, and with which settings.
    pub(super) plugin: watch::Sender<PluginInput>,
    /// What it lists.
    pub(super) listed: watch::Receiver<Arc<Offer>>,
    /// When the list was last seen with devices.
    pub(super) listed_at: Option<Instant>,
    /// MPS daemons of listed devices.
    pub(super) daemons: watch::Receiver<PluginDaemons>,
}

/// What keeps a node from being in its mode.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Obstacle {
    /// What was offered is being withdrawn.
    Withdrawal,
    /// Claims have GPUs.
    Claims(BTreeSet<String>),
    /// Pods have GPUs of a device plugin.
    Pods(BTreeSet<String>),
    /// The kubelet has devices of another plugin.
    OtherPlugin(BTreeSet<String>),
    /// The kubelet, or the API server, does not say.
    Unknown(String),
}

impl Obstacle {
    fn note(&self, mode: Mode) -> Option<String> {
        let (what, names) = match self {
            Self::Withdrawal => return None,
            Self::Unknown(error) => {
                return Some(format!("mode {mode}: it is not known what has GPUs: {error}"));
            }
            Self::Claims(claims) => ("claims have GPUs", claims),
            Self::Pods(pods) => ("pods have GPUs of a device plugin", pods),
            Self::OtherPlugin(resources) => {
                ("resources are offered by another device plugin, which must end", resources)
            }
        };
        let shown: Vec<&str> = names.iter().take(NAMED_HOLDERS).map(String::as_str).collect();
        let more = names.len().saturating_sub(NAMED_HOLDERS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let (count, shown) = (names.len(), shown.join(", "));
        Some(format!(
            "mode {mode}: {count} {what}: {shown}{more}; the node offers no GPU meanwhile"
        ))
    }
}

/// Brings a node into its mode, and keeps it there.
pub(super) struct NodeMode {
    pub(super) config: Arc<NodeConfig>,
    pub(super) client: Client,
    pub(super) claims: Claims,
    pub(super) offering: Offering,
    /// The mode in which the node is; `None` while it changes, and until that is known.
    pub(super) reached: watch::Sender<Option<Mode>>,
    pub(super) problems: watch::Sender<Problems>,
}

impl NodeMode {
    /// Serves claims at once where nothing of a device plugin has a GPU. Otherwise none is prepared until that is so.
    pub(super) async fn begin(&self) {
        self.claims.lend();
        let has_daemons = device_plugin::has_daemons(&self.config.paths);
        if self.config.mode == Mode::Dra
            && !has_daemons
            && plugin_obstacle(&self.config).await.is_none()
        {
            self.claims.take_back();
        }
    }

    /// Follows the settings forever.
    pub(super) async fn follow(mut self, mut settings: watch::Receiver<Option<NodeSettings>>) {
        settings.mark_changed();
        let mut backoff = Backoff::new(WITHDRAWAL_INTERVAL, MAX_WITHDRAWAL_INTERVAL);
        loop {
            let read = settings.borrow_and_update().clone().filter(|read| read.is_read);
            let mut obstacle = None;
            if let Some(read) = read {
                set(&self.offering.plugin, |plugin| plugin.label = read.plugin_config);
                obstacle = self.step(read.mode).await;
                if read.mode == Mode::None && obstacle.is_none() && !self.has_left() {
                    leave::remove_plugin_specs(&self.config);
                }
                set(&self.reached, |reached| *reached = obstacle.is_none().then_some(read.mode));
                set(&self.offering.plugin, |plugin| plugin.is_known = true);
                let mut problems = Problems::default();
                if let Some(note) = obstacle.as_ref().and_then(|found| found.note(read.mode)) {
                    problems.add("ModeWaits", note);
                }
                problems::set(&self.problems, problems);
            }
            let pause = match &obstacle {
                None => None,
                Some(Obstacle::Withdrawal) => Some(backoff.next_delay()),
                Some(_) => Some(LOOK_INTERVAL),
            };
            if obstacle != Some(Obstacle::Withdrawal) {
                backoff.reset();
            }
            tokio::select! {
                changed = settings.changed() => if changed.is_err() { return },
                () = sleep_for(pause) => {}
            }
        }
    }

    /// Does what can be done now. `None`: the node is in its mode.
    async fn step(&mut self, mode: Mode) -> Option<Obstacle> {
        match mode {
            Mode::Dra => self.offer_slices().await,
            Mode::DevicePlugin => self.offer_resources().await,
            Mode::None => self.offer_nothing().await,
        }
    }

    async fn offer_slices(&mut self) -> Option<Obstacle> {
        if *self.offering.slices.borrow() == Some(true) {
            set(&self.offering.plugin, |plugin| plugin.is_offering = false);
            return None;
        }
        let obstacle = self.withdraw_resources().await;
        let slices = &self.offering.slices;
        match &obstacle {
            None => {
                self.claims.take_back();
                set(slices, |slices| *slices = Some(true));
            }
            // Nothing is known that an earlier agent did not know.
            Some(Obstacle::Unknown(_)) => {}
            Some(_) => {
                self.claims.lend();
                set(slices, |slices| *slices = Some(false));
            }
        }
        obstacle
    }

    async fn offer_resources(&self) -> Option<Obstacle> {
        let plugin = &self.offering.plugin;
        if plugin.borrow().is_offering {
            set(&self.offering.slices, |slices| *slices = Some(false));
            return None;
        }
        let obstacle = self.withdraw_slices().await;
        if obstacle.is_none() {
            set(plugin, |plugin| plugin.is_offering = true);
        }
        obstacle
    }

    fn has_left(&self) -> bool {
        *self.reached.borrow() == Some(Mode::None)
    }

    /// Once nothing is left, pods of another device plugin are not looked at: the node may be its own then.
    async fn offer_nothing(&mut self) -> Option<Obstacle> {
        if self.has_left() {
            return None;
        }
        let of_slices = self.withdraw_slices().await;
        match self.withdraw_resources().await {
            None | Some(Obstacle::OtherPlugin(_)) => of_slices,
            Some(Obstacle::Withdrawal) => of_slices.or(Some(Obstacle::Withdrawal)),
            of_resources => of_resources,
        }
    }

    /// Takes the devices out of the slices. Returns what keeps claims from being without GPUs.
    async fn withdraw_slices(&self) -> Option<Obstacle> {
        set(&self.offering.slices, |slices| *slices = Some(false));
        // From here on no claim gets a GPU, so none can come after the look at them.
        let held = self.claims.lend();
        if !held.is_empty() {
            let names = held.iter().map(|holding| holding.claim.to_string()).collect();
            return Some(Obstacle::Claims(names));
        }
        match published(&self.client, &self.config.node_name).await {
            Ok(devices) if devices.is_empty() => None,
            Ok(_) => Some(Obstacle::Withdrawal),
            Err(error) => Some(Obstacle::Unknown(error.to_string())),
        }
    }

    /// Lists no device to the kubelet. Returns what keeps pods from being without GPUs of a device plugin.
    async fn withdraw_resources(&mut self) -> Option<Obstacle> {
        let Offering { plugin, listed, listed_at, daemons, .. } = &mut self.offering;
        set(plugin, |plugin| plugin.is_offering = false);
        if !listed.borrow().resources().is_empty() {
            *listed_at = Some(Instant::now());
            return Some(Obstacle::Withdrawal);
        }
        let mut obstacle = plugin_obstacle(&self.config).await;
        // The GPUs of a daemon are exclusive to it.
        let are_gone = daemons.borrow().are_gone();
        let has_pods = !matches!(obstacle, None | Some(Obstacle::OtherPlugin(_)));
        if !has_pods && (!are_gone || device_plugin::has_daemons(&self.config.paths)) {
            obstacle = Some(Obstacle::Withdrawal);
        }
        let is_recent = listed_at.is_some_and(|time| time.elapsed() < WITHDRAWAL_TIME);
        if is_recent && matches!(obstacle, Some(Obstacle::OtherPlugin(_))) {
            obstacle = Some(Obstacle::Withdrawal);
        }
        obstacle
    }
}

fn set<T: Clone + PartialEq>(sender: &watch::Sender<T>, change: impl FnOnce(&mut T)) {
    sender.send_if_modified(|old| {
        let before = old.clone();
        change(old);
        *old != before
    });
}

/// What the kubelet has of device plugins.
async fn plugin_obstacle(config: &NodeConfig) -> Option<Obstacle> {
    match device_plugin::plugin_state(&config.paths).await {
        Ok(PluginState { pods, .. }) if !pods.is_empty() => {
            Some(Obstacle::Pods(pods.into_keys().collect()))
        }
        Ok(PluginState { offered, .. }) if !offered.is_empty() => {
            Some(Obstacle::OtherPlugin(offered.into_keys().collect()))
        }
        Ok(_) => None,
        Err(error) => Some(Obstacle::Unknown(format!("{error:#}"))),
    }
}

/// The devices that the API server has for the node's GPUs.
pub(super) async fn published(client: &Client, node: &str) -> kube::Result<Vec<Device>> {
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let driver = DraDriver::GPU.name();
    let ours = ListParams::default().fields(&format!("spec.driver={driver},spec.nodeName={node}"));
    let found = slices.list(&ours).await?;
    Ok(found.items.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default()).collect())
}

#[cfg(test)]
mod tests;
