//! What a node's agent and the program of its MPS daemons say to each other, by files.
//!
//! ```text
//! /run/octavo/mps/lock                  locked by the program while it runs
//! /run/octavo/mps/<daemon>/spec.json    by the agent: what the daemon should be
//! /run/octavo/mps/<daemon>/status.json  by the program: what it is
//! /run/octavo/mps/<daemon>/private      where the daemon runs; its sockets are here
//! /run/octavo/mps/<daemon>/pipe         links to the sockets that clients use, which clients cannot change
//! /run/octavo/mps/<daemon>/shm          shared memory of the daemon and its clients
//! ```
//!
//! Both programs may end and start at any time: the files say all that the other needs. The program may be older than the agent, since
//! its pod is not replaced by an update. So a reader ignores fields that it does not know.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::files::{StorageError, write_atomically};

const SPEC: &str = "spec.json";
const STATUS: &str = "status.json";
const LOCK: &str = "lock";

/// The folder of all daemons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MpsFolder(PathBuf);

/// The folder of one daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MpsDaemonFolder(PathBuf);

/// What a daemon should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MpsSpec {
    /// What its clients use.
    #[serde(flatten)]
    pub settings: MpsSettings,
    /// When it ends.
    #[serde(default)]
    pub ends: MpsEnd,
    /// UUIDs of GPUs that it had before: the agent shares them again once it runs without them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub former_devices: BTreeSet<String>,
}

/// What the clients of a daemon use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MpsSettings {
    /// UUIDs of the GPUs that clients use, or of one MIG device.
    pub devices: Vec<String>,
    /// Most of a GPU's threads for each client, 1 to 100 percent; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_thread_percentage: Option<u8>,
    /// Most memory for each client on a device, in MiB, by UUID.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub memory_limits_mib: BTreeMap<String, u64>,
    /// Whether clients of several users use one server.
    #[serde(default)]
    pub multi_user: bool,
}

/// When a daemon ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MpsEnd {
    /// Not at all.
    #[default]
    Never,
    /// As soon as it has no clients.
    WithoutClients,
    /// Now. Clients fail.
    Now,
}

/// What a daemon is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MpsStatus {
    /// What it runs with; `None`: it does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<MpsSettings>,
    /// Why it is not what it should be, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Whether it has ended, as it should.
    #[serde(default)]
    pub has_ended: bool,
}

impl MpsSettings {
    /// Whether a daemon with these settings serves clients for which others are wanted: it may have more devices.
    pub fn serves(&self, wanted: &Self) -> bool {
        let limit =
            |settings: &Self, device: &String| settings.memory_limits_mib.get(device).copied();
        self.active_thread_percentage == wanted.active_thread_percentage
            && self.multi_user == wanted.multi_user
            && wanted.devices.iter().all(|device| {
                self.devices.contains(device) && limit(self, device) == limit(wanted, device)
            })
    }
}

impl MpsFolder {
    /// The folder, below the run folder of a node.
    pub fn below(run_root: &Path) -> Self {
        Self(run_root.join("octavo/mps"))
    }

    /// The folder with this path.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The folder of a daemon.
    pub fn daemon(&self, name: &str) -> MpsDaemonFolder {
        MpsDaemonFolder(self.0.join(name))
    }

