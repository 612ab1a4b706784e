//! The search for victims, on a snapshot: it can run on another thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::plan::{Placed, Plan};
use octavo_engine::planner::{DecisionInput, Planner};
use octavo_engine::preemption::PreemptionBudget;
use octavo_engine::solve::{NodeSet, Pinned};
use octavo_engine::workload::{MemberId, Profile, WorkloadId};
use octavo_engine::{Gang, NodeId, World};
use octavo_kube_io::objects::{NodeName, PodUid};

use super::HintRevision;
use crate::state::cache::engine_cache::Holder;
use crate::state::queue::QueueKey;

/// Priorities from here on belong to pods that the cluster itself needs.
const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// The engine's request for an entry.
#[derive(Clone, Debug)]
pub(super) struct HintRequest {
    pub(super) gang: Gang,
    pub(super) pinned: Vec<Pinned>,
    /// Pods by rank.
    pub(super) ranks: Vec<PodUid>,
    pub(super) forbidden: NodeSet,
    pub(super) policy: Arc<PlacementPolicy>,
    pub(super) may_preempt: bool,
}

/// A search for victims that would make an unschedulable entry schedulable.
#[derive(Debug)]
pub struct HintSearch {
    pub(super) key: QueueKey,
    pub(super) request: HintRequest,
    pub(super) revision: HintRevision,
    /// The steps that a search among some of the workloads may take, and one among all.
    pub(in crate::state) steps: u64,
    pub(super) snapshot: SearchSnapshot,
}

/// A copy of the engine's world.
#[derive(Debug)]
pub(super) struct SearchSnapshot {
    pub(super) world: World,
    pub(super) holders: BTreeMap<MemberId, Holder>,
    /// Workloads that could be evicted, and whether each could be moved.
    pub(super) candidates: Vec<(WorkloadId, bool)>,
}

/// The result of a search.
#[derive(Debug)]
pub struct HintResult {
    pub(super) key: QueueKey,
    pub(super) request: HintRequest,
    pub(super) revision: HintRevision,
    /// The steps that the search might take.
    pub(super) steps: u64,
    /// The victims; `None` if none were found.
    pub(super) leaving: Option<VictimSet>,
    /// Whether the search ran out of steps, so that other victims may exist.
    pub(super) is_truncated: bool,
    /// Whether the search among pods that may be disturbed ran out of steps, and all were considered
    /// then.
    pub(super) was_truncated: bool,
}

/// Victims by kind.
#[derive(Debug)]
pub(super) struct VictimSet {
    pub(super) evictions: Vec<Victim>,
    pub(super) moves: Vec<Victim>,
    /// The places that would become free: ranks and nodes.
    pub(super) places: Vec<(u32, NodeName)>,
}

/// A victim, as it was in the snapshot.
#[derive(Debug)]
pub(super) struct Victim {
    pub(super) holder: Option<Holder>,
    pub(super) workload: Arc<str>,
    pub(super) priority: i32,
    pub(super) node: String,
    pub(super) to: Option<String>,
}

impl HintSearch {
    /// Runs the search. It may take some seconds, and must not run on the decision thread.
    #[must_use]
    pub fn run(self) -> HintResult {
        let steps = self.steps;
        self.run_within(steps, steps)
    }

    /// Runs it with as many steps among workloads that only settings protect, movable ones and those
    /// of lower priority, and as many among all.
    pub(in crate::state) fn run_within(mut self, allowed_steps: u64, all_steps: u64) -> HintResult {
        let below = self.request.gang.profile.priority;
        let (mut plan, mut is_truncated) = self.cheapest(below, allowed_steps);
        let mut was_truncated = false;
        if plan.is_none() {
            was_truncated = is_truncated;
            self.consider_all();
            (plan, is_truncated) = self.cheapest(SYSTEM_CRITICAL_PRIORITY, all_steps);
        }
        let leaving = plan.map(|plan| VictimSet {
            evictions: plan.evictions.iter().map(|id| self.victim(*id, None)).collect(),
            moves: plan
                .moves
                .iter()
                .map(|step| self.victim(step.member, Some(step.to.node)))
                .collect(),
            places: plan.placements.iter().map(|placed| self.place(placed)).collect(),
        });
        // The snapshot is dropped here, because dropping it takes as long as the copy.
        let Self { key, request, revision, steps, .. } = self;
        HintResult { key, request, revision, steps, leaving, is_truncated, was_truncated }
    }

    /// Lets all candidates be evicted, and moved if they could be.
    fn consider_all(&mut self) {
        let workloads = &mut self.snapshot.world.workloads;
        workloads.eviction_limits.lift();
        for (id, is_movable) in std::mem::take(&mut self.snapshot.candidates) {
            let Some(workload) = workloads.workload(id) else { continue };
            let profile = Profile { is_preemptible: true, is_movable, ..workload.profile.clone() };
            let (min_members, coupling) = (workload.min_members, workload.coupling);
            workloads.describe(id, profile, min_members, coupling);
        }
    }

    /// The plan that disturbs the fewest pods below a priority, and whether the search ran out of
    /// steps.
    fn cheapest(&mut self, below: i32, steps: u64) -> (Option<Plan>, bool) {
        let Self { request, snapshot: SearchSnapshot { world, .. }, .. } = self;
        // A policy without preemption has no other opinion on victims.
        let default = PlacementPolicy::default();
        let policy = if request.policy.is_preempting() { &*request.policy } else { &default };
        let input = DecisionInput {
            gang: &request.gang,
            pinned: &request.pinned,
            forbidden: &request.forbidden,
            preemption_budget: &PreemptionBudget { steps, ..PreemptionBudget::none() },
            policy,
            waiting: &[],
            weights: &BTreeMap::new(),
        };
        Planner::cheapest_disruption(world, &input, below).unwrap_or_default()
    }

    fn place(&self, placed: &Placed) -> (u32, NodeName) {
        let name = self.snapshot.world.cluster.name(placed.placement.node);
        (placed.rank, name.into())
    }

    fn victim(&self, id: MemberId, to: Option<NodeId>) -> Victim {
        let World { cluster, workloads, .. } = &self.snapshot.world;
        let profile = workloads.workload(id.workload).map(|workload| &workload.profile);
        let node = workloads.member(id).map(|member| cluster.name(member.placement.node));
        Victim {
            holder: self.snapshot.holders.get(&id).cloned(),
            workload: profile.map_or_else(|| "".into(), |profile| Arc::clone(&profile.name)),
            priority: profile.map_or(0, |profile| profile.priority),
            node: node.unwrap_or_default().to_owned(),
            to: to.map(|node| cluster.name(node).to_owned()),
        }
    }
}
