//! Who would have to go so that something that was refused would have its place, and why nobody is asked to.
//! It is looked for when somebody asks, and now and then for the status of a gang that waits; nothing is
//! decided by it.
//!
//! First among those whom settings alone protect: pods that may be moved, and pods of lower priority. Where
//! that is not enough, as if everybody might be disturbed.
//!
//! For somebody who asks it is a [`Search`] that is run elsewhere, one at a time; what it has found is kept
//! until something changes.

mod describe;
mod search;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_engine::explain::{DisturbanceSaid, Explanation};
use octavo_engine::workload::{MemberId, WorkloadId};
use octavo_kube_io::objects::ObjectName;

use super::gang_request::GangRequest;
use super::pending_reason::PendingReason;
use super::pod::{PlaceState, PodRecord};
use super::queue::QueueKey;
use super::single_pod::gang_of_one;
use super::{Scheduler, gang_status};
use crate::groups::{GroupName, Marks as PlacementHints};
use search::{CandidateScope, HintRequest, SearchSnapshot};
pub use search::{HintResult, HintSearch};

/// Steps of a search for somebody who asks.
const MAX_SEARCH_STEPS: u64 = 1_000_000;
/// Steps of a search for the status of a gang.
const MAX_STATUS_SEARCH_STEPS: u64 = 200_000;
/// Milliseconds between two searches for statuses, whoever waits.
const SEARCH_INTERVAL_MS: u64 = 1000;
/// Milliseconds before a gang that waits for the same reason is looked at again, and for which an answer is
/// kept at most: some of what stands against it passes by itself.
const HINT_TTL_MS: u64 = 10_000;
/// Answers that are kept; of a large gang one may name thousands of pods.
const MAX_CACHED_HINTS: usize = 32;

/// Gangs of which it is to be looked for, by when; and what was found for those who asked.
#[derive(Debug, Default)]
pub(super) struct HintSchedule {
    due: BTreeSet<(u64, GroupName)>,
    scheduled: BTreeSet<GroupName>,
    /// Not before.
    not_before: u64,
    cached: BTreeMap<QueueKey, CachedHint>,
}

/// The state of everything that an answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HintRevision {
    cluster: u64,
    next_op: u64,
    engine: u64,
    /// The last decision on who asks.
    decision: u64,
}

/// An answer to somebody who asked.
#[derive(Debug)]
struct CachedHint {
    revision: HintRevision,
    /// It holds until then, if the epoch does.
    expires: u64,
    /// It is given until then, whatever has changed: where changes never end somebody would ask for ever.
    fresh_until: u64,
    hint: PreemptionHint,
}

/// What is known of who would have to go.
#[derive(Clone, Debug, Default)]
pub(super) struct PreemptionHint {
    /// Who would have to.
    pub(super) disturbance: Option<DisturbanceSaid>,
    /// What is to be said of the search.
    pub(super) note: Option<String>,
    /// Whether it was not looked for.
    pub(super) needs_search: bool,
}

/// Refusals of the engine that no eviction changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FixedRefusal {
    /// The request is invalid.
    Request,
    /// A hard limit of the policy.
    Constraint,
    /// Nodes that the policy keeps free.
    Spares,
}

impl HintSchedule {
    /// Forgets what was found: something that is counted nowhere has changed.
    pub(super) fn invalidate(&mut self) {
        self.cached.clear();
    }
}

impl Scheduler {
    /// Of a pod: the search for who would have to go, if it was refused and that is not known. `None` as
    /// well where there is no such pod.
    pub fn hint_search_for_pod(&mut self, name: &ObjectName) -> Option<HintSearch> {
        let key = self.queue_key_of(self.by_name.get(name)?);
        self.hint_search_for(&key)
    }

    /// The same of a gang, by its own name or that of the object that announced it.
    pub fn hint_search_for_group(&mut self, name: &ObjectName) -> Option<HintSearch> {
        let key = QueueKey::Group(self.group_named(name)?.clone());
        self.hint_search_for(&key)
    }

    fn hint_search_for(&mut self, key: &QueueKey) -> Option<HintSearch> {
        if !self.preemption_hint(key).needs_search {
            return None;
        }
        self.new_hint_search(key, MAX_SEARCH_STEPS)
    }

