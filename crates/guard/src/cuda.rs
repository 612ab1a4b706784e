//! Types of the CUDA driver API, as far as the guard reads them.
//!
//! Handles are addresses that only the driver can dereference. They are passed as numbers, which is
//! the same in C.

/// Result of a driver call (`CUresult`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Status(pub(crate) u32);

impl Status {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const INVALID_VALUE: Self = Self(1);
    pub(crate) const OUT_OF_MEMORY: Self = Self(2);
    pub(crate) const NO_DEVICE: Self = Self(100);
    pub(crate) const INVALID_DEVICE: Self = Self(101);
    pub(crate) const NOT_FOUND: Self = Self(500);
    /// Work has not ended yet.
    pub(crate) const NOT_READY: Self = Self(600);
    pub(crate) const ALREADY_REGISTERED: Self = Self(712);
    pub(crate) const NOT_PERMITTED: Self = Self(800);
    pub(crate) const NOT_SUPPORTED: Self = Self(801);
    /// A call that must not be made while a stream is being captured.
    pub(crate) const CAPTURE_UNSUPPORTED: Self = Self(900);

    /// Whether the call succeeded.
    pub(crate) fn is_success(self) -> bool {
        self == Self::SUCCESS
    }

    /// Whether the context is lost, with all its work: an uncorrectable ECC error, or one of the errors of kernels
    /// (`CUDA_ERROR_ILLEGAL_ADDRESS` to `CUDA_ERROR_LAUNCH_FAILED`), after which the driver refuses all calls.
    pub(crate) fn is_lost(self) -> bool {
        matches!(self.0, 214 | 700 | 702 | 709 | 710 | 714..=719)
    }
}

/// Ordinal of a GPU (`CUdevice`).
pub(crate) type Device = i32;

/// An address on the GPU (`CUdeviceptr`).
pub(crate) type Pointer = u64;

/// Any handle or pointer that the guard passes through unread.
pub(crate) type Opaque = usize;

/// Location of memory (`CUmemLocation`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Location {
    kind: u32,
    id: Device,
}

impl Location {
    /// `CU_MEM_LOCATION_TYPE_DEVICE`.
    const DEVICE: u32 = 1;

    /// That of a GPU's memory.
    pub(crate) const fn of(device: Device) -> Self {
        Self { kind: Self::DEVICE, id: device }
    }

    /// The GPU; `None` for host memory or no location.
    pub(crate) fn device(self) -> Option<Device> {
        (self.kind == Self::DEVICE).then_some(self.id)
    }
}

/// Parameters of an allocation node in a graph (`CUDA_MEM_ALLOC_NODE_PARAMS`), with space for newer
/// versions.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct AllocationNode {
    kind: u32,
    handle_types: u32,
    /// Location of the memory.
    pub(crate) location: Location,
    _pool_properties: [u64; 9],
    access: Opaque,
    access_count: usize,
    /// Size in bytes.
    pub(crate) bytes: usize,
    address: Pointer,
    _padding: [u64; 17],
}

/// Memory requirements of an array (`CUDA_ARRAY_MEMORY_REQUIREMENTS`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct ArrayMemoryRequirements {
    /// Size in bytes.
    pub(crate) bytes: usize,
    alignment: usize,
    _reserved: [u32; 4],
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(AllocationNode, bytes) == 104 && size_of::<AllocationNode>() == 256);
    assert!(size_of::<ArrayMemoryRequirements>() == 32);
};
