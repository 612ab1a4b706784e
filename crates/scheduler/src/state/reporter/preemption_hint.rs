//! Preemption hints: which victims would make an unschedulable entry schedulable, and why they are
//! not evicted. Hints are searched for `explain` requests and at intervals for gang statuses. No
//! decision depends on them.
//!
//! A [`HintSearch`] considers workloads that only settings protect, movable pods and pods of lower
//! priority, and if that fails all workloads. It runs on another thread: one at a time for `explain`, and one for gang statuses.
//! Its result is cached until the cluster changes.

mod describe;
mod search;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_engine::explain::{Explanation, PreemptionHint};
use octavo_engine::workload::{MemberId, WorkloadId};
use octavo_kube_io::objects::ObjectName;

use crate::groups::{GroupName, PlacementHints};
use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::cache::pod::{PlaceState, PodRecord};
use crate::state::cycle::decide::Room;
use crate::state::cycle::gang_request::{GangRequest, Restrictions};
use crate::state::cycle::single_pod::gang_of_one;
use crate::state::queue::QueueKey;
use crate::state::reporter::Reporter;
use crate::state::reporter::gang_status;
use crate::state::reporter::pending_reason::PendingReason;
use search::{HintRequest, SearchSnapshot};
pub use search::{HintResult, HintSearch};

/// Steps of a search for an `explain` request.
const MAX_SEARCH_STEPS: u64 = 1_000_000;
/// Steps of a search for a gang's status.
const MAX_STATUS_SEARCH_STEPS: u64 = 200_000;
/// Milliseconds between two searches for gang statuses.
const SEARCH_INTERVAL_MS: u64 = 1000;
/// Milliseconds before a gang with the same reason is searched again, and before a cached hint
/// expires. Some obstacles pass by themselves.
const HINT_TTL_MS: u64 = 10_000;
/// Cached hints. The hint of a large gang may name thousands of pods.
const MAX_CACHED_HINTS: usize = 32;

/// Gangs that wait for a search, and cached hints.
#[derive(Debug, Default)]
pub(in crate::state) struct HintSchedule {
    due: BTreeSet<(u64, GroupName)>,
    scheduled: BTreeSet<GroupName>,
    /// No search before this time in milliseconds.
    not_before: u64,
    cached: BTreeMap<QueueKey, CachedHint>,
}

/// Revision of everything that a hint depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) struct HintRevision {
    cluster: u64,
    next_op: u64,
    engine: u64,
    /// The last decision on the entry.
    decision: u64,
}

/// The result of a search.
#[derive(Debug)]
struct CachedHint {
    revision: HintRevision,
    /// Valid until this time in milliseconds, if the revision is the same.
    expires: u64,
    /// Valid until this time in milliseconds, whatever has changed. Otherwise constant changes
    /// would leave no hint valid.
    fresh_until: u64,
    hint: HintState,
}

/// What is known about the victims of an entry.
#[derive(Clone, Debug, Default)]
pub(in crate::state) struct HintState {
    /// The victims, if any were found.
    pub(in crate::state) disturbance: Option<PreemptionHint>,
    /// A note on the search.
    pub(in crate::state) note: Option<String>,
    /// Whether no search has run yet, or only a short one that ran out of steps.
    pub(in crate::state) needs_search: bool,
}

/// Refusals of the engine that no eviction changes: the request is invalid, a hard limit of the
/// policy, or nodes that the policy keeps free.
const FIXED_REFUSALS: [&str; 3] = ["Request", "Constraint", "Spares"];

impl HintSchedule {
    /// Drops all cached hints, after a change that no revision counts.
    pub(in crate::state) fn invalidate(&mut self) {
        self.cached.clear();
    }

    /// Removes the first gang whose search is due.
    fn pop_due(&mut self, now: u64) -> Option<GroupName> {
        self.due.first().filter(|(at, _)| *at <= now)?;
        let (_, group) = self.due.pop_first()?;
        self.scheduled.remove(&group);
        Some(group)
    }
}

impl Scheduler {
    /// The search for a pod's victims. `None` if the pod does not exist, is not unschedulable, or
    /// has a hint.
    pub fn hint_search_for_pod(&mut self, name: &ObjectName) -> Option<HintSearch> {
        let key = self.cache.queue_key_of(self.cache.pod_named(name)?);
        self.hint_search_for(&key)
    }

    /// The search for a gang's victims, by the name of the gang or of the object that announced it.
    pub fn hint_search_for_group(&mut self, name: &ObjectName) -> Option<HintSearch> {
        let key = QueueKey::Group(self.cache.group_named(name)?.clone());
        self.hint_search_for(&key)
    }

