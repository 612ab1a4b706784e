//! Adds the driver's libraries to a container's linker cache.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::ldcache::{self, CACHE, Library};
use super::rootfs::{EntryKind, Rootfs};

/// Makes a later `ldconfig` in the container include the folders.
const CONFIG: &str = "/etc/ld.so.conf.d/00-octavo-driver.conf";

/// Folder in which NVIDIA's CUDA images have the CUDA libraries of a newer driver (CUDA compatibility guide, "Forward
/// Compatibility").
pub(super) const COMPAT_FOLDER: &str = "/usr/local/cuda/compat";

/// Adds the libraries of some folders to the container's cache, before others of the same names.
///
/// With the version of the host's driver, the image's own CUDA libraries come first if they are of a later release.
///
/// Entries that the image's cache already has from these folders keep their position. The driver's libraries often
/// share a folder with system libraries, which an image may rank behind its own.
///
/// Images without glibc get unused files. A read-only root stays unchanged, since its programs may set their own
/// library path.
pub(super) fn update(
    root: &Rootfs,
    folders: &[PathBuf],
    host_driver: Option<&str>,
) -> anyhow::Result<()> {
    let compat = host_driver.is_some_and(|version| has_newer_cuda(root, version));
    let compat = compat.then(|| PathBuf::from(COMPAT_FOLDER));
    let folders: Vec<PathBuf> = compat.into_iter().chain(folders.iter().cloned()).collect();
    let mut libraries = Vec::new();
    for folder in &folders {
        libraries.extend(libraries_in(root, folder));
    }
    let cached = ldcache::read(root).context("reading the container's linker cache")?;
    let known = known_in(root, &folders, &cached);
    libraries.retain(|library| !known.contains(&(library.name.as_str(), library.flags)));
    let is_new = |old: &Library| {
        !libraries
            .iter()
            .any(|new| new.path == old.path || (new.name == old.name && new.flags == old.flags))
    };
    let kept: Vec<_> = cached.iter().filter(|old| is_new(old)).cloned().collect();
    libraries.extend(kept);
    let cache = ldcache::format(&libraries).context("the linker's cache would be too large")?;
    let mut config = String::new();
    for folder in &folders {
        config.push_str(&folder.to_string_lossy());
        config.push('\n');
    }
    for (path, content) in [(CONFIG, config.as_bytes()), (CACHE, &cache)] {
        match root.write(Path::new(path), content) {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => return Ok(()),
            result => result.with_context(|| format!("writing {path} in the container"))?,
        }
    }
    Ok(())
}

/// Whether the image has CUDA libraries of a later driver release than the host's. Within a release the host's serve.
pub(super) fn has_newer_cuda(root: &Rootfs, host_driver: &str) -> bool {
    let release = |version: &str| version.split_once('.')?.0.parse::<u32>().ok();
    let Some(host) = release(host_driver) else { return false };
    let entries = root.list(Path::new(COMPAT_FOLDER)).unwrap_or_default();
    let files = entries.iter().filter(|entry| entry.kind == EntryKind::File);
    files.filter_map(|entry| release(entry.name.strip_prefix("libcuda.so.")?)).any(|own| own > host)
}

/// Names and flags of the cached libraries in one of `folders`, by whatever path.
fn known_in<'a>(
    root: &Rootfs,
    folders: &[PathBuf],
    cached: &'a [Library],
) -> BTreeSet<(&'a str, u32)> {
    let folders: BTreeSet<_> = folders.iter().filter_map(|folder| root.identity(folder)).collect();
    let mut is_ours: BTreeMap<&Path, bool> = BTreeMap::new();
    let known = cached.iter().filter(|library| {
        let Some(parent) = Path::new(&library.path).parent() else { return false };
        *is_ours
            .entry(parent)
            .or_insert_with(|| root.identity(parent).is_some_and(|at| folders.contains(&at)))
    });
    known.map(|library| (library.name.as_str(), library.flags)).collect()
}

/// The libraries of a folder under the names requested by programs, `lib*.so.N`. An unreadable folder has none.
fn libraries_in(root: &Rootfs, folder: &Path) -> Vec<Library> {
    let mut libraries = Vec::new();
    for entry in root.list(folder).unwrap_or_default() {
        let is_library = entry.name.starts_with("lib") && entry.name.contains(".so");
        if !is_library || entry.kind == EntryKind::Other {
            continue;
        }
        let path = folder.join(&entry.name);
        let mut start = Vec::with_capacity(64);
        let read = root.open_file(&path).and_then(|file| file.take(64).read_to_end(&mut start));
        let flags = read.ok().and_then(|_| ldcache::flags_of(&start));
        libraries.extend(flags.map(|flags| Library {
            flags,
            name: entry.name,
            path: path.to_string_lossy().into_owned(),
            hwcap: 0,
        }));
    }
    libraries
}
