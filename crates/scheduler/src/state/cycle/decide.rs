//! Common parts of decisions on single pods and on gangs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_engine::explain::{self, Explanation};
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::planner::DecisionInput;
use octavo_engine::preemption::PreemptionBudget;
use octavo_engine::solve::{NodeSet, Pinned};
use octavo_engine::{CostTerm, Gang, PlanResult};

use octavo_kube_io::objects::PodUid;

use crate::devices::{Ask, AskError, AskedClaim, Feasibility};
use crate::predicates::{Exclusions, Unfit, Usage, check_resource_fit};
use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::cache::maintenance::Stay;
use crate::state::cache::node::{NodeRecord, is_owned};
use crate::state::cache::node_mask::NodeMask;
use crate::state::cache::pod::{self, PodRecord};
use crate::state::cycle::seconds_at_risk::estimated;
use crate::state::queue::QueueKey;
use crate::state::reporter::pending_reason::PendingReason;
use crate::state::reporter::records::RecordedDecision;

/// Attempts of a decision whose chosen node lacks devices or room after all. After these each node
/// is tried on its own.
pub(in crate::state) const MAX_ATTEMPTS: usize = 8;

/// Nodes at most for which a decision asks what would be free after pods have left.
pub(in crate::state) const MAX_TRIALS: usize = 256;

/// When what the engine does not count must be free: devices of inexact requests, storage, ports,
/// volumes.
#[derive(Clone, Copy, Debug)]
pub(in crate::state) enum Room<'b> {
    /// Devices now. Other resources are not checked.
    Devices,
    /// All of it now.
    Now,
    /// After the pods have left that may leave a node within a budget, and those that are leaving.
    /// Of each node alone: the plan must be checked.
    After { budget: &'b PreemptionBudget, leaving: &'b BTreeSet<PodUid> },
    /// Whatever runs there: the node need only be able to have it.
    Empty,
}

/// What a decision may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) enum Attempt {
    /// For a pending entry: other pods may be evicted or moved, and a refusal is recorded.
    Full,
    /// For an entry that was refused lately: no other pod is disturbed, and the reason of the last
    /// full decision stays.
    WithoutVictims,
    /// For a nominated entry, whose place is taken back for the attempt: no other pod is disturbed,
    /// and a refusal changes nothing.
    Nominated,
}

/// The engine's answer.
#[derive(Debug)]
pub(in crate::state) struct EngineAnswer {
    pub(in crate::state) answer: PlanResult,
    pub(in crate::state) explanation: Explanation,
    /// The decision with its input, if decisions are recorded.
    pub(in crate::state) record: Option<RecordedDecision>,
}

impl Scheduler {
    /// The requests of a pending pod's claims, or the reason why it cannot be decided on.
    pub(in crate::state) fn ask(&self, uid: &PodUid) -> Result<Ask, PendingReason> {
        let Some(record) = self.cache.pod(uid) else { return Err(PendingReason::Gone) };
        if let Some(fault) = &record.group_fault {
            return Err(PendingReason::Group(fault.clone()));
        }
        let pod = Arc::clone(&record.pod);
        if let Some(claim) = self.operations.rollback_in_flight_for(uid) {
            let claim = claim.clone();
            return Err(PendingReason::Claims(AskError::BeingRolledBack { claim }));
        }
        self.cache.devices().ask(&pod).map_err(PendingReason::Claims)
    }

    /// Asks the engine, and records the decision if decisions are recorded.
    #[expect(clippy::too_many_arguments, reason = "the input of one decision")]
    pub(in crate::state) fn ask_engine(
        &mut self,
        attempt: Attempt,
        key: &QueueKey,
        gang: &Gang,
        pinned: &[Pinned],
        forbidden: &NodeSet,
        preemption_budget: &PreemptionBudget,
        policy: &PlacementPolicy,
    ) -> Result<(PlanResult, Explanation), PendingReason> {
        let asked =
            self.ask_engine_for_record(key, gang, pinned, forbidden, preemption_budget, policy)?;
        let EngineAnswer { answer, explanation, record } = asked;
        if let Some(record) = record
            && (answer.is_ok() || attempt == Attempt::Full)
        {
            self.reporter.record(key, record);
        }
        Ok((answer, explanation))
    }

