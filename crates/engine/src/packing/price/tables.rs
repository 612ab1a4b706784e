//! Everything that follows from popularity: computed now and then, used for many decisions.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::levels::{self, Levels};
use super::popularity::{Entry, Popularity};
use super::potential::{Appraiser, Narrow, Parts, Powers, Term, WEIGHT};
use super::prior;
use super::reserve::Reserve;
use super::value::{GPU, Values};
use crate::cluster::Cluster;
use crate::fit;
use crate::gpu::{GpuModel, ModelId, WHOLE};
use crate::node::NodeClass;
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};

/// Typical shapes make up so many percent of all.
const TYPICAL_PERCENT: i64 = 95;
/// Most shapes of several GPUs that places are kept for, beside those that were not seen yet.
const MOST_WISHES: usize = 50;
/// Most typical shapes: an appraisal looks at each.
const MOST_TYPICAL: usize = 128;

/// What popularity comes to.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    powers: Powers,
    models: usize,
    /// By class.
    appraisers: Vec<Appraiser>,
    pub(super) reserve: Reserve,
    /// Weight of all shapes.
    pub(super) total: i64,
    /// Value that all shapes together take, in millionths of a GPU for a weight of one.
    value: i128,
    /// CPU that they take.
    cpu: i128,
}

impl Tables {
    /// Tables for a cluster's classes and models. `is_learned`: shapes that were not seen yet may
    /// come. `turnover`: pods that leave for each hundred that come.
    pub(super) fn new(
        cluster: &Cluster,
        popularity: &Popularity,
        is_learned: bool,
        turnover: i64,
    ) -> Self {
        let (classes, models) = (cluster.classes(), cluster.models());
        let ranked = popularity.ranked();
        let total = popularity.total().max(1);
        let values = values(models, &ranked);
        let typical = typical(models, &ranked, total);
        let of_class = |class| appraiser(class, models, &typical, &values, turnover);
        // Shares and instances do not need idle GPUs, of which the reserve is.
        let is_several =
            |gpus: &GpuDemand| matches!(gpus, GpuDemand::Whole { .. }) && gpus.count() > 1;
        let several = ranked.iter().filter(|entry| is_several(&entry.shape.gpus));
        let mut wishes: Vec<(Shape, i64)> = several
            .take(MOST_WISHES)
            .map(|entry| (entry.shape.as_ref().clone(), entry.weight))
            .collect();
        if is_learned {
            wishes.extend(prior::unseen(classes, total));
        }
        let gpus = gpus_by_model(classes, models.len());
        let most_gpus = classes.iter().map(|class| u32::from(class.gpus)).max().unwrap_or(0);
        let weigh = |amount: i64, entry: &Entry| i128::from(amount) * i128::from(entry.weight);
        let value = |entry: &Entry| weigh(taken(models, &gpus, &values, &entry.shape), entry);
        let cpu = |entry: &Entry| weigh(entry.shape.resources.cpu_milli.max(0), entry);
        Self {
            powers: Powers::up_to(most_gpus * u32::from(WHOLE)),
            appraisers: classes.iter().map(of_class).collect(),
            models: models.len(),
            reserve: Reserve::new(wishes, classes),
            total,
            value: ranked.iter().map(value).sum(),
            cpu: ranked.iter().map(cpu).sum(),
        }
    }

    /// Whether these tables know all classes and models.
    pub(super) fn is_for(&self, cluster: &Cluster) -> bool {
        self.appraisers.len() == cluster.classes().len() && self.models == cluster.models().len()
    }

    /// How many pods fill the cluster when it is empty.
    pub(super) fn pods_to_fill(&self, cluster: &Cluster) -> u64 {
        let totals = cluster.totals();
        let pods = self.pods_to_come(totals.gpus.saturating_mul(GPU), totals.capacity.cpu_milli);
        u64::try_from(pods / 1000).unwrap_or(0)
    }

    /// What a node with these amounts free is worth.
    pub(super) fn worth(&self, class: usize, free: &Resources, levels: &Levels) -> i64 {
        self.appraisers.get(class).map_or(0, |one| one.worth(&self.powers, free, levels))
    }

    /// Value of what is left of a node's GPUs, in millionths of a GPU.
    pub(super) fn value(&self, class: usize, levels: &Levels) -> i64 {
        self.appraisers.get(class).map_or(0, |one| one.value(levels))
    }

    /// How many thousandths of pods are still to come until GPUs or CPU are used up.
    pub(super) fn pods_to_come(&self, value: i64, cpu_milli: i64) -> i64 {
        let pods = |left: i64, each: i128| {
            let wide = i128::from(left.max(0)) * 1000 * i128::from(self.total);
            wide.checked_div(each).unwrap_or(i128::MAX)
        };
        let least = pods(value, self.value).min(pods(cpu_milli, self.cpu));
        i64::try_from(least).unwrap_or(i64::MAX)
    }
}

