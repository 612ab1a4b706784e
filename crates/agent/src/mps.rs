//! The MPS daemons of a node, as its agent asks for them. `octavo mps-daemon` runs them: a daemon must outlive the agent, since its end
//! ends its clients.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use octavo_node::NodePaths;
use octavo_node::mps::{MpsDaemonFolder, MpsEnd, MpsFolder, MpsSettings, MpsSpec};
use rustix::mount::{UnmountFlags, unmount};

/// Time for daemons to start or to end.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Intervals of looks at them: at first, and at most.
const LOOK: Duration = Duration::from_millis(5);
const MAX_LOOK: Duration = Duration::from_millis(200);

/// The daemons of a node. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct MpsDaemons {
    folder: MpsFolder,
}

/// Whether a daemon is what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MpsState {
    /// It is: it serves its clients, or it has ended.
    Done,
    /// Not yet; why, if the program says so.
    Waits(Option<String>),
}

/// Why a daemon is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MpsError {
    /// Nothing runs daemons.
    #[error(
        "nothing on the node runs MPS daemons; set `agent.mps.enabled` in the values of the chart"
    )]
    NotServed,
    /// The daemon has not become so in time.
    #[error("it is not what it should be after {seconds} s", seconds = TIMEOUT.as_secs())]
    Slow,
    /// The program says why.
    #[error("{0}")]
    Failed(String),
    /// A file fails.
    #[error("{0}")]
    File(String),
}

impl MpsDaemons {
    /// The daemons of a node.
    pub(crate) fn of(paths: &NodePaths) -> Self {
        Self { folder: MpsFolder::below(&paths.run_root) }
    }

    /// Names of all daemons.
    pub(crate) fn names(&self) -> Result<Vec<String>, MpsError> {
        self.folder.names().map_err(file)
    }

    /// What a daemon should be, if that is known.
    pub(crate) fn spec(&self, name: &str) -> Option<MpsSpec> {
        self.folder.daemon(name).spec().ok().flatten()
    }

    /// UUIDs of what a daemon has, or had: as its agent and as its program wrote them.
    pub(crate) fn devices(&self, name: &str) -> BTreeSet<String> {
        let daemon = self.folder.daemon(name);
        let spec = daemon.spec().ok().flatten().unwrap_or_default();
        let running = daemon.status().ok().and_then(|status| status.running).unwrap_or_default();
        let now = spec.settings.devices.into_iter().chain(running.devices);
        now.chain(spec.former_devices).collect()
    }

    /// Asks for a daemon, and says whether it serves clients as it should.
    pub(crate) fn ask(&self, name: &str, settings: &MpsSettings) -> Result<MpsState, MpsError> {
        let daemon = self.folder.daemon(name);
        let before = daemon.spec().ok().flatten().unwrap_or_default();
        let mut former_devices = before.former_devices;
        former_devices.extend(before.settings.devices);
        former_devices.retain(|device| !settings.devices.contains(device));
        let spec = MpsSpec { settings: settings.clone(), ends: MpsEnd::Never, former_devices };
        daemon.set_spec(&spec).map_err(file)?;
        self.state(&daemon, |status| {
            status.running.as_ref().is_some_and(|running| running.serves(settings))
        })
    }

    /// Devices that a daemon had and no longer has, as it runs without them.
    pub(crate) fn dropped(&self, name: &str) -> Result<BTreeSet<String>, MpsError> {
        let daemon = self.folder.daemon(name);
        let mut dropped = self.spec(name).unwrap_or_default().former_devices;
        if !dropped.is_empty() {
            let running = daemon.status().map_err(file)?.running.unwrap_or_default();
            dropped.retain(|device| !running.devices.contains(device));
        }
        Ok(dropped)
    }

    /// Forgets devices that a daemon had.
    pub(crate) fn forget(&self, name: &str, devices: &BTreeSet<String>) -> Result<(), MpsError> {
        let daemon = self.folder.daemon(name);
        let Some(mut spec) = daemon.spec().map_err(file)? else { return Ok(()) };
        spec.former_devices.retain(|device| !devices.contains(device));
        daemon.set_spec(&spec).map_err(file)
    }