    /// Asks the engine. The caller records the decision, if it stands.
    pub(in crate::state) fn ask_engine_for_record(
        &mut self,
        key: &QueueKey,
        gang: &Gang,
        pinned: &[Pinned],
        forbidden: &NodeSet,
        preemption_budget: &PreemptionBudget,
        policy: &PlacementPolicy,
    ) -> Result<EngineAnswer, PendingReason> {
        let estimated = with_seconds_at_risk(gang, policy);
        let gang = estimated.as_ref().unwrap_or(gang);
        // The API has no weights of tenants: all weigh the same.
        let weights = BTreeMap::new();
        let waiting = self.competing_gangs(gang, policy);
        let case = DecisionInput {
            gang,
            pinned,
            forbidden,
            preemption_budget,
            policy,
            waiting: &waiting,
            weights: &weights,
        };
        if !preemption_budget.is_none() {
            self.update_allowances();
        }
        // Before the engine learns from the answer.
        let cluster = self.reporter.should_record(key).then(|| {
            let mut waiting = waiting.clone();
            waiting.push(gang.clone());
            self.cache.snapshot_with(&waiting)
        });
        let (answer, explanation) = self.cache.answer(&case)?;
        let world = &self.cache.engine().world;
        let record =
            cluster.and_then(|cluster| RecordedDecision::of(cluster, &case, world, &explanation));
        Ok(EngineAnswer { answer, explanation, record })
    }
}

/// The gang with the estimated loss by a failure, if the policy counts it and the gang says nothing.
fn with_seconds_at_risk(gang: &Gang, policy: &PlacementPolicy) -> Option<Gang> {
    let is_silent = gang.profile.seconds_at_risk == 0;
    (is_silent && policy.has(CostTerm::ExpectedLostGpuSeconds)).then(|| {
        let mut gang = gang.clone();
        gang.profile.seconds_at_risk = estimated(&gang);
        gang
    })
}

impl Cache {
    /// The engine's answer, and its explanation.
    pub(in crate::state) fn answer(
        &mut self,
        case: &DecisionInput<'_>,
    ) -> Result<(PlanResult, Explanation), PendingReason> {
        let answer = self.plan(case).map_err(PendingReason::Policy)?;
        let explanation = explain::answer(&self.engine().world, case.policy, case.gang, &answer);
        Ok((answer, explanation))
    }

    /// Nodes that are infeasible for a pod for reasons unknown to the engine. For most pods no node is
    /// checked, and the set has only nodes with work ahead.
    ///
    /// Resources that the engine counts forbid no node, because the engine can preempt for them.
    /// For the others `room` tells when they must be free.
    pub(in crate::state) fn forbidden_nodes(
        &self,
        uid: &PodUid,
        mask: NodeMask,
        ask: &Ask,
        away: &Exclusions,
        room: Room<'_>,
    ) -> NodeSet {
        let Some(record) = self.pod(uid) else { return NodeSet::new() };
        let mut forbidden = match (self.stay_of(record), mask) {
            // The bit says it.
            (Stay::Open, NodeMask::Bit(_)) => NodeSet::new(),
            (stay, _) => self.nodes_with_work_ahead(stay),
        };
        let takes_uncounted = !matches!(room, Room::Devices)
            && pod::takes_uncounted(&record.footprint, |name| is_gpu(name, ask));
        let is_pinned = ask
            .claims
            .iter()
            .any(|claim| matches!(claim, AskedClaim::Allocated { nodes: Some(_), .. }));
        if mask != NodeMask::Scan
            && !takes_uncounted
            && !is_pinned
            && away.is_empty()
            && ask.is_exact
        {
            return forbidden;
        }
        let key = record.node_mask.as_ref().filter(|_| mask == NodeMask::Scan);
        let wish = (!ask.is_exact).then(|| self.devices().request_key(ask));
        // Nodes that lack something now, and would not if they were empty.
        let mut taken = Vec::new();
        for (name, node) in self.nodes() {
            let gpus = self.devices().gpus(name);
            let is_open = key
                .is_none_or(|(_, rules, used)| used.suits(gpus) && rules.check(&node.node).is_ok())
                && away.check(&node.node).is_ok()
                && self.may_allocate_devices(ask, name)
                && self.devices().is_allowed(ask, name);
            let shortages = if is_open && takes_uncounted {
                self.uncounted_shortages(record, ask, node, &node.usage)
            } else {
                Vec::new()
            };
            let found =
                wish.filter(|_| is_open).map_or(Feasibility::Feasible { list_score: 0 }, |wish| {
                    self.devices().feasibility(ask, wish, name)
                });
            let is_free = shortages.is_empty() && matches!(found, Feasibility::Feasible { .. });
            let would_do = shortages.iter().all(Unfit::could_preemption_help)
                && matches!(found, Feasibility::Feasible { .. } | Feasibility::Taken);
            if is_open && is_free {
                continue;
            }
            let Some(id) = self.engine().node(name) else { continue };
            match room {
                Room::Empty if is_open && would_do => {}
                Room::After { .. } if is_open && would_do => taken.push((id, name.clone())),
                _ => _ = forbidden.insert(id),
            }
        }
        if let Room::After { budget, leaving } = room {
            // Beyond these the plan is checked only.
            for (id, name) in taken.into_iter().take(MAX_TRIALS) {
                if !self.could_fit_after(uid, ask, &name, budget, leaving) {
                    forbidden.insert(id);
                }
            }
        }
        forbidden
    }

