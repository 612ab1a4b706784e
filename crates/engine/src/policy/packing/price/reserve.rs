//! The elastic reserve: slots for multi-GPU pods are kept for the expected number of them.
//!
//! The same holds for MIG instances of several slices, whose placements smaller instances break up.
//!
//! Small pods easily break up a node's last slots for four or eight GPUs, although they would fit
//! elsewhere. The residual capacity gives an estimate of the pods to come until the cluster is
//! full, and of the multi-GPU pods among them. A shape is *tight* if hardly more slots are left
//! than pods expected. Taking such a slot is the last resort, even for pods of that shape: they
//! take the slots that harm least.

use smallvec::SmallVec;

use super::gpu_residual::GpuResiduals;
use super::potential::CompactResources;
use crate::fit;
use crate::gpu::{GpuModel, MigProfile};
use crate::node::NodeClass;
use crate::resources::Resources;
use crate::shape::{GpuDemand, Shape};

/// The maximum number of reserved shapes: one bit of a mask for each.
pub(super) const MAX_RESERVED_SHAPES: usize = 64;

/// More than the slots of any cluster, in thousandths.
const MAX_EXPECTED_MILLI: i64 = 1 << 50;

/// Slots of each shape on one node.
pub(super) type Places = SmallVec<[u16; MAX_RESERVED_SHAPES]>;

/// The shapes that are looked after.
#[derive(Clone, Debug, Default)]
pub(super) struct Reserve {
    pub(super) reserved_shapes: Vec<ReservedShape>,
}

/// A shape of several GPUs or of larger instances.
#[derive(Clone, Debug)]
pub(super) struct ReservedShape {
    pub(super) shape: Shape,
    pub(super) weight: i64,
    /// Thousandths of a GPU that one GPU or instance is.
    part: u32,
    resources: CompactResources,
    count: u32,
}

/// The reserved shapes that are allowed on nodes with one class key.
#[derive(Clone, Debug, Default)]
pub(super) struct AllowedShapes {
    /// As a mask.
    pub(super) mask: u64,
    /// Profiles of those that are of instances, by their bits.
    profiles: Vec<(usize, MigProfile)>,
}

impl Reserve {
    /// A reserve for these shapes.
    pub(super) fn new(reserved_shapes: impl IntoIterator<Item = ReservedShape>) -> Self {
        Self { reserved_shapes: reserved_shapes.into_iter().take(MAX_RESERVED_SHAPES).collect() }
    }

    /// The reserved shapes that are allowed on nodes of a class with GPUs of a model.
    pub(super) fn allowed(&self, class: &NodeClass, model: Option<&GpuModel>) -> AllowedShapes {
        let mut allowed = AllowedShapes::default();
        for (bit, reserved_shape) in self.reserved_shapes.iter().enumerate() {
            if !fit::is_allowed(class, &reserved_shape.shape) {
                continue;
            }
            if let GpuDemand::Mig { profile, .. } = &reserved_shape.shape.gpus {
                let profile = model.and_then(|model| model.profile(profile));
                let Some(profile) = profile else { continue };
                allowed.profiles.push((bit, profile.clone()));
            }
            allowed.mask |= 1 << bit;
        }
        allowed
    }

