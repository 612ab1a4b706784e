//! Decisions as the live scheduler makes them.
//!
//! Each goes through the [`Planner`], with the running workloads, the default policy, the budget for
//! preemption, and other waiting gangs, as the live scheduler fills in its [`DecisionInput`]. It
//! includes the explanation, which the live scheduler makes after every decision. It does not
//! include the allocation of claims, and the scheduler's own bookkeeping.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::planner::{DecisionInput, Planner};
use octavo_engine::preemption::PreemptionBudget;
use octavo_engine::solve::NodeSet;
use octavo_engine::workload::WorkloadId;
use octavo_engine::{Gang, Plan, PlanResult, Shape, World, explain, plan};

/// A cluster, and the planner that decides on it.
pub(super) struct LiveEngine {
    pub(super) world: World,
    planner: Planner,
    policy: PlacementPolicy,
    /// Other waiting gangs, for decisions on gangs. For a single pod under a policy like the default
    /// the live scheduler passes none.
    pub(super) waiting: Vec<Gang>,
    /// Pods that one decision may move.
    pub(super) moves: u32,
    /// Nodes that no pod may have.
    pub(super) forbidden: NodeSet,
}

/// A decision, and how long it took with its explanation.
pub(super) struct Decision {
    pub(super) answer: PlanResult,
    pub(super) took: Duration,
}

impl LiveEngine {
    /// With the default policy and no other gang that waits.
    pub(super) fn new(world: World) -> Self {
        let (planner, policy) = (Planner::default(), PlacementPolicy::default());
        Self { world, planner, policy, waiting: Vec::new(), moves: 0, forbidden: NodeSet::new() }
    }

    /// Sets another policy: units in their order.
    pub(super) fn set_policy(&mut self, units: &[&str]) -> anyhow::Result<()> {
        let order: Vec<_> = units.iter().map(|unit| serde_json::json!({"unit": unit})).collect();
        let policy = serde_json::json!({"name": "bench", "order": order});
        self.policy = serde_json::from_value(policy).context("read a policy")?;
        Ok(())
    }

    /// Forgets what earlier decisions have cached and learned.
    pub(super) fn forget(&mut self) {
        self.planner = Planner::default();
    }

    /// A pod arrives.
    pub(super) fn arrived(&mut self, shape: &Arc<Shape>) {
        self.planner.arrived(shape);
    }

    /// Decides; nothing is changed.
    pub(super) fn decide(&mut self, gang: &Gang) -> anyhow::Result<Decision> {
        let budget = PreemptionBudget {
            moves: self.moves,
            ..PreemptionBudget::evictions_below(gang.profile.priority)
        };
        let is_packed = gang.count() == 1 && self.policy.is_packing_alone();
        let weights = BTreeMap::new();
        let input = DecisionInput {
            gang,
            pinned: &[],
            forbidden: &self.forbidden,
            preemption_budget: &budget,
            policy: &self.policy,
            waiting: if is_packed { &[] } else { &self.waiting },
            weights: &weights,
        };
        let started = Instant::now();
        let answer = self.planner.decide(&mut self.world, &input)?;
        let explanation = explain::answer(&self.world, &self.policy, gang, &answer);
        let took = started.elapsed();
        drop(explanation);
        Ok(Decision { answer, took })
    }

    /// Decides on a gang that has to get its places.
    pub(super) fn plan(&mut self, gang: &Gang) -> anyhow::Result<(Plan, Duration)> {
        let Decision { answer, took } = self.decide(gang)?;
        let plan = answer
            .map_err(|refusal| anyhow::anyhow!("{}: {}", gang.profile.name, refusal.reason))?;
        Ok((plan, took))
    }

    /// Carries a plan out, and checks every step against the free capacity.
    pub(super) fn apply(&mut self, gang: &Gang, plan: &Plan) -> anyhow::Result<WorkloadId> {
        Ok(plan::apply(&mut self.world, gang, plan)?)
    }

    /// A workload ends.
    pub(super) fn end(&mut self, id: WorkloadId) -> anyhow::Result<()> {
        let workload = self.world.workloads.remove(id).context("no such workload")?;
        for member in workload.members.iter().flatten() {
            self.world.cluster.release(&member.shape.resources, &member.placement)?;
            self.planner.released(&member.shape, &member.placement);
        }
        Ok(())
    }
}

/// Milliseconds.
pub(super) fn milliseconds(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}
