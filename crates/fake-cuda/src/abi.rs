//! Structures that callers pass, as in CUDA's header.

use crate::code::Code;
use crate::library;
use crate::table::Handle;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemLocation {
    pub(crate) kind: u32,
    pub(crate) id: i32,
}

/// Values of a location's kind.
pub(crate) mod location {
    pub(crate) const DEVICE: u32 = 1;
    pub(crate) const HOST: u32 = 2;
    pub(crate) const HOST_NUMA: u32 = 3;
    pub(crate) const HOST_NUMA_CURRENT: u32 = 4;
}

/// Handle type that can be sent over a Unix socket.
pub(crate) const POSIX_FILE_DESCRIPTOR: u32 = 1;

/// Handle type that processes of other nodes can import.
pub(crate) const FABRIC: u32 = 8;

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemAllocationProp {
    pub(crate) kind: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: MemLocation,
    pub(crate) windows: usize,
    pub(crate) flags: [u8; 8],
}

impl MemAllocationProp {
    /// Pinned memory of a device.
    pub(crate) fn on(device: usize) -> Self {
        let id = i32::try_from(device).unwrap_or(-1);
        Self {
            kind: 1,
            location: MemLocation { kind: location::DEVICE, id },
            handle_types: POSIX_FILE_DESCRIPTOR,
            ..Self::default()
        }
    }

    /// The device of the memory.
    pub(crate) fn ordinal(&self) -> Result<usize, Code> {
        library::device(self.location.id).map(|device| device.ordinal)
    }
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemAccessDesc {
    pub(crate) location: MemLocation,
    pub(crate) flags: u32,
}

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemPoolProps {
    pub(crate) kind: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: MemLocation,
    pub(crate) windows: usize,
    /// Maximum size of the pool in bytes; 0 for no limit.
    pub(crate) max: u64,
    pub(crate) rest: [u8; 56],
}

impl MemPoolProps {
    /// A pool of a device without a limit.
    pub(crate) fn on(device: usize) -> Self {
        let MemAllocationProp { kind, location, .. } = MemAllocationProp::on(device);
        Self { kind, handle_types: 0, location, windows: 0, max: 0, rest: [0; 56] }
    }

    pub(crate) fn max_size(&self) -> u64 {
        self.max
    }
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) stream: Handle,
    pub(crate) attributes: usize,
    pub(crate) attribute_count: u32,
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrayDescriptor {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) format: u32,
    pub(crate) channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array3dDescriptor {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// `CUDA_ARRAY_MEMORY_REQUIREMENTS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrayRequirements {
    pub(crate) size: u64,
    pub(crate) alignment: u64,
    pub(crate) rest: [u32; 4],
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy2d {
    pub(crate) from: End2d,
    pub(crate) to: End2d,
    pub(crate) width: u64,
    pub(crate) height: u64,
}

/// An end of a two-dimensional copy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct End2d {
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) kind: u32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: Handle,
    pub(crate) pitch: u64,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy3d {
    pub(crate) from: End3d,
    pub(crate) to: End3d,
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
}

/// An end of a three-dimensional copy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct End3d {
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) z: u64,
    pub(crate) level: u64,
    pub(crate) kind: u32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: Handle,
    pub(crate) reserved: usize,
    pub(crate) pitch: u64,
    pub(crate) height: u64,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemsetParams {
    pub(crate) to: u64,
    pub(crate) pitch: u64,
    pub(crate) value: u32,
    pub(crate) element: u32,
    pub(crate) width: u64,
    pub(crate) height: u64,
}

/// `CUDA_KERNEL_NODE_PARAMS`; the structure of older programs ends before the last two members.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelParams {
    pub(crate) function: Handle,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) arguments: usize,
    pub(crate) extra: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostParams {
    pub(crate) function: Option<unsafe extern "C" fn(usize)>,
    pub(crate) data: usize,
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocParams {
    pub(crate) props: MemPoolProps,
    pub(crate) access: usize,
    pub(crate) access_count: u64,
    pub(crate) size: u64,
    pub(crate) address: u64,
}

/// `CUgraphNodeParams`: a kind and a union selected by it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeParams {
    pub(crate) kind: u32,
    pub(crate) reserved: [u32; 3],
    pub(crate) of_kind: [u64; 29],
    pub(crate) end: u64,
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct InstantiateParams {
    pub(crate) flags: u64,
    pub(crate) upload_stream: Handle,
    pub(crate) error_node: Handle,
    pub(crate) result: u32,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpdateResult {
    pub(crate) result: u32,
    pub(crate) node: Handle,
    pub(crate) from: Handle,
}

/// `CUmulticastObjectProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct MulticastProp {
    pub(crate) devices: u32,
    pub(crate) size: u64,
    pub(crate) handle_types: u64,
    pub(crate) flags: u64,
}

/// `CUdevResource` of multiprocessors.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct DevResource {
    pub(crate) kind: u32,
    pub(crate) padding: [u8; 92],
    pub(crate) multiprocessors: u32,
    pub(crate) rest: [u32; 11],
}

/// `CUdevprop`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct DevProp {
    pub(crate) threads_per_block: i32,
    pub(crate) block: [i32; 3],
    pub(crate) grid: [i32; 3],
    pub(crate) rest: [i32; 7],
}

const _: () = {
    assert!(size_of::<MemAllocationProp>() == 32);
    assert!(size_of::<MemAccessDesc>() == 12);
    assert!(size_of::<MemPoolProps>() == 88);
    assert!(size_of::<LaunchConfig>() == 56);
    assert!(size_of::<Copy2d>() == 128);
    assert!(size_of::<Copy3d>() == 200);
    assert!(size_of::<AllocParams>() == 120);
    assert!(size_of::<NodeParams>() == 256);
    assert!(size_of::<DevResource>() == 144);
};
