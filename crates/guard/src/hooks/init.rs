//! Initialisation, and the lookup of functions.

use crate::cuda::{Opaque, Status};
use crate::driver::CUDA;
use crate::platform::ffi::{Out, Text};
use crate::process;
use crate::resolve;

hooks! {
    CUDA, Status;

    /// Initialises the driver. A process whose shares cannot be opened has no GPU.
    fn cuInit(flags: u32) -> Status {
        if process::retry().is_err() {
            return Status::NO_DEVICE;
        }
        CUDA.attach();
        match real::cuInit(flags) {
            // There is no driver behind the guard.
            Status::NOT_FOUND => Status::NO_DEVICE,
            status => {
                if let Some(process) = process::get().ok().filter(|it| status.is_success() && !it.shares.is_empty()) {
                    process.agent_link.start();
                }
                status
            }
        }
    }

    /// Looks a function up by name.
    fn cuGetProcAddress(name: Text<'static>, function: Out<Opaque>, version: i32, flags: u64) -> Status {
        let status = real::cuGetProcAddress(name, function, version, flags);
        resolve::replace_answer(status, name.bytes(), function, version, flags)
    }

    /// Looks a function up by name, with the reason for a failure.
    fn cuGetProcAddress_v2(
        name: Text<'static>, function: Out<Opaque>, version: i32, flags: u64, found: Out<u32>,
    ) -> Status {
        /// `CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND`.
        const NOT_FOUND: u32 = 1;
        let status = real::cuGetProcAddress_v2(name, function, version, flags, found);
        let answer = resolve::replace_answer(status, name.bytes(), function, version, flags);
        if status.is_success() && !answer.is_success() {
            found.put(NOT_FOUND);
        }
        answer
    }
}
