//! Files of a driver below its root.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, FileType, Mode, OFlags, ResolveFlags};

/// The file with a name in the first of some folders below a root that has it.
pub(crate) fn find_in(root: &Path, folders: &[&str], name: &str) -> Option<PathBuf> {
    let root = fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let root = root.ok()?;
    folders.iter().find_map(|folder| resolve(&root, &Path::new(folder).join(name)))
}

/// The plain file that a path leads to. The kernel resolves links with `root` as `/`: those of a driver elsewhere are
/// absolute, and must not lead to files of this process's own root.
fn resolve(root: &OwnedFd, path: &Path) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let file = fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT).ok()?;
    let is_file = FileType::from_raw_mode(fs::fstat(&file).ok()?.st_mode) == FileType::RegularFile;
    let name = is_file.then(|| format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    std::fs::read_link(name).ok()
}
