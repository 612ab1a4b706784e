//! IPC handles of memory.

use std::ffi::c_uint;

use crate::code::Code;
use crate::context;
use crate::memory::heap::RangeKind;
use crate::memory::ipc;
use crate::pointers::Out;

/// `CUipcMemHandle`, which is passed by value.
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

    /// IPC events are not simulated.
    fn cuIpcGetEventHandle(_handle: Out<MemHandle>, _event: usize) { Err(Code::NOT_SUPPORTED) }

    fn cuIpcOpenEventHandle(_event: Out<usize>, _handle: MemHandle) { Err(Code::NOT_SUPPORTED) }
}

fn open(address: Out<u64>, handle: MemHandle, _flags: c_uint) -> crate::code::CallResult {
    address.check()?;
    address.put(ipc::open(&handle.bytes, context::current()?, RangeKind::Imported)?)
}
