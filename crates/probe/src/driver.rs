//! The CUDA driver API, as a program meets it: `libcuda.so.1` opened by name, functions found in it.

mod code;
mod library;
mod types;

pub(crate) use code::{Code, CudaError};
pub(crate) use library::{Cuda, checked};
pub(crate) use types::{
    AccessDescription, AllocationProperties, ArrayDescription, MemAllocNode, PoolProperties,
};

/// `CUdeviceptr`.
pub(crate) type Pointer = u64;
/// Any of the driver's opaque handles.
pub(crate) type Handle = *mut std::ffi::c_void;
