//! Decisions on gangs: all required members get places together, or none does. Placed members are
//! pinned, so late and recreated members join the gang.

use std::sync::Arc;

use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::plan::Placed;
use octavo_engine::preemption::PreemptionBudget;
use octavo_engine::solve::NodeSet;
use octavo_engine::{NodeId, Placement};

use octavo_kube_io::objects::{NodeName, PodUid};

use crate::devices::AskedClaim;
use crate::groups::{GroupName, GroupSpec};
use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::cycle::decide::{Attempt, MAX_ATTEMPTS, Room};
use crate::state::cycle::gang_request::{
    GangRequest, IncompleteSegment, Restrictions, RuledOutNodes, rule_out,
};
use crate::state::cycle::refusal_cache::LastRefusal;
use crate::state::cycle::reserve::{AssumedPlacement, ReserveError};
use crate::state::cycle::verify::PlanFault;
use crate::state::queue::{QueueKey, Search, State};
use crate::state::reporter::pending_reason::{NodeError, PendingReason};

/// Maximum number of attempts of one decision in addition to [`MAX_ATTEMPTS`].
const MAX_GANG_ATTEMPTS: usize = 120;

/// State of one decision.
struct GangSearch {
    attempt: Attempt,
    spec: Arc<GroupSpec>,
    policy: Arc<PlacementPolicy>,
    preemption_budget: PreemptionBudget,
    /// Members with places, not submitted yet.
    assumed: Vec<AssumedPlacement>,
    /// Nodes that failed regardless of the other members, or as the first place.
    ruled_out: RuledOutNodes,
    /// These, and nodes that failed beside the assumed members.
    ruled_out_now: RuledOutNodes,
    /// Nodes to rule out after a restart, with the pods they failed for.
    failed_nodes: Vec<(Vec<PodUid>, NodeId)>,
    /// All nodes that failed for a member.
    nodes_tried: NodeSet,
    /// The last failure.
    last_error: Option<NodeError>,
    /// Whether rules among the members have kept one away from a node.
    was_kept_apart: bool,
    /// Whether all members were unreserved, those in kept places too.
    has_restarted: bool,
}

impl GangSearch {
    fn new(
        attempt: Attempt,
        spec: Arc<GroupSpec>,
        policy: Arc<PlacementPolicy>,
        preemption_budget: PreemptionBudget,
        assumed: Vec<AssumedPlacement>,
    ) -> Self {
        Self {
            attempt,
            spec,
            policy,
            preemption_budget,
            assumed,
            ruled_out: RuledOutNodes::new(),
            ruled_out_now: RuledOutNodes::new(),
            failed_nodes: Vec::new(),
            nodes_tried: NodeSet::new(),
            last_error: None,
            was_kept_apart: false,
            has_restarted: false,
        }
    }

    /// Starts again without assumed members.
    fn restart(&mut self) {
        self.has_restarted = true;
        for (uids, node) in self.failed_nodes.drain(..) {
            rule_out(&mut self.ruled_out, &uids, node);
        }
        self.ruled_out_now.clone_from(&self.ruled_out);
    }
}

/// Why members stay pending after all that fit have places.
fn reason_for_unplaced(incomplete: Vec<IncompleteSegment>) -> PendingReason {
    if incomplete.is_empty() {
        PendingReason::Surplus
    } else {
        PendingReason::Incomplete(incomplete)
    }
}

impl Scheduler {
    /// Decides on a gang.
    pub(in crate::state) fn decide_group(&mut self, group: &GroupName) {
        let key = QueueKey::Group(group.clone());
        let attempt = self.attempt_for(&key);
        let search = if attempt == Attempt::Full { Search::Full } else { Search::WithoutVictims };
        if let Err(reason) = self.schedule_group(group, &key, attempt) {
            self.refusals.last.search = search;
            self.attempt_refused(&key, attempt, &reason);
        }
    }

