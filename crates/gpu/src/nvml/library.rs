//! The loaded library: its lifetime, and facts about the system.

use std::collections::BTreeMap;
use std::ffi::{CString, c_int, c_uint};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use nvml_wrapper_sys::bindings::{self as sys, NvmlLib};

use super::call::{self, Call, call};
use super::device::Device;
use super::limits::Limits;
use super::status;
use crate::DriverError;

/// The management library, initialised from [`Library::load`] until it is dropped.
pub(super) struct Library {
    symbols: NvmlLib,
    /// Functions that the bindings lack.
    limits: Option<Limits>,
    mig_mode_changes: AtomicU64,
    /// Measured reserves of GPUs in bytes, by UUID.
    reserves: Mutex<BTreeMap<String, u64>>,
}

impl Library {
    pub(super) fn load(path: &Path) -> Result<Self, DriverError> {
        // JUSTIFICATION: the driver's library is found only on the node that runs the driver.
        // SAFETY: loading runs the library's constructors. The path is what the node's
        // administrator configured as the driver's, and the driver is trusted: it is the kernel's.
        let symbols = unsafe { NvmlLib::new(path) }.map_err(|e| DriverError::Load {
            path: path.display().to_string(),
            reason: loader_message(&e),
        })?;
        // Not yet a `Library`: its drop would call shutdown without a successful init.
        // Without GPUs it succeeds as well: they may be bound to another driver, and come back.
        let init = Call::found("nvmlInitWithFlags", &symbols.nvmlInitWithFlags)?;
        let code = call::flags(init, sys::NVML_INIT_FLAG_NO_GPUS);
        let answer = status::check(init.name, code, || error_string(&symbols, code));
        answer.map(|()| Self {
            symbols,
            limits: Limits::load(path),
            mig_mode_changes: AtomicU64::new(0),
            reserves: Mutex::default(),
        })
    }

    /// The measured reserve of a GPU. `measure` is called until it gives one.
    pub(super) fn reserve(&self, uuid: &str, measure: impl FnOnce() -> Option<u64>) -> Option<u64> {
        let mut reserves = self.reserves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = reserves.get(uuid) {
            return Some(*known);
        }
        let measured = measure()?;
        reserves.insert(uuid.to_owned(), measured);
        Some(measured)
    }

    /// Counts a change of a MIG mode.
    pub(super) fn mig_mode_changed(&self) {
        self.mig_mode_changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Changes of MIG modes so far.
    pub(super) fn mig_mode_changes(&self) -> u64 {
        self.mig_mode_changes.load(Ordering::Relaxed)
    }

    /// The driver's cgroup limits, if it supports them.
    pub(super) fn limits(&self) -> Option<&Limits> {
        self.limits.as_ref()
    }

    /// The functions of the library; called through `call!` only.
    pub(super) fn symbols(&self) -> &NvmlLib {
        &self.symbols
    }

    /// Checks a return code; the error has the driver's message.
    pub(super) fn check(&self, call: &'static str, code: u32) -> Result<(), DriverError> {
        status::check(call, code, || error_string(&self.symbols, code))
    }

    pub(super) fn driver_version(&self) -> Result<String, DriverError> {
        self.text(call!(self, nvmlSystemGetDriverVersion)?)
    }

    pub(super) fn nvml_version(&self) -> Result<String, DriverError> {
        self.text(call!(self, nvmlSystemGetNVMLVersion)?)
    }

    /// CUDA version as `major * 1000 + minor * 10`.
    pub(super) fn cuda_version(&self) -> Result<u32, DriverError> {
        let call = call!(self, nvmlSystemGetCudaDriverVersion_v2)?;
        let mut version: c_int = 0;
        self.check(call.name, call::out(call, &mut version))?;
        Ok(version.try_into().unwrap_or(0))
    }

    pub(super) fn device_count(&self) -> Result<u32, DriverError> {
        let call = call!(self, nvmlDeviceGetCount_v2)?;
        let mut count: c_uint = 0;
        self.check(call.name, call::out(call, &mut count))?;
        Ok(count)
    }

    /// The GPU at an index of this boot's enumeration.
    pub(super) fn device_at(&self, index: u32) -> Result<Device<'_>, DriverError> {
        let call = call!(self, nvmlDeviceGetHandleByIndex_v2)?;
        let mut handle = ptr::null_mut();
        self.check(call.name, call::keyed_out(call, index, &mut handle))?;
        Ok(Device::new(self, handle))
    }

    /// The GPU with a UUID.
    pub(super) fn device_of(&self, uuid: &str) -> Result<Device<'_>, DriverError> {
        let call = call!(self, nvmlDeviceGetHandleByUUID)?;
        // No GPU has a UUID with a NUL.
        let uuid = CString::new(uuid).map_err(|_| DriverError::NotFound { call: call.name })?;
        let mut handle = ptr::null_mut();
        self.check(call.name, call::keyed_out(call, uuid.as_ptr(), &mut handle))?;
        Ok(Device::new(self, handle))
    }

    fn text(&self, call: Call<call::Text>) -> Result<String, DriverError> {
        let mut text = String::new();
        let code = call::text(call, &mut text);
        self.check(call.name, code)?;
        Ok(text)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // If the function is missing or fails, the driver releases everything when the process
        // ends. There is no caller to report to and nothing to undo.
        if let Ok(shutdown) = call!(self, nvmlShutdown) {
            call::bare(shutdown);
        }
    }
}

fn error_string(symbols: &NvmlLib, code: u32) -> Option<String> {
    let call = Call::found("nvmlErrorString", &symbols.nvmlErrorString).ok()?;
    call::constant(call, code)
}

/// The message of a loader error. Its cause holds the linker's own text.
fn loader_message(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    }
}
