//! Sets the driver's memory limit of a container's cgroup to the sum of its shares.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use octavo_gpu::nvml::{Nvml, find_library};
use octavo_gpu::{Driver, MemoryLimits};

use super::oci::{Container, values};

/// Arguments of `octavo cdi-hook memory-limits`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// UUID of the GPU.
    #[arg(long, value_name = "UUID")]
    gpu: String,
    /// Memory of the share, in bytes.
    #[arg(long, value_name = "BYTES")]
    memory_bytes: u64,
    /// Root that the driver is installed under.
    #[arg(long, value_name = "DIR")]
    driver_root: PathBuf,
    /// The proc file system.
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    proc_root: PathBuf,
    /// The sys file system.
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    sys_root: PathBuf,
}

/// Sets the limit. A container with several shares of the GPU gets their sum. Each hook sets the same sum, so repeated
/// runs are harmless.
pub(super) fn set(container: &Container, args: &Args) -> anyhow::Result<()> {
    let cgroup = cgroup(container, args)?;
    let bytes = memory_bytes(container, args)?;
    let library = find_library(&args.driver_root)?;
    let driver = Nvml::open(&library, &args.sys_root)?;
    // A soft limit would remain in the parent cgroups; see `enforcement/driver.rs`.
    let limits = MemoryLimits { soft_bytes: 0, hard_bytes: bytes };
    driver.set_memory_limits(&args.gpu, &cgroup, limits).with_context(|| {
        format!("limiting GPU {} to {bytes} bytes for cgroup {}", args.gpu, cgroup.display())
    })
}

/// The container's memory on the GPU, in bytes.
fn memory_bytes(container: &Container, args: &Args) -> anyhow::Result<u64> {
    let mut sum: u64 = 0;
    for hook in container.octavo_hooks("memory-limits") {
        if values(hook, "--gpu").next() != Some(&args.gpu) {
            continue;
        }
        let bytes = values(hook, "--memory-bytes").next().unwrap_or_default();
        let bytes: u64 = bytes.parse().with_context(|| {
            format!("a hook of the container gives {bytes:?} as bytes of memory")
        })?;
        sum = sum.saturating_add(bytes);
    }
    // If the runtime does not list hooks in the config, only this hook's share is known.
    Ok(sum.max(args.memory_bytes))
}

/// The folder of the container's own cgroup.
fn cgroup(container: &Container, args: &Args) -> anyhow::Result<PathBuf> {
    let pid = container.pid.context("the container's state has no process id")?;
    let file = args.proc_root.join(pid.to_string()).join("cgroup");
    let text = fs::read_to_string(&file)
        .with_context(|| format!("reading the cgroups of the container's process {pid}"))?;
    let Some(path) = text.lines().find_map(|line| line.strip_prefix("0::")) else {
        bail!("process {pid} is in no cgroup of version 2: set `memoryEnforcement` to `guard`");
    };
    let path = Path::new(path);
    let is_plain =
        path.is_absolute() && path.components().all(|part| part != std::path::Component::ParentDir);
    ensure!(
        is_plain && path != Path::new("/"),
        "cgroup {} of process {pid} is not the container's own",
        path.display()
    );
    let folder = args.sys_root.join("fs/cgroup").join(path.strip_prefix("/").unwrap_or(path));
    ensure!(folder.is_dir(), "the container's cgroup {} is not there", folder.display());
    Ok(folder)
}

#[cfg(test)]
mod tests;
