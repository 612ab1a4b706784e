//! The search for victims of pods whose needs the engine does not count fully: claims that only the
//! allocator can decide, host ports, storage, limits of volumes, rules about other pods.
//!
//! The engine chooses nodes and victims by what it counts. Nodes that lack the rest now are allowed
//! if they would have it once those pods have left that may. Each plan is verified before any pod is
//! asked to leave. Nodes that fail are ruled out, and the engine is asked again.
//!
//! For a single pod, nodes are also tried one by one, so that the victims that matter least are
//! found even where the engine sees no reason for any.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_engine::explain::{self, Explanation, RefusalSummary};
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::placement::GpuParts;
use octavo_engine::plan::Placed;
use octavo_engine::planner::DecisionInput;
use octavo_engine::preemption::PreemptionBudget;
use octavo_engine::solve::NodeSet;
use octavo_engine::{Gang, Placement, Plan};
use octavo_kube_io::objects::{NodeName, PodUid};

use crate::devices::Ask;
use crate::state::Scheduler;
use crate::state::cycle::arrivals::Arrivals;
use crate::state::cycle::decide::{EngineAnswer, MAX_ATTEMPTS, MAX_TRIALS, Room};
use crate::state::cycle::gang_request::{GangRequest, Restrictions, RuledOutNodes};
use crate::state::cycle::verify::{PlanFault, VerifiedPlan};
use crate::state::queue::QueueKey;
use crate::state::reporter::pending_reason::{NodeError, PendingReason};
use crate::state::reporter::records::RecordedDecision;

/// Nodes on which victims are chosen, at most.
const MAX_NODES: usize = 64;

/// How much a plan disturbs; the least is the best.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Disturbance {
    highest: i32,
    count: usize,
    priorities: i64,
}

/// One search of an entry: what it may disturb, and on which nodes.
struct Round<'b> {
    budget: PreemptionBudget,
    restrictions: Restrictions,
    room: Room<'b>,
}

/// A plan that holds.
struct Found {
    verified: VerifiedPlan,
    explanation: Explanation,
    record: Option<RecordedDecision>,
}

/// A pod in no gang that searches for victims.
pub(in crate::state) struct SinglePod<'a> {
    pub(in crate::state) uid: &'a PodUid,
    pub(in crate::state) ask: &'a Ask,
    pub(in crate::state) gang: &'a Gang,
}

impl Scheduler {
    /// Searches for victims. `request` builds the engine's request under restrictions and for a room.
    /// Fails with the reason why the entry stays pending.
    pub(in crate::state) fn search_victims(
        &mut self,
        key: &QueueKey,
        budget: &PreemptionBudget,
        policy: &PlacementPolicy,
        restrictions: &Restrictions,
        mut last: Option<NodeError>,
        mut request: impl FnMut(
            &mut Self,
            &Restrictions,
            Room<'_>,
        ) -> Result<GangRequest, PendingReason>,
    ) -> Result<(VerifiedPlan, Explanation), PendingReason> {
        self.update_allowances();
        let leaving = self.reservations.all_victims();
        let after = Room::After { budget, leaving: &leaving };
        let mut best: Option<Found> = None;
        // Fewer pods may have to leave where nothing else is taken.
        for room in [Room::Now, after] {
            let mut round =
                Round { budget: budget.clone(), restrictions: restrictions.clone(), room };
            let may_help =
                self.victims_in_room(key, &mut round, policy, &mut request, &mut best, &mut last)?;
            if !may_help {
                break;
            }
        }
        let Some(Found { verified, explanation, record }) = best else {
            return Err(self.reason_without_victims(key, policy, last, request)?);
        };
        if let Some(record) = record {
            self.reporter.record(key, record);
        }
        Ok((verified, explanation))
    }