    /// What a pod lacks on a node, of the resources that the engine does not count.
    pub(in crate::state) fn uncounted_shortages(
        &self,
        record: &PodRecord,
        ask: &Ask,
        node: &NodeRecord,
        usage: &Usage,
    ) -> Vec<Unfit> {
        let serves = |resource: &str| self.devices().is_class_resource(resource);
        let fit =
            check_resource_fit(&record.footprint, &node.capacity, usage, self.volumes(), serves);
        let mut reasons = fit.err().unwrap_or_default();
        reasons.retain(|unfit| !is_counted(unfit, ask));
        reasons
    }

    /// What excludes a pod from nodes because of other pods.
    pub(in crate::state) fn exclusions(&self, uid: &PodUid) -> Exclusions {
        let record = self.pod(uid);
        record.map_or_else(Exclusions::default, |record| {
            self.neighbours().exclusions(&record.pod, self.volumes())
        })
    }

    /// Whether this scheduler may allocate the requested devices on a node: only on its own nodes.
    /// Elsewhere another scheduler could give the same ones away.
    pub(in crate::state) fn may_allocate_devices(&self, ask: &Ask, node: &str) -> bool {
        let needs = ask.wanted().next().is_some() || !ask.extended.is_empty();
        let is_ours = || {
            let record = self.node(node);
            record.is_some_and(|record| is_owned(&record.node, &self.config().scheduler_name))
        };
        !needs || is_ours()
    }

    /// The disturbance that is allowed for an entry of this priority.
    pub(in crate::state) fn preemption_budget(
        &self,
        attempt: Attempt,
        priority: i32,
        may_preempt: bool,
        policy: &PlacementPolicy,
    ) -> PreemptionBudget {
        if attempt != Attempt::Full {
            return PreemptionBudget::none();
        }
        let is_allowed = self.config().preemption && may_preempt && policy.is_preempting();
        let evictions = if is_allowed {
            PreemptionBudget::evictions_below(priority)
        } else {
            PreemptionBudget::none()
        };
        PreemptionBudget { moves: self.config().defragmentation_moves, ..evictions }
    }
}

/// Whether [`Cache::forbidden_nodes`] is equal for all pods with the same footprint, extended
/// resources and stay. Inexact requests must also have the same wish, and pods that others keep away the
/// same exclusions.
pub(in crate::state) fn is_described_by_class(
    mask: NodeMask,
    ask: &Ask,
    away: &Exclusions,
) -> bool {
    mask != NodeMask::Scan
        && if ask.is_exact {
            ask.claims.is_empty()
        } else {
            ask.claims.iter().all(|claim| matches!(claim, AskedClaim::Wanted(_)))
        }
        && away.claim().is_none()
}

/// Whether an extended resource stands for the GPUs that the engine counts for this request.
pub(in crate::state) fn is_gpu(resource: &str, ask: &Ask) -> bool {
    resource == octavo_api::names::EXTENDED_RESOURCE_GPU && ask.demand.is_some()
}

/// Whether the engine counts the lacking resource, and so can name victims.
fn is_counted(unfit: &Unfit, ask: &Ask) -> bool {
    match unfit {
        Unfit::Pods { .. } => true,
        Unfit::Insufficient { resource, .. } => {
            matches!(&**resource, "cpu" | "memory") || is_gpu(resource, ask)
        }
        _ => false,
    }
}
