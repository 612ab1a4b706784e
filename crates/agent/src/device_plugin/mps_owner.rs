//! Keeps the plugin's MPS daemons as the offer needs them.
//!
//! ```text
//! offer --daemons--> GPUs exclusive to one process --> spec of each daemon --> devices may be listed as healthy
//!       no longer:   pods end --> daemon ends --> GPUs shared again   --> devices may be listed otherwise
//! ```
//!
//! A daemon that is no longer wanted stays as long as pods have its devices: their programs may come and go. Its GPUs are offered
//! otherwise after their end, because a GPU is exclusive to its daemon. For the same reason a GPU gets a daemon only once no pod has
//! it otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use octavo_node::NodePaths;
use octavo_node::mps::{MpsEnd, MpsSettings};
use tokio::sync::watch;

use super::mps::is_of_plugin;
use super::pod_resources::plugin_state;
use crate::claims::Claims;
use crate::mps::{MpsDaemons, MpsError, MpsState, is_gpu};
use crate::pause::sleep_for;
use crate::problems::{self, Problems};

/// Intervals of looks at daemons: while one starts or ends, and otherwise. A daemon's end shows only in its files.
const LOOK: Duration = Duration::from_millis(50);
const HEALTH_LOOK: Duration = Duration::from_millis(500);
/// Most pods that an event names.
const NAMED_PODS: usize = 5;

/// Daemons by name.
pub(crate) type WantedDaemons = BTreeMap<String, MpsSettings>;

/// What the plugin's daemons are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PluginDaemons {
    /// Names of those that are wanted. They are here before anything is done for them.
    pub(crate) asked: BTreeSet<String>,
    /// Names of those that serve clients as they should.
    pub(crate) ready: BTreeSet<String>,
    /// UUIDs of GPUs and MIG devices whose daemon is not wanted and has not ended yet.
    pub(crate) leaving: BTreeSet<String>,
}

impl PluginDaemons {
    /// Whether there is none, but for those of an earlier agent.
    pub(crate) fn are_gone(&self) -> bool {
        self.asked.is_empty() && self.leaving.is_empty()
    }
}

/// Keeps the daemons.
pub(crate) struct MpsOwner {
    pub(crate) paths: NodePaths,
    pub(crate) claims: Claims,
    pub(crate) daemons: MpsDaemons,
    /// `None` until it is known which daemons are wanted.
    pub(crate) wanted: watch::Receiver<Option<WantedDaemons>>,
    pub(crate) state: watch::Sender<PluginDaemons>,
    pub(crate) problems: watch::Sender<Problems>,
}

