//! The devices of the tests.

use std::collections::BTreeMap;

use crate::{AttributeValue, DeviceFields, Quantity};

/// A device.
#[derive(Debug, Default)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) attributes: BTreeMap<String, AttributeValue>,
    pub(super) capacity: BTreeMap<String, Quantity>,
    pub(super) allow_multiple: bool,
}

impl DeviceFields for Device {
    fn name(&self) -> &str {
        &self.name
    }

    fn allows_multiple_allocations(&self) -> bool {
        self.allow_multiple
    }

    fn attributes(&self) -> &BTreeMap<String, AttributeValue> {
        &self.attributes
    }

    fn capacity(&self, name: &str) -> Option<Quantity> {
        self.capacity.get(name).copied()
    }

    fn capacities(&self) -> Box<dyn Iterator<Item = (&str, Quantity)> + '_> {
        Box::new(self.capacity.iter().map(|(name, amount)| (&**name, *amount)))
    }
}

/// A device and its driver.
pub(super) struct Sample {
    pub(super) driver: &'static str,
    pub(super) device: Device,
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::String(value.to_owned())
}

fn version(value: &str) -> AttributeValue {
    AttributeValue::Version(value.to_owned())
}

fn sample(
    driver: &'static str,
    name: &str,
    attributes: Vec<(&str, AttributeValue)>,
    capacity: Vec<(&str, &str)>,
) -> Sample {
    let named = |(name, value): (&str, AttributeValue)| (name.to_owned(), value);
    let whole = |(name, amount): (&str, &str)| (name.to_owned(), amount.parse().unwrap());
    let device = Device {
        name: name.to_owned(),
        attributes: attributes.into_iter().map(named).collect(),
        capacity: capacity.into_iter().map(whole).collect(),
        ..Device::default()
    };
    Sample { driver, device }
}

/// A device without attributes, a whole GPU, and a MIG device, in this order.
pub(super) fn samples() -> [Sample; 3] {
    use AttributeValue::{Bool, Int};
    let mut gpu = sample(
        "gpu.nvidia.com",
        "gpu",
        vec![
            ("type", text("gpu")),
            ("uuid", text("GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c")),
            ("productName", text("NVIDIA H100 80GB HBM3")),
            ("brand", text("Nvidia")),
            ("architecture", text("Hopper")),
            ("cudaComputeCapability", version("9.0.0")),
            ("driverVersion", version("580.95.5")),
            ("cudaDriverVersion", version("13.0.0")),
            ("index", Int(3)),
            ("minor", Int(-1)),
            ("healthy", Bool(true)),
            ("migEnabled", Bool(false)),
            ("zero", Int(0)),
            ("empty", text("")),
            ("address", text("10.1.2.3")),
            ("resource.kubernetes.io/pcieRoot", text("pci0000:05")),
            ("resource.kubernetes.io/numaNode", Int(1)),
            ("other.example.com/flag", Bool(true)),
            ("größe", text("ünïcödé ✓")),
        ],
        vec![
            ("memory", "80Gi"),
            ("compute", "100"),
            ("half", "500m"),
            ("other.example.com/bandwidth", "1e3"),
        ],
    );
    gpu.device.allow_multiple = true;
    let mig = sample(
        "gpu.nvidia.com",
        "mig",
        vec![
            ("type", text("mig")),
            ("profile", text("1g.10gb")),
            ("parentUUID", text("GPU-1")),
            ("index", Int(12)),
            ("productName", text("NVIDIA A100-SXM4-40GB")),
            ("driverVersion", version("580.0.0-beta.1+build.5")),
            ("healthy", Bool(false)),
            ("cudaComputeCapability", version("8.0.0")),
        ],
        vec![("memory", "9856Mi"), ("multiprocessors", "14")],
    );
    [sample("dra.example.com", "bare", vec![], vec![]), gpu, mig]
}
