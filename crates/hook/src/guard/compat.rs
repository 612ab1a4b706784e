//! A proxy of the image's own CUDA library, if it is of a later release than the node's driver (CUDA forward
//! compatibility).
//!
//! ```text
//! /usr/local/cuda/compat/libcuda.so.1      the proxy, on a read-only file system without another path
//! /run/octavo/real/compat/libcuda.so.1     the image's own library
//! ```

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use octavo_guard_abi::{GUARD, REAL, names};
use octavo_proxy::{Plan, ReadCache};

use super::{cover, search_paths};
use crate::linker;
use crate::mounts::{Mounts, attach, detached, file_in_memory};
use crate::oci::Container;
use crate::rootfs::Rootfs;

/// Source of the proxy's file system in the table of mounts.
const SOURCE: &str = "octavo-cuda-compat";

/// Name by which programs load the library.
pub(super) const SONAME: &str = "libcuda.so.1";

/// Where the image's own library is seen, below the folder of the driver's own.
const REAL_NAME: &str = "compat/libcuda.so.1";

/// Path of a proxy in the container, made on the first call; `None` if programs get the node's library.
///
/// `guard` is the guard's file on the host, `host_driver` the version of the node's driver.
pub(super) fn proxy(
    root: &Rootfs,
    container: &Container,
    guard: &Path,
    host_driver: &str,
) -> anyhow::Result<Option<PathBuf>> {
    if !linker::has_newer_cuda(root, host_driver) {
        return Ok(None);
    }
    let library = Path::new(linker::COMPAT_FOLDER).join(SONAME);
    let Ok(target) = root.place(&library) else { return Ok(None) };
    let mut mounts = Mounts::default();
    // The hook of another share was here before, and has decided for the image's library or for the node's.
    let below = mounts.of(&target)?;
    if below.kind == "tmpfs" && below.source == SOURCE {
        return Ok(Some(library));
    }
    let of_node = Path::new(GUARD).with_file_name(SONAME);
    if root.identity(&of_node) == root.identity(&library) {
        return Ok(None);
    }
    let loaded = search_paths::first(root, container, SONAME);
    let loaded = loaded.context("reading the container's linker cache")?;
    if loaded.is_none_or(|loaded| root.identity(&loaded) != root.identity(&library)) {
        return Ok(None);
    }
    let bytes = write(root, guard, &library)?;
    let real = Path::new(REAL);
    let folder = root.place(real)?;
    for (place, path) in [(&folder, real), (&target, &library)] {
        cover::ensure_private(&mut mounts, place, path)?;
    }
    let real = real.join(REAL_NAME);
    match root.write(&real, b"") {
        // The linker's cache was as it is before, and programs may set their own paths.
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => return Ok(None),
        result => result.with_context(|| format!("creating {}", real.display()))?,
    }
    let own = detached(&target)?;
    let proxy = file_in_memory(SOURCE, 0o555, &bytes, folder).context("mounting the proxy")?;
    for (path, mount) in [(&real, own), (&library, proxy)] {
        let place = root.place(path)?;
        attach(mount, place).with_context(|| format!("mounting over {}", path.display()))?;
    }
    Ok(Some(library))
}

/// The bytes of the proxy. The hooks are those of the guard that the container has.
fn write(root: &Rootfs, guard: &Path, library: &Path) -> anyhow::Result<Vec<u8>> {
    let guard = std::fs::read(guard).with_context(|| format!("reading {}", guard.display()))?;
    let hooks = octavo_proxy::hooks_of(&guard).context("reading the guard's hooks")?;
    let plan = Plan {
        hooks: &hooks,
        is_suspicious: names::is_suspicious,
        soname: SONAME,
        guard: Path::new(GUARD),
        real: &Path::new(REAL).join(REAL_NAME),
    };
    let file = ReadCache::new(root.open_file(library)?);
    let proxy = octavo_proxy::write_from(&file, &plan).with_context(|| {
        format!(
            "writing a proxy of the image's {}, which is newer than the node's",
            library.display()
        )
    })?;
    Ok(proxy.bytes)
}
