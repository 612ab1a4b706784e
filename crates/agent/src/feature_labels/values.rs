//! Keys and values of the labels. No I/O.
//!
//! They are those of GPU feature discovery (k8s-device-plugin 0.20, `internal/lm`). What differs between the GPUs of a node is
//! that of its last GPU, whereas there the order is random.

use std::collections::BTreeMap;

use octavo_api::plugin_config::{MigStrategy, PluginConfig, SharingConfig, SharingStrategy};
use octavo_gpu::mig::MigProfile;
use octavo_gpu::{Gpu, Inventory};

use super::machine::MachineFacts;
use crate::device_plugin::{GPU_RESOURCE, mig_devices, mig_resource};
use crate::fabric::Fabric;

/// Begin of all keys.
const PREFIX: &str = "nvidia.com/";
const MIB: u64 = 1 << 20;

/// PCI class of a controller with a display: base class and subclass.
const CLASS_DISPLAY: u32 = 0x0300;
/// PCI class of a controller without one.
const CLASS_3D: u32 = 0x0302;

/// Labels, by key.
pub(crate) type Labels = BTreeMap<String, String>;

/// The labels of a node. One without a GPU has few.
pub(super) fn labels(
    inventory: &Inventory,
    config: &PluginConfig,
    machine: &MachineFacts,
) -> Labels {
    let mut labels = Labels::new();
    let mut set = |key: &str, value: String| {
        labels.insert(format!("{PREFIX}{key}"), value);
    };
    if !config.labels.no_timestamp {
        set("gfd.timestamp", machine.started.to_string());
    }
    set("vgpu.present", (!machine.vgpus.is_empty()).to_string());
    for vgpu in &machine.vgpus {
        set("vgpu.host-driver-version", vgpu.host_driver_version.clone());
        set("vgpu.host-driver-branch", vgpu.host_driver_branch.clone());
    }
    if inventory.gpus.is_empty() {
        return labels;
    }
    let machine_type = match machine.machine_type.trim() {
        "" => "unknown".to_owned(),
        name => sanitised(name),
    };
    set("gpu.machine", machine_type);
    let is_capable = inventory.gpus.iter().any(|gpu| gpu.mig.is_some());
    set("mig.capable", is_capable.to_string());
    let is_mps = config.sharing.as_ref().is_some_and(|it| it.strategy == SharingStrategy::Mps);
    let is_divided = inventory.gpus.iter().any(is_mig);
    set("mps.capable", (is_mps && !is_divided).to_string());
    set("gpu.mode", mode(&machine.pci_classes).to_owned());
    if let Fabric::Clique(clique) = Fabric::of(inventory) {
        set("gpu.clique", clique);
    }
    versions(inventory, &mut set);
    whole_gpus(inventory, config, &mut labels);
    mig(inventory, config, &mut labels);
    labels
}

/// Versions of driver and CUDA, under their present and their former keys.
fn versions(inventory: &Inventory, set: &mut impl FnMut(&str, String)) {
    let driver = inventory.versions.driver.as_str();
    let mut parts = driver.split('.');
    let (major, minor, revision) = (parts.next(), parts.next(), parts.next());
    let (cuda_major, cuda_minor) = inventory.versions.cuda;
    for (key, value) in [
        ("cuda.driver.major", major.unwrap_or_default().to_owned()),
        ("cuda.driver.minor", minor.unwrap_or_default().to_owned()),
        ("cuda.driver.rev", revision.unwrap_or_default().to_owned()),
        ("cuda.driver-version.major", major.unwrap_or_default().to_owned()),
        ("cuda.driver-version.minor", minor.unwrap_or_default().to_owned()),
        ("cuda.driver-version.revision", revision.unwrap_or_default().to_owned()),
        ("cuda.driver-version.full", driver.to_owned()),
        ("cuda.runtime.major", cuda_major.to_string()),
        ("cuda.runtime.minor", cuda_minor.to_string()),
        ("cuda.runtime-version.major", cuda_major.to_string()),
        ("cuda.runtime-version.minor", cuda_minor.to_string()),
        ("cuda.runtime-version.full", format!("{cuda_major}.{cuda_minor}")),
    ] {
        set(key, value);
    }
}

/// The labels of `nvidia.com/gpu` for GPUs as a whole. Those out of MIG mode come after those in it, and count. One in MIG mode
/// cannot be shared, and has no replicas.
fn whole_gpus(inventory: &Inventory, config: &PluginConfig, labels: &mut Labels) {
    let (in_mode, whole): (Vec<&Gpu>, Vec<&Gpu>) =
        inventory.gpus.iter().partition(|gpu| is_mig(gpu));
    for (gpus, can_share) in [(in_mode, false), (whole, true)] {
        for gpu in gpus {
            let count = inventory.gpus.iter().filter(|other| other.name == gpu.name).count();
            let sharing = config.sharing.as_ref().filter(|_| can_share);
            base(GPU_RESOURCE, &[&gpu.name], count, sharing, labels);
            if !can_share {
                labels.insert(format!("{GPU_RESOURCE}.replicas"), "0".to_owned());
            }
            let mut set = |key: &str, value: String| {
                labels.insert(format!("{GPU_RESOURCE}.{key}"), value);
            };
            set("memory", (gpu.memory_bytes / MIB).to_string());
            let (major, minor) = gpu.compute_capability;
            set("family", family(major, minor).to_owned());
            set("compute.major", major.to_string());
            set("compute.minor", minor.to_string());
        }
    }
}

