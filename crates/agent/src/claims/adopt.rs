//! Takes over the claims that NVIDIA's DRA driver prepared on this node. Their pods keep running.
//!
//! ```text
//! checkpoint.json of NVIDIA's driver --> a record for each claim, on disk --> checkpoint.json.adopted
//! ```
//!
//! | claim | record |
//! |---|---|
//! | whole GPUs | as if this agent had prepared it, with its time slice |
//! | MIG devices, shares, MPS, virtual machines | its devices by name, until it is prepared or unprepared |
//! | of an earlier boot, or begun only | none: no container has its devices |
//!
//! The kubelet has CDI names from NVIDIA's driver, by which a container starts again. Since release 25.12 they are Octavo's, too. Older
//! ones name devices of NVIDIA's spec, which therefore stays until the claim ends.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use octavo_api::config::TimeSlice;
use octavo_migration::checkpoint::{
    AppliedSharing, Checkpoint, ClaimState, DeviceKind, PreparedClaim, PreparedDevice,
    RequestedSharing, read_checkpoint,
};
use octavo_node::files::{StorageError, is_plain_name};
use octavo_node::{ClaimRef, NodePaths};

use super::plan::parent_request;
use crate::checkpoint::{HeldDevice, HeldKind, HeldSharing, Record, RecordState};
use crate::node::DraDriver;

/// The file of NVIDIA's driver, in the folder that both drivers have.
const FILE: &str = "checkpoint.json";
/// Its name once its claims are in records.
const ADOPTED: &str = "checkpoint.json.adopted";

/// What NVIDIA's driver left behind.
#[derive(Debug, Default)]
pub(super) struct Adoption {
    /// The file, if there is one that is to be moved aside.
    file: Option<PathBuf>,
    /// Records of its claims.
    pub(super) records: Vec<Record>,
    /// What is wrong with the file, if anything is.
    pub(super) damage: Option<String>,
}

impl Adoption {
    /// Reads what NVIDIA's driver left on a node.
    pub(super) fn read(paths: &NodePaths, boot_id: &str) -> Self {
        let file = DraDriver::GPU.plugin_folder(&paths.kubelet_root).join(FILE);
        let bytes = match fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::default(),
            Err(error) => return Self::damaged(&file, &error.to_string()),
        };
        let checkpoint = match read_checkpoint(&bytes) {
            Ok(checkpoint) => checkpoint,
            Err(error) => return Self::damaged(&file, &error.to_string()),
        };
        let is_old = checkpoint.is_of_other_boot(boot_id).unwrap_or_else(|| {
            let written = fs::metadata(&file).and_then(|file| file.modified());
            written.ok().zip(booted_at(paths)).is_some_and(|(written, booted)| written < booted)
        });
        let records = if is_old { Vec::new() } else { records(&checkpoint, boot_id) };
        Self { file: Some(file), records, damage: None }
    }

    /// Moves the file aside, so that a claim which has ended is not taken over again.
    pub(super) fn complete(&self) -> Result<(), StorageError> {
        let Some(file) = &self.file else { return Ok(()) };
        fs::rename(file, file.with_file_name(ADOPTED)).map_err(StorageError::of("move aside", file))
    }

    fn damaged(file: &std::path::Path, error: &str) -> Self {
        let damage = format!(
            "{} cannot be used: {error}; its claims are known by their CDI specs alone",
            file.display()
        );
        Self { damage: Some(damage), ..Self::default() }
    }
}

fn records(checkpoint: &Checkpoint, boot_id: &str) -> Vec<Record> {
    let claims = checkpoint.claims.iter().filter(|(uid, claim)| {
        let has_devices = claim.devices().next().is_some();
        is_plain_name(uid) && claim.state == ClaimState::PrepareCompleted && has_devices
    });
    claims.map(|(uid, claim)| record(uid, claim, boot_id)).collect()
}

