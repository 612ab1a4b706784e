//! Compute instances.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as sys;
use octavo_machine::{MigComputeProfile, MigProfile};

use crate::code::{CallResult, Code};
use crate::handle::Part;
use crate::pointers::{In, ListOut, Out, Versioned, version_of};
use crate::session::{Session, compute_name};

use super::super::identity::c_chars;

machine_calls! {
    fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
        session,
        instance: sys::nvmlGpuInstance_t,
        number: c_uint,
        engines: c_uint,
        info: Out<sys::nvmlComputeInstanceProfileInfo_t>,
    ) {
        let call = "nvmlGpuInstanceGetComputeInstanceProfileInfo";
        let outer = session.instance(call, instance)?.profile;
        info.put(first_version(outer, &numbered(outer, number, engines)?))
    }

    fn nvmlGpuInstanceGetComputeInstanceProfileInfoV(
        session,
        instance: sys::nvmlGpuInstance_t,
        number: c_uint,
        engines: c_uint,
        info: Versioned,
    ) {
        let call = "nvmlGpuInstanceGetComputeInstanceProfileInfoV";
        let outer = session.instance(call, instance)?.profile;
        put_versioned(outer, &numbered(outer, number, engines)?, info)
    }

    fn nvmlGpuInstanceGetComputeInstanceRemainingCapacity(
        session,
        instance: sys::nvmlGpuInstance_t,
        id: c_uint,
        count: Out<c_uint>,
    ) {
        let call = "nvmlGpuInstanceGetComputeInstanceRemainingCapacity";
        let instance = session.instance(call, instance)?;
        let inner = instance.profile.compute_profile(id).ok_or(Code::INVALID_ARGUMENT)?;
        let slices = instance.state.free_slices(instance.profile, &inner);
        count.put(c_uint::try_from(slices.len()).map_err(|_| Code::UNKNOWN)?)
    }

    fn nvmlGpuInstanceGetComputeInstancePossiblePlacements(
        session,
        instance: sys::nvmlGpuInstance_t,
        id: c_uint,
        places: ListOut<sys::nvmlComputeInstancePlacement_t>,
        count: Out<c_uint>,
    ) {
        let call = "nvmlGpuInstanceGetComputeInstancePossiblePlacements";
        let instance = session.instance(call, instance)?;
        let inner = instance.profile.compute_profile(id).ok_or(Code::INVALID_ARGUMENT)?;
        count.put(c_uint::try_from(inner.starts.len()).map_err(|_| Code::UNKNOWN)?)?;
        let size = inner.compute_slices;
        let place = |&start: &u32| sys::nvmlComputeInstancePlacement_t { start, size };
        places.put(inner.starts.iter().map(place));
        Ok(())
    }

    fn nvmlGpuInstanceCreateComputeInstance(
        session,
        instance: sys::nvmlGpuInstance_t,
        id: c_uint,
        compute: Out<sys::nvmlComputeInstance_t>,
    ) {
        let call = "nvmlGpuInstanceCreateComputeInstance";
        create(session, call, instance, id, None, compute)
    }

    fn nvmlGpuInstanceCreateComputeInstanceWithPlacement(
        session,
        instance: sys::nvmlGpuInstance_t,
        id: c_uint,
        placement: In<sys::nvmlComputeInstancePlacement_t>,
        compute: Out<sys::nvmlComputeInstance_t>,
    ) {
        let call = "nvmlGpuInstanceCreateComputeInstanceWithPlacement";
        create(session, call, instance, id, Some(placement.read()?), compute)
    }

    fn nvmlComputeInstanceDestroy(session, compute: sys::nvmlComputeInstance_t) {
        let part = session.compute_instance("nvmlComputeInstanceDestroy", compute)?.0.part;
        session.change(part.gpu, &mut |_, _, state| {
            state.mig.destroy_compute(part.gpu_instance, part.compute_instance)
        })
    }

    /// The list has as many elements as the profile has instances; `count` is output only.
    fn nvmlGpuInstanceGetComputeInstances(
        session,
        instance: sys::nvmlGpuInstance_t,
        id: c_uint,
        instances: ListOut<sys::nvmlComputeInstance_t>,
        count: Out<c_uint>,
    ) {
        let call = "nvmlGpuInstanceGetComputeInstances";
        let instance = session.instance(call, instance)?;
        instance.profile.compute_profile(id).ok_or(Code::INVALID_ARGUMENT)?;
        let there = &instance.state.compute_instances;
        let mine = there.iter().filter(|(_, inner)| inner.profile == id);
        let handle = |compute_instance| Part { compute_instance, ..instance.part };
        let handles: Vec<_> =
            mine.map(|(id, _)| session.compute_handle(handle(*id))).collect();
        count.put(c_uint::try_from(handles.len()).map_err(|_| Code::UNKNOWN)?)?;
        instances.put(handles);
        Ok(())
    }

    fn nvmlGpuInstanceGetComputeInstanceById(
        session,
        instance: sys::nvmlGpuInstance_t,
        id: c_uint,
        compute: Out<sys::nvmlComputeInstance_t>,
    ) {
        let instance = session.instance("nvmlGpuInstanceGetComputeInstanceById", instance)?;
        instance.state.compute_instances.get(&id).ok_or(Code::NOT_FOUND)?;
        compute.put(session.compute_handle(Part { compute_instance: id, ..instance.part }))
    }

    fn nvmlComputeInstanceGetInfo(
        session,
        compute: sys::nvmlComputeInstance_t,
        info: Out<sys::nvmlComputeInstanceInfo_t>,
    ) {
        info.put(info_of(session, "nvmlComputeInstanceGetInfo", compute)?)
    }

    fn nvmlComputeInstanceGetInfo_v2(
        session,
        compute: sys::nvmlComputeInstance_t,
        info: Out<sys::nvmlComputeInstanceInfo_t>,
    ) {
        info.put(info_of(session, "nvmlComputeInstanceGetInfo_v2", compute)?)
    }
}

