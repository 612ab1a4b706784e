//! Paths at which programs of a container can find the driver's libraries.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::LIBRARY_FOLDERS;
use crate::ldcache;
use crate::oci::Container;
use crate::rootfs::{EntryKind, Rootfs};

/// The libraries wrapped by the guard, with the common prefix of their file names.
pub(super) const LIBRARIES: [(&str, &str); 2] =
    [("libcuda.so.1", "libcuda.so"), ("libnvidia-ml.so.1", "libnvidia-ml.so")];

/// Folders below `/usr/local/cuda*` with the libcuda of a newer driver.
const COMPAT_FOLDERS: [&str; 3] = ["compat", "compat/lib", "compat/lib.real"];

/// Further folders that a dynamic linker or a program searches. Older systems have separate libraries in `/lib`, and
/// source builds install below `/usr/local`.
const MORE_FOLDERS: [&str; 3] = ["/lib", "/usr/local/lib", "/usr/local/lib64"];

/// Folder with processor-specific libraries, which glibc searches before its parent.
const HWCAPS_FOLDER: &str = "glibc-hwcaps";

/// Paths in a container with the library's name, including links.
pub(super) fn find(
    root: &Rootfs,
    container: &Container,
    folders: &[PathBuf],
    stem: &str,
) -> io::Result<Vec<PathBuf>> {
    let mut searched: BTreeSet<PathBuf> = folders.iter().cloned().collect();
    searched.extend(LIBRARY_FOLDERS.iter().map(PathBuf::from));
    searched.extend(MORE_FOLDERS.iter().map(PathBuf::from));
    searched.extend(cached(root, stem)?);
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
    Ok(found)
}

/// Where the dynamic linker finds a library first: in the environment's folders, else by its cache. `None` leaves it to
/// the linker's own folders.
pub(super) fn first(
    root: &Rootfs,
    container: &Container,
    name: &str,
) -> io::Result<Option<PathBuf>> {
    let named = named_in_environment(container).into_iter().map(|folder| folder.join(name));
    if let Some(path) = named.into_iter().find(|path| root.is_file(path)) {
        return Ok(Some(path));
    }
    let cached = ldcache::read(root)?.into_iter().find(|library| library.name == name);
    Ok(cached.map(|library| PathBuf::from(library.path)))
}

/// Whether a file name is that of a library, with or without version: `libcuda.so`, `libcuda.so.580.95.05`.
fn is_named(name: &str, stem: &str) -> bool {
    name.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Folders of the library in the container's linker cache.
fn cached(root: &Rootfs, stem: &str) -> io::Result<Vec<PathBuf>> {
    let libraries = ldcache::read(root)?;
    let meant = libraries.iter().filter(|library| is_named(&library.name, stem));
    Ok(meant.filter_map(|library| Some(Path::new(&library.path).parent()?.to_owned())).collect())
}

/// Processor-specific folders below a folder.
fn hwcaps_folders(root: &Rootfs, folder: &Path) -> Vec<PathBuf> {
    let folder = folder.join(HWCAPS_FOLDER);
    let entries = root.list(&folder).unwrap_or_default().into_iter();
    entries.map(|entry| folder.join(entry.name)).collect()
}

/// Folders of `LD_LIBRARY_PATH` in the container's environment. A relative or empty one is resolved from the working
/// directory, initially that of the container.
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
