//! What pods that arrive on a node would get there once others have left, by the allocator and the
//! filters, and who must leave for it.
//!
//! Victims are chosen as in kube-scheduler's `DefaultPreemption`: all pods of lower priority are
//! taken away. If those that arrive then fit, pods are put back one by one, the most important first,
//! as long as they still fit. Members of gangs are no victims here.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use octavo_engine::placement::GpuParts;
use octavo_engine::preemption::PreemptionBudget;
use octavo_kube_io::objects::{NodeName, PodUid};

use crate::devices::{Ask, Feasibility, PodAllocation};
use crate::predicates::check_resource_fit;
use crate::state::cache::Cache;
use crate::state::cache::pod::{self, PodRecord};
use crate::state::cycle::decide::is_gpu;

/// Pods that get places on one node.
#[derive(Debug)]
pub(in crate::state) struct Arrivals<'a> {
    pub(in crate::state) node: &'a NodeName,
    /// The pods, what they ask for, and the parts of GPUs that the engine chose.
    pub(in crate::state) pods: Vec<(PodUid, Ask, GpuParts)>,
    /// Devices that successors of moved pods get there.
    pub(in crate::state) beside: Vec<PodAllocation>,
    /// Pods that leave in any case, because they are moved.
    pub(in crate::state) moved: &'a BTreeSet<PodUid>,
    /// Whether rules about other pods are checked. For gangs the whole plan is.
    pub(in crate::state) checks_neighbours: bool,
}

/// The first pod that does not fit, by its index, and why.
pub(in crate::state) type Misfit = (usize, String);

impl Cache {
    /// Whether pods need something that the engine does not count.
    pub(in crate::state) fn needs_uncounted(&self, arrivals: &Arrivals<'_>) -> bool {
        arrivals.pods.iter().any(|(uid, ask, _)| {
            let away = arrivals.checks_neighbours.then(|| self.exclusions(uid));
            self.has_uncounted(uid, ask) || away.is_some_and(|away| !away.is_empty())
        })
    }

    /// Whether the engine does not count something that a pod asks for.
    pub(in crate::state) fn has_uncounted(&self, uid: &PodUid, ask: &Ask) -> bool {
        !ask.is_exact
            || self.pod(uid).is_some_and(|record| {
                pod::takes_uncounted(&record.footprint, |name| is_gpu(name, ask))
            })
    }

    /// The devices of pods that arrive on a node once those of `leaving` have left. If these do not
    /// suffice, single pods below a priority are added to them; then also the new set is returned,
    /// without pods that need not leave any more. Fails with the first pod that does not fit even
    /// then.
    pub(in crate::state) fn victims_on(
        &mut self,
        arrivals: &Arrivals<'_>,
        leaving: &BTreeSet<PodUid>,
        below: Option<i32>,
    ) -> Result<(Option<BTreeSet<PodUid>>, Vec<PodAllocation>), Misfit> {
        let misfit = match self.devices_after(arrivals, leaving) {
            Ok(devices) => return Ok((None, devices)),
            Err(misfit) => misfit,
        };
        let Some(below) = below else { return Err(misfit) };
        let mut candidates = self.candidates_on(arrivals.node, below);
        candidates.retain(|uid| !arrivals.moved.contains(uid));
        let mut all = leaving.clone();
        all.extend(candidates.iter().cloned());
        if all.len() == leaving.len() {
            return Err(misfit);
        }
        let mut devices = self.devices_after(arrivals, &all)?;
        for candidate in &candidates {
            all.remove(candidate);
            match self.devices_after(arrivals, &all) {
                Ok(fitting) => devices = fitting,
                Err(_) => _ = all.insert(candidate.clone()),
            }
        }
        Ok((Some(all), devices))
    }

    /// Whether a node has pods that may be evicted for a single pod, and would have room without them.
    pub(in crate::state) fn has_candidates(
        &self,
        uid: &PodUid,
        ask: &Ask,
        node: &NodeName,
        below: i32,
        leaving: &BTreeSet<PodUid>,
    ) -> bool {
        if !ask.is_exact {
            let wish = self.devices().request_key(ask);
            let found = self.devices().feasibility(ask, wish, node);
            if matches!(found, Feasibility::Never | Feasibility::Invalid) {
                return false;
            }
        }
        let candidates = self.candidates_on(node, below);
        let mut all = leaving.clone();
        all.extend(candidates.iter().cloned());
        !candidates.is_empty() && self.check_room_after(node, std::iter::once(uid), &all).is_ok()
    }

