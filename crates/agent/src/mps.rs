//! The MPS daemons of a node, as its agent asks for them. `octavo mps-daemon` runs them: a daemon must outlive the agent, since its end
//! ends its clients.

use std::time::{Duration, Instant};

use octavo_node::mps::{MpsEnd, MpsFolder, MpsSpec, MpsStatus};
use rustix::mount::{UnmountFlags, unmount};

/// Time for a daemon to start or to end.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Intervals of looks at it: at first, and at most.
const LOOK: Duration = Duration::from_millis(5);
const MAX_LOOK: Duration = Duration::from_millis(200);

/// The daemons of a node. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct MpsDaemons {
    folder: MpsFolder,
}

/// Why a daemon is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MpsError {
    /// Nothing runs daemons.
    #[error(
        "no `octavo mps-daemon` runs on it; set `agent.mps.enabled` in the values of the chart"
    )]
    NotServed,
    /// The daemon has not become so in time.
    #[error("it is not {0} after {seconds} s", seconds = TIMEOUT.as_secs())]
    Slow(&'static str),
    /// The program says why.
    #[error("{0}")]
    Failed(String),
    /// A file fails.
    #[error("{0}")]
    File(String),
}

impl MpsDaemons {
    pub(crate) fn new(folder: MpsFolder) -> Self {
        Self { folder }
    }

    /// The folder of the daemons' files.
    pub(crate) fn folder(&self) -> &MpsFolder {
        &self.folder
    }

    /// Names of all daemons.
    pub(crate) fn names(&self) -> Result<Vec<String>, MpsError> {
        self.folder.names().map_err(file)
    }

    /// What a daemon should be, if that is known.
    pub(crate) fn spec(&self, name: &str) -> Option<MpsSpec> {
        self.folder.daemon(name).spec().ok().flatten()
    }

    /// Whether a daemon runs as it should.
    pub(crate) fn is_ready(&self, name: &str, spec: &MpsSpec) -> Result<bool, MpsError> {
        let status = self.folder.daemon(name).status().map_err(file)?;
        Ok(status.running.as_ref() == Some(spec) && self.folder.is_served().map_err(file)?)
    }

    /// Asks for a daemon, and says whether it runs as it should already.
    pub(crate) fn ask(&self, name: &str, spec: &MpsSpec) -> Result<bool, MpsError> {
        let daemon = self.folder.daemon(name);
        daemon.set_spec(spec).map_err(file)?;
        if !self.folder.is_served().map_err(file)? {
            return Err(MpsError::NotServed);
        }
        let status = daemon.status().map_err(file)?;
        match status.problem {
            _ if status.running.as_ref() == Some(spec) => Ok(true),
            Some(problem) => Err(MpsError::Failed(problem)),
            None => Ok(false),
        }
    }

    /// Ends a daemon as soon as it has no clients. `None`: it has ended. Otherwise why it has not; empty if it is about to.
    pub(crate) fn end_without_clients(&self, name: &str) -> Result<Option<String>, MpsError> {
        let daemon = self.folder.daemon(name);
        let spec = daemon.spec().ok().flatten().unwrap_or_default();
        daemon.set_spec(&MpsSpec { ends: MpsEnd::WithoutClients, ..spec }).map_err(file)?;
        let status = daemon.status().map_err(file)?;
        // The processes of a program that has ended have ended, too.
        if status.has_ended || !self.folder.is_served().map_err(file)? {
            return Ok(None);
        }
        Ok(Some(status.problem.unwrap_or_default()))
    }

    /// Waits until a daemon runs as it should. What was asked for stays so on failure.
    pub(crate) async fn ensure(&self, name: &str, spec: &MpsSpec) -> Result<(), MpsError> {
        self.folder.daemon(name).set_spec(spec).map_err(file)?;
        self.wait(name, "ready", |status| status.running.as_ref() == Some(spec)).await
    }

    /// Ends a daemon, whatever its clients, and waits for its end. A daemon that is unknown has ended.
    pub(crate) async fn end(&self, name: &str) -> Result<(), MpsError> {
        let daemon = self.folder.daemon(name);
        // A damaged file is replaced by one that says nothing but the end.
        let spec = match daemon.spec() {
            Ok(None) if !daemon.path().exists() => return Ok(()),
            spec => spec.ok().flatten().unwrap_or_default(),
        };
        daemon.set_spec(&MpsSpec { ends: MpsEnd::Now, ..spec }).map_err(file)?;
        match self.wait(name, "ended", |status| status.has_ended).await {
            // Its processes ended with the program.
            Ok(()) | Err(MpsError::NotServed) => self.remove(name),
            Err(error) => Err(error),
        }
    }

    /// Removes the files of a daemon that has ended.
    pub(crate) fn remove(&self, name: &str) -> Result<(), MpsError> {
        let daemon = self.folder.daemon(name);
        // The program unmounts it, unless it was killed.
        let _ = unmount(daemon.shm(), UnmountFlags::DETACH);
        daemon.remove().map_err(file)
    }

    async fn wait(
        &self,
        name: &str,
        what: &'static str,
        is_so: impl Fn(&MpsStatus) -> bool,
    ) -> Result<(), MpsError> {
        let (daemon, end) = (self.folder.daemon(name), Instant::now() + TIMEOUT);
        let mut look = LOOK;
        loop {
            let status = daemon.status().map_err(file)?;
            if is_so(&status) {
                return Ok(());
            }
            if !self.folder.is_served().map_err(file)? {
                return Err(MpsError::NotServed);
            }
            if Instant::now() >= end {
                return Err(status.problem.map_or(MpsError::Slow(what), MpsError::Failed));
            }
            tokio::time::sleep(look).await;
            look = (look * 2).min(MAX_LOOK);
        }
    }
}

fn file(error: impl std::fmt::Display) -> MpsError {
    MpsError::File(error.to_string())
}
