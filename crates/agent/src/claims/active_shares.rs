//! The shares held by claims, and findings about them at run time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use octavo_api::names::{CONDITION_ENFORCED, CONDITION_MEMORY_SWAP, CONDITION_TIME_ENFORCED};
use octavo_enforcement::share::{ActiveShare, ShareFinding, ShareReports, Status, share_folder};
use octavo_kube_io::events::EventType;
use tokio::sync::watch;

use super::claim_holds::ClaimHold;
use super::{Claims, Inner, ReportedDevice};
use crate::checkpoint::{Record, RecordState};

/// A finding with its time, in seconds since 1970.
pub(super) type DatedFinding = (ShareFinding, i64);

/// The last finding per share and condition type, by claim UID and share id.
type FindingsByShare = BTreeMap<(String, String), Vec<DatedFinding>>;

/// State of the shares of a node.
#[derive(Debug)]
pub(super) struct ActiveShares {
    shares: watch::Sender<Arc<[ActiveShare]>>,
    findings: Mutex<FindingsByShare>,
}

impl Default for ActiveShares {
    fn default() -> Self {
        Self { shares: watch::Sender::new(Arc::default()), findings: Mutex::default() }
    }
}

impl Claims {
    /// The shares held by claims, in order of claim UID. The channel is updated as shares come and go.
    pub fn active_shares(&self) -> watch::Receiver<Arc<[ActiveShare]>> {
        self.inner.active.shares.subscribe()
    }
}

impl ShareReports for Claims {
    fn report_share(&self, uid: &str, share_id: &str, finding: ShareFinding, has_event: bool) {
        self.inner.report_share(uid, share_id, finding, has_event);
    }
}

impl Inner {
    /// Shows which shares there are now.
    pub(super) fn publish_active_shares(&self) {
        let shares: Vec<_> = {
            let holds = self.holds();
            let held = holds.all().filter(|hold| hold.is_prepared() && !hold.is_releasing);
            held.flat_map(|hold| self.active_shares_of(hold)).collect()
        };
        self.active.shares.send_if_modified(|old| {
            let is_changed = **old != *shares;
            if is_changed {
                *old = shares.into();
            }
            is_changed
        });
    }

    /// The shares of a claim, according to its record.
    pub(super) fn active_shares_of(&self, hold: &ClaimHold) -> Vec<ActiveShare> {
        let claim = &hold.record.claim;
        let min_overflow = self.min_overflow();
        let shares = hold.record.shares().filter_map(|(held, share)| {
            let share_id = held.share_id.clone().filter(|_| !share.is_unlimited())?;
            let folder = share_folder(&claim.uid, &share_id).on_host(&self.paths.run_root);
            let terms = held.terms;
            Some(ActiveShare {
                claim: claim.clone(),
                pool: held.pool.clone(),
                device: held.device.clone(),
                share_id,
                gpu_uuid: held.uuid.clone(),
                folder,
                memory_bytes: held.memory_limit().unwrap_or(share.memory_bytes),
                memory_request: share.memory_bytes,
                swap_unit: terms.map(|terms| terms.swap_unit).unwrap_or_default(),
                compute_milli_percent: share.compute_milli_percent,
                overflow: terms.map(|terms| terms.overflow).unwrap_or_default().max(min_overflow),
                strictness: terms.map(|terms| terms.strictness).unwrap_or_default(),
                class: terms.map(|terms| terms.class).unwrap_or_default(),
                compute_limit: terms.and_then(|terms| terms.compute_limit),
                quantum_ms: terms.and_then(|terms| terms.quantum_ms),
                backend: terms.map(|terms| terms.backend),
                generation: terms.map(|terms| terms.generation).unwrap_or_default(),
            })
        });
        shares.collect()
    }

    fn report_share(&self, uid: &str, share_id: &str, finding: ShareFinding, has_event: bool) {
        let Some(hold) = self.holds().get(uid).filter(ClaimHold::is_prepared) else { return };
        let mut shares = hold.record.shares();
        if !shares.any(|(held, _)| held.share_id.as_deref() == Some(share_id)) {
            return;
        }
        drop(shares);
        // The condition shows recovery.
        if has_event && !finding.is_recovery() {
            let kind = if finding.is_good() { EventType::Normal } else { EventType::Warning };
            self.reporter.found(&hold.record.claim, kind, finding.reason, &finding.message);
        }
        if let Some((kind, _)) = finding.condition {
            self.active.remember((uid.to_owned(), share_id.to_owned()), kind, finding);
            let devices = self.reported(&hold.record, &BTreeSet::new());
            self.reporter.prepared(&hold.record.claim, &devices);
        }
    }

    /// Reports the facts of all prepared claims again. An earlier process may have ended before its report. It did report
    /// instances that are missing now, with more detail.
    pub(super) fn report_prepared(&self) {
        let records = self.holds().records();
        for record in records.iter().filter(|record| !record.lacks_instance()) {
            if record.state == RecordState::Prepared && record.has_facts() {
                self.reporter.prepared(&record.claim, &self.reported(record, &BTreeSet::new()));
            }
        }
    }

    /// Status of a claim's devices, including findings about its shares.
    pub(super) fn reported(
        &self,
        record: &Record,
        missing: &BTreeSet<String>,
    ) -> Vec<ReportedDevice> {
        let mut devices = ReportedDevice::held(record, missing);
        let (min_overflow, has_leases) = (self.min_overflow(), self.has_leases());
        let has_swap = self.has_swap();
        for device in &mut devices {
            let Some(share_id) = &device.share_id else { continue };
            let found = self.active.of(&record.claim.uid, share_id);
            device.set_findings(found, min_overflow, has_leases, has_swap);
        }
        devices
    }

    /// Drops the findings about a claim's shares.
    pub(super) fn forget_findings(&self, uid: &str) {
        self.active.findings().retain(|(claim, _), _| claim != uid);
    }
}

impl ActiveShares {
    fn remember(&self, share: (String, String), kind: &'static str, finding: ShareFinding) {
        let now = super::prepare::now();
        let mut all = self.findings();
        let found = all.entry(share).or_default();
        let is_known = |status| {
            found.iter().any(|(known, _)| known.condition == Some((CONDITION_ENFORCED, status)))
        };
        // A tampered ledger stays tampered, whatever later observations show.
        if kind == CONDITION_ENFORCED && is_known(Status::False) {
            return;
        }
        let own = [CONDITION_ENFORCED, CONDITION_MEMORY_SWAP, CONDITION_TIME_ENFORCED]
            .map(|kind| (kind, Status::True));
        if finding.condition.is_some_and(|condition| own.contains(&condition)) {
            // The condition from the record reports this.
            found.retain(|(known, _)| known.condition.is_none_or(|(known, _)| known != kind));
            return;
        }
        let is_same = |(known, _): &&mut DatedFinding| known.condition == finding.condition;
        if let Some(known) = found.iter_mut().find(is_same) {
            // A condition keeps the time of its last change.
            known.0 = finding;
        } else {
            found.retain(|(known, _)| known.condition.is_none_or(|(known, _)| known != kind));
            found.push((finding, now));
        }
    }

    fn of(&self, uid: &str, share_id: &str) -> Vec<DatedFinding> {
        let share = (uid.to_owned(), share_id.to_owned());
        self.findings().get(&share).cloned().unwrap_or_default()
    }

    fn findings(&self) -> MutexGuard<'_, FindingsByShare> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
