//! Virtual memory management.

use std::ffi::{c_int, c_uint, c_ulonglong};
use std::fs::File;
use std::os::fd::{BorrowedFd, IntoRawFd};

use crate::abi::{
    FABRIC, MemAccessDesc, MemAllocationProp, MemLocation, MulticastProp, POSIX_FILE_DESCRIPTOR,
};
use crate::code::{CallResult, Code};
use crate::context;
use crate::execution::stream;
use crate::library::device;
use crate::memory::arena::GRANULE;
use crate::memory::fabric::HandleBytes;
use crate::memory::heap;
use crate::memory::mappings;
use crate::memory::vmm;
use crate::pointers::{In, Out};
use crate::table::Handle;

/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
const DMA_BUF: c_uint = 1;

calls! { CALLS = call;
    fn cuMemAddressReserve(
        address: Out<u64>,
        size: u64,
        align: u64,
        _wanted: u64,
        _flags: c_ulonglong,
    ) {
        address.check()?;
        address.put(mappings::reserve(size, align)?)
    }

    fn cuMemAddressFree(address: u64, size: u64) { mappings::free_addresses(address, size) }

    fn cuMemCreate(
        handle: Out<Handle>,
        size: u64,
        prop: In<MemAllocationProp>,
        _flags: c_ulonglong,
    ) {
        handle.check()?;
        handle.put(vmm::create(size, prop.read()?)?)
    }

    fn cuMemRelease(handle: Handle) { vmm::release(handle) }

    fn cuMemRetainAllocationHandle(handle: Out<Handle>, address: u64) {
        handle.check()?;
        handle.put(mappings::retain(address)?)
    }

    fn cuMemMap(address: u64, size: u64, offset: u64, handle: Handle, flags: c_ulonglong) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        mappings::map(address, size, offset, handle)
    }

    fn cuMemUnmap(address: u64, size: u64) { mappings::unmap(address, size) }

    fn cuMemSetAccess(address: u64, size: u64, access: In<MemAccessDesc>, count: usize) {
        let highest = access.list(count)?.iter().map(|access| access.flags).max();
        mappings::set_access(address, size, highest.ok_or(Code::INVALID_VALUE)?)
    }

    fn cuMemGetAccess(flags: Out<c_ulonglong>, place: In<MemLocation>, address: u64) {
        place.read()?;
        flags.put(mappings::access(address)?.into())
    }

    fn cuMemGetAllocationGranularity(
        bytes: Out<u64>,
        prop: In<MemAllocationProp>,
        _option: c_uint,
    ) {
        prop.read()?;
        bytes.put(GRANULE)
    }

    fn cuMemGetAllocationPropertiesFromHandle(prop: Out<MemAllocationProp>, handle: Handle) {
        prop.put(vmm::prop(handle)?)
    }

    /// The caller owns a descriptor from then on.
    fn cuMemExportToShareableHandle(
        shareable: usize,
        handle: Handle,
        kind: c_uint,
        _flags: c_ulonglong,
    ) {
        match kind {
            POSIX_FILE_DESCRIPTOR => {
                let shareable = Out::<c_int>::at(shareable);
                shareable.check()?;
                shareable.put(vmm::export(handle)?.into_raw_fd())
            }
            FABRIC => {
                let shareable = Out::<HandleBytes>::at(shareable);
                shareable.check()?;
                shareable.put(vmm::export_to_fabric(handle)?)
            }
            _ => Err(Code::NOT_SUPPORTED),
        }
    }

    /// The descriptor is one of an empty file: no device takes it.
    fn cuMemGetHandleForAddressRange(
        handle: Out<c_int>,
        address: u64,
        size: u64,
        kind: c_uint,
        _flags: c_ulonglong,
    ) {
        handle.check()?;
        let range = heap::find(address).filter(|range| range.device.is_some());
        let range = range.ok_or(Code::INVALID_VALUE)?;
        if kind != DMA_BUF || address + size > range.start + range.size {
            return Err(Code::INVALID_VALUE);
        }
        let file = File::open("/dev/null").map_err(|_| Code::OPERATING_SYSTEM)?;
        handle.put(file.into_raw_fd())
    }

    /// The caller keeps a descriptor.
    fn cuMemImportFromShareableHandle(handle: Out<Handle>, shareable: usize, kind: c_uint) {
        handle.check()?;
        match kind {
            POSIX_FILE_DESCRIPTOR => handle.put(vmm::import(borrowed(shareable)?)?),
            FABRIC => {
                let bytes = In::<HandleBytes>::within(shareable).read()?;
                handle.put(vmm::import_from_fabric(&bytes)?)
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuMulticastCreate(handle: Out<Handle>, prop: In<MulticastProp>) {
        handle.check()?;
        let prop = prop.read()?;
        if prop.devices == 0 || prop.size == 0 || !prop.size.is_multiple_of(GRANULE) {
            return Err(Code::INVALID_VALUE);
        }
        handle.put(vmm::create_multicast(prop.size)?)
    }

    fn cuMulticastAddDevice(handle: Handle, ordinal: c_int) {
        device(ordinal)?;
        vmm::check_multicast(handle)
    }

    /// Takes no memory: bound memory is charged already.
    fn cuMulticastBindMem(
        handle: Handle,
        _offset: u64,
        memory: Handle,
        _memory_offset: u64,
        _size: u64,
        _flags: c_ulonglong,
    ) {
        vmm::prop(memory)?;
        vmm::check_multicast(handle)
    }

    fn cuMulticastBindAddr(
        handle: Handle,
        _offset: u64,
        address: u64,
        _size: u64,
        _flags: c_ulonglong,
    ) {
        mappings::access(address)?;
        vmm::check_multicast(handle)
    }

    /// The second argument is the device.
    fn cuMulticastBindMem_v2(
        handle: Handle,
        ordinal: c_int,
        _offset: u64,
        memory: Handle,
        _memory_offset: u64,
        _size: u64,
        _flags: c_ulonglong,
    ) {
        device(ordinal)?;
        vmm::prop(memory)?;
        vmm::check_multicast(handle)
    }

    /// The second argument is the device.
    fn cuMulticastBindAddr_v2(
        handle: Handle,
        ordinal: c_int,
        _offset: u64,
        address: u64,
        _size: u64,
        _flags: c_ulonglong,
    ) {
        device(ordinal)?;
        mappings::access(address)?;
        vmm::check_multicast(handle)
    }

    fn cuMulticastUnbind(handle: Handle, ordinal: c_int, _offset: u64, _size: u64) {
        device(ordinal)?;
        vmm::check_multicast(handle)
    }

    fn cuMulticastGetGranularity(bytes: Out<u64>, prop: In<MulticastProp>, _option: c_uint) {
        prop.read()?;
        bytes.put(GRANULE)
    }
}

/// A duplicate of a descriptor that the caller keeps.
pub(crate) fn borrowed(shareable: usize) -> Result<File, Code> {
    let fd = c_int::try_from(shareable).ok().filter(|fd| *fd >= 0).ok_or(Code::INVALID_VALUE)?;
    // JUSTIFICATION: the caller's descriptor comes as a number.
    // SAFETY: by contract it is open during the call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    fd.try_clone_to_owned().map(File::from).map_err(|_| Code::INVALID_VALUE)
}

stream_calls! { STREAM = call;
    /// Sparse arrays are not simulated.
    fn cuMemMapArrayAsync, cuMemMapArrayAsync_ptsz(
        default,
        _list: usize,
        _count: c_uint,
        handle: Handle,
    ) {
        context::current()?;
        let known: CallResult = stream::with(handle, default, |_| Ok(()));
        known.and(Err(Code::NOT_SUPPORTED))
    }
}
