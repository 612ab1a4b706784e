//! Attributes of devices.

use std::collections::BTreeMap;

use octavo_dra::{AttributeValue, version};
use octavo_gpu::{DriverVersions, Gpu};

/// Maximum length of an attribute value of type string or version.
const MAX_VALUE_BYTES: usize = 64;

/// Attributes under construction. Values that the API would reject are omitted or truncated: one invalid value would
/// cost the node all its devices.
pub(super) struct Attributes(BTreeMap<String, AttributeValue>);

impl Attributes {
    /// Attributes common to a GPU and all its parts.
    pub(super) fn of(kind: &str, gpu: &Gpu, versions: &DriverVersions) -> Self {
        let mut attributes = Self(BTreeMap::new());
        attributes.text("type", kind);
        attributes.text("productName", &gpu.name);
        attributes.text("brand", &gpu.brand);
        attributes.text("architecture", &gpu.architecture);
        let (major, minor) = gpu.compute_capability;
        attributes.version("cudaComputeCapability", &format!("{major}.{minor}"));
        attributes.version("driverVersion", &versions.driver);
        let (major, minor) = versions.cuda;
        attributes.version("cudaDriverVersion", &format!("{major}.{minor}"));
        if let Some(mode) = gpu.addressing_mode {
            attributes.text("addressingMode", &mode.to_string());
        }
        attributes.text("resource.kubernetes.io/pciBusID", &gpu.pci.to_string());
        if let Some(root) = &gpu.pcie_root {
            attributes.text("resource.kubernetes.io/pcieRoot", root);
        }
        if let Some(node) = gpu.numa_node {
            attributes.int("resource.kubernetes.io/numaNode", i64::from(node));
        }
        attributes
    }

    pub(super) fn text(&mut self, name: &str, value: &str) {
        let end =
            (0..=MAX_VALUE_BYTES.min(value.len())).rev().find(|end| value.is_char_boundary(*end));
        let value = value[..end.unwrap_or(0)].to_owned();
        if !value.is_empty() {
            self.0.insert(name.to_owned(), AttributeValue::String(value));
        }
    }

    pub(super) fn int(&mut self, name: &str, value: i64) {
        self.0.insert(name.to_owned(), AttributeValue::Int(value));
    }

    pub(super) fn bool(&mut self, name: &str, value: bool) {
        self.0.insert(name.to_owned(), AttributeValue::Bool(value));
    }

    fn version(&mut self, name: &str, value: &str) {
        match version::normalize(value) {
            Ok(value) if value.len() <= MAX_VALUE_BYTES => {
                self.0.insert(name.to_owned(), AttributeValue::Version(value));
            }
            Ok(_) => tracing::warn!(attribute = name, value, "a version is too long to publish"),
            Err(error) => tracing::warn!(attribute = name, %error, "a version is not published"),
        }
    }

    pub(super) fn done(self) -> BTreeMap<String, AttributeValue> {
        self.0
    }
}
