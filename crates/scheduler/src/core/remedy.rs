//! Who would have to go so that something that was refused would have its place, and why nobody is asked to.
//! It is looked for when somebody asks, and now and then for the status of a gang that waits; nothing is
//! decided by it.
//!
//! First among those whom settings alone protect: pods that may be moved, and pods of lower priority. Where
//! that is not enough, as if everybody might be disturbed.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_engine::decider::{Case, Decider};
use octavo_engine::decision::Plan;
use octavo_engine::disturb::Allowance;
use octavo_engine::explain::{DisturbanceSaid, Explanation, VictimSaid};
use octavo_engine::objective::Unit as CostUnit;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::solve::{NodeSet, Pinned};
use octavo_engine::workload::{MemberId, Profile};
use octavo_engine::{Gang, World};

use super::Core;
use super::asking::Asked;
use super::pod::{Hold, PodRecord};
use super::queue::Unit;
use super::single::gang_of_one;
use super::statement::Blocked;
use crate::groups::{GroupName, Marks as Standing};

/// Steps of a search for somebody who asks.
const STEPS: u64 = 1_000_000;
/// Steps of a search for the status of a gang.
const STEPS_UNASKED: u64 = 200_000;
/// Milliseconds between two searches for statuses, whoever waits.
const PACE: u64 = 1000;
/// Milliseconds before a gang that waits for the same reason is looked at again.
const AGAIN: u64 = 10_000;
/// Priorities from here on are of what the cluster itself needs.
const CRITICAL: i32 = 2_000_000_000;

/// Gangs of which it is to be looked for, by when.
#[derive(Debug, Default)]
pub(super) struct Due {
    at: BTreeSet<(u64, GroupName)>,
    known: BTreeSet<GroupName>,
    /// Not before.
    next: u64,
}

/// What a unit asks the engine for.
struct Wish {
    gang: Gang,
    pinned: Vec<Pinned>,
    forbidden: NodeSet,
    policy: Arc<PlacementPolicy>,
    may_preempt: bool,
}

impl Wish {
    /// The plan that disturbs fewer pods: moves, or evictions below a priority; of equals the moves.
    fn cheapest(
        &self,
        decider: &mut Decider,
        world: &mut World,
        below: i32,
        steps: u64,
    ) -> Option<Plan> {
        // A policy that takes nothing from others has an opinion on that alone.
        let default = PlacementPolicy::default();
        let policy = if self.policy.is_preempting() { &*self.policy } else { &default };
        let mut ask = |allowance: Allowance| {
            let case = Case {
                gang: &self.gang,
                pinned: &self.pinned,
                forbidden: &self.forbidden,
                allowance: &Allowance { steps, ..allowance },
                policy,
                waiting: &[],
                weights: &std::collections::BTreeMap::new(),
            };
            let plan = decider.disturbing_plan(world, &case).ok().flatten();
            plan.filter(|plan| !plan.moves.is_empty() || !plan.evictions.is_empty())
        };
        let moves = ask(Allowance::moves(u32::MAX));
        let evictions = ask(Allowance::evictions_below(below));
        let pods = |plan: &Plan| plan.cost.of(CostUnit::PodsDisturbed);
        match (moves, evictions) {
            (Some(moves), Some(evictions)) if pods(&evictions) < pods(&moves) => Some(evictions),
            (Some(moves), _) => Some(moves),
            (None, evictions) => evictions,
        }
    }
}

impl Core {
    /// Of a unit that was refused, for somebody who asks.
    pub(super) fn asked_disturbance(&mut self, unit: &Unit) -> Option<DisturbanceSaid> {
        if self.may_be_helped(unit) { self.least_disturbance(unit, STEPS) } else { None }
    }

    /// A gang was refused, or is still: its status will say who would have to go.
    pub(super) fn remedy_is_due(&mut self, unit: &Unit) {
        let Unit::Group(group) = unit else { return };
        let has_status =
            self.spec_of(group).is_some_and(|spec| spec.announcer.kind.kind == "PodGroup");
        let waiting = self.waiting.get(unit).filter(|waiting| waiting.is_refused);
        let Some(waiting) = waiting.filter(|_| has_status) else { return };
        let again = waiting.looked_at.map_or(0, |at| at.saturating_add(AGAIN));
        if self.remedies.known.insert(group.clone()) {
            let at = again.max(self.now.saturating_add(PACE));
            self.remedies.at.insert((at, group.clone()));
        }
    }

