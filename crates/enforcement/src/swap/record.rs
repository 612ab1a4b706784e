//! The record of a share's processes that are on the host, or on their way. It lies beside the share's folder, whose file system a
//! container can fill, and lasts for one boot. It is written before the first step and removed after the last one: an agent that was
//! killed in between leaves no process behind.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use octavo_node::files::{StorageError, write_atomically};
use serde::{Deserialize, Serialize};

use crate::process::Process;
use crate::process::proc::Proc;

/// What is recorded of a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    /// Its processes, in the order in which they were moved.
    pub(super) processes: Vec<RecordedProcess>,
    /// Memory of the GPU that they had, in bytes.
    pub(super) bytes: u64,
    /// Memory that stays on the GPU, in bytes.
    #[serde(default, alias = "rest")]
    pub(super) staying: u64,
}

/// A process. A number alone may be that of another one by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordedProcess {
    pid: u32,
    start_time: u64,
}

impl From<Process> for RecordedProcess {
    fn from(Process { pid, start_time }: Process) -> Self {
        Self { pid, start_time }
    }
}

impl From<RecordedProcess> for Process {
    fn from(RecordedProcess { pid, start_time }: RecordedProcess) -> Self {
        Self { pid, start_time }
    }
}

impl RecordedProcess {
    /// Whether it has not ended. Another process may have its number by now, and one that has ended keeps its own until its parent asks.
    pub(super) fn is_there(self, proc: &Proc) -> bool {
        proc.stat(self.pid).is_ok_and(|stat| stat.start_time == self.start_time)
            && !proc.is_ending(self.pid)
    }
}

impl Record {
    /// Writes it for the share with this folder.
    pub(super) fn write(&self, folder: &Path) -> Result<(), StorageError> {
        // The type holds numbers only, so serialization cannot fail.
        write_atomically(&path(folder), &serde_json::to_vec(self).unwrap_or_default(), false)
    }

    /// That of a share; `None` if no process of it was moved. A record that cannot be read is none.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path(folder)).ok()?).ok()
    }
}

/// Removes the record of the share with this folder, if there is one. The file that a move locks stays: another move may wait for it.
pub(crate) fn remove_record(folder: &Path) -> io::Result<()> {
    remove(&path(folder))
}

/// Removes all files beside the folder of a share that is given back.
pub(crate) fn forget(folder: &Path) -> io::Result<()> {
    remove(&path(folder))?;
    remove(&lock_path(folder))
}

/// The file that a move of a share locks.
pub(super) fn lock_path(folder: &Path) -> PathBuf {
    beside(folder, "moving")
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Processes of a share that are on the host, or on their way, and have not ended.
pub(crate) fn living(folder: &Path, proc: &Proc) -> usize {
    let processes = Record::read(folder).map(|record| record.processes).unwrap_or_default();
    processes.into_iter().filter(|process| process.is_there(proc)).count()
}

/// Bytes of a share that an earlier agent left on the host, and that stay on the GPU.
pub(crate) fn swapped(folder: &Path) -> Option<(u64, u64)> {
    Record::read(folder).map(|record| (record.bytes, record.staying))
}

fn path(folder: &Path) -> PathBuf {
    beside(folder, "swapped")
}

fn beside(folder: &Path, extension: &str) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    folder.with_file_name(format!(".{name}.{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("uid_share");
        assert_eq!((Record::read(&folder), swapped(&folder)), (None, None));
        let process = RecordedProcess { pid: 7, start_time: 9 };
        let record = Record { processes: vec![process], bytes: 5, staying: 2 };
        record.write(&folder).unwrap();
        assert_eq!((Record::read(&folder), swapped(&folder)), (Some(record), Some((5, 2))));
        remove_record(&folder).unwrap();
        remove_record(&folder).unwrap();
        assert_eq!(swapped(&folder), None);
        fs::write(path(&folder), "{").unwrap();
        assert_eq!(swapped(&folder), None);
        fs::write(lock_path(&folder), "").unwrap();
        forget(&folder).unwrap();
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
    }
}
