//! Checks plans that evict or move pods, before any of them is asked to leave. The engine counts
//! GPUs, CPU and memory. Here the allocator and the filters decide, in a view in which the victims
//! have left: claims that only the allocator can decide, storage, host ports, limits of volumes.
//!
//! Where the plan's victims do not suffice on a node, other pods of the node are added to them.

use std::collections::{BTreeMap, BTreeSet};

use octavo_engine::objective::CostTerm;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::placement::GpuParts;
use octavo_engine::plan::Placed;
use octavo_engine::preemption::PreemptionBudget;
use octavo_engine::workload::MemberId;
use octavo_engine::{NodeId, Plan};
use octavo_kube_io::objects::{NodeName, PodUid};

use crate::devices::{Ask, PodAllocation};
use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::cache::pod::PodRecord;
use crate::state::cycle::arrivals::Arrivals;
use crate::state::cycle::gang_request::FailedPlace;
use crate::state::queue::QueueKey;
use crate::state::reporter::pending_reason::NodeError;

/// A plan whose places serve its pods once the victims have left.
#[derive(Debug)]
pub(in crate::state) struct VerifiedPlan {
    pub(in crate::state) plan: Plan,
    pub(in crate::state) members: Vec<(PodUid, Placed)>,
    /// The devices that the members get.
    pub(in crate::state) devices: Vec<PodAllocation>,
    /// Places for which victims were added that the engine did not count. It may know better ones.
    pub(in crate::state) dearer: Vec<FailedPlace>,
}

/// Why no pod is asked to leave for a plan.
#[derive(Debug)]
pub(in crate::state) enum PlanFault {
    /// Places that would not serve their pods, or only with victims beyond a limit; and why not.
    Places(Vec<FailedPlace>, NodeError),
    /// The new place of a moved pod would not serve it.
    Moves(NodeError),
    /// Rules among pods, or pods that are leaving already: other victims would not help.
    Final(NodeError),
}

impl PlanFault {
    /// The fault as the error of a node.
    pub(in crate::state) fn into_error(self) -> NodeError {
        match self {
            Self::Places(_, error) | Self::Moves(error) | Self::Final(error) => error,
        }
    }
}

