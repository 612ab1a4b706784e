//! Faults of simulated GPUs and of programs, and their ends.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use octavo_machine::{ClocksEventReason, Machine, RecoveryAction, State};
use tokio::time::Instant;

use super::judge::DeviceName;
use super::plan::GpuFault;
use crate::cli::gpu::{self, GpuAction};
use crate::cluster::Lab;
use crate::cluster::component::Component;
use crate::cluster::layout::Layout;
use crate::nodes::kernel_log::{self, LinkSeverity};
use crate::nodes::provision;

/// How long faults last that end by themselves.
const PASSING: Duration = Duration::from_secs(12);
/// How long a port of a network card is down: agents look every 10 seconds, and report what lasts for two looks.
const NIC_DOWN: Duration = Duration::from_secs(30);

/// A simulated node.
struct Node {
    folder: PathBuf,
    machine: Machine,
}

/// Makes parts of a lab fail, and mends them.
pub(super) struct Injector {
    layout: Layout,
    nodes: BTreeMap<String, Node>,
    /// Passing faults of GPUs, and when they end.
    passing: Vec<(Instant, String, u32, GpuFault)>,
    /// Killed programs, and when they start again.
    killed: BTreeMap<Component, Instant>,
}

impl Injector {
    /// The simulated nodes of a lab.
    pub(super) fn open(lab: &Lab) -> anyhow::Result<Self> {
        let layout = lab.layout().clone();
        let node = |name: &String| {
            let folder = layout.node(name);
            let machine = Machine::read(&gpu::machine_file(&folder))
                .with_context(|| format!("read the machine of {name}"))?;
            anyhow::Ok((name.clone(), Node { folder, machine }))
        };
        let nodes = lab.settings().nodes.iter().map(|known| node(&known.name));
        let nodes = nodes.collect::<Result<_, _>>()?;
        Ok(Self { layout, nodes, passing: Vec::new(), killed: BTreeMap::new() })
    }

    /// Names of the nodes, and their numbers of GPUs.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&str, usize)> {
        self.nodes.iter().map(|(name, node)| (name.as_str(), node.machine.gpus.len()))
    }

    /// A GPU's name in the slices of its node.
    pub(super) fn device(&self, node: &str, index: u32) -> anyhow::Result<DeviceName> {
        let gpus = &self.node(node)?.machine.gpus;
        let gpu = usize::try_from(index).ok().and_then(|index| gpus.get(index));
        let minor = gpu.with_context(|| format!("{node} has no GPU {index}"))?.minor;
        Ok(DeviceName { node: node.to_owned(), device: format!("gpu-{minor}") })
    }

    /// Makes a GPU fail.
    pub(super) fn fail_gpu(
        &mut self,
        node: &str,
        index: u32,
        fault: GpuFault,
    ) -> anyhow::Result<()> {
        self.edit(node, |machine, state| set(machine, state, index, fault, true))?;
        let Node { folder, machine } = self.node(node)?;
        let gpu = usize::try_from(index).ok().and_then(|index| machine.gpus.get(index));
        let line = gpu.and_then(|gpu| log_line(&gpu.pci, fault));
        kernel_log::append(folder, line.into_iter())?;
        if let Some(time) = passes_after(fault) {
            self.passing.push((Instant::now() + time, node.to_owned(), index, fault));
        }
        Ok(())
    }

    /// How often `nvidia-smi` has begun a reset of each GPU, and whether the driver calls the GPU well.
    pub(super) fn look(&self) -> anyhow::Result<Vec<(DeviceName, u64, bool)>> {
        let mut seen = Vec::new();
        for (name, Node { folder, machine }) in &self.nodes {
            let state = gpu::state(folder).with_context(|| format!("read the GPUs of {name}"))?;
            for (index, gpu) in (0..).zip(&machine.gpus) {
                let state = state.gpus.get(&index);
                let is_well = state
                    .is_none_or(|gpu| !gpu.lost && gpu.recovery_action == RecoveryAction::None);
                let device = format!("gpu-{}", gpu.minor);
                let begun = state.map_or(0, |gpu| gpu.reset.begun);
                seen.push((DeviceName { node: name.clone(), device }, begun, is_well));
            }
        }
        Ok(seen)
    }

    /// Replaces the board of a GPU: all its faults are over.
    pub(super) fn replace_gpu(&self, lab: &Lab, device: &DeviceName) -> anyhow::Result<()> {
        let gpus = &self.node(&device.node)?.machine.gpus;
        let is_it = |minor: u32| device.device == format!("gpu-{minor}");
        let index = gpus.iter().position(|gpu| is_it(gpu.minor));
        let index = index.with_context(|| format!("{device} is no GPU of the node"))?;
        let index = u32::try_from(index).context("count GPUs")?;
        gpu::act(&self.layout, lab, &device.node, index, &GpuAction::Heal).map(drop)
    }

    /// Starts a node again.
    pub(super) fn reboot(&self, node: &str) -> anyhow::Result<()> {
        provision::reboot(&self.node(node)?.folder).map(drop)
    }

    /// Kills a program. It starts again after a pause.
    pub(super) async fn kill(
        &mut self,
        lab: &Lab,
        program: Component,
        pause: Duration,
    ) -> anyhow::Result<()> {
        if let Entry::Vacant(vacant) = self.killed.entry(program) {
            lab.check_alive(program).context("a program of the lab ended by itself")?;
            lab.kill(program).await;
            vacant.insert(Instant::now() + pause);
        }
        Ok(())
    }

    /// Ends what is over: passing faults, pauses of programs.
    pub(super) async fn end_due(&mut self, lab: &Lab) -> anyhow::Result<()> {
        let now = Instant::now();
        let due: Vec<Component> =
            self.killed.iter().filter(|(_, at)| **at <= now).map(|(program, _)| *program).collect();
        for program in due {
            lab.start(program).await?;
            self.killed.remove(&program);
        }
        self.end_passing(|at| at <= now)
    }

    /// Ends all passing faults.
    pub(super) fn end_all(&mut self) -> anyhow::Result<()> {
        self.end_passing(|_| true)
    }

    /// Whether all programs run and no fault is to end.
    pub(super) fn is_quiet(&self) -> bool {
        self.killed.is_empty() && self.passing.is_empty()
    }

    fn end_passing(&mut self, is_over: impl Fn(Instant) -> bool) -> anyhow::Result<()> {
        let (over, passing) =
            std::mem::take(&mut self.passing).into_iter().partition(|(at, ..)| is_over(*at));
        self.passing = passing;
        let over: Vec<(Instant, String, u32, GpuFault)> = over;
        for (_, node, index, fault) in over {
            // Another fault of the kind may go on.
            let goes_on = self
                .passing
                .iter()
                .any(|(_, other, gpu, kind)| (other, *gpu, *kind) == (&node, index, fault));
            if !goes_on {
                self.edit(&node, |machine, state| set(machine, state, index, fault, false))?;
            }
        }
        Ok(())
    }

    fn edit(&self, node: &str, change: impl FnOnce(&Machine, &mut State)) -> anyhow::Result<()> {
        let Node { folder, machine } = self.node(node)?;
        gpu::edit(folder, machine, |state| {
            change(machine, state);
            Ok(())
        })
        .with_context(|| format!("change the GPUs of {node}"))
    }

    fn node(&self, name: &str) -> anyhow::Result<&Node> {
        self.nodes.get(name).with_context(|| format!("the lab has no simulated node {name}"))
    }
}

