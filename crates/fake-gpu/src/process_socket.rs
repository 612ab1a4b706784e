//! The socket by which other processes reach a process that uses the simulated driver.
//!
//! It is a file beside the GPUs' files, so that processes find each other across containers. Its name has the pid namespace and the
//! pid in it, as the slots of a GPU have them. A process that ends without a chance to clean up leaves its file. Connections to it
//! are refused, and later processes remove it.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::file;
use crate::identity::{self, ProcessIdentity};

/// Beginning of the names.
const PREFIX: &str = "process-";

/// Younger files may belong to processes that are about to listen.
const MIN_AGE: Duration = Duration::from_mins(1);

/// Listens for requests to this process, in the folder of its machine.
///
/// # Errors
///
/// The socket cannot be made, or this process listens already.
pub fn listen(folder: &Path) -> io::Result<UnixListener> {
    let folder = socket_folder(folder);
    file::make_folder(&folder)?;
    sweep(&folder, MIN_AGE);
    let directory = File::open(&folder)?;
    let path = path_of(&directory, &identity::current());
    if UnixStream::connect(&path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    // What a former process with this pid left.
    let _ = fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    // Whether a process may ask is not a matter of the file: it may be of another user.
    fs::set_permissions(&path, Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Connects to a process, by its pid in the caller's namespace.
///
/// # Errors
///
/// There is no such process, it does not use the driver ([`io::ErrorKind::NotFound`],
/// [`io::ErrorKind::ConnectionRefused`]), or its namespace is hidden from the caller.
pub fn connect(folder: &Path, pid: u32) -> io::Result<UnixStream> {
    let process = identity::of(pid)?;
    UnixStream::connect(path_of(&File::open(socket_folder(folder))?, &process))
}

/// The caller's number of a thread, by its number in the namespace of its process.
///
/// # Errors
///
/// There is no such process or thread ([`io::ErrorKind::NotFound`]), or it is hidden from the caller.
pub fn thread_of(pid: u32, thread: u32) -> io::Result<u32> {
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let entry = entry?;
        let number = entry.file_name().to_string_lossy().parse().ok();
        let status = fs::read_to_string(entry.path().join("status"))?;
        if let Some(number) = number.filter(|_| identity::innermost(&status) == Some(thread)) {
            return Ok(number);
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

fn socket_folder(folder: &Path) -> PathBuf {
    folder.join("chip")
}

/// The path through an open folder, because addresses of sockets are short.
fn path_of(folder: &File, process: &ProcessIdentity) -> PathBuf {
    let ProcessIdentity { pid, namespace, .. } = process;
    format!("/proc/self/fd/{}/{PREFIX}{namespace}-{pid}", folder.as_raw_fd()).into()
}

/// Removes files of this age whose processes have ended.
fn sweep(folder: &Path, min_age: Duration) {
    let (Ok(directory), Ok(entries)) = (File::open(folder), fs::read_dir(folder)) else { return };
    for entry in entries.filter_map(Result::ok) {
        let is_young = || {
            let changed = entry.metadata().and_then(|about| about.modified());
            changed.map_or(true, |at| at.elapsed().is_ok_and(|age| age < min_age))
        };
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) || is_young() {
            continue;
        }
        let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string());
        let answer = UnixStream::connect(path.join(entry.file_name()));
        if answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            // The file of another user is left to that user's processes.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_process_is_reached_by_its_pid() {
        let folder = tempfile::tempdir().unwrap();
        let own = std::process::id();
        assert!(connect(folder.path(), own).is_err(), "it does not listen");
        let listener = listen(folder.path()).unwrap();
        assert!(listen(folder.path()).is_err(), "it listens already");
        // The listener above has seen the attempt.
        drop(listener.accept().unwrap());
        let mut caller = connect(folder.path(), own).unwrap();
        drop(listener.accept().unwrap());
        assert_eq!(caller.read(&mut [0]).unwrap(), 0);
        assert!(connect(folder.path(), u32::MAX).is_err());
    }

    #[test]
    fn what_ended_processes_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let [ended, alive, other] =
            ["process-1-1", "process-1-2", "0"].map(|name| folder.path().join(name));
        drop(UnixListener::bind(&ended).unwrap());
        drop(UnixListener::bind(&other).unwrap());
        let _listener = UnixListener::bind(&alive).unwrap();
        sweep(folder.path(), Duration::from_hours(1));
        assert!(ended.exists(), "it may be about to listen");
        sweep(folder.path(), Duration::ZERO);
        assert_eq!([ended, alive, other].map(|path| path.exists()), [false, true, true]);
    }
}
