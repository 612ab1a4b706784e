//! Octavo's packing policy: what is left is priced, and a pod goes where it costs least.
//!
//! ```text
//! popularity --tables--> values of GPUs' rests, typical shapes, reserve     now and then
//!                           |                        |
//! log of changes ----> worth of each state       places left of each        what changed
//!                           |                        |
//!                        index of a shape: gain   which are tight           each decision
//!                           '----------- best -------'
//! ```
//!
//! A node's worth (`potential`) is what is left of its GPUs at the prices of a cutting-stock
//! problem (`value`) less what typical pods cannot use of it. A pod goes to the node that loses
//! least worth, but takes the last places of pods of several GPUs only where there is no other
//! (`reserve`). A pod that fits somewhere is always placed.
//!
//! Popularity is known ahead, or learned from the pods that came so far. What was learned is
//! slowly forgotten, so that the policy follows a mix that shifts; over the time in which a cluster
//! is filled once, forgetting hardly shows. What was learned can be written down and read back
//! (`saved`): the policy goes on as if nothing had happened.

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
use crate::packing::{Choice, Packing};
use crate::placement::Placement;
use crate::shape::Shape;
use churn::Churn;
pub use demand_stats::DemandStats;
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
    /// What tables are made of; none where they are to be made anew.
    inputs: Option<ModelInputs>,
    /// What follows from the basis and the cluster.
    score_cache: Option<ScoreCache>,
}

impl PricePolicy {
    /// The policy for pods that come as often as `demand_stats` says, now and always.
    pub fn known(demand_stats: DemandStats) -> Self {
        Self::new(demand_stats, None)
    }

    /// The policy that learns from the pods that came so far which will come.
    pub fn learned() -> Self {
        Self::new(DemandStats::default(), Some(Schedule::default()))
    }

    fn new(demand_stats: DemandStats, schedule: Option<Schedule>) -> Self {
        Self { demand_stats, schedule, churn: Churn::default(), inputs: None, score_cache: None }
    }

    /// The books for the cluster as it is now, made anew where popularity has changed.
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
            let percent = self.churn.percent();
            ScoreCache::new(cluster, PriceModel::new(cluster.models(), inputs, is_learned, percent))
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
        self.score_cache(cluster).choose(cluster, shape)
    }
}
