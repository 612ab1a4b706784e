//! The CUDA driver API as programs use it: `libcuda.so.1` opened by name, with functions looked up
//! in it.

mod code;
mod library;
mod types;

pub(crate) use code::{Code, CudaError};
pub(crate) use library::{Cuda, Launch, checked};
pub(crate) use types::{
    AccessDescription, AllocationProperties, ArrayDescription, FABRIC, FabricHandle, MemAllocNode,
    PoolProperties,
};

/// `CUdeviceptr`.
pub(crate) type Pointer = u64;
/// Any of the driver's opaque handles.
pub(crate) type Handle = *mut std::ffi::c_void;
