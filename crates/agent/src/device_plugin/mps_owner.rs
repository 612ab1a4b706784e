//! Keeps the plugin's MPS daemons as the offer needs them.
//!
//! ```text
//! offer --daemons--> GPUs exclusive to one process --> spec of each daemon --> devices may be listed as healthy
//!       no longer:   pods end --> daemon ends --> GPUs shared again   --> devices may be listed otherwise
//! ```
//!
//! A daemon that is no longer wanted stays as long as pods have its devices: their programs may come and go. Its GPUs are offered
//! otherwise after their end, because a GPU is exclusive to its daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use octavo_node::NodePaths;
use octavo_node::mps::MpsSpec;
use tokio::sync::watch;

use super::mps::is_of_plugin;
use super::pod_resources::plugin_state;
use crate::claims::Claims;
use crate::mps::{MpsDaemons, MpsError};
use crate::pause::sleep_for;
use crate::problems::{self, Problems};

/// Intervals of looks at daemons: while one starts or ends, and otherwise. A daemon's end shows only in its files.
const LOOK: Duration = Duration::from_millis(50);
const HEALTH_LOOK: Duration = Duration::from_millis(500);
/// Most pods that an event names.
const NAMED_PODS: usize = 5;

/// Daemons by name.
pub(crate) type WantedDaemons = BTreeMap<String, MpsSpec>;

/// What the plugin's daemons are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PluginDaemons {
    /// Names of those that are wanted. They are here before anything is done for them.
    pub(crate) asked: BTreeSet<String>,
    /// Names of those that run as they should.
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
    pub(crate) wanted: watch::Receiver<WantedDaemons>,
    pub(crate) state: watch::Sender<PluginDaemons>,
    pub(crate) problems: watch::Sender<Problems>,
    /// GPUs that a daemon had, and has no longer after its next start.
    pub(crate) dropped: BTreeSet<String>,
}

impl MpsOwner {
    /// Keeps the daemons, forever.
    pub(crate) async fn run(mut self) {
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            self.state.send_if_modified(|old| {
                let asked: BTreeSet<String> = wanted.keys().cloned().collect();
                let is_new = asked.difference(&old.asked).next().is_some();
                old.asked.extend(asked);
                is_new
            });
            let mut problems = Problems::default();
            let state = match self.step(&wanted, &mut problems).await {
                Ok(state) => state,
                Err(error) => {
                    problems.add("MpsNotReady", error.to_string());
                    let known = self.state.borrow().clone();
                    PluginDaemons { ready: BTreeSet::new(), ..known }
                }
            };
            let is_done = state.leaving.is_empty() && state.ready.len() == wanted.len();
            let pause = match (is_done, problems.is_empty()) {
                (true, true) if wanted.is_empty() => None,
                (false, true) => Some(LOOK),
                // People and pods take longer.
                (true, true) | (_, false) => Some(HEALTH_LOOK),
            };
            self.state.send_if_modified(|old| std::mem::replace(old, state.clone()) != state);
            problems::set(&self.problems, problems);
            tokio::select! {
                changed = self.wanted.changed() => if changed.is_err() { return },
                () = sleep_for(pause) => {}
            }
        }
    }

    /// Does what can be done now.
    async fn step(
        &mut self,
        wanted: &WantedDaemons,
        problems: &mut Problems,
    ) -> Result<PluginDaemons, MpsError> {
        let names = self.daemons.names()?;
        let mut leaving = BTreeSet::new();
        for name in names.iter().filter(|name| is_of_plugin(name) && !wanted.contains_key(*name)) {
            let devices = self.end(name, problems).await?;
            leaving.extend(devices);
        }
        let mut ready = BTreeSet::new();
        for (name, spec) in wanted {
            // Two daemons cannot have one GPU.
            if spec.devices.iter().any(|device| leaving.contains(device)) {
                continue;
            }
            match self.ensure(name, spec).await {
                Ok(true) => {
                    ready.insert(name.clone());
                }
                Ok(false) => {}
                Err(problem) => {
                    problems.add("MpsNotReady", format!("MPS daemon {name}: {problem}"));
                }
            }
        }
        if ready.len() == wanted.len() && !self.dropped.is_empty() {
            let used: BTreeSet<&String> = wanted.values().flat_map(|spec| &spec.devices).collect();
            self.dropped.retain(|device| !used.contains(device));
            for gpu in std::mem::take(&mut self.dropped) {
                self.share(&gpu).await?;
            }
        }
        Ok(PluginDaemons { asked: wanted.keys().cloned().collect(), ready, leaving })
    }

    /// Whether a daemon runs as it should. If it does not, it is asked to.
    async fn ensure(&mut self, name: &str, spec: &MpsSpec) -> Result<bool, MpsError> {
        if self.daemons.is_ready(name, spec)? {
            return Ok(true);
        }
        for gpu in spec.devices.iter().filter(|device| is_gpu(device)) {
            self.claims.set_exclusive(gpu, true).await.map_err(MpsError::Failed)?;
        }
        let before = self.daemons.spec(name).map(|spec| spec.devices).unwrap_or_default();
        let gone =
            before.into_iter().filter(|device| is_gpu(device) && !spec.devices.contains(device));
        self.dropped.extend(gone);
        self.daemons.ask(name, spec)
    }

    /// Ends a daemon that is not wanted. Returns its devices as long as it has not ended.
    async fn end(&self, name: &str, problems: &mut Problems) -> Result<Vec<String>, MpsError> {
        let spec = self.daemons.spec(name).unwrap_or_default();
        let why = match self.pods(&spec).await {
            Ok(None) => self.daemons.end_without_clients(name)?,
            Ok(Some(pods)) => Some(pods),
            Err(error) => Some(format!("it is not known which pods have its devices: {error:#}")),
        };
        if let Some(why) = why {
            // A daemon that is about to end is no problem.
            if !why.is_empty() {
                let note = format!("MPS daemon {name} is no longer wanted and stays: {why}");
                problems.add("MpsDaemonStays", note);
            }
            return Ok(spec.devices);
        }
        for gpu in spec.devices.iter().filter(|device| is_gpu(device)) {
            self.share(gpu).await?;
        }
        // Last: its devices are in it.
        self.daemons.remove(name)?;
        Ok(Vec::new())
    }

    /// Which pods have devices of a daemon, in words.
    async fn pods(&self, spec: &MpsSpec) -> anyhow::Result<Option<String>> {
        let pods = plugin_state(&self.paths).await?.pods;
        let is_holder = |uuids: &BTreeSet<String>| spec.devices.iter().any(|it| uuids.contains(it));
        let holders: Vec<&str> = pods
            .iter()
            .filter(|(_, uuids)| is_holder(uuids))
            .map(|(pod, _)| pod.as_str())
            .collect();
        if holders.is_empty() {
            return Ok(None);
        }
        let named = holders.iter().take(NAMED_PODS).copied().collect::<Vec<_>>().join(", ");
        let more = holders.len().saturating_sub(NAMED_PODS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Ok(Some(format!("{} pods have its devices: {named}{more}", holders.len())))
    }

    async fn share(&self, gpu: &str) -> Result<(), MpsError> {
        self.claims.set_exclusive(gpu, false).await.map_err(MpsError::Failed)
    }
}

/// Whether a device is a whole GPU. The mode of a GPU with MIG devices would bind the programs of the other ones.
fn is_gpu(uuid: &str) -> bool {
    uuid.starts_with("GPU-")
}
