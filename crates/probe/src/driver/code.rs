//! Results of the driver's functions.

use serde::{Serialize, Serializer};

/// A `CUresult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

impl Code {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const OUT_OF_MEMORY: Self = Self(2);
    pub(crate) const NOT_PERMITTED: Self = Self(800);
    pub(crate) const NOT_SUPPORTED: Self = Self(801);

    /// Its name in `cuda.h`, for the results that a probe can get.
    pub(crate) fn name(self) -> String {
        let name = match self.0 {
            0 => "SUCCESS",
            1 => "INVALID_VALUE",
            2 => "OUT_OF_MEMORY",
            3 => "NOT_INITIALIZED",
            4 => "DEINITIALIZED",
            34 => "STUB_LIBRARY",
            46 => "DEVICE_UNAVAILABLE",
            100 => "NO_DEVICE",
            101 => "INVALID_DEVICE",
            200 => "INVALID_IMAGE",
            201 => "INVALID_CONTEXT",
            215 => "UNSUPPORTED_LIMIT",
            304 => "OPERATING_SYSTEM",
            400 => "INVALID_HANDLE",
            500 => "NOT_FOUND",
            700 => "ILLEGAL_ADDRESS",
            719 => "LAUNCH_FAILED",
            800 => "NOT_PERMITTED",
            801 => "NOT_SUPPORTED",
            802 => "SYSTEM_NOT_READY",
            803 => "SYSTEM_DRIVER_MISMATCH",
            999 => "UNKNOWN",
            other => return format!("CUDA_ERROR_{other}"),
        };
        if self == Self::SUCCESS { name.to_owned() } else { format!("CUDA_ERROR_{name}") }
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

/// Why a call to the driver failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CudaError {
    /// The driver library cannot be opened.
    #[error("libcuda.so.1 cannot be opened ({0}): is this a container with a GPU?")]
    NoLibrary(libloading::Error),
    /// The driver does not have the function.
    #[error("this driver has no {0}")]
    Missing(&'static str),
    /// A function failed.
    #[error("{call}: {}", code.name())]
    Failed {
        /// The function.
        call: &'static str,
        /// Its result.
        code: Code,
    },
}

impl CudaError {
    /// The result, if a function returned one.
    pub(crate) fn code(&self) -> Option<Code> {
        match self {
            Self::Failed { code, .. } => Some(*code),
            Self::NoLibrary(_) | Self::Missing(_) => None,
        }
    }
}
