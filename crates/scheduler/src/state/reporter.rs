//! What users and metrics are told: pending reasons, statuses, decisions and counts.

pub(super) mod explain;
pub(super) mod gang_status;
pub(super) mod metric_events;
pub(super) mod pending_reason;
pub(super) mod preemption_hint;
pub(super) mod records;

use std::collections::{BTreeSet, HashMap};

use octavo_engine::explain::Explanation;

use crate::groups::GroupName;
use crate::state::config::SchedulerConfig;
use crate::state::queue::QueueKey;
use crate::state::reporter::explain::DecisionLog;
use crate::state::reporter::gang_status::GangPhases;
use crate::state::reporter::metric_events::MetricEvents;
use crate::state::reporter::pending_reason::PendingStatus;
use crate::state::reporter::preemption_hint::HintSchedule;
use crate::state::reporter::records::{RecordedDecision, Records};
use crate::status::StatusUpdate;

/// Reports that are due, and what was reported last.
#[derive(Debug)]
pub(super) struct Reporter {
    pending: HashMap<QueueKey, PendingStatus>,
    /// Pending reasons that are reported at this time in milliseconds, if they have not passed by
    /// then.
    delayed: BTreeSet<(u64, QueueKey)>,
    decision_log: DecisionLog,
    records: Records,
    hints: HintSchedule,
    reports: Vec<StatusUpdate>,
    metric_events: MetricEvents,
    gang_phases: GangPhases,
    /// Gangs whose status is reported with the next reports.
    changed_gangs: BTreeSet<GroupName>,
}

impl Reporter {
    pub(super) fn new(config: &SchedulerConfig) -> Self {
        Self {
            pending: HashMap::default(),
            delayed: BTreeSet::new(),
            decision_log: DecisionLog::new(config.explanations),
            records: Records::new(config),
            hints: HintSchedule::default(),
            reports: Vec::new(),
            metric_events: MetricEvents::default(),
            gang_phases: GangPhases::default(),
            changed_gangs: BTreeSet::new(),
        }
    }

    /// Reports a status.
    pub(super) fn report(&mut self, update: StatusUpdate) {
        self.reports.push(update);
    }

    /// Reports statuses.
    pub(super) fn report_all(&mut self, updates: impl IntoIterator<Item = StatusUpdate>) {
        self.reports.extend(updates);
    }

    /// Reports since the last call.
    pub(super) fn take(&mut self) -> Vec<StatusUpdate> {
        std::mem::take(&mut self.reports)
    }

    /// Why an entry is pending, as last recorded.
    pub(super) fn pending(&self, key: &QueueKey) -> Option<&PendingStatus> {
        self.pending.get(key)
    }

    /// Forgets why an entry is pending.
    pub(super) fn forget_pending(&mut self, key: &QueueKey) {
        self.pending.remove(key);
    }

    /// Entries whose pending reason was reported.
    pub(super) fn reported_entries(&self) -> Vec<QueueKey> {
        let delayed: BTreeSet<&QueueKey> = self.delayed.iter().map(|(_, key)| key).collect();
        let mut keys: Vec<_> = self.pending.keys().filter(|key| !delayed.contains(key)).collect();
        keys.sort_unstable();
        keys.into_iter().cloned().collect()
    }

    /// Forgets a gang without members.
    pub(super) fn forget_gang(&mut self, group: &GroupName) {
        self.gang_phases.remove(group);
        self.pending.remove(&QueueKey::Group(group.clone()));
    }

    /// Keeps a decision, for `octavo explain`.
    pub(super) fn log_decision(&mut self, key: &QueueKey, explanation: Explanation) {
        self.decision_log.record(key, explanation);
    }

    /// Whether decisions on entries of this kind are recorded with the whole cluster.
    pub(super) fn should_record(&mut self, key: &QueueKey) -> bool {
        self.records.should_record(key)
    }

    /// Keeps a decision with the whole cluster.
    pub(super) fn record(&mut self, key: &QueueKey, recorded: RecordedDecision) {
        self.records.keep(key, recorded);
    }

    /// Outdates the preemption hints, after a change of objects that they name.
    pub(super) fn invalidate_hints(&mut self) {
        self.hints.invalidate();
    }

    /// Counts for metrics.
    pub(super) fn metrics(&mut self) -> &mut MetricEvents {
        &mut self.metric_events
    }

    /// Gangs by phase.
    pub(super) fn gang_phases(&self) -> &GangPhases {
        &self.gang_phases
    }
}
