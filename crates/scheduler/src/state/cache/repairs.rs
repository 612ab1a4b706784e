//! Gangs that ran in full. One that lacks members since is repaired: it may take spare nodes for as
//! many as it lacks. A gang that grows is no repair.
//!
//! A scheduler that starts finds them by what their bindings say ([`super::placed_gang`]), as long as
//! one of their members runs.

use std::collections::VecDeque;
use std::sync::Arc;

use octavo_engine::objective::policy::PlacementPolicy;

use super::Cache;
use super::members::{is_bound, is_running};
use crate::groups::{GroupName, GroupSpec};

/// Milliseconds after a fault for which a gang without members may come back as a repair. Owners that
/// create pods again wait longer after each failure: for a Job up to six minutes.
const COMES_BACK_MS: u64 = 3_600_000;

/// A gang that ran with its minimum of members.
#[derive(Clone, Debug)]
pub(super) struct FullRun {
    /// Its spec at that time.
    spec: Arc<GroupSpec>,
    /// Once all members have left after a fault: when that is forgotten, in milliseconds.
    forget_at: Option<u64>,
}

/// Faults of a gang after which it came back, or would have.
#[derive(Clone, Debug)]
pub(super) struct Faults {
    /// UID of the object that announced the gang. Another one of the same name begins without faults.
    announcer: Arc<str>,
    /// When they were, in milliseconds: the last ones, and one more than it is repaired for.
    times: VecDeque<u64>,
    /// Whether an event says that there are too many.
    is_reported: bool,
}

impl Cache {
    /// Counts a fault of a gang. Returns whether it is the first one that is too many.
    pub(in crate::state) fn note_fault(&mut self, group: &GroupName, spec: &GroupSpec) -> bool {
        let announcer = Arc::clone(&spec.announcer.uid);
        let known = self.faults.remove(group).filter(|faults| faults.announcer == announcer);
        let (times, is_reported) = (VecDeque::new(), false);
        let mut faults = known.unwrap_or(Faults { announcer, times, is_reported });
        faults.times.push_back(self.now);
        if faults.times.len() > self.max_repairs() + 1 {
            faults.times.pop_front();
        }
        let is_over = self.are_too_many(&faults);
        let is_first = is_over && !faults.is_reported;
        faults.is_reported = is_over;
        self.faults.insert(group.clone(), faults);
        is_first
    }

    /// Whether a gang had more faults of late than it is repaired for.
    pub(in crate::state) fn has_too_many_faults(
        &self,
        group: &GroupName,
        spec: &GroupSpec,
    ) -> bool {
        let faults = self.faults.get(group);
        let faults = faults.filter(|faults| faults.announcer == spec.announcer.uid);
        faults.is_some_and(|faults| self.are_too_many(faults))
    }

    fn are_too_many(&self, faults: &Faults) -> bool {
        let (now, window) = (self.now, self.repair_window());
        let is_recent = |at: &&u64| now.saturating_sub(**at) < window;
        faults.times.iter().filter(is_recent).count() > self.max_repairs()
    }

    fn max_repairs(&self) -> usize {
        usize::try_from(self.config.max_repairs).unwrap_or(usize::MAX - 1)
    }

    fn repair_window(&self) -> u64 {
        self.config.repair_window_seconds.saturating_mul(1000)
    }

    /// Records that a gang runs with its minimum, once the API shows all these members as bound.
    pub(super) fn note_full_run(&mut self, group: &GroupName, spec: Arc<GroupSpec>) {
        let is_same = |run: &FullRun| run.forget_at.is_none() && Arc::ptr_eq(&run.spec, &spec);
        if !self.full_runs.get(group).is_some_and(is_same)
            && self.missing_if(group, &spec, is_bound).is_empty()
        {
            self.full_runs.insert(group.clone(), FullRun { spec, forget_at: None });
        }
    }

    /// Records that a gang with fewer members than its minimum ran in full before this scheduler
    /// started, if it did. Only for the first look at a gang: later its places may have been given back.
    pub(super) fn recall_full_run(&mut self, group: &GroupName, spec: &GroupSpec) {
        if self.full_runs.contains_key(group) {
            return;
        }
        if let Some(spec) = self.earlier_full_run(group, spec).map(Arc::new) {
            self.full_runs.insert(group.clone(), FullRun { spec, forget_at: None });
        }
    }

    /// The last member of a gang has left. After a fault it may come back as a repair.
    pub(in crate::state) fn end_full_run(&mut self, group: &GroupName, is_fault: bool) {
        let forget_at = is_fault.then(|| self.now.saturating_add(COMES_BACK_MS));
        match self.full_runs.get_mut(group).filter(|_| is_fault) {
            Some(run) => run.forget_at = forget_at,
            None => _ = self.full_runs.remove(group),
        }
    }

    /// Forgets gangs without members whose time is over, or whose object has changed.
    pub(in crate::state) fn forget_full_runs(&mut self, has_changed: impl Fn(&GroupName) -> bool) {
        let now = self.now;
        let is_over = |group: &GroupName, at: u64| at <= now || has_changed(group);
        self.full_runs.retain(|group, run| !run.forget_at.is_some_and(|at| is_over(group, at)));
        let window = self.repair_window();
        self.faults.retain(|group, faults| {
            let is_recent = |at: &u64| now.saturating_sub(*at) < window;
            !has_changed(group) && faults.times.back().is_some_and(is_recent)
        });
    }

    /// The policy by which a gang gets its lacking members, if it is repaired and spare nodes are for
    /// it. Nodes that are lent below a priority are not for repairs below it.
    pub(in crate::state) fn repair_policy(
        &self,
        group: &GroupName,
        spec: &GroupSpec,
        policy: &PlacementPolicy,
    ) -> Option<PlacementPolicy> {
        let spares = &policy.constraints().spares;
        if spares.is_empty() || !self.is_repair(group, spec) {
            return None;
        }
        let repair = policy.for_repair(self.profile_of_group(group, spec).priority);
        (repair.constraints().spares.len() < spares.len()).then_some(repair)
    }

    /// Whether a gang that ran in full lacks members, and wants no more than it had.
    fn is_repair(&self, group: &GroupName, spec: &GroupSpec) -> bool {
        let Some(run) = self.full_runs.get(group) else { return false };
        if self.has_too_many_faults(group, spec) {
            return false;
        }
        let had = |name: &str| run.spec.subs.iter().find(|sub| *sub.name == *name);
        spec.subs.iter().all(|sub| had(&sub.name).is_some_and(|had| sub.min <= had.min))
            && !self.missing_if(group, spec, is_running).is_empty()
    }
}
