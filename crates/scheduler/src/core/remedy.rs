//! Who would have to go so that something that was refused would have its place, and why nobody is asked to.
//! It is looked for when somebody asks, and now and then for the status of a gang that waits; nothing is
//! decided by it.
//!
//! First among those whom settings alone protect: pods that may be moved, and pods of lower priority. Where
//! that is not enough, as if everybody might be disturbed.
//!
//! For somebody who asks it is a [`Search`] that is run elsewhere, one at a time; what it has found is kept
//! until something changes.

mod said;
mod search;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_engine::explain::{Explanation, PreemptionHint};
use octavo_engine::workload::{MemberId, WorkloadId};
use octavo_kube_io::objects::ObjectName;

use super::Core;
use super::asking::Asked;
use super::pod::{Hold, PodRecord};
use super::queue::Unit;
use super::single::gang_of_one;
use super::statement::Blocked;
use crate::groups::{GroupName, PlacementHints};
pub use search::{Found, Search};
use search::{Reach, Seen, Wish};

/// Steps of a search for somebody who asks.
const STEPS: u64 = 1_000_000;
/// Steps of a search for the status of a gang.
const STEPS_UNASKED: u64 = 200_000;
/// Milliseconds between two searches for statuses, whoever waits.
const PACE: u64 = 1000;
/// Milliseconds before a gang that waits for the same reason is looked at again, and for which an answer is
/// kept at most: some of what stands against it passes by itself.
const AGAIN: u64 = 10_000;
/// Answers that are kept; of a large gang one may name thousands of pods.
const MOST_KEPT: usize = 32;

/// Gangs of which it is to be looked for, by when; and what was found for those who asked.
#[derive(Debug, Default)]
pub(super) struct Due {
    at: BTreeSet<(u64, GroupName)>,
    known: BTreeSet<GroupName>,
    /// Not before.
    next: u64,
    kept: BTreeMap<Unit, Kept>,
}

/// The state of everything that an answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Epoch {
    changes: u64,
    orders: u64,
    edits: u64,
    /// The last decision on who asks.
    decision: u64,
}

/// An answer to somebody who asked.
#[derive(Debug)]
struct Kept {
    epoch: Epoch,
    /// It holds until then, if the epoch does.
    until: u64,
    /// It is given until then, whatever has changed: where changes never end somebody would ask for ever.
    at_least: u64,
    answer: Remedied,
}

/// What is known of who would have to go.
#[derive(Clone, Debug, Default)]
pub(super) struct Remedied {
    /// Who would have to.
    pub(super) disturbance: Option<PreemptionHint>,
    /// What is to be said of the search.
    pub(super) note: Option<String>,
    /// Whether it was not looked for.
    pub(super) is_open: bool,
}

impl Due {
    /// Forgets what was found: something that is counted nowhere has changed.
    pub(super) fn forget_found(&mut self) {
        self.kept.clear();
    }
}

impl Core {
    /// Of a pod: the search for who would have to go, if it was refused and that is not known. `None` as
    /// well where there is no such pod.
    pub fn search_for_pod(&mut self, name: &ObjectName) -> Option<Search> {
        let unit = self.unit_of(self.by_name.get(name)?);
        self.search_for(&unit)
    }

    /// The same of a gang, by its own name or that of the object that announced it.
    pub fn search_for_group(&mut self, name: &ObjectName) -> Option<Search> {
        let unit = Unit::Group(self.group_named(name)?.clone());
        self.search_for(&unit)
    }

    fn search_for(&mut self, unit: &Unit) -> Option<Search> {
        if !self.remedied(unit).is_open {
            return None;
        }
        self.search(unit, STEPS)
    }

    /// Takes in what was found; the next search, if it takes another one.
    pub fn take_found(&mut self, found: Found) -> Option<Search> {
        if found.leaving.is_none()
            && found.reach == Reach::Allowed
            && self.may_be_helped(&found.unit)
        {
            return self.search_wider(found, STEPS);
        }
        let leaving = found.leaving.as_ref();
        let disturbance = leaving.map(|leaving| self.disturbance_said(&found.wish, leaving));
        let ended = format!("searched to the end, which takes more than {STEPS} steps");
        let note = match (&disturbance, found.is_cut) {
            (Some(_), false) if found.was_cut => Some(format!(
                "those who may be disturbed were not {ended}: the going of some of them may do"
            )),
            (_, false) => None,
            (Some(_), true) => {
                Some(format!("who would have to go was not {ended}: fewer pods may do"))
            }
            (None, true) => Some(format!(
                "who would have to go was not {ended}: it is not known whether anybody's going would help"
            )),
        };
        let kept = &mut self.remedies.kept;
        if kept.len() >= MOST_KEPT && !kept.contains_key(&found.unit) {
            kept.retain(|_, one| one.until > self.now && one.epoch.changes == self.changes);
            if kept.len() >= MOST_KEPT {
                kept.clear();
            }
        }
        let answer = Remedied { disturbance, note, is_open: false };
        let (until, at_least) = (self.now.saturating_add(AGAIN), self.now.saturating_add(PACE));
        let epoch = found.epoch;
        kept.insert(found.unit, Kept { epoch, until, at_least, answer });
        None
    }

