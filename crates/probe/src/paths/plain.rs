//! Synchronous allocations.

use super::{Allocation, GpuContext, size};
use crate::driver::CudaError;

/// `cuMemAlloc`.
pub(super) fn alloc<'a>(
    context: &'a GpuContext<'a>,
    bytes: u64,
) -> Result<Allocation<'a>, CudaError> {
    let mut pointer = 0;
    context.cuda.allocate(&mut pointer, size(bytes))?;
    Ok(Allocation::new(move || context.cuda.free(pointer)))
}

/// `cuMemAllocPitch`, rows of 64 KiB.
pub(super) fn pitch<'a>(
    context: &'a GpuContext<'a>,
    bytes: u64,
) -> Result<Allocation<'a>, CudaError> {
    const ROW: u64 = 64 << 10;
    let (mut pointer, mut pitch) = (0, 0);
    let (width, height) = (size(ROW), size(bytes.div_ceil(ROW)));
    context.cuda.allocate_pitch(&mut pointer, &mut pitch, width, height, 16)?;
    Ok(Allocation::new(move || context.cuda.free(pointer)))
}

/// `cuMemAllocManaged`, for all GPUs.
pub(super) fn managed<'a>(
    context: &'a GpuContext<'a>,
    bytes: u64,
) -> Result<Allocation<'a>, CudaError> {
    const GLOBAL: u32 = 1;
    let mut pointer = 0;
    context.cuda.allocate_managed(&mut pointer, size(bytes), GLOBAL)?;
    Ok(Allocation::new(move || context.cuda.free(pointer)))
}
