//! The price model: everything derived from popularity. It is computed occasionally and used for
//! many decisions.
//!
//! The model of a node depends on few properties of its class: its [`ClassKey`]. It is computed
//! when a node with that key is first seen, so a new class costs no more than that.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::demand_stats::Entry;
use super::gpu_counts::GpuCounts;
use super::gpu_residual::{self, GpuResiduals};
use super::model_inputs::ModelInputs;
use super::potential::{Appraiser, CompactResources, Curve, PartKind, TOTAL_WEIGHT, Term};
use super::prior::{self, Size};
use super::reserve::{AllowedShapes, Reserve, ReservedShape};
use super::value::{Demands, GPU_VALUE, Values};
use crate::cluster::Cluster;
use crate::fit;
use crate::gpu::{GpuModel, MigProfile, ModelId, WHOLE};
use crate::node::{FeatureMask, NodeClass};
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};

/// The share of typical shapes, in percent of all pods.
const TYPICAL_PERCENT: i64 = 95;
/// The least share of typical shapes, in percent of the pods with GPUs. It matters only if most
/// pods have none.
const TYPICAL_GPU_PERCENT: i64 = 90;
/// The maximum number of popular shapes with reserved slots, not counting unseen ones.
const MAX_POPULAR_SHAPES: usize = 50;
/// Most typical shapes: an appraisal looks at each.
const MAX_TYPICAL: usize = 128;
/// The greatest scarcity of a model, in millionths.
const MAX_SCARCITY: i64 = 2 * TOTAL_WEIGHT;
/// The maximum number of cached class models: some 6 MB. Real clusters have tens.
const MAX_CLASS_MODELS: usize = 1024;

/// The price model derived from popularity.
#[derive(Clone, Debug)]
pub(super) struct PriceModel {
    curve: Curve,
    /// By model.
    values: Vec<Arc<Values>>,
    typical: Vec<(Arc<Shape>, i64)>,
    /// By model, in millionths.
    scarcities: Vec<i64>,
    /// Popular shapes with reserved slots.
    popular: Vec<ReservedShape>,
    /// The same for profiles without demand so far.
    profiles: Vec<ReservedShape>,
    pub(super) reserve: Reserve,
    class_models: FxHashMap<ClassKey, Arc<NodeClassModel>>,
    /// Weight of all shapes.
    pub(super) total: i64,
    /// Total value that all shapes take, in millionths of a GPU for a weight of one.
    value: i128,
    /// CPU that they take.
    cpu: i128,
}

/// The class properties that decide which shapes are allowed on a node and which of its GPUs are
/// equivalent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ClassKey {
    /// None without GPUs.
    model: Option<ModelId>,
    features: FeatureMask,
    taints: FeatureMask,
}

/// The model of nodes with one class key.
#[derive(Clone, Debug)]
pub(super) struct NodeClassModel {
    appraiser: Appraiser,
    /// The shapes of the reserve that are allowed there.
    pub(super) reserved_shapes: AllowedShapes,
}

impl PriceModel {
    /// A price model for these inputs. `is_learned`: unseen pods are expected. `is_steady`: pods
    /// leave while others come.
    pub(super) fn new(
        models: &[GpuModel],
        inputs: &ModelInputs,
        is_learned: bool,
        is_steady: bool,
    ) -> Self {
        let gpu_counts = GpuCounts { models, gpus: &inputs.gpus };
        let mut ranked = inputs.demand_stats.ranked();
        // A profile that no model has, such as a misspelt one, fits nowhere.
        ranked.retain(|entry| gpu_counts.is_known(&entry.shape));
        let total = ranked.iter().map(|entry| entry.weight).sum::<i64>().max(1);
        let unseen =
            if is_learned { prior::unseen_profiles(models, &ranked, total) } else { Vec::new() };
        let values = values(models, &ranked, &unseen);
        let typical = typical(gpu_counts, &ranked, &unseen, total);
        let popular = ranked
            .iter()
            .filter_map(|entry| reserved_shape(gpu_counts, entry))
            .take(MAX_POPULAR_SHAPES);
        let weigh = |amount: i64, entry: &Entry| i128::from(amount) * i128::from(entry.weight);
        let value = |entry: &Entry| weigh(taken(gpu_counts, &values, &entry.shape), entry);
        let cpu = |entry: &Entry| weigh(entry.shape.resources.cpu_milli.max(0), entry);
        let mut price_model = Self {
            curve: Curve::new(is_steady),
            typical,
            scarcities: scarcities(gpu_counts, &ranked),
            popular: popular.collect(),
            profiles: unseen.iter().filter_map(|entry| reserved_shape(gpu_counts, entry)).collect(),
            reserve: Reserve::default(),
            class_models: FxHashMap::default(),
            total,
            value: ranked.iter().map(value).sum(),
            cpu: ranked.iter().map(cpu).sum(),
            values,
        };
        price_model.expect_sizes(&inputs.sizes);
        price_model
    }

