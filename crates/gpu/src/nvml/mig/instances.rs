//! The existing instances of a GPU. They may appear and disappear while they are read; instances
//! that are gone by then are skipped.

use std::collections::BTreeMap;
use std::ptr;

use nvml_wrapper_sys::bindings as sys;

use super::{PROFILES, info, known};
use crate::DriverError;
use crate::mig::{MigComputeInstance, MigInstance, MigPlacement, MigProfile};
use crate::nvml::call::{self, Call, call};
use crate::nvml::device::Device;
use crate::nvml::library::Library;
use crate::nvml::read::supported;
use crate::nvml::status::INVALID_ARGUMENT;

/// Numbers of compute instance profiles.
const COMPUTE_PROFILES: u32 = sys::NVML_COMPUTE_INSTANCE_PROFILE_COUNT;

/// The instances of a GPU, by placement; none if the mode is off.
pub(in crate::nvml) fn instances(device: Device<'_>) -> Result<Vec<MigInstance>, DriverError> {
    if !supported(device.mig_mode())?.is_some_and(|(enabled, _)| enabled) {
        return Ok(Vec::new());
    }
    let mut ids = Vec::new();
    for number in 0..PROFILES {
        ids.extend(known(info(device, number))?.map(|info| info.id));
    }
    of_profiles(device, ids)
}

/// As [`instances`], for a GPU with known profiles whose mode is on.
pub(in crate::nvml) fn instances_of(
    device: Device<'_>,
    profiles: &[MigProfile],
) -> Result<Vec<MigInstance>, DriverError> {
    of_profiles(device, profiles.iter().map(|profile| profile.id))
}

fn of_profiles(
    device: Device<'_>,
    profiles: impl IntoIterator<Item = u32>,
) -> Result<Vec<MigInstance>, DriverError> {
    let mut found = Vec::new();
    for profile in profiles {
        for instance in existing(device, profile)? {
            let Some(info) = still_there(instance.info())? else { continue };
            let Some(inner) = still_there(instance.compute_instance_ids())? else { continue };
            let MigPlacement { start, size } = placement(info.placement);
            found.push((MigPlacement { start, size }, info, inner));
        }
    }
    found.sort_by_key(|(placement, info, _)| (*placement, info.id));
    if found.iter().all(|(_, _, inner)| inner.is_empty()) {
        return Ok(found.into_iter().map(|(at, info, _)| bare(at, &info)).collect());
    }
    // Read last: an instance without a UUID by now is gone.
    let uuids = uuids(device)?;
    Ok(found
        .into_iter()
        .map(|(at, info, inner)| {
            let known = |id: u32| uuids.get(&(info.id, id)).cloned();
            let compute_instances = inner.into_iter().filter_map(known).collect();
            MigInstance { compute_instances, ..bare(at, &info) }
        })
        .collect())
}

/// The GPU instances of a profile, by its ID; none if the GPU does not have the profile.
pub(super) fn existing(
    device: Device<'_>,
    profile: u32,
) -> Result<Vec<GpuInstance<'_>>, DriverError> {
    let library = device.library();
    let call = call!(library, nvmlDeviceGetGpuInstances)?;
    let handles = list(library, call, device.handle(), profile, ptr::null_mut());
    let handles = known(handles)?.unwrap_or_default().into_iter();
    Ok(handles.map(|handle| GpuInstance { library, handle }).collect())
}

fn bare(placement: MigPlacement, info: &sys::nvmlGpuInstanceInfo_t) -> MigInstance {
    MigInstance {
        gpu_instance: info.id,
        profile_id: info.profileId,
        placement,
        compute_instances: Vec::new(),
    }
}

/// A GPU's MIG devices by the ids of their GPU and compute instances.
pub(super) fn uuids(
    device: Device<'_>,
) -> Result<BTreeMap<(u32, u32), MigComputeInstance>, DriverError> {
    let library = device.library();
    let mut uuids = BTreeMap::new();
    for (index, part) in parts(device)? {
        let ids = part.get(call!(library, nvmlDeviceGetGpuInstanceId)?, 0).and_then(|outer| {
            Ok((outer, part.get(call!(library, nvmlDeviceGetComputeInstanceId)?, 0)?))
        });
        let Some(ids) = still_there(ids)? else { continue };
        if let Some(uuid) = still_there(part.uuid())? {
            uuids.insert(ids, MigComputeInstance { id: ids.1, uuid, index });
        }
    }
    Ok(uuids)
}

/// A GPU's MIG devices with their indexes, one for each compute instance.
pub(super) fn parts(device: Device<'_>) -> Result<Vec<(u32, Device<'_>)>, DriverError> {
    let library = device.library();
    let max = device.get(call!(library, nvmlDeviceGetMaxMigDeviceCount)?, 0)?;
    let mut parts = Vec::new();
    // Indexes may have gaps.
    for index in 0..max {
        let call = call!(library, nvmlDeviceGetMigDeviceHandleByIndex)?;
        let handle = device.get_at(call, index, ptr::null_mut());
        parts.extend(still_there(handle)?.map(|handle| (index, Device::new(library, handle))));
    }
    Ok(parts)
}

