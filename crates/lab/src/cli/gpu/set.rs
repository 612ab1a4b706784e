//! `octavo lab gpu NODE INDEX set`: values that a simulated GPU reports.

use std::collections::BTreeSet;
use std::str::FromStr;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use octavo_machine::{ClocksEventReason, Machine, State};

#[derive(Clone, Debug, Default, PartialEq, Args)]
#[group(id = "value", required = true, multiple = true)]
pub(crate) struct Set {
    /// Core temperature in degrees Celsius
    #[arg(long, value_name = "CELSIUS")]
    temperature: Option<u32>,
    /// Power draw in watts
    #[arg(long, value_name = "WATTS")]
    power: Option<u32>,
    /// SM utilisation in percent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(..=100))]
    utilisation: Option<u32>,
    /// Frame buffer in use, in MiB
    #[arg(long, value_name = "MIB")]
    memory_used: Option<u64>,
    /// Number of processes that use the whole GPU; while there are any, its MIG mode cannot change
    #[arg(long, value_name = "COUNT")]
    processes: Option<u32>,
    /// Time to change a MIG mode, on all GPUs of the node
    #[arg(long, value_name = "MILLISECONDS")]
    mig_mode: Option<u64>,
    /// Time to create a MIG instance, on all GPUs of the node
    #[arg(long, value_name = "MILLISECONDS")]
    mig_create: Option<u64>,
    /// Time to destroy a MIG instance, on all GPUs of the node
    #[arg(long, value_name = "MILLISECONDS")]
    mig_destroy: Option<u64>,
    /// Minor number that the next change of its MIG mode gives the GPU
    #[arg(long, value_name = "NUMBER")]
    next_minor: Option<u32>,
    /// Whether a row remap waits for a reset
    #[arg(long, value_name = "BOOL")]
    remap_pending: Option<bool>,
    /// Whether a row remap has failed
    #[arg(long, value_name = "BOOL")]
    remap_failed: Option<bool>,
    /// Links to other GPUs that are not active, by their numbers: 3,4; or none
    #[arg(long, value_name = "LINKS")]
    inactive_links: Option<Numbers<u32>>,
    /// Bytes of memory that do not keep what is written, by their distance from the beginning of a process's memory: 8388608; or none
    #[arg(long, value_name = "OFFSETS")]
    weak_memory: Option<Numbers<u64>>,
    /// Multiprocessors that compute wrong, by their numbers: 7,12; or none
    #[arg(long, value_name = "NUMBERS")]
    faulty_multiprocessors: Option<Numbers<u32>>,
    /// Recoveries of its links to other GPUs
    #[arg(long, value_name = "COUNT")]
    nvlink_recoveries: Option<u64>,
    /// Checksum errors of its links to other GPUs
    #[arg(long, value_name = "COUNT")]
    nvlink_errors: Option<u64>,
    /// Lanes of its PCIe link; a healthy one has 16
    #[arg(long, value_name = "LANES")]
    pcie_width: Option<u32>,
    /// Replays of its PCIe link
    #[arg(long, value_name = "COUNT")]
    pcie_replays: Option<u32>,
    /// Fatal errors of its PCIe link, as the kernel counts them
    #[arg(long, value_name = "COUNT")]
    pcie_fatal_errors: Option<u32>,
    /// Why its clocks are low; may be given more than once
    #[arg(long, value_enum, value_name = "REASON")]
    slowdown: Vec<SlowdownReason>,
    /// Time that its reset takes
    #[arg(long, value_name = "MILLISECONDS")]
    reset_time: Option<u64>,
    /// Whether its resets fail
    #[arg(long, value_name = "BOOL")]
    reset_fails: Option<bool>,
    /// Whether resets and reboots mend nothing
    #[arg(long, value_name = "BOOL")]
    reset_in_vain: Option<bool>,
    /// Fabric health mask, as NVML packs it
    #[arg(long, value_name = "MASK")]
    fabric_health: Option<u32>,
    /// Whether the ports of its network cards are down; that counts as a link that went down
    #[arg(long, value_name = "BOOL")]
    nic_down: Option<bool>,
    /// Symbol errors of its network cards
    #[arg(long, value_name = "COUNT")]
    nic_symbol_errors: Option<u64>,
    /// Recoveries of its network cards' links
    #[arg(long, value_name = "COUNT")]
    nic_recoveries: Option<u64>,
    /// How often its network cards' links went down
    #[arg(long, value_name = "COUNT")]
    nic_downs: Option<u64>,
    /// Make an NVML call return this code for the GPU; 0 makes it succeed again
    #[arg(long, value_name = "FUNCTION=CODE")]
    call: Vec<CallCode>,
}

/// A return code for an NVML call.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CallCode {
    function: String,
    code: u32,
}

/// A list of numbers, which may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Numbers<T: Ord>(BTreeSet<T>);

/// Why a GPU's clocks are low.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SlowdownReason {
    /// The clocks are as the work wants them.
    None,
    /// The hardware is too hot.
    Heat,
    /// The power supply demands it.
    PowerBrake,
    /// The power limit is reached.
    PowerCap,
}

