//! Stream-ordered memory and its pools.

use crate::cuda::{Device, Location, Opaque, Pointer, Status};
use crate::devices;
use crate::leases::wait_while_suspended;
use crate::movable;
use crate::platform::ffi::{In, Out};
use crate::process;
use crate::tracking::async_free;
use crate::tracking::pools::{self, Pool, PoolAllocation};
use crate::tracking::streams::Stream;
use crate::tracking::table::EntryKind;
use crate::unmovable::{note_managed, note_shared};

/// First members of `CUmemPoolProps`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Props {
    kind: u32,
    handle_types: u32,
    location: Location,
}

/// `CU_MEM_ALLOCATION_TYPE_MANAGED`.
const MANAGED: u32 = 2;

hooks! {
    CUDA, Status;

    /// Allocates from the current pool of the GPU, in stream order.
    fn cuMemAllocAsync(pointer: Out<Pointer>, bytes: usize, stream: Opaque) -> Status {
        let make = || real::cuMemAllocAsync(pointer, bytes, stream);
        PoolAllocation { bytes, stream: Stream::legacy(stream), pool: None, pointer, make }.run()
    }

    /// As above, with the per-thread default stream.
    fn cuMemAllocAsync_ptsz(pointer: Out<Pointer>, bytes: usize, stream: Opaque) -> Status {
        let make = || real::cuMemAllocAsync_ptsz(pointer, bytes, stream);
        PoolAllocation { bytes, stream: Stream::per_thread(stream), pool: None, pointer, make }.run()
    }

    /// Allocates from a pool, in stream order.
    fn cuMemAllocFromPoolAsync(pointer: Out<Pointer>, bytes: usize, pool: Opaque, stream: Opaque) -> Status {
        let make = || real::cuMemAllocFromPoolAsync(pointer, bytes, pool, stream);
        PoolAllocation { bytes, stream: Stream::legacy(stream), pool: Some(Pool(pool)), pointer, make }.run()
    }

    /// As above, with the per-thread default stream.
    fn cuMemAllocFromPoolAsync_ptsz(pointer: Out<Pointer>, bytes: usize, pool: Opaque, stream: Opaque) -> Status {
        let make = || real::cuMemAllocFromPoolAsync_ptsz(pointer, bytes, pool, stream);
        PoolAllocation { bytes, stream: Stream::per_thread(stream), pool: Some(Pool(pool)), pointer, make }.run()
    }

    /// Frees memory in stream order.
    fn cuMemFreeAsync(pointer: Pointer, stream: Opaque) -> Status {
        free(pointer, Stream::legacy(stream), || real::cuMemFreeAsync(pointer, stream))
    }

    /// As above, with the per-thread default stream.
    fn cuMemFreeAsync_ptsz(pointer: Pointer, stream: Opaque) -> Status {
        free(pointer, Stream::per_thread(stream), || real::cuMemFreeAsync_ptsz(pointer, stream))
    }

    /// Creates a pool.
    fn cuMemPoolCreate(pool: Out<Opaque>, props: In<Props>) -> Status {
        let device = props.read().map_or(Some(0), |props| device_of(props.kind, props.location));
        let status = real::cuMemPoolCreate(pool, props);
        let is_managed = props.read().is_some_and(|props| props.kind == MANAGED);
        record_pool(pool, device, if is_managed { note_managed(status) } else { status })
    }

    /// Destroys a pool. Its allocations outlive it.
    fn cuMemPoolDestroy(pool: Opaque) -> Status {
        Pool(pool).end(|| pools::change_current(|| real::cuMemPoolDestroy(pool)))
    }

    /// Frees idle memory of a pool, but for `keep` bytes.
    fn cuMemPoolTrimTo(pool: Opaque, keep: usize) -> Status {
        settle_after(pool, real::cuMemPoolTrimTo(pool, keep))
    }

    /// Sets an attribute of a pool: how much it keeps, and how it reuses memory.
    fn cuMemPoolSetAttribute(pool: Opaque, attribute: u32, value: Opaque) -> Status {
        settle_after(pool, real::cuMemPoolSetAttribute(pool, attribute, value))
    }

    /// Exports a pool to other processes, which may have its memory from then on.
    fn cuMemPoolExportToShareableHandle(shareable: Out<i32>, pool: Opaque, kind: u32, flags: u64) -> Status {
        let status = note_shared(real::cuMemPoolExportToShareableHandle(shareable, pool, kind, flags));
        if status.is_success() {
            Pool(pool).mark_exported();
        }
        status
    }

    /// Imports a pool of another process, which is charged for its memory.
    fn cuMemPoolImportFromShareableHandle(pool: Out<Opaque>, shareable: Opaque, kind: u32, flags: u64) -> Status {
        record_pool(pool, None, note_shared(real::cuMemPoolImportFromShareableHandle(pool, shareable, kind, flags)))
    }

    /// Returns the current pool of a GPU.
    fn cuDeviceGetMemPool(pool: Out<Opaque>, device: Device) -> Status {
        record_pool(pool, Some(device), real::cuDeviceGetMemPool(pool, device))
    }

    /// Returns the default pool of a GPU.
    fn cuDeviceGetDefaultMemPool(pool: Out<Opaque>, device: Device) -> Status {
        record_pool(pool, Some(device), real::cuDeviceGetDefaultMemPool(pool, device))
    }

    /// Sets the current pool of a GPU.
    fn cuDeviceSetMemPool(device: Device, pool: Opaque) -> Status {
        settle_after(pool, pools::change_current(|| real::cuDeviceSetMemPool(device, pool)))
    }

    /// Returns the current pool for a kind of memory at a location.
    fn cuMemGetMemPool(pool: Out<Opaque>, place: In<Location>, kind: u32) -> Status {
        let device = place.read().map_or(Some(0), |place| device_of(kind, place));
        record_pool(pool, device, real::cuMemGetMemPool(pool, place, kind))
    }

    /// Returns the default pool for a kind of memory at a location.
    fn cuMemGetDefaultMemPool(pool: Out<Opaque>, place: In<Location>, kind: u32) -> Status {
        let device = place.read().map_or(Some(0), |place| device_of(kind, place));
        record_pool(pool, device, real::cuMemGetDefaultMemPool(pool, place, kind))
    }

    /// Sets the current pool for a kind of memory at a location.
    fn cuMemSetMemPool(place: In<Location>, kind: u32, pool: Opaque) -> Status {
        settle_after(pool, pools::change_current(|| real::cuMemSetMemPool(place, kind, pool)))
    }
}

