//! GPU instances.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as sys;
use octavo_machine::State;

use crate::code::{CallResult, Code};
use crate::library;
use crate::pointers::{In, ListOut, Out};
use crate::session::Session;

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceCreateGpuInstance(
    device: sys::nvmlDevice_t,
    profile: c_uint,
    instance: Out<sys::nvmlGpuInstance_t>,
) -> sys::nvmlReturn_t {
    let call = "nvmlDeviceCreateGpuInstance";
    library::on_machine_slowly(call, creating, &mut |session| {
        create(session, call, device, profile, None, instance)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceCreateGpuInstanceWithPlacement(
    device: sys::nvmlDevice_t,
    profile: c_uint,
    placement: In<sys::nvmlGpuInstancePlacement_t>,
    instance: Out<sys::nvmlGpuInstance_t>,
) -> sys::nvmlReturn_t {
    let call = "nvmlDeviceCreateGpuInstanceWithPlacement";
    library::on_machine_slowly(call, creating, &mut |session| {
        create(session, call, device, profile, Some(placement.read()?), instance)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpuInstanceDestroy(instance: sys::nvmlGpuInstance_t) -> sys::nvmlReturn_t {
    let call = "nvmlGpuInstanceDestroy";
    library::on_machine_slowly(call, |state| state.mig_destroy_millis, &mut |session| {
        let part = session.instance(call, instance)?.part;
        session.change(part.gpu, &mut |_, _, state| state.mig.destroy(part.gpu_instance))
    })
}

machine_calls! {
    /// The list has as many elements as the profile has instances; `count` is output only.
    fn nvmlDeviceGetGpuInstances(
        session,
        device: sys::nvmlDevice_t,
        profile: c_uint,
        instances: ListOut<sys::nvmlGpuInstance_t>,
        count: Out<c_uint>,
    ) {
        let (gpu, table, state) = session.partitioned("nvmlDeviceGetGpuInstances", device)?;
        table.profile(profile).ok_or(Code::INVALID_ARGUMENT)?;
        let there = &state.mig.instances;
        let mine = there.iter().filter(|(_, instance)| instance.profile == profile);
        let handles: Vec<_> = mine.map(|(id, _)| session.instance_handle(gpu, *id)).collect();
        count.put(c_uint::try_from(handles.len()).map_err(|_| Code::UNKNOWN)?)?;
        instances.put(handles);
        Ok(())
    }

    fn nvmlDeviceGetGpuInstanceById(
        session,
        device: sys::nvmlDevice_t,
        id: c_uint,
        instance: Out<sys::nvmlGpuInstance_t>,
    ) {
        let (gpu, _, state) = session.partitioned("nvmlDeviceGetGpuInstanceById", device)?;
        state.mig.instances.get(&id).ok_or(Code::NOT_FOUND)?;
        instance.put(session.instance_handle(gpu, id))
    }

    fn nvmlGpuInstanceGetInfo(
        session,
        instance: sys::nvmlGpuInstance_t,
        info: Out<sys::nvmlGpuInstanceInfo_t>,
    ) {
        let instance = session.instance("nvmlGpuInstanceGetInfo", instance)?;
        let (start, size) = (instance.state.start, instance.profile.memory_slices);
        info.put(sys::nvmlGpuInstanceInfo_t {
            device: session.handle(instance.part.gpu),
            id: instance.part.gpu_instance,
            profileId: instance.profile.id,
            placement: sys::nvmlGpuInstancePlacement_t { start, size },
        })
    }
}

fn creating(state: &State) -> u64 {
    state.mig_create_millis
}

fn create(
    session: &mut Session,
    call: &str,
    device: sys::nvmlDevice_t,
    profile: c_uint,
    placement: Option<sys::nvmlGpuInstancePlacement_t>,
    instance: Out<sys::nvmlGpuInstance_t>,
) -> CallResult {
    let (gpu, table, _) = session.partitioned(call, device)?;
    instance.check()?;
    let size = table.profile(profile).ok_or(Code::INVALID_ARGUMENT)?.memory_slices;
    if placement.is_some_and(|placement| placement.size != size) {
        return Err(Code::INVALID_ARGUMENT);
    }
    let start = placement.map(|placement| placement.start);
    let id = session
        .change(gpu, &mut |mig, table, state| state.mig.create(mig, table, profile, start))?;
    instance.put(session.instance_handle(gpu, id))
}
