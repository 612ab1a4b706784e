//! Disruption budgets: whom they let leave, and plans that keep to them.
//!
//! Who leaves for others is evicted, and the Eviction API refuses what a budget does not allow. A plan
//! that asked for more would send the first of its victims away in vain. So none does: the engine knows
//! workloads that may be disturbed and others that may not, and where its plan asks too much of a budget,
//! those beyond are shown to it as spared, and it is asked again.
//!
//! For a pod by itself whose victims are pods by themselves that finds a plan wherever there is one, though
//! perhaps not the cheapest, if its node lacks one kind of amount: of each budget's pods those stay to be
//! chosen that have most of it. Where several kinds are lacking, certain GPUs must become free, several
//! nodes are cleared at once, or gangs leave, a plan that would keep to the budgets may be missed; one that
//! does not is never made.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::Arc;

use octavo_engine::disturb::Allowance;
use octavo_engine::workload::{Member, MemberId, Profile, WorkloadId};
use octavo_engine::{Answer, NodeId, Plan};
use octavo_kube_io::objects::{Budget, Delta, Meta, ObjectName};

use super::Core;
use super::pod::PodRecord;
use super::statement::Blocked;
use crate::predicates::selects;

/// Times that the engine is asked again before all pods beyond what their budgets allow are spared.
const ROUNDS: usize = 4;

/// Kinds of amounts that a newcomer may be short of.
const AMOUNTS: usize = 4;

/// A pod that a budget is for.
struct Guarded {
    member: MemberId,
    node: NodeId,
    amounts: [i64; AMOUNTS],
    priority: i32,
    created: i64,
}

/// Pods by the budget that is for them. Those of several, which the Eviction API refuses, have none of a
/// name.
type Guards = BTreeMap<ObjectName, Vec<Guarded>>;

/// Workloads that are shown as ones that may not be disturbed, and what they said of themselves.
type Spared = BTreeMap<WorkloadId, Profile>;

