//! Quantities, capacities with their policies, and counters.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use octavo_dra::{
    AllowedAmounts, Capacity, CounterConsumption, CounterSet, Quantity, RequestPolicy,
};

use super::SliceError;

pub(super) fn capacity_to_api(capacity: &Capacity) -> api::DeviceCapacity {
    let policy = |policy: &RequestPolicy| {
        let (valid_values, valid_range) = match &policy.allowed {
            AllowedAmounts::Any => (None, None),
            AllowedAmounts::Values(values) => {
                (Some(values.iter().copied().map(to_api).collect()), None)
            }
            AllowedAmounts::Range { min, max, step } => {
                let range = api::CapacityRequestPolicyRange {
                    min: to_api(*min),
                    max: max.map(to_api),
                    step: step.map(to_api),
                };
                (None, Some(range))
            }
        };
        let default = policy.default.map(to_api);
        api::CapacityRequestPolicy { default, valid_range, valid_values }
    };
    api::DeviceCapacity {
        request_policy: capacity.policy.as_ref().map(policy),
        value: to_api(capacity.value),
    }
}

pub(super) fn capacity_from_api(
    device: &str,
    name: &str,
    capacity: &api::DeviceCapacity,
) -> Result<Capacity, SliceError> {
    let read = |value: &ApiQuantity| from_api(&format!("device {device}"), name, value);
    let allowed = |policy: &api::CapacityRequestPolicy| {
        Ok(match (&policy.valid_values, &policy.valid_range) {
            (Some(values), _) => {
                AllowedAmounts::Values(values.iter().map(read).collect::<Result<_, _>>()?)
            }
            (None, Some(range)) => AllowedAmounts::Range {
                min: read(&range.min)?,
                max: range.max.as_ref().map(read).transpose()?,
                step: range.step.as_ref().map(read).transpose()?,
            },
            (None, None) => AllowedAmounts::Any,
        })
    };
    let policy = |policy: &api::CapacityRequestPolicy| {
        let default = policy.default.as_ref().map(read).transpose()?;
        Ok(RequestPolicy { default, allowed: allowed(policy)? })
    };
    Ok(Capacity {
        value: read(&capacity.value)?,
        policy: capacity.request_policy.as_ref().map(policy).transpose()?,
    })
}

/// Writes a counter set as the API's.
pub(crate) fn counter_set_to_api(set: &CounterSet) -> api::CounterSet {
    api::CounterSet { name: set.name.clone(), counters: counters_to_api(&set.counters) }
}

pub(super) fn counter_set_from_api(set: &api::CounterSet) -> Result<CounterSet, SliceError> {
    let of = format!("counter set {}", set.name);
    Ok(CounterSet { name: set.name.clone(), counters: counters_from_api(&of, &set.counters)? })
}

pub(super) fn consumption_to_api(consumed: &CounterConsumption) -> api::DeviceCounterConsumption {
    api::DeviceCounterConsumption {
        counter_set: consumed.counter_set.clone(),
        counters: counters_to_api(&consumed.counters),
    }
}

pub(super) fn consumption_from_api(
    device: &str,
    consumed: &api::DeviceCounterConsumption,
) -> Result<CounterConsumption, SliceError> {
    Ok(CounterConsumption {
        counter_set: consumed.counter_set.clone(),
        counters: counters_from_api(&format!("device {device}"), &consumed.counters)?,
    })
}

fn counters_to_api(counters: &BTreeMap<String, Quantity>) -> BTreeMap<String, api::Counter> {
    let counter = |value| api::Counter { value: to_api(value) };
    counters.iter().map(|(name, value)| (name.clone(), counter(*value))).collect()
}

fn counters_from_api(
    of: &str,
    counters: &BTreeMap<String, api::Counter>,
) -> Result<BTreeMap<String, Quantity>, SliceError> {
    let counter = |(name, counter): (&String, &api::Counter)| {
        Ok((name.clone(), from_api(of, name, &counter.value)?))
    };
    counters.iter().map(counter).collect()
}

fn to_api(quantity: Quantity) -> ApiQuantity {
    ApiQuantity(quantity.to_string())
}

fn from_api(of: &str, name: &str, value: &ApiQuantity) -> Result<Quantity, SliceError> {
    value.0.parse().map_err(|_| SliceError::Quantity {
        of: of.to_owned(),
        name: name.to_owned(),
        value: value.0.clone(),
    })
}
