//! A file system of its own for the files of a share.
//!
//! A container may write its share's `state`, and so make it grow. Without a bound it would fill `/run`, in which the host
//! keeps the state of its daemons. The file system is in memory, and is removed with the share.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use octavo_guard_abi::state;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// Size of a share's file system in bytes: its files, and as much again.
const BYTES: usize = 2 * state::SIZE + (256 << 10);
/// Files and folders that it takes.
const INODES: u32 = 64;

/// Mounts the file system on a share's folder, unless it is there. The files of a version without one stay as they are:
/// running containers have mapped them.
pub(crate) fn ensure(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    if is_mounted(folder)? || fs::read_dir(folder)?.next().is_some() {
        return Ok(());
    }
    let options = format!("size={BYTES},nr_inodes={INODES},mode=0755");
    let options = CString::new(options).map_err(io::Error::other)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("tmpfs", folder, "tmpfs", flags, &*options)?)
}

/// Unmounts it, if it is there. Containers that still run keep their files.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    match unmount(folder, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        // It is no mount point; or this process may mount nothing, and has mounted nothing.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT | Errno::PERM) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn is_mounted(folder: &Path) -> io::Result<bool> {
    let parent = folder.parent().unwrap_or(folder);
    Ok(fs::symlink_metadata(folder)?.dev() != fs::symlink_metadata(parent)?.dev())
}

#[cfg(test)]
mod tests;
