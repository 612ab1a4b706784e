//! Keeps the driver's libraries from making device nodes in a container.
//!
//! Programs as root that open NVML, `nvidia-smi` among them, make a node for each GPU of the machine. The container cannot
//! open them, but tools that count nodes see GPUs that are not its own. The libraries ask the kernel module's parameters
//! whether they may. The container gets these with another answer, as with NVIDIA's own hook
//! `disable-device-node-modification`.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use anyhow::Context;
use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags, fsconfig_create, fsconfig_reconfigure,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, unmount,
};

use super::guard::{Mounts, attach, detached};
use super::rootfs::Rootfs;

/// The parameters of the kernel module.
const PARAMETERS: &str = "/proc/driver/nvidia/params";

/// The line that permits nodes, and the one that does not.
const PERMITTED: &str = "ModifyDeviceFiles: 1";
const FORBIDDEN: &str = "ModifyDeviceFiles: 0";

/// Name of the file in the new file system.
const FILE: &str = "params";

/// Largest file that is read, in bytes. The kernel's is a page.
const MAX_BYTES: u64 = 64 << 10;

/// Covers the parameters in a container. Idempotent. Nothing is done where the kernel module has none.
pub(super) fn forbid(root: &Rootfs) -> anyhow::Result<()> {
    let path = Path::new(PARAMETERS);
    let Ok(file) = root.open_file(path) else { return Ok(()) };
    let mut text = String::new();
    file.take(MAX_BYTES)
        .read_to_string(&mut text)
        .with_context(|| format!("reading {PARAMETERS}"))?;
    if !text.lines().any(|line| line == PERMITTED) {
        return Ok(());
    }
    let lines = text.lines().map(|line| if line == PERMITTED { FORBIDDEN } else { line });
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    match cover(root, path, &text) {
        // Kernels before 5.2. The nodes are a nuisance, and no reason to start no container.
        Err(error) if error.raw_os_error() == Some(Errno::NOSYS.raw_os_error()) => Ok(()),
        result => result.with_context(|| format!("covering {PARAMETERS} of the container")),
    }
}

/// Covers a file with another text.
///
/// Only a mount of this namespace can be copied. The new file system is therefore attached to the file's folder for a
/// moment.
fn cover(root: &Rootfs, path: &Path, text: &str) -> io::Result<()> {
    let target = root.place(path)?;
    if Mounts::default().is_shared(&target).unwrap_or(true) {
        // A pod with the host's own /proc: the host's file would be covered, too.
        return Ok(());
    }
    let folder = root.place(path.parent().unwrap_or(path))?;
    let mount = in_memory(text)?;
    attach(&mount, &folder)?;
    let file = openat(&mount, FILE, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let copy = file.and_then(detached);
    let attached = format!("/proc/thread-self/fd/{}", mount.as_raw_fd());
    unmount(attached, UnmountFlags::DETACH)?;
    Ok(attach(copy?, &target)?)
}

/// A read-only file system with one file, attached nowhere yet.
fn in_memory(text: &str) -> io::Result<OwnedFd> {
    let tmpfs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&tmpfs, "size", "64k")?;
    fsconfig_create(&tmpfs)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = fsmount(&tmpfs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let file = openat(&mount, FILE, flags, Mode::from_raw_mode(0o444))?;
    File::from(file).write_all(text.as_bytes())?;
    fsconfig_set_flag(&tmpfs, "ro")?;
    fsconfig_reconfigure(&tmpfs)?;
    Ok(mount)
}
