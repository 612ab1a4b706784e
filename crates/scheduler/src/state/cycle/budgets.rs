//! Disruption budgets: plans that stay within `PodDisruptionBudget`s.
//!
//! Victims are evicted through the Eviction API, which rejects what a budget does not allow. A plan
//! that exceeds a budget would evict its first victims in vain. So no such plan is made. The engine
//! knows which workloads may be disturbed. Where its plan exceeds a budget, workloads beyond the
//! budget are marked as protected and the engine is asked again.
//!
//! For a single pod whose victims are single pods this finds a plan wherever one exists, if the
//! node lacks one kind of resource. The plan may not be the cheapest: of the pods of each budget,
//! those with most of that resource remain candidates. A valid plan may be missed if several kinds
//! are lacking or certain GPUs must become free. The same holds if several nodes are cleared at
//! once or gangs are victims. A plan that exceeds a budget is never made.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use octavo_engine::preemption::PreemptionBudget;
use octavo_engine::workload::{Member, MemberId, WorkloadId};
use octavo_engine::{NodeId, Plan, PlanResult};
use octavo_kube_io::objects::{ObjectName, PodUid};

use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::cache::budgets::{Spared, is_for, is_leaving_by};
use crate::state::cache::pod::PodRecord;
use crate::state::reporter::pending_reason::PendingReason;

/// Attempts before all pods beyond their budgets are protected.
const MAX_BUDGET_RETRIES: usize = 4;

/// Kinds of resources that a preemptor may lack.
const AMOUNT_KINDS: usize = 4;

/// A pod with a disruption budget.
struct BudgetedPod {
    member: MemberId,
    node: NodeId,
    amounts: [i64; AMOUNT_KINDS],
    priority: i32,
    created: i64,
}

/// Pods by their budget. Pods of several budgets have an empty name: the Eviction API rejects them.
type BudgetedPods = BTreeMap<ObjectName, Vec<BudgetedPod>>;

impl Scheduler {
    /// Asks the engine until its plan stays within all budgets. `preemption_budget` bounds the victims.
    pub(in crate::state) fn within_budgets<T>(
        &mut self,
        preemption_budget: &PreemptionBudget,
        mut ask: impl FnMut(&mut Self) -> Result<(PlanResult, T), PendingReason>,
    ) -> Result<(PlanResult, T), PendingReason> {
        let mut answer = ask(self);
        let Ok((Ok(plan), _)) = &answer else { return answer };
        if self.exceeded_budgets(plan).is_empty() {
            return answer;
        }
        let budgeted_pods = self.cache.budgeted_pods(preemption_budget);
        let mut spared = Spared::new();
        for spare in self.spare_variants_per_node(plan, &budgeted_pods) {
            self.cache.restore_spared(&mut spared);
            self.cache.spare(spare, &mut spared);
            answer = ask(self);
            if !matches!(answer, Ok((Err(_), _))) {
                break;
            }
        }
        for attempt in 1..=MAX_BUDGET_RETRIES {
            let Ok((Ok(plan), _)) = &answer else { break };
            let over = self.exceeded_budgets(plan);
            if over.is_empty() {
                break;
            }
            tracing::debug!(?over, "the plan exceeds disruption budgets");
            let is_selected = |budget_name: &ObjectName| {
                attempt == MAX_BUDGET_RETRIES || over.contains_key(budget_name)
            };
            let spare = self.spare_all_but_chosen(plan, &budgeted_pods, is_selected);
            self.cache.spare(spare, &mut spared);
            answer = ask(self);
        }
        self.cache.restore_spared(&mut spared);
        answer
    }

