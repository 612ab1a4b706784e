//! The component `driver`: NVIDIA's driver of the host.

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use octavo_gpu::nvml::{Nvml, find_library};
use octavo_gpu::{Driver, DriverError, Inventory};

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::report::{Component, Finding};

/// The host's root, under which a driver without a container is installed.
const HOST_ROOT: &str = "/";
/// Where NVIDIA's operands have the host's root, and a driver's own root: the values that they expect.
const HOST_ROOT_OF_OPERANDS: &str = "/host";
const DRIVER_ROOT_OF_OPERANDS: &str = "/driver-root";
/// The device node of the driver itself.
const CONTROL_NODE: &str = "nvidiactl";

/// Where a driver is installed.
#[derive(Clone, Debug)]
pub(super) struct DriverRoot {
    /// Its root on the host.
    host: PathBuf,
    /// The same folder as this process sees it.
    seen: PathBuf,
}

impl DriverRoot {
    /// Without `seen` this process has the host's paths.
    pub(super) fn new(host: &Path, seen: Option<&Path>) -> Self {
        Self { host: host.to_owned(), seen: seen.unwrap_or(host).to_owned() }
    }

    /// The folder as this process sees it.
    pub(super) fn seen(&self) -> &Path {
        &self.seen
    }

    /// Whether the driver's root has device nodes of its own, as that of a driver container has.
    fn has_dev(&self) -> bool {
        self.seen.join("dev").is_dir()
    }

    /// The folder of the device nodes, as this process sees it.
    fn dev(&self) -> PathBuf {
        if self.has_dev() { self.seen.join("dev") } else { PathBuf::from("/dev") }
    }

    /// The variables that NVIDIA's operands read from `driver-ready`.
    pub(super) fn variables(&self) -> String {
        let is_host = self.host == Path::new(HOST_ROOT);
        let of_host = (HOST_ROOT.to_owned(), HOST_ROOT_OF_OPERANDS);
        let own = (self.host.display().to_string(), DRIVER_ROOT_OF_OPERANDS);
        let driver = if is_host { of_host.clone() } else { own.clone() };
        let dev = if is_host || !self.has_dev() { of_host } else { own };
        format!(
            "IS_HOST_DRIVER={is_host}\nNVIDIA_DRIVER_ROOT={}\nDRIVER_ROOT_CTR_PATH={}\n\
             NVIDIA_DEV_ROOT={}\nDEV_ROOT_CTR_PATH={}\n",
            driver.0, driver.1, dev.0, dev.1
        )
    }
}

/// The check, by a thread of its own: a call of a broken driver may never return. Such a thread ends with the process.
pub(super) async fn check_within(root: &DriverRoot, limit: Duration) -> Finding {
    let root = root.clone();
    within(limit, move || check(&root)).await
}

async fn within(limit: Duration, check: impl FnOnce() -> Finding + Send + 'static) -> Finding {
    let failed = |message: String| {
        let remedy =
            "see the kernel's log (dmesg) for XID errors; a driver that hangs needs a reboot";
        Finding::failed(Component::Driver, message, remedy)
    };
    let (sender, receiver) = oneshot::channel();
    let thread = thread::Builder::new().name("driver-check".to_owned()).spawn(move || {
        // The answer may come too late.
        let _ = sender.send(check());
    });
    if let Err(error) = thread {
        return failed(format!("no thread for the check can be made: {error}"));
    }
    match timeout(limit, receiver).await {
        Ok(Ok(finding)) => finding,
        Ok(Err(_)) => failed("the check of the driver has panicked".to_owned()),
        Err(_) => failed(format!("the driver does not answer within {} s", limit.as_secs())),
    }
}

/// Loads the driver's management library, reads every GPU and looks for the device nodes.
pub(super) fn check(root: &DriverRoot) -> Finding {
    let failed =
        |message: String, remedy: &str| Finding::failed(Component::Driver, message, remedy);
    let opened = find_library(root.seen())
        .and_then(|library| Nvml::open(&library, Path::new("/sys")))
        .and_then(|driver| Ok((Inventory::read(&driver)?, driver)));
    let (inventory, driver) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            return failed(
                error.to_string(),
                "run nvidia-smi on the node, and see the kernel's log",
            );
        }
    };
    let unreadable =
        inventory.unreadable.iter().map(|gpu| format!("GPU {}: {}", gpu.index, gpu.error));
    let lost = inventory.gpus.iter().filter_map(|gpu| match driver.health(&gpu.uuid) {
        Err(error @ DriverError::GpuLost { .. }) => Some(format!("GPU {}: {error}", gpu.index)),
        _ => None,
    });
    let problems: Vec<String> = unreadable.chain(lost).collect();
    if !problems.is_empty() {
        let remedy =
            "drain the node, and reset the GPU or reboot; XID errors are in the kernel's log";
        return failed(problems.join("; "), remedy);
    }
    if inventory.gpus.is_empty() {
        let remedy =
            "compare `lspci -d 10de:` with the kernel's log: another module may have the GPUs";
        return failed("the driver lists no GPU".to_owned(), remedy);
    }
    let minors = inventory.gpus.iter().map(|gpu| gpu.minor);
    let missing = missing_nodes(&root.dev(), minors);
    if !missing.is_empty() {
        let message =
            format!("{} lacks device nodes: {}", root.dev().display(), missing.join(", "));
        return failed(message, "run nvidia-smi as root on the node, which makes them");
    }
    let (count, version) = (inventory.gpus.len(), &inventory.versions.driver);
    Finding::ready(Component::Driver, format!("driver {version} lists its GPUs: {count}"))
}

/// Which device nodes of the driver and of its GPUs a folder lacks.
pub(super) fn missing_nodes(dev: &Path, minors: impl IntoIterator<Item = u32>) -> Vec<String> {
    let gpus = minors.into_iter().map(|minor| format!("nvidia{minor}"));
    let names = [CONTROL_NODE.to_owned()].into_iter().chain(gpus);
    let is_node = |name: &String| {
        let found = std::fs::metadata(dev.join(name));
        found.is_ok_and(|found| found.file_type().is_char_device())
    };
    names.filter(|name| !is_node(name)).collect()
}

#[cfg(test)]
mod tests;
