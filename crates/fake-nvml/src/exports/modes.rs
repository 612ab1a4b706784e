//! Modes that callers can set. Persistence applies to this copy of the library until it is shut down, the compute mode to the
//! GPU until it is reset.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as sys;

use crate::code::Code;
use crate::pointers::Out;

gpu_calls! {
    fn nvmlDeviceGetPersistenceMode(gpu, mode: Out<sys::nvmlEnableState_t>) {
        mode.put(gpu.settings.persistence)
    }

    fn nvmlDeviceSetPersistenceMode(gpu, mode: sys::nvmlEnableState_t) {
        gpu.settings.persistence = within(mode, 2)?;
        Ok(())
    }

    fn nvmlDeviceGetComputeMode(gpu, mode: Out<sys::nvmlComputeMode_t>) {
        mode.put(gpu.state.compute_mode)
    }

    fn nvmlDeviceGetVirtualizationMode(gpu, mode: Out<sys::nvmlGpuVirtualizationMode_t>) {
        let _ = gpu;
        mode.put(sys::nvmlGpuVirtualizationMode_NVML_GPU_VIRTUALIZATION_MODE_NONE)
    }
}

machine_calls! {
    fn nvmlDeviceSetComputeMode(
        session,
        device: sys::nvmlDevice_t,
        mode: sys::nvmlComputeMode_t,
    ) {
        let gpu = session.place("nvmlDeviceSetComputeMode", device)?;
        let mode = within(mode, sys::nvmlComputeMode_enum_NVML_COMPUTEMODE_COUNT)?;
        session.change_state(gpu, &mut |_, state| {
            state.compute_mode = mode;
            Ok(())
        })
    }
}

fn within(mode: c_uint, count: c_uint) -> Result<c_uint, Code> {
    if mode < count { Ok(mode) } else { Err(Code::INVALID_ARGUMENT) }
}
