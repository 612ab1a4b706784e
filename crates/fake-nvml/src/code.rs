//! NVML's return codes.

use std::ffi::CStr;

use nvml_wrapper_sys::bindings as sys;
use octavo_machine::{MachineError, MigRefusal};

/// Result of a call.
pub(crate) type CallResult = Result<(), Code>;

/// An NVML return code other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) sys::nvmlReturn_t);

impl Code {
    pub(crate) const UNINITIALIZED: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED);
    pub(crate) const INVALID_ARGUMENT: Self =
        Self(sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT);
    pub(crate) const NOT_SUPPORTED: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED);
    pub(crate) const NO_PERMISSION: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION);
    pub(crate) const NOT_FOUND: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_NOT_FOUND);
    pub(crate) const INSUFFICIENT_SIZE: Self =
        Self(sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE);
    pub(crate) const TIMEOUT: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_TIMEOUT);
    pub(crate) const LIBRARY_NOT_FOUND: Self =
        Self(sys::nvmlReturn_enum_NVML_ERROR_LIBRARY_NOT_FOUND);
    pub(crate) const DRIVER_NOT_LOADED: Self =
        Self(sys::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED);
    pub(crate) const GPU_IS_LOST: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST);
    pub(crate) const IN_USE: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_IN_USE);
    pub(crate) const RESET_REQUIRED: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED);
    pub(crate) const INSUFFICIENT_RESOURCES: Self =
        Self(sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES);
    pub(crate) const MEMORY: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_MEMORY);
    pub(crate) const VERSION_MISMATCH: Self =
        Self(sys::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    pub(crate) const UNKNOWN: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_UNKNOWN);

    /// The code of a result, success included.
    pub(crate) fn of(answer: CallResult) -> sys::nvmlReturn_t {
        match answer {
            Ok(()) => sys::nvmlReturn_enum_NVML_SUCCESS,
            Err(Self(code)) => code,
        }
    }
}

impl From<MigRefusal> for Code {
    fn from(refusal: MigRefusal) -> Self {
        match refusal {
            MigRefusal::NotSupported => Self::NOT_SUPPORTED,
            MigRefusal::InvalidArgument => Self::INVALID_ARGUMENT,
            MigRefusal::NotFound => Self::NOT_FOUND,
            MigRefusal::InUse => Self::IN_USE,
            MigRefusal::InsufficientResources => Self::INSUFFICIENT_RESOURCES,
            _ => Self::UNKNOWN,
        }
    }
}

/// The machine's files cannot be read or changed.
impl From<MachineError> for Code {
    fn from(_: MachineError) -> Self {
        Self::UNKNOWN
    }
}

/// `Err(NOT_SUPPORTED)` unless the condition holds.
pub(crate) fn supported(condition: bool) -> CallResult {
    if condition { Ok(()) } else { Err(Code::NOT_SUPPORTED) }
}

/// Text of `nvmlErrorString`; every number has one.
pub(crate) fn words(code: sys::nvmlReturn_t) -> &'static CStr {
    match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        5 => c"Already Initialized",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        8 => c"Insufficient External Power",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        15 => c"GPU is lost",
        16 => c"GPU requires reset",
        17 => c"Blocked by the Operating System",
        18 => c"RM/NVML Version Mismatch",
        19 => c"In use by another client",
        20 => c"Insufficient Memory",
        21 => c"No Data",
        22 => c"Not supported with vGPU ECC",
        23 => c"Insufficient Resources",
        24 => c"Frequency Not Supported",
        25 => c"Argument Version Mismatch",
        26 => c"Deprecated",
        27 => c"Not Ready",
        28 => c"GPU Not Found",
        29 => c"Invalid State",
        30 => c"Reset Type Not Supported",
        _ => c"Unknown Error",
    }
}

#[cfg(test)]
mod tests;
