//! How often each shape is asked for.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::shape::Shape;

/// Weight of one pod. Forgetting removes small fractions of a pod.
pub(super) const POD_WEIGHT: i64 = 1 << 16;
/// Sixteenths that remain after each step of forgetting.
const KEPT_SIXTEENTHS: i64 = 15;
/// Less than this much of a pod is nothing.
const MIN_WEIGHT: i64 = POD_WEIGHT / 64;

/// How often each shape is asked for, by weight.
#[derive(Clone, Debug, Default)]
pub struct DemandStats {
    entries: Vec<Entry>,
    by_shape: FxHashMap<Arc<Shape>, usize>,
    total: i64,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) shape: Arc<Shape>,
    pub(super) weight: i64,
}

impl DemandStats {
    /// Shapes with their counts.
    pub fn of(counts: impl IntoIterator<Item = (Arc<Shape>, u64)>) -> Self {
        let mut demand_stats = Self::default();
        for (shape, count) in counts {
            let count = i64::try_from(count).unwrap_or(i64::MAX).min(i64::MAX / POD_WEIGHT / 1024);
            demand_stats.add(&shape, count.saturating_mul(POD_WEIGHT));
        }
        demand_stats
    }

    /// One more pod of a shape.
    pub fn count(&mut self, shape: &Arc<Shape>) {
        self.add(shape, POD_WEIGHT);
    }

    /// Adds weight to a shape.
    pub(super) fn add(&mut self, shape: &Arc<Shape>, weight: i64) {
        self.total = self.total.saturating_add(weight);
        if let Some(at) = self.by_shape.get(shape) {
            let entry = &mut self.entries[*at];
            entry.weight = entry.weight.saturating_add(weight);
            return;
        }
        self.by_shape.insert(Arc::clone(shape), self.entries.len());
        self.entries.push(Entry { shape: Arc::clone(shape), weight });
    }

    /// Reduces all weights by a sixteenth, so that new pods weigh more.
    pub(super) fn forget(&mut self) {
        for entry in &mut self.entries {
            entry.weight = entry.weight * KEPT_SIXTEENTHS / 16;
        }
        self.entries.retain(|entry| entry.weight >= MIN_WEIGHT);
        self.total = self.entries.iter().map(|entry| entry.weight).sum();
        let shapes = self.entries.iter().map(|entry| Arc::clone(&entry.shape));
        self.by_shape = shapes.zip(0..).collect();
    }

    /// Weight of all shapes.
    pub(super) fn total(&self) -> i64 {
        self.total
    }

    /// Weight of a shape.
    pub(super) fn weight(&self, shape: &Arc<Shape>) -> i64 {
        self.by_shape.get(shape).map_or(0, |at| self.entries[*at].weight)
    }

    /// Thousandths of pods whose shape differs from the mix `then`.
    pub(super) fn drift_milli(&self, then: &Self) -> i64 {
        let (now_total, then_total) =
            (i128::from(self.total.max(1)), i128::from(then.total.max(1)));
        let then_weight = |shape: &Arc<Shape>| then.weight(shape);
        // The weight gained by shapes is the weight lost by others.
        let gained = |entry: &Entry| {
            let now = i128::from(entry.weight) * then_total;
            (now - i128::from(then_weight(&entry.shape)) * now_total).max(0)
        };
        let gained: i128 = self.entries.iter().map(gained).sum();
        i64::try_from(gained * 1000 / (now_total * then_total)).unwrap_or(i64::MAX)
    }

    /// Shapes, most popular first; equally popular ones in their own order.
    pub(super) fn ranked(&self) -> Vec<Entry> {
        let mut ranked = self.entries.clone();
        ranked.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| a.shape.cmp(&b.shape)));
        ranked
    }
}
