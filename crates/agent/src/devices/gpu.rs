//! A GPU as one device: whole, or any number of shares of it.

use octavo_api::names::{CAPACITY_COMPUTE, CAPACITY_MEMORY};
use octavo_dra::{
    AllowedAmounts, Capacity, CounterSet, Device, DeviceTaint, Quantity, RequestPolicy,
};
use octavo_gpu::{DriverVersions, Gpu};

use super::attributes::Attributes;
use super::{counters, device_name};

const MIB: i64 = 1 << 20;
/// A GPU's time, in percent.
const FULL_TIME: i64 = 100;

/// The device of a whole GPU. Where MIG may cut it, it takes all that its instances could.
pub(super) fn device(
    gpu: &Gpu,
    versions: &DriverVersions,
    set: Option<&CounterSet>,
    taints: Vec<DeviceTaint>,
) -> Device {
    let mut attributes = Attributes::of("gpu", gpu, versions);
    attributes.text("uuid", &gpu.uuid);
    // NVLink reaches within a clique: matchAttribute on it keeps a claim on one fabric.
    if let Some(clique) = gpu.fabric.as_ref().and_then(|fabric| fabric.clique.as_ref()) {
        attributes.text("octavo.dev/fabricClique", &clique.to_string());
    }
    if let Some(module) = gpu.module {
        attributes.int("octavo.dev/module", i64::from(module));
    }
    let capacity = [(CAPACITY_MEMORY, memory(gpu.memory_bytes)), (CAPACITY_COMPUTE, compute())];
    Device {
        name: device_name(gpu),
        attributes: attributes.done(),
        capacity: capacity.map(|(name, capacity)| (name.to_owned(), capacity)).into(),
        taints,
        consumes: set.map(counters::all).into_iter().collect(),
        allow_multiple: true,
        ..Device::default()
    }
}

/// Memory in steps of a MiB; a claim that does not say takes all, and with it the GPU.
fn memory(bytes: u64) -> Capacity {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let whole_mib = bytes - bytes % MIB;
    // The API wants room for a step beyond the least.
    let policy = (whole_mib > MIB).then(|| RequestPolicy {
        default: Some(Quantity::binary(whole_mib)),
        allowed: AllowedAmounts::Range {
            min: Quantity::binary(MIB),
            max: Some(Quantity::binary(whole_mib)),
            step: Some(Quantity::binary(MIB)),
        },
    });
    Capacity { value: Quantity::binary(bytes), policy }
}

/// Time in percent; a claim that does not say is promised none and has a fair part of what is idle.
/// Without a step: Kubernetes computes steps in whole numbers, and an eighth is 12.5.
fn compute() -> Capacity {
    let policy = RequestPolicy {
        default: Some(Quantity::ZERO),
        allowed: AllowedAmounts::Range {
            min: Quantity::ZERO,
            max: Some(Quantity::decimal(FULL_TIME)),
            step: None,
        },
    };
    Capacity { value: Quantity::decimal(FULL_TIME), policy: Some(policy) }
}
