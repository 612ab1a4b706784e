//! Events.

use std::ffi::c_uint;

use crate::execution::event::{self, EVENTS};
use crate::pointers::Out;
use crate::table::Handle;

calls! { CALLS = hot_call;
    fn cuEventCreate(handle: Out<Handle>, flags: c_uint) {
        handle.check()?;
        handle.put(event::create(flags)?)
    }

    fn cuEventDestroy(handle: Handle) { EVENTS.remove(handle).map(drop) }

    fn cuEventDestroy_v2(handle: Handle) { EVENTS.remove(handle).map(drop) }

    fn cuEventQuery(handle: Handle) { event::query(handle) }

    fn cuEventSynchronize(handle: Handle) { event::synchronize(handle) }

    fn cuEventElapsedTime(millis: Out<f32>, start: Handle, end: Handle) {
        millis.put(event::elapsed(start, end)?)
    }

    fn cuEventElapsedTime_v2(millis: Out<f32>, start: Handle, end: Handle) {
        millis.put(event::elapsed(start, end)?)
    }
}

stream_calls! { STREAM = hot_call;
    fn cuEventRecord, cuEventRecord_ptsz(default, handle: Handle, stream: Handle) {
        event::record(handle, stream, default)
    }

    fn cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz(
        default,
        handle: Handle,
        stream: Handle,
        _flags: c_uint,
    ) {
        event::record(handle, stream, default)
    }

    fn cuStreamWaitEvent, cuStreamWaitEvent_ptsz(
        default,
        stream: Handle,
        handle: Handle,
        _flags: c_uint,
    ) {
        event::wait(stream, handle, default)
    }
}
