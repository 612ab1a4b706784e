//! Frame buffer, error correction and row remapping.

use std::ffi::{c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings as sys;

use crate::code::{CallResult, Code, supported};
use crate::pointers::{Out, Versioned, version_of};
use crate::session::Device;

use super::identity::since;

const MIB: u64 = 1 << 20;

device_calls! {
    /// The first version counts reserved memory as used.
    fn nvmlDeviceGetMemoryInfo(gpu, memory: Out<sys::nvmlMemory_t>) {
        let Sizes { total, reserved, used, free } = sizes(gpu);
        memory.put(sys::nvmlMemory_t { total, free, used: used + reserved })
    }

    fn nvmlDeviceGetMemoryInfo_v2(gpu, memory: Versioned) {
        let Sizes { total, reserved, used, free } = sizes(gpu);
        let version = version_of::<sys::nvmlMemory_v2_t>(2);
        memory.put(2, sys::nvmlMemory_v2_t { version, total, reserved, free, used })
    }

    fn nvmlDeviceGetAttributes(gpu, values: Out<sys::nvmlDeviceAttributes_t>) {
        values.check()?;
        values.put(attributes(gpu)?)
    }

    fn nvmlDeviceGetAttributes_v2(gpu, values: Out<sys::nvmlDeviceAttributes_t>) {
        values.check()?;
        values.put(attributes(gpu)?)
    }
}

gpu_calls! {
    fn nvmlDeviceGetEccMode(
        gpu,
        current: Out<sys::nvmlEnableState_t>,
        pending: Out<sys::nvmlEnableState_t>,
    ) {
        supported(gpu.model.ecc)?;
        pending.check()?;
        current.put(sys::nvmlEnableState_enum_NVML_FEATURE_ENABLED)?;
        pending.put(sys::nvmlEnableState_enum_NVML_FEATURE_ENABLED)
    }

    fn nvmlDeviceGetTotalEccErrors(
        gpu,
        error: sys::nvmlMemoryErrorType_t,
        counter: sys::nvmlEccCounterType_t,
        count: Out<c_ulonglong>,
    ) {
        count.put(errors(gpu, error, counter)?)
    }

    fn nvmlDeviceGetMemoryErrorCounter(
        gpu,
        error: sys::nvmlMemoryErrorType_t,
        counter: sys::nvmlEccCounterType_t,
        location: sys::nvmlMemoryLocation_t,
        count: Out<c_ulonglong>,
    ) {
        let all = errors(gpu, error, counter)?;
        count.put(match location {
            // All simulated errors occur in DRAM.
            sys::nvmlMemoryLocation_enum_NVML_MEMORY_LOCATION_DRAM => all,
            0..sys::nvmlMemoryLocation_enum_NVML_MEMORY_LOCATION_COUNT => 0,
            _ => return Err(Code::INVALID_ARGUMENT),
        })
    }

    fn nvmlDeviceGetRemappedRows(
        gpu,
        corrected: Out<c_uint>,
        uncorrected: Out<c_uint>,
        pending: Out<c_uint>,
        failed: Out<c_uint>,
    ) {
        remaps_rows(gpu)?;
        // Not reported while there are instances.
        supported(gpu.state.mig.instances.is_empty())?;
        uncorrected.check()?;
        pending.check()?;
        failed.check()?;
        corrected.put(0)?;
        uncorrected.put(remapped(gpu))?;
        pending.put(gpu.state.remap_pending.into())?;
        failed.put(gpu.state.remap_failed.into())
    }
}

struct Sizes {
    total: u64,
    reserved: u64,
    used: u64,
    free: u64,
}

fn sizes(gpu: &Device<'_>) -> Sizes {
    if let Some(slice) = &gpu.slice {
        let total = slice.profile.memory_mib * MIB;
        return Sizes { total, reserved: 0, used: 0, free: total };
    }
    let (total, reserved) = (gpu.model.memory_mib * MIB, gpu.model.reserved_mib * MIB);
    // Memory used by the state adds to that of processes on the GPU.
    let used = (gpu.state.memory_used_mib * MIB).saturating_add(gpu.usage.used());
    let used = used.min(total.saturating_sub(reserved));
    let free = total.saturating_sub(reserved + used);
    Sizes { total, reserved, used, free }
}

/// Engine counts, which only MIG devices report.
fn attributes(gpu: &Device<'_>) -> Result<sys::nvmlDeviceAttributes_t, Code> {
    let slice = gpu.slice.as_ref().ok_or(Code::NOT_SUPPORTED)?;
    let profile = slice.profile;
    Ok(sys::nvmlDeviceAttributes_t {
        multiprocessorCount: slice.compute.multiprocessors,
        sharedCopyEngineCount: profile.copy_engines,
        sharedDecoderCount: profile.decoders,
        sharedEncoderCount: 0,
        sharedJpegCount: profile.jpeg_engines,
        sharedOfaCount: profile.ofa_engines,
        gpuInstanceSliceCount: profile.compute_slices,
        computeInstanceSliceCount: slice.compute.compute_slices,
        memorySizeMB: profile.memory_mib,
    })
}

fn errors(gpu: &Device<'_>, error: u32, counter: u32) -> Result<u64, Code> {
    use sys::nvmlEccCounterType_enum_NVML_AGGREGATE_ECC as AGGREGATE;
    use sys::nvmlEccCounterType_enum_NVML_VOLATILE_ECC as VOLATILE;
    use sys::nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_CORRECTED as CORRECTED;
    use sys::nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_UNCORRECTED as UNCORRECTED;
    supported(gpu.model.ecc)?;
    let ecc = gpu.state.ecc;
    match (error, counter) {
        (CORRECTED, VOLATILE) => Ok(ecc.volatile_corrected),
        (UNCORRECTED, VOLATILE) => Ok(ecc.volatile_uncorrected),
        (CORRECTED, AGGREGATE) => Ok(ecc.aggregate_corrected),
        (UNCORRECTED, AGGREGATE) => Ok(ecc.aggregate_uncorrected),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}

/// Rows are remapped since Ampere, on memory with error correction.
pub(super) fn remaps_rows(gpu: &Device<'_>) -> CallResult {
    supported(gpu.model.ecc)?;
    since(gpu, sys::NVML_DEVICE_ARCH_AMPERE)
}

/// Rows remapped for uncorrected errors: one if any remap was attempted.
pub(super) fn remapped(gpu: &Device<'_>) -> c_uint {
    u32::from(gpu.state.remap_pending || gpu.state.remap_failed)
}
