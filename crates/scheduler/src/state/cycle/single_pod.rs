//! Decisions on single pods.

use std::sync::Arc;

use octavo_engine::gang::Group;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::preemption::PreemptionBudget;
use octavo_engine::solve::NodeSet;
use octavo_engine::workload::Profile;
use octavo_engine::{Gang, Shape};

use octavo_kube_io::objects::{NodeName, PodUid};

use crate::devices::Ask;
use crate::groups::PlacementHints;
use crate::predicates::{Exclusions, Neighbours};
use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::cache::node_mask::NodeMask;
use crate::state::cache::pod;
use crate::state::cycle::decide::{Attempt, MAX_ATTEMPTS, Room, is_described_by_class, is_gpu};
use crate::state::cycle::refusal_cache::{LastRefusal, NeighbourKey, RefusalKey};
use crate::state::cycle::reserve::ReserveError;
use crate::state::cycle::verify::PlanFault;
use crate::state::cycle::victims::SinglePod;
use crate::state::queue::{QueueKey, Search};
use crate::state::reporter::pending_reason::{NodeError, PendingReason};

impl Scheduler {
    /// Decides on a single pod.
    pub(in crate::state) fn decide_pod(&mut self, uid: &PodUid) {
        let key = QueueKey::Pod(uid.clone());
        let attempt = self.attempt_for(&key);
        match self.schedule_pod(uid, &key, attempt) {
            Ok(()) => self.refusals.last = LastRefusal::default(),
            Err(reason) if reason.lacks_place() && self.borrow_place(uid, &key) => {
                self.refusals.last = LastRefusal::default();
            }
            Err(reason) => {
                let lent = std::mem::take(&mut self.refusals.last.lent);
                if reason.lacks_place() {
                    self.reclaim_loans_on(&lent.iter().collect());
                }
                self.attempt_refused(&key, attempt, &reason);
            }
        }
    }

