//! Arrays: memory in texture layout.

use std::ptr::null_mut;

use super::{Allocation, GpuContext};
use crate::driver::{ArrayDescription, CudaError};

/// `cuArray3DCreate`.
pub(super) fn array<'a>(
    context: &'a GpuContext<'a>,
    bytes: u64,
) -> Result<Allocation<'a>, CudaError> {
    let mut array = null_mut();
    context.cuda.array_create(&mut array, &ArrayDescription::of(bytes))?;
    Ok(Allocation::new(move || context.cuda.array_destroy(array)))
}

/// `cuMipmappedArrayCreate`, one level.
pub(super) fn mipmap<'a>(
    context: &'a GpuContext<'a>,
    bytes: u64,
) -> Result<Allocation<'a>, CudaError> {
    let mut array = null_mut();
    context.cuda.mipmapped_create(&mut array, &ArrayDescription::of(bytes), 1)?;
    Ok(Allocation::new(move || context.cuda.mipmapped_destroy(array)))
}
