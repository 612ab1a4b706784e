//! Selectors have the results that Kubernetes gives them, and no text that a user writes does harm.

mod bounds;
mod cache;
mod costs;
mod devices;
mod errors;
mod random;
mod table;

use crate::{CelError, DeviceView, Selector};
use devices::Device;

/// The result for a device without attributes.
fn matches(expression: &str) -> Result<bool, CelError> {
    let device = Device { name: "bare".to_owned(), ..Device::default() };
    Selector::compile(expression)?.matches(DeviceView { driver: "example.com", device: &device })
}
