//! Stream-ordered memory and the pools that it comes from.

use crate::cuda::{Device, Location, Opaque, Pointer, Status};
use crate::devices;
use crate::platform::ffi::{In, Out};
use crate::process;
use crate::tracking::async_free;
use crate::tracking::pools::{self, Pool, PoolAllocation};
use crate::tracking::streams::Stream;
use crate::tracking::table::EntryKind;

/// How a pool's description begins (`CUmemPoolProps`).
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

    /// Memory of the pool that the GPU uses, in the order of a stream.
    fn cuMemAllocAsync(pointer: Out<Pointer>, bytes: usize, stream: Opaque) -> Status {
        let make = || real::cuMemAllocAsync(pointer, bytes, stream);
        PoolAllocation { bytes, stream: Stream::legacy(stream), pool: None, pointer, make }.run()
    }

    /// As above; the default stream is the thread's own.
    fn cuMemAllocAsync_ptsz(pointer: Out<Pointer>, bytes: usize, stream: Opaque) -> Status {
        let make = || real::cuMemAllocAsync_ptsz(pointer, bytes, stream);
        PoolAllocation { bytes, stream: Stream::per_thread(stream), pool: None, pointer, make }.run()
    }

    /// Memory of a pool, in the order of a stream.
    fn cuMemAllocFromPoolAsync(pointer: Out<Pointer>, bytes: usize, pool: Opaque, stream: Opaque) -> Status {
        let make = || real::cuMemAllocFromPoolAsync(pointer, bytes, pool, stream);
        PoolAllocation { bytes, stream: Stream::legacy(stream), pool: Some(Pool(pool)), pointer, make }.run()
    }

    /// As above; the default stream is the thread's own.
    fn cuMemAllocFromPoolAsync_ptsz(pointer: Out<Pointer>, bytes: usize, pool: Opaque, stream: Opaque) -> Status {
        let make = || real::cuMemAllocFromPoolAsync_ptsz(pointer, bytes, pool, stream);
        PoolAllocation { bytes, stream: Stream::per_thread(stream), pool: Some(Pool(pool)), pointer, make }.run()
    }

    /// Gives memory back, in the order of a stream.
    fn cuMemFreeAsync(pointer: Pointer, stream: Opaque) -> Status {
        free(pointer, Stream::legacy(stream), || real::cuMemFreeAsync(pointer, stream))
    }

    /// As above; the default stream is the thread's own.
    fn cuMemFreeAsync_ptsz(pointer: Pointer, stream: Opaque) -> Status {
        free(pointer, Stream::per_thread(stream), || real::cuMemFreeAsync_ptsz(pointer, stream))
    }

    /// Makes a pool.
    fn cuMemPoolCreate(pool: Out<Opaque>, props: In<Props>) -> Status {
        let device = props.read().map_or(Some(0), |props| device_of(props.kind, props.location));
        record_pool(pool, device, real::cuMemPoolCreate(pool, props))
    }

    /// Ends a pool. What was allocated from it lives on.
    fn cuMemPoolDestroy(pool: Opaque) -> Status {
        Pool(pool).end(|| real::cuMemPoolDestroy(pool))
    }

    /// Has a pool give back what it keeps, but for so much.
    fn cuMemPoolTrimTo(pool: Opaque, keep: usize) -> Status {
        settle_after(pool, real::cuMemPoolTrimTo(pool, keep))
    }

    /// Sets how much a pool keeps, and how it reuses it.
    fn cuMemPoolSetAttribute(pool: Opaque, attribute: u32, value: Opaque) -> Status {
        settle_after(pool, real::cuMemPoolSetAttribute(pool, attribute, value))
    }

    /// Makes a pool record_pool to other processes, which may have its memory from then on.
    fn cuMemPoolExportToShareableHandle(shareable: Out<i32>, pool: Opaque, kind: u32, flags: u64) -> Status {
        let status = real::cuMemPoolExportToShareableHandle(shareable, pool, kind, flags);
        if status.is_success() {
            Pool(pool).mark_exported();
        }
        status
    }

    /// A pool of another process. Its memory is counted there.
    fn cuMemPoolImportFromShareableHandle(pool: Out<Opaque>, shareable: Opaque, kind: u32, flags: u64) -> Status {
        record_pool(pool, None, real::cuMemPoolImportFromShareableHandle(pool, shareable, kind, flags))
    }

    /// The pool that a GPU uses.
    fn cuDeviceGetMemPool(pool: Out<Opaque>, device: Device) -> Status {
        record_pool(pool, Some(device), real::cuDeviceGetMemPool(pool, device))
    }

    /// The pool that a GPU has by itself.
    fn cuDeviceGetDefaultMemPool(pool: Out<Opaque>, device: Device) -> Status {
        record_pool(pool, Some(device), real::cuDeviceGetDefaultMemPool(pool, device))
    }

    /// Has a GPU use a pool.
    fn cuDeviceSetMemPool(device: Device, pool: Opaque) -> Status {
        settle_after(pool, real::cuDeviceSetMemPool(device, pool))
    }

    /// The pool that is used for memory of a kind at a place.
    fn cuMemGetMemPool(pool: Out<Opaque>, place: In<Location>, kind: u32) -> Status {
        let device = place.read().map_or(Some(0), |place| device_of(kind, place));
        record_pool(pool, device, real::cuMemGetMemPool(pool, place, kind))
    }

    /// The pool that is there by itself for memory of a kind at a place.
    fn cuMemGetDefaultMemPool(pool: Out<Opaque>, place: In<Location>, kind: u32) -> Status {
        let device = place.read().map_or(Some(0), |place| device_of(kind, place));
        record_pool(pool, device, real::cuMemGetDefaultMemPool(pool, place, kind))
    }

    /// Has a pool be used for memory of a kind at a place.
    fn cuMemSetMemPool(place: In<Location>, kind: u32, pool: Opaque) -> Status {
        settle_after(pool, real::cuMemSetMemPool(place, kind, pool))
    }
}

/// The GPU that a pool's memory is counted on; none for memory of the host. Managed memory that lies with the
/// host at first counts like all managed memory: in full, where the program is.
fn device_of(kind: u32, place: Location) -> Option<Device> {
    match place.device() {
        None if kind == MANAGED => Some(devices::current().unwrap_or(0)),
        device => device,
    }
}

/// Remembers the pool that the driver gave.
fn record_pool(pool: Out<Opaque>, device: Option<Device>, status: Status) -> Status {
    let Some(pool) = pool.read().filter(|_| status.is_success()) else { return status };
    // One that there is no memory to record_pointer is remembered when it is used.
    let _ = Pool(pool).record(device);
    status
}

fn settle_after(pool: Opaque, status: Status) -> Status {
    Pool(pool).settle();
    status
}

fn free(pointer: Pointer, stream: Stream, free: impl FnOnce() -> Status) -> Status {
    // The node of a graph, which frees what the graph allocates.
    if stream.is_capturing() {
        return free();
    }
    let Ok(process) = process::get() else { return Status::NO_DEVICE };
    if process.table.change(EntryKind::Memory, pointer, |_| ()).is_none() {
        return pools::free(pointer, free);
    }
    async_free::free(pointer, stream, free)
}
