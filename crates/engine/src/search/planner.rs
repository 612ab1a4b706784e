//! One decision, with all that it is decided by: the same for a live cluster, a question and a replay.
//!
//! A single pod that is free to go anywhere goes by the packing policy; everything else by the gang
//! search, judged by the placement policy. What is kept between decisions (bounds, costs, figures)
//! makes them fast and changes none of them, but for what the packing policy has learned, which goes
//! with a snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::World;
use crate::cluster::Cluster;
use crate::cluster::states::NodeState;
use crate::fragmentation::{NodeResidual, TypicalPods};
use crate::gang::Gang;
use crate::objective::cost::{MeasuredFigures, Meter, NoFigures, PolicyCostModel};
use crate::objective::fairness::FairShares;
use crate::objective::policy::{PlacementPolicy, PolicyError};
use crate::packing::Packing;
use crate::packing::price::PricePolicy;
use crate::placement::Placement;
use crate::plan::{PlanResult, Reason, Refusal, Remedy};
use crate::pod_planner::{self, CostCache, raised_limit};
use crate::preemption::{self, PreemptionBudget};
use crate::repair::{self, RepairContext};
use crate::shape::{GpuDemand, Shape};
use crate::snapshot::{PackingRecord, SnapshotError};
use crate::solve::{CostModel, NodeSet, Options, Pinned, Request, Solver};

/// What is to be decided.
#[derive(Clone, Copy, Debug)]
pub struct DecisionInput<'a> {
    /// Who wants places, with the members that are pinned.
    pub gang: &'a Gang,
    /// Members that have their places.
    pub pinned: &'a [Pinned],
    /// Nodes on which nobody is placed.
    pub forbidden: &'a NodeSet,
    /// Whom the decision may disturb.
    pub preemption_budget: &'a PreemptionBudget,
    /// How places are compared. It must make sense in this world ([`PlacementPolicy::check`]).
    pub policy: &'a PlacementPolicy,
    /// Others that wait: they count for what is typical and for fair shares.
    pub waiting: &'a [Gang],
    /// Weights of tenants; 1 where none is named.
    pub weights: &'a BTreeMap<Arc<str>, u32>,
}

/// Decides, and keeps what makes the next decision fast. One for each world.
#[derive(Clone, Debug)]
pub struct Planner {
    /// None: single pods are searched for like gangs, and judged in every unit.
    packing: Option<PricePolicy>,
    cost_cache: CostCache,
    solver: Solver,
    meter: Meter,
}

impl Default for Planner {
    fn default() -> Self {
        Self::with_packing(PricePolicy::learned())
    }
}

impl Planner {
    /// A decider that goes on with what a packing policy has learned.
    pub fn with_packing(packing: PricePolicy) -> Self {
        Self { packing: Some(packing), ..Self::without_packing() }
    }

    /// A decider that searches a place for a single pod as for a gang, without a packing policy.
    pub fn without_packing() -> Self {
        let solver = Solver::new(Options::default());
        Self { packing: None, cost_cache: CostCache::default(), solver, meter: Meter::default() }
    }

    /// A decider that goes on from what a snapshot holds of the packing policy.
    pub fn restored(form: &PackingRecord, cluster: &Cluster) -> Result<Self, SnapshotError> {
        Ok(Self::with_packing(PricePolicy::restored(form, cluster)?))
    }

    /// What the packing policy has learned, for a snapshot; `None` without one.
    pub fn saved(&self, cluster: &Cluster) -> Option<PackingRecord> {
        self.packing.as_ref().map(|packing| packing.saved(cluster))
    }

    /// A pod of this shape has come. Told once for each pod, before it is decided on.
    pub fn arrived(&mut self, shape: &Arc<Shape>) {
        if let Some(packing) = &mut self.packing {
            packing.arrived(shape);
        }
    }

