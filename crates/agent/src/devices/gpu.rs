//! A GPU as one device: whole, or any number of shares.

use std::num::NonZeroU32;

use octavo_api::names::{
    ATTRIBUTE_TIME_ENFORCED, CAPACITY_COMPUTE, CAPACITY_MEMORY, CAPACITY_SHARES,
};
use octavo_dra::{
    AllowedAmounts, Capacity, CounterSet, Device, DeviceTaint, Quantity, RequestPolicy,
};
use octavo_gpu::Gpu;

use super::attributes::Attributes;
use super::{Node, counters, device_name};
use crate::config::GpuShares;

const MIB: i64 = 1 << 20;
/// A GPU's time, in percent.
const FULL_TIME: i64 = 100;

/// The device of a whole GPU. On a GPU under dynamic MIG it consumes all counters.
pub(super) fn device(
    gpu: &Gpu,
    node: &Node<'_>,
    set: Option<&CounterSet>,
    taints: Vec<DeviceTaint>,
) -> Device {
    let mut attributes = Attributes::of("gpu", gpu, &node.inventory.versions);
    attributes.text("uuid", &gpu.uuid);
    // NVLink connects the GPUs of a clique. A `matchAttribute` on it keeps a claim on one fabric.
    if let Some(clique) = gpu.fabric.as_ref().and_then(|fabric| fabric.clique.as_ref()) {
        attributes.text("octavo.dev/fabricClique", &clique.to_string());
    }
    if let Some(module) = gpu.module {
        attributes.int("octavo.dev/module", i64::from(module));
    }
    // The capacity `compute` says where a share fits. This says whether it is held to it.
    attributes.bool(ATTRIBUTE_TIME_ENFORCED, node.enforces_time);
    // Without memory of its own nothing says how much a share would have, so a claim takes all of it.
    let has_memory = gpu.memory_bytes > 0;
    let mut capacity = Vec::new();
    if has_memory {
        capacity.push((CAPACITY_MEMORY, memory(gpu.memory_bytes, node.shares)));
        capacity.push((CAPACITY_COMPUTE, compute()));
        capacity.extend(node.shares.count().map(|count| (CAPACITY_SHARES, shares(count))));
    }
    Device {
        name: device_name(gpu),
        attributes: attributes.done(),
        capacity: capacity
            .into_iter()
            .map(|(name, capacity)| (name.to_owned(), capacity))
            .collect(),
        taints,
        consumes: set.map(counters::all).into_iter().collect(),
        allow_multiple: has_memory,
        ..Device::default()
    }
}

/// Memory in steps of 1 MiB. A claim without a request takes all memory, and with it the GPU, unless GPUs are shared otherwise.
fn memory(bytes: u64, shares: GpuShares) -> Capacity {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let whole_mib = bytes - bytes % MIB;
    let (default, min) = match shares {
        GpuShares::Memory => (Quantity::binary(whole_mib), Quantity::binary(MIB)),
        GpuShares::Count(_) | GpuShares::Unlimited => (Quantity::ZERO, Quantity::ZERO),
    };
    // The API requires at least one step between minimum and maximum.
    let policy = (whole_mib > MIB).then(|| RequestPolicy {
        default: Some(default),
        allowed: AllowedAmounts::Range {
            min,
            max: Some(Quantity::binary(whole_mib)),
            step: Some(Quantity::binary(MIB)),
        },
    });
    Capacity { value: Quantity::binary(bytes), policy }
}

/// Equal shares, as NVIDIA's DRA driver publishes them. A claim without a request takes one.
fn shares(count: NonZeroU32) -> Capacity {
    let (one, all) = (Quantity::decimal(1), Quantity::decimal(i64::from(count.get())));
    let policy = RequestPolicy {
        default: Some(one),
        // The API requires at least one step between minimum and maximum.
        allowed: AllowedAmounts::Range {
            min: one,
            max: Some(all),
            step: (count.get() > 1).then_some(one),
        },
    };
    Capacity { value: all, policy: Some(policy) }
}

/// Compute time in percent. A claim without a request has no guarantee and gets a fair part of idle time.
///
/// There is no step: Kubernetes computes steps in whole numbers, and an eighth is 12.5.
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