    /// Binds or nominates a gang.
    pub(in crate::state) fn schedule_group(
        &mut self,
        group: &GroupName,
        key: &QueueKey,
        attempt: Attempt,
    ) -> Result<(), PendingReason> {
        self.refusals.last = LastRefusal::default();
        let spec = self.cache.spec_of(group).ok_or(PendingReason::Gone)?;
        if !self.cache.has_pending_members(group) {
            self.queue.remove(key);
            self.reporter.forget_pending(key);
            self.reporter.report_group(group);
            return Ok(());
        }
        let missing = self.cache.missing(group, &spec);
        if !missing.is_empty() {
            return Err(PendingReason::Gathering(missing));
        }
        let policy =
            self.cache.policies().find(spec.policy.as_deref()).map_err(PendingReason::NoPolicy)?;
        let repair = self.cache.repair_policy(group, &spec, policy);
        let is_repair = repair.is_some();
        let policy = repair.map_or_else(|| Arc::clone(policy), Arc::new);
        let places = self.take_member_places(group);
        let successors = self.cache.successors(group, &places);
        let outcome = self
            .reserve_member_places(&places, &successors)
            .and_then(|assumed| self.schedule_beside(group, key, attempt, spec, policy, assumed));
        self.restore_member_places(places, &successors, outcome.as_ref().ok().copied());
        if is_repair && outcome.is_ok() && self.queue.is_refused(key) {
            // Members above the minimum are next, and leave spare nodes free.
            self.queue.set_state(key, State::Ready);
        }
        outcome.map(|_| ())
    }

    /// Finds places for the members that have none, beside those that are assumed already. Returns
    /// whether all have new places, because the others had none beside the assumed ones.
    fn schedule_beside(
        &mut self,
        group: &GroupName,
        key: &QueueKey,
        attempt: Attempt,
        spec: Arc<GroupSpec>,
        policy: Arc<PlacementPolicy>,
        assumed: Vec<AssumedPlacement>,
    ) -> Result<bool, PendingReason> {
        let none = PreemptionBudget::none();
        let mut search = GangSearch::new(attempt, spec, policy, none, assumed);
        let outcome = self.gang_request(group, &search.spec).and_then(|request| {
            let priority = request.gang.profile.priority;
            let may_preempt = self.cache.may_preempt(group);
            search.preemption_budget =
                self.cache.preemption_budget(attempt, priority, may_preempt, &search.policy);
            self.search_group(group, key, request, &mut search)
        });
        self.unreserve_all(&mut search.assumed);
        outcome.map(|()| search.has_restarted)
    }

