//! IPC handles of memory and of events.

use std::ffi::c_uint;

use crate::context;
use crate::execution::event;
use crate::memory::heap::RangeKind;
use crate::memory::ipc;
use crate::pointers::Out;
use crate::table::Handle;

/// `CUipcMemHandle` and `CUipcEventHandle`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MemHandle {
    bytes: ipc::IpcHandle,
}

calls! { CALLS = call;
    fn cuIpcGetMemHandle(handle: Out<MemHandle>, address: u64) {
        handle.check()?;
        handle.put(MemHandle { bytes: ipc::handle_of(address)? })
    }

    fn cuIpcOpenMemHandle(address: Out<u64>, handle: MemHandle, flags: c_uint) {
        open(address, handle, flags)
    }

    fn cuIpcOpenMemHandle_v2(address: Out<u64>, handle: MemHandle, flags: c_uint) {
        open(address, handle, flags)
    }

    fn cuIpcCloseMemHandle(address: u64) { ipc::close(address) }

    fn cuIpcGetEventHandle(handle: Out<MemHandle>, event: Handle) {
        handle.check()?;
        handle.put(MemHandle { bytes: event::export(event)? })
    }

    fn cuIpcOpenEventHandle(event: Out<Handle>, handle: MemHandle) {
        event.check()?;
        event.put(event::open(&handle.bytes)?)
    }
}

fn open(address: Out<u64>, handle: MemHandle, _flags: c_uint) -> crate::code::CallResult {
    address.check()?;
    address.put(ipc::open(&handle.bytes, context::current()?, RangeKind::Imported)?)
}
