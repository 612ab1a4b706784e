//! The capacity of one node that typical pods cannot use, and why.

use smallvec::SmallVec;

use super::amounts::{Amounts, Usability};
use super::typical::{GpuNeed, TypicalPods, TypicalShape};
use crate::cluster::Cluster;
use crate::cluster::states::NodeState;
use crate::fit;
use crate::gpu::{GpuFree, GpuModel};
use crate::node::{NodeClass, NodeId};

/// The free capacity of a node, as far as the measure needs it.
#[derive(Clone, Copy, Debug)]
pub struct NodeResidual<'a> {
    /// Its class.
    pub class: &'a NodeClass,
    /// The model of its GPUs, if it has any.
    pub model: Option<&'a GpuModel>,
    /// Free CPU.
    pub cpu_milli: i64,
    /// Free capacity of its GPUs, in any order.
    pub gpus: &'a [GpuFree],
}

/// How a node's GPUs serve a request, independent of the number of GPUs requested.
#[derive(Clone, Copy, Default)]
struct Supply {
    /// How many GPUs, or MIG instances, can be had.
    available: u32,
    /// Free compute of the GPUs that cannot serve at all, in thousandths.
    stranded: i64,
}

impl<'a> NodeResidual<'a> {
    /// The residual of a node.
    pub fn of_node(cluster: &'a Cluster, node: NodeId) -> Self {
        let cpu_milli = cluster.free(node).cpu_milli;
        Self::new(cluster, cluster.class(node), cpu_milli, cluster.gpus(node))
    }

    /// The residual of a node in this state.
    pub fn of_state(cluster: &'a Cluster, state: &'a NodeState) -> Self {
        let class = &cluster.classes()[state.class.0 as usize];
        Self::new(cluster, class, state.free.cpu_milli, &state.gpus)
    }

    fn new(
        cluster: &'a Cluster,
        class: &'a NodeClass,
        cpu_milli: i64,
        gpus: &'a [GpuFree],
    ) -> Self {
        let model = cluster.models().get(usize::from(class.model.0));
        Self { class, model, cpu_milli, gpus }
    }

    /// Free compute of all its GPUs in thousandths.
    pub fn gpu_milli(&self) -> i64 {
        self.gpus.iter().map(milli).sum()
    }
}

/// Free compute of a GPU in thousandths: none of a closed one.
pub fn milli(gpu: &GpuFree) -> i64 {
    if gpu.is_closed { 0 } else { i64::from(gpu.milli) }
}

impl TypicalPods {
    /// No amounts of any class.
    pub fn nothing(&self) -> Amounts {
        Amounts::nothing(i128::from(self.popularity()))
    }

    /// Free compute of a node by what keeps typical pods from it.
    pub fn amounts(&self, residual: &NodeResidual<'_>) -> Amounts {
        let mut amounts = self.nothing();
        let free = residual.gpu_milli();
        let supplies = self.supplies(residual);
        for typical in self.shapes() {
            let popularity = i128::from(typical.popularity);
            let supply = supplies.get(typical.need).copied().unwrap_or_default();
            let class = class(typical, supply, residual);
            let stranded = if class == Usability::Usable { supply.stranded } else { 0 };
            amounts.add(class, popularity, free - stranded);
            amounts.add(Usability::LacksGpu, popularity, stranded);
        }
        amounts
    }

    /// Free compute of a node that typical pods cannot use, in thousandths, as in the authors'
    /// simulator. Rounding and summation order follow the source. Its policy truncates the derived
    /// score to a whole number, so the smallest deviation would matter.
    pub fn fragment(&self, residual: &NodeResidual<'_>) -> f64 {
        let mut amounts = [0.0; Usability::ALL.len()];
        let free = float(residual.gpu_milli());
        let supplies = self.supplies(residual);
        for typical in self.shapes() {
            let supply = supplies.get(typical.need).copied().unwrap_or_default();
            match class(typical, supply, residual) {
                Usability::Usable => {
                    amounts[Usability::LacksGpu as usize] +=
                        typical.weight * float(supply.stranded);
                }
                class => amounts[class as usize] += typical.weight * free,
            }
        }
        amounts.iter().sum()
    }

    fn supplies(&self, residual: &NodeResidual<'_>) -> SmallVec<[Supply; 32]> {
        self.needs.iter().map(|need| supply(need, residual)).collect()
    }
}

fn supply(need: &GpuNeed, residual: &NodeResidual<'_>) -> Supply {
    match need {
        GpuNeed::Whole => supply_by(residual, |gpu| u32::from(gpu.is_idle())),
        GpuNeed::Share { milli, memory_mib } => {
            supply_by(residual, |gpu| u32::from(fit::share_fits(gpu, *milli, *memory_mib)))
        }
        GpuNeed::Mig { profile } => match residual.model.and_then(|model| model.profile(profile)) {
            Some(profile) => supply_by(residual, |gpu| fit::instances_in(gpu, profile)),
            None => Supply::default(),
        },
    }
}

fn supply_by(residual: &NodeResidual<'_>, times: impl Fn(&GpuFree) -> u32) -> Supply {
    let mut supply = Supply::default();
    for gpu in residual.gpus {
        match times(gpu) {
            0 => supply.stranded += milli(gpu),
            times => supply.available += times,
        }
    }
    supply
}

fn class(typical: &TypicalShape, supply: Supply, residual: &NodeResidual<'_>) -> Usability {
    let shape = &typical.shape;
    let has_cpu = shape.resources.cpu_milli <= residual.cpu_milli;
    if !shape.gpus.is_some() {
        return if has_cpu { Usability::NotAskedFor } else { Usability::NotAskedForLacksCpu };
    }
    if !fit::is_allowed(residual.class, shape) {
        return Usability::NoAccess;
    }
    match (supply.available >= u32::from(shape.gpus.count()), has_cpu) {
        (true, true) => Usability::Usable,
        (true, false) => Usability::LacksCpu,
        (false, true) => Usability::LacksGpu,
        (false, false) => Usability::LacksBoth,
    }
}

/// Exact: a node has at most 64,000 thousandths of GPUs.
fn float(milli: i64) -> f64 {
    f64::from(i32::try_from(milli).unwrap_or(i32::MAX))
}
