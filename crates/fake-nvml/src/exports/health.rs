//! Temperature, power, clocks and utilisation.

use std::ffi::{c_int, c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings as sys;

use crate::code::Code;
use crate::pointers::{Out, Versioned, version_of};
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

    /// Degrees until the hardware lowers the clocks.
    fn nvmlDeviceGetMarginTemperature(gpu, margin: Versioned) {
        let version = version_of::<sys::nvmlMarginTemperature_v1_t>(1);
        let marginTemperature = margin_of(gpu);
        margin.put(1, sys::nvmlMarginTemperature_v1_t { version, marginTemperature })
    }

    fn nvmlDeviceGetCurrentClocksEventReasons(gpu, reasons: Out<c_ulonglong>) {
        reasons.put(clocks_event_reasons(gpu))
    }

    fn nvmlDeviceGetCurrentClocksThrottleReasons(gpu, reasons: Out<c_ulonglong>) {
        reasons.put(clocks_event_reasons(gpu))
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

/// Temperature at which the hardware lowers the clocks, in degrees Celsius; one for all models.
const SLOWDOWN_CELSIUS: u32 = 87;

fn margin_of(gpu: &Device<'_>) -> c_int {
    SLOWDOWN_CELSIUS.cast_signed().saturating_sub(gpu.temperature().cast_signed())
}

/// The state's reasons, and the GPU being idle.
fn clocks_event_reasons(gpu: &Device<'_>) -> c_ulonglong {
    const GPU_IDLE: c_ulonglong = 0x1;
    let reasons = &gpu.state.clocks_event_reasons;
    let is_idle = reasons.is_empty() && gpu.state.utilisation_percent == 0;
    let bits = reasons.iter().map(|reason| *reason as c_ulonglong);
    bits.fold(if is_idle { GPU_IDLE } else { 0 }, |all, bit| all | bit)
}

fn highest_clock(gpu: &Device<'_>, clock: sys::nvmlClockType_t) -> Result<c_uint, Code> {
    match clock {
        sys::nvmlClockType_enum_NVML_CLOCK_MEM => Ok(gpu.model.memory_clock_mhz),
        0..sys::nvmlClockType_enum_NVML_CLOCK_COUNT => Ok(gpu.model.sm_clock_mhz),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}