fn create(
    session: &mut Session,
    call: &str,
    instance: sys::nvmlGpuInstance_t,
    profile: c_uint,
    placement: Option<sys::nvmlComputeInstancePlacement_t>,
    compute: Out<sys::nvmlComputeInstance_t>,
) -> CallResult {
    compute.check()?;
    let outer = session.instance(call, instance)?;
    let part = outer.part;
    let inner = outer.profile.compute_profile(profile).ok_or(Code::INVALID_ARGUMENT)?;
    if placement.is_some_and(|placement| placement.size != inner.compute_slices) {
        return Err(Code::INVALID_ARGUMENT);
    }
    let start = placement.map(|placement| placement.start);
    let id = session.change(part.gpu, &mut |_, table, state| {
        state.mig.create_compute(table, part.gpu_instance, profile, start)
    })?;
    compute.put(session.compute_handle(Part { compute_instance: id, ..part }))
}

fn info_of(
    session: &Session,
    call: &str,
    compute: sys::nvmlComputeInstance_t,
) -> Result<sys::nvmlComputeInstanceInfo_t, Code> {
    let (outer, inner) = session.compute_instance(call, compute)?;
    let profile = outer.profile.compute_profile(inner.profile).ok_or(Code::UNKNOWN)?;
    let (start, size) = (inner.start, profile.compute_slices);
    Ok(sys::nvmlComputeInstanceInfo_t {
        device: session.handle(outer.part.gpu),
        gpuInstance: session.instance_handle(outer.part.gpu, outer.part.gpu_instance),
        id: outer.part.compute_instance,
        profileId: profile.number,
        placement: sys::nvmlComputeInstancePlacement_t { start, size },
    })
}

/// The profile with that number. NVML distinguishes a number that it does not know from one that
/// GPU instances of this profile lack.
fn numbered(outer: &MigProfile, number: u32, engines: u32) -> Result<MigComputeProfile, Code> {
    if number >= sys::NVML_COMPUTE_INSTANCE_PROFILE_COUNT
        || engines >= sys::NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT
    {
        return Err(Code::INVALID_ARGUMENT);
    }
    outer.compute_profile(number).ok_or(Code::NOT_SUPPORTED)
}

fn first_version(
    outer: &MigProfile,
    profile: &MigComputeProfile,
) -> sys::nvmlComputeInstanceProfileInfo_t {
    sys::nvmlComputeInstanceProfileInfo_t {
        id: profile.number,
        sliceCount: profile.compute_slices,
        // At most seven.
        instanceCount: c_uint::try_from(profile.starts.len()).unwrap_or(0),
        multiprocessorCount: profile.multiprocessors,
        sharedCopyEngineCount: outer.copy_engines,
        sharedDecoderCount: outer.decoders,
        sharedEncoderCount: 0,
        sharedJpegCount: outer.jpeg_engines,
        sharedOfaCount: outer.ofa_engines,
    }
}

/// Writes the second or third version of the structure, whichever the caller uses.
fn put_versioned(outer: &MigProfile, profile: &MigComputeProfile, place: Versioned) -> CallResult {
    let info = first_version(outer, profile);
    let name = c_chars(&format!("MIG {}", compute_name(outer, profile)));
    if place.is::<sys::nvmlComputeInstanceProfileInfo_v3_t>(3)? {
        let value = sys::nvmlComputeInstanceProfileInfo_v3_t {
            version: version_of::<sys::nvmlComputeInstanceProfileInfo_v3_t>(3),
            id: info.id,
            sliceCount: info.sliceCount,
            instanceCount: info.instanceCount,
            multiprocessorCount: info.multiprocessorCount,
            sharedCopyEngineCount: info.sharedCopyEngineCount,
            sharedDecoderCount: info.sharedDecoderCount,
            sharedEncoderCount: info.sharedEncoderCount,
            sharedJpegCount: info.sharedJpegCount,
            sharedOfaCount: info.sharedOfaCount,
            name,
            capabilities: 0,
        };
        return place.put(3, value);
    }
    let value = sys::nvmlComputeInstanceProfileInfo_v2_t {
        version: version_of::<sys::nvmlComputeInstanceProfileInfo_v2_t>(2),
        id: info.id,
        sliceCount: info.sliceCount,
        instanceCount: info.instanceCount,
        multiprocessorCount: info.multiprocessorCount,
        sharedCopyEngineCount: info.sharedCopyEngineCount,
        sharedDecoderCount: info.sharedDecoderCount,
        sharedEncoderCount: info.sharedEncoderCount,
        sharedJpegCount: info.sharedJpegCount,
        sharedOfaCount: info.sharedOfaCount,
        name,
    };
    place.put(2, value)
}
