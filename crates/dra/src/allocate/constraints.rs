//! Constraints between the devices of a claim.

use std::collections::BTreeMap;

use crate::AttributeValue;
use crate::claim::{Constraint, Rule};
use crate::slice::Device;

/// A constraint and the devices chosen for it so far.
#[derive(Clone, Debug)]
pub(super) struct ConstraintState<'s> {
    constraint: &'s Constraint,
    /// The attribute values of the chosen devices, in the order of choice.
    values: Vec<&'s AttributeValue>,
    /// One value for each request, which is all that Kubernetes 1.36 remembers; `None` to compare
    /// with all values.
    values_by_request: Option<BTreeMap<&'s str, &'s AttributeValue>>,
}

/// The request for which a device is chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestName<'s> {
    /// Name of the request.
    pub(super) request: &'s str,
    /// Name of the alternative.
    pub(super) alternative: Option<&'s str>,
}

impl<'s> ConstraintState<'s> {
    /// A constraint without chosen devices.
    pub(super) fn new(constraint: &'s Constraint, is_per_request: bool) -> Self {
        let is_distinct = matches!(constraint.rule, Rule::Distinct(_));
        let values_by_request = (is_per_request && is_distinct).then(BTreeMap::new);
        Self { constraint, values: Vec::new(), values_by_request }
    }

    /// The constraint's rule.
    pub(super) fn rule(&self) -> &'s Rule {
        &self.constraint.rule
    }

    /// Whether the constraint allows a device. It allows all devices of requests that it does not
    /// cover.
    pub(super) fn admits(&self, of: RequestName<'_>, driver: &str, device: &Device) -> bool {
        if !self.covers(of) {
            return true;
        }
        let (Rule::Match(name) | Rule::Distinct(name)) = &self.constraint.rule;
        let Some(value) = attribute(device, driver, name) else { return false };
        match (&self.constraint.rule, &self.values_by_request) {
            (Rule::Match(_), _) => self.values.first().is_none_or(|&first| first == value),
            (Rule::Distinct(_), None) => !self.values.contains(&value),
            (Rule::Distinct(_), Some(values_by_request)) => {
                self.values.is_empty() || values_by_request.values().all(|&other| other != value)
            }
        }
    }

    /// Adds a device that [`admits`](Self::admits) allowed.
    pub(super) fn add(&mut self, of: RequestName<'s>, driver: &str, device: &'s Device) {
        let (Rule::Match(name) | Rule::Distinct(name)) = &self.constraint.rule;
        let value = attribute(device, driver, name);
        if let Some(value) = value.filter(|_| self.covers(of)) {
            self.values.push(value);
            if let Some(values_by_request) = &mut self.values_by_request {
                values_by_request.insert(of.request, value);
            }
        }
    }

    /// Removes the device that was added last.
    pub(super) fn remove(&mut self, of: RequestName<'_>) {
        if self.covers(of) {
            self.values.pop();
            if let Some(values_by_request) = &mut self.values_by_request {
                values_by_request.remove(of.request);
            }
        }
    }

    fn covers(&self, of: RequestName<'_>) -> bool {
        let is_named = |name: &String| match name.split_once('/') {
            None => name == of.request,
            Some((request, alternative)) => {
                request == of.request && Some(alternative) == of.alternative
            }
        };
        self.constraint.requests.is_empty() || self.constraint.requests.iter().any(is_named)
    }
}

/// An attribute by its qualified name. A name without a domain belongs to the driver's domain.
fn attribute<'s>(device: &'s Device, driver: &str, name: &str) -> Option<&'s AttributeValue> {
    device.attributes.get(name).or_else(|| {
        let (domain, id) = name.split_once('/')?;
        (domain == driver).then(|| device.attributes.get(id)).flatten()
    })
}
