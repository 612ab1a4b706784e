//! The folder that a daemon and its clients have as `/dev/shm`: a file system of its own, so that clients cannot fill the host's.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::geteuid;

/// The label that containers may use on hosts with `SELinux`.
const CONTAINER_LABEL: &[u8] = b"system_u:object_r:container_file_t:s0\0";

/// Makes the folder, and mounts it. A mount of an earlier life stays: containers have it.
pub(crate) fn prepare(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    if is_mounted(folder)? {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match mount("shm", folder, "tmpfs", flags, Some(c"size=50%,mode=1777")) {
        Ok(()) => Ok(()),
        // Without root a plain folder must do.
        Err(Errno::PERM) if !geteuid().is_root() => {
            fs::set_permissions(folder, Permissions::from_mode(0o1777))
        }
        Err(error) => Err(error.into()),
    }
}

/// Unmounts the folder, if it is mounted.
pub(crate) fn release(folder: &Path) -> io::Result<()> {
    if folder.exists() && is_mounted(folder)? {
        unmount(folder, UnmountFlags::DETACH)?;
    }
    Ok(())
}

/// Lets containers use a folder on a host with `SELinux`.
pub(crate) fn label(folder: &Path) -> io::Result<()> {
    if !Path::new("/sys/fs/selinux/enforce").exists() {
        return Ok(());
    }
    rustix::fs::setxattr(folder, "security.selinux", CONTAINER_LABEL, XattrFlags::empty())
        .map_err(io::Error::from)
}

fn is_mounted(folder: &Path) -> io::Result<bool> {
    let above = folder.parent().unwrap_or(folder);
    Ok(fs::metadata(folder)?.dev() != fs::metadata(above)?.dev())
}