    /// Asks the engine until all members have places. Members whose places succeed stay assumed
    /// while the others are asked for again, so that only real free capacity is offered. If that
    /// fails, all are unreserved and the failed nodes are ruled out.
    fn search_group(
        &mut self,
        group: &GroupName,
        key: &QueueKey,
        mut request: GangRequest,
        search: &mut GangSearch,
    ) -> Result<(), PendingReason> {
        let policy = Arc::clone(&search.policy);
        if !search.assumed.is_empty() && request.pinned.len() == request.ranks.len() {
            let assumed = std::mem::take(&mut search.assumed);
            self.finish_gang_placement(key, assumed, &reason_for_unplaced(request.incomplete));
            return Ok(());
        }
        for _ in 0..MAX_ATTEMPTS + request.ranks.len().min(MAX_GANG_ATTEMPTS) {
            if request.gang.groups.is_empty() {
                return Err(PendingReason::Incomplete(request.incomplete));
            }
            // No eviction for a place that may fail.
            let is_sure =
                search.assumed.is_empty() && !request.shares_claim && !request.has_uncounted;
            let preemption_budget =
                if is_sure { search.preemption_budget.clone() } else { PreemptionBudget::none() };
            self.cache.add_preferences(&mut request, &policy);
            let GangRequest { gang, pinned, forbidden, .. } = &request;
            let (answer, explanation) = self.ask_engine(
                search.attempt,
                key,
                gang,
                pinned,
                forbidden,
                &preemption_budget,
                &policy,
            )?;
            let Ok(plan) = answer else {
                if !search.assumed.is_empty() {
                    self.cache.note_dead_end(&request.ranks, search);
                    self.unreserve_all(&mut search.assumed);
                    search.restart();
                    request =
                        self.gang_request_excluding(group, &search.spec, &search.ruled_out)?;
                    continue;
                }
                if search.attempt != Attempt::Full {
                    return Err(PendingReason::NoFreePlace);
                }
                if request.has_uncounted && self.cache.unusable_volume(key).is_none() {
                    let last = search.last_error.take();
                    let restrictions = Restrictions::default();
                    return self.preempt_for_group(group, key, search, &restrictions, last);
                }
                let reason = if let Some(last) = search.last_error.take() {
                    PendingReason::NoDevices { nodes: search.nodes_tried.len(), last }
                } else if let Some(unfit) = self.cache.unusable_volume(key) {
                    PendingReason::Volumes(unfit)
                } else {
                    let infeasible = self.infeasible_nodes(key).with_caveats(request.caveats);
                    PendingReason::Unschedulable(Box::new(explanation.clone()), infeasible)
                };
                self.reporter.log_decision(key, explanation);
                self.roll_back_allocations(key);
                return Err(reason);
            };
            let members = request.members_of(&plan);
            if !plan.evictions.is_empty() || !plan.moves.is_empty() {
                let (budget, mut restrictions) =
                    (&search.preemption_budget, Restrictions::without(search.ruled_out.clone()));
                return match self.verify_plan(key, members, plan, budget, &policy) {
                    Ok(verified) => {
                        self.reporter.log_decision(key, explanation);
                        self.nominate(key, verified)
                    }
                    Err(PlanFault::Places(failed, error)) => {
                        request.restrict(&mut restrictions, &failed);
                        self.preempt_for_group(group, key, search, &restrictions, Some(error))
                    }
                    Err(PlanFault::Moves(_)) => {
                        search.preemption_budget.moves = 0;
                        continue;
                    }
                    Err(PlanFault::Final(_)) => {
                        // The engine does not know rules among members. No pod is evicted in vain.
                        search.preemption_budget = PreemptionBudget::none();
                        continue;
                    }
                };
            }
            if members.is_empty() && search.assumed.is_empty() {
                self.reporter.log_decision(key, explanation);
                return Err(reason_for_unplaced(request.incomplete));
            }
            if self.reserve_some(&members, &request, search) {
                self.reporter.log_decision(key, explanation);
                let assumed = std::mem::take(&mut search.assumed);
                self.finish_gang_placement(key, assumed, &reason_for_unplaced(request.incomplete));
                return Ok(());
            }
            request = self.gang_request_excluding(group, &search.spec, &search.ruled_out_now)?;
        }
        let last = search.last_error.take().unwrap_or_default();
        Err(PendingReason::NoDevices { nodes: search.nodes_tried.len(), last })
    }

