//! Allocations in the order of a stream.

use std::ptr::null_mut;

use super::{Held, Place, size};
use crate::driver::{CudaError, Handle, PoolProperties};

/// `cuMemAllocAsync`, from the pool that the GPU has.
pub(super) fn default<'a>(place: &'a Place<'a>, bytes: u64) -> Result<Held<'a>, CudaError> {
    let mut pointer = 0;
    place.cuda.allocate_async(&mut pointer, size(bytes), null_mut())?;
    // What the stream would refuse later is refused now.
    place.cuda.stream_synchronize(null_mut())?;
    Ok(Held::new(move || {
        place.cuda.free_async(pointer, null_mut())?;
        place.cuda.stream_synchronize(null_mut())?;
        let mut pool = null_mut();
        place.cuda.pool_default(&mut pool, place.device)?;
        place.cuda.pool_trim(pool, 0)
    }))
}

/// `cuMemAllocFromPoolAsync`, from a pool that was made for it.
pub(super) fn own<'a>(place: &'a Place<'a>, bytes: u64) -> Result<Held<'a>, CudaError> {
    let mut pool: Handle = null_mut();
    place.cuda.pool_create(&mut pool, &PoolProperties::device(place.device))?;
    let mut pointer = 0;
    let taken = place
        .cuda
        .allocate_from_pool(&mut pointer, size(bytes), pool, null_mut())
        .and_then(|()| place.cuda.stream_synchronize(null_mut()));
    taken.inspect_err(|_| drop(place.cuda.pool_destroy(pool)))?;
    Ok(Held::new(move || {
        place.cuda.free_async(pointer, null_mut())?;
        place.cuda.stream_synchronize(null_mut())?;
        place.cuda.pool_destroy(pool)
    }))
}