/// A GPU instance of a library; its handle has the same rules as a device's.
#[derive(Clone, Copy)]
pub(super) struct GpuInstance<'l> {
    pub(super) library: &'l Library,
    pub(super) handle: sys::nvmlGpuInstance_t,
}

impl<'l> GpuInstance<'l> {
    /// The GPU instance with an ID.
    pub(super) fn by_id(device: Device<'l>, id: u32) -> Result<Self, DriverError> {
        let call = call!(device.library(), nvmlDeviceGetGpuInstanceById)?;
        let handle = device.get_at(call, id, ptr::null_mut())?;
        Ok(Self { library: device.library(), handle })
    }

    pub(super) fn info(self) -> Result<sys::nvmlGpuInstanceInfo_t, DriverError> {
        let call = call!(self.library, nvmlGpuInstanceGetInfo)?;
        let mut info = sys::nvmlGpuInstanceInfo_t {
            device: ptr::null_mut(),
            id: 0,
            profileId: 0,
            placement: sys::nvmlGpuInstancePlacement_t { start: 0, size: 0 },
        };
        self.library.check(call.name, call::keyed_out(call, self.handle, &mut info))?;
        Ok(info)
    }

    /// Compute instance profiles of this GPU instance, by slices and ID.
    pub(super) fn compute_profiles(self) -> Result<Vec<(u32, u32)>, DriverError> {
        let call = call!(self.library, nvmlGpuInstanceGetComputeInstanceProfileInfo)?;
        let mut profiles = Vec::new();
        for number in 0..COMPUTE_PROFILES {
            const SHARED: u32 = sys::NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED;
            let mut info = sys::nvmlComputeInstanceProfileInfo_t {
                id: 0,
                sliceCount: 0,
                instanceCount: 0,
                multiprocessorCount: 0,
                sharedCopyEngineCount: 0,
                sharedDecoderCount: 0,
                sharedEncoderCount: 0,
                sharedJpegCount: 0,
                sharedOfaCount: 0,
            };
            let code = call::three_keyed_out(call, self.handle, number, SHARED, &mut info);
            if known(self.library.check(call.name, code))?.is_some() {
                profiles.push((info.sliceCount, info.id));
            }
        }
        Ok(profiles)
    }

    /// Compute instances by ID.
    pub(super) fn compute_instances(
        self,
    ) -> Result<BTreeMap<u32, sys::nvmlComputeInstance_t>, DriverError> {
        let mut found = BTreeMap::new();
        for (_, profile) in self.compute_profiles()? {
            let call = call!(self.library, nvmlGpuInstanceGetComputeInstances)?;
            for handle in list(self.library, call, self.handle, profile, ptr::null_mut())? {
                if let Some(info) = still_there(compute_info(self.library, handle))? {
                    found.insert(info.id, handle);
                }
            }
        }
        Ok(found)
    }

    fn compute_instance_ids(self) -> Result<Vec<u32>, DriverError> {
        Ok(self.compute_instances()?.into_keys().collect())
    }
}

/// Information about a compute instance.
pub(super) fn compute_info(
    library: &Library,
    handle: sys::nvmlComputeInstance_t,
) -> Result<sys::nvmlComputeInstanceInfo_t, DriverError> {
    let call = call!(library, nvmlComputeInstanceGetInfo_v2)?;
    let mut info = sys::nvmlComputeInstanceInfo_t {
        device: ptr::null_mut(),
        gpuInstance: ptr::null_mut(),
        id: 0,
        profileId: 0,
        placement: sys::nvmlComputeInstancePlacement_t { start: 0, size: 0 },
    };
    library.check(call.name, call::keyed_out(call, handle, &mut info))?;
    Ok(info)
}

pub(super) fn placement(placement: sys::nvmlGpuInstancePlacement_t) -> MigPlacement {
    MigPlacement { start: placement.start, size: placement.size }
}

/// `None` if the object is gone.
pub(super) fn still_there<T>(answer: Result<T, DriverError>) -> Result<Option<T>, DriverError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(DriverError::NotFound { .. } | DriverError::Failed { code: INVALID_ARGUMENT, .. }) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Calls a function that returns a list for a handle and a profile; `empty` is a default entry.
fn list<D, T: Copy>(
    library: &Library,
    call: Call<call::List<D, T>>,
    first: D,
    profile: u32,
    empty: T,
) -> Result<Vec<T>, DriverError> {
    let mut buffer = [empty; call::MAX_LISTED];
    let mut count = 0;
    let code = call::list(call, first, profile, &mut buffer, &mut count);
    library.check(call.name, code)?;
    Ok(buffer.into_iter().take(count).collect())
}