impl MpsOwner {
    /// Keeps the daemons, forever.
    pub(crate) async fn run(mut self) {
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            let mut pause = None;
            if let Some(wanted) = wanted {
                self.state.send_if_modified(|old| {
                    let asked: BTreeSet<String> = wanted.keys().cloned().collect();
                    let is_new = asked.difference(&old.asked).next().is_some();
                    old.asked.extend(asked);
                    is_new
                });
                let mut problems = Problems::default();
                let state = self.step(&wanted, &mut problems).await;
                let is_done = state.leaving.is_empty() && state.ready.len() == wanted.len();
                pause = match (is_done, problems.is_empty()) {
                    (true, true) if wanted.is_empty() => None,
                    (false, true) => Some(LOOK),
                    // People and pods take longer.
                    (true, true) | (_, false) => Some(HEALTH_LOOK),
                };
                self.state.send_if_modified(|old| std::mem::replace(old, state.clone()) != state);
                problems::set(&self.problems, problems);
            }
            tokio::select! {
                changed = self.wanted.changed() => if changed.is_err() { return },
                () = sleep_for(pause) => {}
            }
        }
    }

    /// Does what can be done now. A problem of one daemon does not concern the others.
    async fn step(&self, wanted: &WantedDaemons, problems: &mut Problems) -> PluginDaemons {
        let mut problem = |reason, name: &str, note: String| {
            problems.set_of(reason, name, Some(format!("MPS daemon {name}: {note}")));
        };
        let names = self.daemons.names().unwrap_or_else(|error| {
            problem("MpsNotReady", "all", error.to_string());
            Vec::new()
        });
        let mut leaving = BTreeSet::new();
        for name in names.iter().filter(|name| is_of_plugin(name) && !wanted.contains_key(*name)) {
            let devices = self.daemons.devices(name);
            match self.end(name, &devices).await {
                Ok(None) => continue,
                // A daemon that is about to end is no problem.
                Ok(Some(why)) if why.is_empty() => {}
                Ok(Some(why)) => {
                    problem(
                        "MpsDaemonStays",
                        name,
                        format!("it is no longer wanted and stays: {why}"),
                    );
                }
                Err(error) => problem("MpsNotReady", name, error.to_string()),
            }
            leaving.extend(devices);
        }
        let mut ready = BTreeSet::new();
        for (name, settings) in wanted {
            // Two daemons cannot have one GPU.
            if settings.devices.iter().any(|device| leaving.contains(device)) {
                continue;
            }
            match self.keep(name, settings, !names.contains(name)).await {
                Ok(None) => {
                    ready.insert(name.clone());
                }
                Ok(Some(why)) if why.is_empty() => {}
                Ok(Some(why)) => problem("MpsNotReady", name, why),
                Err(error) => problem("MpsNotReady", name, error.to_string()),
            }
        }
        PluginDaemons { asked: wanted.keys().cloned().collect(), ready, leaving }
    }

    /// Keeps a daemon. `None`: it serves clients as it should; otherwise why not, which may be empty.
    async fn keep(
        &self,
        name: &str,
        settings: &MpsSettings,
        is_new: bool,
    ) -> Result<Option<String>, MpsError> {
        if is_new && let Some(why) = self.pods(&settings.devices.iter().cloned().collect()).await {
            return Ok(Some(format!("{why}, and use them without it; it starts after their end")));
        }
        let mut failed = None;
        // Before it runs. A reset of a GPU ends its daemon, too.
        if !self.state.borrow().ready.contains(name) {
            for gpu in settings.devices.iter().filter(|device| is_gpu(device)) {
                // The daemon serves the others.
                failed = self.claims.set_exclusive(gpu, true).await.err().or(failed);
            }
        }
        if let MpsState::Waits(why) = self.daemons.ask(name, settings)? {
            return Ok(Some(why.or(failed).unwrap_or_default()));
        }
        let dropped = self.daemons.dropped(name)?;
        for gpu in dropped.iter().filter(|device| is_gpu(device)) {
            self.share(gpu).await?;
        }
        if !dropped.is_empty() {
            self.daemons.forget(name, &dropped)?;
        }
        Ok(None)
    }

    /// Ends a daemon that is not wanted. `None`: it has ended; otherwise why not, which may be empty.
    async fn end(
        &self,
        name: &str,
        devices: &BTreeSet<String>,
    ) -> Result<Option<String>, MpsError> {
        if let Some(pods) = self.pods(devices).await {
            return Ok(Some(pods));
        }
        if let MpsState::Waits(why) = self.daemons.ask_end(name, MpsEnd::WithoutClients)? {
            return Ok(Some(why.unwrap_or_default()));
        }
        for gpu in devices.iter().filter(|device| is_gpu(device)) {
            self.share(gpu).await?;
        }
        // Last: its devices are in it.
        self.daemons.remove(name)?;
        Ok(None)
    }

    /// Which pods have some of these devices, in words; `None`: none has.
    async fn pods(&self, devices: &BTreeSet<String>) -> Option<String> {
        let pods = match plugin_state(&self.paths).await {
            Ok(state) => state.pods,
            Err(error) => {
                return Some(format!("it is not known which pods have its devices: {error:#}"));
            }
        };
        let holders: Vec<&str> = pods
            .iter()
            .filter(|(_, uuids)| !uuids.is_disjoint(devices))
            .map(|(pod, _)| pod.as_str())
            .collect();
        if holders.is_empty() {
            return None;
        }
        let named = holders.iter().take(NAMED_PODS).copied().collect::<Vec<_>>().join(", ");
        let more = holders.len().saturating_sub(NAMED_PODS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Some(format!("{} pods have its devices: {named}{more}", holders.len()))
    }

    async fn share(&self, gpu: &str) -> Result<(), MpsError> {
        self.claims.set_exclusive(gpu, false).await.map_err(MpsError::Failed)
    }
}
