//! Virtual memory management: physical memory and its mappings.
//!
//! Of plain memory that the guard makes movable a program knows nothing, so it is refused here as the driver refuses plain memory.

use crate::cuda::{Device, Location, Opaque, Pointer, Status};
use crate::devices;
use crate::leases::wait_while_suspended;
use crate::movable;
use crate::platform::ffi::{In, Out};
use crate::tracking::vmm_memory::{self, Handle, Holder, MulticastPart};
use crate::unmovable::{note_managed, note_shared};

/// First members of `CUmemAllocationProp`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Prop {
    kind: u32,
    handle_types: u32,
    location: Location,
}

/// `CU_MEM_ALLOCATION_TYPE_MANAGED`.
const MANAGED: u32 = 2;

/// Mapping of memory to a part of an array (`CUarrayMapInfo`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ArrayMap {
    resource_type: u32,
    resource: u64,
    part_type: u32,
    part: [u64; 4],
    operation: u32,
    handle_type: u32,
    handle: Handle,
    offset: u64,
    devices: u32,
    flags: u32,
    reserved: [u32; 2],
}

const _: () = assert!(size_of::<ArrayMap>() == 96);

/// `CU_MEM_OPERATION_TYPE_MAP`.
const MAP: u32 = 1;

hooks! {
    CUDA, Status;

    /// Creates physical memory.
    fn cuMemCreate(handle: Out<Handle>, bytes: usize, prop: In<Prop>, flags: u64) -> Status {
        let device = match prop.read() {
            // Charged in full to the current GPU, like all managed memory.
            Some(prop) if prop.kind == MANAGED => prop.location.device().or_else(|| devices::current().ok()),
            Some(prop) => prop.location.device(),
            None => None,
        };
        let is_managed = prop.read().is_some_and(|prop| prop.kind == MANAGED);
        let make = || {
            let status = real::cuMemCreate(handle, bytes, prop, flags);
            handle_of(handle, if is_managed { note_managed(status) } else { status })
        };
        to_status(vmm_memory::create(bytes, device, make, real::cuMemRelease))
    }

    /// Releases a handle. The memory stays while it is mapped.
    fn cuMemRelease(handle: Handle) -> Status {
        wait_while_suspended();
        vmm_memory::release(handle, || real::cuMemRelease(handle))
    }

    /// Returns a handle of the memory mapped at an address.
    fn cuMemRetainAllocationHandle(handle: Out<Handle>, address: Opaque) -> Status {
        if movable::find(address as u64).is_some() {
            return Status::INVALID_VALUE;
        }
        let work = || handle_of(handle, real::cuMemRetainAllocationHandle(handle, address));
        to_status(vmm_memory::retain(address as u64, work))
    }

    /// Maps memory.
    fn cuMemMap(start: Pointer, bytes: usize, offset: usize, handle: Handle, flags: u64) -> Status {
        wait_while_suspended();
        let work = || real::cuMemMap(start, bytes, offset, handle, flags);
        vmm_memory::map(start, bytes, handle, work, || real::cuMemUnmap(start, bytes))
    }

    /// Removes mappings.
    fn cuMemUnmap(start: Pointer, bytes: usize) -> Status {
        if movable::find(start).is_some() {
            return Status::INVALID_VALUE;
        }
        wait_while_suspended();
        vmm_memory::unmap(start, bytes, || real::cuMemUnmap(start, bytes))
    }

    /// Maps memory to parts of arrays.
    fn cuMemMapArrayAsync(list: In<ArrayMap>, count: u32, stream: Opaque) -> Status {
        map_arrays(list, count, || real::cuMemMapArrayAsync(list, count, stream))
    }

    /// As above, with the per-thread default stream.
    fn cuMemMapArrayAsync_ptsz(list: In<ArrayMap>, count: u32, stream: Opaque) -> Status {
        map_arrays(list, count, || real::cuMemMapArrayAsync_ptsz(list, count, stream))
    }

    /// Exports memory to other processes.
    fn cuMemExportToShareableHandle(shareable: Out<i32>, handle: Handle, kind: u32, flags: u64) -> Status {
        vmm_memory::export(handle, || note_shared(real::cuMemExportToShareableHandle(shareable, handle, kind, flags)))
    }

    /// Imports memory. The exporting process is charged for it; if that is this process, its charge
    /// stays.
    fn cuMemImportFromShareableHandle(handle: Out<Handle>, shareable: Opaque, kind: u32) -> Status {
        let work = || handle_of(handle, note_shared(real::cuMemImportFromShareableHandle(handle, shareable, kind)));
        to_status(vmm_memory::import(work))
    }

    /// Creates a multicast object, through which the memory of several GPUs is written. It has no
    /// memory itself.
    fn cuMulticastCreate(handle: Out<Handle>, prop: Opaque) -> Status {
        let make = || handle_of(handle, note_shared(real::cuMulticastCreate(handle, prop)));
        to_status(vmm_memory::create_multicast(make, real::cuMemRelease))
    }

    /// Binds memory to a part of a multicast object, which holds it from then on.
    fn cuMulticastBindMem(
        object: Handle, object_offset: usize, memory: Handle, offset: usize, bytes: usize, flags: u64,
    ) -> Status {
        let work = || real::cuMulticastBindMem(object, object_offset, memory, offset, bytes, flags);
        let part = MulticastPart { object, device: None, offset: object_offset, bytes };
        vmm_memory::bind(Holder::Multicast(part), memory, work)
    }

    /// Binds the memory mapped at an address.
    fn cuMulticastBindAddr(object: Handle, object_offset: usize, address: Pointer, bytes: usize, flags: u64) -> Status {
        if movable::find(address).is_some() {
            return Status::INVALID_VALUE;
        }
        let work = || real::cuMulticastBindAddr(object, object_offset, address, bytes, flags);
        let part = MulticastPart { object, device: None, offset: object_offset, bytes };
        vmm_memory::bind_address(Holder::Multicast(part), address, work)
    }

    /// Binds memory of a device, since CUDA 13.1.
    fn cuMulticastBindMem_v2(
        object: Handle, device: Device, object_offset: usize, memory: Handle, offset: usize, bytes: usize, flags: u64,
    ) -> Status {
        let work = || real::cuMulticastBindMem_v2(object, device, object_offset, memory, offset, bytes, flags);
        let part = MulticastPart { object, device: Some(device), offset: object_offset, bytes };
        vmm_memory::bind(Holder::Multicast(part), memory, work)
    }

    /// Binds the memory mapped at an address for a device, since CUDA 13.1.
    fn cuMulticastBindAddr_v2(
        object: Handle, device: Device, object_offset: usize, address: Pointer, bytes: usize, flags: u64,
    ) -> Status {
        if movable::find(address).is_some() {
            return Status::INVALID_VALUE;
        }
        let work = || real::cuMulticastBindAddr_v2(object, device, object_offset, address, bytes, flags);
        let part = MulticastPart { object, device: Some(device), offset: object_offset, bytes };
        vmm_memory::bind_address(Holder::Multicast(part), address, work)
    }

    /// Unbinds what was bound to a part of a multicast object for a device.
    fn cuMulticastUnbind(object: Handle, device: Device, offset: usize, bytes: usize) -> Status {
        let part = MulticastPart { object, device: Some(device), offset, bytes };
        vmm_memory::unbind(part, || real::cuMulticastUnbind(object, device, offset, bytes))
    }
}

fn handle_of(handle: Out<Handle>, status: Status) -> Result<Handle, Status> {
    if !status.is_success() {
        return Err(status);
    }
    handle.read().ok_or(Status::INVALID_VALUE)
}

fn to_status(done: Result<(), Status>) -> Status {
    done.map_or_else(|status| status, |()| Status::SUCCESS)
}

fn map_arrays(list: In<ArrayMap>, count: u32, work: impl FnOnce() -> Status) -> Status {
    let parts = (0..count as usize).map_while(move |index| list.element(index));
    let mapped =
        parts.filter(|part| part.operation == MAP).map(|part| (part.resource, part.handle));
    vmm_memory::map_to_arrays(&mapped, work)
}
