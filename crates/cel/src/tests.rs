//! Selectors have the results that Kubernetes gives them, and no text that a user writes does harm.

mod bounds;
mod cache;
mod costs;
mod devices;
mod errors;
mod random;
mod table;

use crate::{AttributeValue, CelError, DeviceView, Selector};
use devices::Device;

/// The result for a device without attributes.
fn matches(expression: &str) -> Result<bool, CelError> {
    let device = Device { name: "bare".to_owned(), ..Device::default() };
    Selector::compile(expression)?.matches(DeviceView { driver: "example.com", device: &device })
}

#[test]
fn an_attribute_may_be_absent() {
    let expression = "device.attributes['octavo.dev'].?timeEnforced.orValue(false)";
    assert_eq!(matches(expression), Ok(false));
    let attributes = [("octavo.dev/timeEnforced".to_owned(), AttributeValue::Bool(true))].into();
    let device = Device { name: "held".to_owned(), attributes, ..Device::default() };
    let selector = Selector::compile(expression).unwrap();
    let view = DeviceView { driver: "gpu.nvidia.com", device: &device };
    assert_eq!(selector.matches(view), Ok(true));
}
