//! The driver's own messages, of which the simulated one has none.

use std::ffi::c_uint;

use crate::code::{CallResult, Code};
use crate::pointers::{Out, TextIn};
use crate::table::{Handle, HandleKind, Table};

/// Registered callbacks. They are never called.
static CALLBACKS: Table<()> = Table::new(HandleKind::Log);

calls! { CALLS = bare_call;
    fn cuLogsRegisterCallback(callback: usize, _data: usize, handle: Out<Handle>) {
        if callback == 0 {
            return Err(Code::INVALID_VALUE);
        }
        handle.offer(CALLBACKS.insert(())?);
        Ok(())
    }

    fn cuLogsUnregisterCallback(handle: Handle) {
        CALLBACKS.remove(handle).map_err(|_| Code::INVALID_VALUE)
    }

    fn cuLogsCurrent(iterator: Out<c_uint>, flags: c_uint) {
        iterator.check()?;
        check_flags(flags)?;
        iterator.put(0)
    }

    fn cuLogsDumpToFile(_iterator: Out<c_uint>, path: TextIn, flags: c_uint) {
        check_flags(flags)?;
        std::fs::write(path.read()?, "").map_err(|_| Code::INVALID_VALUE)
    }

    fn cuLogsDumpToMemory(_iterator: Out<c_uint>, buffer: Out<u8>, size: Out<usize>, flags: c_uint) {
        check_flags(flags)?;
        size.check()?;
        buffer.put(0)?;
        size.put(0)
    }
}

fn check_flags(flags: c_uint) -> CallResult {
    if flags == 0 { Ok(()) } else { Err(Code::INVALID_VALUE) }
}
