//! The device as a value. It is not copied unless an expression iterates over it; most selectors
//! look up one or two names.

use std::collections::BTreeSet;

use super::{Amount, Map, Semver, Text, Value};
use crate::{AttributeValue, DeviceView, Quantity};

/// Attributes or capacities: all of them by domain, or those of one domain by name.
#[derive(Clone, Debug)]
pub(crate) struct QualifiedNames<'a> {
    view: DeviceView<'a>,
    is_capacity: bool,
    domain: Option<Text<'a>>,
}

/// A field of the device.
pub(super) fn field<'a>(view: DeviceView<'a>, key: &Value<'a>) -> Option<Value<'a>> {
    let Value::String(name) = key else { return None };
    let names =
        |is_capacity| Value::QualifiedNames(QualifiedNames { view, is_capacity, domain: None });
    match &**name {
        "driver" => Some(Value::borrowed(view.driver)),
        "allowMultipleAllocations" => Some(Value::Bool(view.device.allows_multiple_allocations())),
        "attributes" => Some(names(false)),
        "capacity" => Some(names(true)),
        _ => None,
    }
}

/// The device as a plain map.
pub(super) fn gather(view: DeviceView<'_>) -> Map<'_> {
    let fields = ["driver", "allowMultipleAllocations", "attributes", "capacity"];
    fields
        .into_iter()
        .filter_map(|name| {
            let key = Value::borrowed(name);
            let value = field(view, &key)?;
            Some((key, value))
        })
        .collect()
}

/// Splits a name into domain and identifier; without a domain it belongs to the driver's.
fn split<'a>(name: &'a str, driver: &'a str) -> (&'a str, &'a str) {
    name.split_once('/').unwrap_or((driver, name))
}

impl<'a> QualifiedNames<'a> {
    /// Every name with its value.
    fn all(&self) -> impl Iterator<Item = (&'a str, &'a str, Value<'a>)> {
        let DeviceView { driver, device } = self.view;
        let attributes = (!self.is_capacity).then(|| device.attributes().iter());
        let capacities = self.is_capacity.then(|| device.capacities());
        let attributes =
            attributes.into_iter().flatten().map(|(name, value)| (&**name, attribute(value)));
        let capacities =
            capacities.into_iter().flatten().map(|(name, value)| (name, quantity(value)));
        attributes.chain(capacities).map(move |(name, value)| {
            let (domain, id) = split(name, driver);
            (domain, id, value)
        })
    }

    fn of_domain(&self, domain: Text<'a>) -> Value<'a> {
        Value::QualifiedNames(Self { domain: Some(domain), ..self.clone() })
    }

    /// The value at a key. Every domain yields a map, which may be empty.
    pub(super) fn get(&self, key: &Value<'a>) -> Option<Value<'a>> {
        let Some(domain) = &self.domain else {
            let Value::String(domain) = key else {
                return Some(Value::Map(Map::default().into()));
            };
            return Some(self.of_domain(domain.clone()));
        };
        let Value::String(id) = key else { return None };
        let device = self.view.device;
        let find = |name: &str| {
            if self.is_capacity {
                device.capacity(name).map(quantity)
            } else {
                device.attributes().get(name).map(attribute)
            }
        };
        let qualified = || {
            // A name has only one slash, so longer ones cannot be present.
            let mut name = String::with_capacity(domain.len() + 1 + id.len());
            name.push_str(domain);
            name.push('/');
            name.push_str(id);
            find(&name)
        };
        let is_bare = **domain == *self.view.driver && !id.contains('/');
        if is_bare { find(id).or_else(qualified) } else { qualified() }
    }

    /// Whether a key is present.
    pub(super) fn contains(&self, key: &Value<'a>) -> bool {
        match (&self.domain, key) {
            (None, Value::String(wanted)) => self.all().any(|(domain, _, _)| *domain == **wanted),
            (None, _) => false,
            (Some(_), key) => self.get(key).is_some(),
        }
    }

    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        match &self.domain {
            Some(wanted) => self.all().filter(|(domain, _, _)| *domain == &**wanted).count(),
            None => self.all().map(|(domain, _, _)| domain).collect::<BTreeSet<_>>().len(),
        }
    }

    /// All entries as a plain map.
    pub(super) fn gather(&self) -> Map<'a> {
        match &self.domain {
            Some(wanted) => self
                .all()
                .filter(|(domain, _, _)| *domain == &**wanted)
                .map(|(_, id, value)| (Value::borrowed(id), value))
                .collect(),
            None => self
                .all()
                .map(|(domain, _, _)| {
                    (Value::borrowed(domain), self.of_domain(Text::Borrowed(domain)))
                })
                .collect(),
        }
    }
}

/// The amount of a capacity.
fn quantity<'a>(quantity: Quantity) -> Value<'a> {
    Value::Quantity(Amount::of(quantity))
}

/// The value of an attribute. Malformed versions are rejected before the evaluation.
fn attribute(value: &AttributeValue) -> Value<'_> {
    match value {
        AttributeValue::Int(number) => Value::Int(*number),
        AttributeValue::Bool(value) => Value::Bool(*value),
        AttributeValue::String(text) => Value::borrowed(text),
        AttributeValue::Version(text) => match Semver::parse(text) {
            Some(version) => Value::Semver(version.into()),
            None => Value::Null,
        },
    }
}
