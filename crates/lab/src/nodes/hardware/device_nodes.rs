//! Device nodes.
//!
//! They are ordinary empty files. Real device nodes need the right to create devices, which a
//! developer's account or a container does not have. They would also open any real hardware with
//! the same number. The simulated programs read only their names; a real container runtime needs a
//! real node.

use std::path::Path;

use octavo_machine::{Gpu, Machine};

use super::proc_files;
use super::tree::Tree;

/// Device nodes that all GPUs share.
const COMMON: &[&str] = &["nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools"];

/// First number of the kernel's render nodes.
const FIRST_RENDER_NODE: u32 = 128;

pub(super) fn write(tree: &Tree<'_>, machine: &Machine) -> anyhow::Result<()> {
    let dev = Path::new("dev");
    for name in COMMON {
        tree.file(dev.join(name), "")?;
    }
    for gpu in &machine.gpus {
        tree.file(dev.join(format!("nvidia{}", gpu.minor)), "")?;
        let (card, render) = drm_names(gpu);
        tree.file(dev.join("dri").join(&card), "")?;
        tree.file(dev.join("dri").join(&render), "")?;
        let by_path = dev.join("dri/by-path");
        tree.link(by_path.join(format!("pci-{}-card", gpu.pci)), format!("../{card}"))?;
        tree.link(by_path.join(format!("pci-{}-render", gpu.pci)), format!("../{render}"))?;
    }
    // On a real node the nodes of instances are created on first use. All nodes of a machine share
    // these files, and no two instances share a number.
    for minor in proc_files::capability_minors(machine) {
        tree.file(dev.join(format!("nvidia-caps/nvidia-cap{minor}")), "")?;
    }
    if has_channels(machine) {
        tree.file(dev.join("nvidia-caps-imex-channels/channel0"), "")?;
    }
    Ok(())
}

/// Names of a GPU's nodes under `dev/dri`.
pub(super) fn drm_names(gpu: &Gpu) -> (String, String) {
    (format!("card{}", gpu.minor), format!("renderD{}", FIRST_RENDER_NODE + gpu.minor))
}

/// Whether the machine's fabric spans hosts, which communicate through IMEX channels.
pub(super) fn has_channels(machine: &Machine) -> bool {
    let cluster = machine.fabric.as_ref().map(|fabric| fabric.cluster_uuid.as_str());
    cluster.is_some_and(|uuid| uuid.bytes().any(|byte| !matches!(byte, b'0' | b'-')))
}
