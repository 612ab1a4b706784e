//! The sum of a pod's requests in the engine's terms.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_dra::{Count, DeviceRequest};
use octavo_engine::gpu::ModelSet;
use octavo_engine::shape::GpuDemand;

use super::request_cache::ResolvedDemand;

/// The sum of evaluated requests.
#[derive(Debug)]
pub(super) struct PodDemand {
    whole: u64,
    shares: Vec<GpuDemand>,
    mig: BTreeMap<Arc<str>, u64>,
    models: ModelSet,
    pub(super) is_exact: bool,
}

impl Default for PodDemand {
    fn default() -> Self {
        let (shares, mig) = (Vec::new(), BTreeMap::new());
        Self { whole: 0, shares, mig, models: ModelSet::ALL, is_exact: true }
    }
}

impl PodDemand {
    /// Adds a request.
    pub(super) fn add(&mut self, request: &DeviceRequest, resolved: ResolvedDemand) {
        if request.admin_access {
            self.is_exact = false;
            return;
        }
        self.is_exact &= resolved.is_exact;
        let count = match request.count {
            Count::Exactly(count) => count,
            Count::All => {
                self.is_exact = false;
                1
            }
        };
        let Some(demand) = resolved.demand else { return };
        self.models.0 &= resolved.models.0;
        match demand {
            GpuDemand::None => {}
            GpuDemand::Whole { .. } => self.whole += count,
            GpuDemand::Share { milli, memory_mib, .. } => {
                let count = u16::try_from(count).unwrap_or(u16::MAX);
                self.shares.push(GpuDemand::Share { count, milli, memory_mib });
            }
            GpuDemand::Mig { profile, .. } => *self.mig.entry(profile).or_insert(0) += count,
        }
    }

    /// The demand, the models that fit, and whether both are exact.
    pub(super) fn total(self) -> (GpuDemand, ModelSet, bool) {
        let count = |count: u64| u16::try_from(count).unwrap_or(u16::MAX);
        let kinds = usize::from(self.whole > 0) + self.shares.len() + self.mig.len();
        let is_exact = self.is_exact && kinds <= 1;
        let demand = if self.whole > 0 {
            GpuDemand::Whole { count: count(self.whole) }
        } else if let Some((profile, instances)) = self.mig.into_iter().next() {
            GpuDemand::Mig { count: count(instances), profile }
        } else {
            // Shares of several requests may lie on one GPU, so the first one is the least that a
            // node must have.
            self.shares.into_iter().next().unwrap_or_default()
        };
        let models = if demand.is_some() { self.models } else { ModelSet::ALL };
        (demand, models, is_exact)
    }
}
