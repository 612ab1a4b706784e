//! Preemption by trial, for pods whose needs the engine does not count: claims that only the
//! allocator can decide, host ports, storage, limits of volumes, rules about other pods.
//!
//! As kube-scheduler's `DefaultPreemption`: on each node all pods of lower priority are taken away.
//! If the pod then fits by every check, they are put back one by one, the most important first, as
//! long as it still fits. The node whose victims matter least is chosen. Members of gangs are no
//! victims here.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use octavo_engine::explain;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::placement::GpuParts;
use octavo_engine::plan::Placed;
use octavo_engine::{Gang, Placement, Plan};
use octavo_kube_io::objects::{NodeName, PodUid};

use crate::devices::Ask;
use crate::predicates::{Exclusions, check_resource_fit};
use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::cache::pod::PodRecord;
use crate::state::queue::QueueKey;
use crate::state::reporter::pending_reason::PendingReason;

/// Nodes on which victims are chosen, at most.
const MAX_NODES: usize = 64;
/// Nodes at most on which the allocator runs, or rules about other pods are checked.
const MAX_TRIALS: usize = 256;

/// The victims on a node; the least is the best.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Victims {
    highest: i32,
    count: usize,
    priorities: i64,
    node: NodeName,
    pods: Vec<PodUid>,
    gpus: GpuParts,
}

impl Scheduler {
    /// A plan that evicts pods of a lower priority for a single pod, found by trial.
    pub(in crate::state) fn plan_by_trial(
        &mut self,
        uid: &PodUid,
        ask: &Ask,
        priority: i32,
        policy: &PlacementPolicy,
    ) -> Option<Plan> {
        if policy.has_limits() {
            // Only the engine can judge these.
            return None;
        }
        let mut names: Vec<NodeName> = self.cache.nodes().keys().cloned().collect();
        // Each trial begins with other nodes, so that none is never tried.
        let first = self.trials_begun % names.len().max(1);
        self.trials_begun = self.trials_begun.wrapping_add(MAX_NODES);
        names.rotate_left(first);
        let mut best: Option<Victims> = None;
        let (mut chosen, mut trials) = (0, 0);
        for node in names {
            if chosen == MAX_NODES || trials == MAX_TRIALS {
                break;
            }
            if self.cache.check_node_rules(uid, &node).is_err()
                || !self.cache.may_allocate_devices(ask, &node)
                || self.cache.has_nominated_pods(&node)
            {
                continue;
            }
            let candidates = self.cache.candidates_on(&node, priority);
            if candidates.is_empty() {
                continue;
            }
            let all: BTreeSet<PodUid> = candidates.iter().cloned().collect();
            if !self.cache.has_room_without(uid, &node, &all) {
                continue;
            }
            trials += 1;
            let Some(gpus) = self.cache.fits_without(uid, ask, &node, &all) else { continue };
            let victims = self.cache.fewest_victims(uid, ask, &node, candidates, gpus);
            if self.respects_limits(&victims, policy) {
                chosen += 1;
                if best.as_ref().is_none_or(|best| victims < *best) {
                    best = Some(victims);
                }
            }
        }
        let Victims { node, pods, gpus, .. } = best?;
        let placement = Placement { node: self.cache.engine().node(&node)?, gpus };
        Some(Plan {
            evictions: pods.iter().filter_map(|uid| self.cache.engine().member(uid)).collect(),
            placements: vec![Placed { group: 0, rank: 0, placement }],
            ..Plan::default()
        })
    }

    /// Nominates the place of a plan that was found by trial.
    pub(in crate::state) fn nominate_by_trial(
        &mut self,
        uid: &PodUid,
        key: &QueueKey,
        gang: &Gang,
        policy: &PlacementPolicy,
        plan: &Plan,
    ) -> Result<(), PendingReason> {
        let placed = plan.placements.first().cloned().ok_or(PendingReason::Gone)?;
        let explanation =
            explain::answer(&self.cache.engine().world, policy, gang, &Ok(plan.clone()));
        self.reporter.log_decision(key, explanation);
        self.nominate(key, &[(uid.clone(), placed)], plan)
    }

    /// Whether disruption budgets and the policy allow these evictions.
    fn respects_limits(&self, victims: &Victims, policy: &PlacementPolicy) -> bool {
        let records = victims.pods.iter().filter_map(|uid| self.cache.pod(uid));
        let is_running = |record: &&PodRecord| record.pod.meta.deleted.is_none();
        let most = policy.constraints().max_pods_disturbed;
        let count = i64::try_from(victims.count).unwrap_or(i64::MAX);
        !victims.pods.is_empty()
            && most.is_none_or(|most| count <= most)
            && self.exceeded_budgets_for(records.filter(is_running)).is_empty()
    }
}

impl Cache {
    /// Whether a node has pods whose devices are not assumed yet.
    fn has_nominated_pods(&self, node: &str) -> bool {
        let residents = self.pods_on(node);
        residents.filter_map(|uid| self.pod(uid)).any(PodRecord::is_nominated)
    }

