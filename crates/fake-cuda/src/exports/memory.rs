//! Memory allocations.

use std::ffi::{c_int, c_uint};

use crate::abi::{MemLocation, location};
use crate::code::{CallResult, Code};
use crate::context;
use crate::execution::stream::{self, Default};
use crate::library::device;
use crate::memory::heap::{self, Range, RangeKind};
use crate::memory::mappings;
use crate::pointers::{In, Out};
use crate::table::Handle;

/// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
const SYNC_MEMOPS: c_uint = 6;

/// Alignment of a row.
const PITCH: u64 = 512;

calls! { HOT = hot_call;
    fn cuMemAlloc(address: Out<u32>, size: c_uint) {
        address.check()?;
        let start = heap::allocate_low(context::here()?, context::current()?, size.into())?;
        address.put(u32::try_from(start).map_err(|_| Code::OUT_OF_MEMORY)?)
    }

    fn cuMemAlloc_v2(address: Out<u64>, size: u64) {
        address.check()?;
        address.put(heap::allocate(context::here()?, context::current()?, size)?)
    }

    fn cuMemFree(address: u32) { free(address.into()) }

    fn cuMemFree_v2(address: u64) { free(address) }

    fn cuMemGetInfo(free: Out<u32>, total: Out<u32>) {
        let device = context::here()?;
        let small = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        free.put(small(device.process_handle()?.free()))?;
        total.put(small(device.capacity))
    }

    fn cuMemGetInfo_v2(free: Out<u64>, total: Out<u64>) {
        let device = context::here()?;
        free.put(device.process_handle()?.free())?;
        total.put(device.capacity)
    }

    fn cuMemGetAddressRange_v2(start: Out<u64>, size: Out<u64>, address: u64) {
        let range = heap::find(address).ok_or(Code::INVALID_VALUE)?;
        start.offer(range.start);
        size.offer(range.size);
        Ok(())
    }

    fn cuPointerGetAttribute(data: usize, attribute: c_uint, address: u64) {
        let range = heap::find(address).ok_or(Code::INVALID_VALUE)?;
        put_attribute(data, attribute, address, Some(&range))
    }

    fn cuPointerSetAttribute(value: In<c_uint>, attribute: c_uint, address: u64) {
        heap::find(address).ok_or(Code::INVALID_VALUE)?;
        match attribute {
            SYNC_MEMOPS => mappings::set_sync(address, value.read()? != 0),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// A pointer unknown to the library has attributes too: all zero.
    fn cuPointerGetAttributes(
        count: c_uint,
        attributes: In<c_uint>,
        data: In<usize>,
        address: u64,
    ) {
        let range = heap::find(address);
        let count = count as usize;
        for (attribute, place) in attributes.list(count)?.into_iter().zip(data.list(count)?) {
            put_attribute(place, attribute, address, range.as_ref())?;
        }
        Ok(())
    }
}

calls! { CALLS = call;
    fn cuMemAllocPitch(
        address: Out<u32>,
        pitch: Out<c_uint>,
        width: c_uint,
        height: c_uint,
        _element: c_uint,
    ) {
        pitch.check()?;
        let row = u64::from(width).next_multiple_of(PITCH);
        let size = row * u64::from(height);
        let start = heap::allocate_low(context::here()?, context::current()?, size)?;
        pitch.put(u32::try_from(row).map_err(|_| Code::INVALID_VALUE)?)?;
        address.put(u32::try_from(start).map_err(|_| Code::OUT_OF_MEMORY)?)
    }

    fn cuMemAllocPitch_v2(
        address: Out<u64>,
        pitch: Out<u64>,
        width: u64,
        height: u64,
        element: c_uint,
    ) {
        address.check()?;
        pitch.check()?;
        if ![4, 8, 16].contains(&element) {
            return Err(Code::INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(PITCH).ok_or(Code::OUT_OF_MEMORY)?;
        let size = row.checked_mul(height).ok_or(Code::OUT_OF_MEMORY)?;
        address.put(heap::allocate(context::here()?, context::current()?, size)?)?;
        pitch.put(row)
    }

    fn cuMemAllocManaged(address: Out<u64>, size: u64, flags: c_uint) {
        address.check()?;
        if !(1..=4).contains(&flags) {
            return Err(Code::INVALID_VALUE);
        }
        address.put(heap::allocate_managed(context::here()?, context::current()?, size)?)
    }

    fn cuMemAllocHost(address: Out<usize>, size: c_uint) { allocate_pinned(address, size.into()) }

    fn cuMemAllocHost_v2(address: Out<usize>, size: u64) { allocate_pinned(address, size) }

    fn cuMemHostAlloc(address: Out<usize>, size: u64, _flags: c_uint) {
        allocate_pinned(address, size)
    }

    fn cuMemFreeHost(address: u64) { heap::free_pinned(address) }

    fn cuMemHostRegister(start: u64, size: u64, _flags: c_uint) {
        heap::register(context::current()?, start, size)
    }

    fn cuMemHostRegister_v2(start: u64, size: u64, _flags: c_uint) {
        heap::register(context::current()?, start, size)
    }

    fn cuMemHostUnregister(start: u64) { heap::unregister(start) }

    /// Host and device have the same addresses.
    fn cuMemHostGetDevicePointer_v2(address: Out<u64>, host: u64, _flags: c_uint) {
        heap::find(host).filter(|range| range.device.is_none()).ok_or(Code::INVALID_VALUE)?;
        address.put(host)
    }

    fn cuMemHostGetFlags(flags: Out<c_uint>, host: u64) {
        heap::find(host).filter(|range| range.device.is_none()).ok_or(Code::INVALID_VALUE)?;
        flags.put(2)
    }

    fn cuMemAdvise(address: u64, size: u64, _advice: c_uint, _ordinal: c_int) {
        advise(address, size)
    }

    fn cuMemAdvise_v2(address: u64, size: u64, _advice: c_uint, _place: MemLocation) {
        advise(address, size)
    }
}

stream_calls! { STREAM = call;
    fn cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz(
        default,
        address: u64,
        size: u64,
        ordinal: c_int,
        handle: Handle,
    ) {
        prefetch(address, size, ordinal >= 0, ordinal, handle, default)
    }

    fn cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz(
        default,
        address: u64,
        size: u64,
        place: MemLocation,
        _flags: c_uint,
        handle: Handle,
    ) {
        prefetch(address, size, place.kind == location::DEVICE, place.id, handle, default)
    }
}

fn free(address: u64) -> CallResult {
    context::current()?;
    heap::free(address)
}

fn allocate_pinned(address: Out<usize>, size: u64) -> CallResult {
    address.check()?;
    let start = heap::allocate_pinned(context::current()?, size)?;
    address.put(usize::try_from(start).map_err(|_| Code::OUT_OF_MEMORY)?)
}

fn advise(address: u64, size: u64) -> CallResult {
    let range = heap::find(address).ok_or(Code::INVALID_VALUE)?;
    let fits = size <= range.size - (address - range.start);
    if fits { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

fn prefetch(
    address: u64,
    size: u64,
    to_device: bool,
    ordinal: c_int,
    handle: Handle,
    default: Default,
) -> CallResult {
    if to_device {
        device(ordinal)?;
    }
    stream::with(handle, default, |stream| stream.refuse_capture())?;
    heap::prefetch(address, size, to_device)
}

/// Writes an attribute of a pointer; `range` is `None` for a pointer unknown to the library.
fn put_attribute(
    data: usize,
    attribute: c_uint,
    address: u64,
    range: Option<&Range>,
) -> CallResult {
    let kind = range.map(|range| range.kind);
    let is_of_device = range.is_some_and(|range| range.device.is_some());
    let ordinal =
        range.and_then(|range| range.device).and_then(|ordinal| i32::try_from(ordinal).ok());
    let is_managed = matches!(kind, Some(RangeKind::Managed { .. }));
    match attribute {
        // Context.
        1 => Out::<usize>::at(data).put(range.map_or(0, |range| range.context)),
        // Memory type: host 1, device 2.
        2 => Out::<u32>::at(data).put(match range {
            None => 0,
            Some(_) => {
                if is_of_device {
                    2
                } else {
                    1
                }
            }
        }),
        // Device and host addresses.
        3 => Out::<u64>::at(data).put(range.map_or(0, |_| address)),
        4 => {
            let has_host = range.is_some() && (!is_of_device || is_managed);
            Out::<u64>::at(data).put(if has_host { address } else { 0 })
        }
        // Id of the allocation.
        7 => Out::<u64>::at(data).put(range.map_or(0, |range| range.start)),
        8 => Out::<u32>::at(data).put(is_managed.into()),
        9 => Out::<i32>::at(data).put(match range {
            None => -2,
            Some(_) => ordinal.unwrap_or(0),
        }),
        10 => {
            let is_capable = matches!(kind, Some(RangeKind::Small | RangeKind::Large(_)));
            Out::<u32>::at(data).put(is_capable.into())
        }
        11 => Out::<u64>::at(data).put(range.map_or(0, |range| range.start)),
        12 => Out::<u64>::at(data).put(range.map_or(0, |range| range.size)),
        13 => Out::<u32>::at(data).put(range.is_some().into()),
        SYNC_MEMOPS => Out::<u32>::at(data).put(mappings::is_sync(address).into()),
        // Handle types, GPUDirect RDMA: unsupported.
        14 | 15 => Out::<u32>::at(data).put(0),
        // Read and write access.
        16 => Out::<u32>::at(data).put(if range.is_some() { 3 } else { 0 }),
        17 => Out::<usize>::at(data).put(match kind {
            Some(RangeKind::Pooled(pool)) => pool,
            _ => 0,
        }),
        _ => Err(Code::INVALID_VALUE),
    }
}