    /// Names of the daemons that have a folder, in order.
    ///
    /// # Errors
    ///
    /// The folder cannot be read. A missing one has none.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                names.extend(entry.file_name().into_string().ok());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Takes the lock of the program; `None`: another program has it.
    ///
    /// # Errors
    ///
    /// The folder or the file cannot be made.
    pub fn lock(&self) -> io::Result<Option<File>> {
        fs::create_dir_all(&self.0)?;
        let file = File::create(self.0.join(LOCK))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// Whether the program runs.
    ///
    /// # Errors
    ///
    /// The lock cannot be read.
    pub fn is_served(&self) -> io::Result<bool> {
        let file = match File::open(self.0.join(LOCK)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(fs::TryLockError::WouldBlock) => Ok(true),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

impl MpsDaemonFolder {
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The folder of the sockets that clients use.
    pub fn pipe(&self) -> PathBuf {
        self.0.join("pipe")
    }

    /// The folder that daemon and clients have as `/dev/shm`.
    pub fn shm(&self) -> PathBuf {
        self.0.join("shm")
    }

    /// The folder in which the daemon runs. Clients do not have it.
    pub fn private(&self) -> PathBuf {
        self.0.join("private")
    }

    /// What the daemon should be; `None`: nothing says so.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is damaged.
    pub fn spec(&self) -> io::Result<Option<MpsSpec>> {
        read(&self.0.join(SPEC))
    }

    /// Says what the daemon should be, if the file does not say so yet.
    ///
    /// # Errors
    ///
    /// The folder or the file cannot be written.
    pub fn set_spec(&self, spec: &MpsSpec) -> Result<(), StorageError> {
        let make = StorageError::of("make", &self.0);
        fs::create_dir_all(&self.0).map_err(make)?;
        self.write(SPEC, spec)
    }

    /// What the daemon is.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is damaged. A missing one says that it does not run.
    pub fn status(&self) -> io::Result<MpsStatus> {
        Ok(read(&self.0.join(STATUS))?.unwrap_or_default())
    }

    /// Says what the daemon is, if the file does not say so yet. A folder that is gone has no reader.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn set_status(&self, status: &MpsStatus) -> Result<(), StorageError> {
        if self.0.is_dir() { self.write(STATUS, status) } else { Ok(()) }
    }

    /// Removes the folder. A missing one is no error.
    ///
    /// # Errors
    ///
    /// A file cannot be removed.
    pub fn remove(&self) -> Result<(), StorageError> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StorageError { action: "remove", path: self.0.clone(), error })
            }
            _ => Ok(()),
        }
    }

    fn write<T: Serialize + DeserializeOwned + PartialEq>(
        &self,
        name: &str,
        value: &T,
    ) -> Result<(), StorageError> {
        let path = self.0.join(name);
        if read::<T>(&path).is_ok_and(|known| known.as_ref() == Some(value)) {
            return Ok(());
        }
        let text = serde_json::to_vec(value)
            .map_err(|error| StorageError::of("write", &path)(error.into()))?;
        // The folder is empty after each boot.
        write_atomically(&path, &text, false)
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_read_what_the_other_wrote() {
        let root = tempfile::tempdir().unwrap();
        let folder = MpsFolder::below(root.path());
        assert_eq!(folder.names().unwrap(), Vec::<String>::new());
        assert!(!folder.is_served().unwrap());
        let daemon = folder.daemon("claim-0");
        assert_eq!(
            (daemon.spec().unwrap(), daemon.status().unwrap()),
            (None, MpsStatus::default())
        );
        let settings = MpsSettings { devices: vec!["GPU-1".to_owned()], ..MpsSettings::default() };
        let spec = MpsSpec { settings: settings.clone(), ..MpsSpec::default() };
        daemon.set_status(&MpsStatus { has_ended: true, ..MpsStatus::default() }).unwrap();
        assert!(!daemon.path().exists(), "only the agent makes the folder");
        daemon.set_spec(&spec).unwrap();
        assert_eq!(daemon.spec().unwrap().as_ref(), Some(&spec));
        let status = MpsStatus { running: Some(settings), ..MpsStatus::default() };
        daemon.set_status(&status).unwrap();
        assert_eq!(daemon.status().unwrap(), status);
        let lock = folder.lock().unwrap();
        assert!(lock.is_some() && folder.lock().unwrap().is_none() && folder.is_served().unwrap());
        drop(lock);
        assert!(!folder.is_served().unwrap());
        assert_eq!(folder.names().unwrap(), ["claim-0"]);
        daemon.remove().unwrap();
        daemon.remove().unwrap();
        assert_eq!(folder.names().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_daemon_with_more_devices_serves_those_that_are_wanted() {
        let settings = |devices: &[&str], limit| MpsSettings {
            devices: devices.iter().map(|&device| device.to_owned()).collect(),
            memory_limits_mib: devices.iter().map(|&it| (it.to_owned(), limit)).collect(),
            ..MpsSettings::default()
        };
        let running = settings(&["a", "b"], 10);
        assert!(running.serves(&running) && running.serves(&settings(&["b"], 10)));
        for other in [settings(&["b"], 20), settings(&["c"], 10), settings(&["a", "c"], 10)] {
            assert!(!running.serves(&other), "{other:?}");
        }
        let part = MpsSettings { active_thread_percentage: Some(50), ..running.clone() };
        assert!(!running.serves(&part) && !part.serves(&running));
    }

    #[test]
    fn fields_of_a_later_version_are_ignored() {
        let root = tempfile::tempdir().unwrap();
        let daemon = MpsFolder::below(root.path()).daemon("claim-0");
        daemon.set_spec(&MpsSpec::default()).unwrap();
        let text = r#"{"devices": ["GPU-1"], "ends": "now", "colour": "blue"}"#;
        fs::write(daemon.path().join(SPEC), text).unwrap();
        let spec = daemon.spec().unwrap().unwrap();
        assert_eq!((spec.settings.devices, spec.ends), (vec!["GPU-1".to_owned()], MpsEnd::Now));
    }

    #[test]
    fn a_damaged_file_is_an_error_and_not_an_answer() {
        let root = tempfile::tempdir().unwrap();
        let daemon = MpsFolder::below(root.path()).daemon("claim-0");
        daemon.set_spec(&MpsSpec::default()).unwrap();
        fs::write(daemon.path().join(SPEC), "{\"devices\": [").unwrap();
        assert!(daemon.spec().is_err());
        daemon.set_spec(&MpsSpec::default()).unwrap();
        assert_eq!(daemon.spec().unwrap(), Some(MpsSpec::default()));
    }
}
