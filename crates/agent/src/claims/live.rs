//! The shares that claims hold now, and what is found of them while they run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use octavo_api::config::{OverflowPolicy, ShareClass, Strictness};
use octavo_api::names::{CONDITION_ENFORCED, CONDITION_OVERFLOW, REASON_WATCHED};
use tokio::sync::watch;

use super::holds::Hold;
use super::{Claims, Inner, ReportedDevice, share_folder};
use crate::checkpoint::Record;
use crate::enforcement::BackendKind;
use crate::node::ClaimRef;

/// A share that a claim holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveShare {
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
pub struct ShareNews {
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

impl ShareNews {
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
    pub fn word(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// News with their time, in seconds since 1970.
pub(super) type Dated = (ShareNews, i64);

/// The last news of each share and type of condition, by claim UID and share id.
type News = BTreeMap<(String, String), Vec<Dated>>;

/// What is known of the shares of a node.
#[derive(Debug)]
pub(super) struct Live {
    shares: watch::Sender<Arc<[LiveShare]>>,
    news: Mutex<News>,
}

impl Default for Live {
    fn default() -> Self {
        Self { shares: watch::Sender::new(Arc::default()), news: Mutex::default() }
    }
}

impl Claims {
    /// The shares that claims hold, in order of claim UID; it changes as they come and go.
    pub fn live_shares(&self) -> watch::Receiver<Arc<[LiveShare]>> {
        self.inner.live.shares.subscribe()
    }

    /// Tells people what was found of a share: an event of its claim, unless `has_event` says that there were
    /// enough of them, and where it changes a condition, that. Never waits. What is no share of any claim is
    /// not told of.
    pub fn tell_of_share(&self, uid: &str, share_id: &str, news: ShareNews, has_event: bool) {
        self.inner.tell_of_share(uid, share_id, news, has_event);
    }
}

impl Inner {
    /// Shows which shares there are now.
    pub(super) fn show_shares(&self) {
        let shares: Vec<_> = {
            let holds = self.holds();
            let held = holds.all().filter(|hold| hold.is_prepared() && !hold.is_releasing);
            held.flat_map(|hold| self.shares_of(hold)).collect()
        };
        self.live.shares.send_if_modified(|old| {
            let is_changed = **old != *shares;
            if is_changed {
                *old = shares.into();
            }
            is_changed
        });
    }

    /// The shares of a claim, as its record has them.
    pub(super) fn shares_of(&self, hold: &Hold) -> Vec<LiveShare> {
        let claim = &hold.record.claim;
        let shares = hold.record.shares().filter_map(|(held, share)| {
            let share_id = held.share_id.clone()?;
            let folder = share_folder(&claim.uid, &share_id).on_host(&self.paths.run_root);
            let terms = held.terms;
            Some(LiveShare {
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

    fn tell_of_share(&self, uid: &str, share_id: &str, news: ShareNews, has_event: bool) {
        let Some(hold) = self.holds().get(uid).filter(Hold::is_prepared) else { return };
        let mut shares = hold.record.shares();
        if !shares.any(|(held, _)| held.share_id.as_deref() == Some(share_id)) {
            return;
        }
        drop(shares);
        // That all is well again is no warning; the condition says it.
        if has_event && !news.is_good() {
            self.reporter.found(&hold.record.claim, news.reason, &news.message);
        }
        if let Some((kind, _)) = news.condition {
            self.live.remember((uid.to_owned(), share_id.to_owned()), kind, news);
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
            let found = self.live.of(&record.claim.uid, share_id);
            device.set_news(found);
        }
        devices
    }

    /// Forgets what was found of a claim's shares.
    pub(super) fn forget_news(&self, uid: &str) {
        self.live.news().retain(|(claim, _), _| claim != uid);
    }
}

impl Live {
    fn remember(&self, share: (String, String), kind: &'static str, news: ShareNews) {
        let now = super::work::now();
        let mut all = self.news();
        let found = all.entry(share).or_default();
        let is_known = |status| {
            found.iter().any(|(known, _)| known.condition == Some((CONDITION_ENFORCED, status)))
        };
        // Books that were changed stay so, whoever looks.
        if kind == CONDITION_ENFORCED && is_known(Status::False) {
            return;
        }
        if news.condition == Some((CONDITION_ENFORCED, Status::True)) {
            // What holds the share says so itself.
            found.retain(|(known, _)| known.condition.is_none_or(|(known, _)| known != kind));
            return;
        }
        let is_same = |(known, _): &&mut Dated| known.condition == news.condition;
        if let Some(known) = found.iter_mut().find(is_same) {
            // A condition keeps the time of its last change.
            known.0 = news;
        } else {
            found.retain(|(known, _)| known.condition.is_none_or(|(known, _)| known != kind));
            found.push((news, now));
        }
    }

    fn of(&self, uid: &str, share_id: &str) -> Vec<Dated> {
        let share = (uid.to_owned(), share_id.to_owned());
        self.news().get(&share).cloned().unwrap_or_default()
    }

    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
