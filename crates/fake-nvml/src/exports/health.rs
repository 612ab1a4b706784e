//! Temperature, power, clocks and utilisation.

use std::ffi::{c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings as sys;

use crate::code::Code;
use crate::pointers::Out;
use crate::session::Device;

gpu_calls! {
    fn nvmlDeviceGetTemperature(
        gpu,
        sensor: sys::nvmlTemperatureSensors_t,
        celsius: Out<c_uint>,
    ) {
        if sensor != sys::nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU {
            return Err(Code::INVALID_ARGUMENT);
        }
        celsius.put(gpu.temperature())
    }

    fn nvmlDeviceGetPowerUsage(gpu, milliwatts: Out<c_uint>) { milliwatts.put(gpu.power()) }

    fn nvmlDeviceGetPowerManagementLimit(gpu, milliwatts: Out<c_uint>) {
        milliwatts.put(gpu.power_limit())
    }

    fn nvmlDeviceGetPowerManagementDefaultLimit(gpu, milliwatts: Out<c_uint>) {
        milliwatts.put(gpu.power_limit())
    }

    fn nvmlDeviceGetEnforcedPowerLimit(gpu, milliwatts: Out<c_uint>) {
        milliwatts.put(gpu.power_limit())
    }

    fn nvmlDeviceGetTotalEnergyConsumption(gpu, millijoules: Out<c_ulonglong>) {
        millijoules.put(gpu.energy())
    }

    /// The value of the state, or the activity of the GPU's processes if that is higher. Memory
    /// activity is not simulated: half of the multiprocessors' is reported.
    fn nvmlDeviceGetUtilizationRates(gpu, rates: Out<sys::nvmlUtilization_t>) {
        let busy = gpu.state.utilisation_percent.min(100).max(gpu.usage.percent());
        rates.put(sys::nvmlUtilization_t { gpu: busy, memory: busy / 2 })
    }

    fn nvmlDeviceGetClockInfo(gpu, clock: sys::nvmlClockType_t, mhz: Out<c_uint>) {
        let highest = highest_clock(gpu, clock)?;
        mhz.put(if gpu.state.utilisation_percent > 0 { highest } else { highest.min(IDLE_MHZ) })
    }

    fn nvmlDeviceGetMaxClockInfo(gpu, clock: sys::nvmlClockType_t, mhz: Out<c_uint>) {
        mhz.put(highest_clock(gpu, clock)?)
    }
}

const IDLE_MHZ: u32 = 345;

fn highest_clock(gpu: &Device<'_>, clock: sys::nvmlClockType_t) -> Result<c_uint, Code> {
    match clock {
        sys::nvmlClockType_enum_NVML_CLOCK_MEM => Ok(gpu.model.memory_clock_mhz),
        0..sys::nvmlClockType_enum_NVML_CLOCK_COUNT => Ok(gpu.model.sm_clock_mhz),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}