impl Scheduler {
    /// Checks a plan. `budget` is that of its search.
    pub(in crate::state) fn verify_plan(
        &mut self,
        key: &QueueKey,
        mut members: Vec<(PodUid, Placed)>,
        mut plan: Plan,
        budget: &PreemptionBudget,
        policy: &PlacementPolicy,
    ) -> Result<VerifiedPlan, PlanFault> {
        let is_single = matches!(key, QueueKey::Pod(_));
        let moves = plan.moves.iter().map(|step| step.member);
        let moved = self.cache.pods_of_members(moves);
        let already = self.reservations.all_victims();
        let mut leaving = already.clone();
        leaving.extend(self.cache.victims_of(&plan));
        let successors = self.cache.successor_devices(&plan, &leaving).map_err(PlanFault::Moves)?;
        let by_node = by_node(&members);
        let below = budget.evictions.as_ref().map(|scope| scope.below_priority);
        let below = below.filter(|_| !policy.has_limits());
        let mut devices = Vec::new();
        let mut failed = Vec::new();
        let mut last = None;
        let mut dearer = Vec::new();
        for (id, indexes) in by_node {
            let node: NodeName = self.cache.engine().world.cluster.name(id).into();
            let scope = budget.evictions.as_ref().map(|scope| scope.below_priority);
            if self.has_protected_borrower(&node, scope) {
                let message = "pods that it may not evict run in room that is kept for others";
                last = Some(NodeError { node: node.to_string(), message: message.to_owned() });
                failed.push(failed_place(&members, &indexes, 0));
                continue;
            }
            let mut pods = Vec::new();
            for index in &indexes {
                let (uid, placed) = &members[*index];
                match self.ask(uid) {
                    Ok(ask) => pods.push((uid.clone(), ask, placed.placement.gpus.clone())),
                    Err(reason) => {
                        let message = reason.status_text().message;
                        return Err(PlanFault::Final(NodeError {
                            node: node.to_string(),
                            message,
                        }));
                    }
                }
            }
            let beside = successors.iter().filter(|one| one.node == node).cloned().collect();
            let checks_neighbours = is_single;
            let arrivals = Arrivals { node: &node, pods, beside, moved: &moved, checks_neighbours };
            let below = below.filter(|_| self.cache.needs_uncounted(&arrivals));
            match self.cache.victims_on(&arrivals, &leaving, below) {
                Ok((others, found)) => {
                    if let Some(others) = others {
                        let uid = arrivals.pods[0].0.clone();
                        dearer.push(FailedPlace { uid, node: id, fitting: Vec::new() });
                        leaving = others;
                    }
                    for (index, (uid, ..)) in indexes.iter().zip(&arrivals.pods) {
                        let own = found.iter().find(|one| one.pod == *uid);
                        let Some(allocation) = own.cloned() else { continue };
                        if !allocation.parts.is_empty() {
                            members[*index].1.placement.gpus.clone_from(&allocation.parts);
                        }
                        devices.push(allocation);
                    }
                }
                Err((index, message)) => {
                    last = Some(NodeError { node: node.to_string(), message });
                    failed.push(failed_place(&members, &indexes, index));
                }
            }
        }
        if let Some(last) = last {
            return Err(PlanFault::Places(failed, last));
        }
        let victims: BTreeSet<PodUid> = leaving.difference(&already).cloned().collect();
        if let Some(first) = dearer.first()
            && !self.respects_limits(&victims, policy)
        {
            let message = "a disruption budget or the policy protects the pods".to_owned();
            let node = self.cache.engine().world.cluster.name(first.node).to_owned();
            let error = NodeError { node, message };
            return Err(PlanFault::Places(dearer, error));
        }
        let name = |placed: &Placed| self.cache.engine().world.cluster.name(placed.placement.node);
        let places: Vec<(PodUid, NodeName)> =
            members.iter().map(|(uid, placed)| (uid.clone(), name(placed).into())).collect();
        if let Err(error) = self.cache.check_neighbours_after(&places, &victims) {
            let node = places.first().map_or_else(String::new, |(_, node)| node.to_string());
            let error = NodeError { node, message: error.message().to_owned() };
            return Err(match members.first() {
                Some((uid, placed)) if is_single => {
                    let (uid, node) = (uid.clone(), placed.placement.node);
                    PlanFault::Places(vec![FailedPlace { uid, node, fitting: Vec::new() }], error)
                }
                _ => PlanFault::Final(error),
            });
        }
        if victims.is_empty() {
            let node = places.first().map_or_else(String::new, |(_, node)| node.to_string());
            let message = "pods that are leaving have not left yet".to_owned();
            return Err(PlanFault::Final(NodeError { node, message }));
        }
        self.cache.extend_plan(&mut plan, &victims, &members);
        Ok(VerifiedPlan { plan, members, devices, dearer })
    }

    /// Places that would not serve their pods even on empty nodes.
    pub(in crate::state) fn failed_when_empty(
        &self,
        members: &[(PodUid, Placed)],
    ) -> Vec<FailedPlace> {
        let mut failed = Vec::new();
        for (id, indexes) in by_node(members) {
            let node: NodeName = self.cache.engine().world.cluster.name(id).into();
            let pods = indexes.iter().map(|index| {
                let uid = members[*index].0.clone();
                self.ask(&uid).map(|ask| (uid, ask, GpuParts::new()))
            });
            let Ok(pods) = pods.collect() else { continue };
            let (beside, moved) = (Vec::new(), &BTreeSet::new());
            let arrivals = Arrivals { node: &node, pods, beside, moved, checks_neighbours: false };
            if let Some(index) = self.cache.misfit_when_empty(&arrivals) {
                failed.push(failed_place(members, &indexes, index));
            }
        }
        failed
    }

    /// Whether pods would get their devices and resources on these nodes after others have left.
    pub(in crate::state) fn would_fit_after(
        &mut self,
        places: &[(PodUid, NodeName)],
        leaving: &BTreeSet<PodUid>,
    ) -> bool {
        let mut by_node: BTreeMap<&NodeName, Vec<(PodUid, Ask, GpuParts)>> = BTreeMap::new();
        for (uid, node) in places {
            let Ok(ask) = self.ask(uid) else { return false };
            by_node.entry(node).or_default().push((uid.clone(), ask, GpuParts::new()));
        }
        by_node.into_iter().all(|(node, pods)| {
            let (beside, moved) = (Vec::new(), &BTreeSet::new());
            let arrivals = Arrivals { node, pods, beside, moved, checks_neighbours: false };
            self.cache.devices_after(&arrivals, leaving).is_ok()
        })
    }

