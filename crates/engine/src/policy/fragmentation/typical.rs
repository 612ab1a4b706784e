//! The typical pods: the most popular shapes that make up 95 % of all pods.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::gpu::{GpuModel, ModelId, ModelSet};
use crate::shape::{GpuDemand, Shape};

/// The minimum share of typical pods, in percent of all pods.
const TYPICAL_PERCENT: f64 = 95.0;

/// Typical pods, the most popular first. Memory is ignored, as in the source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypicalPods {
    shapes: Vec<TypicalShape>,
    /// Distinct GPU requests of the shapes: see [`TypicalShape::need`].
    pub(super) needs: Vec<GpuNeed>,
    /// Pods that the typical shapes stand for.
    popularity: u64,
}

/// A typical pod.
#[derive(Clone, Debug, PartialEq)]
pub struct TypicalShape {
    /// The request; memory and pods are not set.
    pub shape: Shape,
    /// How many pods have the shape.
    pub popularity: u64,
    /// Share among the typical pods. Rounded as in the source, because FGD's scores depend on it.
    pub weight: f64,
    /// Index in the needs; meaningless without GPUs.
    pub(super) need: usize,
}

/// The request for each GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GpuNeed {
    Whole,
    Share { milli: u16, memory_mib: u32 },
    Mig { profile: Arc<str> },
}

impl TypicalPods {
    /// The typical ones of these pods. Shapes may repeat and come in any order. `models` are the
    /// models of the cluster; their names break ties between equally popular shapes.
    pub fn new<'a>(
        models: &[GpuModel],
        counts: impl IntoIterator<Item = (&'a Shape, u64)>,
    ) -> Self {
        let mut popularity = BTreeMap::<Shape, u64>::new();
        for (shape, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            *popularity.entry(essence(shape)).or_default() += count;
        }
        let all: u64 = popularity.values().sum();
        let mut ranked: Vec<_> = popularity
            .into_iter()
            .map(|(shape, count)| {
                let (cpu, gpus) = (shape.resources.cpu_milli, &shape.gpus);
                let models = spec(models, shape.models);
                (Reverse((count, cpu, gpus.milli(), gpus.count(), models)), shape)
            })
            .collect();
        ranked.sort();
        let target = TYPICAL_PERCENT * float(all) / 100.0;
        let mut typical = Self::default();
        for (Reverse((count, ..)), shape) in ranked {
            if float(typical.popularity) >= target {
                break;
            }
            let need = typical.need(&shape.gpus);
            typical.popularity += count;
            typical.shapes.push(TypicalShape { shape, popularity: count, weight: 0.0, need });
        }
        let covered = float(typical.popularity) / float(all);
        for shape in &mut typical.shapes {
            // In two roundings, as in the source.
            shape.weight = float(shape.popularity) / float(all) / covered;
        }
        typical
    }

    /// The typical shapes, most popular first.
    pub fn shapes(&self) -> &[TypicalShape] {
        &self.shapes
    }

    /// Pods that the typical shapes stand for.
    pub fn popularity(&self) -> u64 {
        self.popularity
    }

    fn need(&mut self, demand: &GpuDemand) -> usize {
        let need = match demand {
            GpuDemand::None => return usize::MAX,
            GpuDemand::Whole { .. } => GpuNeed::Whole,
            GpuDemand::Share { milli, memory_mib, .. } => {
                GpuNeed::Share { milli: *milli, memory_mib: *memory_mib }
            }
            GpuDemand::Mig { profile, .. } => GpuNeed::Mig { profile: Arc::clone(profile) },
        };
        self.needs.iter().position(|known| *known == need).unwrap_or_else(|| {
            self.needs.push(need);
            self.needs.len() - 1
        })
    }
}

/// A shape without what the measure does not look at.
fn essence(shape: &Shape) -> Shape {
    let mut essence = shape.clone();
    essence.resources.memory_mib = 0;
    essence.resources.pods = 0;
    if !shape.gpus.is_some() {
        essence.models = ModelSet::ALL;
    }
    essence
}

/// Models as in a trace: sorted names joined by `|`; empty for any model.
fn spec(models: &[GpuModel], wanted: ModelSet) -> String {
    if wanted == ModelSet::ALL {
        return String::new();
    }
    let ids = (0..).map(ModelId).zip(models);
    let mut names: Vec<&str> =
        ids.filter(|(id, _)| wanted.has(*id)).map(|(_, model)| model.name.as_str()).collect();
    names.sort_unstable();
    names.join("|")
}

#[expect(clippy::cast_precision_loss, reason = "counts of pods are far below 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}
