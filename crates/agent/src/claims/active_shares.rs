//! The shares that claims hold now, and what is found of them while they run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use octavo_api::config::{OverflowPolicy, ShareClass, Strictness};
use octavo_api::names::{CONDITION_ENFORCED, CONDITION_OVERFLOW, REASON_WATCHED};
use tokio::sync::watch;

use super::claim_holds::ClaimHold;
use super::{Claims, Inner, ReportedDevice, share_folder};
use crate::checkpoint::Record;
use crate::enforcement::BackendKind;
use crate::node::ClaimRef;

/// A share that a claim holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveShare {
    /// The claim.
    pub claim: ClaimRef,
    /// Pool of the device.
    pub pool: String,
    /// The device.
    pub device: String,
    /// The share of the device.
    pub share_id: String,
    /// `GPU-...` of the GPU.
    pub gpu_uuid: String,
    /// The share's folder on the host.
    pub folder: PathBuf,
    /// Memory that it may have, in bytes.
    pub memory_bytes: u64,
    /// Guaranteed time in thousandths of a percent; 0 guarantees none.
    pub compute_milli_percent: u32,
    /// What becomes of containers that have too much.
    pub overflow: OverflowPolicy,
    /// What becomes of calls that the guard does not know.
    pub strictness: Strictness,
    /// Who goes first on the GPU.
    pub class: ShareClass,
    /// What holds it; `None`: a version before the wall prepared it.
    pub backend: Option<BackendKind>,
    /// The writing of its files.
    pub generation: u64,
}

/// Something that was found of a share while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareFinding {
    /// Constant in `CamelCase`: the reason of the event, and of the condition.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
    /// Type and status of the condition that it changes on the claim's device, if any.
    pub condition: Option<(&'static str, Status)>,
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is so.
    True,
    /// It is not.
    False,
    /// Nobody can tell.
    Unknown,
}

impl ShareFinding {
    /// Whether all is well again.
    pub(crate) fn is_good(&self) -> bool {
        let is_good = |condition| {
            condition == (CONDITION_OVERFLOW, Status::False)
                || condition == (CONDITION_ENFORCED, Status::True)
        };
        self.condition.is_some_and(is_good) || self.reason == REASON_WATCHED
    }
}

impl Status {
    /// As the API has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// FindingsByShare with their time, in seconds since 1970.
pub(super) type DatedFinding = (ShareFinding, i64);

/// The last news of each share and type of condition, by claim UID and share id.
type FindingsByShare = BTreeMap<(String, String), Vec<DatedFinding>>;

/// What is known of the shares of a node.
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
    /// The shares that claims hold, in order of claim UID; it changes as they come and go.
    pub fn active_shares(&self) -> watch::Receiver<Arc<[ActiveShare]>> {
        self.inner.active.shares.subscribe()
    }

    /// Tells people what was found of a share: an event of its claim, unless `has_event` says that there were
    /// enough of them, and where it changes a condition, that. Never waits. What is no share of any claim is
    /// not told of.
    pub fn report_share(&self, uid: &str, share_id: &str, finding: ShareFinding, has_event: bool) {
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

    /// The shares of a claim, as its record has them.
    pub(super) fn active_shares_of(&self, hold: &ClaimHold) -> Vec<ActiveShare> {
        let claim = &hold.record.claim;
        let shares = hold.record.shares().filter_map(|(held, share)| {
            let share_id = held.share_id.clone()?;
            let folder = share_folder(&claim.uid, &share_id).on_host(&self.paths.run_root);
            let terms = held.terms;
            Some(ActiveShare {
                claim: claim.clone(),
                pool: held.pool.clone(),
                device: held.device.clone(),
                share_id,
                gpu_uuid: held.uuid.clone(),
                folder,
                memory_bytes: share.memory_bytes,
                compute_milli_percent: share.compute_milli_percent,
                overflow: terms.map(|terms| terms.overflow).unwrap_or_default(),
                strictness: terms.map(|terms| terms.strictness).unwrap_or_default(),
                class: terms.map(|terms| terms.class).unwrap_or_default(),
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
        // That all is well again is no warning; the condition says it.
        if has_event && !finding.is_good() {
            self.reporter.found(&hold.record.claim, finding.reason, &finding.message);
        }
        if let Some((kind, _)) = finding.condition {
            self.active.remember((uid.to_owned(), share_id.to_owned()), kind, finding);
            let devices = self.reported(&hold.record, &BTreeSet::new());
            self.reporter.prepared(&hold.record.claim, &devices);
        }
    }

    /// What there is to say of a claim's devices, with what was found of its shares.
    pub(super) fn reported(
        &self,
        record: &Record,
        missing: &BTreeSet<String>,
    ) -> Vec<ReportedDevice> {
        let mut devices = ReportedDevice::held(record, missing);
        for device in &mut devices {
            let Some(share_id) = &device.share_id else { continue };
            let found = self.active.of(&record.claim.uid, share_id);
            device.set_findings(found);
        }
        devices
    }

    /// Forgets what was found of a claim's shares.
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
        // Books that were changed stay so, whoever looks.
        if kind == CONDITION_ENFORCED && is_known(Status::False) {
            return;
        }
        if finding.condition == Some((CONDITION_ENFORCED, Status::True)) {
            // What holds the share says so itself.
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
