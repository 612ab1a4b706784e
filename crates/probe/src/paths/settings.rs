//! Memory reserved by context limits.

use super::{Allocation, GpuContext, size};
use crate::driver::CudaError;

/// `CU_LIMIT_PRINTF_FIFO_SIZE`.
const PRINT: u32 = 1;
/// `CU_LIMIT_MALLOC_HEAP_SIZE`.
const HEAP: u32 = 2;

/// The heap of device-side allocations.
pub(super) fn heap<'a>(
    context: &'a GpuContext<'a>,
    bytes: u64,
) -> Result<Allocation<'a>, CudaError> {
    set(context, HEAP, bytes)
}

/// The buffer of device-side `printf`.
pub(super) fn print<'a>(
    context: &'a GpuContext<'a>,
    bytes: u64,
) -> Result<Allocation<'a>, CudaError> {
    set(context, PRINT, bytes)
}

fn set<'a>(
    context: &'a GpuContext<'a>,
    limit: u32,
    bytes: u64,
) -> Result<Allocation<'a>, CudaError> {
    let mut before = 0;
    context.cuda.limit_get(&mut before, limit)?;
    context.cuda.limit_set(limit, size(bytes))?;
    Ok(Allocation::new(move || context.cuda.limit_set(limit, before)))
}