    fn hint_search_for(&mut self, key: &QueueKey) -> Option<HintSearch> {
        if !self.preemption_hint(key).needs_search {
            return None;
        }
        self.new_hint_search(key, MAX_SEARCH_STEPS)
    }

    /// Stores the result of a search.
    pub fn store_hint_result(&mut self, result: &HintResult) {
        let leaving = result.leaving.as_ref();
        let is_enough = leaving.is_none_or(|leaving| self.would_fit(&result.request, leaving));
        let leaving = leaving.filter(|_| is_enough);
        let disturbance =
            leaving.map(|leaving| self.describe_disturbance(&result.request, leaving));
        let ended = format!("ended after {} steps", result.steps);
        let note = match (&disturbance, result.is_truncated) {
            (Some(_), false) if result.was_truncated => Some(format!(
                "the search among pods that may be disturbed {ended}: evicting some of them may suffice"
            )),
            (None, _) if !is_enough => Some(
                "evictions that free enough GPUs, CPU and memory would not free the devices of its claims"
                    .to_owned(),
            ),
            (_, false) => None,
            (Some(_), true) => {
                Some(format!("the search for victims {ended}: fewer victims may suffice"))
            }
            (None, true) => Some(format!(
                "the search for victims {ended}: it is not known whether evictions would help"
            )),
        };
        let cached = &mut self.reporter.hints.cached;
        if cached.len() >= MAX_CACHED_HINTS && !cached.contains_key(&result.key) {
            cached.retain(|_, hint| {
                hint.expires > self.cache.now() && hint.revision.cluster == self.cache.revision()
            });
            if cached.len() >= MAX_CACHED_HINTS {
                cached.clear();
            }
        }
        let was_cut = result.is_truncated || result.was_truncated;
        let needs_search = was_cut && result.steps < MAX_SEARCH_STEPS;
        let hint = HintState { disturbance, note, needs_search };
        let (expires, fresh_until) = (
            self.cache.now().saturating_add(HINT_TTL_MS),
            self.cache.now().saturating_add(SEARCH_INTERVAL_MS),
        );
        let revision = result.revision;
        let line = hint.disturbance.as_ref().map(PreemptionHint::line);
        cached.insert(result.key.clone(), CachedHint { revision, expires, fresh_until, hint });
        self.set_status_hint(&result.key, revision, line);
    }

    /// The known hint of an entry.
    pub(in crate::state) fn preemption_hint(&self, key: &QueueKey) -> HintState {
        if !self.reporter.may_be_helped_by_preemption(key) {
            return HintState::default();
        }
        let cached = self.reporter.hints.cached.get(key);
        let valid = cached.filter(|hint| {
            hint.fresh_until > self.cache.now()
                || (hint.expires > self.cache.now() && hint.revision == self.hint_revision(key))
        });
        valid.map_or(HintState { needs_search: true, ..HintState::default() }, |hint| {
            hint.hint.clone()
        })
    }

    fn hint_revision(&self, key: &QueueKey) -> HintRevision {
        HintRevision {
            cluster: self.cache.revision(),
            next_op: self.operations.submitted_count(),
            engine: self.cache.engine().revision,
            decision: self.queue.last_attempt(key),
        }
    }

    /// Schedules a search for an unschedulable gang with a status.
    pub(in crate::state) fn schedule_hint(&mut self, key: &QueueKey) {
        let QueueKey::Group(group) = key else { return };
        let has_status =
            self.cache.spec_of(group).is_some_and(|spec| gang_status::has_status(&spec));
        let pending = self.reporter.pending.get(key).filter(|pending| pending.is_unschedulable);
        let Some(pending) = pending.filter(|_| has_status) else { return };
        let at = pending.hint_searched_at.map_or(0, |at| at.saturating_add(HINT_TTL_MS));
        if self.reporter.hints.scheduled.insert(group.clone()) {
            let at = at.max(self.cache.now().saturating_add(SEARCH_INTERVAL_MS));
            self.reporter.hints.due.insert((at, group.clone()));
        }
    }

    /// The search for a gang's status that is due, if one is. Run it on another thread, and pass
    /// the result to [`Self::store_hint_result`].
    pub fn due_hint_search(&mut self) -> Option<HintSearch> {
        let now = self.cache.now();
        while self.reporter.hints.not_before <= now {
            let group = self.reporter.hints.pop_due(now)?;
            let key = QueueKey::Group(group);
            if !self.reporter.may_be_helped_by_preemption(&key) {
                continue;
            }
            let revision = self.hint_revision(&key);
            let Some(pending) = self.reporter.pending.get_mut(&key) else { continue };
            pending.hint_searched_at = Some(now);
            let is_known = pending.hint_revision == Some(revision);
            self.schedule_hint(&key);
            if is_known {
                continue;
            }
            self.reporter.hints.not_before = now.saturating_add(SEARCH_INTERVAL_MS);
            if let Some(search) = self.new_hint_search(&key, MAX_STATUS_SEARCH_STEPS) {
                return Some(search);
            }
            self.set_status_hint(&key, revision, None);
        }
        None
    }

