//! Octavo's packing policy: residual capacity has a price, and a pod goes where it costs least.
//!
//! ```text
//! popularity --price model--> values of residual GPUs, typical shapes, reserve     occasionally
//!                               |                        |
//! log of changes -------> worth of each state      slots left per shape            per change
//!                               |                        |
//!                            index of a shape: gain   tight shapes                 per decision
//!                               '----------- best -------'
//! ```
//!
//! A node's worth (`potential`) is the value of its residual GPUs at the prices of a cutting-stock
//! problem (`value`), minus the part that typical pods cannot use. GPUs of models that other pods
//! need are worth more. A pod goes to the node that loses the least worth. The last slots of
//! multi-GPU pods cost extra (`reserve`). A pod that fits somewhere is always placed. If risk is
//! avoided, GPUs of more risk come after all others, whatever they cost.
//!
//! A cluster that fills and one in which pods come and go need different curves of worth. The
//! policy counts arrivals and departures to tell them apart (`churn`).
//!
//! Popularity is given, or learned from the pods that have arrived. Old arrivals are slowly
//! forgotten, so the policy follows a changing mix. While a cluster is filled once, forgetting has
//! little effect. The learned state can be saved and restored (`persist`), and the policy then
//! continues unchanged. Without it, a new policy starts with the shapes of the running pods with GPUs.

mod candidates;
mod capacity_totals;
mod churn;
mod demand_stats;
mod gpu_counts;
mod gpu_residual;
mod index;
mod mig_partitions;
mod model_inputs;
mod persist;
mod potential;
mod price_model;
mod prior;
mod reserve;
mod schedule;
mod score_cache;
mod simplex;
#[cfg(test)]
mod tests;
mod value;

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::node::NodeSet;
use crate::packing::{Choice, Packing};
use crate::placement::Placement;
use crate::shape::Shape;
use churn::Churn;
pub use demand_stats::DemandStats;
use gpu_counts::GpuCounts;
use model_inputs::ModelInputs;
use price_model::PriceModel;
use schedule::Schedule;
use score_cache::ScoreCache;

/// Octavo's packing policy. It must be asked about one cluster only.
#[derive(Clone, Debug)]
pub struct PricePolicy {
    demand_stats: DemandStats,
    /// When to learn; none if everything is known.
    schedule: Option<Schedule>,
    churn: Churn,
    /// The inputs of the price model; none if it has to be rebuilt.
    inputs: Option<ModelInputs>,
    /// Derived from the inputs and the cluster.
    score_cache: Option<ScoreCache>,
    /// Whether GPUs of less risk come before a lower price.
    avoids_risk: bool,
}

impl PricePolicy {
    /// The policy for a known and constant demand.
    pub fn known(demand_stats: DemandStats) -> Self {
        Self::new(demand_stats, None)
    }

    /// The policy that learns the demand from arrivals.
    pub fn learned() -> Self {
        Self::new(DemandStats::default(), Some(Schedule::default()))
    }

    /// Sets whether GPUs of less risk come before a lower price. By default only the price counts.
    pub fn set_avoids_risk(&mut self, avoids_risk: bool) {
        self.avoids_risk = avoids_risk;
    }

    /// The best placement for a pod outside of some nodes; none if it fits no other open node.
    pub fn choose_outside(
        &mut self,
        cluster: &Cluster,
        shape: &Arc<Shape>,
        forbidden: &NodeSet,
    ) -> Option<Choice> {
        let avoids_risk = self.avoids_risk;
        self.score_cache(cluster).choose(cluster, shape, avoids_risk, forbidden)
    }

    /// Whether it is to learn and has neither observed running pods nor been asked for a place.
    pub fn is_new(&self) -> bool {
        self.inputs.is_none()
            && self.schedule.as_ref().is_some_and(|learned| learned.step.is_none())
    }

