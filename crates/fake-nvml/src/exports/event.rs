//! Event sets.

use std::ffi::{c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings as sys;

use crate::code::Code;
use crate::events::{TypeBit, supported_types};
use crate::library;
use crate::pointers::Out;

machine_calls! {
    fn nvmlEventSetCreate(session, set: Out<sys::nvmlEventSet_t>) {
        set.check()?;
        set.put(session.create_set()?)
    }

    fn nvmlEventSetFree(session, set: sys::nvmlEventSet_t) { session.free_set(set) }

    fn nvmlDeviceRegisterEvents(
        session,
        device: sys::nvmlDevice_t,
        types: c_ulonglong,
        set: sys::nvmlEventSet_t,
    ) {
        let gpu = session.place("nvmlDeviceRegisterEvents", device)?;
        let set = session.set(set)?;
        if types & !supported_types(session.machine().model.ecc) != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        let state = session.state();
        let mode_changes = state.gpus.get(&gpu).map_or(0, |gpu| gpu.mig_mode_changes);
        set.register(gpu, types, state.events.len(), mode_changes);
        Ok(())
    }
}

gpu_calls! {
    fn nvmlDeviceGetSupportedEventTypes(gpu, types: Out<c_ulonglong>) {
        types.put(supported_types(gpu.model.ecc))
    }
}

/// The first version of an event, without instances.
#[repr(C)]
struct EventDataV1 {
    device: sys::nvmlDevice_t,
    eventType: c_ulonglong,
    eventData: c_ulonglong,
}

/// Instance ids of an event about the whole GPU.
const WHOLE_GPU: c_uint = c_uint::MAX;

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetWait(
    set: sys::nvmlEventSet_t,
    data: Out<EventDataV1>,
    timeout_ms: c_uint,
) -> sys::nvmlReturn_t {
    if let Err(code) = data.check() {
        return code.0;
    }
    library::wait("nvmlEventSetWait", set, timeout_ms, &mut |device, event| {
        data.put(EventDataV1 { device, eventType: event.kind.bit(), eventData: event.data })
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetWait_v2(
    set: sys::nvmlEventSet_t,
    data: Out<sys::nvmlEventData_t>,
    timeout_ms: c_uint,
) -> sys::nvmlReturn_t {
    if let Err(code) = data.check() {
        return code.0;
    }
    library::wait("nvmlEventSetWait_v2", set, timeout_ms, &mut |device, event| {
        data.put(sys::nvmlEventData_t {
            device,
            eventType: event.kind.bit(),
            eventData: event.data,
            gpuInstanceId: event.gpu_instance.unwrap_or(WHOLE_GPU),
            computeInstanceId: event.compute_instance.unwrap_or(WHOLE_GPU),
        })
    })
}