/// The GPU that a pool's memory is charged to; `None` for host memory. Managed memory is charged in
/// full to the current GPU, like all managed memory, even if it starts on the host.
fn device_of(kind: u32, place: Location) -> Option<Device> {
    match place.device() {
        None if kind == MANAGED => Some(devices::current().unwrap_or(0)),
        device => device,
    }
}

/// Records a pool that the driver returned.
fn record_pool(pool: Out<Opaque>, device: Option<Device>, status: Status) -> Status {
    let Some(pool) = pool.read().filter(|_| status.is_success()) else { return status };
    // If there is no memory for its entry, it is recorded when it is used.
    let _ = Pool(pool).record(device);
    status
}

fn settle_after(pool: Opaque, status: Status) -> Status {
    Pool(pool).settle();
    status
}

fn free(pointer: Pointer, stream: Stream, free: impl FnOnce() -> Status) -> Status {
    wait_while_suspended();
    // A free node of a graph: it frees what the graph allocates.
    if stream.is_capturing() {
        return free();
    }
    // At once: it waits for all earlier work.
    if let Some(status) = movable::free(pointer) {
        return status;
    }
    let Ok(process) = process::get() else { return Status::NO_DEVICE };
    if process.table.change(EntryKind::Memory, pointer, |_| ()).is_none() {
        return pools::free(pointer, free);
    }
    async_free::free(pointer, stream, free)
}
