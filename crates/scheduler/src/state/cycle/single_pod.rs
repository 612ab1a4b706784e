//! Decisions on single pods.

use std::sync::Arc;

use octavo_engine::gang::Group;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::preemption::PreemptionBudget;
use octavo_engine::workload::Profile;
use octavo_engine::{Gang, Plan, Shape};

use octavo_kube_io::objects::{NodeName, PodUid};

use crate::devices::Ask;
use crate::groups::PlacementHints;
use crate::predicates::{Exclusions, Neighbours};
use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::cache::node_mask::NodeMask;
use crate::state::cache::pod;
use crate::state::cycle::decide::{Attempt, MAX_ATTEMPTS, is_described_by_class, is_gpu};
use crate::state::cycle::refusal_cache::{LastRefusal, NeighbourKey, RefusalKey};
use crate::state::cycle::reserve::ReserveError;
use crate::state::queue::{QueueKey, Search};
use crate::state::reporter::pending_reason::{NodeError, PendingReason};

impl Scheduler {
    /// Decides on a single pod.
    pub(in crate::state) fn decide_pod(&mut self, uid: &PodUid) {
        let key = QueueKey::Pod(uid.clone());
        let attempt = self.attempt_for(&key);
        match self.schedule_pod(uid, &key, attempt) {
            Ok(()) => self.refusals.last = LastRefusal::default(),
            Err(reason) => self.attempt_refused(&key, attempt, &reason),
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
        let mut forbidden = self.cache.forbidden_nodes(uid, mask, ask, &away, false);
        let is_described = is_described_by_class(mask, ask, &away);
        // Refusals hold for the world with the nominated places, so they do not serve an attempt
        // without them.
        let has_class = mask != NodeMask::Scan
            && attempt != Attempt::Nominated
            && (is_described || forbidden.is_empty());
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
        let mut last_error = None;
        for _ in 0..MAX_ATTEMPTS {
            let (answer, explanation) =
                self.ask_engine(attempt, key, &gang, &[], &forbidden, &preemption_budget, policy)?;
            let Ok(plan) = answer else {
                if last_error.is_some() && !is_described {
                    // Its claims alone may be the reason.
                    self.refusals.last.class = None;
                }
                if attempt != Attempt::Full {
                    return Err(last_reason.unwrap_or(PendingReason::NoFreePlace));
                }
                if preemption_budget.evictions.is_some()
                    && (last_error.is_some() || self.cache.needs_trial(uid, ask, &away))
                    && let Some(plan) = self.plan_by_trial(uid, ask, profile.priority, policy)
                {
                    return self.nominate_by_trial(uid, key, &gang, policy, &plan);
                }
                let reason = match last_error {
                    Some(last_error) => {
                        PendingReason::NoDevices { nodes: forbidden.len(), last: last_error }
                    }
                    None => PendingReason::Unschedulable(
                        Box::new(explanation.clone()),
                        self.infeasible_nodes(key),
                    ),
                };
                self.reporter.log_decision(key, explanation);
                // A failure on one node may be due to this pod's claims alone.
                let is_of_class = has_class
                    && (is_described || matches!(reason, PendingReason::Unschedulable(..)));
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
            let is_disturbing = !plan.evictions.is_empty() || !plan.moves.is_empty();
            let Some(placed) = plan.placements.first() else { return Err(PendingReason::Gone) };
            let node: NodeName =
                self.cache.engine().world.cluster.name(placed.placement.node).into();
            let reserved = if is_disturbing {
                // Evict no victim unless the preemptor fits once it is gone.
                let place = [(uid.clone(), node.clone())];
                self.cache
                    .check_fit_after_plan(uid, ask, &node, &plan)
                    .and_then(|()| self.cache.check_neighbours_after_plan(&place, &plan))
                    .map(|()| None)
            } else {
                self.reserve(uid, ask, &node, Some(&placed.placement.gpus)).map(Some)
            };
            match reserved {
                Ok(Some(assumed)) => {
                    self.reporter.log_decision(key, explanation);
                    self.finish_placement(key, vec![assumed]);
                    return Ok(());
                }
                Ok(None) => {
                    self.reporter.log_decision(key, explanation);
                    return self.nominate(key, &[(uid.clone(), placed.clone())], &plan);
                }
                Err(error) => {
                    if matches!(error, ReserveError::Leaving(_)) {
                        // Its room will be free soon, so no other pod has to leave.
                        preemption_budget = PreemptionBudget::none();
                    }
                    if last_error.is_none() {
                        forbidden = self.cache.forbidden_nodes(uid, mask, ask, &away, true);
                    }
                    forbidden.insert(placed.placement.node);
                    let message = error.message().to_owned();
                    last_error = Some(NodeError { node: node.to_string(), message });
                }
            }
        }
        // The engine cache is too inaccurate for this pod, so each node is tried.
        let names: Vec<_> = self.cache.nodes().keys().cloned().collect();
        for node in names {
            let is_forbidden =
                self.cache.engine().node(&node).is_none_or(|id| forbidden.contains(&id));
            if !is_forbidden
                && self.cache.may_allocate_devices(ask, &node)
                && let Ok(assumed) = self.reserve(uid, ask, &node, None)
            {
                self.finish_placement(key, vec![assumed]);
                return Ok(());
            }
        }
        if preemption_budget.evictions.is_some()
            && let Some(plan) = self.plan_by_trial(uid, ask, profile.priority, policy)
        {
            return self.nominate_by_trial(uid, key, &gang, policy, &plan);
        }
        self.refusals.last.class = None;
        Err(PendingReason::NoDevices {
            nodes: forbidden.len(),
            last: last_error.unwrap_or_default(),
        })
    }

    /// The refusal of an equal pod since the last change of the cluster. This pod waits with it.
    fn known_refusal(&mut self, key: &QueueKey, refusal_key: &RefusalKey) -> Option<PendingReason> {
        let refusal = self.refusals.answer(refusal_key, self.cache.revision())?;
        if let PendingReason::Unschedulable(explanation, _) = &refusal {
            self.reporter.log_decision(key, (**explanation).clone());
        }
        let class = self.refusals.class(refusal_key).map(|(class, _)| class);
        self.refusals.last = LastRefusal { class, search: Search::Known };
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

    /// Whether a node has the uncounted resources of a pod once the plan's victims have left.
    fn check_fit_after_plan(
        &self,
        uid: &PodUid,
        ask: &Ask,
        node: &NodeName,
        plan: &Plan,
    ) -> Result<(), ReserveError> {
        let (Some(record), Some(target)) = (self.pod(uid), self.node(node)) else {
            return Err(ReserveError::NoNode);
        };
        if !pod::takes_uncounted(&record.footprint, |name| is_gpu(name, ask)) {
            return Ok(());
        }
        let leaving = plan.evictions.iter().chain(plan.moves.iter().map(|step| &step.member));
        let leaving = leaving.filter_map(|id| self.engine().holder(*id).map(|holder| &**holder));
        let usage = self.usage_without(node, leaving).ok_or(ReserveError::NoNode)?;
        let shortages = self.uncounted_shortages(record, ask, target, &usage);
        if shortages.is_empty() {
            return Ok(());
        }
        let reasons: Vec<_> = shortages.iter().map(ToString::to_string).collect();
        Err(ReserveError::Fit(reasons.join(", ")))
    }
}

/// A single pod as a gang of one member.
pub(in crate::state) fn gang_of_one(profile: &Profile, shape: &Arc<Shape>) -> Gang {
    Gang { profile: profile.clone(), groups: vec![Group::new("pod", Arc::clone(shape), 1)] }
}