    /// Searches for victims of a gang, and nominates it.
    fn preempt_for_group(
        &mut self,
        group: &GroupName,
        key: &QueueKey,
        search: &GangSearch,
        restrictions: &Restrictions,
        last: Option<NodeError>,
    ) -> Result<(), PendingReason> {
        let (budget, policy) = (&search.preemption_budget, Arc::clone(&search.policy));
        let request = |scheduler: &mut Self, restrictions: &Restrictions, room: Room<'_>| {
            scheduler.gang_request_within(group, &search.spec, restrictions, room)
        };
        match self.search_victims(key, budget, &policy, restrictions, last, request) {
            Ok((verified, explanation)) => {
                self.reporter.log_decision(key, explanation);
                self.nominate(key, verified)
            }
            Err(reason) => {
                self.roll_back_allocations(key);
                Err(reason)
            }
        }
    }

    /// Reserves places for members, as far as they succeed. Returns whether all did.
    fn reserve_some(
        &mut self,
        members: &[(PodUid, Placed)],
        request: &GangRequest,
        search: &mut GangSearch,
    ) -> bool {
        let mut failed = Vec::new();
        let assumed_before = search.assumed.len();
        for (uid, placed) in members {
            match self.reserve_one(uid, &placed.placement) {
                Ok(assumed) => search.assumed.push(assumed),
                Err(error) => failed.push((uid, placed, error)),
            }
        }
        for (uid, placed, error) in &failed {
            let node = placed.placement.node;
            let name = self.cache.engine().world.cluster.name(node);
            let pod = self
                .cache
                .pod(uid)
                .map_or_else(String::new, |record| record.pod.meta.name.to_string());
            let message = error.message().to_owned();
            search.last_error = Some(NodeError { node: format!("{name} (pod {pod})"), message });
            if matches!(error, ReserveError::Leaving(_)) {
                // Its room will be free soon, so no other pod has to leave. Borrowers may stay.
                if !self.only_borrowers_keep_away(uid, &NodeName::from(name)) {
                    search.preemption_budget = PreemptionBudget::none();
                }
            }
            search.nodes_tried.insert(node);
            if matches!(error, ReserveError::Neighbours(_)) && search.assumed.len() > assumed_before
            {
                // Members that got places in this round keep it away. The next request knows.
                search.was_kept_apart = true;
                continue;
            }
            let classmates = request.members_of_group(placed.group);
            rule_out(&mut search.ruled_out_now, classmates, node);
            match self.claim_elsewhere(uid, node) {
                // The node itself is feasible, but the pod's claim is allocated elsewhere by
                // another member.
                Some((users, elsewhere)) => search.failed_nodes.push((users, elsewhere)),
                None => search.failed_nodes.push((classmates.to_vec(), node)),
            }
        }
        if search.assumed.is_empty() && !failed.is_empty() {
            search.restart();
        }
        failed.is_empty()
    }

    /// Finds a claim of the pod that a pod of this decision has on another node. Returns the
    /// members that use the claim, and that node.
    fn claim_elsewhere(&mut self, uid: &PodUid, node: NodeId) -> Option<(Vec<PodUid>, NodeId)> {
        let ask = self.ask(uid).ok()?;
        let name = self.cache.engine().world.cluster.name(node);
        if self.cache.devices().is_allowed(&ask, name) {
            return None;
        }
        ask.claims.iter().find_map(|claim| {
            let AskedClaim::Allocated { claim, allocating: Some(owner), .. } = claim else {
                return None;
            };
            let place = self.cache.pod(owner)?.place.as_ref()?;
            let elsewhere =
                self.cache.engine().node(&place.node).filter(|elsewhere| *elsewhere != node)?;
            let users = self.cache.pods_using(&[claim.meta.name.clone()].into());
            (!users.is_empty()).then_some((users, elsewhere))
        })
    }

    /// Undoes assumed placements, the last first.
    pub(in crate::state) fn unreserve_all(&mut self, assumed: &mut Vec<AssumedPlacement>) {
        for placement in assumed.drain(..).rev() {
            self.unreserve(&placement);
        }
    }

    /// Reserves places for several pods, all or none. Fails with the first placement that failed,
    /// and why.
    pub(in crate::state) fn reserve_all<'a>(
        &mut self,
        places: impl Iterator<Item = (&'a PodUid, &'a Placement)>,
    ) -> Result<Vec<AssumedPlacement>, (Placement, String)> {
        let mut assumed: Vec<AssumedPlacement> = Vec::new();
        for (uid, placement) in places {
            match self.reserve_one(uid, placement) {
                Ok(placement) => assumed.push(placement),
                Err(error) => {
                    for placement in assumed.iter().rev() {
                        self.unreserve(placement);
                    }
                    return Err((placement.clone(), error.message().to_owned()));
                }
            }
        }
        Ok(assumed)
    }

    /// Reserves a place for a pod.
    pub(in crate::state) fn reserve_one(
        &mut self,
        uid: &PodUid,
        placement: &Placement,
    ) -> Result<AssumedPlacement, ReserveError> {
        let node: NodeName = self.cache.engine().world.cluster.name(placement.node).into();
        // Read again: earlier members may have allocated a claim that this pod shares.
        let ask =
            self.ask(uid).map_err(|reason| ReserveError::Devices(reason.status_text().message))?;
        self.reserve(uid, &ask, &node, Some(&placement.gpus))
    }
}

impl Cache {
    /// Whether all present members of a gang may preempt others.
    fn may_preempt(&self, group: &GroupName) -> bool {
        let members = self.present_members(group);
        let mut records = members.iter().filter_map(|uid| self.pod(uid));
        records.all(|record| record.pod.spec.may_preempt)
    }

    /// The places so far leave none for the others by rules among members. The next start must not
    /// begin with the same node.
    fn note_dead_end(&self, members: &[PodUid], search: &mut GangSearch) {
        if !std::mem::take(&mut search.was_kept_apart) {
            return;
        }
        let first =
            search.assumed.first().and_then(|placement| self.engine().node(&placement.node));
        search.failed_nodes.extend(first.map(|node| (members.to_vec(), node)));
    }
}