    /// Asks for the end of a daemon, and says whether it has ended. Its files stay until [`MpsDaemons::remove`].
    pub(crate) fn ask_end(&self, name: &str, ends: MpsEnd) -> Result<MpsState, MpsError> {
        let daemon = self.folder.daemon(name);
        if !daemon.path().exists() {
            return Ok(MpsState::Done);
        }
        // A damaged file is replaced by one that says nothing but the end.
        let spec = daemon.spec().ok().flatten().unwrap_or_default();
        daemon.set_spec(&MpsSpec { ends, ..spec }).map_err(file)?;
        match self.state(&daemon, |status| status.has_ended && status.running.is_none()) {
            // Its processes end with the program.
            Err(MpsError::NotServed) => Ok(MpsState::Done),
            state => state,
        }
    }

    /// Waits until daemons serve clients as they should. What was asked for stays so on failure.
    pub(crate) async fn ensure(
        &self,
        wanted: impl Iterator<Item = (String, MpsSettings)>,
    ) -> Result<(), MpsError> {
        let wanted: Vec<_> = wanted.collect();
        wait(|| all(wanted.iter().map(|(name, settings)| self.ask(name, settings)))).await
    }

    /// Ends daemons, whatever their clients, and waits for their end. One that is unknown has ended.
    pub(crate) async fn end(&self, names: &BTreeSet<String>) -> Result<(), MpsError> {
        wait(|| all(names.iter().map(|name| self.ask_end(name, MpsEnd::Now)))).await
    }

    /// Removes the files of a daemon that has ended.
    pub(crate) fn remove(&self, name: &str) -> Result<(), MpsError> {
        let daemon = self.folder.daemon(name);
        // The program unmounts it, unless it was killed.
        let _ = unmount(daemon.shm(), UnmountFlags::DETACH);
        daemon.remove().map_err(file)
    }

    fn state(
        &self,
        daemon: &MpsDaemonFolder,
        is_so: impl FnOnce(&octavo_node::mps::MpsStatus) -> bool,
    ) -> Result<MpsState, MpsError> {
        // Before the status: that of a program which was killed is no longer so.
        if !self.folder.is_served().map_err(file)? {
            return Err(MpsError::NotServed);
        }
        let status = daemon.status().map_err(file)?;
        Ok(if is_so(&status) { MpsState::Done } else { MpsState::Waits(status.problem) })
    }
}

/// The state of several daemons: done if all are. Each is asked, whatever the others are.
fn all(states: impl Iterator<Item = Result<MpsState, MpsError>>) -> Result<MpsState, MpsError> {
    let states: Vec<_> = states.collect();
    let mut all = MpsState::Done;
    for state in states {
        match (state?, &all) {
            (MpsState::Done, _) | (MpsState::Waits(None), MpsState::Waits(_)) => {}
            (waits, _) => all = waits,
        }
    }
    Ok(all)
}

async fn wait(mut ask: impl FnMut() -> Result<MpsState, MpsError>) -> Result<(), MpsError> {
    let (end, mut look) = (Instant::now() + TIMEOUT, LOOK);
    loop {
        match ask()? {
            MpsState::Done => return Ok(()),
            MpsState::Waits(why) if Instant::now() >= end => {
                return Err(why.map_or(MpsError::Slow, MpsError::Failed));
            }
            MpsState::Waits(_) => {}
        }
        tokio::time::sleep(look).await;
        look = (look * 2).min(MAX_LOOK);
    }
}

/// Whether a device is a whole GPU. The mode of a GPU with MIG devices would bind the programs of the other ones.
pub(crate) fn is_gpu(uuid: &str) -> bool {
    uuid.starts_with("GPU-")
}

fn file(error: impl std::fmt::Display) -> MpsError {
    MpsError::File(error.to_string())
}