    /// Whether disruption budgets and the policy allow that these pods leave.
    pub(in crate::state) fn respects_limits(
        &self,
        victims: &BTreeSet<PodUid>,
        policy: &PlacementPolicy,
    ) -> bool {
        let records = victims.iter().filter_map(|uid| self.cache.pod(uid));
        let is_running =
            |record: &&PodRecord| record.pod.meta.deleted.is_none() && !record.is_nominated();
        let most = policy.constraints().max_pods_disturbed;
        let count = i64::try_from(victims.len()).unwrap_or(i64::MAX);
        !victims.is_empty()
            && most.is_none_or(|most| count <= most)
            && self.exceeded_budgets_for(records.filter(is_running)).is_empty()
    }
}

impl Cache {
    /// The pods that a plan evicts or moves.
    pub(in crate::state) fn victims_of(&self, plan: &Plan) -> BTreeSet<PodUid> {
        let moves = plan.moves.iter().map(|step| step.member);
        self.pods_of_members(plan.evictions.iter().copied().chain(moves))
    }

    fn pods_of_members(&self, members: impl Iterator<Item = MemberId>) -> BTreeSet<PodUid> {
        let records = members.filter_map(|id| self.pod(self.engine().holder(id)?));
        records.map(|record| record.pod.uid()).collect()
    }

    /// Changes the victims of a plan to these, and its places to those of the members.
    pub(in crate::state) fn extend_plan(
        &self,
        plan: &mut Plan,
        victims: &BTreeSet<PodUid>,
        members: &[(PodUid, Placed)],
    ) {
        let moved: BTreeSet<_> = plan.moves.iter().map(|step| step.member).collect();
        let all: BTreeSet<_> = victims.iter().filter_map(|uid| self.engine().member(uid)).collect();
        plan.evictions.retain(|id| all.contains(id));
        let known: BTreeSet<_> = plan.evictions.iter().copied().collect();
        let is_new = |id: &&MemberId| !known.contains(id) && !moved.contains(id);
        plan.evictions.extend(all.iter().filter(is_new));
        plan.placements = members.iter().map(|(_, placed)| placed.clone()).collect();
        let disturbed = plan.evictions.len() + plan.moves.len();
        plan.cost.set(CostTerm::PodsDisturbed, i64::try_from(disturbed).unwrap_or(i64::MAX));
    }

    /// The devices that the successors of moved pods get at their new places, in the order of the
    /// moves. Fails if a new place would not serve one.
    fn successor_devices(
        &self,
        plan: &Plan,
        leaving: &BTreeSet<PodUid>,
    ) -> Result<Vec<PodAllocation>, NodeError> {
        let mut found: Vec<PodAllocation> = Vec::new();
        for step in &plan.moves {
            let Some(holder) = self.engine().holder(step.member) else { continue };
            let Some(record) = self.pod(holder) else { continue };
            let node = self.engine().world.cluster.name(step.to.node);
            let error = |message: String| NodeError { node: node.to_owned(), message };
            let ask = self.devices().ask_again(&record.pod);
            let ask = ask.map_err(|fault| error(fault.to_string()))?;
            if ask.is_empty() {
                continue;
            }
            let beside: Vec<_> = found.iter().filter(|one| *one.node == *node).cloned().collect();
            let gpus = Some(&*step.to.gpus);
            let allocation = self.devices().allocate_after(&ask, node, gpus, leaving, &beside);
            found.push(allocation.map_err(|refusal| error(refusal.to_string()))?);
        }
        Ok(found)
    }
}

/// Indexes of members by node.
fn by_node(members: &[(PodUid, Placed)]) -> BTreeMap<NodeId, Vec<usize>> {
    let mut by_node: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
    for (index, (_, placed)) in members.iter().enumerate() {
        by_node.entry(placed.placement.node).or_default().push(index);
    }
    by_node
}

/// The place of a member on a node, whose members have these `indexes`. `first` is the position of
/// the first one that does not fit.
fn failed_place(members: &[(PodUid, Placed)], indexes: &[usize], first: usize) -> FailedPlace {
    let (uid, placed) = &members[indexes[first]];
    let fitting = indexes[..first].iter().map(|other| members[*other].0.clone()).collect();
    FailedPlace { uid: uid.clone(), node: placed.placement.node, fitting }
}
