//! What decisions on single pods and on gangs have in common.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_engine::explain::{self, Explanation};
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::planner::DecisionInput;
use octavo_engine::preemption::PreemptionBudget;
use octavo_engine::solve::{NodeSet, Pinned};
use octavo_engine::{Gang, PlanResult};

use super::Core;
use super::marks::Mark;
use super::node::{NodeRecord, is_owned};
use super::pod::{self, PodRecord};
use super::queue::Unit;
use super::records::Recorded;
use super::statement::Blocked;
use crate::devices::{Ask, AskError, AskedClaim, Feasibility, GpuSource};
use crate::predicates::{Unfit, Usage, check_resource_fit, unsupported};

/// Times that a decision is tried anew because a node had no devices or room after all. After this many
/// all nodes are asked one by one.
pub(super) const TRIES: usize = 8;

impl Core {
    /// What a waiting pod's claims ask for; or why it cannot be decided on.
    pub(super) fn ask(&mut self, uid: &Arc<str>) -> Result<Ask, Blocked> {
        let Some(record) = self.pods.get(uid) else { return Err(Blocked::Gone) };
        if let Some(unsupported) = unsupported(&record.pod, &self.volumes) {
            return Err(Blocked::Unsupported(unsupported));
        }
        if let Some(fault) = &record.group_fault {
            return Err(Blocked::Group(fault.clone()));
        }
        let pod = Arc::clone(&record.pod);
        if !self.undos.is_empty()
            && let Some(claim) = self.undos.flying_of(uid)
        {
            let claim = claim.clone();
            return Err(Blocked::Claims(AskError::BeingRolledBack { claim }));
        }
        self.devices.ask(&pod).map_err(Blocked::Claims)
    }

    /// Nodes on which a pod cannot be for reasons that the engine does not know. Empty for most pods,
    /// without looking at any node.
    /// `with_room`: also for want of what only [`check_resource_fit`] knows (storage, ports, volumes). What the
    /// engine counts forbids nothing: who has it may be asked to leave. Of what it does not count nobody
    /// says who would have to leave for it, so a node where somebody has it is forbidden even if he could.
    pub(super) fn forbidden(
        &self,
        uid: &Arc<str>,
        mark: Mark,
        ask: &Ask,
        with_room: bool,
    ) -> NodeSet {
        let mut forbidden = NodeSet::new();
        let Some(record) = self.pods.get(uid) else { return forbidden };
        let away = self.neighbours.exclusions(&record.pod, &self.volumes);
        let has_more = with_room && pod::has_more(&record.footprint, |name| is_gpu(name, ask));
        let is_pinned = ask
            .claims
            .iter()
            .any(|claim| matches!(claim, AskedClaim::Allocated { nodes: Some(_), .. }));
        if mark != Mark::Scan && !has_more && !is_pinned && away.is_empty() && ask.is_exact {
            return forbidden;
        }
        let key = record.mark.as_ref().filter(|_| mark == Mark::Scan);
        let wish = (!ask.is_exact).then(|| self.devices.request_key(ask));
        for (name, node) in &self.nodes {
            let gpus = self.devices.gpus(name);
            let allows = key
                .is_none_or(|(_, rules, used)| used.suits(gpus) && rules.check(&node.node).is_ok())
                && away.check(&node.node).is_ok()
                && self.may_give_devices(ask, name)
                && self.devices.is_allowed(ask, name)
                && (!has_more || self.taken_beside(record, ask, node, &node.usage).is_empty())
                && wish.is_none_or(|wish| {
                    self.devices.feasibility(ask, wish, name) == Feasibility::Feasible
                });
            if !allows && let Some(id) = self.picture.node(name) {
                forbidden.insert(id);
            }
        }
        forbidden
    }

    /// What a node has not left for a pod, of what the engine does not count.
    pub(super) fn taken_beside(
        &self,
        record: &PodRecord,
        ask: &Ask,
        node: &NodeRecord,
        usage: &Usage,
    ) -> Vec<Unfit> {
        let serves = |resource: &str| self.devices.is_class_resource(resource);
        let room =
            check_resource_fit(&record.footprint, &node.capacity, usage, &self.volumes, serves);
        let mut reasons = room.err().unwrap_or_default();
        reasons.retain(|unfit| !is_counted(unfit, ask));
        reasons
    }

