//! Disruption budgets: whom they let leave, and plans that keep to them.
//!
//! Who leaves for others is evicted, and the Eviction API refuses what a budget does not allow. A plan
//! that asked for more would send the first of its victims away in vain. So none does: the engine knows
//! workloads that may be disturbed and others that may not, and where its plan asks too much of a budget,
//! those beyond are shown to it as spared, and it is asked again.
//!
//! That is exact for a pod by itself whose victims are pods by themselves. Where several nodes are cleared
//! at once, or gangs leave, a plan that would keep to the budgets may be missed; one that does not is
//! never made.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_engine::workload::{MemberId, Profile, WorkloadId};
use octavo_engine::{Answer, NodeId, Plan};
use octavo_kube_io::objects::{Budget, Delta, Meta, ObjectName};

use super::Core;
use super::picture::Picture;
use super::pod::PodRecord;
use super::statement::Blocked;
use crate::predicates::selects;

/// Times that the engine is asked again before all pods beyond what their budgets allow are spared.
const ROUNDS: usize = 4;

/// A pod that a budget is for.
struct Guarded {
    member: MemberId,
    node: NodeId,
    priority: i32,
    created: i64,
}

/// Pods by the budget that is for them. Those of several, which the Eviction API refuses, have none of a
/// name.
type Guards = BTreeMap<ObjectName, Vec<Guarded>>;

impl Core {
    /// Takes in what changed of budgets.
    pub(super) fn apply_budgets(&mut self, delta: &Delta<Budget>) {
        let name = |budget: &Budget| budget.meta.name.clone();
        let before: BTreeMap<ObjectName, Option<Arc<Budget>>> = match delta {
            Delta::Set(budget) => {
                [(name(budget), self.budgets.insert(name(budget), Arc::clone(budget)))].into()
            }
            Delta::Gone(budget) => [(name(budget), self.budgets.remove(&name(budget)))].into(),
            Delta::All(_, budgets) => {
                let new = budgets.iter().map(|one| (name(one), Arc::clone(one))).collect();
                let mut old = std::mem::replace(&mut self.budgets, new);
                let names: BTreeSet<_> = old.keys().chain(self.budgets.keys()).cloned().collect();
                let known = names.into_iter().map(|name| (name.clone(), old.remove(&name)));
                known.collect()
            }
        };
        let mut namespaces: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut lets_more_go = false;
        for (name, old) in before {
            let (old, new) = (old.as_deref(), self.budgets.get(&name).map(Arc::as_ref));
            if old.map(protects) != new.map(protects) {
                namespaces.insert(Arc::clone(&name.namespace));
                lets_more_go |= old.is_some();
            }
            let allowed = |budget: Option<&Budget>| budget.map(|budget| budget.allowed);
            lets_more_go |= old.is_some() && allowed(new) > allowed(old);
        }
        let concerned = self.pods.values().filter(|record| {
            record.occupies() && namespaces.contains(&record.pod.meta.name.namespace)
        });
        let uids: Vec<_> = concerned.map(|record| Arc::clone(&record.pod.meta.uid)).collect();
        for uid in uids {
            self.forget_profile(&uid);
            self.refresh(&uid);
        }
        if lets_more_go {
            self.something_changed();
        }
    }

    /// Whether disruption budgets let nobody more of the pod's kind leave now.
    pub(super) fn is_protected(&self, record: &PodRecord) -> bool {
        self.budget_against(record).is_some()
    }

    /// The disruption budget that lets nobody more of the pod's kind leave now.
    pub(super) fn budget_against(&self, record: &PodRecord) -> Option<&ObjectName> {
        let meta = &record.pod.meta;
        let mut budgets = self.budgets_of(meta);
        let first = budgets.next()?;
        // The Eviction API refuses pods that several are for.
        let is_against =
            budgets.next().is_some() || (first.allowed <= 0 && !is_leaving_by(first, meta));
        is_against.then_some(&first.meta.name)
    }

