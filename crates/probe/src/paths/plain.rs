//! Allocations at once.

use super::{Held, Place, size};
use crate::driver::CudaError;

/// `cuMemAlloc`.
pub(super) fn alloc<'a>(place: &'a Place<'a>, bytes: u64) -> Result<Held<'a>, CudaError> {
    let mut pointer = 0;
    place.cuda.allocate(&mut pointer, size(bytes))?;
    Ok(Held::new(move || place.cuda.free(pointer)))
}

/// `cuMemAllocPitch`, rows of 64 KiB.
pub(super) fn pitch<'a>(place: &'a Place<'a>, bytes: u64) -> Result<Held<'a>, CudaError> {
    const ROW: u64 = 64 << 10;
    let (mut pointer, mut pitch) = (0, 0);
    let (width, height) = (size(ROW), size(bytes.div_ceil(ROW)));
    place.cuda.allocate_pitch(&mut pointer, &mut pitch, width, height, 16)?;
    Ok(Held::new(move || place.cuda.free(pointer)))
}

/// `cuMemAllocManaged`, for all GPUs.
pub(super) fn managed<'a>(place: &'a Place<'a>, bytes: u64) -> Result<Held<'a>, CudaError> {
    const GLOBAL: u32 = 1;
    let mut pointer = 0;
    place.cuda.allocate_managed(&mut pointer, size(bytes), GLOBAL)?;
    Ok(Held::new(move || place.cuda.free(pointer)))
}
