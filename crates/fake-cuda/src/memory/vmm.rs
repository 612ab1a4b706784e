//! Virtual memory management: physical memory, reserved addresses, and mappings between them
//! (`cuMemCreate`, `cuMemAddressReserve`, `cuMemMap`). Memory lives until its last handle is
//! released and its last mapping is removed.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard};

use octavo_fake_gpu::{BlockId, FileIdentity};

use crate::abi::{MemAllocationProp, location};
use crate::code::{CallResult, Code};
use crate::context::device_of;
use crate::memory::arena::{self, GRANULE};
use crate::memory::heap::{Range, RangeKind};
use crate::table::{Handle, HandleKind, Table, lock};

/// Physical memory.
pub(crate) struct Memory {
    pub(crate) prop: MemAllocationProp,
    pub(crate) size: u64,
    /// Ordinal of the device; `None` for host memory.
    device: Option<usize>,
    /// Number of unreleased handles.
    handles: u32,
    mappings: u32,
    file: Option<Arc<File>>,
    /// The GPU's block, once other processes may share it.
    block: Option<BlockId>,
    is_multicast: bool,
}

/// All physical memory of the process.
static MEMORY: Table<Memory> = Table::new(HandleKind::Memory);

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

/// Creates physical memory.
pub(crate) fn create(size: u64, prop: MemAllocationProp) -> Result<Handle, Code> {
    if size == 0 || !size.is_multiple_of(GRANULE) {
        return Err(Code::INVALID_VALUE);
    }
    let device = match prop.location.kind {
        location::DEVICE => Some(prop.ordinal()?),
        location::HOST | location::HOST_NUMA | location::HOST_NUMA_CURRENT => None,
        _ => return Err(Code::INVALID_VALUE),
    };
    if let Some(device) = device {
        device_of(device)?.charge(size)?;
    }
    insert_memory(prop, size, device)
}

/// Creates a multicast object. It has no memory of its own.
pub(crate) fn create_multicast(size: u64) -> Result<Handle, Code> {
    let handle = insert_memory(MemAllocationProp::default(), size, None)?;
    MEMORY.with(handle, |memory| {
        memory.is_multicast = true;
        Ok(handle)
    })
}

/// Checks that a handle is a multicast object.
pub(crate) fn check_multicast(handle: Handle) -> CallResult {
    let is_one = MEMORY.with(handle, |memory| Ok(memory.is_multicast));
    if is_one == Ok(true) { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

fn insert_memory(
    prop: MemAllocationProp,
    size: u64,
    device: Option<usize>,
) -> Result<Handle, Code> {
    MEMORY.insert(Memory {
        prop,
        size,
        device,
        handles: 1,
        mappings: 0,
        file: None,
        block: None,
        is_multicast: false,
    })
}

/// Releases a handle once.
pub(crate) fn release(handle: Handle) -> CallResult {
    let is_unused = with(handle, |memory| {
        memory.handles = memory.handles.checked_sub(1).ok_or(Code::INVALID_VALUE)?;
        Ok(memory.is_unused())
    })?;
    if is_unused { end(handle) } else { Ok(()) }
}

/// Returns another handle of the memory mapped at an address.
pub(crate) fn retain(address: u64) -> Result<Handle, Code> {
    let found = addresses().at(address).map(|(_, mapping)| mapping.memory);
    let handle = found.ok_or(Code::INVALID_VALUE)?;
    with(handle, |memory| {
        memory.handles += 1;
        Ok(handle)
    })
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
    let device = with(handle, |memory| {
        if memory.handles == 0 || offset.checked_add(size).is_none_or(|end| end > memory.size) {
            return Err(Code::INVALID_VALUE);
        }
        let file = memory.file()?;
        arena::map_file(start, size, &file, offset).map_err(|_| Code::OUT_OF_MEMORY)?;
        memory.mappings += 1;
        Ok(memory.device)
    })?;
    addresses.mapped.insert(start, Mapping { size, memory: handle, device, access: 0 });
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
        let is_unused = with(mapping.memory, |memory| {
            memory.mappings -= 1;
            Ok(memory.is_unused())
        });
        if is_unused == Ok(true) {
            end(mapping.memory)?;
        }
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

/// Whether a file is mapped at an address.
pub(crate) fn is_file(address: u64) -> bool {
    addresses().at(address).is_some()
}

/// Properties of physical memory.
pub(crate) fn prop(handle: Handle) -> Result<MemAllocationProp, Code> {
    with(handle, |memory| Ok(memory.prop))
}

/// A file descriptor for other processes.
pub(crate) fn export(handle: Handle) -> Result<OwnedFd, Code> {
    with(handle, |memory| {
        let file = memory.file()?;
        if let (Some(device), None) = (memory.device, memory.block) {
            let contents = identity(&file)?;
            let process = device_of(device)?.process_handle()?;
            let shared = process.share(memory.size, contents);
            memory.block = Some(shared.map_err(|_| Code::OPERATING_SYSTEM)?);
        }
        file.as_fd().try_clone_to_owned().map_err(|_| Code::OPERATING_SYSTEM)
    })
}

/// Memory of another process, by its exported descriptor.
pub(crate) fn import(file: File) -> Result<Handle, Code> {
    let contents = identity(&file)?;
    let driver = crate::library::driver()?;
    let found = driver.devices.iter().find_map(|device| {
        let (block, size) = device.process_handle().ok()?.use_shared(contents)?;
        Some((device.ordinal, block, size))
    });
    let (device, block, size) = found.ok_or(Code::INVALID_VALUE)?;
    let handle = insert_memory(MemAllocationProp::on(device), size, Some(device))?;
    with(handle, |memory| {
        memory.block = Some(block);
        memory.file = Some(Arc::new(file));
        Ok(handle)
    })
}

fn with<A>(handle: Handle, body: impl FnOnce(&mut Memory) -> Result<A, Code>) -> Result<A, Code> {
    MEMORY.with(handle, body).map_err(|code| match code {
        Code::INVALID_HANDLE => Code::INVALID_VALUE,
        code => code,
    })
}

fn end(handle: Handle) -> CallResult {
    let memory = MEMORY.remove(handle)?;
    let Some(device) = memory.device else { return Ok(()) };
    let device = device_of(device)?;
    match memory.block {
        Some(block) => device.process_handle()?.drop_shared(block),
        None => device.refund(memory.size),
    }
    Ok(())
}

/// Identity of a file's contents.
pub(crate) fn identity(file: &File) -> Result<FileIdentity, Code> {
    let about = file.metadata().map_err(|_| Code::INVALID_VALUE)?;
    Ok(FileIdentity { device: about.dev(), inode: about.ino() })
}

impl Memory {
    fn is_unused(&self) -> bool {
        self.handles == 0 && self.mappings == 0
    }

    fn file(&mut self) -> Result<Arc<File>, Code> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let file = arena::memory_file(self.size).map_err(|_| Code::OPERATING_SYSTEM)?;
        Ok(self.file.insert(Arc::new(file)).clone())
    }
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
