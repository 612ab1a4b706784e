//! Which claim holds which channel or daemon of the node.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use octavo_api::Refusal;
use octavo_node::ClaimRef;
use octavo_node::files::{StorageError, is_plain_name};
use tokio::time::Instant;

use super::record::{DomainCounts, DomainDevice, DomainRecord, HeldDomainDevice};
use crate::cdi::{CdiFolder, SpecContent};
use crate::checkpoint::Store;
use crate::claims::Opened;

/// Time after which a claim without an object loses its devices.
const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// Whether a claim's object is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Missing {
    /// It exists.
    #[default]
    No,
    /// It was found missing at this time.
    Since(Instant),
}

/// The claims that hold devices, by UID.
#[derive(Debug, Default)]
pub(super) struct DomainHolds {
    by_uid: BTreeMap<String, (DomainRecord, Missing)>,
}

impl DomainHolds {
    /// Reads the checkpoints. Those of an earlier boot are removed with their specs; a damaged one is moved aside. Its claim
    /// holds the devices that its spec names, or else every device.
    pub(super) fn recover(
        store: &Store<DomainRecord>,
        cdi: &CdiFolder,
    ) -> Result<(Self, Opened), StorageError> {
        let (mut holds, mut opened) = (Self::default(), Opened::default());
        let loaded = store.load()?;
        for uid in loaded.forgotten {
            cdi.remove(&uid)?;
            store.remove(&uid)?;
            opened.forgotten += 1;
        }
        for record in loaded.records.into_values() {
            holds.insert(record);
        }
        for (uid, damaged) in loaded.damaged {
            let may_run = !store.is_new_boot() && is_plain_name(&uid);
            let claim = damaged.claim.unwrap_or_else(|| ClaimRef {
                namespace: String::new(),
                name: String::new(),
                uid: uid.clone(),
            });
            let boot_id = store.boot_id().to_owned();
            // The spec was written after the record, and names its devices.
            let devices = match cdi.read(&uid) {
                Some(SpecContent::Devices(devices)) => devices,
                _ => Vec::new(),
            };
            let devices = devices.into_iter().map(HeldDomainDevice::possible).collect();
            let is_nameless = claim.name.is_empty();
            let record = DomainRecord { claim, boot_id, is_unresolved: true, devices };
            let record = may_run.then_some(record);
            let aside = store.quarantine(&uid, damaged.damage, record.as_ref())?;
            let what_now = match &record {
                Some(_) if is_nameless => {
                    "no other claim gets its devices until the kubelet unprepares it, or the node reboots"
                }
                Some(_) => "no other claim gets its devices until it is unprepared or gone",
                None => "nothing is held by it any more",
            };
            opened.damage.push(format!(
                "checkpoint {} is damaged, {}; it is kept as {}; {what_now}",
                store.path(&uid).display(),
                damaged.damage,
                aside.display()
            ));
            if let Some(record) = record {
                holds.insert(record);
            }
        }
        // A spec without a record belongs to no running container: the record is written first and removed last.
        for uid in cdi.uids()?.into_iter().filter(|uid| !holds.by_uid.contains_key(uid)) {
            cdi.remove(&uid)?;
        }
        store.mark_boot()?;
        opened.held = holds.by_uid.len();
        Ok((holds, opened))
    }

    /// The record of a claim that is prepared, and known for certain.
    pub(super) fn prepared(&self, uid: &str) -> Option<DomainRecord> {
        let (record, _) = self.by_uid.get(uid)?;
        (!record.is_unresolved).then(|| record.clone())
    }

    /// Refuses devices that another claim holds. Shares of one device do not exclude each other.
    pub(super) fn check_free(&self, wanted: &DomainRecord) -> Result<(), Refusal> {
        for device in &wanted.devices {
            let may_share = |held: &HeldDomainDevice| {
                held.share_id.is_some()
                    && device.share_id.is_some()
                    && held.share_id != device.share_id
            };
            let holder = self.others(wanted).find(|other| {
                let mut same = other.devices.iter().filter(|held| held.device == device.device);
                let may_hold_any = other.is_unresolved && other.devices.is_empty();
                may_hold_any || same.any(|held| !may_share(held))
            });
            if let Some(holder) = holder {
                let (device, holder) = (device.device.clone(), holder.claim.to_string());
                return Err(Refusal::DeviceInUse { device, holder });
            }
        }
        Ok(())
    }

    /// Refuses channels that a claim of another domain holds, and other channels than those that a claim of the same domain
    /// holds.
    pub(super) fn check_channels(&self, wanted: &DomainRecord) -> Result<(), Refusal> {
        for (domain, channels) in channels(wanted) {
            for other in self.others(wanted) {
                for (other_domain, held) in self::channels(other) {
                    let meets = channels.start < held.end && held.start < channels.end;
                    if domain != other_domain && meets {
                        let device = format!("channel {}", channels.start.max(held.start));
                        let holder = other.claim.to_string();
                        return Err(Refusal::DeviceInUse { device, holder });
                    }
                    if domain == other_domain && held.start != channels.start {
                        return Err(Refusal::ComputeDomainNotReady {
                            claim: wanted.claim.to_string(),
                            domain: domain.to_owned(),
                            problem: format!(
                                "its status says channel {}, and its claim {} has channel {} on this node; wait until that \
                                 pod has ended",
                                channels.start, other.claim, held.start
                            ),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    fn others<'a>(&'a self, wanted: &'a DomainRecord) -> impl Iterator<Item = &'a DomainRecord> {
        let others = self.by_uid.values().map(|(record, _)| record);
        others.filter(|other| other.claim.uid != wanted.claim.uid)
    }

    /// Adds or replaces a claim.
    pub(super) fn insert(&mut self, record: DomainRecord) {
        self.by_uid.insert(record.claim.uid.clone(), (record, Missing::No));
    }

    /// Forgets a claim.
    pub(super) fn remove(&mut self, uid: &str) {
        self.by_uid.remove(uid);
    }

    /// Sets whether a claim's object is missing. Returns whether it has been missing for the grace period.
    pub(super) fn set_missing(&mut self, uid: &str, found: Missing) -> bool {
        let Some((_, missing)) = self.by_uid.get_mut(uid) else { return false };
        if let (Missing::Since(first), Missing::Since(now)) = (*missing, found) {
            return now - first >= GRACE_PERIOD;
        }
        *missing = found;
        false
    }

    /// Whether a claim's object was found missing.
    pub(super) fn has_missing(&self) -> bool {
        self.by_uid.values().any(|(_, missing)| *missing != Missing::No)
    }

    /// The claims that hold devices.
    pub(super) fn claims(&self) -> Vec<ClaimRef> {
        self.by_uid.values().map(|(record, _)| record.claim.clone()).collect()
    }

    /// How many devices claims hold.
    pub(super) fn counts(&self) -> DomainCounts {
        let devices = self.by_uid.values().flat_map(|(record, _)| &record.devices);
        devices.fold(DomainCounts::default(), |mut counts, held| {
            match held.kind {
                DomainDevice::Channels { .. } => counts.channels += 1,
                DomainDevice::Daemon { .. } => counts.daemons += 1,
            }
            counts
        })
    }
}

/// The channels of a record, with the UIDs of their domains.
fn channels(record: &DomainRecord) -> impl Iterator<Item = (&str, Range<u32>)> {
    record.devices.iter().filter_map(|held| match held.kind {
        DomainDevice::Channels { first, count } if count > 0 => {
            Some((held.domain.as_str(), first..first.saturating_add(count)))
        }
        _ => None,
    })
}
