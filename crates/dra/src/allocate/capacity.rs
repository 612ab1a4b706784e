//! The amount of each capacity that a request takes, and whether that much is left (KEP-5075).

use std::collections::BTreeMap;

use crate::Quantity;
use crate::quantity::Notation;
use crate::slice::{AllowedAmounts, Capacity, Device};

/// Why a device does not have the requested capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CapacityMismatch<'s> {
    /// The device has no capacity of this name.
    Unknown(&'s str),
    /// Its policy does not allow the amount.
    OutsidePolicy { name: &'s str, wanted: Quantity },
    /// Less than the request is left.
    Short { name: &'s str, wanted: Quantity, left: Quantity },
}

/// Checks a request against the capacity that is left. `used` returns used billionths by name.
/// Names must be qualified as the device qualifies them.
pub(super) fn check<'s>(
    device: &'s Device,
    asked: &'s BTreeMap<String, Quantity>,
    used: impl Fn(&str) -> i128,
) -> Result<(), CapacityMismatch<'s>> {
    if let Some(name) = asked.keys().find(|name| !device.capacity.contains_key(*name)) {
        return Err(CapacityMismatch::Unknown(name));
    }
    for (name, capacity) in &device.capacity {
        let wanted = amount(asked.get(name).copied(), capacity);
        if !is_allowed(wanted, capacity) {
            return Err(CapacityMismatch::OutsidePolicy { name, wanted });
        }
        let left = capacity.value.nanos().saturating_sub(used(name));
        if wanted.nanos() > left {
            let left = Quantity::from_nanos(left.max(0), capacity.value.notation());
            return Err(CapacityMismatch::Short { name, wanted, left });
        }
    }
    Ok(())
}

/// The amount of each capacity that a request takes from an unused device; `None` if the device can
/// never satisfy the request.
pub fn consumed_capacity<'s>(
    device: &'s Device,
    asked: &'s BTreeMap<String, Quantity>,
) -> Option<BTreeMap<&'s str, Quantity>> {
    check(device, asked, |_| 0).ok().map(|()| amounts(device, asked))
}

/// The amount of each capacity that a request takes.
pub(super) fn amounts<'s>(
    device: &'s Device,
    asked: &BTreeMap<String, Quantity>,
) -> BTreeMap<&'s str, Quantity> {
    let amount = |(name, capacity): (&'s String, &Capacity)| {
        (name.as_str(), amount(asked.get(name).copied(), capacity))
    };
    device.capacity.iter().map(amount).collect()
}

/// The amount that a request takes: rounded up by the policy. A request without an amount takes the
/// policy's default, else all.
fn amount(asked: Option<Quantity>, capacity: &Capacity) -> Quantity {
    let policy = capacity.policy.as_ref();
    let Some(asked) = asked else {
        return policy.and_then(|policy| policy.default).unwrap_or(capacity.value);
    };
    match policy.map(|policy| &policy.allowed) {
        None | Some(AllowedAmounts::Any) => asked,
        Some(AllowedAmounts::Values(values)) => {
            values.iter().copied().find(|&value| asked <= value).unwrap_or(asked)
        }
        Some(AllowedAmounts::Range { min, .. }) if asked < *min => *min,
        Some(AllowedAmounts::Range { min, step, .. }) => match whole_step(*step) {
            None => asked,
            Some(step) => round_up(asked, *min, step),
        },
    }
}

/// Rounds up to a step from the minimum. As in Kubernetes, the result is a whole number in binary
/// notation.
fn round_up(asked: Quantity, min: Quantity, step: i128) -> Quantity {
    let above = asked.value() - min.value();
    let steps = above / step + i128::from(above % step != 0);
    let value = min.value().saturating_add(steps.saturating_mul(step));
    let unit = Quantity::decimal(1).nanos();
    Quantity::from_nanos(value.saturating_mul(unit), Notation::BinarySi)
}

/// A step as a whole number; `None` if there is no step.
fn whole_step(step: Option<Quantity>) -> Option<i128> {
    step.map(Quantity::value).filter(|&step| step != 0)
}

/// Whether the policy allows an amount. It always allows its own default.
fn is_allowed(wanted: Quantity, capacity: &Capacity) -> bool {
    let Some(policy) = &capacity.policy else { return true };
    if policy.default == Some(wanted) {
        return true;
    }
    match &policy.allowed {
        AllowedAmounts::Any => true,
        AllowedAmounts::Values(values) => values.is_empty() || values.contains(&wanted),
        AllowedAmounts::Range { min, max, step } => {
            let is_on_step =
                whole_step(*step).is_none_or(|step| (wanted.value() - min.value()) % step == 0);
            max.is_none_or(|max| wanted <= max) && is_on_step
        }
    }
}
