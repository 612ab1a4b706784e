//! Parts of GPUs: placements for dynamic MIG instances, and existing instances.

use std::collections::BTreeMap;

use octavo_api::names::CAPACITY_MEMORY;
use octavo_dra::{Capacity, CounterConsumption, Device, DeviceTaint, Quantity};
use octavo_gpu::mig::{MigInstance, MigPlacement, MigProfile};
use octavo_gpu::{DriverVersions, Gpu};

use super::attributes::Attributes;
use super::{counters, mig_name};

/// The device of a placement. It has no UUID, which exists only with the instance.
pub(super) fn place(
    gpu: &Gpu,
    versions: &DriverVersions,
    profile: &MigProfile,
    placement: MigPlacement,
    taints: Vec<DeviceTaint>,
) -> Device {
    let attributes = attributes(gpu, versions, profile);
    let consumes = vec![counters::part(gpu.number, profile, placement)];
    device(gpu, profile, placement, attributes, capacity(profile), consumes, taints)
}

/// The device of an existing instance that one compute instance fills. Each of its memory slices is a capacity of 1, as
/// with NVIDIA's driver.
pub(super) fn instance(
    gpu: &Gpu,
    versions: &DriverVersions,
    profile: &MigProfile,
    instance: &MigInstance,
    taints: Vec<DeviceTaint>,
) -> Option<Device> {
    let [compute] = instance.compute_instances.as_slice() else { return None };
    let mut attributes = attributes(gpu, versions, profile);
    attributes.text("uuid", &compute.uuid);
    let mut capacity = capacity(profile);
    for slice in counters::slices(instance.placement) {
        let one = Capacity::whole(Quantity::decimal(1));
        capacity.insert(format!("memorySlice{slice}"), one);
    }
    Some(device(gpu, profile, instance.placement, attributes, capacity, Vec::new(), taints))
}

fn device(
    gpu: &Gpu,
    profile: &MigProfile,
    placement: MigPlacement,
    attributes: Attributes,
    capacity: BTreeMap<String, Capacity>,
    consumes: Vec<CounterConsumption>,
    taints: Vec<DeviceTaint>,
) -> Device {
    Device {
        name: mig_name(gpu.number, profile, placement),
        attributes: attributes.done(),
        capacity,
        taints,
        consumes,
        ..Device::default()
    }
}

fn attributes(gpu: &Gpu, versions: &DriverVersions, profile: &MigProfile) -> Attributes {
    let mut attributes = Attributes::of("mig", gpu, versions);
    attributes.text("parentUUID", &gpu.uuid);
    attributes.text("profile", &profile.name);
    attributes
}

fn capacity(profile: &MigProfile) -> BTreeMap<String, Capacity> {
    let engines = counters::engines(profile).map(|(_, capacity, amount)| {
        (capacity.to_owned(), Capacity::whole(Quantity::decimal(amount.into())))
    });
    let memory = (CAPACITY_MEMORY.to_owned(), Capacity::whole(counters::memory(profile)));
    engines.into_iter().chain([memory]).collect()
}
