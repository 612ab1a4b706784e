//! Bind-mounts a file over others in a container's mount namespace.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, FileType, StatVfsMountFlags};

use crate::mounts::{Mounts, attach, detached};
use crate::rootfs::Rootfs;

/// Covers every plain file that `paths` lead to; returns the number of covered files. The kernel resolves the paths
/// within the root, so links of the image cannot cover files of the host.
pub(super) fn cover(root: &Rootfs, file: &Path, paths: &[PathBuf]) -> anyhow::Result<usize> {
    let source = root.place(file).with_context(|| format!("opening {}", file.display()))?;
    let own = identity(&source)?;
    let is_read_only = fs::fstatvfs(&source)?.f_flag.contains(StatVfsMountFlags::RDONLY);
    ensure!(is_read_only, "{} can be written to in the container", file.display());
    let mut covered = 0;
    let mut mounts = Mounts::default();
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
        ensure_private(&mut mounts, &target, path)?;
        detached(&source)
            .and_then(|mount| attach(mount, &target))
            .with_context(|| format!("mounting over {}", path.display()))?;
        let now = root.place(path).with_context(|| format!("opening {}", path.display()))?;
        ensure!(identity(&now)? == own, "{} is still the driver's own", path.display());
    }
    Ok(covered)
}

/// Refuses a file or folder on which a mount would reach the host, too.
pub(super) fn ensure_private(
    mounts: &mut Mounts,
    target: &OwnedFd,
    path: &Path,
) -> anyhow::Result<()> {
    let below = mounts.of(target);
    let below = below.with_context(|| format!("finding out how {} is mounted", path.display()))?;
    ensure!(
        !below.is_shared,
        "{} of the container lies in a volume that is mounted with mountPropagation: Bidirectional, and the guard would \
         be laid over the host's file, too: mount the volume with HostToContainer or None, or without the driver's \
         libraries",
        path.display()
    );
    Ok(())
}

/// Device and inode of a file.
fn identity(file: impl AsFd) -> rustix::io::Result<(u64, u64)> {
    let stat = fs::fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}