    /// Asks the engine until a plan holds. `best` becomes the one that disturbs least, `last` the last
    /// fault of one. Returns whether victims on other nodes may help.
    fn victims_in_room(
        &mut self,
        key: &QueueKey,
        round: &mut Round<'_>,
        policy: &PlacementPolicy,
        request: &mut impl FnMut(
            &mut Self,
            &Restrictions,
            Room<'_>,
        ) -> Result<GangRequest, PendingReason>,
        best: &mut Option<Found>,
        last: &mut Option<NodeError>,
    ) -> Result<bool, PendingReason> {
        let Round { budget, restrictions, room } = round;
        for _ in 0..MAX_ATTEMPTS {
            if budget.moves == 0 && budget.evictions.is_none() {
                break;
            }
            let mut asked = request(self, restrictions, *room)?;
            if budget.moves > 0 {
                asked.forbid_by_group();
            }
            let is_same_in_all = !asked.has_uncounted && matches!(room, Room::Now);
            if is_same_in_all || asked.shares_claim || asked.gang.groups.is_empty() {
                break;
            }
            self.cache.add_preferences(&mut asked, policy);
            let GangRequest { gang, pinned, forbidden, .. } = &asked;
            let EngineAnswer { answer, record, .. } =
                self.ask_engine_for_record(key, gang, pinned, forbidden, budget, policy)?;
            let Ok(plan) = answer else { break };
            let members = asked.members_of(&plan);
            match self.verify_plan(key, members, plan, budget, policy) {
                Ok(mut verified) => {
                    let dearer = std::mem::take(&mut verified.dearer);
                    let disturbs = |plan: &VerifiedPlan| self.disturbance(&plan.plan);
                    let is_better = |best: &Found| disturbs(&verified) < disturbs(&best.verified);
                    if best.as_ref().is_none_or(is_better) {
                        let explanation = self.explain_plan(&verified, &asked.gang, policy);
                        *best = Some(Found { verified, explanation, record });
                    }
                    if dearer.is_empty() {
                        break;
                    }
                    asked.restrict(restrictions, &dearer);
                }
                Err(PlanFault::Places(failed, error)) => {
                    asked.restrict(restrictions, &failed);
                    *last = Some(error);
                }
                Err(PlanFault::Moves(error)) => {
                    budget.moves = 0;
                    *last = Some(error);
                }
                Err(PlanFault::Final(error)) => {
                    *last = Some(error);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Why an entry is pending whose needs the engine does not count fully: what it would lack even
    /// if the allocator's devices were all free, or else that other pods hold them.
    fn reason_without_victims(
        &mut self,
        key: &QueueKey,
        policy: &PlacementPolicy,
        last: Option<NodeError>,
        mut request: impl FnMut(
            &mut Self,
            &Restrictions,
            Room<'_>,
        ) -> Result<GangRequest, PendingReason>,
    ) -> Result<PendingReason, PendingReason> {
        let mut restrictions = Restrictions::default();
        let mut asked = request(self, &restrictions, Room::Empty)?;
        for _ in 0..MAX_ATTEMPTS {
            let case = DecisionInput {
                gang: &asked.gang,
                pinned: &asked.pinned,
                forbidden: &asked.forbidden,
                preemption_budget: &PreemptionBudget::none(),
                policy,
                waiting: &[],
                weights: &BTreeMap::new(),
            };
            let (answer, explanation) = self.cache.answer(&case)?;
            let Ok(plan) = answer else {
                let infeasible = self.infeasible_nodes(key).with_caveats(asked.caveats);
                self.reporter.log_decision(key, explanation.clone());
                return Ok(PendingReason::Unschedulable(Box::new(explanation), infeasible));
            };
            let failed = self.failed_when_empty(&asked.members_of(&plan));
            if failed.is_empty() {
                break;
            }
            asked.restrict(&mut restrictions, &failed);
            asked = request(self, &restrictions, Room::Empty)?;
        }
        let infeasible = self.infeasible_nodes(key).with_caveats(asked.caveats);
        let reason = PendingReason::Taken { last, infeasible };
        let refusal = RefusalSummary {
            request: asked.gang.profile.name.to_string(),
            policy: policy.name().to_owned(),
            reason: "Taken".to_owned(),
            message: reason.message(),
            summary: reason.status_text().message,
            nodes: Vec::new(),
            remedy: None,
            steps: 0,
        };
        self.reporter.log_decision(key, Explanation::Refused(refusal));
        Ok(reason)
    }

    /// Searches for the victims of a single pod.
    pub(in crate::state) fn search_victims_of_pod(
        &mut self,
        key: &QueueKey,
        pod: &SinglePod<'_>,
        budget: &PreemptionBudget,
        policy: &PlacementPolicy,
        ruled_out: &NodeSet,
        mut last: Option<NodeError>,
    ) -> Result<(VerifiedPlan, Explanation), PendingReason> {
        // Trials and the engine take the same victims.
        self.update_allowances();
        let SinglePod { uid, ask, gang } = *pod;
        let none = PreemptionBudget::none();
        let mut budget = budget;
        if let Some(node) = self.node_being_left(uid, ask) {
            // No other pod has to leave.
            budget = &none;
            let message = "pods that are leaving have not left yet".to_owned();
            last = Some(NodeError { node: node.to_string(), message });
        }
        let has_uncounted = self.cache.has_uncounted(uid, ask);
        let below = budget.evictions.as_ref().map(|scope| scope.below_priority);
        let by_trial = below.and_then(|below| self.plan_by_trial(uid, ask, below, policy));
        let mut closed = RuledOutNodes::new();
        if !ruled_out.is_empty() {
            closed.insert(uid.clone(), Arc::new(ruled_out.clone()));
        }
        let restrictions = Restrictions::without(closed);
        let request = |scheduler: &mut Self, restrictions: &Restrictions, room: Room<'_>| {
            let cache = &mut scheduler.cache;
            let mask = cache.pod(uid).and_then(|record| record.node_mask.as_ref());
            let (mask, ..) = *mask.ok_or(PendingReason::Gone)?;
            let away = cache.exclusions(uid);
            let mut forbidden = cache.forbidden_nodes(uid, mask, ask, &away, room);
            forbidden.extend(restrictions.ruled_out(uid).iter().flat_map(|nodes| nodes.iter()));
            Ok(GangRequest::of_pod(uid, gang, forbidden, has_uncounted))
        };
        let by_engine = self.search_victims(key, budget, policy, &restrictions, last, request);
        let Some(trial) = by_trial else { return by_engine };
        if let Ok((engine, explanation)) = by_engine
            && self.disturbance(&engine.plan) < self.disturbance(&trial.plan)
        {
            return Ok((engine, explanation));
        }
        let explanation = self.explain_plan(&trial, gang, policy);
        Ok((trial, explanation))
    }

    fn explain_plan(
        &self,
        verified: &VerifiedPlan,
        gang: &Gang,
        policy: &PlacementPolicy,
    ) -> Explanation {
        let answer = Ok(verified.plan.clone());
        explain::answer(&self.cache.engine().world, policy, gang, &answer)
    }

    /// A node that serves a pod once the victims of other nominations have left it.
    fn node_being_left(&mut self, uid: &PodUid, ask: &Ask) -> Option<NodeName> {
        let leaving = self.reservations.all_victims();
        let records = leaving.iter().filter_map(|uid| self.cache.pod(uid));
        let nodes = records.filter_map(|record| Some(record.place.as_ref()?.node.clone()));
        nodes.collect::<BTreeSet<_>>().into_iter().find(|node| {
            let pods = vec![(uid.clone(), ask.clone(), GpuParts::new())];
            let (beside, moved) = (Vec::new(), &BTreeSet::new());
            let arrivals = Arrivals { node, pods, beside, moved, checks_neighbours: true };
            self.cache.check_node_rules(uid, node).is_ok()
                && self.cache.may_allocate_devices(ask, node)
                && self.cache.victims_on(&arrivals, &leaving, None).is_ok()
        })
    }

    /// The disturbance of a plan. Moved pods count without their priority.
    fn disturbance(&self, plan: &Plan) -> Disturbance {
        let holders = plan.evictions.iter().filter_map(|id| self.cache.engine().holder(*id));
        let records = holders.filter_map(|holder| self.cache.pod(holder));
        let priorities: Vec<i32> = records.map(|record| record.pod.spec.priority).collect();
        Disturbance {
            highest: priorities.iter().copied().max().unwrap_or(i32::MIN),
            count: plan.evictions.len() + plan.moves.len(),
            priorities: priorities.iter().map(|priority| i64::from(*priority)).sum(),
        }
    }

    /// A plan that evicts single pods below a priority for a single pod, found by trying nodes.
    fn plan_by_trial(
        &mut self,
        uid: &PodUid,
        ask: &Ask,
        below: i32,
        policy: &PlacementPolicy,
    ) -> Option<VerifiedPlan> {
        if policy.has_limits() {
            // Only the engine can judge these.
            return None;
        }
        let leaving = self.reservations.all_victims();
        let mut names: Vec<NodeName> = self.cache.nodes().keys().cloned().collect();
        // Each trial begins with other nodes, so that none is never tried.
        let first = self.trials_begun % names.len().max(1);
        self.trials_begun = self.trials_begun.wrapping_add(MAX_NODES);
        names.rotate_left(first);
        let mut best: Option<(Disturbance, NodeName, VerifiedPlan)> = None;
        let (mut chosen, mut trials) = (0, 0);
        for node in names {
            if chosen == MAX_NODES || trials == MAX_TRIALS {
                break;
            }
            if self.cache.check_node_rules(uid, &node).is_err()
                || !self.cache.may_allocate_devices(ask, &node)
                || self.has_protected_borrower(&node, Some(below))
                || !self.cache.has_candidates(uid, ask, &node, below, &leaving)
            {
                continue;
            }
            trials += 1;
            let Some(verified) = self.trial_on(uid, ask, &node, below, &leaving) else { continue };
            if !self.respects_limits(&self.cache.victims_of(&verified.plan), policy) {
                continue;
            }
            chosen += 1;
            let disturbance = self.disturbance(&verified.plan);
            let is_better =
                best.as_ref().is_none_or(|(least, at, _)| (&disturbance, &node) < (least, at));
            if is_better {
                best = Some((disturbance, node, verified));
            }
        }
        best.map(|(.., verified)| verified)
    }

    /// A plan that evicts single pods of one node.
    fn trial_on(
        &mut self,
        uid: &PodUid,
        ask: &Ask,
        node: &NodeName,
        below: i32,
        leaving: &BTreeSet<PodUid>,
    ) -> Option<VerifiedPlan> {
        let id = self.cache.engine().node(node)?;
        let placement = Placement { node: id, gpus: GpuParts::new() };
        let mut placed = Placed { group: 0, rank: 0, placement };
        let pods = vec![(uid.clone(), ask.clone(), GpuParts::new())];
        let (beside, moved) = (Vec::new(), &BTreeSet::new());
        let arrivals = Arrivals { node, pods, beside, moved, checks_neighbours: true };
        let (all, mut found) = self.cache.victims_on(&arrivals, leaving, Some(below)).ok()?;
        let victims = all?.difference(leaving).cloned().collect();
        let devices = found.pop();
        if let Some(allocation) = &devices {
            placed.placement.gpus.clone_from(&allocation.parts);
        }
        let members = vec![(uid.clone(), placed)];
        let mut plan = Plan::default();
        self.cache.extend_plan(&mut plan, &victims, &members);
        let devices = devices.into_iter().collect();
        Some(VerifiedPlan { plan, members, devices, dearer: Vec::new() })
    }
}
