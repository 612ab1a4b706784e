//! SelectorCache answer as in Kubernetes, and nothing that is written in one does harm.

mod bounds;
mod cache;
mod costs;
mod devices;
mod errors;
mod random;
mod table;

use crate::{CelError, DeviceView, Selector};
use devices::Device;

/// The answer for a device without anything.
fn matches(expression: &str) -> Result<bool, CelError> {
    let device = Device { name: "bare".to_owned(), ..Device::default() };
    Selector::compile(expression)?.matches(DeviceView { driver: "example.com", device: &device })
}
