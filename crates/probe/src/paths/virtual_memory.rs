//! Physical memory and its mappings.

use super::{Allocation, GpuContext, size};
use crate::driver::{AccessDescription, AllocationProperties, CudaError};

/// `cuMemCreate`, not mapped.
pub(super) fn create<'a>(
    context: &'a GpuContext<'a>,
    bytes: u64,
) -> Result<Allocation<'a>, CudaError> {
    let handle = physical(context, bytes, AllocationProperties::device(context.device))?;
    Ok(Allocation::new(move || context.cuda.release(handle)))
}

/// `cuMemCreate` of memory that processes of other nodes can import, not mapped. It is not exported: the guard counts
/// exported memory until the process ends.
pub(super) fn fabric<'a>(
    context: &'a GpuContext<'a>,
    bytes: u64,
) -> Result<Allocation<'a>, CudaError> {
    let handle = physical(context, bytes, AllocationProperties::fabric(context.device))?;
    Ok(Allocation::new(move || context.cuda.release(handle)))
}

/// `cuMemCreate`, mapped; the handle is released at once, so that only the mapping holds the
/// memory.
pub(super) fn map<'a>(
    context: &'a GpuContext<'a>,
    bytes: u64,
) -> Result<Allocation<'a>, CudaError> {
    let handle = physical(context, bytes, AllocationProperties::device(context.device))?;
    let mut pointer = 0;
    let mapped = context.cuda.reserve(&mut pointer, size(bytes), 0, 0, 0).and_then(|()| {
        let mapped = context.cuda.map(pointer, size(bytes), 0, handle, 0).and_then(|()| {
            let access = AccessDescription::device(context.device);
            let set = context.cuda.set_access(pointer, size(bytes), &access, 1);
            set.inspect_err(|_| drop(context.cuda.unmap(pointer, size(bytes))))
        });
        mapped.inspect_err(|_| drop(context.cuda.unreserve(pointer, size(bytes))))
    });
    let released = context.cuda.release(handle);
    mapped?;
    released?;
    Ok(Allocation::new(move || {
        context.cuda.unmap(pointer, size(bytes))?;
        context.cuda.unreserve(pointer, size(bytes))
    }))
}

fn physical(
    context: &GpuContext<'_>,
    bytes: u64,
    properties: AllocationProperties,
) -> Result<u64, CudaError> {
    let mut handle = 0;
    context.cuda.create(&mut handle, size(bytes), &properties, 0)?;
    Ok(handle)
}
