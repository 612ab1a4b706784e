//! Where programs of a container could find the driver's libraries.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::cdi::LIBRARY_FOLDERS;
use crate::hook::ldcache;
use crate::hook::oci::Container;
use crate::hook::rootfs::{EntryKind, Rootfs};

/// The libraries that the guard stands in for, and what all files of one begin with.
pub(super) const LIBRARIES: [(&str, &str); 2] =
    [("libcuda.so.1", "libcuda.so"), ("libnvidia-ml.so.1", "libnvidia-ml.so")];

/// Names below `/usr/local` and further down at which images keep a libcuda of a newer driver.
const COMPAT_FOLDERS: [&str; 3] = ["compat", "compat/lib", "compat/lib.real"];

/// Folders beside those of the driver's files that a dynamic linker or a program searches by itself: older
/// systems have libraries apart below `/lib`, and those that are built from source put them below `/usr/local`.
const MORE_FOLDERS: [&str; 3] = ["/lib", "/usr/local/lib", "/usr/local/lib64"];

/// Name of the folder with libraries for kinds of processors, which glibc searches before the one it lies in.
const HWCAPS_FOLDER: &str = "glibc-hwcaps";

/// Paths of a container that have a library's name, links included.
pub(super) fn find(
    root: &Rootfs,
    container: &Container,
    folders: &[PathBuf],
    stem: &str,
) -> Vec<PathBuf> {
    let mut searched: BTreeSet<PathBuf> = folders.iter().cloned().collect();
    searched.extend(LIBRARY_FOLDERS.iter().map(PathBuf::from));
    searched.extend(MORE_FOLDERS.iter().map(PathBuf::from));
    searched.extend(cached(root, stem));
    searched.extend(named_in_environment(container));
    searched.extend(compat(root));
    let hwcaps_folders: Vec<_> =
        searched.iter().flat_map(|folder| hwcaps_folders(root, folder)).collect();
    searched.extend(hwcaps_folders);
    let mut found = Vec::new();
    for folder in searched {
        // A folder that is not there has none.
        for entry in root.list(&folder).unwrap_or_default() {
            if entry.kind != EntryKind::Other && is_named(&entry.name, stem) {
                found.push(folder.join(&entry.name));
            }
        }
    }
    found
}

/// Whether a file's name is that of a library, with a version or without: `libcuda.so`, `libcuda.so.580.95.05`.
fn is_named(name: &str, stem: &str) -> bool {
    name.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Folders in which the container's dynamic linker knows the library.
fn cached(root: &Rootfs, stem: &str) -> Vec<PathBuf> {
    let cache = root.read(Path::new("/etc/ld.so.cache")).unwrap_or_default();
    let libraries = ldcache::parse(&cache).unwrap_or_default();
    let meant = libraries.iter().filter(|library| is_named(&library.name, stem));
    meant.filter_map(|library| Some(Path::new(&library.path).parent()?.to_owned())).collect()
}

/// Folders below one that are for kinds of processors.
fn hwcaps_folders(root: &Rootfs, folder: &Path) -> Vec<PathBuf> {
    let folder = folder.join(HWCAPS_FOLDER);
    let entries = root.list(&folder).unwrap_or_default().into_iter();
    entries.map(|entry| folder.join(entry.name)).collect()
}

/// Folders that the container's environment names for the dynamic linker. One that is relative or empty is
/// taken from where the program runs, at first where the container begins.
fn named_in_environment(container: &Container) -> Vec<PathBuf> {
    let paths = container.env.iter().filter_map(|text| text.strip_prefix("LD_LIBRARY_PATH="));
    let folders = paths.flat_map(|paths| paths.split([':', ';']));
    folders.map(|folder| container.cwd.join(folder)).filter(|folder| folder.is_absolute()).collect()
}

/// Folders of CUDA's packages for compatibility.
fn compat(root: &Rootfs) -> Vec<PathBuf> {
    let local = Path::new("/usr/local");
    let names = root.list(local).unwrap_or_default().into_iter().map(|entry| entry.name);
    let toolkits = names.filter(|name| name.starts_with("cuda"));
    toolkits.flat_map(|name| COMPAT_FOLDERS.map(|folder| local.join(&name).join(folder))).collect()
}
