//! Multi-instance GPUs. The mode is told; profiles and instances are not simulated, and say so.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as sys;

use crate::code::Code;
use crate::pointers::Out;

/// Instances that a GPU can be cut into, at most.
const MOST_INSTANCES: c_uint = 7;

gpu_calls! {
    fn nvmlDeviceGetMigMode(gpu, current: Out<c_uint>, pending: Out<c_uint>) {
        let mig = gpu.model.mig.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        pending.check()?;
        current.put(mig.enabled.into())?;
        pending.put(mig.enabled.into())
    }

    fn nvmlDeviceGetMaxMigDeviceCount(gpu, count: Out<c_uint>) {
        count.put(if gpu.model.mig.is_some() { MOST_INSTANCES } else { 0 })
    }

    fn nvmlDeviceIsMigDeviceHandle(gpu, is_mig: Out<c_uint>) {
        let _ = gpu;
        is_mig.put(0)
    }
}

/// Exports functions that answer "not supported" once the library is initialised and, for those
/// of a GPU, the GPU answers at all.
macro_rules! unsupported {
    ($of:ident: $(fn $name:ident($($argument:ident: $kind:ty),* $(,)?);)*) => {
        $of! {
            $(fn $name(place $(, $argument: $kind)*) {
                let _ = (&place, $($argument),*);
                Err(Code::NOT_SUPPORTED)
            })*
        }
    };
}

unsupported! { gpu_calls:
    fn nvmlDeviceSetMigMode(_mode: c_uint, _activation: Out<sys::nvmlReturn_t>);
    fn nvmlDeviceGetMigDeviceHandleByIndex(_index: c_uint, _device: Out<sys::nvmlDevice_t>);
    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(_device: Out<sys::nvmlDevice_t>);
    fn nvmlDeviceGetGpuInstanceId(_id: Out<c_uint>);
    fn nvmlDeviceGetComputeInstanceId(_id: Out<c_uint>);
    fn nvmlDeviceGetGpuInstanceProfileInfo(
        _profile: c_uint,
        _info: Out<sys::nvmlGpuInstanceProfileInfo_t>,
    );
    fn nvmlDeviceGetGpuInstanceProfileInfoV(
        _profile: c_uint,
        _info: Out<sys::nvmlGpuInstanceProfileInfo_v2_t>,
    );
    fn nvmlDeviceGetGpuInstanceRemainingCapacity(_profile: c_uint, _count: Out<c_uint>);
    fn nvmlDeviceGetGpuInstancePossiblePlacements(
        _profile: c_uint,
        _placements: Out<sys::nvmlGpuInstancePlacement_t>,
        _count: Out<c_uint>,
    );
    fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
        _profile: c_uint,
        _placements: Out<sys::nvmlGpuInstancePlacement_t>,
        _count: Out<c_uint>,
    );
    fn nvmlDeviceCreateGpuInstance(_profile: c_uint, _instance: Out<sys::nvmlGpuInstance_t>);
    fn nvmlDeviceCreateGpuInstanceWithPlacement(
        _profile: c_uint,
        _placement: Out<sys::nvmlGpuInstancePlacement_t>,
        _instance: Out<sys::nvmlGpuInstance_t>,
    );
    fn nvmlDeviceGetGpuInstances(
        _profile: c_uint,
        _instances: Out<sys::nvmlGpuInstance_t>,
        _count: Out<c_uint>,
    );
    fn nvmlDeviceGetGpuInstanceById(_id: c_uint, _instance: Out<sys::nvmlGpuInstance_t>);
}

unsupported! { machine_calls:
    fn nvmlGpuInstanceGetInfo(
        _instance: sys::nvmlGpuInstance_t,
        _info: Out<sys::nvmlGpuInstanceInfo_t>,
    );
    fn nvmlGpuInstanceDestroy(_instance: sys::nvmlGpuInstance_t);
    fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
        _instance: sys::nvmlGpuInstance_t,
        _profile: c_uint,
        _engines: c_uint,
        _info: Out<sys::nvmlComputeInstanceProfileInfo_t>,
    );
    fn nvmlGpuInstanceGetComputeInstanceProfileInfoV(
        _instance: sys::nvmlGpuInstance_t,
        _profile: c_uint,
        _engines: c_uint,
        _info: Out<sys::nvmlComputeInstanceProfileInfo_v2_t>,
    );
    fn nvmlGpuInstanceCreateComputeInstance(
        _instance: sys::nvmlGpuInstance_t,
        _profile: c_uint,
        _compute: Out<sys::nvmlComputeInstance_t>,
    );
    fn nvmlGpuInstanceGetComputeInstances(
        _instance: sys::nvmlGpuInstance_t,
        _profile: c_uint,
        _instances: Out<sys::nvmlComputeInstance_t>,
        _count: Out<c_uint>,
    );
    fn nvmlGpuInstanceGetComputeInstanceById(
        _instance: sys::nvmlGpuInstance_t,
        _id: c_uint,
        _compute: Out<sys::nvmlComputeInstance_t>,
    );
    fn nvmlComputeInstanceGetInfo(
        _compute: sys::nvmlComputeInstance_t,
        _info: Out<sys::nvmlComputeInstanceInfo_t>,
    );
    fn nvmlComputeInstanceGetInfo_v2(
        _compute: sys::nvmlComputeInstance_t,
        _info: Out<sys::nvmlComputeInstanceInfo_t>,
    );
    fn nvmlComputeInstanceDestroy(_compute: sys::nvmlComputeInstance_t);
}