    /// What is known of who would have to go for a unit.
    pub(super) fn remedied(&self, unit: &Unit) -> Remedied {
        if !self.may_be_helped(unit) {
            return Remedied::default();
        }
        let kept = self.remedies.kept.get(unit);
        let valid = kept.filter(|one| {
            one.at_least > self.now || (one.until > self.now && one.epoch == self.epoch(unit))
        });
        valid.map_or(Remedied { is_open: true, ..Remedied::default() }, |one| one.answer.clone())
    }

    fn epoch(&self, unit: &Unit) -> Epoch {
        Epoch {
            changes: self.changes,
            orders: self.next_order,
            edits: self.picture.edits,
            decision: self.queue.last_decision(unit),
        }
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
            let found = self.least_disturbance(&unit).map(|found| found.line());
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

    /// For the status of a gang: looked for at once.
    fn least_disturbance(&mut self, unit: &Unit) -> Option<PreemptionHint> {
        let mut found = self.search(unit, STEPS_UNASKED)?.run();
        if found.leaving.is_none() {
            found = self.search_wider(found, STEPS_UNASKED)?.run();
        }
        found.leaving.as_ref().map(|leaving| self.disturbance_said(&found.wish, leaving))
    }

    /// A search among those whom settings alone protect.
    fn search(&mut self, unit: &Unit, steps: u64) -> Option<Search> {
        self.bring_picture_up_to_date();
        let wish = self.wish_of(unit).ok()?;
        let seen =
            Seen { world: self.picture.world.clone(), holders: self.picture.holders().clone() };
        let (unit, epoch) = (unit.clone(), self.epoch(unit));
        let (reach, was_cut, in_reach) = (Reach::Allowed, false, Vec::new());
        Some(Search { unit, wish, reach, epoch, steps, seen, was_cut, in_reach })
    }

    /// The same among all, in the same copy if it is still what it was.
    fn search_wider(&mut self, found: Found, steps: u64) -> Option<Search> {
        let is_as_it_was = found.epoch == self.epoch(&found.unit) && !self.is_picture_old;
        let Found { unit, wish, epoch, seen: Some(seen), is_cut: was_cut, .. } = found else {
            return None;
        };
        let (reach, in_reach) = (Reach::Everybody, Vec::new());
        let search = Search { unit, wish, reach, epoch, steps, seen, was_cut, in_reach };
        let search = if is_as_it_was { search } else { self.search(&search.unit, steps)? };
        Some(Search { reach, was_cut, in_reach: self.all_in_reach(), ..search })
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
                let said = PlacementHints::of(&record.pod.meta).map_err(Blocked::Group)?;
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

    /// All who are bound: every pod could be evicted, and moved where somebody makes it again, which is the
    /// second that is said of each.
    fn all_in_reach(&self) -> Vec<(WorkloadId, bool)> {
        let mut all = Vec::new();
        for (id, workload) in self.picture.world.workloads.iter() {
            let members = (0..).zip(&workload.members).filter(|(_, member)| member.is_some());
            let members = members.map(|(member, _)| MemberId { workload: id, member });
            let record = |id| self.pods.get(self.picture.holder(id)?);
            let is_bound = |record: &PodRecord| {
                record.place.as_ref().is_some_and(|place| place.hold == Hold::Bound)
            };
            let is_made_again = |record: &PodRecord| {
                record.pod.spec.scheduler == self.config.scheduler_name
                    && record.pod.meta.owner.is_some()
            };
            let (mut are_bound, mut is_movable) = (true, true);
            for record in members.map(record) {
                are_bound &= record.is_some_and(is_bound);
                is_movable &= record.is_some_and(is_made_again);
            }
            if are_bound {
                all.push((id, is_movable));
            }
        }
        all
    }
}