    /// Asks the engine until its plan keeps to all budgets.
    pub(super) fn within_budgets(
        &mut self,
        ask: impl Fn(&mut Picture) -> Result<Answer, Blocked>,
    ) -> Result<Answer, Blocked> {
        self.kept_to_budgets = false;
        let mut answer = ask(&mut self.picture);
        if self.budgets.is_empty() {
            return answer;
        }
        let mut spared: BTreeMap<WorkloadId, Profile> = BTreeMap::new();
        for round in 0..=ROUNDS {
            let Ok(Ok(plan)) = &answer else { break };
            let over = self.over_budget(plan);
            if over.is_empty() {
                break;
            }
            self.kept_to_budgets = true;
            let guards = self.guards();
            let spare = match round {
                0 => self.beyond_on_each_node(plan, &guards),
                ROUNDS => self.all_but_kept(plan, &guards, |_| true),
                _ => self.all_but_kept(plan, &guards, |guard| over.contains(guard)),
            };
            tracing::debug!(
                ?over,
                spared = spare.len(),
                "a plan asks more of budgets than they allow"
            );
            for id in spare {
                if let Some(said) = self.picture.spare(id) {
                    spared.entry(id).or_insert(said);
                }
            }
            answer = ask(&mut self.picture);
        }
        for (id, said) in spared {
            self.picture.spare_no_more(id, said);
        }
        answer
    }

