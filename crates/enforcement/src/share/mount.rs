//! A file system of its own for the files of a share.
//!
//! A container may write its share's `state`, and so make it grow. Without a bound it would fill `/run`, in which the host
//! keeps the state of its daemons. The file system is in memory, and is removed with the share.
//!
//! ```text
//! <shares>/.<name>                  a tmpfs, mounted for a moment
//! <shares>/.<name>/shares/<name>    bound to <shares>/<name>
//! ```
//!
//! A container's mounts thus have roots that end in `shares/<name>`, as without it: the watchdog finds the processes of a
//! share by them.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use octavo_guard_abi::state;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

use octavo_node::failpoint;

/// Size of a share's file system in bytes: its files, and as much again.
const BYTES: usize = 2 * state::SIZE + (256 << 10);
/// Files and folders that it takes.
const INODES: u32 = 64;

/// Mounts the file system on a share's folder, unless it is there. The files of a version without one stay as they are:
/// running containers have mapped them.
pub(crate) fn ensure(folder: &Path) -> io::Result<()> {
    make(folder)?;
    if is_mounted(folder)? || fs::read_dir(folder)?.next().is_some() {
        return Ok(());
    }
    let whole = temporary(folder);
    remove(&whole)?;
    make(&whole)?;
    let options = format!("size={BYTES},nr_inodes={INODES},mode=0755");
    let options = CString::new(options).map_err(io::Error::other)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("tmpfs", &whole, "tmpfs", flags, &*options)?;
    failpoint::hit("share.mounted");
    let name = folder.file_name().unwrap_or_default();
    let inner =
        whole.join(folder.parent().and_then(Path::file_name).unwrap_or_default()).join(name);
    make(&inner)?;
    mount_bind(&inner, folder)?;
    failpoint::hit("share.bound");
    remove(&whole)?;
    fs::remove_dir(&whole)
}

/// Unmounts what is mounted on a folder, if anything is. Containers that still run keep their files.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    match unmount(folder, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        // It is no mount point; or this process may mount nothing, and has mounted nothing.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT | Errno::PERM) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Where the file system of a share is mounted while it is made. What a killed agent leaves there is no folder of a share,
/// and goes at the next start.
fn temporary(folder: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(folder.file_name().unwrap_or_default());
    folder.with_file_name(name)
}

fn make(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(folder)
}

fn is_mounted(folder: &Path) -> io::Result<bool> {
    let parent = folder.parent().unwrap_or(folder);
    Ok(fs::symlink_metadata(folder)?.dev() != fs::symlink_metadata(parent)?.dev())
}

#[cfg(test)]
mod tests;
