//! A proxy of the image's own CUDA library, if it is of a later release than the node's driver (CUDA forward
//! compatibility).
//!
//! ```text
//! /usr/local/cuda/compat/libcuda.so.590.44   the proxy, on a read-only file system without another path
//! /run/octavo/real/libcuda.so.590.44         the image's own library
//! ```

use std::path::{Path, PathBuf};

use anyhow::Context;
use octavo_guard_abi::{GUARD, REAL, names};
use octavo_proxy::{Plan, ReadCache};

use super::cover;
use crate::linker;
use crate::mounts::{Mounts, attach, detached, file_in_memory};
use crate::rootfs::Rootfs;

/// Source of the proxy's file system in the table of mounts.
const SOURCE: &str = "octavo-cuda-compat";

/// Name by which programs load the library.
pub(super) const SONAME: &str = "libcuda.so.1";

/// Path of a proxy in the container, made on the first call; `None` if programs load the node's library.
///
/// `guard` is the guard's file on the host.
pub(super) fn proxy(
    root: &Rootfs,
    guard: &Path,
    host_driver: &str,
) -> anyhow::Result<Option<PathBuf>> {
    let Some(library) = linker::newer_cuda(root, host_driver) else { return Ok(None) };
    if !linker::is_first(root, SONAME, &library).context("reading the container's linker cache")? {
        return Ok(None);
    }
    let target = root.place(&library)?;
    let mut mounts = Mounts::default();
    // The hook of another share was here before.
    if mounts.of(&target)?.source == SOURCE {
        return Ok(Some(library));
    }
    let real = Path::new(REAL).join(super::name(&library)?);
    let bytes = write(root, guard, &library, &real)?;
    root.write(&real, b"").with_context(|| format!("creating {}", real.display()))?;
    let folder = root.place(Path::new(REAL))?;
    cover::ensure_private(&mut mounts, &folder, Path::new(REAL))?;
    let own = detached(&target)?;
    let proxy = file_in_memory(SOURCE, 0o555, &bytes, folder).context("mounting the proxy")?;
    for (path, mount) in [(&real, own), (&library, proxy)] {
        let below = root.place(path)?;
        cover::ensure_private(&mut mounts, &below, path)?;
        attach(mount, below).with_context(|| format!("mounting over {}", path.display()))?;
    }
    Ok(Some(library))
}

/// The bytes of the proxy. The hooks are those of the guard that the container has.
fn write(root: &Rootfs, guard: &Path, library: &Path, real: &Path) -> anyhow::Result<Vec<u8>> {
    let guard = std::fs::read(guard).with_context(|| format!("reading {}", guard.display()))?;
    let hooks = octavo_proxy::hooks_of(&guard).context("reading the guard's hooks")?;
    let plan = Plan {
        hooks: &hooks,
        is_suspicious: names::is_suspicious,
        soname: SONAME,
        guard: Path::new(GUARD),
        real,
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