    /// Looks for one gang, if it is time. Says when the next is looked for.
    pub(super) fn tell_remedies(&mut self) -> Option<u64> {
        loop {
            let (at, group) = self.remedies.at.first()?.clone();
            let at_earliest = at.max(self.remedies.next);
            if at_earliest > self.now {
                return Some(at_earliest);
            }
            self.remedies.at.remove(&(at, group.clone()));
            self.remedies.known.remove(&group);
            let unit = Unit::Group(group.clone());
            if !self.may_be_helped(&unit) {
                continue;
            }
            self.remedies.next = self.now.saturating_add(PACE);
            let found = self.least_disturbance(&unit, STEPS_UNASKED).map(|found| found.line());
            let now = self.now;
            let Some(waiting) = self.waiting.get_mut(&unit) else { continue };
            waiting.looked_at = Some(now);
            if waiting.disturbance != found {
                waiting.disturbance = found;
                self.report_group(&group);
            }
        }
    }

    /// Whether a unit waits that the engine refused, and somebody's going might help.
    fn may_be_helped(&self, unit: &Unit) -> bool {
        let is_refused = self.waiting.get(unit).is_some_and(|waiting| waiting.is_refused);
        let is_other = |refusal: &str| matches!(refusal, "Request" | "Constraint" | "Spares");
        is_refused
            && !self.decisions.last(unit).is_some_and(
                |last| matches!(last, Explanation::Refused(said) if is_other(&said.reason)),
            )
    }

    fn least_disturbance(&mut self, unit: &Unit, steps: u64) -> Option<DisturbanceSaid> {
        self.bring_picture_up_to_date();
        let wish = self.wish_of(unit).ok()?;
        let own = wish.gang.profile.priority;
        let picture = &mut self.picture;
        let plan =
            wish.cheapest(&mut picture.decider, &mut picture.world, own, steps).or_else(|| {
                let mut world = self.with_all_in_reach();
                wish.cheapest(&mut Decider::searching(), &mut world, CRITICAL, steps)
            })?;
        Some(self.disturbance_said(&wish, &plan))
    }

    /// What a unit would ask for if it were decided on now.
    fn wish_of(&mut self, unit: &Unit) -> Result<Wish, Blocked> {
        let (gang, pinned, forbidden, policy) = match unit {
            Unit::Group(group) => {
                let spec = self.spec_of(group).ok_or(Blocked::Gone)?;
                let Asked { gang, pinned, forbidden, .. } = self.asked(group, &spec)?;
                (gang, pinned, forbidden, spec.policy.clone())
            }
            Unit::Pod(uid) => {
                let ask = self.ask(uid)?;
                let (shape, mark) = self.shape_of_waiting(uid, &ask).ok_or(Blocked::Gone)?;
                let record = self.pods.get(uid).ok_or(Blocked::Gone)?;
                let said = Standing::of(&record.pod.meta).map_err(Blocked::Group)?;
                let gang = gang_of_one(&self.profile_of(record), &shape);
                (gang, Vec::new(), self.forbidden(uid, mark, &ask, false), said.policy)
            }
        };
        let policy = self.policies.find(policy.as_deref()).map_err(Blocked::NoPolicy)?;
        let policy = Arc::clone(policy);
        let records = self.uids_of(unit).into_iter().filter_map(|uid| self.pods.get(&uid));
        let mut waiting = records.filter(|record| record.pod.node.is_none());
        let may_preempt = waiting.all(|record| record.pod.spec.may_preempt);
        Ok(Wish { gang, pinned, forbidden, policy, may_preempt })
    }

    /// The world as it would be if every pod could be evicted, and moved where somebody makes it again.
    fn with_all_in_reach(&self) -> World {
        let mut world = self.picture.world.clone();
        for (id, workload) in self.picture.world.workloads.iter() {
            let members = (0..).zip(&workload.members).filter(|(_, member)| member.is_some());
            let members = members.map(|(member, _)| MemberId { workload: id, member });
            let records: Option<Vec<_>> = members.map(|id| self.record_of(id)).collect();
            let Some(records) = records else { continue };
            let is_bound = |record: &&PodRecord| {
                record.place.as_ref().is_some_and(|place| place.hold == Hold::Bound)
            };
            if !records.iter().all(is_bound) {
                continue;
            }
            let is_made_again = |record: &&PodRecord| {
                record.pod.spec.scheduler == self.config.scheduler_name
                    && record.pod.meta.owner.is_some()
            };
            let is_movable = records.iter().all(is_made_again);
            let profile = Profile { is_preemptible: true, is_movable, ..workload.profile.clone() };
            world.workloads.describe(id, profile, workload.min_members, workload.bonds);
        }
        world
    }

    /// The pod that a member of the picture is; `None`: it is something else.
    fn record_of(&self, id: MemberId) -> Option<&PodRecord> {
        self.picture.holder(id).and_then(|holder| self.pods.get(holder))
    }

    fn disturbance_said(&self, wish: &Wish, plan: &Plan) -> DisturbanceSaid {
        let moves = plan.moves.iter().map(|step| {
            let to = self.picture.world.cluster.name(step.to.node).to_owned();
            VictimSaid { to: Some(to), ..self.victim_said(step.member) }
        });
        DisturbanceSaid {
            evictions: plan.evictions.iter().map(|id| self.victim_said(*id)).collect(),
            moves: moves.collect(),
            hindrances: self.hindrances(wish, plan),
        }
    }

