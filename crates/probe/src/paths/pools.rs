//! Stream-ordered allocations.

use std::ptr::null_mut;

use super::{Allocation, GpuContext, size};
use crate::driver::{CudaError, Handle, PoolProperties};

/// `cuMemAllocAsync`, from the GPU's default pool.
pub(super) fn default<'a>(
    context: &'a GpuContext<'a>,
    bytes: u64,
) -> Result<Allocation<'a>, CudaError> {
    let mut pointer = 0;
    context.cuda.allocate_async(&mut pointer, size(bytes), null_mut())?;
    // Errors of the stream appear now instead of later.
    context.cuda.stream_synchronize(null_mut())?;
    Ok(Allocation::new(move || {
        context.cuda.free_async(pointer, null_mut())?;
        context.cuda.stream_synchronize(null_mut())?;
        let mut pool = null_mut();
        context.cuda.pool_default(&mut pool, context.device)?;
        context.cuda.pool_trim(pool, 0)
    }))
}

/// `cuMemAllocFromPoolAsync`, from a new pool.
pub(super) fn own<'a>(
    context: &'a GpuContext<'a>,
    bytes: u64,
) -> Result<Allocation<'a>, CudaError> {
    let mut pool: Handle = null_mut();
    context.cuda.pool_create(&mut pool, &PoolProperties::device(context.device))?;
    let mut pointer = 0;
    let taken = context
        .cuda
        .allocate_from_pool(&mut pointer, size(bytes), pool, null_mut())
        .and_then(|()| context.cuda.stream_synchronize(null_mut()));
    taken.inspect_err(|_| drop(context.cuda.pool_destroy(pool)))?;
    Ok(Allocation::new(move || {
        context.cuda.free_async(pointer, null_mut())?;
        context.cuda.stream_synchronize(null_mut())?;
        context.cuda.pool_destroy(pool)
    }))
}
