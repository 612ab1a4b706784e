//! Equivalence classes of devices: a selector runs once for all devices that it cannot tell apart.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::AttributeValue;
use crate::slice::{AllowedAmounts, Capacity, Device};

/// Finds the equivalence classes of devices.
#[derive(Default)]
pub(super) struct EquivalenceClasses<'a> {
    /// The first device of each class, with its driver and its index.
    by_fingerprint: HashMap<u64, Vec<(&'a str, &'a Device, usize)>>,
}

impl<'a> EquivalenceClasses<'a> {
    /// Index of the first device seen in the class of this device.
    pub(super) fn first(&mut self, driver: &'a str, device: &'a Device, index: usize) -> usize {
        let same = self.by_fingerprint.entry(fingerprint(driver, device)).or_default();
        let is_equal = |&&(other_driver, other, _): &&(&str, &Device, usize)| {
            other_driver == driver
                && other.allow_multiple == device.allow_multiple
                && other.attributes == device.attributes
                && other.capacity == device.capacity
        };
        if let Some(&(_, _, first)) = same.iter().find(is_equal) {
            return first;
        }
        same.push((driver, device, index));
        index
    }
}

/// A hash that is equal for equivalent devices.
fn fingerprint(driver: &str, device: &Device) -> u64 {
    let mut hasher = DefaultHasher::new();
    driver.hash(&mut hasher);
    device.allow_multiple.hash(&mut hasher);
    for (name, value) in &device.attributes {
        name.hash(&mut hasher);
        match value {
            AttributeValue::Int(value) => (0, value).hash(&mut hasher),
            AttributeValue::Bool(value) => (1, value).hash(&mut hasher),
            AttributeValue::String(value) => (2, value).hash(&mut hasher),
            AttributeValue::Version(value) => (3, value).hash(&mut hasher),
        }
    }
    for (name, Capacity { value, policy }) in &device.capacity {
        (name, value).hash(&mut hasher);
        match policy.as_ref().map(|policy| &policy.allowed) {
            None => 0.hash(&mut hasher),
            Some(AllowedAmounts::Any) => 1.hash(&mut hasher),
            Some(AllowedAmounts::Values(values)) => values.hash(&mut hasher),
            Some(AllowedAmounts::Range { min, max, step }) => (min, max, step).hash(&mut hasher),
        }
    }
    hasher.finish()
}