    /// Total weight of the pods that a slot of each shape serves, weighted by the slots that each
    /// pod takes. These are the pods of the shape itself and of larger shapes allowed on some of
    /// the same nodes. `masks` has the shapes allowed on one node.
    pub(super) fn rates(&self, masks: impl IntoIterator<Item = u64>) -> Vec<i64> {
        let mut near = vec![0; self.reserved_shapes.len()];
        for mask in masks {
            let bits = near.iter_mut().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1);
            bits.for_each(|(_, near)| *near |= mask);
        }
        let rate = |(reserved_shape, near): (&ReservedShape, u64)| {
            let takes = |(bit, other): &(usize, &ReservedShape)| {
                near >> bit & 1 == 1 && reserved_shape.is_in(other)
            };
            let each = |(_, other): (usize, &ReservedShape)| {
                let places =
                    other.part / reserved_shape.part.max(1) * other.count / reserved_shape.count;
                other.weight.saturating_mul(places.into())
            };
            self.reserved_shapes.iter().enumerate().filter(takes).map(each).sum()
        };
        self.reserved_shapes.iter().zip(near).map(rate).collect()
    }

    /// The number of pods of each shape that fit a node with these free amounts.
    pub(super) fn places(
        &self,
        allowed: &AllowedShapes,
        free: &Resources,
        residuals: &GpuResiduals,
    ) -> Places {
        let idle = idle(residuals);
        if idle < 2 && allowed.profiles.is_empty() {
            return SmallVec::from_elem(0, self.reserved_shapes.len());
        }
        let free = CompactResources::of(free);
        let places = |(bit, reserved_shape): (usize, &ReservedShape)| {
            if allowed.mask >> bit & 1 == 0 {
                return 0;
            }
            reserved_shape.places(&free, allowed.parts(bit, idle, residuals))
        };
        self.reserved_shapes.iter().enumerate().map(places).collect()
    }

    /// The shapes with fewer slots than `before` at these free amounts, as a mask.
    pub(super) fn losers(
        &self,
        before: &Places,
        allowed: &AllowedShapes,
        free: &Resources,
        residuals: &GpuResiduals,
    ) -> u64 {
        let idle = idle(residuals);
        let free = CompactResources::of(free);
        let mut mask = 0;
        for (bit, (reserved_shape, before)) in self.reserved_shapes.iter().zip(before).enumerate() {
            if *before > 0
                && reserved_shape.places(&free, allowed.parts(bit, idle, residuals)) < *before
            {
                mask |= 1 << bit;
            }
        }
        mask
    }

    /// The tight shapes as a mask: hardly more slots are left than will be wanted. `left` has the
    /// slots of each shape, `rates` the weights of the pods that take them. `more_milli`
    /// thousandths of pods are to come, with the total weight `total`. The margin covers random
    /// variation.
    pub(super) fn tight(left: &[i64], rates: &[i64], more_milli: i64, total: i64) -> u64 {
        let mut mask = 0;
        for (bit, (rate, left)) in rates.iter().zip(left).enumerate() {
            let wide = i128::from(*rate) * i128::from(more_milli) / i128::from(total.max(1));
            let expected =
                i64::try_from(wide).unwrap_or(MAX_EXPECTED_MILLI).min(MAX_EXPECTED_MILLI);
            let margin = (expected * 1000).isqrt() + 1000;
            if left.saturating_mul(1000) <= expected.saturating_add(margin) {
                mask |= 1 << bit;
            }
        }
        mask
    }
}

impl AllowedShapes {
    /// GPUs or instances left for the shape of a bit, given the number of idle GPUs.
    fn parts(&self, bit: usize, idle: u32, residuals: &GpuResiduals) -> u32 {
        match self.profiles.iter().find(|(other, _)| *other == bit) {
            None => idle,
            Some((_, profile)) => {
                residuals.iter().map(|residual| fit::instances_in(&residual.gpu, profile)).sum()
            }
        }
    }
}

impl ReservedShape {
    /// A shape and its weight; `part` is the size of one GPU or instance in thousandths of a GPU.
    pub(super) fn new(shape: Shape, weight: i64, part: u16) -> Self {
        let resources = CompactResources::of(&shape.resources);
        let count = u32::from(shape.gpus.count().max(1));
        Self { shape, weight, part: part.into(), resources, count }
    }

    fn places(&self, free: &CompactResources, parts: u32) -> u16 {
        let by_gpus = parts / self.count;
        if by_gpus == 0 {
            return 0;
        }
        u16::try_from(by_gpus.min(self.resources.times_in(free))).unwrap_or(u16::MAX)
    }

    /// Whether pods of the other shape are of the same type and at least as large, so that they
    /// take slots of this one.
    fn is_in(&self, other: &Self) -> bool {
        let is_cut =
            |reserved_shape: &Self| matches!(reserved_shape.shape.gpus, GpuDemand::Mig { .. });
        let cpu = |reserved_shape: &Self| reserved_shape.shape.resources.cpu_milli;
        is_cut(self) == is_cut(other)
            && other.part >= self.part
            && other.part * other.count >= self.part * self.count
            && cpu(other) >= cpu(self)
    }
}

fn idle(residuals: &GpuResiduals) -> u32 {
    residuals.iter().map(|residual| u32::from(residual.is_idle)).sum()
}
