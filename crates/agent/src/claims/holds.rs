//! Who holds which device: the memory that decides.

use std::collections::BTreeMap;
use std::time::Instant;

use super::Holding;
use crate::checkpoint::{HeldDevice, Record, RecordState};

/// All claims that hold devices, by UID.
#[derive(Debug, Default)]
pub(super) struct Holds {
    by_uid: BTreeMap<String, Hold>,
}

/// What one claim holds.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    /// Its record.
    pub(super) record: Record,
    /// Whether record and CDI spec were written whole since memory has them.
    pub(super) is_written: bool,
    /// When its claim was first found to be gone, if it is.
    pub(super) gone_since: Option<Instant>,
}

/// Another claim in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    /// The device that is wanted.
    pub(super) device: String,
    /// The claim's UID.
    pub(super) holder: String,
    /// Whether it is only possible that the claim holds the device.
    pub(super) is_possible_only: bool,
}

impl Holds {
    /// Takes a record that was found on disk.
    pub(super) fn insert(&mut self, record: Record) {
        let hold = Hold { record, is_written: true, gone_since: None };
        self.by_uid.insert(hold.record.claim.uid.clone(), hold);
    }

    /// Gives a claim its devices unless another has one of them. From here on they are taken, whatever
    /// becomes of the files.
    pub(super) fn reserve(&mut self, record: Record) -> Result<(), Conflict> {
        let uid = &record.claim.uid;
        for wanted in record.devices.iter().filter(|device| !device.admin_access) {
            let conflict = |holder: &str, is_possible_only| Conflict {
                device: wanted.device.clone(),
                holder: holder.to_owned(),
                is_possible_only,
            };
            let others = self.by_uid.iter().filter(|(other, _)| *other != uid);
            for (holder, hold) in others {
                if hold.holds(wanted) {
                    let is_unresolved = hold.record.state == RecordState::Unresolved;
                    return Err(conflict(holder, is_unresolved));
                }
                if hold.may_hold_any() {
                    return Err(conflict(holder, true));
                }
            }
            let same = record
                .devices
                .iter()
                .filter(|device| !device.admin_access && device.is_same(wanted));
            if same.count() > 1 {
                return Err(conflict(uid, false));
            }
        }
        let hold = Hold { record, is_written: false, gone_since: None };
        self.by_uid.insert(hold.record.claim.uid.clone(), hold);
        Ok(())
    }

    /// Notes that a claim's files are written.
    pub(super) fn set_written(&mut self, uid: &str) {
        if let Some(hold) = self.by_uid.get_mut(uid) {
            hold.is_written = true;
        }
    }

    /// Whether any claim's object was found gone.
    pub(super) fn has_gone(&self) -> bool {
        self.by_uid.values().any(|hold| hold.gone_since.is_some())
    }

    /// Notes that a claim is gone, or that it is there after all; says since when it is gone.
    pub(super) fn set_gone(&mut self, uid: &str, now: Option<Instant>) -> Option<Instant> {
        let hold = self.by_uid.get_mut(uid)?;
        hold.gone_since = now.map(|now| hold.gone_since.unwrap_or(now));
        hold.gone_since
    }

    /// Frees what a claim holds.
    pub(super) fn remove(&mut self, uid: &str) {
        self.by_uid.remove(uid);
    }

    /// What a claim holds.
    pub(super) fn get(&self, uid: &str) -> Option<Hold> {
        self.by_uid.get(uid).cloned()
    }

    /// UIDs of all claims that hold something.
    pub(super) fn uids(&self) -> Vec<String> {
        self.by_uid.keys().cloned().collect()
    }

    /// What every claim holds.
    pub(super) fn holdings(&self) -> Vec<Holding> {
        let names = |hold: &Hold, is_admin| {
            let devices = hold.record.devices.iter();
            let devices = devices.filter(|device| device.admin_access == is_admin);
            devices.map(|device| device.device.clone()).collect()
        };
        let holdings = self.by_uid.values().map(|hold| Holding {
            claim: hold.record.claim.clone(),
            devices: names(hold, false),
            admin_devices: names(hold, true),
            is_unresolved: hold.record.state == RecordState::Unresolved,
        });
        holdings.collect()
    }
}

impl Hold {
    /// Whether it holds a device for itself, under this name or another.
    fn holds(&self, wanted: &HeldDevice) -> bool {
        self.record.devices.iter().any(|device| !device.admin_access && device.is_same(wanted))
    }

    /// Whether nothing is known of what it holds.
    pub(super) fn may_hold_any(&self) -> bool {
        self.record.state == RecordState::Unresolved && self.record.devices.is_empty()
    }

    /// Whether the claim was prepared and its record is whole.
    pub(super) fn is_prepared(&self) -> bool {
        self.record.state == RecordState::Prepared
    }
}

impl HeldDevice {
    /// Whether two are the same GPU: by name, or by UUID where a GPU came back under another name.
    fn is_same(&self, other: &Self) -> bool {
        self.device == other.device || (!self.uuid.is_empty() && self.uuid == other.uuid)
    }
}
