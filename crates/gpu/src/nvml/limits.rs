//! `nvmlDeviceSetMemoryLimits_v1`, which the bindings lack.
//!
//! Its structure follows NVML's documentation of `nvmlSetMemoryLimits_v1_t`
//! (<https://docs.nvidia.com/deploy/nvml-api/>). It came with CUDA 13.4 and driver r615; this code
//! has not yet run on such a driver.

use std::ffi::{CString, c_char, c_ulonglong};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use libloading::Library as Loaded;
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

use super::device::Device;
use crate::{DriverError, MemoryLimits};

const CALL: &str = "nvmlDeviceSetMemoryLimits_v1";

/// `nvmlSetMemoryLimits_v1_t`.
#[repr(C)]
struct SetMemoryLimits {
    /// Path of the cgroup's folder.
    name_space: *const c_char,
    /// Bytes.
    soft_limit: c_ulonglong,
    /// Bytes.
    hard_limit: c_ulonglong,
}

/// For a cgroup without the driver's controller it returns `NVML_ERROR_NOT_FOUND`, which does not
/// concern the GPU.
type Set = unsafe extern "C" fn(nvmlDevice_t, *mut SetMemoryLimits) -> nvmlReturn_t;

/// The function and its library.
pub(super) struct Limits {
    set: Set,
    /// Keeps the library loaded while the pointer into it exists.
    _library: Loaded,
}

impl Limits {
    /// Looks up the function in a library that is already loaded.
    pub(super) fn load(path: &Path) -> Option<Self> {
        // JUSTIFICATION: as for the library itself.
        // SAFETY: it is loaded: its constructors have run.
        let library = unsafe { Loaded::new(path) }.ok()?;
        // JUSTIFICATION: a symbol has no type; NVML documents this one's.
        // SAFETY: the type is the function's in NVML's documentation.
        let set = *unsafe { library.get::<Set>(CALL.as_bytes()) }.ok()?;
        Some(Self { set, _library: library })
    }
}

/// Sets the limits of a cgroup.
pub(super) fn set(
    device: Device<'_>,
    cgroup: &Path,
    limits: MemoryLimits,
) -> Result<(), DriverError> {
    let library = device.library();
    let call = library.limits().ok_or(DriverError::Missing { call: CALL })?;
    let failed = |message: String| DriverError::Failed { call: CALL, code: 0, message };
    let path = CString::new(cgroup.as_os_str().as_bytes())
        .map_err(|_| failed("the cgroup's path has a zero byte".to_owned()))?;
    let mut wanted = SetMemoryLimits {
        name_space: path.as_ptr(),
        soft_limit: limits.soft_bytes,
        hard_limit: limits.hard_bytes,
    };
    // JUSTIFICATION: NVML is a C library.
    // SAFETY: the handle is of this library, which is initialised; the structure and the text that it
    // points to live through the call, and NVML keeps neither.
    let code = unsafe { (call.set)(device.handle(), &raw mut wanted) };
    match library.check(CALL, code) {
        Err(DriverError::NotFound { .. }) => Err(failed(format!(
            "{} has no limit of GPU memory: the kernel's controller `dmem` is there but not given to it (see \
             cgroup.subtree_control of the cgroups above)",
            cgroup.display()
        ))),
        result => result,
    }
}