impl Set {
    /// Sets the values of a GPU. Fails if it has no network card for which a value is given.
    pub(super) fn apply(
        &self,
        machine: &Machine,
        state: &mut State,
        index: u32,
    ) -> anyhow::Result<()> {
        self.apply_to_nics(machine, state, index)?;
        state.mig_mode_millis = self.mig_mode.unwrap_or(state.mig_mode_millis);
        state.mig_create_millis = self.mig_create.unwrap_or(state.mig_create_millis);
        state.mig_destroy_millis = self.mig_destroy.unwrap_or(state.mig_destroy_millis);
        let gpu = state.gpus.entry(index).or_default();
        gpu.processes = self.processes.unwrap_or(gpu.processes);
        gpu.temperature_celsius = self.temperature.or(gpu.temperature_celsius);
        gpu.power_milliwatts =
            self.power.map(|watts| watts.saturating_mul(1000)).or(gpu.power_milliwatts);
        gpu.utilisation_percent = self.utilisation.unwrap_or(gpu.utilisation_percent);
        gpu.memory_used_mib = self.memory_used.unwrap_or(gpu.memory_used_mib);
        gpu.remap_pending = self.remap_pending.unwrap_or(gpu.remap_pending);
        gpu.remap_failed = self.remap_failed.unwrap_or(gpu.remap_failed);
        gpu.next_minor = self.next_minor.or(gpu.next_minor);
        if let Some(Numbers(links)) = &self.inactive_links {
            gpu.nvlink.inactive.clone_from(links);
        }
        if let Some(Numbers(offsets)) = &self.weak_memory {
            gpu.weak_memory.clone_from(offsets);
        }
        if let Some(Numbers(multiprocessors)) = &self.faulty_multiprocessors {
            gpu.faulty_multiprocessors.clone_from(multiprocessors);
        }
        gpu.nvlink.recoveries = self.nvlink_recoveries.unwrap_or(gpu.nvlink.recoveries);
        gpu.nvlink.crc_errors = self.nvlink_errors.unwrap_or(gpu.nvlink.crc_errors);
        gpu.pcie.width = self.pcie_width.or(gpu.pcie.width);
        gpu.pcie.replays = self.pcie_replays.unwrap_or(gpu.pcie.replays);
        gpu.pcie.fatal_errors = self.pcie_fatal_errors.unwrap_or(gpu.pcie.fatal_errors);
        if !self.slowdown.is_empty() {
            gpu.clocks_event_reasons =
                self.slowdown.iter().filter_map(|reason| reason.bit()).collect();
        }
        gpu.reset.millis = self.reset_time.unwrap_or(gpu.reset.millis);
        gpu.reset.fails = self.reset_fails.unwrap_or(gpu.reset.fails);
        gpu.reset.is_in_vain = self.reset_in_vain.unwrap_or(gpu.reset.is_in_vain);
        gpu.fabric_health = self.fabric_health.or(gpu.fabric_health);
        for call in &self.call {
            if call.code == 0 {
                gpu.failing_calls.remove(&call.function);
            } else {
                gpu.failing_calls.insert(call.function.clone(), call.code);
            }
        }
        Ok(())
    }

    fn apply_to_nics(
        &self,
        machine: &Machine,
        state: &mut State,
        index: u32,
    ) -> anyhow::Result<()> {
        let counters = [self.nic_symbol_errors, self.nic_recoveries, self.nic_downs];
        if self.nic_down.is_none() && counters.iter().all(Option::is_none) {
            return Ok(());
        }
        ensure!(
            machine.nics_of(index).next().is_some(),
            "it has no network card: the description of the machine {} has none at its root complex",
            machine.name
        );
        for nic in machine.nics_of(index) {
            let nic = state.nics.entry(nic.name.clone()).or_default();
            let is_down = self.nic_down.unwrap_or(nic.is_down);
            nic.downs = self.nic_downs.unwrap_or(nic.downs + u64::from(is_down && !nic.is_down));
            nic.is_down = is_down;
            nic.symbol_errors = self.nic_symbol_errors.unwrap_or(nic.symbol_errors);
            nic.recoveries = self.nic_recoveries.unwrap_or(nic.recoveries);
        }
        Ok(())
    }
}

impl SlowdownReason {
    fn bit(self) -> Option<ClocksEventReason> {
        match self {
            Self::None => None,
            Self::Heat => Some(ClocksEventReason::HwThermalSlowdown),
            Self::PowerBrake => Some(ClocksEventReason::HwPowerBrakeSlowdown),
            Self::PowerCap => Some(ClocksEventReason::SwPowerCap),
        }
    }
}

impl<T: FromStr + Ord> FromStr for Numbers<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(BTreeSet::new()));
        }
        let number = |text: &str| {
            text.parse()
                .map_err(|_| format!("`{text}` is no number: write numbers, as 3,4, or none"))
        };
        text.split(',').map(number).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for CallCode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').filter(|(function, _)| function.starts_with("nvml"));
        let (function, code) = parts.ok_or("write FUNCTION=CODE, as nvmlDeviceGetUUID=15")?;
        let code = code.parse().map_err(|_| format!("`{code}` is not a number"))?;
        Ok(Self { function: function.to_owned(), code })
    }
}