    /// Single pods on a node below a priority that may be evicted, the most important first.
    fn candidates_on(&self, node: &str, below: i32) -> Vec<PodUid> {
        let is_candidate = |record: &&PodRecord| {
            let workloads = &self.engine().world.workloads;
            let member = self.engine().member(&record.pod.meta.uid);
            let workload = member.and_then(|id| workloads.workload(id.workload));
            record.occupies()
                && record.member.is_none()
                && !self.is_protected(record)
                && workload.is_some_and(|workload| {
                    workload.profile.is_preemptible && workload.profile.priority < below
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

    /// The devices of pods that arrive on a node after others have left.
    pub(in crate::state) fn devices_after(
        &mut self,
        arrivals: &Arrivals<'_>,
        leaving: &BTreeSet<PodUid>,
    ) -> Result<Vec<PodAllocation>, Misfit> {
        let Arrivals { node, pods, beside, checks_neighbours, .. } = arrivals;
        self.check_room_after(node, pods.iter().map(|(uid, ..)| uid), leaving)?;
        let mut devices = beside.clone();
        for (index, (_, ask, gpus)) in pods.iter().enumerate() {
            if ask.is_empty() {
                continue;
            }
            let gpus = Some(&**gpus).filter(|gpus| !gpus.is_empty());
            let found = self.devices().allocate_after(ask, node, gpus, leaving, &devices);
            devices.push(found.map_err(|refusal| (index, refusal.to_string()))?);
        }
        for (index, (uid, ..)) in pods.iter().enumerate().filter(|_| *checks_neighbours) {
            if !self.is_let_in_after(uid, node, leaving) {
                return Err((index, "pods that stay keep it away".to_owned()));
            }
        }
        Ok(devices.split_off(beside.len()))
    }

    /// Checks the resources of pods that arrive on a node after others have left, devices apart.
    fn check_room_after<'a>(
        &self,
        node: &NodeName,
        pods: impl Iterator<Item = &'a PodUid>,
        leaving: &BTreeSet<PodUid>,
    ) -> Result<(), Misfit> {
        let gone = || (0, "the node is gone".to_owned());
        let target = self.node(node).ok_or_else(gone)?;
        let leaving = leaving.iter().map(|uid| &**uid);
        let mut usage = self.usage_without(node, leaving).ok_or_else(gone)?;
        let serves = |resource: &str| self.devices().is_class_resource(resource);
        for (index, record) in pods.filter_map(|uid| self.pod(uid)).enumerate() {
            let footprint = &record.footprint;
            check_resource_fit(footprint, &target.capacity, &usage, self.volumes(), serves)
                .map_err(|reasons| {
                    let reasons: Vec<_> = reasons.iter().map(ToString::to_string).collect();
                    (index, reasons.join(", "))
                })?;
            usage.add(footprint);
        }
        Ok(())
    }

    /// Whether a pod would fit a node by its resources and devices after the pods have left that may
    /// leave it within a budget, and those that are leaving. Rules about other pods are not checked.
    pub(in crate::state) fn could_fit_after(
        &self,
        uid: &PodUid,
        ask: &Ask,
        node: &NodeName,
        budget: &PreemptionBudget,
        leaving: &BTreeSet<PodUid>,
    ) -> bool {
        let Some(id) = self.engine().node(node) else { return false };
        let workloads = &self.engine().world.workloads;
        let may_leave = workloads.on(id).filter(|member| {
            workloads.workload(member.workload).is_some_and(|workload| {
                let profile = &workload.profile;
                budget.may_evict(profile) || budget.moves > 0 && profile.is_movable
            })
        });
        let records = may_leave
            .filter_map(|member| self.pod(self.engine().holder(member)?))
            .filter(|record| !self.is_protected(record));
        let mut all = leaving.clone();
        all.extend(records.map(|record| record.pod.uid()));
        self.check_room_after(node, std::iter::once(uid), &all).is_ok()
            && (ask.is_empty() || self.devices().allocate_after(ask, node, None, &all, &[]).is_ok())
    }

    /// The index of the first of these pods that would not get its devices even on the empty node.
    pub(in crate::state) fn misfit_when_empty(&self, arrivals: &Arrivals<'_>) -> Option<usize> {
        let mut devices: Vec<PodAllocation> = Vec::new();
        for (index, (_, ask, _)) in arrivals.pods.iter().enumerate() {
            if ask.is_empty() {
                continue;
            }
            match self.devices().allocate_when_empty(ask, arrivals.node, &devices) {
                Ok(allocation) => devices.push(allocation),
                Err(_) => return Some(index),
            }
        }
        None
    }

    /// Whether rules about other pods allow a pod on a node after others have left.
    fn is_let_in_after(
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
        self.without_neighbours(leaving, |cache| cache.check_neighbours(uid, node).is_ok())
    }

    /// Whether a pod has rules that others may keep by being there: then it may need a victim.
    fn needs_a_neighbour(&self, uid: &PodUid) -> bool {
        let record = self.pod(uid);
        record.is_some_and(|record| {
            let spec = &record.pod.spec;
            !spec.affinity.is_empty() || spec.spread.iter().any(|spread| spread.is_hard)
        })
    }
}
