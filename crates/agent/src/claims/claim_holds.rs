//! The devices held by each claim: the authoritative state in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use octavo_gpu::mig::MigPlacement;

use super::extent::Extent;
use super::plan::FULL_TIME;
use super::{DeviceKind, Devices, HeldCounts, Holding};
use crate::checkpoint::{HeldDevice, HeldKind, HeldShare, MadeMig, Record, RecordState};
use crate::gpu_mode::GpuMode;
use crate::mig_layout::ClosedParts;

/// All claims that hold devices, by UID.
#[derive(Debug, Default)]
pub(super) struct ClaimHolds {
    by_uid: BTreeMap<String, ClaimHold>,
    /// Whether the device plugin has the GPUs, so that no claim gets any.
    is_lent: bool,
    /// Parts of GPUs that are about to change, so that no claim gets any.
    closed: ClosedParts,
}

/// Devices of one claim.
#[derive(Clone, Debug)]
pub(super) struct ClaimHold {
    /// Its record.
    pub(super) record: Record,
    /// Whether record and CDI spec were written completely since the last change in memory.
    pub(super) is_written: bool,
    /// Whether the claim is being released. Its spec is removed and must not be written again.
    pub(super) is_releasing: bool,
    /// Time at which its object was first found missing, if it is.
    pub(super) gone_since: Option<Instant>,
}

/// Conflicting claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    /// The device that is wanted.
    pub(super) device: String,
    /// UIDs of the claims, sorted; at least one.
    pub(super) holders: Vec<String>,
    /// Whether the claim only possibly holds the device.
    pub(super) is_possible_only: bool,
    /// If all hold shares: the requested amount, and the free amount.
    pub(super) shortage: Option<(HeldShare, HeldShare)>,
}

impl ClaimHolds {
    /// Lends the GPUs to the device plugin: no claim gets one from here on. Returns the claims that have some. Those with admin
    /// access alone have none.
    pub(super) fn lend(&mut self) -> Vec<Holding> {
        self.is_lent = true;
        let mut held = self.holdings();
        held.retain(|holding| !holding.devices.is_empty() || holding.is_unresolved);
        held
    }

    /// Takes the GPUs back from the device plugin.
    pub(super) fn take_back(&mut self) {
        self.is_lent = false;
    }

    /// Whether the device plugin has the GPUs.
    pub(super) fn is_lent(&self) -> bool {
        self.is_lent
    }

    /// Closes parts of GPUs, and opens all others: no claim gets any of them from here on.
    pub(super) fn close(&mut self, parts: ClosedParts) {
        self.closed = parts;
    }