/// After what time a fault ends; `None` if it does not end by itself.
fn passes_after(fault: GpuFault) -> Option<Duration> {
    use GpuFault::{Hot, LinkDown, NicDown, ResetFails, ResetInVain};
    match fault {
        Hot | LinkDown | ResetFails | ResetInVain => Some(PASSING),
        NicDown => Some(NIC_DOWN),
        _ => None,
    }
}

/// What the kernel's log says of a fault of the GPU at an address.
fn log_line(pci: &str, fault: GpuFault) -> Option<String> {
    let link = if matches!(fault, GpuFault::LinkGoesOn(_)) {
        LinkSeverity::Nonfatal
    } else {
        LinkSeverity::Fatal
    };
    let number = match fault {
        GpuFault::Xid(number)
        | GpuFault::HarmlessXid(number)
        | GpuFault::LinkLost(number)
        | GpuFault::LinkGoesOn(number) => number,
        GpuFault::Lost => 79,
        GpuFault::RemapFailed => 64,
        GpuFault::ResetFails | GpuFault::ResetInVain => 48,
        GpuFault::SwitchFails(number) => return Some(kernel_log::switch_xid(number)),
        GpuFault::UncorrectedError
        | GpuFault::RemapPending
        | GpuFault::Hot
        | GpuFault::LinkDown
        | GpuFault::NicDown => return None,
    };
    Some(kernel_log::xid(pci, number, link))
}

/// Sets a fault of a GPU, or ends one that passes.
fn set(machine: &Machine, state: &mut State, index: u32, fault: GpuFault, begins: bool) {
    match fault {
        GpuFault::Xid(number) | GpuFault::HarmlessXid(number) | GpuFault::LinkLost(number) => {
            gpu::report_xid(state, index, number);
        }
        // The kernel's log alone has them.
        GpuFault::LinkGoesOn(_) | GpuFault::SwitchFails(_) => {}
        GpuFault::Lost => {
            gpu::report_xid(state, index, 79);
            state.gpus.entry(index).or_default().lost = true;
        }
        GpuFault::RemapFailed => gpu::report_xid(state, index, 64),
        GpuFault::UncorrectedError => {
            let ecc = &mut state.gpus.entry(index).or_default().ecc;
            ecc.volatile_uncorrected += 1;
            ecc.aggregate_uncorrected += 1;
        }
        GpuFault::RemapPending => state.gpus.entry(index).or_default().remap_pending = true,
        GpuFault::Hot => {
            let reasons = &mut state.gpus.entry(index).or_default().clocks_event_reasons;
            reasons.clear();
            reasons.extend(begins.then_some(ClocksEventReason::HwThermalSlowdown));
        }
        GpuFault::LinkDown => {
            let inactive = &mut state.gpus.entry(index).or_default().nvlink.inactive;
            inactive.clear();
            inactive.extend(begins.then_some(0));
        }
        GpuFault::NicDown => {
            // One that serves other GPUs, too, would take these out of service. Links that often go down would count for 12 hours.
            let serves =
                |root: &str| machine.gpus.iter().filter(|gpu| gpu.pcie_root == root).count();
            for nic in machine.nics_of(index).filter(|nic| serves(&nic.pcie_root) == 1) {
                state.nics.entry(nic.name.clone()).or_default().is_down = begins;
            }
        }
        GpuFault::ResetFails => {
            state.gpus.entry(index).or_default().reset.fails = begins;
            if begins {
                gpu::report_xid(state, index, 48);
            }
        }
        GpuFault::ResetInVain => {
            state.gpus.entry(index).or_default().reset.is_in_vain = begins;
            if begins {
                gpu::report_xid(state, index, 48);
            }
        }
    }
}