    /// Single pods on a node that may be evicted for this priority, the most important first.
    fn candidates_on(&self, node: &str, priority: i32) -> Vec<PodUid> {
        let is_candidate = |record: &&PodRecord| {
            let workloads = &self.engine().world.workloads;
            let member = self.engine().member(&record.pod.meta.uid);
            let workload = member.and_then(|id| workloads.workload(id.workload));
            record.occupies()
                && record.member.is_none()
                && workload.is_some_and(|workload| {
                    workload.profile.is_preemptible && workload.profile.priority < priority
                })
        };
        let residents = self.pods_on(node);
        let mut candidates: Vec<&PodRecord> =
            residents.filter_map(|uid| self.pod(uid)).filter(is_candidate).collect();
        candidates.sort_by_key(|record| {
            let pod = &record.pod;
            (Reverse(pod.spec.priority), pod.meta.created, pod.meta.name.clone())
        });
        candidates.iter().map(|record| record.pod.uid()).collect()
    }

    /// Whether a node has the resources of a pod without some pods, devices apart.
    fn has_room_without(&self, uid: &PodUid, node: &NodeName, leaving: &BTreeSet<PodUid>) -> bool {
        let (Some(record), Some(target)) = (self.pod(uid), self.node(node)) else {
            return false;
        };
        let leaving = leaving.iter().map(|uid| &**uid);
        let Some(usage) = self.usage_without(node, leaving) else { return false };
        let serves = |resource: &str| self.devices().is_class_resource(resource);
        let (footprint, capacity) = (&record.footprint, &target.capacity);
        check_resource_fit(footprint, capacity, &usage, self.volumes(), serves).is_ok()
    }

    /// The parts of GPUs that a pod gets on a node without some pods; `None` if it does not fit.
    fn fits_without(
        &mut self,
        uid: &PodUid,
        ask: &Ask,
        node: &NodeName,
        leaving: &BTreeSet<PodUid>,
    ) -> Option<GpuParts> {
        if !self.has_room_without(uid, node, leaving) {
            return None;
        }
        let gpus = if ask.is_empty() {
            GpuParts::new()
        } else {
            self.devices_mut().allocate_without(ask, node, leaving).ok()?.parts
        };
        self.is_let_in_without(uid, node, leaving).then_some(gpus)
    }

    /// Whether rules about other pods allow a pod on a node without some pods.
    fn is_let_in_without(
        &mut self,
        uid: &PodUid,
        node: &NodeName,
        leaving: &BTreeSet<PodUid>,
    ) -> bool {
        let away = self.exclusions(uid);
        let Some(target) = self.node(node) else { return false };
        if away.check(&target.node).is_ok() && !self.needs_a_neighbour(uid) {
            return true;
        }
        let leaving: Vec<PodUid> = leaving.iter().cloned().collect();
        self.without_neighbours(&leaving, |scheduler| scheduler.check_neighbours(uid, node).is_ok())
    }

    /// Whether a pod has rules that others may keep by being there: then it may need a victim.
    fn needs_a_neighbour(&self, uid: &PodUid) -> bool {
        let record = self.pod(uid);
        record.is_some_and(|record| {
            let spec = &record.pod.spec;
            !spec.affinity.is_empty() || spec.spread.iter().any(|spread| spread.is_hard)
        })
    }

    /// Puts candidates back as long as the pod still fits.
    fn fewest_victims(
        &mut self,
        uid: &PodUid,
        ask: &Ask,
        node: &NodeName,
        candidates: Vec<PodUid>,
        gpus: GpuParts,
    ) -> Victims {
        let mut leaving: BTreeSet<PodUid> = candidates.iter().cloned().collect();
        let mut gpus = gpus;
        for candidate in &candidates {
            leaving.remove(candidate);
            match self.fits_without(uid, ask, node, &leaving) {
                Some(fitting) => gpus = fitting,
                None => _ = leaving.insert(candidate.clone()),
            }
        }
        let pods: Vec<PodUid> =
            candidates.into_iter().filter(|candidate| leaving.contains(candidate)).collect();
        let priorities = pods.iter().filter_map(|uid| self.pod(uid));
        let priorities: Vec<i32> = priorities.map(|record| record.pod.spec.priority).collect();
        Victims {
            highest: priorities.iter().copied().max().unwrap_or(i32::MIN),
            count: pods.len(),
            priorities: priorities.iter().map(|priority| i64::from(*priority)).sum(),
            node: node.clone(),
            pods,
            gpus,
        }
    }

    /// Whether the engine does not count something that a pod needs.
    pub(in crate::state) fn needs_trial(&self, uid: &PodUid, ask: &Ask, away: &Exclusions) -> bool {
        let takes_uncounted = self.pod(uid).is_some_and(|record| {
            crate::state::cache::pod::takes_uncounted(&record.footprint, |name| {
                crate::state::cycle::decide::is_gpu(name, ask)
            })
        });
        !ask.is_exact || takes_uncounted || !away.is_empty()
    }
}