    /// A pod has left its place.
    pub fn released(&mut self, shape: &Arc<Shape>, placement: &Placement) {
        if let Some(packing) = &mut self.packing {
            packing.released(shape, placement);
        }
    }

    /// Decides. The world is as before afterwards: what is decided is the caller's to carry out.
    /// An error: the policy names a level that the world has not.
    pub fn decide(
        &mut self,
        world: &mut World,
        input: &DecisionInput<'_>,
    ) -> Result<PlanResult, PolicyError> {
        match self.plan_by_packing(world, input)? {
            Some(Err(refusal)) if !forbids_disruption(input) => {
                self.search(world, input, Some(refusal))
            }
            Some(answer) => Ok(answer),
            None => self.search(world, input, None),
        }
    }

    /// Places by the packing policy, where that is all there is to decide: a pod that may go anywhere.
    fn plan_by_packing(
        &mut self,
        world: &World,
        input: &DecisionInput<'_>,
    ) -> Result<Option<PlanResult>, PolicyError> {
        let ([group], Some(packing)) = (&input.gang.groups[..], &mut self.packing) else {
            return Ok(None);
        };
        let is_free = group.count == 1
            && input.pinned.is_empty()
            && input.forbidden.is_empty()
            && input.gang.profile.topology.required.is_none()
            && group.topology.required.is_none()
            && group.forbidden.is_empty()
            && group.limits.iter().all(|limit| limit.most > 0)
            && input.policy.is_packing_alone();
        if !is_free {
            return Ok(None);
        }
        let shares = FairShares::default();
        let cost_model =
            PolicyCostModel::new(world, input.policy, &NoFigures, &shares, &self.meter)?;
        let (cost_cache, profile) = (&mut self.cost_cache, &input.gang.profile);
        Ok(Some(pod_planner::plan_pod(
            world,
            &cost_model,
            packing,
            cost_cache,
            profile,
            &group.shape,
        )))
    }

    /// The gang search, and who may be disturbed. `refused` is what the packing policy said already.
    fn search(
        &mut self,
        world: &mut World,
        input: &DecisionInput<'_>,
        refused: Option<Refusal>,
    ) -> Result<PlanResult, PolicyError> {
        let solver = &mut self.solver;
        let found =
            Self::with_cost_model(&mut self.meter, world, input, |world, request, cost_model| {
                let Some(refusal) = refused else {
                    let mut context = RepairContext { solver, cost_model };
                    return repair::admit(world, &mut context, request, input.preemption_budget);
                };
                // The packing policy has refused: a search without victims would find nothing either.
                let plan = preemption::plan(world, request, input.preemption_budget, cost_model);
                plan.map_err(|other| Refusal {
                    reason: if matches!(other.reason, Reason::Steps { .. }) {
                        refusal.reason
                    } else {
                        other.reason
                    },
                    remedy: refusal.remedy.or(other.remedy),
                    steps: refusal.steps.saturating_add(other.steps),
                })
            })?;
        Ok(found.map_err(|refusal| {
            let remedy = raised_limit(&refusal.reason).or(refusal.remedy);
            Refusal { remedy, ..refusal }
        }))
    }

    /// The cheapest moves or evictions with which there would be a plan, for people: nothing is
    /// decided.
    /// An error: as for [`Self::decide`].
    pub fn cheapest_disruption(
        &mut self,
        world: &mut World,
        input: &DecisionInput<'_>,
    ) -> Result<Option<Remedy>, PolicyError> {
        Self::with_cost_model(&mut self.meter, world, input, |world, request, cost_model| {
            preemption::cheapest_remedy(world, request, PreemptionBudget::STEPS, cost_model)
        })
    }

    /// The plan that disturbs the fewest of those whom the case's allowance names, for people who were
    /// told that there is no place without: whether there is one is not asked again.
    /// An error: as for [`Self::decide`].
    pub fn disruption_plan(
        &mut self,
        world: &mut World,
        input: &DecisionInput<'_>,
    ) -> Result<PlanResult, PolicyError> {
        Self::with_cost_model(&mut self.meter, world, input, |world, request, cost_model| {
            preemption::plan(world, request, input.preemption_budget, cost_model)
        })
    }

