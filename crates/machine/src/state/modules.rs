//! The driver's kernel modules: which are loaded, and the files of the kernel that say so.

use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::State;
use crate::{Machine, MachineError};

/// A kernel module of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelModule {
    /// The driver itself.
    Nvidia,
    /// Memory of CUDA programs.
    NvidiaUvm,
    /// Display modes.
    NvidiaModeset,
    /// Displays and buffers for the kernel's graphics.
    NvidiaDrm,
}

/// Character devices with their major numbers, by the module that registers them. Only the first number is fixed.
const DEVICES: [(u32, &str, KernelModule); 7] = [
    (195, "nvidia", KernelModule::Nvidia),
    (195, "nvidia-modeset", KernelModule::NvidiaModeset),
    (195, "nvidiactl", KernelModule::Nvidia),
    (234, "nvidia-nvswitch", KernelModule::Nvidia),
    (235, "nvidia-nvlink", KernelModule::Nvidia),
    (236, "nvidia-caps", KernelModule::Nvidia),
    (237, "nvidia-caps-imex-channels", KernelModule::Nvidia),
];

/// Major number of the device of `nvidia_uvm`, unless the state has another.
const UVM_MAJOR: u32 = 508;

/// Size of a module in bytes: the real ones have from 0.1 to 60 MB.
const MODULE_BYTES: u32 = 1 << 20;

impl KernelModule {
    /// All of them, each after those that it needs.
    pub const ALL: [Self; 4] =
        [Self::Nvidia, Self::NvidiaUvm, Self::NvidiaModeset, Self::NvidiaDrm];

    /// Its name in the kernel.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::NvidiaUvm => "nvidia_uvm",
            Self::NvidiaModeset => "nvidia_modeset",
            Self::NvidiaDrm => "nvidia_drm",
        }
    }

    /// The module with a name. Programs take dashes for underscores.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.replace('-', "_");
        Self::ALL.into_iter().find(|module| module.name() == name)
    }

    /// The module that it needs, and so holds.
    pub fn needs(self) -> Option<Self> {
        match self {
            Self::Nvidia => None,
            Self::NvidiaUvm | Self::NvidiaModeset => Some(Self::Nvidia),
            Self::NvidiaDrm => Some(Self::NvidiaModeset),
        }
    }
}

impl State {
    /// Whether a module is loaded.
    pub fn is_loaded(&self, module: KernelModule) -> bool {
        !self.unloaded_modules.contains(&module)
    }

    /// The loaded modules that need a module.
    pub fn holders(&self, module: KernelModule) -> Vec<KernelModule> {
        let holds = |other: &KernelModule| other.needs() == Some(module) && self.is_loaded(*other);
        KernelModule::ALL.into_iter().filter(holds).collect()
    }

    /// Unloads a module, which nothing may hold.
    pub fn unload(&mut self, module: KernelModule) {
        self.unloaded_modules.insert(module);
    }

    /// Loads a module after those that it needs. The driver itself then initialises all GPUs: as after a reset what it advised a reset
    /// for is over, unless that is in vain, and volatile counters are 0. MIG modes are as after a boot. A lost GPU stays lost.
    pub fn load(&mut self, machine: &Machine, module: KernelModule) {
        if let Some(needed) = module.needs() {
            self.load(machine, needed);
        }
        if !self.unloaded_modules.remove(&module) || module != KernelModule::Nvidia {
            return;
        }
        for gpu in self.gpus.values_mut() {
            gpu.initialise();
            gpu.minor = None;
            if let Some(mig) = &machine.model.mig {
                gpu.mig.reboot(mig);
            }
        }
    }

    /// The kernel's list of devices, `/proc/devices`.
    pub fn proc_devices(&self) -> String {
        let mut text = "Character devices:\n  1 mem\n  5 /dev/tty\n 10 misc\n".to_owned();
        let uvm = (self.uvm_major.unwrap_or(UVM_MAJOR), "nvidia-uvm", KernelModule::NvidiaUvm);
        let loaded = DEVICES.iter().chain([&uvm]).filter(|(.., module)| self.is_loaded(*module));
        for (major, name, _) in loaded {
            let _ = writeln!(text, "{major:3} {name}");
        }
        text.push_str("226 drm\n\nBlock devices:\n259 blkext\n");
        text
    }

    /// The kernel's list of modules, `/proc/modules`, the latest first.
    pub fn proc_modules(&self) -> String {
        let mut text = String::new();
        for module in KernelModule::ALL.into_iter().rev().filter(|it| self.is_loaded(*it)) {
            let holders: Vec<_> =
                self.holders(module).into_iter().map(KernelModule::name).collect();
            // Each holder has a comma after it.
            let names = if holders.is_empty() { "-".to_owned() } else { holders.join(",") + "," };
            let (name, count) = (module.name(), holders.len());
            let _ = writeln!(
                text,
                "{name} {MODULE_BYTES} {count} {names} Live 0x0000000000000000 (OE)"
            );
        }
        text
    }

