//! Plain memory.

use octavo_guard_abi::charge::{ALLOCATION_GRANULE, rounded};

use crate::cuda::{Pointer, Status};
use crate::platform::ffi::Out;
use crate::tracking::allocation::{Allocation, free_tracked};
use crate::tracking::pools;
use crate::tracking::table::EntryKind;

hooks! {
    CUDA, Status;

    /// Memory, before CUDA 3.2: addresses have 32 bits.
    fn cuMemAlloc(pointer: Out<u32>, bytes: u32) -> Status {
        let bytes_counted = rounded(u64::from(bytes), ALLOCATION_GRANULE);
        Allocation {
            kind: EntryKind::Memory,
            bytes: bytes_counted,
            make: || real::cuMemAlloc(pointer, bytes),
            result: || Some((u64::from(pointer.read()?), bytes_counted)),
            undo: |key| real::cuMemFree(u32::try_from(key).unwrap_or(0)),
        }
        .run()
    }

    /// Memory.
    fn cuMemAlloc_v2(pointer: Out<Pointer>, bytes: usize) -> Status {
        let bytes_counted = rounded(bytes as u64, ALLOCATION_GRANULE);
        Allocation {
            kind: EntryKind::Memory,
            bytes: bytes_counted,
            make: || real::cuMemAlloc_v2(pointer, bytes),
            result: || Some((pointer.read()?, bytes_counted)),
            undo: real::cuMemFree_v2,
        }
        .run()
    }

    /// Pitched rows, before CUDA 3.2.
    fn cuMemAllocPitch(pointer: Out<u32>, pitch: Out<u32>, width: u32, height: u32, element: u32) -> Status {
        Allocation {
            kind: EntryKind::Memory,
            bytes: rows(u64::from(width), u64::from(height)),
            make: || real::cuMemAllocPitch(pointer, pitch, width, height, element),
            result: || Some((u64::from(pointer.read()?), rows(u64::from(pitch.read()?), u64::from(height)))),
            undo: |key| real::cuMemFree(u32::try_from(key).unwrap_or(0)),
        }
        .run()
    }

    /// Pitched rows. The driver chooses the pitch, and its choice is charged in the end.
    fn cuMemAllocPitch_v2(pointer: Out<Pointer>, pitch: Out<usize>, width: usize, height: usize, element: u32) -> Status {
        Allocation {
            kind: EntryKind::Memory,
            bytes: rows(width as u64, height as u64),
            make: || real::cuMemAllocPitch_v2(pointer, pitch, width, height, element),
            result: || Some((pointer.read()?, rows(pitch.read()? as u64, height as u64))),
            undo: real::cuMemFree_v2,
        }
        .run()
    }

    /// Managed memory, charged at its full size: paging does not oversubscribe a share.
    fn cuMemAllocManaged(pointer: Out<Pointer>, bytes: usize, flags: u32) -> Status {
        let bytes_counted = rounded(bytes as u64, ALLOCATION_GRANULE);
        Allocation {
            kind: EntryKind::Memory,
            bytes: bytes_counted,
            make: || real::cuMemAllocManaged(pointer, bytes, flags),
            result: || Some((pointer.read()?, bytes_counted)),
            undo: real::cuMemFree_v2,
        }
        .run()
    }

    /// Frees memory, before CUDA 3.2.
    fn cuMemFree(pointer: u32) -> Status {
        free_tracked(EntryKind::Memory, u64::from(pointer), || real::cuMemFree(pointer))
    }

    /// Frees memory.
    fn cuMemFree_v2(pointer: Pointer) -> Status {
        free_tracked(EntryKind::Memory, pointer, || pools::free(pointer, || real::cuMemFree_v2(pointer)))
    }
}

/// Bytes of rows, with the width rounded to the driver's minimum.
fn rows(width: u64, height: u64) -> u64 {
    rounded(width, ALLOCATION_GRANULE).saturating_mul(height)
}