    /// Binds or nominates a single pod.
    pub(in crate::state) fn schedule_pod(
        &mut self,
        uid: &PodUid,
        key: &QueueKey,
        attempt: Attempt,
    ) -> Result<(), PendingReason> {
        self.refusals.last = LastRefusal::default();
        let ask = self.ask(uid)?;
        let (shape, mask) = self.shape_of_waiting(uid, &ask).ok_or(PendingReason::Gone)?;
        if let Some(unfit) = self.cache.unusable_volume(key) {
            return Err(PendingReason::Volumes(unfit));
        }
        let record = self.cache.pod(uid).ok_or(PendingReason::Gone)?;
        let hints = PlacementHints::of(&record.pod.meta).map_err(PendingReason::Group)?;
        let policy =
            self.cache.policies().find(hints.policy.as_deref()).map_err(PendingReason::NoPolicy)?;
        let policy = Arc::clone(policy);
        let profile = match &record.profile {
            Some(profile) => Arc::clone(profile),
            None => Arc::new(self.cache.profile_of(record)),
        };
        if attempt == Attempt::Full
            && let Some(successor) = self.take_successor_place(uid, &shape)
        {
            let place = successor.place();
            match self.reserve(uid, &ask, &place.node, Some(&place.gpus)) {
                Ok(assumed) => {
                    self.finish_placement(key, vec![assumed]);
                    return Ok(());
                }
                Err(ReserveError::Leaving(message)) => {
                    let last = NodeError { node: place.node.to_string(), message };
                    self.restore_successor_place(successor);
                    return Err(PendingReason::NoDevices { nodes: 1, last });
                }
                Err(_) => {}
            }
        }
        self.search_pod(attempt, uid, key, &ask, &shape, mask, &profile, &policy)
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one decision")]
    fn search_pod(
        &mut self,
        mut attempt: Attempt,
        uid: &PodUid,
        key: &QueueKey,
        ask: &Ask,
        shape: &Arc<Shape>,
        mask: NodeMask,
        profile: &Arc<Profile>,
        policy: &Arc<PlacementPolicy>,
    ) -> Result<(), PendingReason> {
        let may_preempt = self.cache.pod(uid).is_some_and(|record| record.pod.spec.may_preempt);
        let full_budget =
            self.cache.preemption_budget(Attempt::Full, profile.priority, may_preempt, policy);
        let mut gang = gang_of_one(profile, shape);
        gang.groups[0].penalties = self.cache.penalties(uid, ask, policy);
        let away = self.cache.exclusions(uid);
        // Uncounted resources are checked on all nodes only after the first chosen node lacks them.
        let mut forbidden = self.cache.forbidden_nodes(uid, mask, ask, &away, Room::Devices);
        let is_described = is_described_by_class(mask, ask, &away);
        let stay = self.cache.stay(uid);
        let has_only_work_ahead =
            forbidden.is_empty() || forbidden == self.cache.nodes_with_work_ahead(stay);
        // Refusals hold for the world with the nominated places, so they do not serve an attempt
        // without them.
        let has_class = mask != NodeMask::Scan
            && attempt != Attempt::Nominated
            && (is_described || has_only_work_ahead);
        let refusal_key =
            || self.cache.refusal_key(uid, ask, shape, profile, policy, &full_budget, &away);
        let mut last_reason = None;
        if has_class && !self.refusals.is_empty() {
            let refusal_key = refusal_key();
            if let Some(refusal) = self.known_refusal(key, &refusal_key) {
                return Err(refusal);
            }
            if let Some((class, reason)) = self.refusals.class(&refusal_key) {
                if attempt == Attempt::Full && self.queue.backs_off(class, self.cache.now()) {
                    // An equal pod has searched for victims in vain lately.
                    (attempt, last_reason) = (Attempt::WithoutVictims, Some(reason.clone()));
                }
                self.refusals.last.class = Some(class);
            }
        }
        if attempt != Attempt::Full {
            self.refusals.last.search = Search::WithoutVictims;
        }
        let mut preemption_budget =
            if attempt == Attempt::Full { full_budget.clone() } else { PreemptionBudget::none() };
        // What the engine does not count needs a search of its own.
        let has_uncounted = self.cache.has_uncounted(uid, ask) || !away.is_empty();
        let pod = SinglePod { uid, ask, gang: &gang };
        let mut last_error = None;
        let mut ruled_out = NodeSet::new();
        let mut victims = None;
        for _ in 0..MAX_ATTEMPTS {
            let none = PreemptionBudget::none();
            let budget = if has_uncounted { &none } else { &preemption_budget };
            let (answer, explanation) =
                self.ask_engine(attempt, key, &gang, &[], &forbidden, budget, policy)?;
            let Ok(plan) = answer else {
                if last_error.is_some() && !is_described {
                    // Its claims alone may be the reason.
                    self.refusals.last.class = None;
                }
                if attempt != Attempt::Full {
                    return Err(last_reason.unwrap_or(PendingReason::NoFreePlace));
                }
                let searches = has_uncounted || last_error.is_some();
                let reason = if searches {
                    let (budget, last) = (&preemption_budget, last_error.clone());
                    let found =
                        self.search_victims_of_pod(key, &pod, budget, policy, &ruled_out, last);
                    match (found, &last_error) {
                        (Ok(found), _) => {
                            victims = Some(found);
                            break;
                        }
                        (Err(_), Some(last)) if !has_uncounted => {
                            self.reporter.log_decision(key, explanation);
                            PendingReason::NoDevices { nodes: forbidden.len(), last: last.clone() }
                        }
                        (Err(reason), _) => reason,
                    }
                } else {
                    self.reporter.log_decision(key, explanation.clone());
                    let infeasible = self.infeasible_nodes(key);
                    PendingReason::Unschedulable(Box::new(explanation), infeasible)
                };
                // A failure on one node may be due to this pod's claims alone.
                let is_of_class = has_class && (is_described || last_error.is_none());
                self.refusals.last.class = None;
                if is_of_class {
                    let refusal_key = self.cache.refusal_key(
                        uid,
                        ask,
                        shape,
                        profile,
                        policy,
                        &full_budget,
                        &away,
                    );
                    let queue = &mut self.queue;
                    let class =
                        self.refusals.keep(refusal_key, reason.clone(), || queue.new_class());
                    self.refusals.last.class = Some(class);
                }
                self.roll_back_allocations(key);
                return Err(reason);
            };
            let Some(placed) = plan.placements.first().cloned() else {
                return Err(PendingReason::Gone);
            };
            let id = placed.placement.node;
            let node: NodeName = self.cache.engine().world.cluster.name(id).into();
            let error = if plan.evictions.is_empty() && plan.moves.is_empty() {
                match self.reserve(uid, ask, &node, Some(&placed.placement.gpus)) {
                    Ok(assumed) => {
                        self.reporter.log_decision(key, explanation);
                        self.finish_placement(key, vec![assumed]);
                        return Ok(());
                    }
                    Err(error) => {
                        if matches!(error, ReserveError::Leaving(_)) {
                            let below = if attempt == Attempt::Full {
                                full_budget.evictions.as_ref().map(|scope| scope.below_priority)
                            } else {
                                None
                            };
                            // Borrowers that it may not evict may stay.
                            if !self.only_borrowers_keep_away(uid, &node)
                                || self.note_loans(uid, ask, &node, below)
                            {
                                // Its room will be free soon, so no other pod has to leave.
                                preemption_budget = PreemptionBudget::none();
                            }
                        }
                        error.message().to_owned()
                    }
                }
            } else {
                let members = vec![(uid.clone(), placed)];
                match self.verify_plan(key, members, plan, &preemption_budget, policy) {
                    Ok(verified) => {
                        victims = Some((verified, explanation));
                        break;
                    }
                    Err(PlanFault::Moves(_)) => {
                        preemption_budget.moves = 0;
                        continue;
                    }
                    Err(fault) => fault.into_error().message,
                }
            };
            if last_error.is_none() {
                forbidden = self.cache.forbidden_nodes(uid, mask, ask, &away, Room::Now);
            }
            forbidden.insert(id);
            if !has_uncounted {
                // What is taken there now might be free after victims have left.
                ruled_out.insert(id);
            }
            last_error = Some(NodeError { node: node.to_string(), message: error });
        }
        if victims.is_none() && self.try_each_node(uid, key, ask, &forbidden) {
            return Ok(());
        }
        let victims = match victims {
            Some(victims) => Ok(victims),
            None if attempt == Attempt::Full => {
                let (budget, last) = (&preemption_budget, last_error.clone());
                let found = self.search_victims_of_pod(key, &pod, budget, policy, &ruled_out, last);
                found.map_err(|reason| match last_error {
                    Some(last) if !has_uncounted => {
                        PendingReason::NoDevices { nodes: forbidden.len(), last }
                    }
                    _ => reason,
                })
            }
            None => Err(last_reason.unwrap_or(PendingReason::NoFreePlace)),
        };
        self.refusals.last.class = None;
        let (verified, explanation) = victims?;
        self.reporter.log_decision(key, explanation);
        self.nominate(key, verified)
    }

    /// Tries each node that is not forbidden, for a pod for which the engine cache is too inaccurate.
    fn try_each_node(
        &mut self,
        uid: &PodUid,
        key: &QueueKey,
        ask: &Ask,
        forbidden: &NodeSet,
    ) -> bool {
        let names: Vec<_> = self.cache.nodes().keys().cloned().collect();
        for node in names {
            let is_forbidden =
                self.cache.engine().node(&node).is_none_or(|id| forbidden.contains(&id));
            if !is_forbidden
                && self.cache.may_allocate_devices(ask, &node)
                && let Ok(assumed) = self.reserve(uid, ask, &node, None)
            {
                self.finish_placement(key, vec![assumed]);
                return true;
            }
        }
        false
    }

    /// The refusal of an equal pod since the last change of the cluster. This pod waits with it.
    fn known_refusal(&mut self, key: &QueueKey, refusal_key: &RefusalKey) -> Option<PendingReason> {
        let refusal = self.refusals.answer(refusal_key, self.cache.revision())?;
        if let PendingReason::Unschedulable(explanation, _) = &refusal {
            self.reporter.log_decision(key, (**explanation).clone());
        }
        let class = self.refusals.class(refusal_key).map(|(class, _)| class);
        self.refusals.last = LastRefusal { class, search: Search::Known, ..LastRefusal::default() };
        Some(refusal)
    }
}

impl Cache {
    /// The key of a pod's refusal.
    #[expect(clippy::too_many_arguments, reason = "the state of one decision")]
    fn refusal_key(
        &self,
        uid: &PodUid,
        ask: &Ask,
        shape: &Arc<Shape>,
        profile: &Profile,
        policy: &PlacementPolicy,
        preemption_budget: &PreemptionBudget,
        away: &Exclusions,
    ) -> RefusalKey {
        let record = self.pod(uid);
        let footprint = record.map(|record| Arc::clone(&record.footprint));
        let neighbours = record
            .map(|record| &record.pod)
            .filter(|pod| !away.is_empty() || Neighbours::has_rules(pod))
            .map(|pod| NeighbourKey::of(pod, self.neighbours().selected_labels(pod)));
        RefusalKey {
            shape: Arc::clone(shape),
            priority: profile.priority,
            can_yield: self.can_yield(uid),
            stay: self.stay(uid),
            may_evict: preemption_budget.evictions.is_some(),
            moves: preemption_budget.moves,
            topology: profile.topology,
            policy: policy.name().to_owned(),
            uncounted: footprint
                .filter(|footprint| pod::takes_uncounted(footprint, |name| is_gpu(name, ask))),
            neighbours,
            claims: (!ask.is_empty()).then(|| self.devices().request_key(ask)),
        }
    }
}

/// A single pod as a gang of one member.
pub(in crate::state) fn gang_of_one(profile: &Profile, shape: &Arc<Shape>) -> Gang {
    Gang { profile: profile.clone(), groups: vec![Group::new("pod", Arc::clone(shape), 1)] }
}