    /// Budgets that are for a pod.
    fn budgets_of<'a>(&'a self, meta: &Meta) -> impl Iterator<Item = &'a Arc<Budget>> {
        let namespace = &meta.name.namespace;
        let first = ObjectName::new(Arc::clone(namespace), "");
        let of_namespace = self.budgets.range(first..);
        of_namespace
            .take_while(move |(name, _)| name.namespace == *namespace)
            .map(|(_, budget)| budget)
            .filter(|budget| is_for(budget, meta))
    }

    /// The budget that is for a pod; none of a name where several are.
    fn guard_of(&self, meta: &Meta) -> Option<ObjectName> {
        let mut budgets = self.budgets_of(meta);
        let first = budgets.next()?;
        let is_only = budgets.next().is_none();
        Some(if is_only { first.meta.name.clone() } else { ObjectName::default() })
    }

    /// How many more a budget lets go now, with those in mind who were asked to and of whom it is not
    /// seen yet.
    fn allows(&self, guard: &ObjectName) -> usize {
        let Some(budget) = self.budgets.get(guard) else { return 0 };
        let asked = self.promises.values().flat_map(super::Promise::victims);
        let asked: BTreeSet<&Arc<str>> = asked.collect();
        let is_unseen = |uid: &&Arc<str>| {
            self.pods.get(*uid).is_some_and(|record| {
                let meta = &record.pod.meta;
                meta.name.namespace == guard.namespace
                    && meta.deleted.is_none()
                    && is_for(budget, meta)
                    && !is_leaving_by(budget, meta)
            })
        };
        let unseen = asked.into_iter().filter(is_unseen).count();
        usize::try_from(budget.allowed).unwrap_or(0).saturating_sub(unseen)
    }

    /// Whom a plan asks to leave, as far as that is not on its way already.
    fn asked_by<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = (MemberId, &'a PodRecord)> {
        let moved = plan.moves.iter().map(|step| step.member);
        plan.evictions.iter().copied().chain(moved).filter_map(|member| {
            let record = self.pods.get(self.picture.holder(member)?)?;
            record.pod.meta.deleted.is_none().then_some((member, record))
        })
    }

    /// Budgets of which a plan asks more than they allow.
    fn over_budget(&self, plan: &Plan) -> BTreeSet<ObjectName> {
        let mut asked: BTreeMap<ObjectName, usize> = BTreeMap::new();
        for (_, record) in self.asked_by(plan) {
            if let Some(guard) = self.guard_of(&record.pod.meta) {
                *asked.entry(guard).or_default() += 1;
            }
        }
        asked.retain(|guard, count| *count > self.allows(guard));
        asked.into_keys().collect()
    }

    /// All pods in the picture that budgets are for.
    fn guards(&self) -> Guards {
        let mut guards = Guards::new();
        for (uid, record) in &self.pods {
            let Some(member) = self.picture.member(uid) else { continue };
            let Some(seen) = self.picture.world.workloads.member(member) else { continue };
            let Some(guard) = self.guard_of(&record.pod.meta) else { continue };
            guards.entry(guard).or_default().push(Guarded {
                member,
                node: seen.placement.node,
                priority: record.pod.spec.priority,
                created: record.pod.meta.created,
            });
        }
        guards
    }

    /// Workloads to spare so that no node has more to give than each budget allows. Of pods by themselves
    /// those stay to be chosen that the plan chose, then those of the least priority, the newest first;
    /// who can only go whole is spared where all of it is too much.
    fn beyond_on_each_node(&self, plan: &Plan, guards: &Guards) -> BTreeSet<WorkloadId> {
        let chosen: BTreeSet<MemberId> = self.asked_by(plan).map(|(member, _)| member).collect();
        let mut spare = BTreeSet::new();
        for (guard, pods) in guards {
            let allowed = self.allows(guard);
            let mut on_node: BTreeMap<NodeId, Vec<&Guarded>> = BTreeMap::new();
            for (workload, count) in by_workload(pods) {
                if self.goes_whole(workload) && count > allowed {
                    spare.insert(workload);
                }
            }
            for pod in pods.iter().filter(|pod| self.is_single(pod.member.workload)) {
                on_node.entry(pod.node).or_default().push(pod);
            }
            for mut pods in on_node.into_values() {
                pods.sort_by_key(|pod| {
                    let is_chosen = chosen.contains(&pod.member);
                    (!is_chosen, pod.priority, Reverse(pod.created), pod.member)
                });
                spare.extend(pods.iter().skip(allowed).map(|pod| pod.member.workload));
            }
        }
        spare
    }

    /// Workloads to spare so that no plan can ask more of these budgets than they allow: all but the first
    /// that this plan chose.
    fn all_but_kept(
        &self,
        plan: &Plan,
        guards: &Guards,
        is_meant: impl Fn(&ObjectName) -> bool,
    ) -> BTreeSet<WorkloadId> {
        let chosen: Vec<WorkloadId> =
            self.asked_by(plan).map(|(member, _)| member.workload).collect();
        let mut spare = BTreeSet::new();
        for (guard, pods) in guards.iter().filter(|(guard, _)| is_meant(guard)) {
            let mut rest = self.allows(guard);
            let counts = by_workload(pods);
            let mut kept = BTreeSet::new();
            for workload in &chosen {
                let Some(count) = counts.get(workload) else { continue };
                if !kept.contains(workload) && *count <= rest {
                    rest -= count;
                    kept.insert(*workload);
                }
            }
            spare.extend(counts.into_keys().filter(|workload| !kept.contains(workload)));
        }
        spare
    }

    /// Whether a workload's members can only leave together.
    fn goes_whole(&self, id: WorkloadId) -> bool {
        let workload = self.picture.world.workloads.workload(id);
        workload.is_some_and(|one| {
            let is_least = one.member_count() <= one.min_members;
            one.bonds.is_whole || (one.min_members > 1 && is_least)
        })
    }

    /// Whether a workload is one pod by itself.
    fn is_single(&self, id: WorkloadId) -> bool {
        let workload = self.picture.world.workloads.workload(id);
        workload.is_some_and(|one| one.member_count() == 1 && !one.bonds.is_whole)
    }
}

/// How many of these pods each workload has.
fn by_workload(pods: &[Guarded]) -> BTreeMap<WorkloadId, usize> {
    let mut counts = BTreeMap::new();
    for pod in pods {
        *counts.entry(pod.member.workload).or_default() += 1;
    }
    counts
}

/// What of a budget says which pods may be no victims at all.
fn protects(budget: &Budget) -> impl PartialEq + use<'_> {
    let is_closed = budget.allowed <= 0;
    (&budget.selector, is_closed, is_closed.then_some(&budget.disrupted))
}

fn is_for(budget: &Budget, meta: &Meta) -> bool {
    budget.selector.as_ref().is_some_and(|selector| selects(selector, &meta.labels))
}

/// Whether a budget knows already that a pod leaves.
fn is_leaving_by(budget: &Budget, meta: &Meta) -> bool {
    budget.disrupted.iter().any(|name| **name == *meta.name.name)
}