    /// Takes in what was found; the next search, if it takes another one.
    pub fn store_hint_result(&mut self, found: HintResult) -> Option<HintSearch> {
        if found.leaving.is_none()
            && found.scope == CandidateScope::Allowed
            && self.may_be_helped_by_preemption(&found.key)
        {
            return self.widen_hint_search(found, MAX_SEARCH_STEPS);
        }
        let leaving = found.leaving.as_ref();
        let disturbance = leaving.map(|leaving| self.describe_disturbance(&found.request, leaving));
        let ended = format!("searched to the end, which takes more than {MAX_SEARCH_STEPS} steps");
        let note = match (&disturbance, found.is_truncated) {
            (Some(_), false) if found.was_truncated => Some(format!(
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
        let cached = &mut self.hints.cached;
        if cached.len() >= MAX_CACHED_HINTS && !cached.contains_key(&found.key) {
            cached.retain(|_, hint| {
                hint.expires > self.now && hint.revision.cluster == self.cluster_revision
            });
            if cached.len() >= MAX_CACHED_HINTS {
                cached.clear();
            }
        }
        let hint = PreemptionHint { disturbance, note, needs_search: false };
        let (expires, fresh_until) =
            (self.now.saturating_add(HINT_TTL_MS), self.now.saturating_add(SEARCH_INTERVAL_MS));
        let revision = found.revision;
        cached.insert(found.key, CachedHint { revision, expires, fresh_until, hint });
        None
    }

    /// What is known of who would have to go for a unit.
    pub(super) fn preemption_hint(&self, key: &QueueKey) -> PreemptionHint {
        if !self.may_be_helped_by_preemption(key) {
            return PreemptionHint::default();
        }
        let cached = self.hints.cached.get(key);
        let valid = cached.filter(|hint| {
            hint.fresh_until > self.now
                || (hint.expires > self.now && hint.revision == self.hint_revision(key))
        });
        valid.map_or(PreemptionHint { needs_search: true, ..PreemptionHint::default() }, |hint| {
            hint.hint.clone()
        })
    }

    fn hint_revision(&self, key: &QueueKey) -> HintRevision {
        HintRevision {
            cluster: self.cluster_revision,
            next_op: self.next_op,
            engine: self.engine.revision,
            decision: self.queue.last_attempt(key),
        }
    }

    /// A gang was refused, or is still: its status will say who would have to go.
    pub(super) fn schedule_hint(&mut self, key: &QueueKey) {
        let QueueKey::Group(group) = key else { return };
        let has_status = self.spec_of(group).is_some_and(|spec| gang_status::has_status(&spec));
        let waiting = self.pending.get(key).filter(|waiting| waiting.is_unschedulable);
        let Some(waiting) = waiting.filter(|_| has_status) else { return };
        let at = waiting.hint_searched_at.map_or(0, |at| at.saturating_add(HINT_TTL_MS));
        if self.hints.scheduled.insert(group.clone()) {
            let at = at.max(self.now.saturating_add(SEARCH_INTERVAL_MS));
            self.hints.due.insert((at, group.clone()));
        }
    }

    /// Looks for one gang, if it is time. Says when the next is looked for.
    pub(super) fn report_due_hints(&mut self) -> Option<u64> {
        loop {
            let (at, group) = self.hints.due.first()?.clone();
            let at_earliest = at.max(self.hints.not_before);
            if at_earliest > self.now {
                return Some(at_earliest);
            }
            self.hints.due.remove(&(at, group.clone()));
            self.hints.scheduled.remove(&group);
            let key = QueueKey::Group(group.clone());
            if !self.may_be_helped_by_preemption(&key) {
                continue;
            }
            self.hints.not_before = self.now.saturating_add(SEARCH_INTERVAL_MS);
            let found = self.search_hint_now(&key).map(|found| found.line());
            let now = self.now;
            let Some(waiting) = self.pending.get_mut(&key) else { continue };
            waiting.hint_searched_at = Some(now);
            if waiting.hint != found {
                waiting.hint = found;
                self.report_group(&group);
            }
        }
    }

    /// Whether a unit waits that the engine refused, and somebody's going might help.
    fn may_be_helped_by_preemption(&self, key: &QueueKey) -> bool {
        let is_unschedulable =
            self.pending.get(key).is_some_and(|waiting| waiting.is_unschedulable);
        is_unschedulable
            && !self.decision_log.last(key).is_some_and(
                |last| matches!(last, Explanation::Refused(refusal) if FixedRefusal::of(&refusal.reason).is_some()),
            )
    }

    /// For the status of a gang: looked for at once.
    fn search_hint_now(&mut self, key: &QueueKey) -> Option<DisturbanceSaid> {
        let mut found = self.new_hint_search(key, MAX_STATUS_SEARCH_STEPS)?.run();
        if found.leaving.is_none() {
            found = self.widen_hint_search(found, MAX_STATUS_SEARCH_STEPS)?.run();
        }
        found.leaving.as_ref().map(|leaving| self.describe_disturbance(&found.request, leaving))
    }

    /// A search among those whom settings alone protect.
    fn new_hint_search(&mut self, key: &QueueKey, steps: u64) -> Option<HintSearch> {
        self.rebuild_engine_if_stale();
        let request = self.hint_request_of(key).ok()?;
        let snapshot = SearchSnapshot {
            world: self.engine.world.clone(),
            holders: self.engine.holders().clone(),
        };
        let (key, revision) = (key.clone(), self.hint_revision(key));
        let (scope, was_truncated, candidates) = (CandidateScope::Allowed, false, Vec::new());
        Some(HintSearch {
            key,
            request,
            scope,
            revision,
            steps,
            snapshot,
            was_truncated,
            candidates,
        })
    }

    /// The same among all, in the same copy if it is still what it was.
    fn widen_hint_search(&mut self, found: HintResult, steps: u64) -> Option<HintSearch> {
        let is_as_it_was =
            found.revision == self.hint_revision(&found.key) && !self.is_engine_stale;
        let HintResult {
            key,
            request,
            revision,
            snapshot: Some(snapshot),
            is_truncated: was_truncated,
            ..
        } = found
        else {
            return None;
        };
        let (scope, candidates) = (CandidateScope::All, Vec::new());
        let search = HintSearch {
            key,
            request,
            scope,
            revision,
            steps,
            snapshot,
            was_truncated,
            candidates,
        };
        let search = if is_as_it_was { search } else { self.new_hint_search(&search.key, steps)? };
        Some(HintSearch { scope, was_truncated, candidates: self.all_candidates(), ..search })
    }

    /// What a unit would ask for if it were decided on now.
    fn hint_request_of(&mut self, key: &QueueKey) -> Result<HintRequest, PendingReason> {
        let (gang, pinned, forbidden, policy) = match key {
            QueueKey::Group(group) => {
                let spec = self.spec_of(group).ok_or(PendingReason::Gone)?;
                let GangRequest { gang, pinned, forbidden, .. } =
                    self.gang_request(group, &spec)?;
                (gang, pinned, forbidden, spec.policy.clone())
            }
            QueueKey::Pod(uid) => {
                let ask = self.ask(uid)?;
                let (shape, mask) = self.shape_of_waiting(uid, &ask).ok_or(PendingReason::Gone)?;
                let record = self.pods.get(uid).ok_or(PendingReason::Gone)?;
                let hints = PlacementHints::of(&record.pod.meta).map_err(PendingReason::Group)?;
                let gang = gang_of_one(&self.profile_of(record), &shape);
                (gang, Vec::new(), self.forbidden_nodes(uid, mask, &ask, false), hints.policy)
            }
        };
        let policy = self.policies.find(policy.as_deref()).map_err(PendingReason::NoPolicy)?;
        let policy = Arc::clone(policy);
        let records = self.pods_of(key).into_iter().filter_map(|uid| self.pods.get(&uid));
        let mut waiting = records.filter(|record| record.pod.node.is_none());
        let may_preempt = waiting.all(|record| record.pod.spec.may_preempt);
        Ok(HintRequest { gang, pinned, forbidden, policy, may_preempt })
    }

    /// All who are bound: every pod could be evicted, and moved where somebody makes it again, which is the
    /// second that is said of each.
    fn all_candidates(&self) -> Vec<(WorkloadId, bool)> {
        let mut all = Vec::new();
        for (id, workload) in self.engine.world.workloads.iter() {
            let members = (0..).zip(&workload.members).filter(|(_, member)| member.is_some());
            let members = members.map(|(member, _)| MemberId { workload: id, member });
            let record = |id| self.pods.get(self.engine.holder(id)?);
            let is_bound = |record: &PodRecord| {
                record.place.as_ref().is_some_and(|place| place.state == PlaceState::Bound)
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

impl FixedRefusal {
    const ALL: [Self; 3] = [Self::Request, Self::Constraint, Self::Spares];

    /// The refusal of this name, if no eviction changes it.
    fn of(reason: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.as_str() == reason)
    }

    /// The engine's name of the refusal.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "Request",
            Self::Constraint => "Constraint",
            Self::Spares => "Spares",
        }
    }
}
