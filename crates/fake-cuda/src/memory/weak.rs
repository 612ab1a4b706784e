//! Weak bytes of a GPU's memory, as the machine's state names them: their lowest bit is inverted by each write.
//!
//! A byte is named by its distance from the beginning of the device's addresses, where allocations begin. Memory that is mapped
//! (`cuMemMap`) or managed has no weak bytes.

use std::collections::BTreeSet;

use crate::library;
use crate::memory::{arena, heap};

/// Addresses of all weak bytes.
pub(crate) fn addresses() -> BTreeSet<u64> {
    let Some(driver) = library::opened().filter(|driver| driver.state.has_weak_memory()) else {
        return BTreeSet::new();
    };
    driver.state.with(|state| {
        let of_device = |device: &crate::device::Device| {
            let start = heap::addresses_of(device.ordinal)?;
            let offsets = &state.gpus.get(&device.index)?.weak_memory;
            Some(offsets.iter().map(move |offset| start + offset).collect::<Vec<u64>>())
        };
        driver.devices.iter().filter_map(of_device).flatten().collect()
    })
}

/// Inverts the bits of weak bytes in a range that was just written.
pub(crate) fn flip(addresses: &BTreeSet<u64>, start: u64, bytes: u64) {
    for address in addresses.range(start..start.saturating_add(bytes)) {
        arena::write(*address, arena::read(*address, 1) ^ 1, 1);
    }
}
