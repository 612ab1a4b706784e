//! Addresses that the guard has reserved, and the physical memory that it maps there.

use crate::cuda::{Device, Location, Opaque, Pointer, Status};
use crate::driver::call;
use crate::platform::ffi::Out;
use crate::tracking::table::Entry;

/// The only GPU of the process.
const GPU: Device = 0;

/// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
pub(crate) const SYNC_MEMOPS: u32 = 6;

/// `CUmemAllocationProp` of memory for this process alone. Without the flag for RDMA the driver refuses to register it with devices,
/// which would go on using what is moved.
#[repr(C)]
struct Prop {
    kind: u32,
    handle_types: u32,
    location: Location,
    windows: Opaque,
    flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[repr(C)]
struct Access {
    location: Location,
    flags: u32,
}

const _: () = assert!(size_of::<Prop>() == 32 && size_of::<Access>() == 12);

/// Reserved addresses.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) address: Pointer,
    pub(super) bytes: usize,
}

impl Span {
    pub(super) fn reserve(bytes: u64) -> Option<Self> {
        let (bytes, mut address) = (usize::try_from(bytes).ok()?, 0);
        let status = call::cuMemAddressReserve(Out::to(&mut address), bytes, 0, 0, 0);
        status.is_success().then_some(Self { address, bytes })
    }

    /// That of an entry, which is charged for all of it.
    pub(super) fn of(address: Pointer, entry: &Entry) -> Self {
        Self { address, bytes: usize::try_from(entry.charge.bytes()).unwrap_or(0) }
    }

    /// Creates physical memory and maps it. Returns its handle.
    pub(super) fn fill(self) -> Result<u64, Status> {
        /// `CU_MEM_ALLOCATION_TYPE_PINNED`.
        const PINNED: u32 = 1;
        let location = Location::of(GPU);
        let prop = Prop { kind: PINNED, handle_types: 0, location, windows: 0, flags: [0; 8] };
        let mut handle = 0;
        let place = (&raw const prop).expose_provenance();
        done(call::cuMemCreate(Out::to(&mut handle), self.bytes, place, 0))?;
        self.map(handle).inspect_err(|_| {
            let _ = call::cuMemRelease(handle);
        })?;
        Ok(handle)
    }

    fn map(self, handle: u64) -> Result<(), Status> {
        /// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
        const READ_WRITE: u32 = 3;
        let access = Access { location: Location::of(GPU), flags: READ_WRITE };
        done(call::cuMemMap(self.address, self.bytes, 0, handle, 0))?;
        let place = (&raw const access).expose_provenance();
        done(call::cuMemSetAccess(self.address, self.bytes, place, 1)).inspect_err(|_| {
            let _ = call::cuMemUnmap(self.address, self.bytes);
        })
    }

    /// Gives the physical memory back. If that fails, it is mapped as before, if the driver lets it.
    pub(super) fn clear(self, handle: u64) -> Result<(), NotCleared> {
        done(call::cuMemUnmap(self.address, self.bytes)).map_err(NotCleared::Mapped)?;
        done(call::cuMemRelease(handle)).map_err(|status| match self.map(handle) {
            Ok(()) => NotCleared::Mapped(status),
            Err(_) => NotCleared::Lost(status),
        })
    }

    /// Makes copies of it synchronous.
    pub(super) fn set_sync(self) -> Status {
        let is_sync = 1_u32;
        let place = (&raw const is_sync).expose_provenance();
        call::cuPointerSetAttribute(place, SYNC_MEMOPS, self.address)
    }

    pub(super) fn give_back(self) {
        let _ = call::cuMemAddressFree(self.address, self.bytes);
    }
}

/// Why physical memory was not given back.
pub(super) enum NotCleared {
    /// It is mapped as before.
    Mapped(Status),
    /// It is no longer mapped, and the driver keeps it.
    Lost(Status),
}

fn done(status: Status) -> Result<(), Status> {
    if status.is_success() { Ok(()) } else { Err(status) }
}

/// Runs `work` with a context current in this thread.
pub(super) fn within(context: Opaque, work: impl FnOnce() -> Status) -> Result<(), Status> {
    // While a context ends, its memory has an odd number.
    done(call::cuCtxPushCurrent_v2(context & !1))?;
    let status = work();
    let _ = call::cuCtxPopCurrent_v2(Out::to(&mut 0));
    done(status)
}
