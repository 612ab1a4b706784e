//! Expected demand that was not seen yet.
//!
//! The largest pods are rare, need the emptiest nodes, and are the first to find none. A learning
//! policy therefore always expects some pods that take about all of a node with the most GPUs.
//! There is one such pod for each size of these nodes. Sizes with small differences count as one,
//! for example memory reserved by firmware. Otherwise each odd node would add an expected pod.
//!
//! Likewise, if MIG instances are requested, instances of other profiles are expected.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::demand_stats::Entry;
use super::gpu_residual;
use super::reserve::ReservedShape;
use crate::cluster::Cluster;
use crate::gpu::{GpuModel, ModelId, ModelSet, WHOLE};
use crate::node::{FeatureMask, NodeClass};
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};

/// Expected pods of each such shape per million. With 1,000, rare 8-GPU pods were skipped early on
/// two lists of eleven; with 2,000, CPU-heavy lists lose half a point.
const UNSEEN_PER_MILLION: i64 = 1_500;
/// Sixteenths of a node's CPU and memory that such a pod takes. Nodes of one size have at least
/// this part of the largest of them.
const SIZE_SIXTEENTHS: i64 = 15;
/// Most sizes that are looked at.
const MAX_SIZES: usize = 14;
/// The maximum number of expected profiles without demand; the largest ones.
const MAX_PROFILES: usize = 16;

/// A size of the nodes with the most GPUs: the smallest CPU and memory among such nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) gpus: u16,
    pub(super) cpu_milli: i64,
    pub(super) memory_mib: i64,
}

/// Sizes of a cluster's largest nodes, largest first.
pub(super) fn sizes(cluster: &Cluster) -> Vec<Size> {
    let nodes = || cluster.nodes().map(|node| cluster.class(node));
    let gpus = nodes().map(|class| class.gpus).max().unwrap_or(0);
    if gpus < 2 {
        return Vec::new();
    }
    let capacities: BTreeSet<(i64, i64)> = nodes()
        .filter(|class| class.gpus == gpus)
        .map(|class| (class.capacity.cpu_milli, class.capacity.memory_mib))
        .collect();
    // By the first of each size, which has the most CPU.
    let mut sizes: Vec<((i64, i64), Size)> = Vec::new();
    for (cpu_milli, memory_mib) in capacities.into_iter().rev() {
        let is_near = |(first, _): &&mut ((i64, i64), Size)| {
            is_near(first.0, cpu_milli) && is_near(first.1, memory_mib)
        };
        if let Some((_, size)) = sizes.iter_mut().find(is_near) {
            size.cpu_milli = size.cpu_milli.min(cpu_milli);
            size.memory_mib = size.memory_mib.min(memory_mib);
        } else if sizes.len() < MAX_SIZES {
            sizes.push(((cpu_milli, memory_mib), Size { gpus, cpu_milli, memory_mib }));
        }
    }
    sizes.into_iter().map(|(_, size)| size).collect()
}

/// Whether nodes of the class are covered by one of these sizes, or too small to matter.
pub(super) fn covers(sizes: &[Size], class: &NodeClass) -> bool {
    let most = sizes.iter().map(|size| size.gpus).max().unwrap_or(1);
    let is_within = |least: i64, amount: i64| {
        // Two nodes that are both near a third one may be twice as far apart.
        let most = |amount: i64| amount.saturating_mul(SIZE_SIXTEENTHS * SIZE_SIXTEENTHS);
        amount.saturating_mul(16) >= least.saturating_mul(SIZE_SIXTEENTHS)
            && most(amount) <= least.saturating_mul(16 * 16)
    };
    let capacity = &class.capacity;
    let is_of = |size: &Size| {
        is_within(size.cpu_milli, capacity.cpu_milli)
            && is_within(size.memory_mib, capacity.memory_mib)
    };
    class.gpus < most
        || class.gpus < 2
        || class.gpus == most && (sizes.len() == MAX_SIZES || sizes.iter().any(is_of))
}

/// A pod for each size, given the total weight of seen pods.
pub(super) fn unseen(sizes: &[Size], total: i64) -> impl Iterator<Item = ReservedShape> {
    let shape = |size: &Size| {
        let part = |amount: i64| amount / 16 * SIZE_SIXTEENTHS;
        Shape {
            resources: Resources::of_pod(part(size.cpu_milli), part(size.memory_mib)),
            gpus: GpuDemand::Whole { count: size.gpus },
            models: ModelSet::ALL,
            needs: FeatureMask::NONE,
            tolerates: FeatureMask(u64::MAX),
        }
    };
    sizes.iter().map(move |size| ReservedShape::new(shape(size), weight(total), WHOLE))
}

/// A pod for each profile without demand, on models for which other profiles are requested.
pub(super) fn unseen_profiles(models: &[GpuModel], seen: &[Entry], total: i64) -> Vec<Entry> {
    let mut profiles: BTreeMap<(Reverse<u8>, &str), ModelSet> = BTreeMap::new();
    for (id, model) in (0..).map(ModelId).zip(models) {
        let asks = |entry: &&Entry| {
            let gpus = &entry.shape.gpus;
            let is_mig = matches!(gpus, GpuDemand::Mig { count: 1.., .. });
            is_mig && entry.shape.models.has(id) && gpu_residual::size(gpus, model).is_some()
        };
        let asked: BTreeSet<&str> =
            seen.iter().filter(asks).filter_map(|entry| profile(&entry.shape.gpus)).collect();
        if asked.is_empty() {
            continue;
        }
        for profile in model.mig.iter().filter(|known| !asked.contains(known.name.as_str())) {
            let models = profiles.entry((Reverse(profile.size), &profile.name));
            let models = models.or_insert(ModelSet(0));
            *models = models.with(id);
        }
    }
    let entry = |((_, name), models): ((Reverse<u8>, &str), ModelSet)| Entry {
        shape: Arc::new(Shape {
            resources: Resources::of_pod(0, 0),
            gpus: GpuDemand::Mig { count: 1, profile: name.into() },
            models,
            needs: FeatureMask::NONE,
            tolerates: FeatureMask(u64::MAX),
        }),
        weight: weight(total),
    };
    profiles.into_iter().take(MAX_PROFILES).map(entry).collect()
}

fn profile(gpus: &GpuDemand) -> Option<&str> {
    match gpus {
        GpuDemand::Mig { profile, .. } => Some(profile),
        _ => None,
    }
}

fn weight(total: i64) -> i64 {
    total / 1_000_000 * UNSEEN_PER_MILLION + total % 1_000_000 * UNSEEN_PER_MILLION / 1_000_000
}

/// Whether two amounts are close enough to count as one size.
fn is_near(a: i64, b: i64) -> bool {
    a.min(b).saturating_mul(16) >= a.max(b).saturating_mul(SIZE_SIXTEENTHS)
}