fn record(uid: &str, claim: &PreparedClaim, boot_id: &str) -> Record {
    let name = ClaimRef {
        namespace: claim.namespace.clone().unwrap_or_default(),
        name: claim.name.clone().unwrap_or_default(),
        uid: uid.to_owned(),
    };
    let with_sharing = || {
        claim
            .groups
            .iter()
            .flat_map(|group| group.devices.iter().map(move |device| (device, &group.sharing)))
    };
    let whole: Option<Vec<HeldDevice>> =
        with_sharing().map(|(device, sharing)| whole(claim, device, sharing)).collect();
    let (state, devices) = match whole {
        Some(devices) => (RecordState::Prepared, devices),
        None => (RecordState::Unresolved, named(claim)),
    };
    Record { claim: name, boot_id: boot_id.to_owned(), state, prepared_at: None, devices }
}

/// A whole GPU as this agent holds one; `None`: it is another device, or shared in a way that the file does not describe.
fn whole(
    claim: &PreparedClaim,
    device: &PreparedDevice,
    sharing: &AppliedSharing,
) -> Option<HeldDevice> {
    let DeviceKind::Gpu { uuid } = &device.kind else { return None };
    // A device may be in results of several requests, each with terms of its own.
    let results = || {
        let of_device = claim.allocated.iter().filter(|it| it.device == device.name);
        of_device.filter(|it| device.requests.contains(&it.request))
    };
    // NVIDIA's driver records the share in the result alone.
    let is_share = device.share_id.is_some() || results().any(|it| it.share_id.is_some());
    if is_share || sharing.mps_daemon.is_some() {
        return None;
    }
    let slice = match sharing.requested {
        RequestedSharing::Default | RequestedSharing::TimeSlicing(TimeSlice::Default) => None,
        RequestedSharing::TimeSlicing(_) if sharing.is_time_slice_applied == Some(false) => None,
        RequestedSharing::TimeSlicing(TimeSlice::Short) => Some(1),
        RequestedSharing::TimeSlicing(TimeSlice::Medium) => Some(2),
        RequestedSharing::TimeSlicing(TimeSlice::Long) => Some(3),
        RequestedSharing::Mps(_) | RequestedSharing::Unknown(_) => return None,
    };
    let is_admin = results().any(|it| it.is_admin);
    Some(HeldDevice {
        requests: device.requests.iter().map(|it| parent_request(it).to_owned()).collect(),
        pool: device.pool.clone(),
        device: device.name.clone(),
        uuid: uuid.clone(),
        admin_access: is_admin,
        cdi_ids: device.cdi_device_ids.clone(),
        kind: HeldKind::Whole,
        sharing: slice.filter(|_| !is_admin).map(HeldSharing::TimeSlice),
        ..HeldDevice::default()
    })
}

/// The devices by their names, each once.
fn named(claim: &PreparedClaim) -> Vec<HeldDevice> {
    let mut seen = BTreeSet::new();
    let fresh = claim.devices().filter(|device| seen.insert(device.name.as_str()));
    // A GPU's UUID is kept: what its claim set on it is undone in the end.
    let uuid = |device: &PreparedDevice| match &device.kind {
        DeviceKind::Gpu { uuid } => uuid.clone(),
        _ => String::new(),
    };
    let held = fresh.map(|device| HeldDevice {
        uuid: uuid(device),
        requests: device.requests.iter().map(|it| parent_request(it).to_owned()).collect(),
        pool: device.pool.clone(),
        device: device.name.clone(),
        cdi_ids: device.cdi_device_ids.clone(),
        ..HeldDevice::default()
    });
    held.collect()
}

/// When the kernel started (`btime` in `/proc/stat`), if it says so.
fn booted_at(paths: &NodePaths) -> Option<SystemTime> {
    let text = fs::read_to_string(paths.proc_root.join("stat")).ok()?;
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(UNIX_EPOCH + Duration::from_secs(seconds))
}
