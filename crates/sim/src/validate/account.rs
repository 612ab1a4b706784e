//! Allocated resources of one node.

use std::collections::{BTreeMap, BTreeSet};

use super::Fault;
use crate::trace::{NodeRow, PodRow};

/// Thousandths of a whole GPU. Repeated on purpose: the accounts depend on no other code.
const WHOLE: u32 = 1000;

#[derive(Debug)]
pub(super) struct Account {
    name: String,
    model: String,
    cpu_milli: ResourceUse,
    memory_mib: ResourceUse,
    /// Taken thousandths of each GPU.
    gpus: Vec<u32>,
}

#[derive(Debug)]
struct ResourceUse {
    taken: u64,
    has: u64,
}

impl Account {
    pub(super) fn of(node: &NodeRow) -> Self {
        Self {
            name: node.name.clone(),
            model: node.model.clone(),
            cpu_milli: ResourceUse { taken: 0, has: node.cpu_milli },
            memory_mib: ResourceUse { taken: 0, has: node.memory_mib },
            gpus: (0..node.gpus).map(|_| 0).collect(),
        }
    }

    /// Allocates the pod's resources, or returns the violation.
    pub(super) fn take(&mut self, pod: &PodRow, gpus: &[(u32, u32)]) -> Result<(), Fault> {
        let node = || self.name.clone();
        // A pod without GPUs may run on any node, whatever models it names.
        if pod.num_gpu > 0 && !pod.models.is_empty() && !pod.models.contains(&self.model) {
            let (model, allowed) = (self.model.clone(), pod.models.join("|"));
            return Err(Fault::ModelNotAllowed { node: node(), model, allowed });
        }
        if gpus.len() as u64 != u64::from(pod.num_gpu) {
            return Err(Fault::WrongNumberOfGpus { got: gpus.len(), wanted: pod.num_gpu });
        }
        let mut seen = BTreeSet::new();
        for (gpu, milli) in gpus {
            let Some(taken) = self.gpus.get(*gpu as usize) else {
                let has = self.gpus.len();
                return Err(Fault::UnknownGpu { node: node(), gpu: *gpu, has });
            };
            if !seen.insert(gpu) {
                return Err(Fault::SameGpuTwice { node: node(), gpu: *gpu });
            }
            if *milli != pod.gpu_milli {
                return Err(Fault::WrongShare { gpu: *gpu, got: *milli, wanted: pod.gpu_milli });
            }
            let milli = u64::from(*taken) + u64::from(*milli);
            if milli > u64::from(WHOLE) {
                return Err(Fault::GpuOverfull { node: node(), gpu: *gpu, milli });
            }
        }
        let cpu_milli = self.cpu_milli.taken.saturating_add(pod.cpu_milli);
        if cpu_milli > self.cpu_milli.has {
            return Err(Fault::CpuOverfull { node: node(), cpu_milli, has: self.cpu_milli.has });
        }
        let memory_mib = self.memory_mib.taken.saturating_add(pod.memory_mib);
        if memory_mib > self.memory_mib.has {
            let has = self.memory_mib.has;
            return Err(Fault::MemoryOverfull { node: node(), memory_mib, has });
        }
        self.cpu_milli.taken = cpu_milli;
        self.memory_mib.taken = memory_mib;
        for (gpu, milli) in gpus {
            self.gpus[*gpu as usize] += milli;
        }
        Ok(())
    }

    /// Releases allocated resources.
    pub(super) fn give_back(&mut self, cpu_milli: u64, memory_mib: u64, gpus: &[(u32, u32)]) {
        self.cpu_milli.taken -= cpu_milli;
        self.memory_mib.taken -= memory_mib;
        for (gpu, milli) in gpus {
            self.gpus[*gpu as usize] -= milli;
        }
    }

    pub(super) fn taken_gpu_milli(&self) -> u64 {
        self.gpus.iter().map(|milli| u64::from(*milli)).sum()
    }

    /// Whether exactly these resources are allocated.
    pub(super) fn has_taken(
        &self,
        cpu_milli: u64,
        memory_mib: u64,
        gpus: impl Iterator<Item = (u32, u32)>,
    ) -> bool {
        let mut levels: BTreeMap<u32, u64> = BTreeMap::new();
        for (gpu, milli) in gpus {
            *levels.entry(gpu).or_default() += u64::from(milli);
        }
        let level = |gpu| levels.get(&gpu).copied().unwrap_or_default();
        self.cpu_milli.taken == cpu_milli
            && self.memory_mib.taken == memory_mib
            && (0..).zip(&self.gpus).all(|(gpu, taken)| u64::from(*taken) == level(gpu))
    }
}