    /// Expects pods that take all of a node of these sizes, and no other unseen whole-node pods.
    pub(super) fn expect_sizes(&mut self, sizes: &[Size]) {
        let popular = self.popular.iter().cloned();
        let unseen = prior::unseen(sizes, self.total).chain(self.profiles.iter().cloned());
        self.reserve = Reserve::new(popular.chain(unseen));
        self.class_models.clear();
    }

    /// The model of a node class.
    pub(super) fn class_model(
        &mut self,
        cluster: &Cluster,
        class: &NodeClass,
    ) -> Arc<NodeClassModel> {
        self.curve.extend_to(u32::from(class.gpus) * u32::from(WHOLE));
        let model = (class.gpus > 0).then_some(class.model);
        let kind = ClassKey { model, features: class.features, taints: class.taints };
        if let Some(class_model) = self.class_models.get(&kind) {
            return Arc::clone(class_model);
        }
        let appraiser = self.appraiser(cluster, class);
        let model = model.and_then(|model| cluster.models().get(usize::from(model.0)));
        let class_model = Arc::new(NodeClassModel {
            appraiser,
            reserved_shapes: self.reserve.allowed(class, model),
        });
        if self.class_models.len() >= MAX_CLASS_MODELS {
            self.class_models.clear();
        }
        self.class_models.insert(kind, Arc::clone(&class_model));
        class_model
    }

    #[cfg(test)]
    pub(super) fn class_model_count(&self) -> usize {
        self.class_models.len()
    }

    /// How many pods fill the cluster when it is empty.
    pub(super) fn pods_to_fill(&self, cluster: &Cluster) -> u64 {
        let totals = cluster.totals();
        let pods =
            self.pods_to_come(totals.gpus.saturating_mul(GPU_VALUE), totals.capacity.cpu_milli);
        u64::try_from(pods / 1000).unwrap_or(0)
    }

    /// The worth of a node with these free amounts.
    pub(super) fn worth(
        &self,
        class_model: &NodeClassModel,
        free: &Resources,
        residuals: &GpuResiduals,
    ) -> i64 {
        class_model.appraiser.worth(&self.curve, free, residuals)
    }

    /// Thousandths of pods that still arrive until GPUs or CPU are used up.
    pub(super) fn pods_to_come(&self, value: i64, cpu_milli: i64) -> i64 {
        let pods = |left: i64, each: i128| {
            let wide = i128::from(left.max(0)) * 1000 * i128::from(self.total);
            wide.checked_div(each).unwrap_or(i128::MAX)
        };
        let least = pods(value, self.value).min(pods(cpu_milli, self.cpu));
        i64::try_from(least).unwrap_or(i64::MAX)
    }

