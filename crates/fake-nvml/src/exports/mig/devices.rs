//! MIG devices: a compute instance as seen by CUDA and NVML.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as sys;

use crate::code::Code;
use crate::handle::Part;
use crate::pointers::Out;

machine_calls! {
    fn nvmlDeviceGetMigDeviceHandleByIndex(
        session,
        device: sys::nvmlDevice_t,
        index: c_uint,
        mig: Out<sys::nvmlDevice_t>,
    ) {
        let call = "nvmlDeviceGetMigDeviceHandleByIndex";
        let (gpu, table, state) = session.partitioned(call, device)?;
        if index >= table.compute_slices {
            return Err(Code::INVALID_ARGUMENT);
        }
        let host_pids = state.mig.devices().nth(index as usize).ok_or(Code::NOT_FOUND)?;
        let (gpu_instance, compute_instance) = host_pids;
        mig.put(session.slice_handle(Part { gpu, gpu_instance, compute_instance }))
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
        session,
        mig: sys::nvmlDevice_t,
        device: Out<sys::nvmlDevice_t>,
    ) {
        let call = "nvmlDeviceGetDeviceHandleFromMigDeviceHandle";
        let of_mig = session.any_device(call, mig)?;
        let gpu = of_mig.slice.map(|slice| slice.part.gpu).ok_or(Code::INVALID_ARGUMENT)?;
        device.put(session.handle(gpu))
    }
}

device_calls! {
    fn nvmlDeviceIsMigDeviceHandle(device, is_mig: Out<c_uint>) {
        is_mig.put(device.slice.is_some().into())
    }

    fn nvmlDeviceGetGpuInstanceId(device, id: Out<c_uint>) {
        let slice = device.slice.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        id.put(slice.part.gpu_instance)
    }

    fn nvmlDeviceGetComputeInstanceId(device, id: Out<c_uint>) {
        let slice = device.slice.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        id.put(slice.part.compute_instance)
    }
}
