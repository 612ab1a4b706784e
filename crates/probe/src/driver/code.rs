//! Results of the driver's functions.

use serde::{Serialize, Serializer};

/// A `CUresult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

impl Code {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const OUT_OF_MEMORY: Self = Self(2);
    pub(crate) const DEVICE_UNAVAILABLE: Self = Self(46);
    pub(crate) const INVALID_IMAGE: Self = Self(200);
    pub(crate) const NO_BINARY_FOR_GPU: Self = Self(209);
    pub(crate) const INVALID_PTX: Self = Self(218);
    pub(crate) const JIT_COMPILER_NOT_FOUND: Self = Self(221);
    pub(crate) const UNSUPPORTED_PTX_VERSION: Self = Self(222);
    pub(crate) const NOT_READY: Self = Self(600);
    pub(crate) const PEER_ACCESS_ALREADY_ENABLED: Self = Self(704);
    pub(crate) const NOT_PERMITTED: Self = Self(800);
    pub(crate) const NOT_SUPPORTED: Self = Self(801);
    pub(crate) const SYSTEM_NOT_READY: Self = Self(802);

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
            209 => "NO_BINARY_FOR_GPU",
            214 => "ECC_UNCORRECTABLE",
            215 => "UNSUPPORTED_LIMIT",
            217 => "PEER_ACCESS_UNSUPPORTED",
            218 => "INVALID_PTX",
            220 => "NVLINK_UNCORRECTABLE",
            221 => "JIT_COMPILER_NOT_FOUND",
            222 => "UNSUPPORTED_PTX_VERSION",
            304 => "OPERATING_SYSTEM",
            400 => "INVALID_HANDLE",
            500 => "NOT_FOUND",
            600 => "NOT_READY",
            700 => "ILLEGAL_ADDRESS",
            702 => "LAUNCH_TIMEOUT",
            704 => "PEER_ACCESS_ALREADY_ENABLED",
            710 => "ASSERT",
            714 => "HARDWARE_STACK_ERROR",
            715 => "ILLEGAL_INSTRUCTION",
            716 => "MISALIGNED_ADDRESS",
            717 => "INVALID_ADDRESS_SPACE",
            718 => "INVALID_PC",
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
