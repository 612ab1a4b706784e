//! Memory in the layout of textures.

use std::ptr::null_mut;

use super::{Held, Place};
use crate::driver::{ArrayDescription, CudaError};

/// `cuArray3DCreate`.
pub(super) fn array<'a>(place: &'a Place<'a>, bytes: u64) -> Result<Held<'a>, CudaError> {
    let mut array = null_mut();
    place.cuda.array_create(&mut array, &ArrayDescription::of(bytes))?;
    Ok(Held::new(move || place.cuda.array_destroy(array)))
}

/// `cuMipmappedArrayCreate`, one level.
pub(super) fn mipmap<'a>(place: &'a Place<'a>, bytes: u64) -> Result<Held<'a>, CudaError> {
    let mut array = null_mut();
    place.cuda.mipmapped_create(&mut array, &ArrayDescription::of(bytes), 1)?;
    Ok(Held::new(move || place.cuda.mipmapped_destroy(array)))
}
