//! The component `toolkit`: the container runtime gives containers their GPUs.
//!
//! A pod cannot read the runtime's config. It can see the result: this very container has device nodes of a GPU, and libraries
//! that its image has not.

use std::path::Path;

use octavo_gpu::nvml::{LIBRARY_NAME, Nvml};
use octavo_gpu::{Driver as _, DriverError};

use super::driver::{DriverRoot, missing_nodes};
use crate::report::{Component, Finding};

/// A variable that the kubelet gives every container.
const OF_PODS: &str = "KUBERNETES_SERVICE_HOST";
/// What lets a runtime give containers their GPUs.
const REMEDY: &str = "let the container runtime read CDI specs from the agent's cdiRoot (enable_cdi and cdi_spec_dirs of \
    containerd, cdi_spec_dirs of CRI-O); where the device plugin's config asks for envvar, pods need the RuntimeClass of \
    NVIDIA's runtime: --runtime-class nvidia";

/// Looks at what the runtime put into this container.
pub(super) fn check(root: &DriverRoot) -> Finding {
    let not_tried = |message: &str| Finding::not_tried(Component::Toolkit, message);
    if std::env::var_os(OF_PODS).is_none() {
        return not_tried(
            "this process is in no pod, and only a container with a GPU shows what the runtime gives",
        );
    }
    // The loader would take a library of this name that is open already.
    if has_driver_of(root) {
        return not_tried(
            "this process has the driver of the host open: check toolkit in a container of its own",
        );
    }
    match given(Path::new("/dev")) {
        Ok(count) => Finding::ready(
            Component::Toolkit,
            format!("this container has GPUs and the driver's libraries: {count}"),
        ),
        Err(message) => Finding::failed(Component::Toolkit, message, REMEDY),
    }
}

/// How many GPUs the container has, or what it lacks.
fn given(dev: &Path) -> Result<usize, String> {
    // By its bare name, as programs of containers ask the loader.
    let driver = Nvml::open(Path::new(LIBRARY_NAME), Path::new("/sys"));
    let gpus = driver.and_then(|driver| driver.gpus());
    let gpus = gpus.map_err(|error| match error {
        DriverError::Load { reason, .. } => {
            format!("this container has no {LIBRARY_NAME}: {reason}")
        }
        error => error.to_string(),
    })?;
    let minors: Vec<u32> = gpus.iter().flatten().map(|gpu| gpu.minor).collect();
    if minors.is_empty() {
        return Err("the driver's library lists no GPU in this container".to_owned());
    }
    let count = minors.len();
    let missing = missing_nodes(dev, minors);
    if missing.is_empty() {
        Ok(count)
    } else {
        Err(format!("this container lacks device nodes: {}", missing.join(", ")))
    }
}

/// Whether a library of the driver's root is still mapped.
fn has_driver_of(root: &DriverRoot) -> bool {
    if root.seen() == Path::new("/") {
        return false;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let root = format!("{}/", root.seen().display());
    maps.lines().any(|line| line.contains("libnvidia-ml.so") && line.contains(&root))
}