/// The labels of MIG devices, where the strategy offers them.
fn mig(inventory: &Inventory, config: &PluginConfig, labels: &mut Labels) {
    let strategy = match config.mig_strategy {
        MigStrategy::None => return,
        MigStrategy::Single => "single",
        MigStrategy::Mixed => "mixed",
    };
    labels.insert(format!("{PREFIX}mig.strategy"), strategy.to_owned());
    let in_mode: Vec<&Gpu> = inventory.gpus.iter().filter(|gpu| is_mig(gpu)).collect();
    let Some(first) = in_mode.first() else { return };
    // Devices by profile: their GPU, the profile and the count.
    let mut kinds: BTreeMap<String, (&Gpu, &MigProfile, usize)> = BTreeMap::new();
    for gpu in &in_mode {
        for (instance, _) in mig_devices(gpu) {
            let known = gpu.mig_profiles.iter().find(|it| it.id == instance.profile_id);
            let Some(profile) = known else { continue };
            kinds.entry(profile.name.clone()).or_insert((gpu, profile, 0)).2 += 1;
        }
    }
    if config.mig_strategy == MigStrategy::Single {
        let is_uniform = kinds.len() == 1
            && in_mode.len() == inventory.gpus.len()
            && in_mode.iter().all(|gpu| mig_devices(gpu).next().is_some());
        if !is_uniform {
            invalid(first, labels);
            return;
        }
    }
    for (name, (gpu, profile, count)) in kinds {
        let resource = match config.mig_strategy {
            MigStrategy::Single => GPU_RESOURCE.to_owned(),
            _ => mig_resource(&name),
        };
        let product = [gpu.name.as_str(), "MIG", &name.replace('+', ".")];
        base(&resource, &product, count, config.sharing.as_ref(), labels);
        for (key, value) in [
            ("memory", profile.memory_mib),
            ("multiprocessors", profile.multiprocessors.into()),
            ("slices.gi", profile.shape.gpu_slices.into()),
            ("slices.ci", profile.shape.compute_slices.into()),
            ("engines.copy", profile.copy_engines.into()),
            ("engines.decoder", profile.decoders.into()),
            ("engines.encoder", profile.encoders.into()),
            ("engines.jpeg", profile.jpeg_engines.into()),
            ("engines.ofa", profile.ofa_engines.into()),
        ] {
            labels.insert(format!("{resource}.{key}"), value.to_string());
        }
    }
}

/// The labels under `single` when the MIG devices of the node differ.
fn invalid(gpu: &Gpu, labels: &mut Labels) {
    for (key, value) in [
        ("product", format!("{}-MIG-INVALID", sanitised(&gpu.name))),
        ("count", "0".to_owned()),
        ("replicas", "0".to_owned()),
        ("sharing-strategy", String::new()),
        ("memory", "0".to_owned()),
    ] {
        labels.insert(format!("{GPU_RESOURCE}.{key}"), value);
    }
}

fn is_mig(gpu: &Gpu) -> bool {
    gpu.mig.is_some_and(|mig| mig.enabled)
}

/// Product, count and sharing of a resource.
fn base(
    resource: &str,
    product: &[&str],
    count: usize,
    sharing: Option<&SharingConfig>,
    labels: &mut Labels,
) {
    let shared = sharing.and_then(|it| Some((it, it.of(resource)?)));
    let replicas = shared.map_or(1, |(_, shared)| shared.replicas);
    let strategy = match shared.map(|(sharing, _)| sharing.strategy) {
        None => "none",
        Some(SharingStrategy::TimeSlicing) => "time-slicing",
        Some(SharingStrategy::Mps) => "mps",
    };
    let mut parts: Vec<String> = product.iter().map(|part| sanitised(part)).collect();
    if shared.is_some_and(|(sharing, _)| !sharing.rename_by_default) {
        parts.push("SHARED".to_owned());
    }
    for (key, value) in [
        ("product", parts.join("-")),
        ("count", count.to_string()),
        ("replicas", replicas.to_string()),
        ("sharing-strategy", strategy.to_owned()),
    ] {
        labels.insert(format!("{resource}.{key}"), value);
    }
}

/// What the GPUs are for, by their PCI class.
fn mode(classes: &[u32]) -> &'static str {
    let Some(first) = classes.first().filter(|first| classes.iter().all(|it| it == *first)) else {
        return "unknown";
    };
    match *first {
        CLASS_DISPLAY => "graphics",
        CLASS_3D => "compute",
        _ => "unknown",
    }
}

/// NVIDIA's name of an architecture.
fn family(major: u32, minor: u32) -> &'static str {
    match (major, minor) {
        (1, _) => "tesla",
        (2, _) => "fermi",
        (3, _) => "kepler",
        (5, _) => "maxwell",
        (6, _) => "pascal",
        (7, 0..=4) => "volta",
        (7, _) => "turing",
        (8, 0..=8) => "ampere",
        (8, _) => "ada-lovelace",
        (9, _) => "hopper",
        (10 | 12, _) => "blackwell",
        (13, _) => "rubin",
        _ => "undefined",
    }
}

/// A text as a label's value: other characters than letters, digits and `-_.` are left out, and words are joined by dashes.
fn sanitised(text: &str) -> String {
    let is_kept = |c: &char| c.is_ascii_alphanumeric() || "-_. ".contains(*c);
    let kept: String = text.chars().filter(is_kept).collect();
    kept.split_whitespace().collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests;
