//! The faults of a run, by its seed.

use std::time::Duration;

use crate::cluster::component::Component;

/// XIDs of `NVLink`s from the fifth generation on.
const LINK_XIDS: [u64; 7] = [144, 145, 146, 147, 148, 149, 150];

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A GPU fails, or reports something.
    Gpu { node: String, gpu: u32, kind: GpuFault },
    /// A program is killed, and starts again after a pause.
    Program { program: Component, pause: Duration },
    /// A pod ends: its number modulo the number of pods that run.
    Pod { number: usize },
}

/// What becomes of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum GpuFault {
    /// An XID upon which the driver advises a reset.
    Xid(u64),
    /// An XID of an application, or one that the hardware contained. No harm of the device follows.
    HarmlessXid(u64),
    /// It falls off the bus.
    Lost,
    /// A row remap fails: the board is to be replaced.
    RemapFailed,
    /// A memory error that was not corrected.
    UncorrectedError,
    /// A row remap waits for a reset.
    RemapPending,
    /// It is too hot for a while. No harm of the device follows.
    Hot,
    /// A link is not active for a while.
    LinkDown,
    /// The port of its network card is down for a while.
    NicDown,
    /// It fails, and its resets fail for a while.
    ResetFails,
    /// It fails, and its resets mend nothing for a while.
    ResetInVain,
    /// The kernel's log reports an error of a link, which is lost.
    LinkLost(u64),
    /// The kernel's log reports an error of a link, which goes on. No harm of the device follows.
    LinkGoesOn(u64),
    /// The kernel's log reports a fatal error of an `NVSwitch` of its node.
    SwitchFails(u64),
}

impl GpuFault {
    /// Name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Xid(_) => "xid",
            Self::HarmlessXid(_) => "harmless-xid",
            Self::Lost => "lost",
            Self::RemapFailed => "row-remap-failed",
            Self::UncorrectedError => "uncorrected-memory-error",
            Self::RemapPending => "row-remap-pending",
            Self::Hot => "hot",
            Self::LinkDown => "nvlink-down",
            Self::NicDown => "network-card-down",
            Self::ResetFails => "reset-fails",
            Self::ResetInVain => "reset-in-vain",
            Self::LinkLost(_) => "nvlink-lost",
            Self::LinkGoesOn(_) => "nvlink-goes-on",
            Self::SwitchFails(_) => "nvswitch-fails",
        }
    }

    /// Whether a device may go out of service for it.
    pub(super) fn is_of_device(self) -> bool {
        !matches!(self, Self::HarmlessXid(_) | Self::Hot | Self::LinkGoesOn(_))
    }

    /// Whether the GPUs of its `NVLink` island may go out of service with it.
    pub(super) fn is_of_island(self) -> bool {
        matches!(self, Self::LinkLost(_) | Self::SwitchFails(_))
    }

    /// Whether the device goes out of service at once.
    pub(super) fn fences_at_once(self) -> bool {
        matches!(self, Self::Xid(_) | Self::ResetFails | Self::ResetInVain | Self::LinkLost(_))
    }
}

impl Fault {
    /// Name in reports.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Gpu { kind, .. } => kind.name(),
            Self::Program { program, .. } => program.name(),
            Self::Pod { .. } => "pod-deleted",
        }
    }
}

/// Faults without end, each with the time since the one before it.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    random: fastrand::Rng,
    /// Names of nodes, and their numbers of GPUs.
    nodes: Vec<(String, usize)>,
    programs: Vec<Component>,
    interval: Duration,
}

impl Plan {
    /// The faults of a seed on nodes with numbers of GPUs. There is at least one node, and at least one program.
    pub(super) fn new(
        seed: u64,
        nodes: Vec<(String, usize)>,
        programs: Vec<Component>,
        interval: Duration,
    ) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), nodes, programs, interval }
    }

    fn fault(&mut self) -> Fault {
        match self.random.u32(0..100) {
            0..20 => Fault::Program {
                program: self.programs[self.random.usize(0..self.programs.len())],
                pause: Duration::from_millis(self.random.u64(0..2_000)),
            },
            20..28 => Fault::Pod { number: self.random.usize(0..1 << 16) },
            _ => {
                let (node, gpus) = &self.nodes[self.random.usize(0..self.nodes.len())];
                let (node, gpus) = (node.clone(), u32::try_from(*gpus).unwrap_or(u32::MAX));
                let gpu = self.random.u32(0..gpus.max(1));
                Fault::Gpu { node, gpu, kind: self.gpu_fault() }
            }
        }
    }

    fn gpu_fault(&mut self) -> GpuFault {
        match self.random.u32(0..100) {
            0..45 => GpuFault::Xid(self.one_of(&[46, 48, 62, 95, 109, 119, 120])),
            45..65 => GpuFault::HarmlessXid(self.one_of(&[13, 31, 43, 45, 94])),
            65..71 => GpuFault::Lost,
            71..73 => GpuFault::RemapFailed,
            73..80 => GpuFault::UncorrectedError,
            80..86 => GpuFault::RemapPending,
            86..91 => GpuFault::Hot,
            91 => GpuFault::LinkDown,
            92 => GpuFault::NicDown,
            93..95 => GpuFault::ResetFails,
            95..97 => GpuFault::ResetInVain,
            97 => GpuFault::LinkLost(self.one_of(&LINK_XIDS)),
            98 => GpuFault::LinkGoesOn(self.one_of(&LINK_XIDS)),
            _ => GpuFault::SwitchFails(self.one_of(&[11_012, 20_034])),
        }
    }

    fn one_of(&mut self, numbers: &[u64]) -> u64 {
        numbers[self.random.usize(0..numbers.len())]
    }
}

impl Iterator for Plan {
    type Item = (Duration, Fault);

    fn next(&mut self) -> Option<Self::Item> {
        let thousandths = self.random.u32(0..2_000);
        let wait = self.interval * thousandths / 1_000;
        Some((wait, self.fault()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn faults(seed: u64) -> Vec<(Duration, Fault)> {
        let nodes = vec![("a".to_owned(), 8), ("b".to_owned(), 1)];
        let programs = vec![Component::Agents, Component::OctavoController];
        Plan::new(seed, nodes, programs, Duration::from_millis(500)).take(2_000).collect()
    }

    #[test]
    fn a_seed_gives_the_same_faults_again_and_another_others() {
        assert_eq!(faults(7), faults(7));
        assert_ne!(faults(7), faults(8));
    }

    #[test]
    fn all_kinds_come_on_gpus_that_exist() {
        let faults = faults(1);
        let names: BTreeSet<&str> = faults.iter().map(|(_, fault)| fault.name()).collect();
        assert_eq!(names.len(), 17, "{names:?}");
        for (_, fault) in &faults {
            if let Fault::Gpu { node, gpu, .. } = fault {
                assert!(*gpu < if node == "a" { 8 } else { 1 }, "{fault:?}");
            }
        }
        let whole: Duration = faults.iter().map(|(wait, _)| *wait).sum();
        assert!(whole.as_secs().abs_diff(1_000) < 50, "a mean of half a second: {whole:?}");
    }
}
