//! Covers the driver's libraries of a container with the guard's proxies.
//!
//! The CDI spec mounts the guard's folder, the driver's own libraries and the share's files. This hook covers every
//! CUDA and NVML library that a program of the container could find. It runs after all mounts exist, since mounts of
//! other claims or of the pod's volumes could otherwise uncover the driver. Any deviation from the agent's files fails
//! the container's start.

mod compat;
mod cover;
mod search_paths;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use octavo_guard_abi::{GUARD, LIMITS_FILE, REAL, SHARES, STATE_FILE};
use rustix::fs;

use super::oci::{Container, values};
use super::rootfs::Rootfs;

/// Arguments of `octavo cdi-hook guard`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Folder of guard and proxies on the host.
    #[arg(long, value_name = "DIR")]
    guard: PathBuf,
    /// Folder of a share on the host; it has the same name in the container.
    #[arg(long = "share", value_name = "DIR")]
    shares: Vec<PathBuf>,
    /// A library of the driver on the host; it has the same name in the container.
    #[arg(long = "real", value_name = "FILE")]
    real: Vec<PathBuf>,
    /// A folder of the container with the driver's libraries.
    #[arg(long = "folder", value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Version of the host's driver. A newer CUDA library of the image is used if programs would load it (CUDA forward
    /// compatibility).
    #[arg(long, value_name = "VERSION")]
    cuda_compat: Option<String>,
}

/// Checks the mounts and covers the driver's libraries. Idempotent.
pub(super) fn install(root: &Rootfs, container: &Container, args: &Args) -> anyhow::Result<()> {
    let guard = Path::new(GUARD);
    let folder = guard.parent().unwrap_or(Path::new("/"));
    check(root, &args.guard, folder)?;
    let guard_on_host = args.guard.join(guard.file_name().unwrap_or_default());
    check(root, &guard_on_host, guard)?;
    for real in &args.real {
        check(root, real, &Path::new(REAL).join(name(real)?))?;
    }
    for share in &args.shares {
        let seen = Path::new(SHARES).join(name(share)?);
        check(root, share, &seen)?;
        for file in [LIMITS_FILE, STATE_FILE] {
            check(root, &share.join(file), &seen.join(file))?;
        }
    }
    check_shares(root, container)?;
    let compat = match &args.cuda_compat {
        Some(driver) => compat::proxy(root, container, &guard_on_host, driver)
            .context("covering the image's own CUDA library")?,
        None => None,
    };
    for (library, stem) in search_paths::LIBRARIES {
        let proxy = folder.join(library);
        check(root, &args.guard.join(library), &proxy)?;
        let proxy = match &compat {
            Some(of_image) if library == compat::SONAME => of_image,
            _ => &proxy,
        };
        let found = search_paths::find(root, container, &args.folders, stem)
            .context("searching the container's driver libraries")?;
        let covered = cover::cover(root, proxy, &found)
            .with_context(|| format!("laying the guard over {library} of the container"))?;
        if covered == 0 {
            // A driver's root may lack the library. A failed message is harmless.
            let _ =
                writeln!(io::stderr(), "the container has no {library}: there is none to cover");
        }
    }
    Ok(())
}

/// Checks that `seen` in the container is the file `host` of the host, and not another mount.
fn check(root: &Rootfs, host: &Path, seen: &Path) -> anyhow::Result<()> {
    let wanted =
        fs::stat(host).with_context(|| format!("looking at {} of the host", host.display()))?;
    let found = root.identity(seen);
    ensure!(
        found == Some((wanted.st_dev, wanted.st_ino)),
        "{} of the container is not {} of the host: remove volumes and mounts below /run/octavo from the pod",
        seen.display(),
        host.display()
    );
    Ok(())
}

/// Checks that the container sees only shares of its own claims. A share from the image could contain any limit.
fn check_shares(root: &Rootfs, container: &Container) -> anyhow::Result<()> {
    let given = container.octavo_hooks("guard").flat_map(|hook| values(hook, "--share"));
    let given: BTreeSet<&OsStr> = given.filter_map(|share| Path::new(share).file_name()).collect();
    for entry in root.list(Path::new(SHARES)).unwrap_or_default() {
        ensure!(
            given.contains(OsStr::new(&entry.name)),
            "{SHARES}/{} of the container is no share of its claims: remove it from the image or the pod",
            entry.name
        );
    }
    Ok(())
}

/// The last part of a path.
fn name(path: &Path) -> anyhow::Result<&OsStr> {
    path.file_name().with_context(|| format!("{} has no name", path.display()))
}
