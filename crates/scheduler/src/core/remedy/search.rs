//! The search itself, on a picture of its own: it needs nothing of those who decide, so that it can be run
//! beside them.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_engine::objective::CostTerm;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::plan::Plan;
use octavo_engine::planner::{DecisionInput, Planner};
use octavo_engine::preemption::PreemptionBudget;
use octavo_engine::solve::{NodeSet, Pinned};
use octavo_engine::workload::{MemberId, Profile, WorkloadId};
use octavo_engine::{Gang, NodeId, World};

use super::Epoch;
use crate::core::picture::Holder;
use crate::core::queue::Unit;

/// Priorities from here on are of what the cluster itself needs.
const CRITICAL: i32 = 2_000_000_000;

/// What a unit asks the engine for.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) gang: Gang,
    pub(super) pinned: Vec<Pinned>,
    pub(super) forbidden: NodeSet,
    pub(super) policy: Arc<PlacementPolicy>,
    pub(super) may_preempt: bool,
}

/// Among whom is looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Those whom settings alone protect: pods that may be moved, and pods of lower priority.
    Allowed,
    /// Everybody.
    Everybody,
}

/// A search for who would have to go so that something that was refused would have its place.
#[derive(Debug)]
pub struct Search {
    pub(super) unit: Unit,
    pub(super) wish: Wish,
    pub(super) reach: Reach,
    pub(super) epoch: Epoch,
    pub(in crate::core) steps: u64,
    pub(super) seen: Seen,
    /// Whether a search among fewer, which found nobody, was ended before.
    pub(super) was_cut: bool,
    /// Those who are in reach beside what the world says, and whether they may be moved.
    pub(super) in_reach: Vec<(WorkloadId, bool)>,
}

/// What was seen when it was looked for: a copy.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) world: World,
    pub(super) holders: BTreeMap<MemberId, Holder>,
}

/// What a search has found.
#[derive(Debug)]
pub struct Found {
    pub(super) unit: Unit,
    pub(super) wish: Wish,
    pub(super) reach: Reach,
    pub(super) epoch: Epoch,
    /// Who would have to go; `None`: nobody's going was found to help.
    pub(super) leaving: Option<Leaving>,
    /// Whether there may be others, because the search was ended.
    pub(super) is_cut: bool,
    /// Whether there may be some among fewer, because the search for those was ended.
    pub(super) was_cut: bool,
    /// Where the next search looks, if it takes one.
    pub(super) seen: Option<Seen>,
}

/// Who would have to go.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) evictions: Vec<Victim>,
    pub(super) moves: Vec<Victim>,
}

/// One who would have to go, as he was when it was looked for.
#[derive(Debug)]
pub(super) struct Victim {
    pub(super) holder: Option<Holder>,
    pub(super) workload: Arc<str>,
    pub(super) priority: i32,
    pub(super) node: String,
    pub(super) to: Option<String>,
}

impl Search {
    /// Looks. It may take a second, and those who decide are not asked meanwhile.
    #[must_use]
    pub fn run(mut self) -> Found {
        for (id, is_movable) in std::mem::take(&mut self.in_reach) {
            let workloads = &mut self.seen.world.workloads;
            let Some(workload) = workloads.workload(id) else { continue };
            let profile = Profile { is_preemptible: true, is_movable, ..workload.profile.clone() };
            let (min_members, coupling) = (workload.min_members, workload.coupling);
            workloads.describe(id, profile, min_members, coupling);
        }
        let (plan, is_cut) = self.cheapest();
        let leaving = plan.map(|plan| Leaving {
            evictions: plan.evictions.iter().map(|id| self.victim(*id, None)).collect(),
            moves: plan
                .moves
                .iter()
                .map(|step| self.victim(step.member, Some(step.to.node)))
                .collect(),
        });
        let Self { unit, wish, reach, epoch, seen, was_cut, .. } = self;
        // What nobody needs any more is not dropped by those who decide: that takes as long as the copy.
        let seen = (leaving.is_none() && reach == Reach::Allowed).then_some(seen);
        Found { unit, wish, reach, epoch, leaving, is_cut, was_cut, seen }
    }

    /// The plan that disturbs fewer pods: moves, or evictions below a priority; of equals the moves. And
    /// whether a search was ended.
    fn cheapest(&mut self) -> (Option<Plan>, bool) {
        let Self { wish, seen: Seen { world, .. }, reach, steps, .. } = self;
        let below = match reach {
            Reach::Allowed => wish.gang.profile.priority,
            Reach::Everybody => CRITICAL,
        };
        // A policy that takes nothing from others has an opinion on that alone.
        let default = PlacementPolicy::default();
        let policy = if wish.policy.is_preempting() { &*wish.policy } else { &default };
        // Prices of single pods have no say in it.
        let mut planner = Planner::without_packing();
        let mut is_cut = false;
        let mut ask = |preemption_budget: PreemptionBudget| {
            let case = DecisionInput {
                gang: &wish.gang,
                pinned: &wish.pinned,
                forbidden: &wish.forbidden,
                preemption_budget: &PreemptionBudget { steps: *steps, ..preemption_budget },
                policy,
                waiting: &[],
                weights: &BTreeMap::new(),
            };
            let answer = planner.disruption_plan(world, &case).ok()?;
            let spent = answer.as_ref().map_or_else(|refusal| refusal.steps, |plan| plan.steps);
            is_cut |= spent > *steps;
            answer.ok().filter(|plan| !plan.moves.is_empty() || !plan.evictions.is_empty())
        };
        let moves = ask(PreemptionBudget::moves(u32::MAX));
        let evictions = ask(PreemptionBudget::evictions_below(below));
        let pods = |plan: &Plan| plan.cost.of(CostTerm::PodsDisturbed);
        let best = match (moves, evictions) {
            (Some(moves), Some(evictions)) if pods(&evictions) < pods(&moves) => Some(evictions),
            (Some(moves), _) => Some(moves),
            (None, evictions) => evictions,
        };
        (best, is_cut)
    }

    fn victim(&self, id: MemberId, to: Option<NodeId>) -> Victim {
        let World { cluster, workloads, .. } = &self.seen.world;
        let profile = workloads.workload(id.workload).map(|workload| &workload.profile);
        let node = workloads.member(id).map(|member| cluster.name(member.placement.node));
        Victim {
            holder: self.seen.holders.get(&id).cloned(),
            workload: profile.map_or_else(|| "".into(), |profile| Arc::clone(&profile.name)),
            priority: profile.map_or(0, |profile| profile.priority),
            node: node.unwrap_or_default().to_owned(),
            to: to.map(|node| cluster.name(node).to_owned()),
        }
    }
}
