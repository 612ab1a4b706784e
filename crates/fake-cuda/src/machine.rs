//! The machine as seen by a program: its driver and its visible GPUs.

use octavo_fake_gpu::Clock;
use octavo_fake_gpu::locate::{self, MachineLocation};
use octavo_machine::{KernelModule, Machine, SimulationClock};

use crate::code::Code;
use crate::device::Device;
use crate::state::StateWatcher;

const MIB: u64 = 1 << 20;

/// Result of `cuInit`.
pub(crate) struct Driver {
    pub(crate) location: MachineLocation,
    pub(crate) machine: Machine,
    pub(crate) devices: Vec<Device>,
    pub(crate) state: StateWatcher,
}

impl Driver {
    /// Reads the machine and finds its visible GPUs.
    pub(crate) fn open() -> Result<Self, Code> {
        let location = locate::machine().ok_or(Code::NO_DEVICE)?;
        let folder = &location.folder;
        let mut machine = read()?;
        machine.instantiate(&folder.to_string_lossy());
        if !location.may_open("nvidiactl") {
            return Err(Code::NO_DEVICE);
        }
        if !location.may_open("nvidia-uvm") {
            // What programs get while that module is not loaded.
            return Err(Code::UNKNOWN);
        }
        let present: Vec<u32> = (0..)
            .zip(&machine.gpus)
            .filter(|(_, gpu)| location.may_open(&format!("nvidia{}", gpu.minor)))
            .map(|(index, _)| index)
            .collect();
        let wanted = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let visible = match wanted {
            Some(wanted) => visible(&wanted, &present, &machine),
            None => present,
        };
        if visible.is_empty() {
            return Err(Code::NO_DEVICE);
        }
        let model = &machine.model;
        let capacity = (model.memory_mib - model.reserved_mib) * MIB;
        let clock = match machine.simulation.clock {
            SimulationClock::Virtual => Clock::Virtual,
            SimulationClock::WallClock => Clock::Host,
        };
        let device = |(ordinal, &index): (usize, &u32)| {
            let gpu = &machine.gpus[index as usize];
            Device::new(ordinal, index, gpu, capacity, folder.clone(), clock)
        };
        let devices = visible.iter().enumerate().map(device).collect();
        let state = StateWatcher::new(folder.join("state.json"));
        let is_loaded = |module| state.with(|state| state.is_loaded(module));
        if !is_loaded(KernelModule::Nvidia) {
            return Err(Code::NO_DEVICE);
        }
        if !is_loaded(KernelModule::NvidiaUvm) {
            return Err(Code::UNKNOWN);
        }
        Ok(Self { location, machine, devices, state })
    }

    /// Highest CUDA version in the format of `cuDriverGetVersion`: 13000.
    pub(crate) fn cuda_version(&self) -> i32 {
        cuda_version(&self.machine)
    }

    /// Memory of a context in bytes.
    pub(crate) fn context_bytes(&self) -> u64 {
        self.machine.simulation.context_mib * MIB
    }

    /// Time of a copy between host and device, in nanoseconds.
    pub(crate) fn copy_nanos(&self, bytes: u64) -> u64 {
        let a_second = u128::from(self.machine.simulation.copy_mib_per_second * MIB);
        u64::try_from(u128::from(bytes) * 1_000_000_000 / a_second).unwrap_or(u64::MAX)
    }
}

/// The machine's description.
pub(crate) fn read() -> Result<Machine, Code> {
    let MachineLocation { folder, .. } = locate::machine().ok_or(Code::NO_DEVICE)?;
    Machine::read(&folder.join("machine.yaml")).map_err(|_| Code::NO_DEVICE)
}

/// Highest CUDA version of a machine's driver: 13000.
pub(crate) fn cuda_version(machine: &Machine) -> i32 {
    let (major, minor) = parse_version(&machine.driver.cuda);
    major * 1000 + minor * 10
}

/// `major.minor` as numbers.
pub(crate) fn parse_version(text: &str) -> (i32, i32) {
    let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
    (major.parse().unwrap_or(0), minor.parse().unwrap_or(0))
}

/// The GPUs in `CUDA_VISIBLE_DEVICES`, in its order: by ordinal or by prefix of a UUID. Entries
/// after an invalid one are ignored, and a duplicate hides all GPUs.
fn visible(wanted: &str, present: &[u32], machine: &Machine) -> Vec<u32> {
    let mut visible = Vec::new();
    for name in wanted.split(',') {
        let name = name.trim();
        let found = if name.starts_with("GPU-") {
            let is_named = |index: &&u32| {
                let uuid = machine.gpus[**index as usize].uuid.as_deref();
                uuid.is_some_and(|uuid| uuid.starts_with(name))
            };
            let mut named = present.iter().filter(is_named);
            // A prefix of two GPUs matches neither.
            named.next().filter(|_| named.next().is_none())
        } else {
            name.parse::<usize>().ok().and_then(|ordinal| present.get(ordinal))
        };
        let Some(&index) = found else { break };
        if visible.contains(&index) {
            return Vec::new();
        }
        visible.push(index);
    }
    visible
}

#[cfg(test)]
mod tests;
