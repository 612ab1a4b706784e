//! Which GPUs there are, as far as prices depend on it.

use std::cmp::Reverse;

use super::gpu_residual;
use crate::cluster::Cluster;
use crate::gpu::{GpuModel, ModelId};
use crate::shape::Shape;

/// The models and how many GPUs there are of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct GpuCounts<'a> {
    pub(super) models: &'a [GpuModel],
    pub(super) gpus: &'a [u64],
}

/// GPUs of each model; those of closed nodes count.
pub(super) fn gpus_by_model(cluster: &Cluster) -> Vec<u64> {
    let mut gpus = vec![0; cluster.models().len()];
    for class in cluster.nodes().map(|node| cluster.class(node)) {
        if let Some(gpus) = gpus.get_mut(usize::from(class.model.0)) {
            *gpus += u64::from(class.gpus);
        }
    }
    gpus
}

impl GpuCounts<'_> {
    /// The most likely model for pods of a shape, and the thousandths of such a GPU that one part
    /// takes. It is the allowed model with the most GPUs. None if no model is allowed.
    pub(super) fn usual(&self, shape: &Shape) -> Option<(usize, u16)> {
        let size = |(index, (model, gpus))| {
            let (model, gpus): (&GpuModel, &u64) = (model, gpus);
            let is_allowed = shape.models.has(ModelId(index));
            let size = gpu_residual::size(&shape.gpus, model).filter(|_| is_allowed)?;
            Some((*gpus, Reverse(index), size))
        };
        let all = self.models.iter().zip(self.gpus);
        let (_, Reverse(index), size) = (0..).zip(all).filter_map(size).max()?;
        Some((usize::from(index), size))
    }

    /// The models that can serve a shape, by index.
    pub(super) fn allowed(&self, shape: &Shape) -> Vec<usize> {
        let is_allowed = |(index, model): &(u8, &GpuModel)| {
            shape.models.has(ModelId(*index)) && gpu_residual::size(&shape.gpus, model).is_some()
        };
        let models = (0..).zip(self.models).filter(is_allowed);
        models.map(|(index, _)| usize::from(index)).collect()
    }

    /// Whether some model can serve the requested GPUs; a profile may exist on no model.
    pub(super) fn is_known(&self, shape: &Shape) -> bool {
        !shape.gpus.is_some() || self.usual(shape).is_some()
    }
}
