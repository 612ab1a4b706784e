//! Identity and location of a GPU.

use std::ffi::{c_char, c_int, c_uint};

use nvml_wrapper_sys::bindings as sys;

use crate::code::{CallResult, Code, supported};
use crate::pointers::{Out, TextOut, Versioned};
use crate::session::Device;

use super::system::two_numbers;

device_calls! {
    fn nvmlDeviceGetName(gpu, name: TextOut, length: c_uint) {
        match &gpu.slice {
            None => name.put_whole(length, &gpu.model.name),
            Some(slice) => name.put_whole(length, &format!("{} MIG {}", gpu.model.name, slice.name())),
        }
    }

    fn nvmlDeviceGetUUID(gpu, uuid: TextOut, length: c_uint) {
        let whole = gpu.gpu.uuid.as_deref().ok_or(Code::NOT_SUPPORTED)?;
        match &gpu.slice {
            None => uuid.put_whole(length, whole),
            Some(slice) => uuid.put_whole(length, &slice.uuid(whole)),
        }
    }

    fn nvmlDeviceGetIndex(gpu, index: Out<c_uint>) {
        index.put(gpu.slice.as_ref().map_or(gpu.index, |slice| slice.index))
    }
}

gpu_calls! {
    fn nvmlDeviceGetBrand(gpu, brand: Out<sys::nvmlBrandType_t>) {
        brand.put(brand_of(&gpu.model.brand))
    }

    fn nvmlDeviceGetArchitecture(gpu, architecture: Out<sys::nvmlDeviceArchitecture_t>) {
        architecture.put(architecture_of(&gpu.model.architecture))
    }

    fn nvmlDeviceGetCudaComputeCapability(gpu, major: Out<c_int>, minor: Out<c_int>) {
        minor.check()?;
        let capability = two_numbers(&gpu.model.compute_capability)?;
        major.put(capability.0)?;
        minor.put(capability.1)
    }

    fn nvmlDeviceGetNumGpuCores(gpu, count: Out<c_uint>) {
        count.put(gpu.model.multiprocessors * cores_per_multiprocessor(gpu)?)
    }

    fn nvmlDeviceGetMinorNumber(gpu, minor: Out<c_uint>) {
        minor.put(gpu.state.minor.unwrap_or(gpu.gpu.minor))
    }

    fn nvmlDeviceGetModuleId(gpu, module: Out<c_uint>) {
        module.put(gpu.gpu.module.ok_or(Code::NOT_SUPPORTED)?)
    }

    fn nvmlDeviceGetSerial(gpu, serial: TextOut, length: c_uint) {
        serial.put_whole(length, gpu.gpu.serial.as_deref().ok_or(Code::NOT_SUPPORTED)?)
    }

    /// In this oldest version, the caller's structure ends after the device id.
    fn nvmlDeviceGetPciInfo(gpu, pci: Out<PciInfoV1>) {
        let info = pci_info(gpu)?;
        pci.put(PciInfoV1 {
            busIdLegacy: info.busIdLegacy,
            domain: info.domain,
            bus: info.bus,
            device: info.device,
            pciDeviceId: info.pciDeviceId,
        })
    }

    /// In this version, the caller's structure ends after the subsystem id and four unused words.
    fn nvmlDeviceGetPciInfo_v2(gpu, pci: Out<PciInfoV2>) {
        let info = pci_info(gpu)?;
        pci.put(PciInfoV2 {
            busIdLegacy: info.busIdLegacy,
            domain: info.domain,
            bus: info.bus,
            device: info.device,
            pciDeviceId: info.pciDeviceId,
            pciSubSystemId: info.pciSubSystemId,
        })
    }

    fn nvmlDeviceGetPciInfo_v3(gpu, pci: Out<sys::nvmlPciInfo_t>) { pci.put(pci_info(gpu)?) }

    fn nvmlDeviceGetAddressingMode(gpu, mode: Versioned) {
        use octavo_machine::AddressingMode as Mode;
        let value = match gpu.model.addressing_mode.ok_or(Code::NOT_SUPPORTED)? {
            Mode::None => sys::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_NONE,
            Mode::Hmm => sys::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_HMM,
            Mode::Ats => sys::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_ATS,
        };
        let version = crate::pointers::version_of::<sys::nvmlDeviceAddressingMode_v1_t>(1);
        mode.put(1, sys::nvmlDeviceAddressingMode_v1_t { version, value })
    }
}

/// First members of all versions of NVML's PCI information.
#[repr(C)]
struct PciInfoV1 {
    busIdLegacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pciDeviceId: c_uint,
}

/// Used members of the second version of NVML's PCI information.
#[repr(C)]
struct PciInfoV2 {
    busIdLegacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pciDeviceId: c_uint,
    pciSubSystemId: c_uint,
}

/// A PCI address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PciAddress {
    pub(super) domain: u32,
    pub(super) bus: u32,
    pub(super) device: u32,
    function: u32,
}

