//! Memory that a context sets aside when it is told to.

use super::{Held, Place, size};
use crate::driver::CudaError;

/// `CU_LIMIT_PRINTF_FIFO_SIZE`.
const PRINT: u32 = 1;
/// `CU_LIMIT_MALLOC_HEAP_SIZE`.
const HEAP: u32 = 2;

/// The heap of kernels that allocate.
pub(super) fn heap<'a>(place: &'a Place<'a>, bytes: u64) -> Result<Held<'a>, CudaError> {
    set(place, HEAP, bytes)
}

/// The buffer of kernels that print.
pub(super) fn print<'a>(place: &'a Place<'a>, bytes: u64) -> Result<Held<'a>, CudaError> {
    set(place, PRINT, bytes)
}

fn set<'a>(place: &'a Place<'a>, limit: u32, bytes: u64) -> Result<Held<'a>, CudaError> {
    let mut before = 0;
    place.cuda.limit_get(&mut before, limit)?;
    place.cuda.limit_set(limit, size(bytes))?;
    Ok(Held::new(move || place.cuda.limit_set(limit, before)))
}
