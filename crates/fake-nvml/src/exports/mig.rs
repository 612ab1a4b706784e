//! MIG: the mode, and the profiles of a GPU.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as sys;
use octavo_machine::{MigActivation, MigProfile};

use crate::code::{CallResult, Code};
use crate::library;
use crate::pointers::{ListOut, Out, Versioned, version_of};
use crate::session::Device;

use super::identity::c_chars;

gpu_calls! {
    fn nvmlDeviceGetMigMode(gpu, current: Out<c_uint>, pending: Out<c_uint>) {
        let mig = gpu.model.mig.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        pending.check()?;
        current.put(gpu.state.mig.is_enabled(mig).into())?;
        pending.put(gpu.state.mig.is_pending(mig).into())
    }

    /// Zero if the mode is off or unsupported.
    fn nvmlDeviceGetMaxMigDeviceCount(gpu, count: Out<c_uint>) {
        let mig = gpu.model.mig.as_ref().filter(|mig| gpu.state.mig.is_enabled(mig));
        count.put(mig.and(gpu.table).map_or(0, |table| table.compute_slices))
    }

    /// Answered in either mode, as placements are.
    fn nvmlDeviceGetGpuInstanceProfileInfo(
        gpu,
        number: c_uint,
        info: Out<sys::nvmlGpuInstanceProfileInfo_t>,
    ) {
        info.put(first_version(numbered(gpu, number)?))
    }

    fn nvmlDeviceGetGpuInstanceProfileInfoV(gpu, number: c_uint, info: Versioned) {
        put_versioned(numbered(gpu, number)?, info)
    }

    fn nvmlDeviceGetGpuInstanceProfileInfoByIdV(gpu, id: c_uint, info: Versioned) {
        put_versioned(with_id(gpu, id)?, info)
    }

    fn nvmlDeviceGetGpuInstancePossiblePlacements(
        gpu,
        id: c_uint,
        places: ListOut<sys::nvmlGpuInstancePlacement_t>,
        count: Out<c_uint>,
    ) {
        placements(with_id(gpu, id)?, places, count)
    }

    fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
        gpu,
        id: c_uint,
        places: ListOut<sys::nvmlGpuInstancePlacement_t>,
        count: Out<c_uint>,
    ) {
        placements(with_id(gpu, id)?, places, count)
    }
}

/// `activation` reports why an accepted mode is not active.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceSetMigMode(
    device: sys::nvmlDevice_t,
    mode: c_uint,
    activation: Out<sys::nvmlReturn_t>,
) -> sys::nvmlReturn_t {
    let call = "nvmlDeviceSetMigMode";
    library::on_machine_slowly(call, |state| state.mig_mode_millis, &mut |session| {
        let gpu = session.place(call, device)?;
        activation.check()?;
        let enabled = match mode {
            sys::NVML_DEVICE_MIG_DISABLE => false,
            sys::NVML_DEVICE_MIG_ENABLE => true,
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        let is_used = !session.device(call, device)?.usage.is_free();
        let became =
            session.change(gpu, &mut |mig, _, state| state.set_mig_mode(mig, enabled, is_used))?;
        activation.put(Code::of(match became {
            MigActivation::Done => Ok(()),
            MigActivation::ResetRequired => Err(Code::RESET_REQUIRED),
            MigActivation::InUse => Err(Code::IN_USE),
        }))
    })
}

machine_calls! {
    fn nvmlDeviceGetGpuInstanceRemainingCapacity(
        session,
        device: sys::nvmlDevice_t,
        id: c_uint,
        count: Out<c_uint>,
    ) {
        let call = "nvmlDeviceGetGpuInstanceRemainingCapacity";
        let (_, table, state) = session.partitioned(call, device)?;
        let profile = table.profile(id).ok_or(Code::INVALID_ARGUMENT)?;
        count.put(state.mig.remaining(table, profile))
    }
}

/// The profile with that number. NVML distinguishes a number that it does not know from one that
/// this GPU lacks.
fn numbered<'a>(gpu: &Device<'a>, number: u32) -> Result<&'a MigProfile, Code> {
    /// One more than in the bindings: newer drivers have one for graphics on three slices.
    const NUMBERS: u32 = sys::NVML_GPU_INSTANCE_PROFILE_COUNT + 1;
    let table = gpu.table.ok_or(Code::NOT_SUPPORTED)?;
    let otherwise = if number < NUMBERS { Code::NOT_SUPPORTED } else { Code::INVALID_ARGUMENT };
    table.profile_numbered(number).ok_or(otherwise)
}

fn with_id<'a>(gpu: &Device<'a>, id: u32) -> Result<&'a MigProfile, Code> {
    gpu.table.ok_or(Code::NOT_SUPPORTED)?.profile(id).ok_or(Code::INVALID_ARGUMENT)
}

fn first_version(profile: &MigProfile) -> sys::nvmlGpuInstanceProfileInfo_t {
    sys::nvmlGpuInstanceProfileInfo_t {
        id: profile.id,
        isP2pSupported: 0,
        sliceCount: profile.compute_slices,
        instanceCount: profile.instances,
        multiprocessorCount: profile.multiprocessors,
        copyEngineCount: profile.copy_engines,
        decoderCount: profile.decoders,
        encoderCount: 0,
        jpegCount: profile.jpeg_engines,
        ofaCount: profile.ofa_engines,
        memorySizeMB: profile.memory_mib,
    }
}

/// Writes the second or third version of the structure, whichever the caller uses.
fn put_versioned(profile: &MigProfile, place: Versioned) -> CallResult {
    let info = first_version(profile);
    let name = c_chars(&format!("MIG {}", profile.name));
    if place.is::<sys::nvmlGpuInstanceProfileInfo_v3_t>(3)? {
        let value = sys::nvmlGpuInstanceProfileInfo_v3_t {
            version: version_of::<sys::nvmlGpuInstanceProfileInfo_v3_t>(3),
            id: info.id,
            sliceCount: info.sliceCount,
            instanceCount: info.instanceCount,
            multiprocessorCount: info.multiprocessorCount,
            copyEngineCount: info.copyEngineCount,
            decoderCount: info.decoderCount,
            encoderCount: info.encoderCount,
            jpegCount: info.jpegCount,
            ofaCount: info.ofaCount,
            memorySizeMB: info.memorySizeMB,
            name,
            capabilities: 0,
        };
        return place.put(3, value);
    }
    let value = sys::nvmlGpuInstanceProfileInfo_v2_t {
        version: version_of::<sys::nvmlGpuInstanceProfileInfo_v2_t>(2),
        id: info.id,
        isP2pSupported: info.isP2pSupported,
        sliceCount: info.sliceCount,
        instanceCount: info.instanceCount,
        multiprocessorCount: info.multiprocessorCount,
        copyEngineCount: info.copyEngineCount,
        decoderCount: info.decoderCount,
        encoderCount: info.encoderCount,
        jpegCount: info.jpegCount,
        ofaCount: info.ofaCount,
        memorySizeMB: info.memorySizeMB,
        name,
    };
    place.put(2, value)
}

fn placements(
    profile: &MigProfile,
    places: ListOut<sys::nvmlGpuInstancePlacement_t>,
    count: Out<c_uint>,
) -> CallResult {
    count.put(c_uint::try_from(profile.starts.len()).map_err(|_| Code::UNKNOWN)?)?;
    let size = profile.memory_slices;
    places.put(profile.starts.iter().map(|&start| sys::nvmlGpuInstancePlacement_t { start, size }));
    Ok(())
}

mod compute_instances;
mod devices;
mod gpu_instances;