    fn victim_said(&self, id: MemberId) -> VictimSaid {
        let workloads = &self.picture.world.workloads;
        let placement = workloads.member(id).map(|member| member.placement.node);
        let node = placement.map_or("", |node| self.picture.world.cluster.name(node));
        let profile = workloads.workload(id.workload).map(|workload| &workload.profile);
        let record = self.record_of(id);
        let name = record.map(|record| format!("pod {}", record.pod.meta.name));
        let member = record.and_then(|record| record.member.as_ref());
        VictimSaid {
            name: name.or(profile.map(|one| one.name.to_string())).unwrap_or_default(),
            gang: member.map(|member| member.group.to_string()),
            priority: profile.map_or(0, |profile| profile.priority),
            node: node.to_owned(),
            to: None,
        }
    }

    /// Why what would help is not done.
    fn hindrances(&self, wish: &Wish, plan: &Plan) -> Vec<String> {
        let mut words = Vec::new();
        if !plan.evictions.is_empty() {
            self.against_evictions(wish, plan, &mut words);
        }
        if !plan.moves.is_empty() {
            self.against_moves(plan, &mut words);
        }
        let victims = plan.evictions.iter().chain(plan.moves.iter().map(|step| &step.member));
        let victims: Vec<_> = victims.filter_map(|id| self.record_of(*id)).collect();
        let budgets: BTreeSet<_> =
            victims.iter().filter_map(|record| self.budget_against(record)).collect();
        for budget in &budgets {
            words.push(format!("PodDisruptionBudget {budget} allows no disruption now"));
        }
        // Pods of several budgets were named above: none of these may go.
        for (budget, count) in self.over_budget(plan) {
            let allowed = self.allows(&budget);
            if !budgets.contains(&budget) && !budget.name.is_empty() {
                words.push(format!(
                    "PodDisruptionBudget {budget} lets {allowed} go now, and {count} would"
                ));
            }
        }
        if let Some(record) = victims.iter().find(|record| record.left_alone_until > self.now) {
            let name = &record.pod.meta.name;
            words.push(format!("pod {name} could not be evicted a moment ago"));
        }
        words
    }

    fn against_evictions(&self, wish: &Wish, plan: &Plan, words: &mut Vec<String>) {
        if !self.config.preemption {
            words.push("`preemption` is off in the scheduler's config".to_owned());
        }
        if !wish.may_preempt {
            words.push("the `preemptionPolicy` of who waits is `Never`".to_owned());
        }
        if !wish.policy.is_preempting() {
            words.push(format!("PlacementPolicy {} allows no preemption", wish.policy.name()));
        }
        let own = wish.gang.profile.priority;
        let workloads = plan.evictions.iter().map(|id| id.workload).collect::<BTreeSet<_>>();
        let profiles = workloads.iter().filter_map(|id| {
            self.picture.world.workloads.workload(*id).map(|workload| &workload.profile)
        });
        let highest = profiles.map(|profile| profile.priority).max().unwrap_or(i32::MIN);
        if highest >= own {
            words.push(format!("the priority {highest} is not below that of who waits, {own}"));
        }
        let kept =
            plan.evictions.iter().filter_map(|id| self.record_of(*id)).filter_map(|record| {
                let member = record.member.as_ref()?;
                (!member.spec.is_preemptible).then(|| member.group.to_string())
            });
        for gang in kept.collect::<BTreeSet<_>>() {
            words.push(format!("{gang} says `preemptible: false`"));
        }
    }

    fn against_moves(&self, plan: &Plan, words: &mut Vec<String>) {
        let most = self.config.defragmentation_moves;
        let moves = plan.moves.len();
        if most == 0 {
            words.push("`defragmentation` is off in the scheduler's config".to_owned());
        } else if u32::try_from(moves).is_ok_and(|moves| moves > most) {
            words.push(format!(
                "{moves} moves are more than the {most} that `defragmentation.moves` allows"
            ));
        }
        let records = plan.moves.iter().filter_map(|step| self.record_of(step.member));
        let says = |record: &PodRecord| Standing::of(&record.pod.meta).ok()?.is_movable;
        let is_said = |record: &&PodRecord| {
            let of_gang = record.member.as_ref().map(|member| member.spec.is_movable);
            of_gang.or_else(|| says(record)).unwrap_or(false)
        };
        let (mut count, mut name) = (0, None);
        for record in records.filter(|record| !is_said(record)) {
            count += 1;
            name = name.or(Some(&record.pod.meta.name));
        }
        let movable = octavo_api::names::MOVABLE;
        match (count, name) {
            (1, Some(name)) => words.push(format!("pod {name} does not say `{movable}: \"true\"`")),
            (2.., Some(name)) => words.push(format!(
                "{count} of the pods, pod {name} the first, do not say `{movable}: \"true\"`"
            )),
            _ => {}
        }
    }
}
