//! The device that an expression reads.

use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::Quantity;

/// The value of a device attribute (`DeviceAttribute` of `resource.k8s.io/v1`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttributeValue {
    /// An integer.
    Int(i64),
    /// A bool.
    Bool(bool),
    /// Text of at most 64 characters.
    String(String),
    /// A semantic version of at most 64 characters.
    Version(String),
}

/// The fields of a device that expressions can read.
///
/// Names of attributes and capacities without a domain belong to the driver's domain.
pub trait DeviceFields: Debug + Sync {
    /// Name of the device, for errors.
    fn name(&self) -> &str;
    /// `device.allowMultipleAllocations`.
    fn allows_multiple_allocations(&self) -> bool;
    /// `device.attributes`, by name.
    fn attributes(&self) -> &BTreeMap<String, AttributeValue>;
    /// The amount of one entry of `device.capacity`.
    fn capacity(&self, name: &str) -> Option<Quantity>;
    /// `device.capacity` in order of name.
    fn capacities(&self) -> Box<dyn Iterator<Item = (&str, Quantity)> + '_>;
}

/// A device and the driver that publishes it.
#[derive(Clone, Copy, Debug)]
pub struct DeviceView<'a> {
    /// Name of the driver, and the default domain of names.
    pub driver: &'a str,
    /// The device.
    pub device: &'a dyn DeviceFields,
}
