//! Multi-instance GPUs: profiles and placements as reported by the driver.

use nvml_wrapper_sys::bindings as sys;

use super::call::{self, call};
use super::device::{Device, struct_version};
use super::status::{INVALID_ARGUMENT, VERSION_MISMATCH};
use crate::DriverError;
use crate::mig::{MigPlacement, MigProfile, MigShape};

pub(super) use change::{create, destroy, set_mode};
pub(super) use compare::has_changed;
pub(super) use instances::{instances, instances_of};

/// One more than the bindings count. NVML numbers profiles without gaps, and newer drivers have one
/// for graphics on three slices.
const PROFILES: u32 = sys::NVML_GPU_INSTANCE_PROFILE_COUNT + 1;

/// The profiles of a GPU, by NVML number.
pub(super) fn profiles(device: Device<'_>) -> Result<Vec<MigProfile>, DriverError> {
    let total_bytes = device.memory()?.total;
    let mut profiles = Vec::new();
    for number in 0..PROFILES {
        let Some(info) = known(info(device, number))? else { continue };
        let placements = known(placements(device, info.id))?.unwrap_or_default();
        let shape = MigShape::of_profile(number, info.sliceCount);
        profiles.push(MigProfile {
            number,
            id: info.id,
            name: shape.name(info.memorySizeMB, total_bytes),
            shape,
            memory_mib: info.memorySizeMB,
            instances: info.instanceCount,
            multiprocessors: info.multiprocessorCount,
            copy_engines: info.copyEngineCount,
            decoders: info.decoderCount,
            encoders: info.encoderCount,
            jpeg_engines: info.jpegCount,
            ofa_engines: info.ofaCount,
            placements,
        });
    }
    Ok(profiles)
}

/// Profile information by the versioned call, or else by the older one.
fn info(
    device: Device<'_>,
    profile: u32,
) -> Result<sys::nvmlGpuInstanceProfileInfo_t, DriverError> {
    match versioned_info(device, profile) {
        Err(DriverError::Missing { .. } | DriverError::Failed { code: VERSION_MISMATCH, .. }) => {
            let call = call!(device.library(), nvmlDeviceGetGpuInstanceProfileInfo)?;
            device.get_at(call, profile, empty())
        }
        answer => answer,
    }
}

fn versioned_info(
    device: Device<'_>,
    profile: u32,
) -> Result<sys::nvmlGpuInstanceProfileInfo_t, DriverError> {
    let call = call!(device.library(), nvmlDeviceGetGpuInstanceProfileInfoV)?;
    let zero = sys::nvmlGpuInstanceProfileInfo_v2_t {
        version: struct_version::<sys::nvmlGpuInstanceProfileInfo_v2_t>(2),
        id: 0,
        isP2pSupported: 0,
        sliceCount: 0,
        instanceCount: 0,
        multiprocessorCount: 0,
        copyEngineCount: 0,
        decoderCount: 0,
        encoderCount: 0,
        jpegCount: 0,
        ofaCount: 0,
        memorySizeMB: 0,
        name: [0; 96],
    };
    let info = device.get_at(call, profile, zero)?;
    Ok(sys::nvmlGpuInstanceProfileInfo_t {
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
    })
}

fn empty() -> sys::nvmlGpuInstanceProfileInfo_t {
    sys::nvmlGpuInstanceProfileInfo_t {
        id: 0,
        isP2pSupported: 0,
        sliceCount: 0,
        instanceCount: 0,
        multiprocessorCount: 0,
        copyEngineCount: 0,
        decoderCount: 0,
        encoderCount: 0,
        jpegCount: 0,
        ofaCount: 0,
        memorySizeMB: 0,
    }
}

/// Possible placements of a profile, by first memory slice. `id` is the profile's ID, not its
/// number.
fn placements(device: Device<'_>, id: u32) -> Result<Vec<MigPlacement>, DriverError> {
    let call = call!(device.library(), nvmlDeviceGetGpuInstancePossiblePlacements_v2)?;
    let mut buffer = [sys::nvmlGpuInstancePlacement_t { start: 0, size: 0 }; call::MAX_LISTED];
    let mut count = 0;
    let code = call::list(call, device.handle(), id, &mut buffer, &mut count);
    device.library().check(call.name, code)?;
    let mut placements: Vec<_> = buffer
        .iter()
        .take(count)
        .map(|placement| MigPlacement { start: placement.start, size: placement.size })
        .collect();
    placements.sort_unstable();
    Ok(placements)
}

/// `None` for a profile that the GPU does not have, for which NVML has two return codes.
fn known<T>(answer: Result<T, DriverError>) -> Result<Option<T>, DriverError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(
            DriverError::NotSupported { .. } | DriverError::Failed { code: INVALID_ARGUMENT, .. },
        ) => Ok(None),
        Err(error) => Err(error),
    }
}

mod change;
mod compare;
mod instances;
