//! Restores the claims of earlier processes from checkpoints, and from CDI specs where checkpoints fail.
//!
//! | checkpoint | CDI spec | result |
//! |---|---|---|
//! | intact, this boot | any | held; a missing spec is rewritten |
//! | intact, earlier boot | any | dropped, both files removed |
//! | damaged | intact | held; restored from the spec |
//! | damaged | names devices | unresolved: these devices are protected |
//! | damaged | none, damaged | unresolved: every device is protected |
//! | none | intact, this boot | held; restored from the spec |
//! | none | intact, earlier boot | removed |
//! | none | names devices, damaged | as if the checkpoint were damaged |
//! | none, and NVIDIA's driver has one | any | held, see [`super::adopt`] |
//!
//! A claim whose instances were being created is held as found. `startup_cleanup` releases it once the driver is open.
//! After a reboot damaged files protect nothing, since no container outlives a boot. An unresolved claim is resolved
//! when it is prepared or unprepared, or when its object is gone.

use std::collections::BTreeSet;

use octavo_node::ClaimRef;
use octavo_node::files::{StorageError, is_plain_name};

use super::Opened;
use super::adopt::Adoption;
use super::claim_holds::ClaimHolds;
use crate::cdi::{CdiFolder, SpecContent, cdi_id};
use crate::checkpoint::{Damaged, HeldDevice, Record, RecordState, Store};

/// Reads all files, repairs them where possible, and returns the result.
pub(super) fn recover(
    store: &Store,
    cdi: &CdiFolder,
    adoption: &Adoption,
) -> Result<(ClaimHolds, Opened), StorageError> {
    let mut holds = ClaimHolds::default();
    let mut opened = Opened::default();
    let loaded = store.load()?;
    let mut seen = BTreeSet::new();
    for uid in loaded.forgotten {
        cdi.remove(&uid)?;
        octavo_node::failpoint::hit("start.cdi-removed");
        store.remove(&uid)?;
        opened.forgotten += 1;
        seen.insert(uid);
    }
    for (uid, record) in loaded.records {
        holds.insert(by_device(record));
        seen.insert(uid);
    }
    for (uid, damaged) in loaded.damaged {
        if let Some(record) = damaged_record(store, cdi, &uid, &damaged, &mut opened)? {
            holds.insert(record);
        }
        seen.insert(uid);
    }
    opened.damage.extend(adoption.damage.clone());
    for record in &adoption.records {
        if seen.insert(record.claim.uid.clone()) {
            store.write(record)?;
            octavo_node::failpoint::hit("adopt.recorded");
            holds.insert(record.clone());
            opened.adopted += 1;
        }
    }
    for uid in cdi.uids()?.into_iter().filter(|uid| !seen.contains(uid)) {
        let path = cdi.path(&uid).display().to_string();
        let record = match cdi.read(&uid) {
            None => continue,
            Some(SpecContent::Record(record)) if record.boot_id != store.boot_id() => None,
            Some(SpecContent::Record(record)) => Some(*record),
            Some(_) if store.is_new_boot() => None,
            Some(SpecContent::Devices(devices)) => Some(unresolved(store, &uid, None, &devices)),
            Some(SpecContent::Damaged) => Some(unresolved(store, &uid, None, &[])),
        };
        let Some(record) = record else {
            cdi.remove(&uid)?;
            opened.forgotten += 1;
            continue;
        };
        store.write(&record)?;
        opened.damage.push(format!(
            "claim UID {uid} has no checkpoint but a CDI spec {path}: {}",
            consequence(&record)
        ));
        holds.insert(record);
    }
    store.mark_boot()?;
    adoption.complete()?;
    opened.held = holds.uids().len();
    Ok((holds, opened))
}

/// Moves a damaged checkpoint aside and restores as much as possible.
fn damaged_record(
    store: &Store,
    cdi: &CdiFolder,
    uid: &str,
    damaged: &Damaged,
    opened: &mut Opened,
) -> Result<Option<Record>, StorageError> {
    let found = cdi.read(uid);
    let is_earlier_boot = match &found {
        Some(SpecContent::Record(record)) => record.boot_id != store.boot_id(),
        _ => store.is_new_boot() || !is_plain_name(uid),
    };
    let record = match found {
        _ if is_earlier_boot => None,
        Some(SpecContent::Record(record)) => Some(*record),
        Some(SpecContent::Devices(devices)) => {
            Some(unresolved(store, uid, damaged.claim.clone(), &devices))
        }
        Some(SpecContent::Damaged) | None => {
            Some(unresolved(store, uid, damaged.claim.clone(), &[]))
        }
    };
    if record.is_none() && is_plain_name(uid) {
        cdi.remove(uid)?;
    }
    let aside = store.quarantine(uid, damaged.damage, record.as_ref())?;
    let what_now =
        record.as_ref().map_or_else(|| "nothing is held by it any more".to_owned(), consequence);
    opened.damage.push(format!(
        "checkpoint {} is damaged, {}; it is kept as {}; {what_now}",
        store.path(uid).display(),
        damaged.damage,
        aside.display()
    ));
    Ok(record)
}

/// Replaces share names by device names. An agent from before shares takes `gpu-1.<share>` for a device if it reads
/// only part of a spec.
fn by_device(mut record: Record) -> Record {
    if record.is_unresolved() {
        for held in &mut record.devices {
            held.device = held.device.split('.').next().unwrap_or_default().to_owned();
        }
    }
    record
}

/// A record of the devices that a claim may hold. No devices means any.
fn unresolved(store: &Store, uid: &str, claim: Option<ClaimRef>, devices: &[String]) -> Record {
    let held = devices.iter().map(|device| HeldDevice {
        device: device.clone(),
        cdi_ids: vec![cdi_id(uid, device, None)],
        ..HeldDevice::default()
    });
    let unnamed =
        || ClaimRef { namespace: String::new(), name: String::new(), uid: uid.to_owned() };
    Record {
        claim: claim.unwrap_or_else(unnamed),
        boot_id: store.boot_id().to_owned(),
        state: RecordState::Unresolved,
        prepared_at: None,
        devices: held.collect(),
    }
}

/// Consequence of a recovered record for the node's GPUs.
fn consequence(record: &Record) -> String {
    let devices: Vec<_> = record.devices.iter().map(|device| device.device.as_str()).collect();
    let devices = devices.join(", ");
    match record.state {
        RecordState::Preparing => {
            format!("the making of {devices} was begun and is taken back")
        }
        RecordState::Prepared => format!("restored, the claim holds {devices}"),
        RecordState::Unresolved if devices.is_empty() => {
            "no GPU is given to other claims until the kubelet prepares or unprepares it".to_owned()
        }
        RecordState::Unresolved => format!(
            "{devices} are not given to other claims until the kubelet prepares or unprepares it"
        ),
    }
}
