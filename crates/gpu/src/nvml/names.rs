//! Names for NVML's numbers, as NVIDIA's DRA driver uses them in device attributes.

use nvml_wrapper_sys::bindings as sys;

use crate::AddressingMode;

/// Name of an unknown number.
pub(super) const UNKNOWN: &str = "Unknown";

/// Name of a brand.
pub(super) fn brand(number: u32) -> &'static str {
    match number {
        sys::nvmlBrandType_enum_NVML_BRAND_QUADRO => "Quadro",
        sys::nvmlBrandType_enum_NVML_BRAND_TESLA => "Tesla",
        sys::nvmlBrandType_enum_NVML_BRAND_NVS => "NVS",
        sys::nvmlBrandType_enum_NVML_BRAND_GRID => "Grid",
        sys::nvmlBrandType_enum_NVML_BRAND_GEFORCE => "GeForce",
        sys::nvmlBrandType_enum_NVML_BRAND_TITAN => "Titan",
        sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_VAPPS => "NvidiaVApps",
        sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_VPC => "NvidiaVPC",
        sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_VCS => "NvidiaVCS",
        sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_VWS => "NvidiaVWS",
        sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_CLOUD_GAMING => "NvidiaCloudGaming",
        sys::nvmlBrandType_enum_NVML_BRAND_QUADRO_RTX => "QuadroRTX",
        sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_RTX => "NvidiaRTX",
        sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA => "Nvidia",
        sys::nvmlBrandType_enum_NVML_BRAND_GEFORCE_RTX => "GeForceRTX",
        sys::nvmlBrandType_enum_NVML_BRAND_TITAN_RTX => "TitanRTX",
        _ => UNKNOWN,
    }
}

/// Name of an architecture.
pub(super) fn architecture(number: u32) -> &'static str {
    /// Orin, which the bindings do not name yet.
    const T23X: u32 = 11;
    match number {
        sys::NVML_DEVICE_ARCH_KEPLER => "Kepler",
        sys::NVML_DEVICE_ARCH_MAXWELL => "Maxwell",
        sys::NVML_DEVICE_ARCH_PASCAL => "Pascal",
        sys::NVML_DEVICE_ARCH_VOLTA => "Volta",
        sys::NVML_DEVICE_ARCH_TURING => "Turing",
        sys::NVML_DEVICE_ARCH_AMPERE => "Ampere",
        sys::NVML_DEVICE_ARCH_ADA => "Ada Lovelace",
        sys::NVML_DEVICE_ARCH_HOPPER => "Hopper",
        sys::NVML_DEVICE_ARCH_BLACKWELL => "Blackwell",
        T23X => "Orin",
        _ => UNKNOWN,
    }
}

/// Addressing mode; `None` for an unknown number.
pub(super) fn addressing_mode(number: u32) -> Option<AddressingMode> {
    match number {
        sys::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_NONE => {
            Some(AddressingMode::None)
        }
        sys::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_HMM => {
            Some(AddressingMode::Hmm)
        }
        sys::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_ATS => {
            Some(AddressingMode::Ats)
        }
        _ => None,
    }
}

/// Generation of an NVLink version: NVML counts 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0.
pub(super) fn nvlink_generation(version: u32) -> u32 {
    match version {
        sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_1_0 => 1,
        sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_2_0
        | sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_2_2 => 2,
        sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_3_0
        | sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_3_1 => 3,
        sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_4_0 => 4,
        // Since then each generation has one version; 0 is NVML's "invalid".
        later => later.saturating_sub(2),
    }
}

/// CUDA cores of a streaming multiprocessor, by compute capability (CUDA programming guide,
/// "arithmetic instructions"); `None` if unknown.
pub(super) fn cores_per_multiprocessor(capability: (u32, u32)) -> Option<u32> {
    match capability {
        (6 | 8, 0) | (7, _) => Some(64),
        (5 | 6 | 8..=12, _) => Some(128),
        _ => None,
    }
}
