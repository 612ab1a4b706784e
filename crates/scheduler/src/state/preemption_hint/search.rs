//! The search itself, on a picture of its own: it needs nothing of those who decide, so that it can be run
//! beside them.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_engine::decider::{Case, Decider};
use octavo_engine::decision::Plan;
use octavo_engine::disturb::Allowance;
use octavo_engine::objective::Unit as CostTerm;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::solve::{NodeSet, Pinned};
use octavo_engine::workload::{MemberId, Profile, WorkloadId};
use octavo_engine::{Gang, NodeId, World};

use super::HintRevision;
use crate::state::engine_cache::Holder;
use crate::state::queue::QueueKey;

/// Priorities from here on are of what the cluster itself needs.
const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// What a unit asks the engine for.
#[derive(Clone, Debug)]
pub(super) struct HintRequest {
    pub(super) gang: Gang,
    pub(super) pinned: Vec<Pinned>,
    pub(super) forbidden: NodeSet,
    pub(super) policy: Arc<PlacementPolicy>,
    pub(super) may_preempt: bool,
}

/// Among whom is looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CandidateScope {
    /// Those whom settings alone protect: pods that may be moved, and pods of lower priority.
    Allowed,
    /// All.
    All,
}

/// A search for who would have to go so that something that was refused would have its place.
#[derive(Debug)]
pub struct HintSearch {
    pub(super) key: QueueKey,
    pub(super) request: HintRequest,
    pub(super) scope: CandidateScope,
    pub(super) revision: HintRevision,
    pub(in crate::state) steps: u64,
    pub(super) snapshot: SearchSnapshot,
    /// Whether a search among fewer, which found nobody, was ended before.
    pub(super) was_truncated: bool,
    /// Those who are in reach beside what the world says, and whether they may be moved.
    pub(super) candidates: Vec<(WorkloadId, bool)>,
}

/// What was seen when it was looked for: a copy.
#[derive(Debug)]
pub(super) struct SearchSnapshot {
    pub(super) world: World,
    pub(super) holders: BTreeMap<MemberId, Holder>,
}

/// What a search has found.
#[derive(Debug)]
pub struct HintResult {
    pub(super) key: QueueKey,
    pub(super) request: HintRequest,
    pub(super) scope: CandidateScope,
    pub(super) revision: HintRevision,
    /// Who would have to go; `None`: nobody's going was found to help.
    pub(super) leaving: Option<VictimSet>,
    /// Whether there may be others, because the search was ended.
    pub(super) is_truncated: bool,
    /// Whether there may be some among fewer, because the search for those was ended.
    pub(super) was_truncated: bool,
    /// Where the next search looks, if it takes one.
    pub(super) snapshot: Option<SearchSnapshot>,
}

/// Who would have to go.
#[derive(Debug)]
pub(super) struct VictimSet {
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

impl HintSearch {
    /// Looks. It may take a second, and those who decide are not asked meanwhile.
    #[must_use]
    pub fn run(mut self) -> HintResult {
        for (id, is_movable) in std::mem::take(&mut self.candidates) {
            let workloads = &mut self.snapshot.world.workloads;
            let Some(workload) = workloads.workload(id) else { continue };
            let profile = Profile { is_preemptible: true, is_movable, ..workload.profile.clone() };
            let (min_members, bonds) = (workload.min_members, workload.bonds);
            workloads.describe(id, profile, min_members, bonds);
        }
        let (plan, is_truncated) = self.cheapest();
        let leaving = plan.map(|plan| VictimSet {
            evictions: plan.evictions.iter().map(|id| self.victim(*id, None)).collect(),
            moves: plan
                .moves
                .iter()
                .map(|step| self.victim(step.member, Some(step.to.node)))
                .collect(),
        });
        let Self { key, request, scope, revision, snapshot, was_truncated, .. } = self;
        // What nobody needs any more is not dropped by those who decide: that takes as long as the copy.
        let snapshot = (leaving.is_none() && scope == CandidateScope::Allowed).then_some(snapshot);
        HintResult { key, request, scope, revision, leaving, is_truncated, was_truncated, snapshot }
    }

    /// The plan that disturbs fewer pods: moves, or evictions below a priority; of equals the moves. And
    /// whether a search was ended.
    fn cheapest(&mut self) -> (Option<Plan>, bool) {
        let Self { request, snapshot: SearchSnapshot { world, .. }, scope, steps, .. } = self;
        let below = match scope {
            CandidateScope::Allowed => request.gang.profile.priority,
            CandidateScope::All => SYSTEM_CRITICAL_PRIORITY,
        };
        // A policy that takes nothing from others has an opinion on that alone.
        let default = PlacementPolicy::default();
        let policy = if request.policy.is_preempting() { &*request.policy } else { &default };
        // Prices of single pods have no say in it.
        let mut decider = Decider::searching();
        let mut is_truncated = false;
        let mut ask = |allowance: Allowance| {
            let case = Case {
                gang: &request.gang,
                pinned: &request.pinned,
                forbidden: &request.forbidden,
                allowance: &Allowance { steps: *steps, ..allowance },
                policy,
                waiting: &[],
                weights: &BTreeMap::new(),
            };
            let answer = decider.disturbing_plan(world, &case).ok()?;
            let spent = answer.as_ref().map_or_else(|refusal| refusal.steps, |plan| plan.steps);
            is_truncated |= spent > *steps;
            answer.ok().filter(|plan| !plan.moves.is_empty() || !plan.evictions.is_empty())
        };
        let moves = ask(Allowance::moves(u32::MAX));
        let evictions = ask(Allowance::evictions_below(below));
        let pods = |plan: &Plan| plan.cost.of(CostTerm::PodsDisturbed);
        let best = match (moves, evictions) {
            (Some(moves), Some(evictions)) if pods(&evictions) < pods(&moves) => Some(evictions),
            (Some(moves), _) => Some(moves),
            (None, evictions) => evictions,
        };
        (best, is_truncated)
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
