//! What programs ask about addresses, and set there. Memory that the guard can move looks as plain memory does, also while it is on
//! the host.

use crate::cuda::{Opaque, Pointer, Status};
use crate::leases::wait_while_suspended;
use crate::movable::{self, Range, SYNC_MEMOPS};
use crate::platform::ffi::{In, Out};
use crate::unmovable::note_shared;

hooks! {
    CUDA, Status;

    /// Start and size of an allocation, before CUDA 3.2.
    fn cuMemGetAddressRange(start: Out<u32>, bytes: Out<u32>, pointer: u32) -> Status {
        real::cuMemGetAddressRange(start, bytes, pointer)
    }

    /// Start and size of an allocation.
    fn cuMemGetAddressRange_v2(start: Out<Pointer>, bytes: Out<u64>, pointer: Pointer) -> Status {
        match movable::find(pointer) {
            Some(range) => {
                start.put(range.start);
                bytes.put(range.bytes);
                Status::SUCCESS
            }
            None => real::cuMemGetAddressRange_v2(start, bytes, pointer),
        }
    }

    /// An attribute of an address.
    fn cuPointerGetAttribute(value: Out<u64>, attribute: u32, pointer: Pointer) -> Status {
        match movable::find(pointer).and_then(|range| answer(range, attribute)) {
            Some(answer) if !value.is_null() => {
                value.put(answer);
                Status::SUCCESS
            }
            _ => real::cuPointerGetAttribute(value, attribute, pointer),
        }
    }

    /// Several attributes of an address.
    fn cuPointerGetAttributes(count: u32, attributes: In<u32>, values: In<Out<u64>>, pointer: Pointer) -> Status {
        let status = real::cuPointerGetAttributes(count, attributes, values, pointer);
        if status.is_success()
            && let Some(range) = movable::find(pointer)
        {
            for index in 0..count as usize {
                if let (Some(attribute), Some(value)) = (attributes.element(index), values.element(index))
                    && let Some(answer) = answer(range, attribute)
                {
                    value.put(answer);
                }
            }
        }
        status
    }

    /// Sets an attribute of an address.
    fn cuPointerSetAttribute(value: In<u32>, attribute: u32, pointer: Pointer) -> Status {
        wait_while_suspended();
        // Before the call: the memory may move right after it.
        let is_sync = value.read().is_some_and(|value| value != 0);
        let before =
            if attribute == SYNC_MEMOPS { movable::set_sync(pointer, is_sync) } else { None };
        let status = real::cuPointerSetAttribute(value, attribute, pointer);
        if !status.is_success() && let Some(before) = before {
            movable::set_sync(pointer, before);
        }
        status
    }

    /// Lets GPUs use mapped memory. Plain memory is not mapped.
    fn cuMemSetAccess(start: Pointer, bytes: usize, access: Opaque, count: usize) -> Status {
        if movable::find(start).is_some() {
            return Status::INVALID_VALUE;
        }
        wait_while_suspended();
        real::cuMemSetAccess(start, bytes, access, count)
    }

    /// Exports memory as a file descriptor of DMA-BUF, through which devices use it. They would go on using what was moved.
    fn cuMemGetHandleForAddressRange(
        handle: Opaque, start: Pointer, bytes: usize, kind: u32, flags: u64,
    ) -> Status {
        if movable::find(start).is_some() {
            return Status::NOT_SUPPORTED;
        }
        note_shared(real::cuMemGetHandleForAddressRange(handle, start, bytes, kind, flags))
    }
}

/// An attribute for which the driver has another answer: of mapped memory it knows no context, and the size is that of the mapping.
fn answer(range: Range, attribute: u32) -> Option<u64> {
    /// `CU_POINTER_ATTRIBUTE_CONTEXT`.
    const CONTEXT: u32 = 1;
    /// `CU_POINTER_ATTRIBUTE_RANGE_START_ADDR`.
    const RANGE_START: u32 = 11;
    /// `CU_POINTER_ATTRIBUTE_RANGE_SIZE`.
    const RANGE_SIZE: u32 = 12;
    match attribute {
        CONTEXT => Some(range.context as u64),
        RANGE_START => Some(range.start),
        RANGE_SIZE => Some(range.bytes),
        _ => None,
    }
}
