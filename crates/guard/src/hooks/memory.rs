//! Plain memory.

use octavo_guard_abi::charge::{ALLOCATION_GRANULE, rounded};

use crate::cuda::{Opaque, Pointer, Status};
use crate::movable;
use crate::platform::ffi::Out;
use crate::tracking::allocation::{Allocation, free_tracked};
use crate::tracking::pools;
use crate::tracking::slabs;
use crate::tracking::table::EntryKind;
use crate::unmovable::{note_managed, note_shared};

hooks! {
    CUDA, Status;

    /// Memory, before CUDA 3.2: addresses have 32 bits.
    fn cuMemAlloc(pointer: Out<u32>, bytes: u32) -> Status {
        allocate(
            u64::from(bytes),
            || real::cuMemAlloc(pointer, bytes),
            || Some((u64::from(pointer.read()?), u64::from(bytes))),
            freed(pointer, |address| real::cuMemFree(u32::try_from(address).unwrap_or(0))),
        )
    }

    /// Memory.
    fn cuMemAlloc_v2(pointer: Out<Pointer>, bytes: usize) -> Status {
        if let Some(made) = movable::allocate(bytes as u64) {
            return put(pointer, made);
        }
        allocate(
            bytes as u64,
            || real::cuMemAlloc_v2(pointer, bytes),
            || Some((pointer.read()?, bytes as u64)),
            freed(pointer, real::cuMemFree_v2),
        )
    }

    /// Pitched rows, before CUDA 3.2.
    fn cuMemAllocPitch(pointer: Out<u32>, pitch: Out<u32>, width: u32, height: u32, element: u32) -> Status {
        allocate(
            rows(u64::from(width), u64::from(height)),
            || real::cuMemAllocPitch(pointer, pitch, width, height, element),
            || Some((u64::from(pointer.read()?), rows(u64::from(pitch.read()?), u64::from(height)))),
            freed(pointer, |address| real::cuMemFree(u32::try_from(address).unwrap_or(0))),
        )
    }

    /// Pitched rows. The driver chooses the pitch, and its choice is charged in the end.
    fn cuMemAllocPitch_v2(pointer: Out<Pointer>, pitch: Out<usize>, width: usize, height: usize, element: u32) -> Status {
        if !pitch.is_null()
            && [4, 8, 16].contains(&element)
            && let Some(made) = movable::allocate(rows(width as u64, height as u64))
        {
            if made.is_ok() {
                let width = rounded(width as u64, ALLOCATION_GRANULE);
                pitch.put(usize::try_from(width).unwrap_or(usize::MAX));
            }
            return put(pointer, made);
        }
        allocate(
            rows(width as u64, height as u64),
            || real::cuMemAllocPitch_v2(pointer, pitch, width, height, element),
            || Some((pointer.read()?, rows(pitch.read()? as u64, height as u64))),
            freed(pointer, real::cuMemFree_v2),
        )
    }

    /// Managed memory, charged at its full size: paging does not oversubscribe a share.
    fn cuMemAllocManaged(pointer: Out<Pointer>, bytes: usize, flags: u32) -> Status {
        allocate(
            bytes as u64,
            || note_managed(real::cuMemAllocManaged(pointer, bytes, flags)),
            || Some((pointer.read()?, bytes as u64)),
            freed(pointer, real::cuMemFree_v2),
        )
    }

    /// Lets other processes map memory.
    fn cuIpcGetMemHandle(handle: Opaque, pointer: Pointer) -> Status {
        note_shared(real::cuIpcGetMemHandle(handle, pointer))
    }

    /// Frees memory, before CUDA 3.2.
    fn cuMemFree(pointer: u32) -> Status {
        free_tracked(EntryKind::Memory, u64::from(pointer), || real::cuMemFree(pointer))
    }

    /// Frees memory.
    fn cuMemFree_v2(pointer: Pointer) -> Status {
        movable::free(pointer).unwrap_or_else(|| {
            free_tracked(EntryKind::Memory, pointer, || pools::free(pointer, || real::cuMemFree_v2(pointer)))
        })
    }
}

/// Allocates plain memory of so many bytes: calls the driver with `make`, after which `result` has the address and the bytes actually
/// allocated. `undo` frees it again.
fn allocate(
    bytes: u64,
    make: impl Fn() -> Status,
    result: impl Fn() -> Option<(Pointer, u64)>,
    undo: impl Fn(Pointer) -> Status,
) -> Status {
    if bytes <= slabs::MAX_PIECE_BYTES {
        return slabs::Piece { make, result, undo }.run();
    }
    let result = || result().map(|(address, bytes)| (address, slabs::large_bytes(bytes)));
    let bytes = slabs::large_bytes(bytes);
    Allocation { kind: EntryKind::Memory, bytes, make, result, undo }.run()
}

/// Gives the program the memory that was allocated for it. One that passes no place for it is refused, as the driver does.
fn put(pointer: Out<Pointer>, made: Result<Pointer, Status>) -> Status {
    match made {
        Ok(address) if pointer.is_null() => {
            movable::free(address);
            Status::INVALID_VALUE
        }
        Ok(address) => {
            pointer.put(address);
            Status::SUCCESS
        }
        Err(status) => status,
    }
}

/// Frees memory again that the program does not get: its pointer is as before the call.
fn freed<T: Copy>(pointer: Out<T>, free: impl Fn(Pointer) -> Status) -> impl Fn(Pointer) -> Status {
    let before = pointer.read();
    move |address| {
        if let Some(before) = before {
            pointer.put(before);
        }
        free(address)
    }
}

/// Bytes of rows, with the width rounded to the driver's minimum.
fn rows(width: u64, height: u64) -> u64 {
    rounded(width, ALLOCATION_GRANULE).saturating_mul(height)
}