    /// Writes the kernel's lists of the simulated node in `node`, if it has a proc file system.
    pub(crate) fn write_lists(&self, node: &Path) -> Result<(), MachineError> {
        let proc = node.join("proc");
        if !proc.is_dir() {
            return Ok(());
        }
        for (name, text) in [("devices", self.proc_devices()), ("modules", self.proc_modules())] {
            let (path, next) = (proc.join(name), proc.join(format!("{name}.next")));
            std::fs::write(&next, text)
                .and_then(|()| std::fs::rename(&next, &path))
                .map_err(|source| MachineError::Io { action: "write", path, source })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GpuState, RecoveryAction, ResetState};

    fn machine() -> Machine {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
        Machine::read(&folder.join("dgx-h100.yaml")).unwrap()
    }

    fn unloaded(state: State) -> State {
        State { unloaded_modules: KernelModule::ALL.into(), ..state }
    }

    #[test]
    fn lists_have_what_is_loaded_and_what_holds_it() {
        let mut state = State::default();
        let lines = [
            "nvidia_drm 1048576 0 -",
            "nvidia_modeset 1048576 1 nvidia_drm,",
            "nvidia_uvm 1048576 0 -",
            "nvidia 1048576 2 nvidia_uvm,nvidia_modeset,",
        ];
        let lines = lines.map(|line| format!("{line} Live 0x0000000000000000 (OE)\n"));
        assert_eq!(state.proc_modules(), lines.concat());
        assert!(state.proc_devices().contains("\n195 nvidiactl\n"));
        assert!(state.proc_devices().contains("\n508 nvidia-uvm\n226 drm\n"));
        state.unload(KernelModule::NvidiaUvm);
        state.unload(KernelModule::NvidiaDrm);
        assert!(!state.proc_devices().contains("nvidia-uvm"));
        assert!(state.proc_modules().starts_with("nvidia_modeset 1048576 0 -"));
        state.uvm_major = Some(501);
        state.load(&machine(), KernelModule::NvidiaUvm);
        assert!(state.proc_devices().contains("\n501 nvidia-uvm\n"));
        assert!(unloaded(state).proc_modules().is_empty());
    }

    #[test]
    fn a_module_is_loaded_after_what_it_needs() {
        let mut state = unloaded(State::default());
        state.load(&machine(), KernelModule::NvidiaDrm);
        let loaded = KernelModule::ALL.into_iter().filter(|module| state.is_loaded(*module));
        let names: Vec<_> = loaded.map(KernelModule::name).collect();
        assert_eq!(names, ["nvidia", "nvidia_modeset", "nvidia_drm"]);
        assert_eq!(KernelModule::named("nvidia-uvm"), Some(KernelModule::NvidiaUvm));
        assert_eq!(KernelModule::named("nouveau"), None);
    }

    #[test]
    fn the_driver_initialises_all_gpus_when_it_is_loaded_and_at_no_other_time() {
        let sick = |is_in_vain, recovery_action| GpuState {
            recovery_action,
            reset: ResetState { is_in_vain, ..ResetState::default() },
            remap_pending: true,
            ..GpuState::default()
        };
        let lost = GpuState { lost: true, ..sick(false, RecoveryAction::NodeReboot) };
        let gpus = [
            sick(false, RecoveryAction::GpuReset),
            sick(true, RecoveryAction::DrainAndReset),
            lost,
        ];
        let mut state = State { gpus: (0..).zip(gpus).collect(), ..State::default() };
        state.gpus.get_mut(&0).unwrap().ecc.volatile_corrected = 3;
        let advice = |state: &State| -> Vec<_> {
            state.gpus.values().map(|gpu| gpu.recovery_action).collect()
        };
        let before = advice(&state);
        state.unload(KernelModule::NvidiaUvm);
        state.load(&machine(), KernelModule::NvidiaUvm);
        assert_eq!(advice(&state), before);

        let mut state = unloaded(state);
        state.load(&machine(), KernelModule::NvidiaUvm);
        let [kept, lost] = [RecoveryAction::DrainAndReset, RecoveryAction::NodeReboot];
        assert_eq!(advice(&state), [RecoveryAction::None, kept, lost]);
        assert_eq!(state.gpus[&0].ecc.volatile_corrected, 0);
        assert!(state.gpus[&2].lost && !state.gpus[&0].remap_pending);
    }
}