impl PciAddress {
    /// Parses an address with or without domain, in any case and width.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let hex = |text: &str| u32::from_str_radix(text, 16).ok();
        let (rest, function) = text.rsplit_once('.')?;
        let (rest, device) = rest.rsplit_once(':')?;
        let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
        let (domain, bus, device) = (hex(domain)?, hex(bus)?, hex(device)?);
        Some(Self { domain, bus, device, function: hex(function)? })
    }

    /// The address in NVML's structure, without ids.
    pub(super) fn info(self) -> sys::nvmlPciInfo_t {
        let Self { domain, bus, device, .. } = self;
        sys::nvmlPciInfo_t {
            busIdLegacy: c_chars(&format!("{domain:04X}:{bus:02X}:{device:02X}.0")),
            domain,
            bus,
            device,
            pciDeviceId: 0,
            pciSubSystemId: 0,
            busId: c_chars(&format!("{domain:08X}:{bus:02X}:{device:02X}.0")),
        }
    }
}

pub(super) fn pci_info(gpu: &Device<'_>) -> Result<sys::nvmlPciInfo_t, Code> {
    let mut info = PciAddress::parse(&gpu.gpu.pci).ok_or(Code::UNKNOWN)?.info();
    info.pciDeviceId = packed(&gpu.model.pci_device_id);
    info.pciSubSystemId = gpu.model.pci_subsystem_id.as_deref().map_or(0, packed);
    Ok(info)
}

/// A text as a zero-terminated array, truncated if necessary.
pub(super) fn c_chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (place, byte) in array.iter_mut().take(N - 1).zip(text.bytes()) {
        *place = c_char::from_ne_bytes([byte]);
    }
    array
}

fn packed(id: &str) -> c_uint {
    c_uint::from_str_radix(id.trim_start_matches("0x"), 16).unwrap_or(0)
}

fn cores_per_multiprocessor(gpu: &Device<'_>) -> Result<c_uint, Code> {
    // Constants of the architectures; the data-centre Ampere (8.0) keeps the older width.
    Ok(match two_numbers(&gpu.model.compute_capability)? {
        (7, _) | (8, 0) => 64,
        _ => 128,
    })
}

fn brand_of(name: &str) -> sys::nvmlBrandType_t {
    match name.to_ascii_lowercase().as_str() {
        "quadro" => sys::nvmlBrandType_enum_NVML_BRAND_QUADRO,
        "tesla" => sys::nvmlBrandType_enum_NVML_BRAND_TESLA,
        "nvs" => sys::nvmlBrandType_enum_NVML_BRAND_NVS,
        "grid" => sys::nvmlBrandType_enum_NVML_BRAND_GRID,
        "geforce" => sys::nvmlBrandType_enum_NVML_BRAND_GEFORCE,
        "titan" => sys::nvmlBrandType_enum_NVML_BRAND_TITAN,
        "nvidiavapps" => sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_VAPPS,
        "nvidiavpc" => sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_VPC,
        "nvidiavcs" => sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_VCS,
        "nvidiavws" => sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_VWS,
        "nvidiacloudgaming" => sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_CLOUD_GAMING,
        "quadrortx" => sys::nvmlBrandType_enum_NVML_BRAND_QUADRO_RTX,
        "nvidiartx" => sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA_RTX,
        "nvidia" => sys::nvmlBrandType_enum_NVML_BRAND_NVIDIA,
        "geforcertx" => sys::nvmlBrandType_enum_NVML_BRAND_GEFORCE_RTX,
        "titanrtx" => sys::nvmlBrandType_enum_NVML_BRAND_TITAN_RTX,
        _ => sys::nvmlBrandType_enum_NVML_BRAND_UNKNOWN,
    }
}

pub(super) fn architecture_of(name: &str) -> sys::nvmlDeviceArchitecture_t {
    match name.to_ascii_lowercase().as_str() {
        "kepler" => sys::NVML_DEVICE_ARCH_KEPLER,
        "maxwell" => sys::NVML_DEVICE_ARCH_MAXWELL,
        "pascal" => sys::NVML_DEVICE_ARCH_PASCAL,
        "volta" => sys::NVML_DEVICE_ARCH_VOLTA,
        "turing" => sys::NVML_DEVICE_ARCH_TURING,
        "ampere" => sys::NVML_DEVICE_ARCH_AMPERE,
        "ada" => sys::NVML_DEVICE_ARCH_ADA,
        "hopper" => sys::NVML_DEVICE_ARCH_HOPPER,
        "blackwell" => sys::NVML_DEVICE_ARCH_BLACKWELL,
        _ => sys::NVML_DEVICE_ARCH_UNKNOWN,
    }
}

/// `Err(NOT_SUPPORTED)` for GPUs older than `architecture`.
pub(super) fn since(gpu: &Device<'_>, architecture: sys::nvmlDeviceArchitecture_t) -> CallResult {
    supported(architecture_of(&gpu.model.architecture) >= architecture)
}