    fn appraiser(&self, cluster: &Cluster, class: &NodeClass) -> Appraiser {
        let index = usize::from(class.model.0);
        let model = cluster.models().get(index).filter(|_| class.gpus > 0);
        let values = model.and_then(|_| self.values.get(index).cloned());
        let weight = self.typical.iter().map(|(_, weight)| weight).sum();
        let scarcity = model.and_then(|_| self.scarcities.get(index).copied()).unwrap_or(0);
        let mut appraiser = Appraiser::new(values, weight, scarcity);
        let Some(model) = model else { return appraiser };
        for (shape, weight) in &self.typical {
            let size = gpu_residual::size(&shape.gpus, model);
            let Some(size) = size.filter(|_| fit::is_allowed(class, shape)) else { continue };
            let parts = match &shape.gpus {
                GpuDemand::None => continue,
                GpuDemand::Whole { .. } => PartKind::Whole,
                GpuDemand::Share { milli, memory_mib, .. } => PartKind::Share(*milli, *memory_mib),
                GpuDemand::Mig { profile, .. } => match model.profile(profile) {
                    Some(profile) => PartKind::Mig(profile.clone()),
                    None => continue,
                },
            };
            let count = u32::from(shape.gpus.count());
            let milli = count * u32::from(size.max(1));
            let resources = CompactResources::of(&shape.resources);
            appraiser.add(parts, Term { parts: 0, weight: *weight, count, milli, resources });
        }
        appraiser
    }
}

impl NodeClassModel {
    /// Value of a node's residual GPUs, in millionths of a GPU.
    pub(super) fn value(&self, residuals: &GpuResiduals) -> i64 {
        self.appraiser.value(residuals)
    }
}

/// The values of each model's GPUs. Models with equal demand share one table.
fn values(models: &[GpuModel], ranked: &[Entry], unseen: &[Entry]) -> Vec<Arc<Values>> {
    let mut known: BTreeMap<Demands, Arc<Values>> = BTreeMap::new();
    let of = |(index, model)| {
        let demands = demands(ModelId(index), model, ranked.iter().chain(unseen));
        let values =
            known.entry(demands).or_insert_with_key(|demands| Arc::new(Values::of(demands)));
        Arc::clone(values)
    };
    (0..).zip(models).map(of).collect()
}

/// How scarce each model is, in millionths: the part of the demand that wants this model and cannot
/// use all others, over the model's part of all GPUs. Pods with a choice of models want each in
/// proportion to its GPUs.
fn scarcities(gpu_counts: GpuCounts<'_>, ranked: &[Entry]) -> Vec<i64> {
    let all: u64 = gpu_counts.gpus.iter().sum();
    let mut total = 0_i128;
    let mut wanted = vec![0_i128; gpu_counts.models.len()];
    for entry in ranked {
        let Some((_, size)) = gpu_counts.usual(&entry.shape) else { continue };
        let (demand, allowed) = (&entry.shape.gpus, gpu_counts.allowed(&entry.shape));
        let amount = i128::from(entry.weight) * i128::from(demand.count()) * i128::from(size);
        total += amount;
        let gpus: u64 = allowed.iter().filter_map(|index| gpu_counts.gpus.get(*index)).sum();
        if gpus > 0 && gpus < all {
            let each = amount * i128::from(all) / i128::from(gpus);
            for index in allowed {
                wanted[index] += each;
            }
        }
    }
    let scarcity = |wanted: i128| {
        let ratio = wanted * i128::from(TOTAL_WEIGHT) / total.max(1);
        i64::try_from(ratio).unwrap_or(i64::MAX).min(MAX_SCARCITY)
    };
    wanted.into_iter().map(scarcity).collect()
}

/// The demand that GPUs of a model can serve.
fn demands<'a>(id: ModelId, model: &GpuModel, entries: impl Iterator<Item = &'a Entry>) -> Demands {
    let mut shares: BTreeMap<u16, i64> = BTreeMap::new();
    let mut instances: BTreeMap<usize, i64> = BTreeMap::new();
    for entry in entries.filter(|entry| entry.shape.models.has(id)) {
        let gpus = &entry.shape.gpus;
        let weight = entry.weight * i64::from(gpus.count());
        if let GpuDemand::Mig { profile, .. } = gpus {
            if let Some(at) = model.mig.iter().position(|known| known.name == **profile) {
                *instances.entry(at).or_default() += weight;
            }
        } else if let Some(size) = gpu_residual::size(gpus, model) {
            *shares.entry(size).or_default() += weight;
        }
    }
    let instance = |(at, weight): (usize, i64)| (model.mig[at].clone(), weight);
    Demands {
        shares: shares.into_iter().collect(),
        instances: instances.into_iter().map(instance).collect(),
    }
}

