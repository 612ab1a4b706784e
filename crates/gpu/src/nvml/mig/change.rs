//! Changes the mode, and creates and destroys instances.
//!
//! Drivers have no transactions. If a step fails, the earlier steps are undone. If that fails, too,
//! the error says so, and the caller must remember it.

use std::ptr;

use nvml_wrapper_sys::bindings as sys;

use super::instances::{GpuInstance, compute_info, placement, still_there, uuids};
use crate::mig::{MigInstance, MigPlacement, MigProfile};
use crate::nvml::call::{self, call};
use crate::nvml::device::Device;
use crate::nvml::library::Library;
use crate::nvml::status::INVALID_ARGUMENT;
use crate::{DriverError, Mig};

/// Requests a mode and returns the resulting one. If the mode is already set and stays, the driver
/// is not called, because it would fail while a process uses the GPU.
pub(in crate::nvml) fn set_mode(device: Device<'_>, enabled: bool) -> Result<Mig, DriverError> {
    const RESET_REQUIRED: u32 = sys::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED;
    let (is_on, before) = device.mig_mode()?;
    if is_on == enabled && before == enabled {
        return Ok(Mig { enabled, pending: enabled });
    }
    match activate(device, enabled)? {
        Ok(()) | Err(DriverError::Failed { code: RESET_REQUIRED, .. }) => {
            let (enabled, pending) = device.mig_mode()?;
            Ok(Mig { enabled, pending })
        }
        Err(error) => {
            // The driver has recorded the request and would apply it at the next reset, when it is
            // no longer wanted.
            if before != enabled {
                let _ = activate(device, before);
            }
            Err(error)
        }
    }
}

/// Requests a mode. The outer error means that the request failed; the inner one that it was
/// recorded but not applied.
fn activate(device: Device<'_>, enabled: bool) -> Result<Result<(), DriverError>, DriverError> {
    let call = call!(device.library(), nvmlDeviceSetMigMode)?;
    let mode = if enabled { sys::NVML_DEVICE_MIG_ENABLE } else { sys::NVML_DEVICE_MIG_DISABLE };
    let activation = device.get_at(call, mode, 0)?;
    device.library().mig_mode_changed();
    Ok(device.library().check(call.name, activation))
}

/// Creates a GPU instance and the compute instance that fills it.
pub(in crate::nvml) fn create(
    device: Device<'_>,
    profile: &MigProfile,
    at: MigPlacement,
) -> Result<MigInstance, DriverError> {
    let library = device.library();
    let call = call!(library, nvmlDeviceCreateGpuInstanceWithPlacement)?;
    let wanted = sys::nvmlGpuInstancePlacement_t { start: at.start, size: at.size };
    let mut handle = ptr::null_mut();
    let code = call::create_placed(call, device.handle(), profile.id, &wanted, &mut handle);
    if code == INVALID_ARGUMENT {
        // The profile does not have this placement.
        return Err(DriverError::NoRoom { call: call.name });
    }
    library.check(call.name, code)?;
    let instance = GpuInstance { library, handle };
    let info = instance.info();
    let gpu_instance = info.as_ref().ok().map(|info| info.id);
    let mut inner = None;
    let filled = info.and_then(|info| fill(device, instance, &info, profile, &mut inner));
    filled.map_err(|error| match take_back(instance, inner) {
        Ok(()) => error,
        Err(undo) => {
            let left = format!("is left behind: {undo}");
            DriverError::HalfDone { error: Box::new(error), gpu_instance, left }
        }
    })
}

/// Creates the compute instance that fills a new GPU instance, stores its handle in `made`, and finds
/// the UUID of the pair.
fn fill(
    device: Device<'_>,
    instance: GpuInstance<'_>,
    info: &sys::nvmlGpuInstanceInfo_t,
    profile: &MigProfile,
    made: &mut Option<sys::nvmlComputeInstance_t>,
) -> Result<MigInstance, DriverError> {
    let library = device.library();
    let call = call!(library, nvmlGpuInstanceCreateComputeInstance)?;
    // If several profiles have all slices, the first is the default one.
    let mut whole = instance.compute_profiles()?.into_iter();
    let whole = whole.find(|&(slices, _)| slices == profile.shape.gpu_slices);
    let (_, whole) = whole.ok_or(DriverError::NotSupported { call: call.name })?;
    let mut handle = ptr::null_mut();
    let code = call::two_keyed_out(call, instance.handle, whole, &mut handle);
    library.check(call.name, code)?;
    *made = Some(handle);
    let id = compute_info(library, handle)?.id;
    let made = uuids(device)?.remove(&(info.id, id));
    let made = made.ok_or(DriverError::NotFound { call: "nvmlDeviceGetMigDeviceHandleByIndex" })?;
    Ok(MigInstance {
        gpu_instance: info.id,
        profile_id: info.profileId,
        placement: placement(info.placement),
        compute_instances: vec![made],
    })
}

/// Destroys a new GPU instance and its compute instance, to undo its creation.
fn take_back(
    instance: GpuInstance<'_>,
    inner: Option<sys::nvmlComputeInstance_t>,
) -> Result<(), DriverError> {
    inner.map_or(Ok(()), |inner| destroy_compute(instance.library, inner))?;
    destroy_bare(instance)
}

/// Destroys a GPU instance with its compute instances.
pub(in crate::nvml) fn destroy(device: Device<'_>, id: u32) -> Result<(), DriverError> {
    let instance = GpuInstance::by_id(device, id)?;
    let mut gone = Vec::new();
    let half = |error: DriverError, gone: &[u32]| {
        if gone.is_empty() {
            return error;
        }
        let ids: Vec<String> = gone.iter().map(ToString::to_string).collect();
        let left = format!("has lost its compute instances {}", ids.join(", "));
        DriverError::HalfDone { error: Box::new(error), gpu_instance: Some(id), left }
    };
    for (inner, handle) in instance.compute_instances()? {
        destroy_compute(device.library(), handle).map_err(|error| half(error, &gone))?;
        gone.push(inner);
    }
    destroy_bare(instance).map_err(|error| half(error, &gone))
}

/// Destroys a compute instance; a missing one is not an error.
fn destroy_compute(
    library: &Library,
    handle: sys::nvmlComputeInstance_t,
) -> Result<(), DriverError> {
    let call = call!(library, nvmlComputeInstanceDestroy)?;
    let code = call::keyed(call, handle);
    still_there(library.check(call.name, code)).map(|_| ())
}

/// Destroys a GPU instance without compute instances.
fn destroy_bare(instance: GpuInstance<'_>) -> Result<(), DriverError> {
    let call = call!(instance.library, nvmlGpuInstanceDestroy)?;
    let code = call::keyed(call, instance.handle);
    still_there(instance.library.check(call.name, code)).map(|_| ())
}