    /// The first device of a record that is closed.
    pub(super) fn closed_device<'a>(&self, record: &'a Record) -> Option<&'a HeldDevice> {
        let mut devices = record.devices.iter().filter(|held| !held.admin_access);
        devices.find(|held| self.closed.covers(&held.uuid, held.placement()))
    }

    /// The claims that have a part of these, and those whose devices are unknown.
    pub(super) fn holders(&self, parts: &ClosedParts) -> BTreeSet<String> {
        let has_part = |hold: &&ClaimHold| {
            let mut devices = hold.record.devices.iter().filter(|held| !held.admin_access);
            let is_part = |held: &HeldDevice| {
                held.uuid.is_empty() || parts.covers(&held.uuid, held.placement())
            };
            hold.may_hold_any() || devices.any(is_part)
        };
        self.by_uid.values().filter(has_part).map(|hold| hold.record.claim.to_string()).collect()
    }

    /// Takes a record that was found on disk.
    pub(super) fn insert(&mut self, record: Record) {
        let hold = ClaimHold::new(record, true);
        self.by_uid.insert(hold.record.claim.uid.clone(), hold);
    }

    /// Reserves the devices of a claim unless other claims hold them. The devices are taken from here on, even if
    /// writing files fails.
    pub(super) fn reserve(&mut self, record: Record, devices: &Devices) -> Result<(), Conflict> {
        for (index, wanted) in record.devices.iter().enumerate() {
            if !wanted.admin_access {
                self.check(&record, index, wanted, devices)?;
            }
        }
        self.change(record);
        Ok(())
    }

    /// Checks one device of a record for conflicts.
    fn check(
        &self,
        record: &Record,
        index: usize,
        wanted: &HeldDevice,
        devices: &Devices,
    ) -> Result<(), Conflict> {
        let uid = &record.claim.uid;
        let conflict = |holder: &str, is_possible_only| Conflict {
            device: wanted.device.clone(),
            holders: vec![holder.to_owned()],
            is_possible_only,
            shortage: None,
        };
        let extent = Extent::of(record, wanted, devices);
        let mut taken = HeldShare { memory_bytes: 0, compute_milli_percent: 0 };
        let mut holders = Vec::new();
        for (holder, hold) in self.by_uid.iter().filter(|(other, _)| *other != uid) {
            for held in hold.on_gpu_of(wanted) {
                let other = Extent::of(&hold.record, held, devices);
                if extent.excludes(other) {
                    return Err(conflict(holder, hold.record.is_unresolved()));
                }
                if let Extent::Share(share) = other {
                    taken = taken.plus(share);
                    if holders.last() != Some(holder) {
                        holders.push(holder.clone());
                    }
                }
            }
            if hold.may_hold_any() {
                return Err(conflict(holder, true));
            }
        }
        let own = record.devices.iter().enumerate();
        let own = own.filter(|(_, held)| !held.admin_access && held.is_of_same_gpu(wanted));
        let mut asked = HeldShare { memory_bytes: 0, compute_milli_percent: 0 };
        for (other, held) in own {
            let part = Extent::of(record, held, devices);
            if other != index && extent.excludes(part) {
                return Err(conflict(uid, false));
            }
            if let Extent::Share(share) = part {
                asked = asked.plus(share);
            }
        }
        let memory_bytes = match devices.by_name.get(&wanted.device).map(|device| &device.kind) {
            Some(DeviceKind::Gpu { memory_bytes, .. }) => *memory_bytes,
            _ => 0,
        };
        let free = HeldShare { memory_bytes, compute_milli_percent: FULL_TIME }.minus(taken);
        if matches!(extent, Extent::Share(_)) && !asked.fits(free) {
            if holders.is_empty() {
                holders.push(uid.clone());
            }
            let device = wanted.device.clone();
            let shortage = Some((asked, free));
            return Err(Conflict { device, holders, is_possible_only: false, shortage });
        }
        Ok(())
    }

    /// Replaces a claim's record. Its files must be written afterwards.
    pub(super) fn change(&mut self, record: Record) {
        let hold = ClaimHold::new(record, false);
        self.by_uid.insert(hold.record.claim.uid.clone(), hold);
    }

    /// Restores the former state of a claim; `None` removes it.
    pub(super) fn restore(&mut self, uid: &str, before: Option<ClaimHold>) {
        match before {
            Some(hold) => self.by_uid.insert(uid.to_owned(), hold),
            None => self.by_uid.remove(uid),
        };
    }

    /// Notes that a claim's files are written.
    pub(super) fn set_written(&mut self, uid: &str) {
        if let Some(hold) = self.by_uid.get_mut(uid) {
            hold.is_written = true;
            hold.is_releasing = false;
        }
    }

    /// Notes that a claim's devices are being taken back.
    pub(super) fn set_releasing(&mut self, uid: &str) {
        if let Some(hold) = self.by_uid.get_mut(uid) {
            hold.is_releasing = true;
        }
    }

    /// Whether any claim's object was found gone.
    pub(super) fn has_gone(&self) -> bool {
        self.by_uid.values().any(|hold| hold.gone_since.is_some())
    }

    /// Records that a claim's object is missing or exists again. Returns the time since which it is missing.
    pub(super) fn set_gone(&mut self, uid: &str, now: Option<Instant>) -> Option<Instant> {
        let hold = self.by_uid.get_mut(uid)?;
        hold.gone_since = now.map(|now| hold.gone_since.unwrap_or(now));
        hold.gone_since
    }

    /// Removes a claim and frees its devices.
    pub(super) fn remove(&mut self, uid: &str) {
        self.by_uid.remove(uid);
    }

    /// State of a claim.
    pub(super) fn get(&self, uid: &str) -> Option<ClaimHold> {
        self.by_uid.get(uid).cloned()
    }

    /// Sets the current instance of a claim's device. Nothing else of the claim changes.
    pub(super) fn set_made(&mut self, uid: &str, device: &str, made: Option<&MadeMig>) {
        if let Some(hold) = self.by_uid.get_mut(uid) {
            hold.record.set_made(device, made);
        }
    }

    /// Devices, with their claims' UIDs, whose instance had the id that `now` has. Their instances no longer exist,
    /// since ids are unique per GPU.
    pub(super) fn replaced_by(
        &self,
        uuid: &str,
        placement: MigPlacement,
        now: &MadeMig,
    ) -> Vec<(String, String)> {
        let is_replaced = |held: &HeldDevice| match &held.kind {
            HeldKind::Mig(mig) if held.uuid == uuid => mig.made.as_ref().is_some_and(|made| {
                let is_same = mig.placement() == placement && made.uuid == now.uuid;
                made.gpu_instance == now.gpu_instance && !is_same
            }),
            _ => false,
        };
        let mut replaced = Vec::new();
        for (uid, hold) in &self.by_uid {
            let devices = hold.record.devices.iter().filter(|held| is_replaced(held));
            replaced.extend(devices.map(|held| (uid.clone(), held.device.clone())));
        }
        replaced
    }

    /// UIDs of all claims that hold something.
    pub(super) fn uids(&self) -> Vec<String> {
        self.by_uid.keys().cloned().collect()
    }

    /// All claims, in order of UID.
    pub(super) fn all(&self) -> impl Iterator<Item = &ClaimHold> {
        self.by_uid.values()
    }

    /// All records, in order of UID.
    pub(super) fn records(&self) -> Vec<Record> {
        self.by_uid.values().map(|hold| hold.record.clone()).collect()
    }

    /// Placements of existing or requested instances: GPU UUID, first memory slice, number of slices. `is_meant`
    /// receives the claim and whether the instance is dynamic.
    pub(super) fn slices(
        &self,
        is_meant: impl Fn(&ClaimHold, bool) -> bool,
    ) -> BTreeSet<(String, u32, u32)> {
        let mut slices = BTreeSet::new();
        for hold in self.by_uid.values() {
            for held in &hold.record.devices {
                if let HeldKind::Mig(mig) = &held.kind
                    && is_meant(hold, mig.is_dynamic)
                {
                    slices.insert((held.uuid.clone(), mig.start, mig.size));
                }
            }
        }
        slices
    }

    /// What the GPU of a device is used as by all claims except one.
    pub(super) fn mode_for_others(&self, held: &HeldDevice, except: &str) -> GpuMode {
        self.mode(held, |uid, _| uid != except)
    }

    /// Whether containers of another claim use the device's GPU without MIG. MIG mode is then certainly off.
    pub(super) fn runs_without_mig(&self, held: &HeldDevice, except: &str) -> bool {
        let mode =
            self.mode(held, |uid, hold| uid != except && hold.is_prepared() && hold.is_written);
        matches!(mode, GpuMode::Whole | GpuMode::Shared)
    }

    /// What the GPU of a device is used as by the claims that are meant. They all use it in one mode, except that a damaged
    /// record has only names: its instances look like whole GPUs.
    fn mode(&self, held: &HeldDevice, is_meant: impl Fn(&str, &ClaimHold) -> bool) -> GpuMode {
        let meant = self.by_uid.iter().filter(|(uid, hold)| is_meant(uid, hold));
        let used = meant.flat_map(|(_, hold)| hold.on_gpu_of(held));
        let modes: Vec<_> = used.map(|held| GpuMode::of(&held.kind)).collect();
        let mig = modes.iter().find(|mode| mode.is_mig());
        mig.or(modes.first()).copied().unwrap_or(GpuMode::Free)
    }

    /// Whether a damaged record may hold devices of a GPU.
    pub(super) fn may_hold_unknown(&self, uuid: &str, devices: &Devices) -> bool {
        self.by_uid.values().filter(|hold| hold.record.is_unresolved()).any(|hold| {
            let of_gpu = |held: &HeldDevice| {
                // An unknown device may be on any GPU.
                devices.by_name.get(&held.device).is_none_or(|device| device.uuid == uuid)
            };
            hold.record.devices.is_empty() || hold.record.devices.iter().any(of_gpu)
        })
    }

    /// How many devices claims have for themselves.
    pub(super) fn counts(&self) -> HeldCounts {
        let mut counts = HeldCounts::default();
        let held = self.by_uid.values().flat_map(|hold| &hold.record.devices);
        for held in held.filter(|held| !held.admin_access) {
            match held.kind {
                HeldKind::Whole => counts.gpus += 1,
                HeldKind::Share(_) => counts.shares += 1,
                HeldKind::Mig(_) => counts.mig += 1,
            }
        }
        counts
    }

    /// Devices of every claim.
    pub(super) fn holdings(&self) -> Vec<Holding> {
        let names = |hold: &ClaimHold, is_admin| {
            let devices = hold.record.devices.iter();
            let devices = devices.filter(|device| device.admin_access == is_admin);
            devices.map(|device| device.device.clone()).collect()
        };
        let holdings = self.by_uid.values().map(|hold| Holding {
            claim: hold.record.claim.clone(),
            devices: names(hold, false),
            admin_devices: names(hold, true),
            is_unresolved: hold.record.is_unresolved(),
        });
        holdings.collect()
    }
}