/// The most popular shapes up to [`TYPICAL_PERCENT`] and [`TYPICAL_GPU_PERCENT`], and the unseen
/// ones. Shapes without GPUs count towards the former but are left out. The weights add up to about
/// [`TOTAL_WEIGHT`].
fn typical(
    gpu_counts: GpuCounts<'_>,
    ranked: &[Entry],
    unseen: &[Entry],
    total: i64,
) -> Vec<(Arc<Shape>, i64)> {
    let with_gpus = ranked.iter().filter(|entry| entry.shape.gpus.is_some());
    let gpu_total: i64 = with_gpus.map(|entry| entry.weight).sum();
    let (mut sum, mut gpu_sum) = (0, 0);
    let mut chosen = Vec::new();
    for entry in ranked {
        let is_enough = sum >= total / 100 * TYPICAL_PERCENT
            && gpu_sum >= gpu_total / 100 * TYPICAL_GPU_PERCENT;
        if is_enough || chosen.len() == MAX_TYPICAL {
            break;
        }
        sum += entry.weight;
        if entry.shape.gpus.is_some() {
            gpu_sum += entry.weight;
            chosen.push((Arc::clone(&entry.shape), weight(gpu_counts, entry)));
        }
    }
    chosen.extend(unseen.iter().map(|entry| (Arc::clone(&entry.shape), weight(gpu_counts, entry))));
    let all: f64 = chosen.iter().map(|(_, weight)| weight).sum();
    chosen.into_iter().map(|(shape, weight)| (shape, millionths(weight / all))).collect()
}

/// The shape as a reserved one, if it needs several GPUs or instances of several slices. Shares and
/// the smallest instances need no slot that other pods could break up.
fn reserved_shape(gpu_counts: GpuCounts<'_>, entry: &Entry) -> Option<ReservedShape> {
    let shape = &entry.shape;
    let (index, size) = gpu_counts.usual(shape)?;
    let is_large = match &shape.gpus {
        GpuDemand::Whole { count } => *count > 1,
        GpuDemand::Mig { count, profile } => {
            let profile = gpu_counts.models[index].profile(profile);
            *count > 0 && profile.is_some_and(|profile| profile.size > 1)
        }
        GpuDemand::None | GpuDemand::Share { .. } => false,
    };
    is_large.then(|| ReservedShape::new(shape.as_ref().clone(), entry.weight, size))
}

/// Popular shapes weigh more, large ones less: `count / sqrt(GPUs)`.
#[expect(clippy::cast_precision_loss, reason = "weights and sizes are far below 2^53")]
fn weight(gpu_counts: GpuCounts<'_>, entry: &Entry) -> f64 {
    let gpus = &entry.shape.gpus;
    // Only a model tells the size of a MIG instance or of memory.
    let size = gpu_counts.usual(&entry.shape).map_or(gpus.milli(), |(_, size)| size);
    let milli = (i64::from(gpus.count()) * i64::from(size)).max(1);
    entry.weight as f64 / (milli as f64 / 1000.0).sqrt()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "between 0 and 1")]
fn millionths(part: f64) -> i64 {
    (part * TOTAL_WEIGHT as f64 + 0.5) as i64
}

/// Value that a pod takes from idle GPUs, in millionths of a GPU.
fn taken(gpu_counts: GpuCounts<'_>, values: &[Arc<Values>], shape: &Shape) -> i64 {
    let Some((index, size)) = gpu_counts.usual(shape) else { return 0 };
    let values = &values[index];
    let rest = match &shape.gpus {
        GpuDemand::Mig { profile, .. } => {
            let profile = gpu_counts.models[index].profile(profile);
            let places = profile.into_iter().flat_map(MigProfile::places);
            places.map(|place| values.at_partition(place)).max().unwrap_or(0)
        }
        _ => values.at(WHOLE - size),
    };
    i64::from(shape.gpus.count()) * (GPU_VALUE - rest)
}
