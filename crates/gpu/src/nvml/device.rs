//! The library's facts about one GPU.

use std::ffi::{c_int, c_uint};

use nvml_wrapper_sys::bindings as sys;

use super::call::{self, Call, call};
use super::library::Library;
use crate::{ComputeMode, DriverError, PciAddress};

/// A GPU of a library. NVML's handles live until shutdown, and return an error code if their GPU is
/// gone.
#[derive(Clone, Copy)]
pub(super) struct Device<'l> {
    library: &'l Library,
    handle: sys::nvmlDevice_t,
}

/// PCI address and IDs of a GPU.
#[derive(Clone, Copy)]
pub(super) struct Pci {
    pub(super) address: PciAddress,
    pub(super) device_id: u32,
    pub(super) subsystem_id: u32,
}

/// Frame buffer of a GPU in bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Memory {
    pub(super) total: u64,
    /// What driver and firmware reserve; `None` if the driver does not say.
    pub(super) reserved: Option<u64>,
    /// What is in use, in an answer that does not tell the reserve from it.
    pub(super) used: u64,
}

impl<'l> Device<'l> {
    pub(super) fn new(library: &'l Library, handle: sys::nvmlDevice_t) -> Self {
        Self { library, handle }
    }

    pub(super) fn library(self) -> &'l Library {
        self.library
    }

    pub(super) fn handle(self) -> sys::nvmlDevice_t {
        self.handle
    }

    pub(super) fn uuid(self) -> Result<String, DriverError> {
        self.text(call!(self.library, nvmlDeviceGetUUID)?)
    }

    pub(super) fn name(self) -> Result<String, DriverError> {
        self.text(call!(self.library, nvmlDeviceGetName)?)
    }

    pub(super) fn serial(self) -> Result<String, DriverError> {
        self.text(call!(self.library, nvmlDeviceGetSerial)?)
    }

    pub(super) fn brand(self) -> Result<u32, DriverError> {
        self.get(call!(self.library, nvmlDeviceGetBrand)?, 0)
    }

    pub(super) fn architecture(self) -> Result<u32, DriverError> {
        self.get(call!(self.library, nvmlDeviceGetArchitecture)?, 0)
    }

    pub(super) fn minor(self) -> Result<u32, DriverError> {
        self.get(call!(self.library, nvmlDeviceGetMinorNumber)?, 0)
    }

    pub(super) fn module(self) -> Result<u32, DriverError> {
        self.get(call!(self.library, nvmlDeviceGetModuleId)?, 0)
    }

    pub(super) fn compute_capability(self) -> Result<(u32, u32), DriverError> {
        let call = call!(self.library, nvmlDeviceGetCudaComputeCapability)?;
        let (major, minor): (c_int, c_int) = self.get_pair(call, (0, 0))?;
        Ok((major.unsigned_abs(), minor.unsigned_abs()))
    }

    pub(super) fn pci(self) -> Result<Pci, DriverError> {
        let info = self.get(call!(self.library, nvmlDeviceGetPciInfo_v3)?, pci_info())?;
        Ok(Pci {
            address: address(&info),
            device_id: info.pciDeviceId,
            subsystem_id: info.pciSubSystemId,
        })
    }

    /// Total and reserved memory. Drivers before r510 do not report reserved memory.
    pub(super) fn memory(self) -> Result<Memory, DriverError> {
        let second = call!(self.library, nvmlDeviceGetMemoryInfo_v2).and_then(|call| {
            let version = struct_version::<sys::nvmlMemory_v2_t>(2);
            let zero = sys::nvmlMemory_v2_t { version, total: 0, reserved: 0, free: 0, used: 0 };
            self.get(call, zero)
        });
        match second {
            Ok(memory) => Ok(Memory {
                total: memory.total,
                reserved: Some(memory.reserved),
                used: memory.used,
            }),
            Err(error @ DriverError::GpuLost { .. }) => Err(error),
            Err(_) => {
                let zero = sys::nvmlMemory_t { total: 0, free: 0, used: 0 };
                let memory = self.get(call!(self.library, nvmlDeviceGetMemoryInfo)?, zero)?;
                Ok(Memory { total: memory.total, reserved: None, used: memory.used })
            }
        }
    }

    /// Streaming multiprocessors. Most drivers report them only for MIG devices.
    pub(super) fn multiprocessors(self) -> Result<u32, DriverError> {
        let zero = sys::nvmlDeviceAttributes_t {
            multiprocessorCount: 0,
            sharedCopyEngineCount: 0,
            sharedDecoderCount: 0,
            sharedEncoderCount: 0,
            sharedJpegCount: 0,
            sharedOfaCount: 0,
            gpuInstanceSliceCount: 0,
            computeInstanceSliceCount: 0,
            memorySizeMB: 0,
        };
        let attributes = self.get(call!(self.library, nvmlDeviceGetAttributes_v2)?, zero)?;
        Ok(attributes.multiprocessorCount)
    }

    pub(super) fn cuda_cores(self) -> Result<u32, DriverError> {
        self.get(call!(self.library, nvmlDeviceGetNumGpuCores)?, 0)
    }

    pub(super) fn addressing_mode(self) -> Result<u32, DriverError> {
        let version = struct_version::<sys::nvmlDeviceAddressingMode_t>(1);
        let zero = sys::nvmlDeviceAddressingMode_t { version, value: 0 };
        Ok(self.get(call!(self.library, nvmlDeviceGetAddressingMode)?, zero)?.value)
    }

    /// Whether ECC is on now.
    pub(super) fn ecc(self) -> Result<bool, DriverError> {
        let (now, _pending): (c_uint, c_uint) =
            self.get_pair(call!(self.library, nvmlDeviceGetEccMode)?, (0, 0))?;
        Ok(now != 0)
    }

    pub(super) fn power_limit_milliwatts(self) -> Result<u32, DriverError> {
        self.get(call!(self.library, nvmlDeviceGetPowerManagementLimit)?, 0)
    }

    pub(super) fn max_clock_mhz(self, clock: u32) -> Result<u32, DriverError> {
        self.get_at(call!(self.library, nvmlDeviceGetMaxClockInfo)?, clock, 0)
    }

    /// MIG mode now and after the next reset.
    pub(super) fn mig_mode(self) -> Result<(bool, bool), DriverError> {
        let (now, pending): (c_uint, c_uint) =
            self.get_pair(call!(self.library, nvmlDeviceGetMigMode)?, (0, 0))?;
        Ok((now != 0, pending != 0))
    }

    /// Which processes may have contexts.
    pub(super) fn compute_mode(self) -> Result<ComputeMode, DriverError> {
        let call = call!(self.library, nvmlDeviceGetComputeMode)?;
        match self.get(call, sys::nvmlComputeMode_enum_NVML_COMPUTEMODE_DEFAULT)? {
            sys::nvmlComputeMode_enum_NVML_COMPUTEMODE_DEFAULT => Ok(ComputeMode::Default),
            sys::nvmlComputeMode_enum_NVML_COMPUTEMODE_EXCLUSIVE_THREAD => {
                Ok(ComputeMode::ExclusiveThread)
            }
            sys::nvmlComputeMode_enum_NVML_COMPUTEMODE_PROHIBITED => Ok(ComputeMode::Prohibited),
            sys::nvmlComputeMode_enum_NVML_COMPUTEMODE_EXCLUSIVE_PROCESS => {
                Ok(ComputeMode::ExclusiveProcess)
            }
            _ => Err(DriverError::NotSupported { call: call.name }),
        }
    }

    pub(super) fn set_compute_mode(self, mode: ComputeMode) -> Result<(), DriverError> {
        let call = call!(self.library, nvmlDeviceSetComputeMode)?;
        let mode = match mode {
            ComputeMode::Default => sys::nvmlComputeMode_enum_NVML_COMPUTEMODE_DEFAULT,
            ComputeMode::ExclusiveThread => {
                sys::nvmlComputeMode_enum_NVML_COMPUTEMODE_EXCLUSIVE_THREAD
            }
            ComputeMode::Prohibited => sys::nvmlComputeMode_enum_NVML_COMPUTEMODE_PROHIBITED,
            ComputeMode::ExclusiveProcess => {
                sys::nvmlComputeMode_enum_NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
            }
        };
        self.library.check(call.name, call::device_set(call, self.handle, mode))
    }

    /// Calls a function that returns one value. A versioned structure starts as `initial`.
    pub(super) fn get<T>(
        self,
        call: Call<call::KeyedOut<sys::nvmlDevice_t, T>>,
        initial: T,
    ) -> Result<T, DriverError> {
        let mut value = initial;
        let code = call::keyed_out(call, self.handle, &mut value);
        self.library.check(call.name, code)?;
        Ok(value)
    }

    /// Calls a function that returns one value for a key: a link, a clock, a profile.
    pub(super) fn get_at<K, T>(
        self,
        call: Call<call::TwoKeyedOut<sys::nvmlDevice_t, K, T>>,
        key: K,
        initial: T,
    ) -> Result<T, DriverError> {
        let mut value = initial;
        let code = call::two_keyed_out(call, self.handle, key, &mut value);
        self.library.check(call.name, code)?;
        Ok(value)
    }

    fn get_pair<A, B>(
        self,
        call: Call<call::DeviceOutPair<A, B>>,
        initial: (A, B),
    ) -> Result<(A, B), DriverError> {
        let (mut first, mut second) = initial;
        let code = call::device_out_pair(call, self.handle, &mut first, &mut second);
        self.library.check(call.name, code)?;
        Ok((first, second))
    }

    fn text(self, call: Call<call::DeviceText>) -> Result<String, DriverError> {
        let mut text = String::new();
        let code = call::device_text(call, self.handle, &mut text);
        self.library.check(call.name, code)?;
        Ok(text)
    }
}

/// The version field of an NVML structure: its size, with its version in the highest byte.
pub(super) fn struct_version<T>(version: u32) -> u32 {
    // NVML's structures are far below the 16 MiB that the field can hold.
    u32::try_from(size_of::<T>()).unwrap_or(0) | version << 24
}

/// Empty PCI information.
pub(super) fn pci_info() -> sys::nvmlPciInfo_t {
    sys::nvmlPciInfo_t {
        busIdLegacy: [0; 16],
        domain: 0,
        bus: 0,
        device: 0,
        pciDeviceId: 0,
        pciSubSystemId: 0,
        busId: [0; 32],
    }
}

/// The address in PCI information. Only its text, `00000000:1B:00.0`, has the function.
pub(super) fn address(info: &sys::nvmlPciInfo_t) -> PciAddress {
    let text = call::string(&info.busId);
    let function = text.rsplit_once('.').and_then(|(_, f)| u8::from_str_radix(f, 16).ok());
    PciAddress {
        domain: info.domain,
        bus: (info.bus & 0xff) as u8,
        device: (info.device & 0xff) as u8,
        function: function.unwrap_or(0),
    }
}
