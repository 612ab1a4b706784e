//! The content of slices, without fields that servers add or normalise.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use octavo_dra::Quantity;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::Part;
use crate::slices::convert;

/// A digest of a slice's content; equal content has equal digests. The objects of a node with many
/// MIG placements take megabytes, too much to keep for comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContentDigest([u8; 32]);

impl ContentDigest {
    /// The digest of a slice of the API.
    pub(crate) fn by(slice: &api::ResourceSlice) -> Self {
        let (counters, devices) = contents(slice);
        Self::new(counters.iter().cloned(), devices.iter().cloned())
    }

    /// The digest of a slice with this part of a pool.
    pub(super) fn wanted(part: Part<'_>) -> Self {
        let counters = part.counters().iter().map(convert::counter_set_to_api);
        Self::new(counters, part.devices().iter().map(convert::device_to_api))
    }

    fn new(
        counters: impl Iterator<Item = api::CounterSet>,
        devices: impl Iterator<Item = api::Device>,
    ) -> Self {
        let mut hash = Sha256::new();
        for mut set in counters {
            normal_counters(&mut set);
            add(&mut hash, &set);
        }
        hash.update(b"devices");
        for mut device in devices {
            normal_device(&mut device);
            add(&mut hash, &device);
        }
        Self(hash.finalize().into())
    }
}

/// Whether the content of two slices differs, field by field.
pub(super) fn is_changed(sent: &api::ResourceSlice, kept: &api::ResourceSlice) -> bool {
    let ((sent_counters, sent_devices), (counters, devices)) = (contents(sent), contents(kept));
    let normal = |set: &api::CounterSet| {
        let mut set = set.clone();
        normal_counters(&mut set);
        set
    };
    let is_same_set = |(sent, kept)| normal(sent) == normal(kept);
    let normal = |device: &api::Device| {
        let mut device = device.clone();
        normal_device(&mut device);
        device
    };
    let is_same_device = |(sent, kept)| normal(sent) == normal(kept);
    sent_counters.len() != counters.len()
        || sent_devices.len() != devices.len()
        || !sent_counters.iter().zip(counters).all(is_same_set)
        || !sent_devices.iter().zip(devices).all(is_same_device)
}

fn contents(slice: &api::ResourceSlice) -> (&[api::CounterSet], &[api::Device]) {
    let spec = &slice.spec;
    (
        spec.shared_counters.as_deref().unwrap_or_default(),
        spec.devices.as_deref().unwrap_or_default(),
    )
}

/// Adds a value as JSON, whose order of fields is fixed.
fn add(hash: &mut Sha256, value: &impl Serialize) {
    if let Err(error) = serde_json::to_writer(&mut *hash, value) {
        // Fails only for maps with keys that are not text, which the API does not have.
        tracing::error!(%error, "a slice cannot be compared");
    }
    hash.update(b"\n");
}

fn normal_counters(set: &mut api::CounterSet) {
    set.counters.values_mut().for_each(|counter| normalize(&mut counter.value));
}

fn normal_device(device: &mut api::Device) {
    for taint in device.taints.iter_mut().flatten() {
        taint.time_added = None;
        taint.value = taint.value.take().filter(|value| !value.is_empty());
    }
    for consumed in device.consumes_counters.iter_mut().flatten() {
        consumed.counters.values_mut().for_each(|counter| normalize(&mut counter.value));
    }
    for capacity in device.capacity.iter_mut().flat_map(BTreeMap::values_mut) {
        normalize(&mut capacity.value);
        if let Some(policy) = &mut capacity.request_policy {
            let range = policy.valid_range.iter_mut();
            let range = range
                .flat_map(|range| [Some(&mut range.min), range.max.as_mut(), range.step.as_mut()]);
            let values = policy.valid_values.iter_mut().flatten();
            policy.default.iter_mut().chain(range.flatten()).chain(values).for_each(normalize);
        }
    }
    device.taints = device.taints.take().filter(|taints| !taints.is_empty());
    device.consumes_counters = device.consumes_counters.take().filter(|taken| !taken.is_empty());
    device.attributes = device.attributes.take().filter(|map| !map.is_empty());
    device.capacity = device.capacity.take().filter(|map| !map.is_empty());
}

/// Writes equal amounts in the same form.
fn normalize(amount: &mut ApiQuantity) {
    if let Ok(quantity) = amount.0.parse::<Quantity>() {
        amount.0 = quantity.nanos().to_string();
    }
}