    /// The evictions that a budget allows now. Evictions that were requested and are not observed
    /// yet count as used.
    pub(in crate::state) fn allows(&self, budget_name: &ObjectName) -> usize {
        let Some(budget) = self.cache.budget(budget_name) else { return 0 };
        let victims = self.reservations.victims();
        let victims: BTreeSet<&PodUid> = victims.collect();
        let is_unseen = |uid: &&PodUid| {
            self.cache.pod(uid).is_some_and(|record| {
                let meta = &record.pod.meta;
                meta.name.namespace == budget_name.namespace
                    && meta.deleted.is_none()
                    && is_for(budget, meta)
                    && !is_leaving_by(budget, meta)
            })
        };
        let unseen = victims.into_iter().filter(is_unseen).count();
        usize::try_from(budget.allowed).unwrap_or(0).saturating_sub(unseen)
    }

    /// Budgets that a plan exceeds, with the number of its evictions.
    pub(in crate::state) fn exceeded_budgets(&self, plan: &Plan) -> BTreeMap<ObjectName, usize> {
        self.exceeded_budgets_for(self.cache.departures_of(plan).map(|(_, record)| record))
    }

    /// Budgets that are exceeded if these pods leave.
    pub(in crate::state) fn exceeded_budgets_for<'a>(
        &'a self,
        leaving: impl Iterator<Item = &'a PodRecord>,
    ) -> BTreeMap<ObjectName, usize> {
        let mut evictions: BTreeMap<ObjectName, usize> = BTreeMap::new();
        for record in leaving {
            if let Some(budget_name) = self.cache.budget_name_of(&record.pod.meta) {
                *evictions.entry(budget_name).or_default() += 1;
            }
        }
        evictions.retain(|budget_name, count| *count > self.allows(budget_name));
        evictions
    }

    /// Workloads to protect so that no node offers more victims than each budget allows, in several
    /// variants. A workload that leaves only as a whole is protected if the budget does not allow
    /// all of it. Of single pods the candidates are those that the plan chose, then those of least
    /// priority, the newest first. They may free too little together, so each other variant keeps
    /// the pods with most of one resource.
    fn spare_variants_per_node(
        &self,
        plan: &Plan,
        budgeted_pods: &BudgetedPods,
    ) -> Vec<BTreeSet<WorkloadId>> {
        let chosen: BTreeSet<MemberId> =
            self.cache.departures_of(plan).map(|(member, _)| member).collect();
        let mut too_large = BTreeSet::new();
        let mut single_pods: Vec<(usize, Vec<&BudgetedPod>)> = Vec::new();
        for (budget_name, pods) in budgeted_pods {
            let allowed = self.allows(budget_name);
            for (workload, count) in by_workload(pods) {
                if self.cache.is_evicted_whole(workload) && count > allowed {
                    too_large.insert(workload);
                }
            }
            let mut on_node: BTreeMap<NodeId, Vec<&BudgetedPod>> = BTreeMap::new();
            for pod in pods.iter().filter(|pod| self.cache.is_single(pod.member.workload)) {
                on_node.entry(pod.node).or_default().push(pod);
            }
            single_pods.extend(on_node.into_values().map(|pods| (allowed, pods)));
        }
        let mut variants: Vec<BTreeSet<WorkloadId>> = Vec::new();
        for most_of in iter::once(None).chain((0..AMOUNT_KINDS).map(Some)) {
            let mut spare = too_large.clone();
            for (allowed, pods) in &mut single_pods {
                pods.sort_by_key(|pod| {
                    let amount = most_of.map_or(0, |kind| pod.amounts[kind]);
                    let is_chosen = chosen.contains(&pod.member);
                    let age = Reverse(pod.created);
                    (Reverse(amount), !is_chosen, pod.priority, age, pod.member)
                });
                spare.extend(pods.iter().skip(*allowed).map(|pod| pod.member.workload));
            }
            if !variants.contains(&spare) {
                variants.push(spare);
            }
        }
        variants
    }

    /// Workloads to protect so that no plan can exceed these budgets: all but the first victims of
    /// this plan.
    fn spare_all_but_chosen(
        &self,
        plan: &Plan,
        budgeted_pods: &BudgetedPods,
        is_selected: impl Fn(&ObjectName) -> bool,
    ) -> BTreeSet<WorkloadId> {
        let chosen: Vec<WorkloadId> =
            self.cache.departures_of(plan).map(|(member, _)| member.workload).collect();
        let mut spare = BTreeSet::new();
        for (budget_name, pods) in
            budgeted_pods.iter().filter(|(budget_name, _)| is_selected(budget_name))
        {
            let mut allowance_left = self.allows(budget_name);
            let counts = by_workload(pods);
            let mut chosen_first = BTreeSet::new();
            for workload in &chosen {
                let Some(count) = counts.get(workload) else { continue };
                if !chosen_first.contains(workload) && *count <= allowance_left {
                    allowance_left -= count;
                    chosen_first.insert(*workload);
                }
            }
            spare.extend(counts.into_keys().filter(|workload| !chosen_first.contains(workload)));
        }
        spare
    }
}

