//! Physical memory and the addresses that it is mapped at.

use super::{Held, Place, size};
use crate::driver::{AccessDescription, AllocationProperties, CudaError};

/// `cuMemCreate`, not mapped.
pub(super) fn create<'a>(place: &'a Place<'a>, bytes: u64) -> Result<Held<'a>, CudaError> {
    let handle = physical(place, bytes)?;
    Ok(Held::new(move || place.cuda.release(handle)))
}

/// `cuMemCreate`, mapped; the handle is released at once, and the mapping alone keeps the memory.
pub(super) fn map<'a>(place: &'a Place<'a>, bytes: u64) -> Result<Held<'a>, CudaError> {
    let handle = physical(place, bytes)?;
    let mut pointer = 0;
    let mapped = place.cuda.reserve(&mut pointer, size(bytes), 0, 0, 0).and_then(|()| {
        let mapped = place.cuda.map(pointer, size(bytes), 0, handle, 0).and_then(|()| {
            let access = AccessDescription::device(place.device);
            let set = place.cuda.set_access(pointer, size(bytes), &access, 1);
            set.inspect_err(|_| drop(place.cuda.unmap(pointer, size(bytes))))
        });
        mapped.inspect_err(|_| drop(place.cuda.unreserve(pointer, size(bytes))))
    });
    let released = place.cuda.release(handle);
    mapped?;
    released?;
    Ok(Held::new(move || {
        place.cuda.unmap(pointer, size(bytes))?;
        place.cuda.unreserve(pointer, size(bytes))
    }))
}

fn physical(place: &Place<'_>, bytes: u64) -> Result<u64, CudaError> {
    let mut handle = 0;
    let properties = AllocationProperties::device(place.device);
    place.cuda.create(&mut handle, size(bytes), &properties, 0)?;
    Ok(handle)
}
