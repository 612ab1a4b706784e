//! Structures of `cuda.h` in C layout.

use super::Pointer;

/// `CU_MEM_HANDLE_TYPE_FABRIC`.
pub(crate) const FABRIC: u32 = 8;

/// `CUmemFabricHandle`: memory by which processes of other nodes find it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct FabricHandle(pub(crate) [u8; 64]);

/// `CUmemLocation`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Location {
    kind: u32,
    number: i32,
}

impl Location {
    /// Memory of a GPU (`CU_MEM_LOCATION_TYPE_DEVICE`).
    pub(crate) const fn device(number: i32) -> Self {
        Self { kind: 1, number }
    }
}

/// `CUmemAllocationProp`: pinned memory of a GPU.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct AllocationProperties {
    kind: u32,
    handle_types: u32,
    location: Location,
    windows: usize,
    compression: u8,
    rdma: u8,
    usage: u16,
    reserved: [u8; 4],
}

impl AllocationProperties {
    /// Memory of a GPU, not exported.
    pub(crate) const fn device(number: i32) -> Self {
        Self {
            kind: 1,
            handle_types: 0,
            location: Location::device(number),
            windows: 0,
            compression: 0,
            rdma: 0,
            usage: 0,
            reserved: [0; 4],
        }
    }

    /// Memory of a GPU that processes of other nodes can import (`CU_MEM_HANDLE_TYPE_FABRIC`).
    pub(crate) const fn fabric(number: i32) -> Self {
        Self { handle_types: FABRIC, ..Self::device(number) }
    }
}

/// `CUmemAccessDesc`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct AccessDescription {
    location: Location,
    flags: u32,
}

impl AccessDescription {
    /// Reading and writing by a GPU (`CU_MEM_ACCESS_FLAGS_PROT_READWRITE`).
    pub(crate) const fn device(number: i32) -> Self {
        Self { location: Location::device(number), flags: 3 }
    }
}

/// `CUmemPoolProps`: a pool of pinned memory of a GPU.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PoolProperties {
    kind: u32,
    handle_types: u32,
    location: Location,
    windows: usize,
    most: usize,
    usage: u16,
    reserved: [u8; 54],
}

impl PoolProperties {
    /// A pool of a GPU without a limit of its own.
    pub(crate) const fn device(number: i32) -> Self {
        Self {
            kind: 1,
            handle_types: 0,
            location: Location::device(number),
            windows: 0,
            most: 0,
            usage: 0,
            reserved: [0; 54],
        }
    }
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct MemAllocNode {
    pool: PoolProperties,
    access: *const AccessDescription,
    access_count: usize,
    bytes: usize,
    /// Output: the address.
    pub(crate) pointer: Pointer,
}

impl MemAllocNode {
    /// An allocation of `bytes` on a GPU.
    pub(crate) const fn device(number: i32, bytes: usize) -> Self {
        Self {
            pool: PoolProperties::device(number),
            access: std::ptr::null(),
            access_count: 0,
            bytes,
            pointer: 0,
        }
    }
}

/// `CUDA_ARRAY3D_DESCRIPTOR` of four-byte numbers.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ArrayDescription {
    width: usize,
    height: usize,
    depth: usize,
    format: u32,
    channels: u32,
    flags: u32,
}

impl ArrayDescription {
    /// Bytes of a row.
    const ROW: u64 = 32 << 10;

    /// A two-dimensional array of about `bytes`, with four channels of four bytes
    /// (`CU_AD_FORMAT_UNSIGNED_INT32`).
    pub(crate) fn of(bytes: u64) -> Self {
        let height = bytes.div_ceil(Self::ROW).clamp(1, 64 << 10);
        let width = bytes.div_ceil(height * 16).max(1);
        Self {
            width: usize::try_from(width).unwrap_or(usize::MAX),
            height: usize::try_from(height).unwrap_or(usize::MAX),
            depth: 0,
            format: 3,
            channels: 4,
            flags: 0,
        }
    }
}

const _: () = assert!(
    size_of::<AllocationProperties>() == 32
        && size_of::<AccessDescription>() == 12
        && size_of::<PoolProperties>() == 88
        && size_of::<MemAllocNode>() == 120
        && size_of::<ArrayDescription>() == 40
);
