//! Whether a slice that is there says what is wanted.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use octavo_dra::Quantity;

/// How many writes are remembered that a server changed: more than a pool has slices.
const MOST_SETTLED: usize = 64;

/// What a server made of content that was sent to it: fields that it does not know are dropped
/// without a word. Without this memory such a slice would be written again for ever.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settled(Vec<(Said, Said)>);

/// What a slice says, without what the server adds or writes in its own way.
#[derive(Clone, Debug, PartialEq)]
struct Said {
    counters: Vec<api::CounterSet>,
    devices: Vec<api::Device>,
}

impl Settled {
    /// Remembers what became of a write; returns whether the server changed it.
    pub(crate) fn remember(
        &mut self,
        sent: &api::ResourceSlice,
        kept: &api::ResourceSlice,
    ) -> bool {
        let (sent, kept) = (Said::by(sent), Said::by(kept));
        let is_changed = sent != kept;
        self.0.retain(|(known, _)| *known != sent);
        if is_changed {
            if self.0.len() == MOST_SETTLED {
                self.0.remove(0);
            }
            self.0.push((sent, kept));
        }
        is_changed
    }

    /// Whether a slice says what is wanted, or what the server makes of it.
    pub(super) fn is_same(
        &self,
        counters: Option<&[api::CounterSet]>,
        devices: Option<&[api::Device]>,
        found: &api::ResourceSlice,
    ) -> bool {
        let wanted = Said::new(counters.unwrap_or_default(), devices.unwrap_or_default());
        let found = Said::by(found);
        wanted == found || self.0.iter().any(|(sent, kept)| *sent == wanted && *kept == found)
    }
}

impl Said {
    fn by(slice: &api::ResourceSlice) -> Self {
        let spec = &slice.spec;
        Self::new(
            spec.shared_counters.as_deref().unwrap_or_default(),
            spec.devices.as_deref().unwrap_or_default(),
        )
    }

    fn new(counters: &[api::CounterSet], devices: &[api::Device]) -> Self {
        let mut said = Self { counters: counters.to_vec(), devices: devices.to_vec() };
        for set in &mut said.counters {
            set.counters.values_mut().for_each(|counter| normalize(&mut counter.value));
        }
        said.devices.iter_mut().for_each(normal_device);
        said
    }
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

/// Writes equal amounts alike.
fn normalize(amount: &mut ApiQuantity) {
    if let Ok(quantity) = amount.0.parse::<Quantity>() {
        amount.0 = quantity.nanos().to_string();
    }
}
