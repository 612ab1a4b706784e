//! The CDI specs of a node's devices, by the names that answers to the kubelet have.
//!
//! Kinds and file names are those of NVIDIA's device plugin, so containers that it started keep their devices when Octavo takes
//! over.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use octavo_api::config::DeviceNodesConfig;
use octavo_api::plugin_config::{ExtraNodes as ConfiguredNodes, PluginConfig};
use octavo_cdi::{
    ALL_MODE, ContainerEdits, DeviceNode, DriverFiles, ExtraNodes, Majors, MissingModule, Spec,
    SpecDevice, VERSION,
};
use octavo_gpu::CharDevices;
use octavo_gpu::mig::CapabilityError;
use octavo_node::NodePaths;
use octavo_node::files::{StorageError, write_atomically};

use super::allocation::{CDI_ALL, CDI_CLASS_GPU, CDI_CLASS_IMEX, CDI_VENDOR, name};
use super::resources::{GpuPart, Resource};
use crate::cdi::{common_edits, drm_edits, spec_text};
use crate::compute_domain::CHANNELS;

/// What the specs are made from.
pub(super) struct SpecSource<'a> {
    pub(super) paths: &'a NodePaths,
    pub(super) files: &'a DriverFiles,
    pub(super) devices: &'a CharDevices,
    pub(super) config: &'a PluginConfig,
    /// Other device nodes, by class.
    pub(super) extra: &'a BTreeMap<&'static str, ContainerEdits>,
    /// The GPU of a part: minor number, and address in sysfs.
    pub(super) gpu: &'a dyn Fn(&GpuPart) -> Option<(u32, String)>,
}

/// Why there are no specs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpecError {
    /// A kernel module is not loaded.
    #[error("the kernel module {} is not loaded, so there is no {}", .0.module, .0.device)]
    Module(MissingModule),
    /// The capabilities of a MIG device cannot be read.
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    /// A file cannot be written.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl SpecSource<'_> {
    /// Writes the specs of all devices, where they differ from the files.
    ///
    /// # Errors
    ///
    /// A module or a capability is missing, or a file cannot be written. The earlier files stay.
    pub(super) fn write(&self, resources: &[Resource]) -> Result<(), SpecError> {
        for spec in self.specs(resources)? {
            let path = spec_path(&self.paths.cdi_root, &spec.kind);
            let text = spec_text(&spec);
            if std::fs::read_to_string(&path).is_ok_and(|old| old == text) {
                continue;
            }
            // Of this boot only: the device numbers of the next may differ.
            write_atomically(&path, text.as_bytes(), false)?;
        }
        Ok(())
    }

    fn specs(&self, resources: &[Resource]) -> Result<Vec<Spec>, SpecError> {
        let majors = Majors::of(self.devices).map_err(SpecError::Module)?;
        let mut devices: Vec<SpecDevice> = Vec::new();
        let parts = resources.iter().flat_map(|it| it.devices.iter().map(|device| &device.part));
        for part in parts {
            let name = name(part, self.config);
            let Some((minor, pci)) = (self.gpu)(part) else { continue };
            if devices.iter().any(|known| known.name == name) {
                continue;
            }
            let container_edits = self.edits(part, minor, &pci, majors)?;
            devices.push(SpecDevice { name: name.to_owned(), container_edits });
        }
        let mut specs = vec![Spec {
            cdi_version: VERSION.to_owned(),
            kind: format!("{CDI_VENDOR}/{CDI_CLASS_GPU}"),
            devices,
            container_edits: common_edits(self.paths, self.files, majors),
        }];
        specs.extend(self.extra.iter().map(|(class, edits)| of_one(class, CDI_ALL, edits.clone())));
        specs.extend(self.devices.major(CHANNELS).map(|major| {
            let node = DeviceNode::new(format!("/dev/{CHANNELS}/channel0"), major, 0, ALL_MODE);
            let edits = ContainerEdits { device_nodes: vec![node], ..ContainerEdits::default() };
            of_one(CDI_CLASS_IMEX, "0", edits)
        }));
        Ok(specs)
    }

    fn edits(
        &self,
        part: &GpuPart,
        minor: u32,
        pci: &str,
        majors: Majors,
    ) -> Result<ContainerEdits, SpecError> {
        let mut nodes = vec![majors.gpu_node(minor)];
        if let Some((instance, inner)) = part.instance {
            let caps = octavo_gpu::mig::caps(&self.paths.proc_root, minor, instance, inner)?;
            for cap in [caps.gpu_instance, caps.compute_instance] {
                nodes.push(majors.cap_node(cap.minor, cap.mode).map_err(SpecError::Module)?);
            }
        }
        let drawing = part.draws.then(|| drm_edits(self.paths, pci));
        let mut edits = drawing.unwrap_or_default();
        edits.device_nodes.splice(0..0, nodes);
        Ok(edits)
    }
}

/// Other device nodes that the settings ask for, by class. What is missing, by the kernel module: its class is left out, because a
/// runtime refuses a device without edits.
pub(super) fn extra_nodes(
    paths: &NodePaths,
    devices: &CharDevices,
    config: &PluginConfig,
) -> (BTreeMap<&'static str, ContainerEdits>, Vec<MissingModule>) {
    let (mut found, mut missing) = (BTreeMap::new(), Vec::new());
    for nodes in &config.extra_nodes {
        let none = DeviceNodesConfig::default();
        let (class, wanted) = match nodes {
            ConfiguredNodes::Gdrcopy => ("gdrcopy", DeviceNodesConfig { gdrcopy: true, ..none }),
            ConfiguredNodes::Gds => ("gds", DeviceNodesConfig { gds: true, ..none }),
            ConfiguredNodes::Mofed => ("mofed", DeviceNodesConfig { infiniband: true, ..none }),
        };
        let ExtraNodes { device_nodes, mounts, missing: module } =
            ExtraNodes::find(paths, wanted, devices);
        missing.extend(module);
        if !device_nodes.is_empty() {
            found.insert(
                class,
                ContainerEdits { device_nodes, mounts, ..ContainerEdits::default() },
            );
        }
    }
    (found, missing)
}

/// A spec of one device.
fn of_one(class: &str, name: &str, container_edits: ContainerEdits) -> Spec {
    Spec {
        cdi_version: VERSION.to_owned(),
        kind: format!("{CDI_VENDOR}/{class}"),
        devices: vec![SpecDevice { name: name.to_owned(), container_edits }],
        container_edits: ContainerEdits::default(),
    }
}

/// The file of a kind.
fn spec_path(folder: &Path, kind: &str) -> PathBuf {
    folder.join(format!("{}.json", kind.replace('/', "-")))
}