    fn with_cost_model<T>(
        meter: &mut Meter,
        world: &mut World,
        input: &DecisionInput<'_>,
        ask: impl FnOnce(&mut World, &Request<'_>, &dyn CostModel) -> T,
    ) -> Result<T, PolicyError> {
        let typical = typical(world, input);
        let shares = fair_shares(world, input);
        meter.read(world);
        let price = |cluster: &Cluster, before: &NodeState, after: &NodeState| {
            // Stranded GPUs in millionths: the packing policy's own price is of single pods.
            stranded(&typical, cluster, before, after).saturating_mul(1000)
        };
        let figures = MeasuredFigures { typical: &typical, price };
        let cost_model = PolicyCostModel::new(world, input.policy, &figures, &shares, meter)?;
        let DecisionInput { gang, pinned, forbidden, .. } = *input;
        let request = Request { gang, pinned, forbidden, within: None };
        Ok(ask(world, &request, &cost_model))
    }
}

fn forbids_disruption(input: &DecisionInput<'_>) -> bool {
    input.preemption_budget.moves == 0 && input.preemption_budget.evictions.is_none()
}

/// Typical pods: those that run and those that want to.
fn typical(world: &World, input: &DecisionInput<'_>) -> TypicalPods {
    let members = world.workloads.iter().flat_map(|(_, workload)| &workload.members);
    let running = members.flatten().map(|member| (&*member.shape, 1));
    let gangs = std::iter::once(input.gang).chain(input.waiting);
    let groups = gangs.flat_map(|gang| &gang.groups);
    let wanted = groups.map(|group| (&*group.shape, u64::from(group.count)));
    TypicalPods::new(world.cluster.models(), running.chain(wanted))
}

fn stranded(
    typical: &TypicalPods,
    cluster: &Cluster,
    before: &NodeState,
    after: &NodeState,
) -> i64 {
    let amounts = |state| typical.amounts(&NodeResidual::of_state(cluster, state));
    amounts(after).minus(&amounts(before)).rounded_fragment()
}

/// Who has, wants and deserves what.
fn fair_shares(world: &World, input: &DecisionInput<'_>) -> FairShares {
    let DecisionInput { gang, pinned, .. } = *input;
    let mut waiting: BTreeMap<Arc<str>, i64> = BTreeMap::new();
    let waits = input.waiting.iter().filter(|other| {
        other.profile.name != gang.profile.name
            && world.workloads.named(&other.profile.name).is_none()
    });
    let parts = pinned.iter().flat_map(|pin| &pin.placement.gpus);
    let held: i64 = parts.map(|part| i64::from(part.milli)).sum();
    for (gang, held) in waits.map(|other| (other, 0)).chain([(gang, held)]) {
        let milli = milli(world, gang).saturating_sub(held);
        let of_tenant = waiting.entry(Arc::clone(&gang.profile.tenant)).or_default();
        *of_tenant = of_tenant.saturating_add(milli.max(0));
    }
    FairShares::of(world.cluster.totals().gpu_milli, &world.workloads, input.weights, &waiting)
}

/// Compute that a gang asks for; of a MIG profile what it is on the first model that has it.
fn milli(world: &World, gang: &Gang) -> i64 {
    let of_shape = |shape: &Shape| match &shape.gpus {
        GpuDemand::Mig { count, profile } => {
            let profiles = world.cluster.models().iter().find_map(|model| model.profile(profile));
            profiles.map_or(0, |profile| i64::from(profile.milli)) * i64::from(*count)
        }
        gpus => gpus.total_milli(),
    };
    let groups = gang.groups.iter();
    let of_group = groups.map(|group| of_shape(&group.shape).saturating_mul(group.count.into()));
    of_group.fold(0, i64::saturating_add)
}