/// The values of each model's GPUs. Models for which the same is asked share one table.
fn values(models: &[GpuModel], ranked: &[Entry]) -> Vec<Arc<Values>> {
    let mut known: BTreeMap<Vec<(u16, i64)>, Arc<Values>> = BTreeMap::new();
    let of = |(index, model): (u8, &GpuModel)| {
        let size = |entry: &Entry| {
            let is_allowed = entry.shape.models.has(ModelId(index));
            let size = is_allowed.then(|| levels::size(&entry.shape.gpus, model)).flatten();
            size.map(|size| (size, entry.weight * i64::from(entry.shape.gpus.count())))
        };
        let mut sizes: BTreeMap<u16, i64> = BTreeMap::new();
        for (size, weight) in ranked.iter().filter_map(size) {
            *sizes.entry(size).or_default() += weight;
        }
        let sizes: Vec<(u16, i64)> = sizes.into_iter().collect();
        let values = known
            .entry(sizes)
            .or_insert_with_key(|sizes| Arc::new(Values::of(sizes.iter().copied())));
        Arc::clone(values)
    };
    (0..).zip(models).map(of).collect()
}

/// The most popular shapes that make up so many percent of all, those without GPUs counted but
/// left out, with weights that add up to about [`WEIGHT`].
fn typical(models: &[GpuModel], ranked: &[Entry], total: i64) -> Vec<(Arc<Shape>, i64)> {
    let mut sum = 0;
    let mut chosen = Vec::new();
    for entry in ranked {
        if sum >= total / 100 * TYPICAL_PERCENT || chosen.len() == MOST_TYPICAL {
            break;
        }
        sum += entry.weight;
        if entry.shape.gpus.is_some() {
            chosen.push((Arc::clone(&entry.shape), weight(models, entry)));
        }
    }
    let all: f64 = chosen.iter().map(|(_, weight)| weight).sum();
    chosen.into_iter().map(|(shape, weight)| (shape, millionths(weight / all))).collect()
}

/// Popular shapes weigh more, large ones less: `count / sqrt(GPUs)`.
#[expect(clippy::cast_precision_loss, reason = "weights and sizes are far below 2^53")]
fn weight(models: &[GpuModel], entry: &Entry) -> f64 {
    let gpus = &entry.shape.gpus;
    // Of a MIG instance or of memory only a model can say how much of a GPU it is.
    let size = models.iter().find_map(|model| levels::size(gpus, model)).unwrap_or(gpus.milli());
    let milli = (i64::from(gpus.count()) * i64::from(size)).max(1);
    entry.weight as f64 / (milli as f64 / 1000.0).sqrt()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "between 0 and 1")]
fn millionths(part: f64) -> i64 {
    (part * WEIGHT as f64 + 0.5) as i64
}

fn appraiser(
    class: &NodeClass,
    models: &[GpuModel],
    typical: &[(Arc<Shape>, i64)],
    values: &[Arc<Values>],
    turnover: i64,
) -> Appraiser {
    let model = models.get(usize::from(class.model.0)).filter(|_| class.gpus > 0);
    let values = model.and_then(|_| values.get(usize::from(class.model.0)).cloned());
    let mut appraiser =
        Appraiser::new(values, typical.iter().map(|(_, weight)| weight).sum(), turnover);
    let Some(model) = model else { return appraiser };
    for (shape, weight) in typical {
        if !fit::is_allowed(class, shape) {
            continue;
        }
        let Some(size) = levels::size(&shape.gpus, model) else { continue };
        let parts = match &shape.gpus {
            GpuDemand::None => continue,
            GpuDemand::Whole { .. } => Parts::Whole,
            GpuDemand::Share { milli, memory_mib, .. } => Parts::Share(*milli, *memory_mib),
            GpuDemand::Mig { profile, .. } => {
                match model.mig.iter().position(|known| known.name == **profile) {
                    Some(at) => Parts::Mig(at),
                    None => continue,
                }
            }
        };
        let count = u32::from(shape.gpus.count());
        let milli = count * u32::from(size.max(1));
        let resources = Narrow::of(&shape.resources);
        appraiser.add(parts, Term { parts: 0, weight: *weight, count, milli, resources });
    }
    appraiser
}

fn gpus_by_model(classes: &[NodeClass], models: usize) -> Vec<u64> {
    let mut gpus = vec![0; models];
    for class in classes {
        if let Some(gpus) = gpus.get_mut(usize::from(class.model.0)) {
            *gpus += u64::from(class.gpus);
        }
    }
    gpus
}

/// Value that a pod takes of GPUs that were idle, in millionths of a GPU; on the model that the
/// most classes' GPUs are of, of those that will do.
fn taken(models: &[GpuModel], gpus: &[u64], values: &[Arc<Values>], shape: &Shape) -> i64 {
    let size = |(index, model): (u8, &GpuModel)| {
        let is_allowed = shape.models.has(ModelId(index));
        let size = levels::size(&shape.gpus, model).filter(|_| is_allowed)?;
        Some((gpus[usize::from(index)], Reverse(index), size))
    };
    let most = (0..).zip(models).filter_map(size).max();
    let Some((_, Reverse(index), size)) = most else { return 0 };
    let rest = values[usize::from(index)].at(WHOLE - size);
    i64::from(shape.gpus.count()) * (GPU - rest)
}
