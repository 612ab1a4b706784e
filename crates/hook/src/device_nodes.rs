//! Keeps the driver's libraries from making device nodes in a container.
//!
//! Programs as root that open NVML, `nvidia-smi` among them, make a node for each GPU of the machine. The container cannot
//! open them, but tools that count nodes see GPUs that are not its own. The libraries ask the kernel module's parameters
//! whether they may. The container gets these with another answer, as with NVIDIA's own hook
//! `disable-device-node-modification`.

use std::io::{self, Read as _};
use std::path::Path;

use anyhow::Context;
use rustix::io::Errno;

use super::mounts::{Mounts, attach, file_in_memory};
use super::rootfs::Rootfs;

/// The parameters of the kernel module.
const PARAMETERS: &str = "/proc/driver/nvidia/params";

/// The line that permits nodes, and the one that does not.
const PERMITTED: &str = "ModifyDeviceFiles: 1";
const FORBIDDEN: &str = "ModifyDeviceFiles: 0";

/// Largest file that is read, in bytes. The kernel's is a page.
const MAX_BYTES: u64 = 64 << 10;

/// Covers the parameters in a container. Idempotent. Nothing is done where the kernel module has none.
pub(super) fn forbid(root: &Rootfs) -> anyhow::Result<()> {
    let path = Path::new(PARAMETERS);
    let Ok(file) = root.open_file(path) else { return Ok(()) };
    let mut text = String::new();
    file.take(MAX_BYTES)
        .read_to_string(&mut text)
        .with_context(|| format!("reading {PARAMETERS}"))?;
    if !text.lines().any(|line| line == PERMITTED) {
        return Ok(());
    }
    let lines = text.lines().map(|line| if line == PERMITTED { FORBIDDEN } else { line });
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    match cover(root, path, &text) {
        // Kernels before 5.2. The nodes are a nuisance, and no reason to start no container.
        Err(error) if error.raw_os_error() == Some(Errno::NOSYS.raw_os_error()) => Ok(()),
        result => result.with_context(|| format!("covering {PARAMETERS} of the container")),
    }
}

/// Covers a file with another text.
fn cover(root: &Rootfs, path: &Path, text: &str) -> io::Result<()> {
    let target = root.place(path)?;
    if Mounts::default().of(&target).map_or(true, |below| below.is_shared) {
        // A pod with the host's own /proc: the host's file would be covered, too.
        return Ok(());
    }
    let folder = root.place(path.parent().unwrap_or(path))?;
    let file = file_in_memory("tmpfs", 0o444, text.as_bytes(), folder)?;
    Ok(attach(file, &target)?)
}
