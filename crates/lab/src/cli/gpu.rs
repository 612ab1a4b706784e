//! `octavo lab gpu`: changes the state of simulated GPUs.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use octavo_machine::{Event, EventKind, GpuState, Machine, RecoveryAction, State};

use crate::cluster::Lab;
use crate::cluster::layout::Layout;
use crate::nodes::hardware;
use crate::nodes::kernel_log::{self, LINK_XIDS, LinkSeverity};

mod mig;
mod set;

/// Folder of the driver library within a node's folder. The machine description and its state are
/// there, too.
const DRIVER_DIR: &str = "driver/usr/lib64";

#[derive(Clone, Debug, PartialEq, Subcommand)]
pub(crate) enum GpuAction {
    /// Make it fail: with an XID, memory errors, or both.
    Fail(Fail),
    /// Make it fall off the bus: every call answers "GPU is lost".
    Lost,
    /// Clear all faults and values that were set, also of its network cards; MIG mode and instances stay.
    Heal,
    /// Reset it: this removes processes and MIG instances, applies a pending MIG mode, and ends what the driver advised a reset for.
    Reset,
    /// Set values that it reports.
    Set(Box<set::Set>),
    /// Change its MIG mode and instances without the agent.
    Mig(mig::MigArgs),
}

#[derive(Clone, Debug, Default, PartialEq, Args)]
#[group(id = "fault", required = true, multiple = true, args = ["xid", "sxid", "ecc", "lost", "recovery_action"])]
pub(crate) struct Fail {
    /// Report this XID; may be given more than once
    #[arg(long, value_name = "N")]
    xid: Vec<u64>,
    /// What the kernel's log says of the link, for the XIDs 144 to 150
    #[arg(long, value_enum, value_name = "SEVERITY", default_value_t)]
    link: LinkSeverity,
    /// Report this fatal error of an NVSwitch of the node in the kernel's log; may be given more than once
    #[arg(long, value_name = "N")]
    sxid: Vec<u64>,
    /// Add memory errors to the counters: corrected or uncorrected, and the number
    #[arg(long, value_name = "KIND[=COUNT]")]
    ecc: Vec<EccErrors>,
    /// Also lose the GPU
    #[arg(long)]
    lost: bool,
    /// Action that the driver recommends [default: the usual one for the XID]
    #[arg(long, value_enum, value_name = "ACTION")]
    recovery_action: Option<Advice>,
}

/// Memory errors to add to the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EccErrors {
    corrected: bool,
    count: u64,
}

/// The driver's recovery advice, in short words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Advice {
    None,
    Reset,
    Reboot,
    DrainP2p,
    DrainAndReset,
}

/// Applies an action to a GPU and returns a message for the user.
pub(crate) fn act(
    layout: &Layout,
    lab: &Lab,
    node: &str,
    index: u32,
    action: &GpuAction,
) -> anyhow::Result<String> {
    let folder = node_folder(layout, lab, node)?;
    let machine = Machine::read(&machine_file(&folder))
        .with_context(|| format!("read the machine of {node}"))?;
    let count = machine.gpus.len();
    if usize::try_from(index).is_ok_and(|index| index >= count) {
        bail!("{node} has {count} GPUs, 0 to {}: there is no GPU {index}", count - 1);
    }
    let done = edit(&folder, &machine, |state| apply(&machine, state, index, action))
        .with_context(|| format!("change GPU {index} of {node}"))?;
    let gpu = usize::try_from(index).ok().and_then(|index| machine.gpus.get(index));
    if let (GpuAction::Fail(fault), Some(gpu)) = (action, gpu) {
        let xids = fault.xid.iter().map(|xid| kernel_log::xid(&gpu.pci, *xid, fault.link));
        let switch_xids = fault.sxid.iter().map(|number| kernel_log::switch_xid(*number));
        kernel_log::append(&folder, xids.chain(switch_xids))?;
    }
    Ok(match done {
        ActionResult::Report(text) => text,
        ActionResult::Changed(what) => format!("GPU {index} of {node} {what}\n"),
    })
}

/// Result of an action.
#[derive(Debug, PartialEq, Eq)]
enum ActionResult {
    /// The GPU changed; the text is a predicate.
    Changed(String),
    /// Nothing changed; the text is the requested report.
    Report(String),
}

/// The folder of a node of the lab.
pub(crate) fn node_folder(layout: &Layout, lab: &Lab, node: &str) -> anyhow::Result<PathBuf> {
    if lab.settings().all_nodes().any(|known| known.name == node) {
        return Ok(layout.node(node));
    }
    bail!("the lab has no node {node}: `octavo lab status` lists its nodes")
}

/// The machine description of the node in `folder`.
pub(crate) fn machine_file(folder: &Path) -> PathBuf {
    folder.join(DRIVER_DIR).join("machine.yaml")
}

/// The state of the GPUs of the node in `folder`.
pub(crate) fn state(folder: &Path) -> anyhow::Result<State> {
    Ok(State::read(&folder.join(DRIVER_DIR).join("state.json"))?)
}

/// Changes the state of the node in `folder`, one writer at a time.
pub(crate) fn edit<T>(
    folder: &Path,
    machine: &Machine,
    change: impl FnOnce(&mut State) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    octavo_machine::change(&folder.join(DRIVER_DIR), machine, |state| {
        let shown = |state: &State| {
            let errors = state.gpus.iter().map(|(index, gpu)| (*index, gpu.pcie.fatal_errors));
            let errors = errors.filter(|(_, errors)| *errors > 0);
            (state.nics.clone(), errors.collect::<Vec<_>>())
        };
        let before = shown(state);
        let done = change(state)?;
        if shown(state) != before {
            hardware::show_faults(folder, machine, state)?;
        }
        Ok(done)
    })
}

