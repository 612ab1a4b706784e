//! Mounts in a container's mount namespace.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};

use anyhow::Context;
use rustix::fd::{AsFd, AsRawFd as _, OwnedFd};
use rustix::fs::{Mode, OFlags, fchmod, openat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    fsconfig_create, fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
    move_mount, open_tree, unmount,
};

/// Name of the file in a file system of one file.
const FILE: &str = "file";

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

/// A mount of this namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountInfo {
    /// Whether a mount on it would propagate elsewhere, that is to the host.
    pub(crate) is_shared: bool,
    /// Type of its file system.
    pub(crate) kind: String,
    /// Its source.
    pub(crate) source: String,
}

/// The mounts of this namespace by their ids. They are read once for all files of a container, since each reading takes
/// time with the number of mounts.
#[derive(Default)]
pub(crate) struct Mounts {
    by_id: BTreeMap<String, MountInfo>,
}

impl Mounts {
    /// The mount of a file.
    pub(crate) fn of(&mut self, target: &OwnedFd) -> anyhow::Result<&MountInfo> {
        // Of this thread, which may have its own mount namespace.
        let info = format!("/proc/thread-self/fdinfo/{}", target.as_raw_fd());
        let info = std::fs::read_to_string(&info).with_context(|| format!("reading {info}"))?;
        let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:")).map(str::trim);
        let id = id.context("the kernel does not tell which mount a file is of")?;
        if !self.by_id.contains_key(id) {
            self.read()?;
        }
        let found = self.by_id.get(id);
        found.with_context(|| format!("mount {id} is not among those of this namespace"))
    }

    fn read(&mut self) -> anyhow::Result<()> {
        let mounts = "/proc/thread-self/mountinfo";
        let mounts =
            std::fs::read_to_string(mounts).with_context(|| format!("reading {mounts}"))?;
        self.by_id.extend(mounts.lines().filter_map(parse));
        Ok(())
    }
}

/// The mount of a line of `mountinfo`, and its id (proc(5)). Optional fields are between the sixth field and a dash; the
/// type and the source follow it.
fn parse(line: &str) -> Option<(String, MountInfo)> {
    let mut fields = line.split(' ');
    let id = fields.next()?.to_owned();
    let mut optional = fields.by_ref().skip(5).take_while(|field| *field != "-");
    let is_shared = optional.by_ref().fold(false, |found, it| found | it.starts_with("shared:"));
    let (kind, source) = (fields.next()?.to_owned(), fields.next()?.to_owned());
    Some((id, MountInfo { is_shared, kind, source }))
}

/// A file in a read-only file system of its own, as a mount that is attached nowhere yet.
///
/// `source` is the file system's name in the table of mounts, `mode` the file's. Only what is attached can be copied. So
/// the file system lies over `folder` for a moment, in which no program of the container runs.
pub(crate) fn file_in_memory(
    source: &str,
    mode: u32,
    content: &[u8],
    folder: impl AsFd,
) -> io::Result<OwnedFd> {
    let tmpfs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&tmpfs, "source", source)?;
    fsconfig_create(&tmpfs)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = fsmount(&tmpfs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let mut file = File::from(openat(&mount, FILE, flags, Mode::empty())?);
    file.write_all(content)?;
    // Not by `openat`: a runtime's umask does not matter.
    fchmod(&file, Mode::from_raw_mode(mode))?;
    drop(file);
    fsconfig_set_flag(&tmpfs, "ro")?;
    fsconfig_reconfigure(&tmpfs)?;
    attach(&mount, folder)?;
    let file = openat(&mount, FILE, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let copy = file.and_then(detached);
    unmount(format!("/proc/thread-self/fd/{}", mount.as_raw_fd()), UnmountFlags::DETACH)?;
    Ok(copy?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_has_a_source_and_is_shared_if_its_optional_fields_say_so() {
        let found = |id: &str, is_shared, kind: &str, source: &str| {
            let (kind, source) = (kind.to_owned(), source.to_owned());
            Some((id.to_owned(), MountInfo { is_shared, kind, source }))
        };
        let line = "36 35 98:0 /a /b rw,noatime shared:7 master:1 - ext4 /dev/root rw,shared:9";
        assert_eq!(parse(line), found("36", true, "ext4", "/dev/root"));
        let line = "37 35 98:0 /shared:1 /b rw,noatime master:1 - ext4 /dev/root rw,shared:9";
        assert_eq!(parse(line), found("37", false, "ext4", "/dev/root"));
        assert_eq!(parse("38 35 98:0 / / rw - tmpfs own rw"), found("38", false, "tmpfs", "own"));
        assert_eq!(parse("39 35 98:0 / / rw"), None);
    }
}