    /// Whether nothing but what a pod takes keeps it away from nodes: then [`Self::forbidden`] is the same
    /// for all pods of the footprint that ask for the same extended resources and have the same wish, if
    /// they are not exact.
    pub(super) fn is_kept_away_by_room_alone(&self, uid: &Arc<str>, mark: Mark, ask: &Ask) -> bool {
        let Some(record) = self.pods.get(uid) else { return false };
        mark != Mark::Scan
            && if ask.is_exact {
                ask.claims.is_empty()
            } else {
                ask.claims.iter().all(|claim| matches!(claim, AskedClaim::Wanted(_)))
            }
            && self.neighbours.exclusions(&record.pod, &self.volumes).is_empty()
    }

    /// Whether this scheduler may give what is asked for on a node: nothing, or devices of its own nodes,
    /// or what a device plugin guards.
    pub(super) fn may_give_devices(&self, ask: &Ask, node: &str) -> bool {
        let needs = ask.wanted().next().is_some() || !ask.extended.is_empty();
        let is_plugin =
            || self.devices.gpus(node).is_some_and(|gpus| gpus.source == GpuSource::Plugin);
        let is_ours = || {
            let record = self.nodes.get(node);
            record.is_some_and(|one| is_owned(&one.node, &self.config.scheduler_name))
        };
        !needs || is_ours() || (!ask.extended.is_empty() && is_plugin())
    }

    /// Whom a decision for somebody of this priority may disturb.
    pub(super) fn preemption_budget(
        &self,
        priority: i32,
        may_preempt: bool,
        policy: &PlacementPolicy,
    ) -> PreemptionBudget {
        let is_allowed = self.config.preemption && may_preempt && policy.is_preempting();
        let evictions = if is_allowed {
            PreemptionBudget::evictions_below(priority)
        } else {
            PreemptionBudget::none()
        };
        PreemptionBudget { moves: self.config.defragmentation_moves, ..evictions }
    }

    /// Asks the engine, and records what was asked where decisions are recorded.
    pub(super) fn ask_engine(
        &mut self,
        unit: &Unit,
        gang: &Gang,
        pinned: &[Pinned],
        forbidden: &NodeSet,
        preemption_budget: &PreemptionBudget,
        policy: &PlacementPolicy,
    ) -> Result<(PlanResult, Explanation), Blocked> {
        // Nothing in the API says what tenants weigh: all weigh the same.
        let weights = BTreeMap::new();
        let waiting = self.others_than(gang, policy);
        let case = DecisionInput {
            gang,
            pinned,
            forbidden,
            preemption_budget,
            policy,
            waiting: &waiting,
            weights: &weights,
        };
        let is_recorded = self.records.want(unit);
        self.within_budgets(preemption_budget, |core| {
            // As it is before the engine learns from the answer.
            let cluster = is_recorded.then(|| {
                let mut waiting = waiting.clone();
                waiting.push(gang.clone());
                core.snapshot_with(&waiting)
            });
            let picture = &mut core.picture;
            let answer =
                picture.planner.decide(&mut picture.world, &case).map_err(Blocked::Policy)?;
            let explanation = explain::answer(&picture.world, policy, gang, &answer);
            if let Some(cluster) = cluster
                && let Some(recorded) = Recorded::of(cluster, &case, &picture.world, &explanation)
            {
                core.records.keep(unit, recorded);
            }
            Ok((answer, explanation))
        })
    }
}

/// Whether an extended resource is the GPUs that the engine counts for an ask.
pub(super) fn is_gpu(resource: &str, ask: &Ask) -> bool {
    resource == octavo_api::names::EXTENDED_RESOURCE_GPU && ask.demand.is_some()
}

/// Whether what does not suffice is counted by the engine, which says who would have to leave for it.
fn is_counted(unfit: &Unfit, ask: &Ask) -> bool {
    match unfit {
        Unfit::Pods { .. } => true,
        Unfit::Insufficient { resource, .. } => {
            matches!(&**resource, "cpu" | "memory") || is_gpu(resource, ask)
        }
        _ => false,
    }
}
