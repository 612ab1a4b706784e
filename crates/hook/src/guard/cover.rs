//! Bind-mounts a file over others in a container's mount namespace.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use rustix::fd::{AsFd, AsRawFd as _, OwnedFd};
use rustix::fs::{self, FileType, StatVfsMountFlags};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

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
        let is_shared = mounts
            .is_shared(&target)
            .with_context(|| format!("finding out how {} is mounted", path.display()))?;
        ensure!(
            !is_shared,
            "{} of the container lies in a volume that is mounted with mountPropagation: Bidirectional, and the guard \
             would be laid over the host's file, too: mount the volume with HostToContainer or None, or without the \
             driver's libraries",
            path.display()
        );
        detached(&source)
            .and_then(|mount| attach(mount, &target))
            .with_context(|| format!("mounting over {}", path.display()))?;
        let now = root.place(path).with_context(|| format!("opening {}", path.display()))?;
        ensure!(identity(&now)? == own, "{} is still the driver's own", path.display());
    }
    Ok(covered)
}

/// A mount of a file that is attached nowhere yet. It copies the flags of the source, so it is never writable if that is
/// not.
pub(crate) fn detached(source: impl AsFd) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(source, "", flags)
}

/// Attaches a detached mount to a file or folder.
pub(crate) fn attach(mount: impl AsFd, target: impl AsFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", target, "", flags)
}

/// The mounts of this namespace: whether a mount on one would propagate elsewhere, that is to the host. They are read
/// once for all files of a container, since each reading takes time with the number of mounts.
#[derive(Default)]
pub(crate) struct Mounts {
    /// Whether it is shared, by the mount's id.
    is_shared: BTreeMap<String, bool>,
}

impl Mounts {
    /// Whether a mount on the file would propagate elsewhere.
    pub(crate) fn is_shared(&mut self, target: &OwnedFd) -> anyhow::Result<bool> {
        // Of this thread, which may have its own mount namespace.
        let info = format!("/proc/thread-self/fdinfo/{}", target.as_raw_fd());
        let info = std::fs::read_to_string(&info).with_context(|| format!("reading {info}"))?;
        let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:")).map(str::trim);
        let id = id.context("the kernel does not tell which mount a file is of")?;
        if !self.is_shared.contains_key(id) {
            self.read()?;
        }
        let found = self.is_shared.get(id).copied();
        found.with_context(|| format!("mount {id} is not among those of this namespace"))
    }

    fn read(&mut self) -> anyhow::Result<()> {
        let mounts = "/proc/thread-self/mountinfo";
        let mounts =
            std::fs::read_to_string(mounts).with_context(|| format!("reading {mounts}"))?;
        self.is_shared.extend(mounts.lines().filter_map(parse));
        Ok(())
    }
}

/// The id of a line of `mountinfo`, and whether its mount is shared (proc(5)): optional fields are between the sixth field
/// and a dash.
pub(super) fn parse(line: &str) -> Option<(String, bool)> {
    let mut fields = line.split(' ');
    let id = fields.next()?.to_owned();
    let mut optional = fields.skip(5).take_while(|field| *field != "-");
    Some((id, optional.any(|field| field.starts_with("shared:"))))
}

/// Device and inode of a file.
fn identity(file: impl AsFd) -> rustix::io::Result<(u64, u64)> {
    let stat = fs::fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}