    /// Learns the demand from pods that ran before the policy started, as after a restart: each
    /// with GPUs counts as one that arrived. If such pods run and at least half of the GPUs are in
    /// use, the cluster counts as steady until departures say otherwise. From now on the policy is
    /// not new.
    pub fn observe_running<'a>(
        &mut self,
        cluster: &Cluster,
        shapes: impl IntoIterator<Item = &'a Arc<Shape>>,
    ) {
        let Some(schedule) = &mut self.schedule else { return };
        let gpu_counts = gpu_counts::gpus_by_model(cluster);
        let gpu_counts = GpuCounts { models: cluster.models(), gpus: &gpu_counts };
        let mut has_gpu_pods = false;
        for shape in shapes {
            // A claim of several pods holds GPUs, too, but is no pod.
            let is_gpu_pod = shape.gpus.is_some() && shape.resources.pods > 0;
            if is_gpu_pod && gpu_counts.is_known(shape) {
                self.demand_stats.count(shape);
                schedule.arrived(&mut self.demand_stats);
                has_gpu_pods = true;
            }
        }
        let gpus = cluster.nodes().flat_map(|node| cluster.gpus(node));
        let (used, all) = gpus
            .fold((0_u64, 0_u64), |(used, all), gpu| (used + u64::from(!gpu.is_unused()), all + 1));
        if has_gpu_pods && 2 * used >= all {
            self.churn = Churn::of_well_used();
        }
        self.score_cache(cluster);
    }

    fn new(demand_stats: DemandStats, schedule: Option<Schedule>) -> Self {
        Self {
            demand_stats,
            schedule,
            churn: Churn::default(),
            inputs: None,
            score_cache: None,
            avoids_risk: false,
        }
    }

    /// The score cache for the current cluster, rebuilt if the demand has drifted.
    fn score_cache(&mut self, cluster: &Cluster) -> &mut ScoreCache {
        let is_learned = self.schedule.is_some();
        let mut inputs =
            self.inputs.take().filter(|inputs| inputs.gpus.len() == cluster.models().len());
        if let (Some(schedule), Some(made_of)) = (&mut self.schedule, &inputs)
            && schedule.check_due(&self.demand_stats, &made_of.demand_stats)
        {
            inputs = None;
        }
        let mut score_cache = self
            .score_cache
            .take()
            .filter(|score_cache| inputs.is_some() && score_cache.is_of(cluster));
        let is_new = inputs.is_none();
        let mut inputs =
            inputs.unwrap_or_else(|| ModelInputs::of(cluster, &self.demand_stats, is_learned));
        if is_learned && inputs.observe(cluster) {
            score_cache = score_cache
                .map(|score_cache| score_cache.with_expected_sizes(cluster, &inputs.sizes));
        }
        let inputs = &*self.inputs.insert(inputs);
        let score_cache = score_cache.unwrap_or_else(|| {
            let is_steady = self.churn.is_steady;
            let model = PriceModel::new(cluster.models(), inputs, is_learned, is_steady);
            ScoreCache::new(cluster, model)
        });
        if let Some(schedule) = self.schedule.as_mut().filter(|_| is_new) {
            schedule.learned(score_cache.pods_to_fill(cluster));
        }
        self.score_cache.insert(score_cache)
    }
}

impl Packing for PricePolicy {
    fn name(&self) -> &'static str {
        "octavo"
    }

    fn scores_per_millionth(&self) -> i64 {
        potential::WORTH_PER_MILLIONTH
    }

    fn arrived(&mut self, shape: &Arc<Shape>) {
        if let Some(schedule) = &mut self.schedule {
            self.demand_stats.count(shape);
            schedule.arrived(&mut self.demand_stats);
        }
        if self.churn.record_arrival() {
            self.inputs = None;
        }
    }

    fn released(&mut self, _: &Arc<Shape>, _: &Placement) {
        self.churn.record_departure();
    }

    fn choose(&mut self, cluster: &Cluster, shape: &Arc<Shape>) -> Option<Choice> {
        self.choose_outside(cluster, shape, &NodeSet::new())
    }
}