impl Cache {
    /// The pods that a plan evicts or moves, except for those that are terminating already, or only
    /// nominated: the latter run nowhere.
    fn departures_of<'a>(
        &'a self,
        plan: &'a Plan,
    ) -> impl Iterator<Item = (MemberId, &'a PodRecord)> {
        let moved = plan.moves.iter().map(|step| step.member);
        plan.evictions.iter().copied().chain(moved).filter_map(|member| {
            let record = self.pod(self.engine().holder(member)?)?;
            let is_running = record.pod.meta.deleted.is_none() && !record.is_nominated();
            is_running.then_some((member, record))
        })
    }
    /// All cached pods with budgets that may be disturbed. Terminating pods count against no
    /// budget.
    fn budgeted_pods(&self, preemption_budget: &PreemptionBudget) -> BudgetedPods {
        let mut budgeted_pods = BudgetedPods::new();
        let pods = self.pods().iter().filter(|(_, record)| record.pod.meta.deleted.is_none());
        for (uid, record) in pods {
            let Some(member) = self.engine().member(uid) else { continue };
            let workloads = &self.engine().world.workloads;
            let Some(profile) =
                workloads.workload(member.workload).map(|workload| &workload.profile)
            else {
                continue;
            };
            let may_move = preemption_budget.moves > 0 && profile.is_movable;
            if !may_move && !preemption_budget.may_evict(profile) {
                continue;
            }
            let Some(placed) = workloads.member(member) else { continue };
            let Some(budget_name) = self.budget_name_of(&record.pod.meta) else { continue };
            budgeted_pods.entry(budget_name).or_default().push(BudgetedPod {
                member,
                node: placed.placement.node,
                amounts: amounts_of(placed),
                priority: record.pod.spec.priority,
                created: record.pod.meta.created,
            });
        }
        budgeted_pods
    }
    /// Whether the members of a workload can only leave together.
    fn is_evicted_whole(&self, id: WorkloadId) -> bool {
        let workload = self.engine().world.workloads.workload(id);
        workload.is_some_and(|workload| {
            let is_least = workload.member_count() <= workload.min_members;
            workload.coupling.is_whole || (workload.min_members > 1 && is_least)
        })
    }
    /// Whether a workload is a single pod.
    fn is_single(&self, id: WorkloadId) -> bool {
        let workload = self.engine().world.workloads.workload(id);
        workload.is_some_and(|workload| workload.member_count() == 1 && !workload.coupling.is_whole)
    }
}

/// Resources of a pod: thousandths of GPUs, GPU memory in MiB, thousandths of CPUs, memory in MiB.
fn amounts_of(member: &Member) -> [i64; AMOUNT_KINDS] {
    let gpus = &member.placement.gpus;
    let milli = gpus.iter().map(|part| i64::from(part.milli)).sum();
    let memory = gpus.iter().map(|part| i64::from(part.memory_mib)).sum();
    let resources = &member.shape.resources;
    [milli, memory, resources.cpu_milli, resources.memory_mib]
}

/// The number of these pods in each workload.
fn by_workload(pods: &[BudgetedPod]) -> BTreeMap<WorkloadId, usize> {
    let mut counts = BTreeMap::new();
    for pod in pods {
        *counts.entry(pod.member.workload).or_default() += 1;
    }
    counts
}
