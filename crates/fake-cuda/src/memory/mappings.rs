//! Reserved addresses, and mappings of physical memory to them (`cuMemAddressReserve`, `cuMemMap`).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use crate::code::{CallResult, Code};
use crate::memory::arena::{self, GRANULE};
use crate::memory::fabric;
use crate::memory::heap::{Range, RangeKind};
use crate::memory::vmm;
use crate::table::{Handle, lock};

static ADDRESSES: Mutex<Addresses> =
    Mutex::new(Addresses { reserved: BTreeMap::new(), mapped: BTreeMap::new() });

struct Addresses {
    /// Length by start address.
    reserved: BTreeMap<u64, u64>,
    mapped: BTreeMap<u64, Mapping>,
}

#[derive(Clone, Copy)]
struct Mapping {
    size: u64,
    memory: Handle,
    device: Option<usize>,
    /// Access of the device: 0 none, 1 read, 3 read and write.
    access: u32,
    /// Whether its copies are synchronous.
    is_sync: bool,
}

/// Reserves addresses of the library's choice.
pub(crate) fn reserve(size: u64, align: u64) -> Result<u64, Code> {
    if size == 0 || !size.is_multiple_of(GRANULE) || (align != 0 && !align.is_power_of_two()) {
        return Err(Code::INVALID_VALUE);
    }
    let start = arena::reserve(size, align).map_err(|_| Code::OUT_OF_MEMORY)?;
    addresses().reserved.insert(start, size);
    Ok(start)
}

/// Frees a whole reservation.
pub(crate) fn free_addresses(start: u64, size: u64) -> CallResult {
    let mut addresses = addresses();
    if addresses.reserved.get(&start) != Some(&size) {
        return Err(Code::INVALID_VALUE);
    }
    if addresses.mapped.range(start..start + size).next().is_some() {
        return Err(Code::INVALID_VALUE);
    }
    addresses.reserved.remove(&start);
    arena::unmap(start, size);
    Ok(())
}

/// Returns another handle of the memory mapped at an address.
pub(crate) fn retain(address: u64) -> Result<Handle, Code> {
    let found = addresses().at(address).map(|(_, mapping)| mapping.memory);
    let handle = found.ok_or(Code::INVALID_VALUE)?;
    vmm::retain(handle)
}

/// Maps memory to reserved addresses, without access for the device.
pub(crate) fn map(start: u64, size: u64, offset: u64, handle: Handle) -> CallResult {
    let end = start.checked_add(size).ok_or(Code::INVALID_VALUE)?;
    let mut addresses = addresses();
    let reserved = addresses.reserved.range(..=start).next_back();
    let is_reserved = reserved.is_some_and(|(from, length)| end <= from + length);
    if size == 0 || !start.is_multiple_of(GRANULE) || !size.is_multiple_of(GRANULE) || !is_reserved
    {
        return Err(Code::INVALID_VALUE);
    }
    let before = addresses.mapped.range(..end).next_back();
    if before.is_some_and(|(from, mapping)| from + mapping.size > start) {
        return Err(Code::INVALID_VALUE);
    }
    let device = vmm::map(handle, start, size, offset)?;
    addresses
        .mapped
        .insert(start, Mapping { size, memory: handle, device, access: 0, is_sync: false });
    Ok(())
}

/// Removes whole mappings.
pub(crate) fn unmap(start: u64, size: u64) -> CallResult {
    let mut addresses = addresses();
    let inside: Vec<(u64, Mapping)> =
        addresses.mapped.range(start..start.saturating_add(size)).map(|(a, m)| (*a, *m)).collect();
    let covered: u64 = inside.iter().map(|(_, mapping)| mapping.size).sum();
    if inside.first().map(|(first, _)| *first) != Some(start) || covered != size {
        return Err(Code::INVALID_VALUE);
    }
    for (at, mapping) in inside {
        addresses.mapped.remove(&at);
        arena::map_nothing(at, mapping.size);
        vmm::unmap(mapping.memory)?;
    }
    Ok(())
}

/// Sets the access of the device to mapped addresses.
pub(crate) fn set_access(start: u64, size: u64, access: u32) -> CallResult {
    let mut addresses = addresses();
    let inside = addresses.mapped.range_mut(start..start.saturating_add(size));
    let mut covered = 0;
    for (_, mapping) in inside {
        mapping.access = access;
        covered += mapping.size;
    }
    if covered == size { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// Sets whether copies of the mapping at an address are synchronous. Other memory has no such attribute here.
pub(crate) fn set_sync(address: u64, is_sync: bool) -> CallResult {
    let mut addresses = addresses();
    let (start, _) = addresses.at(address).ok_or(Code::NOT_SUPPORTED)?;
    let mapping = addresses.mapped.get_mut(&start).ok_or(Code::NOT_SUPPORTED)?;
    mapping.is_sync = is_sync;
    Ok(())
}

/// Whether copies of the memory at an address are synchronous.
pub(crate) fn is_sync(address: u64) -> bool {
    addresses().at(address).is_some_and(|(_, mapping)| mapping.is_sync)
}

/// The access of the device to an address.
pub(crate) fn access(address: u64) -> Result<u32, Code> {
    let found = addresses().at(address).map(|(_, mapping)| mapping.access);
    found.ok_or(Code::INVALID_VALUE)
}

/// The mapping at an address, if the device has access.
pub(crate) fn find(address: u64) -> Option<Range> {
    let (start, mapping) = addresses().at(address).filter(|(_, mapping)| mapping.access > 0)?;
    let Mapping { size, device, .. } = mapping;
    Some(Range { start, size, device, context: 0, kind: RangeKind::Mapped })
}

/// Fails if the memory at an address is of a node that is reached no more.
pub(crate) fn check_reachable(address: u64) -> CallResult {
    let memory = addresses().at(address).map(|(_, mapping)| mapping.memory);
    memory.and_then(vmm::exporter).map_or(Ok(()), fabric::check_reachable)
}

/// Whether a file is mapped at an address.
pub(crate) fn is_file(address: u64) -> bool {
    addresses().at(address).is_some()
}

fn addresses() -> MutexGuard<'static, Addresses> {
    lock(&ADDRESSES)
}

impl Addresses {
    fn at(&self, address: u64) -> Option<(u64, Mapping)> {
        let (start, mapping) = self.mapped.range(..=address).next_back()?;
        (address - start < mapping.size).then_some((*start, *mapping))
    }
}