impl ClaimHold {
    fn new(record: Record, is_written: bool) -> Self {
        Self { record, is_written, is_releasing: false, gone_since: None }
    }

    /// Exclusively held devices on the GPU of `wanted`.
    fn on_gpu_of(&self, wanted: &HeldDevice) -> impl Iterator<Item = &HeldDevice> {
        let devices = self.record.devices.iter();
        devices.filter(move |held| !held.admin_access && held.is_of_same_gpu(wanted))
    }

    /// Whether its devices are unknown.
    pub(super) fn may_hold_any(&self) -> bool {
        self.record.is_unresolved() && self.record.devices.is_empty()
    }

    /// Whether the claim was prepared and its record is intact.
    pub(super) fn is_prepared(&self) -> bool {
        self.record.state == RecordState::Prepared
    }

    /// Whether a process ended while creating the claim's instances.
    pub(super) fn is_preparing(&self) -> bool {
        self.record.state == RecordState::Preparing
    }

    /// Its devices on the GPU of `device`, as text for messages.
    pub(super) fn describe_on_gpu(&self, device: &str) -> String {
        let wanted = HeldDevice { device: device.to_owned(), ..HeldDevice::default() };
        let words: Vec<_> = self.on_gpu_of(&wanted).map(HeldDevice::words).collect();
        words.join(", ")
    }
}
