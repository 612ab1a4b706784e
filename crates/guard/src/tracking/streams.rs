//! Streams, as far as hooks need them.

use core::ffi::c_void;

use crate::cuda::{Device, Opaque, Pointer, Status};
use crate::devices;
use crate::driver::call;
use crate::platform::ffi::Out;
use crate::platform::sys::task;
use crate::process;
use crate::tracking::captures;

/// A stream argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// The handle passed by the program.
    pub(crate) handle: Opaque,
    /// Whether 0 means the per-thread default stream instead of the legacy one.
    pub(crate) is_per_thread: bool,
}

/// Handles up to this value mean default streams of the current context.
const LAST_DEFAULT: Opaque = 2;

impl Stream {
    /// For functions whose 0 is the legacy default stream.
    pub(crate) fn legacy(handle: Opaque) -> Self {
        Self { handle, is_per_thread: false }
    }

    /// For functions whose 0 is the per-thread default stream.
    pub(crate) fn per_thread(handle: Opaque) -> Self {
        Self { handle, is_per_thread: true }
    }

    /// Whether it is a default stream of the context.
    pub(crate) fn is_default(self) -> bool {
        self.handle <= LAST_DEFAULT
    }

    /// A number by which a stream is found again: its handle. A default stream has that of its context, with the thread for a
    /// per-thread one. A later thread may have the number of one that has ended.
    pub(crate) fn key(self) -> u64 {
        /// `CU_STREAM_PER_THREAD`.
        const PER_THREAD: Opaque = 2;
        /// Set in the numbers of default streams. Addresses of programs do not have it.
        const DEFAULT: u64 = 1 << 63;
        if !self.is_default() {
            return self.handle as u64;
        }
        let mut context = 0;
        // Without a context the launch fails.
        let _ = call::cuCtxGetCurrent(Out::to(&mut context));
        let is_per_thread = self.handle == PER_THREAD || (self.handle == 0 && self.is_per_thread);
        let thread = if is_per_thread { task::thread().rotate_left(17) } else { 0 };
        DEFAULT | (context as u64 ^ thread)
    }

    /// Whether the stream is being captured into a graph; assumed not if the driver does not tell.
    pub(crate) fn is_capturing(self) -> bool {
        self.capture_status() == Ok(true)
    }

    /// Whether work of the stream runs on the GPU. It does not while the stream is being captured. The driver says so of
    /// the legacy stream, too, while it would invalidate the capture of another one
    /// (`CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`). A driver before captures is one that runs all work.
    pub(crate) fn takes_work(self) -> bool {
        matches!(self.capture_status(), Ok(false) | Err(Status::NOT_FOUND))
    }

    fn capture_status(self) -> Result<bool, Status> {
        /// `CU_STREAM_CAPTURE_STATUS_NONE`.
        const NOT_CAPTURING: u32 = 0;
        if !captures::are_any() {
            return Ok(false);
        }
        let mut answer = NOT_CAPTURING;
        let place = Out::to(&mut answer);
        let status = if self.is_per_thread {
            call::cuStreamIsCapturing_ptsz(self.handle, place)
        } else {
            call::cuStreamIsCapturing(self.handle, place)
        };
        if status.is_success() { Ok(answer != NOT_CAPTURING) } else { Err(status) }
    }

    /// Its GPU, and whether that is sure: drivers before CUDA 12.8 do not report the GPU of a stream, and it may not be the current one.
    pub(crate) fn device(self) -> Result<(Device, bool), Status> {
        // Without a context the call that follows fails.
        if process::get().is_ok_and(|process| process.devices.is_one()) {
            return Ok((0, true));
        }
        if self.handle <= LAST_DEFAULT {
            return Ok((devices::current()?, true));
        }
        let mut device = 0;
        if call::cuStreamGetDevice(self.handle, Out::to(&mut device)).is_success() {
            return Ok((device, true));
        }
        Ok((devices::current()?, false))
    }

    /// The context that its work belongs to; `None` if the driver does not tell.
    pub(crate) fn context(self) -> Option<Opaque> {
        let mut context = 0;
        let status = if self.is_default() {
            call::cuCtxGetCurrent(Out::to(&mut context))
        } else {
            call::cuStreamGetCtx(self.handle, Out::to(&mut context))
        };
        (status.is_success() && context != 0).then_some(context)
    }

    /// Calls a host function with a number when all earlier work in the stream is done.
    pub(crate) fn call_after(self, function: extern "C" fn(*mut c_void), number: usize) -> Status {
        if self.is_per_thread {
            call::cuLaunchHostFunc_ptsz(self.handle, function, number)
        } else {
            call::cuLaunchHostFunc(self.handle, function, number)
        }
    }

    /// Makes the GPU store a number at an address when all earlier work in the stream is done. The address is that of
    /// registered host memory.
    pub(crate) fn write_after(self, address: Pointer, value: u64) -> Status {
        /// `CU_STREAM_WRITE_VALUE_DEFAULT`: after a memory barrier.
        const FLAGS: u32 = 0;
        if self.is_per_thread {
            call::cuStreamWriteValue64_v2_ptsz(self.handle, address, value, FLAGS)
        } else {
            call::cuStreamWriteValue64_v2(self.handle, address, value, FLAGS)
        }
    }

    /// Waits for all work in the stream.
    pub(crate) fn synchronize(self) -> Status {
        if self.is_per_thread {
            call::cuStreamSynchronize_ptsz(self.handle)
        } else {
            call::cuStreamSynchronize(self.handle)
        }
    }
}
