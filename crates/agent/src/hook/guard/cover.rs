//! Lays one file over others, inside a container's mount namespace.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, FileType, StatVfsMountFlags};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use crate::hook::rootfs::Rootfs;

/// Lays a file over every plain file that some paths lead to; says over how many it lies then. The paths are
/// resolved by the kernel within the root, so that a link of the image covers nothing of the host.
pub(super) fn cover(root: &Rootfs, file: &Path, paths: &[PathBuf]) -> anyhow::Result<usize> {
    let source = root.place(file).with_context(|| format!("opening {}", file.display()))?;
    let own = identity(&source)?;
    let is_read_only = fs::fstatvfs(&source)?.f_flag.contains(StatVfsMountFlags::RDONLY);
    ensure!(is_read_only, "{} can be written to in the container", file.display());
    let mut covered = 0;
    for path in paths {
        // A link that leads nowhere loads nothing.
        let Ok(target) = root.place(path) else { continue };
        if FileType::from_raw_mode(fs::fstat(&target)?.st_mode) != FileType::RegularFile {
            continue;
        }
        covered += 1;
        if identity(&target)? == own {
            continue;
        }
        mount(&source, &target).with_context(|| format!("mounting over {}", path.display()))?;
        let now = root.place(path).with_context(|| format!("opening {}", path.display()))?;
        ensure!(identity(&now)? == own, "{} is still the driver's own", path.display());
    }
    Ok(covered)
}

/// Mounts one file over another. The copy of the mount has the flags of the first: nothing is written through
/// it at any moment.
fn mount(source: impl AsFd, target: impl AsFd) -> rustix::io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let copy: OwnedFd = open_tree(source, "", flags)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(copy, "", target, "", flags)
}

/// Device and inode of a file.
fn identity(file: impl AsFd) -> rustix::io::Result<(u64, u64)> {
    let stat = fs::fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}
