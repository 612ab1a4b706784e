//! Shapes of several GPUs that were not seen yet.
//!
//! The largest pods are rare, need the emptiest nodes and are the first for which it is too late.
//! So who learns expects, before any came and long after the last, that some will come which take
//! about all of a node with the most GPUs: one for each kind of such nodes.

use crate::gpu::ModelSet;
use crate::node::{Marks, NodeClass};
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};

/// How many of a million pods are expected to be of each such shape. With 1,000, rare pods of eight
/// GPUs were skipped early on two lists of eleven; with 2,000, lists with much CPU lose half a point.
const PER_MILLION: i64 = 1_500;
/// Sixteenths of a node's CPU and memory that such a pod takes.
const SIXTEENTHS: i64 = 15;
/// Most kinds of nodes that are looked at.
const MOST: usize = 14;

/// These shapes and their weights, if all pods that were seen have the weight `total`.
pub(super) fn unseen(classes: &[NodeClass], total: i64) -> Vec<(Shape, i64)> {
    let most_gpus = classes.iter().map(|class| class.gpus).max().unwrap_or(0);
    if most_gpus < 2 {
        return Vec::new();
    }
    let largest = classes.iter().filter(|class| class.gpus == most_gpus);
    let mut capacities: Vec<(i64, i64)> =
        largest.map(|class| (class.capacity.cpu_milli, class.capacity.memory_mib)).collect();
    capacities.sort_unstable_by_key(|capacity| std::cmp::Reverse(*capacity));
    capacities.dedup();
    let weight = total / 1_000_000 * PER_MILLION + total % 1_000_000 * PER_MILLION / 1_000_000;
    let shape = |(cpu, memory): (i64, i64)| Shape {
        resources: Resources::of_pod(cpu / 16 * SIXTEENTHS, memory / 16 * SIXTEENTHS),
        gpus: GpuDemand::Whole { count: most_gpus },
        models: ModelSet::ALL,
        needs: Marks::NONE,
        tolerates: Marks(u64::MAX),
    };
    capacities.into_iter().take(MOST).map(|capacity| (shape(capacity), weight)).collect()
}
