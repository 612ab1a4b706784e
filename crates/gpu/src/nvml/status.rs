//! NVML's return codes as errors.

use nvml_wrapper_sys::bindings as sys;

use crate::DriverError;

/// The driver is older than the version of the structure.
pub(super) const VERSION_MISMATCH: u32 = sys::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH;

/// The driver does not know a handle, number or placement.
pub(super) const INVALID_ARGUMENT: u32 = sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;

/// Checks the return code of `call`. `words` returns the driver's message and is called only if
/// needed.
pub(super) fn check(
    call: &'static str,
    code: u32,
    words: impl FnOnce() -> Option<String>,
) -> Result<(), DriverError> {
    Err(match code {
        sys::nvmlReturn_enum_NVML_SUCCESS => return Ok(()),
        sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED => DriverError::NotSupported { call },
        sys::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND => DriverError::Missing { call },
        sys::nvmlReturn_enum_NVML_ERROR_NOT_FOUND
        | sys::nvmlReturn_enum_NVML_ERROR_GPU_NOT_FOUND => DriverError::NotFound { call },
        sys::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST => DriverError::GpuLost { call },
        sys::nvmlReturn_enum_NVML_ERROR_IN_USE => DriverError::InUse { call },
        sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES => DriverError::NoRoom { call },
        _ => {
            let mut message = words().unwrap_or_else(|| "the driver gave no reason".to_owned());
            if let Some(remedy) = remedy(code) {
                message.push_str(": ");
                message.push_str(remedy);
            }
            DriverError::Failed { call, code, message }
        }
    })
}

/// The remedy for a code that the installation causes, not a GPU.
fn remedy(code: u32) -> Option<&'static str> {
    Some(match code {
        sys::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED => {
            "load the kernel module of the installed NVIDIA driver (modprobe nvidia) and see dmesg \
             if that fails"
        }
        sys::nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH => {
            "the library and the loaded kernel module are of different releases, as after an \
             upgrade: reboot the node or reload the module"
        }
        sys::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION => {
            "give the process access to /dev/nvidiactl and /dev/nvidia*, and for changes of MIG the \
             capability SYS_ADMIN"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