/// Applies a reboot to the GPUs of the node in `folder`.
pub(crate) fn reboot(folder: &Path) -> anyhow::Result<()> {
    let machine = Machine::read(&machine_file(folder)).context("read the node's machine")?;
    edit(folder, &machine, |state| {
        state.reboot(&machine);
        Ok(())
    })
}

fn apply(
    machine: &Machine,
    state: &mut State,
    index: u32,
    action: &GpuAction,
) -> anyhow::Result<ActionResult> {
    let done = match action {
        GpuAction::Fail(fault) => {
            fail(state, index, fault);
            "has failed"
        }
        GpuAction::Lost => {
            state.gpus.entry(index).or_default().lost = true;
            "is lost"
        }
        GpuAction::Heal => {
            heal(machine, state, index);
            "is well"
        }
        GpuAction::Reset => {
            state.gpus.entry(index).or_default().reset(machine.model.mig.as_ref());
            "is reset"
        }
        GpuAction::Set(values) => {
            values.apply(machine, state, index)?;
            "is set"
        }
        GpuAction::Mig(args) => return mig::apply(machine, state, index, args),
    };
    Ok(ActionResult::Changed(done.to_owned()))
}

/// Resets all state of a GPU and its network cards, except modes and instances, which are not faults.
fn heal(machine: &Machine, state: &mut State, index: u32) {
    for nic in machine.nics_of(index) {
        state.nics.remove(&nic.name);
    }
    let Some(gpu) = state.gpus.remove(&index) else { return };
    let mut mig = gpu.mig;
    for instance in mig.instances.values_mut() {
        for inner in instance.compute_instances.values_mut() {
            inner.processes = 0;
        }
    }
    let (compute_mode, time_slice) = (gpu.compute_mode, gpu.time_slice);
    let well = GpuState { mig, compute_mode, time_slice, ..GpuState::default() };
    if well != GpuState::default() {
        state.gpus.insert(index, well);
    }
}

/// Reports an XID, and advises what is usual for it.
pub(crate) fn report_xid(state: &mut State, index: u32, xid: u64) {
    fail(state, index, &Fail { xid: vec![xid], ..Fail::default() });
}

fn fail(state: &mut State, index: u32, fault: &Fail) {
    let event =
        |kind, data| Event { gpu: index, kind, data, gpu_instance: None, compute_instance: None };
    let gpu = state.gpus.entry(index).or_default();
    for errors in &fault.ecc {
        let ecc = &mut gpu.ecc;
        if errors.corrected {
            ecc.volatile_corrected += errors.count;
            ecc.aggregate_corrected += errors.count;
            state.events.push(event(EventKind::SingleBitEcc, 0));
        } else {
            ecc.volatile_uncorrected += errors.count;
            ecc.aggregate_uncorrected += errors.count;
            state.events.push(event(EventKind::DoubleBitEcc, 0));
        }
    }
    gpu.lost |= fault.lost;
    let goes_on = |xid: &&u64| fault.link == LinkSeverity::Nonfatal && LINK_XIDS.contains(*xid);
    let advices = fault.xid.iter().filter(|xid| !goes_on(xid)).copied().map(usual_advice);
    gpu.recovery_action = match fault.recovery_action {
        Some(advice) => advice.into(),
        None => advices.fold(gpu.recovery_action, more_severe),
    };
    state.events.extend(fault.xid.iter().map(|&xid| event(EventKind::Xid, xid)));
}

/// The driver's usual advice after an XID, according to NVIDIA's XID catalogue. None after an
/// application fault, a reboot after the GPU has left the bus, otherwise a reset.
fn usual_advice(xid: u64) -> RecoveryAction {
    match xid {
        8 | 11 | 13 | 14 | 25 | 31 | 32 | 37..=45 | 60 | 63 | 66..=72 | 92..=94 | 106..=108 => {
            RecoveryAction::None
        }
        79 => RecoveryAction::NodeReboot,
        _ => RecoveryAction::GpuReset,
    }
}

/// Of two actions the one that demands more.
fn more_severe(left: RecoveryAction, right: RecoveryAction) -> RecoveryAction {
    let severity = |action| match action {
        RecoveryAction::None => 0,
        RecoveryAction::DrainP2p => 1,
        RecoveryAction::GpuReset => 2,
        RecoveryAction::DrainAndReset => 3,
        RecoveryAction::NodeReboot => 4,
    };
    if severity(right) > severity(left) { right } else { left }
}

impl From<Advice> for RecoveryAction {
    fn from(advice: Advice) -> Self {
        match advice {
            Advice::None => Self::None,
            Advice::Reset => Self::GpuReset,
            Advice::Reboot => Self::NodeReboot,
            Advice::DrainP2p => Self::DrainP2p,
            Advice::DrainAndReset => Self::DrainAndReset,
        }
    }
}

impl FromStr for EccErrors {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, count) = text.split_once('=').unwrap_or((text, "1"));
        let corrected = match kind {
            "corrected" => true,
            "uncorrected" => false,
            _ => return Err("write corrected or uncorrected, with =COUNT if not 1".to_owned()),
        };
        let count = count.parse().map_err(|_| format!("`{count}` is not a number"))?;
        Ok(Self { corrected, count })
    }
}

#[cfg(test)]
mod tests;