    /// Sets the hint in the status of a gang that is pending.
    fn set_status_hint(&mut self, key: &QueueKey, revision: HintRevision, hint: Option<String>) {
        let QueueKey::Group(group) = key else { return };
        if hint.is_some() && !self.reporter.may_be_helped_by_preemption(key) {
            // It was decided again meanwhile.
            return;
        }
        let Some(pending) = self.reporter.pending.get_mut(key) else { return };
        pending.hint_revision = Some(revision);
        if pending.hint != hint {
            pending.hint = hint;
            self.reporter.report_group(group);
        }
    }

    fn new_hint_search(&mut self, key: &QueueKey, steps: u64) -> Option<HintSearch> {
        self.rebuild_engine_if_stale();
        self.update_allowances();
        let request = self.hint_request_of(key).ok()?;
        let snapshot = SearchSnapshot {
            world: self.cache.engine().world.clone(),
            holders: self.cache.engine().holders().clone(),
            candidates: self.cache.all_candidates(),
        };
        let (key, revision) = (key.clone(), self.hint_revision(key));
        Some(HintSearch { key, request, revision, steps, snapshot })
    }

    /// The request that a decision on the entry would make now.
    fn hint_request_of(&mut self, key: &QueueKey) -> Result<HintRequest, PendingReason> {
        // The allocator checks the victims that are found.
        let room = Room::Empty;
        let (mut asked, policy) = match key {
            QueueKey::Group(group) => {
                let spec = self.cache.spec_of(group).ok_or(PendingReason::Gone)?;
                let restrictions = Restrictions::default();
                let asked = self.gang_request_within(group, &spec, &restrictions, room)?;
                (asked, spec.policy.clone())
            }
            QueueKey::Pod(uid) => {
                let ask = self.ask(uid)?;
                let (shape, mask) = self.shape_of_waiting(uid, &ask).ok_or(PendingReason::Gone)?;
                let record = self.cache.pod(uid).ok_or(PendingReason::Gone)?;
                let hints = PlacementHints::of(&record.pod.meta).map_err(PendingReason::Group)?;
                let gang = gang_of_one(&self.cache.profile_of(record), &shape);
                let away = self.cache.exclusions(uid);
                let forbidden = self.cache.forbidden_nodes(uid, mask, &ask, &away, room);
                let has_uncounted = self.cache.has_uncounted(uid, &ask);
                (GangRequest::of_pod(uid, &gang, forbidden, has_uncounted), hints.policy)
            }
        };
        if asked.has_uncounted {
            asked.forbid_by_group();
        }
        let GangRequest { gang, pinned, ranks, forbidden, .. } = asked;
        let policy =
            self.cache.policies().find(policy.as_deref()).map_err(PendingReason::NoPolicy)?;
        let policy = Arc::clone(policy);
        let records = self.cache.pods_of(key).into_iter().filter_map(|uid| self.cache.pod(&uid));
        let mut unbound = records.filter(|record| record.pod.node.is_none());
        let may_preempt = unbound.all(|record| record.pod.spec.may_preempt);
        Ok(HintRequest { gang, pinned, ranks, forbidden, policy, may_preempt })
    }
}

impl Cache {
    /// All workloads whose members are bound. Each of them could be evicted. The flag tells whether
    /// owners recreate all its pods, so that it could be moved.
    fn all_candidates(&self) -> Vec<(WorkloadId, bool)> {
        let mut all = Vec::new();
        for (id, workload) in self.engine().world.workloads.iter() {
            let members = (0..).zip(&workload.members).filter(|(_, member)| member.is_some());
            let members = members.map(|(member, _)| MemberId { workload: id, member });
            let record = |id| self.pod(self.engine().holder(id)?);
            let is_bound = |record: &PodRecord| {
                record.place.as_ref().is_some_and(|place| place.state == PlaceState::Bound)
            };
            let is_made_again = |record: &PodRecord| {
                record.pod.spec.scheduler == self.config().scheduler_name
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

impl Reporter {
    /// Whether an entry is unschedulable and evictions might help.
    fn may_be_helped_by_preemption(&self, key: &QueueKey) -> bool {
        let is_unschedulable =
            self.pending.get(key).is_some_and(|pending| pending.is_unschedulable);
        is_unschedulable
            && !self.decision_log.last(key).is_some_and(
                |last| matches!(last, Explanation::Refused(refusal) if FIXED_REFUSALS.contains(&&*refusal.reason)),
            )
    }
}
