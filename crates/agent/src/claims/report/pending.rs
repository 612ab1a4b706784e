//! Status of prepared claims on its way to the API server.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use octavo_api::config::OverflowPolicy;
use octavo_enforcement::backend::BackendKind;
use octavo_enforcement::share::ShareFinding;
use octavo_kube_io::Backoff;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::Report;
use crate::checkpoint::{HeldDevice, HeldKind};

/// Range of the delay before a retry.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_mins(5);

/// Range of the interval between two writes of one claim's status. It doubles with each write and is reset after a
/// quiet period.
const MIN_WRITE_INTERVAL: Duration = Duration::from_secs(1);
const MAX_WRITE_INTERVAL: Duration = Duration::from_mins(1);
const INTERVAL_RESET_AFTER: Duration = Duration::from_mins(5);

/// Facts about a claim's device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A share.
    Share {
        /// When, in seconds since 1970.
        prepared_at: Option<i64>,
        /// Enforcement backend; `None` if the share was prepared before memory enforcement existed.
        backend: Option<BackendKind>,
        /// Whether nothing holds it because its namespace was exempt.
        is_exempt: bool,
        /// Action on containers that exceed the share; `None` as for the backend.
        overflow: Option<OverflowPolicy>,
        /// What it asks of the GPU's time.
        time: TimeFact,
        /// Memory above its request; `None` if it has none.
        swap: Option<SwapFact>,
        /// Findings since then, with their times in seconds since 1970.
        findings: Vec<(ShareFinding, i64)>,
    },
    /// A MIG instance.
    Mig {
        /// When, in seconds since 1970.
        prepared_at: Option<i64>,
        /// The instance.
        instance: MigFact,
    },
    /// A MIG instance that is gone.
    MigGone {
        /// The instance as it was.
        instance: MigFact,
    },
}

/// What a share asks of a GPU's time, and whether the node gives leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeFact {
    /// Guaranteed part in thousandths of a percent; 0 means none.
    pub request: u32,
    /// The part that it never exceeds, likewise.
    pub limit: Option<u32>,
    /// Whether its processes need leases.
    pub has_leases: bool,
}

/// Memory that a share may have above its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapFact {
    /// Memory that it has whenever it wants, in bytes.
    pub request: u64,
    /// Memory that it may have while others leave it, in bytes.
    pub limit: u64,
    /// Whether the node moves memory to the host.
    pub has_swap: bool,
}

/// Which MIG instance a claim got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigFact {
    /// `MIG-...`.
    pub uuid: String,
    /// Id of the GPU instance on its GPU.
    pub gpu_instance: u32,
    /// Id of the compute instance in it.
    pub compute_instance: u32,
    /// Name of the profile.
    pub profile: String,
    /// `GPU-...` of the GPU.
    pub parent_uuid: String,
}

/// Reports that must be delivered, one per claim.
#[derive(Debug, Default)]
pub(super) struct Pending {
    state: Mutex<State>,
    /// Something was put in.
    is_new: Notify,
}

#[derive(Debug, Default)]
struct State {
    by_claim: BTreeMap<String, PendingReport>,
    /// Time of the last write per claim, and the interval before the next.
    sent: BTreeMap<String, (Instant, Duration)>,
    sequences: u64,
}

#[derive(Debug)]
struct PendingReport {
    report: Report,
    /// Distinguishes this report from later ones of the claim.
    sequence: u64,
    due: Instant,
    retry: Backoff,
}

impl Fact {
    /// The facts about a held device, if any.
    pub(super) fn of(held: &HeldDevice, prepared_at: Option<i64>, is_gone: bool) -> Option<Self> {
        match &held.kind {
            HeldKind::Whole => None,
            HeldKind::Share(share) => {
                let backend = held.terms.map(|terms| terms.backend);
                let overflow = held.terms.map(|terms| terms.overflow);
                let is_exempt = held.terms.is_some_and(|terms| terms.is_exempt);
                let limit = held.terms.and_then(|terms| terms.compute_limit);
                let request = share.compute_milli_percent;
                let time = TimeFact { request, limit, has_leases: false };
                let request = share.memory_bytes;
                let swap = held.memory_limit();
                let swap = swap.map(|limit| SwapFact { request, limit, has_swap: false });
                let findings = Vec::new();
                Some(Self::Share {
                    prepared_at,
                    backend,
                    is_exempt,
                    overflow,
                    time,
                    swap,
                    findings,
                })
            }
            HeldKind::Mig(mig) => {
                let made = mig.made.as_ref()?;
                let instance = MigFact {
                    uuid: made.uuid.clone(),
                    gpu_instance: made.gpu_instance,
                    compute_instance: made.compute_instance,
                    profile: mig.profile.clone(),
                    parent_uuid: held.uuid.clone(),
                };
                Some(if is_gone {
                    Self::MigGone { instance }
                } else {
                    Self::Mig { prepared_at, instance }
                })
            }
        }
    }
}

impl Pending {
    /// Queues a report in place of an earlier one of the claim.
    pub(super) fn put(&self, report: Report) {
        let mut state = self.state();
        state.sequences += 1;
        let (uid, sequence) = (report.claim.uid.clone(), state.sequences);
        let retry = Backoff::new(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
        let now = Instant::now();
        state
            .sent
            .retain(|_, (sent, _)| now.saturating_duration_since(*sent) < INTERVAL_RESET_AFTER);
        let due = state.sent.get(&uid).map_or(now, |(sent, pause)| now.max(*sent + *pause));
        state.by_claim.insert(uid, PendingReport { report, sequence, due, retry });
        drop(state);
        self.is_new.notify_one();
    }

    /// Forgets a claim's report.
    pub(super) fn remove(&self, uid: &str) {
        let mut state = self.state();
        state.by_claim.remove(uid);
        state.sent.remove(uid);
    }

    /// A due report and its sequence number.
    pub(super) fn due(&self) -> Option<(Report, u64)> {
        let now = Instant::now();
        let state = self.state();
        let waiting = state.by_claim.values().find(|waiting| waiting.due <= now)?;
        Some((waiting.report.clone(), waiting.sequence))
    }

    /// Handles the result of a report: removes it, or schedules a retry.
    pub(super) fn complete(&self, uid: &str, sequence: u64, is_done: bool) {
        let mut state = self.state();
        if is_done {
            let pause = state.sent.get(uid).map(|(_, pause)| MAX_WRITE_INTERVAL.min(*pause * 2));
            state
                .sent
                .insert(uid.to_owned(), (Instant::now(), pause.unwrap_or(MIN_WRITE_INTERVAL)));
        }
        let Some(waiting) = state.by_claim.get_mut(uid).filter(|w| w.sequence == sequence) else {
            return;
        };
        if is_done {
            state.by_claim.remove(uid);
        } else {
            waiting.due = Instant::now() + waiting.retry.next_delay();
        }
    }

    /// Waits until a report is put in or due.
    pub(super) async fn wait(&self) {
        let next = self.state().by_claim.values().map(|waiting| waiting.due).min();
        match next {
            None => self.is_new.notified().await,
            Some(next) => tokio::select! {
                () = self.is_new.notified() => {}
                () = sleep_until(next) => {}
            },
        }
    }

    /// The state, locked; never across an await.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