impl Core {
    /// Takes in what changed of budgets.
    pub(super) fn apply_budgets(&mut self, delta: &Delta<Budget>) {
        let name = |budget: &Budget| budget.meta.name.clone();
        let before: BTreeMap<ObjectName, Option<Arc<Budget>>> = match delta {
            Delta::Upsert(budget) => {
                [(name(budget), self.budgets.insert(name(budget), Arc::clone(budget)))].into()
            }
            Delta::Delete(budget) => [(name(budget), self.budgets.remove(&name(budget)))].into(),
            Delta::Replace(_, budgets) => {
                let new = budgets.iter().map(|one| (name(one), Arc::clone(one))).collect();
                let mut old = std::mem::replace(&mut self.budgets, new);
                let names: BTreeSet<_> = old.keys().chain(self.budgets.keys()).cloned().collect();
                let known = names.into_iter().map(|name| (name.clone(), old.remove(&name)));
                known.collect()
            }
        };
        // Those that protect others than before, as they were and as they are.
        let mut others: BTreeMap<Arc<str>, Vec<Arc<Budget>>> = BTreeMap::new();
        let mut is_woken = false;
        for (name, old) in before {
            let new = self.budgets.get(&name);
            is_woken |= old.as_ref().is_some_and(|old| lets_more_go(old, new.map(Arc::as_ref)));
            if old.as_deref().map(protects) != new.map(|new| protects(new)) {
                let both = old.into_iter().chain(new.cloned());
                others.entry(name.namespace).or_default().extend(both);
            }
        }
        let concerned = self.pods.values().filter(|record| {
            let meta = &record.pod.meta;
            let of_namespace = others.get(&meta.name.namespace).into_iter().flatten();
            record.occupies() && of_namespace.into_iter().any(|budget| is_for(budget, meta))
        });
        let uids: Vec<_> = concerned.map(|record| Arc::clone(&record.pod.meta.uid)).collect();
        for uid in uids {
            self.forget_profile(&uid);
            self.refresh(&uid);
        }
        if is_woken {
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

    /// Asks the engine until its plan keeps to all budgets. `allowance`: whom it may disturb.
    pub(super) fn within_budgets<T>(
        &mut self,
        allowance: &Allowance,
        mut ask: impl FnMut(&mut Self) -> Result<(Answer, T), Blocked>,
    ) -> Result<(Answer, T), Blocked> {
        let mut answer = ask(self);
        let Ok((Ok(plan), _)) = &answer else { return answer };
        if self.over_budget(plan).is_empty() {
            return answer;
        }
        let guards = self.guards(allowance);
        let mut spared = Spared::new();
        for spare in self.beyond_on_each_node(plan, &guards) {
            self.spare_no_more(&mut spared);
            self.spare(spare, &mut spared);
            answer = ask(self);
            if !matches!(answer, Ok((Err(_), _))) {
                break;
            }
        }
        for round in 1..=ROUNDS {
            let Ok((Ok(plan), _)) = &answer else { break };
            let over = self.over_budget(plan);
            if over.is_empty() {
                break;
            }
            tracing::debug!(?over, "a plan asks more of budgets than they allow");
            let is_meant = |guard: &ObjectName| round == ROUNDS || over.contains_key(guard);
            let spare = self.all_but_kept(plan, &guards, is_meant);
            self.spare(spare, &mut spared);
            answer = ask(self);
        }
        self.spare_no_more(&mut spared);
        answer
    }

    /// Shows workloads as ones that may not be disturbed.
    fn spare(&mut self, spare: BTreeSet<WorkloadId>, spared: &mut Spared) {
        for id in spare {
            if let Some(said) = self.picture.spare(id) {
                spared.entry(id).or_insert(said);
            }
        }
    }

    /// Shows all as they were.
    fn spare_no_more(&mut self, spared: &mut Spared) {
        for (id, said) in std::mem::take(spared) {
            self.picture.spare_no_more(id, said);
        }
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
    pub(super) fn allows(&self, guard: &ObjectName) -> usize {
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

    /// Budgets of which a plan asks more than they allow, and how many it asks to leave.
    pub(super) fn over_budget(&self, plan: &Plan) -> BTreeMap<ObjectName, usize> {
        self.over_budget_by(self.asked_by(plan).map(|(_, record)| record))
    }

    /// The same, where these pods are asked to leave.
    pub(super) fn over_budget_by<'a>(
        &'a self,
        leaving: impl Iterator<Item = &'a PodRecord>,
    ) -> BTreeMap<ObjectName, usize> {
        let mut asked: BTreeMap<ObjectName, usize> = BTreeMap::new();
        for record in leaving {
            if let Some(guard) = self.guard_of(&record.pod.meta) {
                *asked.entry(guard).or_default() += 1;
            }
        }
        asked.retain(|guard, count| *count > self.allows(guard));
        asked
    }

    /// All pods in the picture that budgets are for and that may be disturbed. Those that go already are
    /// asked nothing: they count for no budget.
    fn guards(&self, allowance: &Allowance) -> Guards {
        let mut guards = Guards::new();
        let pods = self.pods.iter().filter(|(_, record)| record.pod.meta.deleted.is_none());
        for (uid, record) in pods {
            let Some(member) = self.picture.member(uid) else { continue };
            let workloads = &self.picture.world.workloads;
            let Some(profile) = workloads.workload(member.workload).map(|one| &one.profile) else {
                continue;
            };
            let may_move = allowance.moves > 0 && profile.is_movable;
            if !may_move && !allowance.may_evict(profile) {
                continue;
            }
            let Some(seen) = workloads.member(member) else { continue };
            let Some(guard) = self.guard_of(&record.pod.meta) else { continue };
            guards.entry(guard).or_default().push(Guarded {
                member,
                node: seen.placement.node,
                amounts: amounts_of(seen),
                priority: record.pod.spec.priority,
                created: record.pod.meta.created,
            });
        }
        guards
    }

    /// Workloads to spare so that no node has more to give than each budget allows, in one way or another;
    /// who can only go whole is spared where all of it is too much. Of pods by themselves those stay to be
    /// chosen that the plan chose, then those of the least priority, the newest first. These may make too
    /// little room together: so in other ways those stay that have most of an amount.
    fn beyond_on_each_node(&self, plan: &Plan, guards: &Guards) -> Vec<BTreeSet<WorkloadId>> {
        let chosen: BTreeSet<MemberId> = self.asked_by(plan).map(|(member, _)| member).collect();
        let mut too_large = BTreeSet::new();
        let mut singles: Vec<(usize, Vec<&Guarded>)> = Vec::new();
        for (guard, pods) in guards {
            let allowed = self.allows(guard);
            for (workload, count) in by_workload(pods) {
                if self.goes_whole(workload) && count > allowed {
                    too_large.insert(workload);
                }
            }
            let mut on_node: BTreeMap<NodeId, Vec<&Guarded>> = BTreeMap::new();
            for pod in pods.iter().filter(|pod| self.is_single(pod.member.workload)) {
                on_node.entry(pod.node).or_default().push(pod);
            }
            singles.extend(on_node.into_values().map(|pods| (allowed, pods)));
        }
        let mut ways: Vec<BTreeSet<WorkloadId>> = Vec::new();
        for most_of in iter::once(None).chain((0..AMOUNTS).map(Some)) {
            let mut spare = too_large.clone();
            for (allowed, pods) in &mut singles {
                pods.sort_by_key(|pod| {
                    let amount = most_of.map_or(0, |kind| pod.amounts[kind]);
                    let is_chosen = chosen.contains(&pod.member);
                    let age = Reverse(pod.created);
                    (Reverse(amount), !is_chosen, pod.priority, age, pod.member)
                });
                spare.extend(pods.iter().skip(*allowed).map(|pod| pod.member.workload));
            }
            if !ways.contains(&spare) {
                ways.push(spare);
            }
        }
        ways
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

/// What a pod has: thousandths of GPUs and their memory, CPU, memory.
fn amounts_of(member: &Member) -> [i64; AMOUNTS] {
    let gpus = &member.placement.gpus;
    let milli = gpus.iter().map(|part| i64::from(part.milli)).sum();
    let memory = gpus.iter().map(|part| i64::from(part.memory_mib)).sum();
    let resources = &member.shape.resources;
    [milli, memory, resources.cpu_milli, resources.memory_mib]
}

/// How many of these pods each workload has.
fn by_workload(pods: &[Guarded]) -> BTreeMap<WorkloadId, usize> {
    let mut counts = BTreeMap::new();
    for pod in pods {
        *counts.entry(pod.member.workload).or_default() += 1;
    }
    counts
}

/// Whether a plan may keep to a budget that did not as it was before. One that closes, as those do of
/// whom somebody was just asked to leave, helps nobody.
fn lets_more_go(old: &Budget, new: Option<&Budget>) -> bool {
    new.is_none_or(|new| new.allowed > old.allowed || new.selector != old.selector)
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
