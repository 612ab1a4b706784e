//! Pools and stream-ordered memory.

use std::ffi::{c_int, c_uint};
use std::os::fd::IntoRawFd;

use crate::abi::{MemAccessDesc, MemLocation, MemPoolProps, POSIX_FILE_DESCRIPTOR, location};
use crate::code::{CallResult, Code};
use crate::context;
use crate::device::Device;
use crate::execution::capture;
use crate::execution::graph::{self, Op};
use crate::execution::stream::{self, Default};
use crate::exports::vmm::borrowed;
use crate::library::device;
use crate::memory::heap;
use crate::memory::ipc::IpcHandle;
use crate::memory::pool::{self, POOLS, Pool};
use crate::pointers::{In, Out};
use crate::table::Handle;

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: u32 = 1;

calls! { CALLS = call;
    fn cuMemPoolCreate(pool: Out<Handle>, props: In<MemPoolProps>) {
        pool.check()?;
        let props = props.read()?;
        if props.kind != PINNED || props.location.kind != location::DEVICE {
            return Err(Code::INVALID_VALUE);
        }
        pool.put(pool::create(device(props.location.id)?, props, false)?)
    }

    fn cuMemPoolDestroy(pool: Handle) { pool::destroy(pool) }

    fn cuMemPoolTrimTo(pool: Handle, keep: u64) { pool::trim(pool, keep) }

    fn cuMemPoolGetAttribute(pool: Handle, attribute: c_uint, value: usize) {
        let (number, is_wide) = POOLS.with(pool, |pool| pool.attribute(attribute))?;
        if is_wide {
            Out::<u64>::at(value).put(number)
        } else {
            Out::<u32>::at(value).put(u32::try_from(number).unwrap_or(0))
        }
    }

    fn cuMemPoolSetAttribute(pool: Handle, attribute: c_uint, value: usize) {
        let number = if Pool::is_wide(attribute) {
            In::<u64>::within(value).read()?
        } else {
            In::<u32>::within(value).read()?.into()
        };
        POOLS.with(pool, |pool| pool.set_attribute(attribute, number))
    }

    fn cuMemPoolSetAccess(pool: Handle, access: In<MemAccessDesc>, count: usize) {
        access.list(count)?;
        POOLS.with(pool, |_| Ok(()))
    }

    fn cuMemPoolGetAccess(flags: Out<c_uint>, pool: Handle, place: In<MemLocation>) {
        let place = place.read()?;
        let own = POOLS.with(pool, |pool| Ok(pool.props.location))?;
        flags.put(if place == own { 3 } else { 0 })
    }

    fn cuMemPoolExportToShareableHandle(
        shareable: Out<c_int>,
        pool: Handle,
        kind: c_uint,
        _flags: u64,
    ) {
        shareable.check()?;
        if kind != POSIX_FILE_DESCRIPTOR {
            return Err(Code::NOT_SUPPORTED);
        }
        // The caller owns it from now on.
        shareable.put(pool::export(pool)?.into_raw_fd())
    }

    /// The caller keeps the descriptor.
    fn cuMemPoolImportFromShareableHandle(
        pool: Out<Handle>,
        shareable: usize,
        kind: c_uint,
        _flags: u64,
    ) {
        pool.check()?;
        if kind != POSIX_FILE_DESCRIPTOR {
            return Err(Code::INVALID_VALUE);
        }
        pool.put(pool::import(&borrowed(shareable)?)?)
    }

    fn cuMemPoolExportPointer(data: Out<IpcHandle>, address: u64) {
        data.check()?;
        data.put(pool::export_pointer(address)?)
    }

    fn cuMemPoolImportPointer(address: Out<u64>, pool: Handle, data: In<IpcHandle>) {
        address.check()?;
        address.put(pool::import_pointer(pool, &data.read()?)?)
    }

    fn cuDeviceGetDefaultMemPool(pool: Out<Handle>, ordinal: c_int) {
        pool.put(pool::default_of(device(ordinal)?)?)
    }

    fn cuDeviceGetMemPool(pool: Out<Handle>, ordinal: c_int) {
        pool.put(pool::current_of(device(ordinal)?)?)
    }

    fn cuDeviceSetMemPool(ordinal: c_int, pool: Handle) {
        pool::set_current(device(ordinal)?, pool)
    }

    fn cuMemGetDefaultMemPool(pool: Out<Handle>, place: In<MemLocation>, kind: c_uint) {
        pool.put(pool::default_of(at(place, kind)?)?)
    }

    fn cuMemGetMemPool(pool: Out<Handle>, place: In<MemLocation>, kind: c_uint) {
        pool.put(pool::current_of(at(place, kind)?)?)
    }

    fn cuMemSetMemPool(place: In<MemLocation>, kind: c_uint, pool: Handle) {
        pool::set_current(at(place, kind)?, pool)
    }
}

stream_calls! { STREAM = hot_call;
    fn cuMemAllocAsync, cuMemAllocAsync_ptsz(
        default,
        address: Out<u64>,
        size: u64,
        handle: Handle,
    ) {
        allocate(address, size, None, handle, default)
    }

    fn cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz(
        default,
        address: Out<u64>,
        size: u64,
        pool: Handle,
        handle: Handle,
    ) {
        allocate(address, size, Some(pool), handle, default)
    }

    fn cuMemFreeAsync, cuMemFreeAsync_ptsz(default, address: u64, handle: Handle) {
        let handle = stream::resolve(handle, default)?;
        if capture::is_capturing(handle)? {
            return capture::add(handle, Op::Free(address));
        }
        stream::with(handle, default, |_| Ok(()))?;
        heap::free(address)
    }
}

fn at(place: In<MemLocation>, kind: c_uint) -> Result<&'static Device, Code> {
    let place = place.read()?;
    if kind != PINNED || place.kind != location::DEVICE {
        return Err(Code::NOT_SUPPORTED);
    }
    device(place.id)
}

fn allocate(
    address: Out<u64>,
    size: u64,
    pool: Option<Handle>,
    handle: Handle,
    default: Default,
) -> CallResult {
    address.check()?;
    let handle = stream::resolve(handle, default)?;
    let ordinal = stream::with(handle, default, |stream| Ok(stream.device))?;
    let device = context::device_of(ordinal)?;
    if capture::is_capturing(handle)? {
        let addresses = graph::addresses(device, size)?;
        let start = addresses.start;
        capture::add(handle, Op::Allocate(addresses))?;
        return address.put(start);
    }
    let pool = pool.map_or_else(|| pool::current_of(device), Ok)?;
    address.put(pool::allocate(pool, size)?)
}
