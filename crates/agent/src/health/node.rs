//! The GPUs of one node: signals come in, states come out.

mod decision;
mod ends;
mod nics;
mod remedies;
mod verification;

use std::collections::{BTreeMap, BTreeSet};

use octavo_gpu::{DriverError, Gpu, GpuHealth, GpuTelemetry, Inventory};
use octavo_health::decide::Decisions;
use octavo_health::policy::Mode;
use octavo_health::signal::{Attempt, LinkSeverity, Observation, Report, Signal, Word};
use octavo_health::state::{State, Track};
use octavo_health::unit::{DeviceId, Topology, Unit};

pub(crate) use ends::{Ended, RemedyOutcome, TestOutcome};
pub(crate) use verification::{TestResult, TestRun};

use super::log_note::LogNote;
use super::nics::Card;
use super::orders::Orders;
use super::period::{Period, Periods};
use super::place::{islands, place, place_of_missing, switched};
use super::record::{Known, Record, RecordFile};
use super::{GpuState, Health};
use crate::devices::device_name;
use ends::Ends;
use verification::DeviceTests;

/// Time within which an XID of a GPU that comes by two ways is one, in seconds.
const SAME_XID: u64 = 10;
/// Time in which links become active after the driver was opened, in seconds.
const LINK_TRAINING: u64 = 30;

/// The health of a node's GPUs.
#[derive(Debug)]
pub(crate) struct NodeHealth {
    pub(super) orders: Orders,
    pub(super) record: Record,
    file: Option<RecordFile>,
    pub(super) topology: Topology,
    /// UUIDs of GPUs out of service that the driver does not show.
    missing: BTreeSet<String>,
    /// UUIDs of GPUs in MIG mode, whose links say nothing.
    in_mig_mode: BTreeSet<String>,
    /// What is at fault with the network cards of GPUs, by UUID.
    nic_faults: BTreeMap<String, String>,
    /// From when on links are to be active, in seconds.
    links_count_from: u64,
    /// The period in which this agent has the node, and with it the record.
    period: Option<Period>,
    /// The island of the node's NVSwitches.
    switches: Option<u32>,
    /// What came since the last decision.
    signals: Vec<Signal>,
    /// How far the kernel's log was read for them.
    pub(super) read_to: Option<LogNote>,
    /// XIDs of late, by UUID and number.
    xids: BTreeMap<(String, u32, LinkSeverity), u64>,
    pub(super) decisions: Decisions,
    /// Devices that were in use at the last decision.
    pub(super) occupied: BTreeSet<DeviceId>,
    /// Remedies that this process began.
    begun: BTreeSet<Attempt>,
    /// Tests on GPUs.
    tests: DeviceTests,
    /// Remedies and tests that ended.
    ends: Ends,
    /// Whether policy and orders were read. Before that, nothing begins that uses a GPU.
    has_orders: bool,
    /// Whether tests that an earlier process left may go on.
    has_resumed: bool,
    /// UUIDs of GPUs whose links may still be trained.
    untrained: BTreeSet<String>,
    /// Whether the driver is gone or released, and since when.
    driver: Option<GpuState>,
}

impl NodeHealth {
    /// The health that a record has, in a boot. Without a file nothing is remembered.
    pub(crate) fn open(mut file: Option<RecordFile>, boot_id: &str) -> Self {
        let mut record = file.as_mut().map_or_else(Record::default, RecordFile::read);
        let is_new_boot = record.boot_id != boot_id;
        if is_new_boot {
            // The node started again.
            record.gpus.values_mut().for_each(|known| known.seen.away());
            record.nics.values_mut().for_each(Card::booted);
            boot_id.clone_into(&mut record.boot_id);
            record.kernel_log = record.kernel_log.and_then(LogNote::after_boot);
        }
        // Without its id another boot may be taken for this one, and its log for one that was read.
        record.kernel_log.take_if(|_| boot_id.is_empty());
        let mut health = Self {
            orders: Orders::default(),
            record,
            file,
            topology: Topology::default(),
            missing: BTreeSet::new(),
            in_mig_mode: BTreeSet::new(),
            nic_faults: BTreeMap::new(),
            links_count_from: 0,
            period: Some(Periods::default().begin()),
            switches: None,
            signals: Vec::new(),
            read_to: None,
            xids: BTreeMap::new(),
            decisions: Decisions::default(),
            occupied: BTreeSet::new(),
            begun: BTreeSet::new(),
            tests: DeviceTests::default(),
            ends: Ends::default(),
            has_orders: false,
            has_resumed: false,
            untrained: BTreeSet::new(),
            driver: None,
        };
        health.end_interrupted(is_new_boot);
        health
    }

    /// The health of an agent that does not have the node yet: it observes, and leaves the record to the agent that has it.
    pub(crate) fn observer(file: Option<RecordFile>, boot_id: &str) -> Self {
        let record = Record { boot_id: boot_id.to_owned(), ..Record::default() };
        Self { record, file, period: None, ..Self::open(None, boot_id) }
    }

    /// Takes the record over. What was observed meanwhile stays, of GPUs that were well by the record. `found` is what the driver shows;
    /// `None` before it was open.
    pub(crate) fn serve(&mut self, period: Period, found: Option<&Inventory>, now: u64) {
        self.period = Some(period);
        let boot_id = self.record.boot_id.clone();
        let read = Self::open(self.file.take(), &boot_id);
        let observed = std::mem::replace(&mut self.record, read.record);
        for (pci, card) in observed.nics {
            self.record.nics.entry(pci).or_insert(card);
        }
        self.file = read.file;
        self.signals.clear();
        self.signals.extend(read.signals);
        self.read_to = None;
        self.begun = read.begun;
        self.ends = read.ends;
        self.has_resumed = false;
        match found {
            Some(found) => self.set_gpus(found, now),
            None => self.place_recorded(),
        }
        for (uuid, Known { id, seen, .. }) in observed.gpus {
            let Some(device) = observed.domain.devices.get(&id) else { continue };
            let Some(known) = self.record.gpus.get_mut(&uuid) else { continue };
            let recorded = self.record.domain.devices.entry(known.id).or_default();
            if recorded.track.state == State::Healthy && device.track.state != State::Healthy {
                // Attempts and relapses are those of the record.
                let Track { state, since, has_failed, .. } = device.track;
                recorded.track = Track { state, since, has_failed, ..recorded.track };
                known.seen = seen;
            }
        }
    }

    /// Whether this agent has the node, and with it the record.
    pub(crate) fn is_active(&self) -> bool {
        self.period.as_ref().is_some_and(Period::goes_on)
    }

    /// The period in which this agent has the node; `None` if it has it not, as far as is known here.
    pub(crate) fn period(&self) -> Option<&Period> {
        self.period.as_ref()
    }

    /// Leaves the record to another agent. What was wanted is of no account any more.
    pub(crate) fn rest(&mut self) {
        (self.period, self.has_orders) = (None, false);
        (self.orders, self.tests) = (Orders::default(), DeviceTests::default());
    }

    /// The driver was opened: links need time until they are active.
    pub(crate) fn driver_opened(&mut self, now: u64) {
        self.links_count_from = now.saturating_add(LINK_TRAINING);
    }

    /// Whether remedies may begin, or tests that use a GPU, so that it must be known whether others use it.
    pub(crate) fn needs_idle_gpus(&self) -> bool {
        self.orders.policy.mode == Mode::Act || self.tests_on_gpus()
    }

    /// Sets the node's GPUs. Of the known ones that are not there, those out of service are lost. One that was well was taken out and is
    /// forgotten, unless the driver counts at least as many lost GPUs as are not there: then all of these are lost. The driver does not say
    /// which they are. Where a GPU cannot be read for another reason, each of these may be that one, and nothing of it changes.
    pub(crate) fn set_gpus(&mut self, found: &Inventory, now: u64) {
        let Record { gpus: known, domain, .. } = &mut self.record;
        let gpus = &found.gpus;
        let is_here = |uuid: &String| gpus.iter().any(|gpu| gpu.uuid == *uuid);
        let lost = found.unreadable.iter().filter(|gpu| gpu.error.is_lost()).count();
        let has_hidden = lost < found.unreadable.len();
        let are_all_lost = known.keys().filter(|uuid| !is_here(uuid)).count() <= lost;
        known.retain(|uuid, known| {
            let is_well = domain
                .devices
                .get(&known.id)
                .is_none_or(|device| device.track.state == State::Healthy);
            let is_kept = is_here(uuid) || !is_well || has_hidden || are_all_lost;
            if !is_kept {
                tracing::warn!(
                    gpu = uuid,
                    lost,
                    "a GPU that was well is not there, and is taken for one that was taken out"
                );
                domain.forget(known.id);
            }
            is_kept
        });
        let is_mig = |gpu: &&Gpu| gpu.mig.is_some_and(|mig| mig.enabled);
        self.in_mig_mode = gpus.iter().filter(is_mig).map(|gpu| gpu.uuid.clone()).collect();
        let islands = islands(gpus);
        self.switches = switched(gpus).next().and_then(|gpu| islands.get(&gpu.index)).copied();
        let mut places = BTreeMap::new();
        for gpu in gpus {
            let next = known.values().map(|known| known.id.0 + 1).max().unwrap_or_default();
            let known = known.entry(gpu.uuid.clone()).or_insert_with(|| Known::new(DeviceId(next)));
            known.name = device_name(gpu);
            let island = islands.get(&gpu.index).copied().unwrap_or(gpu.index);
            places.insert(known.id, place(gpu, island));
        }
        let away =
            known.iter_mut().filter(|(uuid, known)| !is_here(uuid) && !known.name.is_empty());
        self.missing.clear();
        for (uuid, known) in away {
            let out = domain.devices.get(&known.id).map(|device| &device.track);
            let out = out.filter(|track| track.state != State::Healthy);
            if out.is_none() && has_hidden {
                continue;
            }
            places.insert(known.id, place_of_missing(known.id));
            if has_hidden {
                continue;
            }
            self.missing.insert(uuid.clone());
            let at = out.map_or(now, |track| track.since);
            let unit = Unit::Device(known.id);
            self.signals.push(Signal { at, unit, report: known.seen.lost() });
        }
        self.topology = Topology::new(places, []);
        self.place_nics();
    }

    /// Takes the GPUs of the record for those of the node, until the driver shows which they are.
    fn place_recorded(&mut self) {
        let ids = self.record.gpus.values().filter(|known| !known.name.is_empty());
        let places = ids.map(|known| (known.id, place_of_missing(known.id))).collect();
        self.topology = Topology::new(places, []);
    }

    /// Takes the driver's answer about a GPU. A question that failed for another reason than a lost GPU changes no state, and no test
    /// passes until one is answered.
    pub(crate) fn answer(&mut self, uuid: &str, health: &Result<GpuHealth, DriverError>, now: u64) {
        let Some(Known { id, seen, .. }) = self.record.gpus.get_mut(uuid) else { return };
        let reports = match health {
            Ok(health) => seen.answer(health, now),
            Err(error) if error.is_lost() => vec![seen.lost()],
            Err(DriverError::NotSupported { .. } | DriverError::Missing { .. }) => Vec::new(),
            Err(_) => {
                seen.silent();
                Vec::new()
            }
        };
        let id = *id;
        self.report(id, reports, now);
    }

    /// How many fatal errors of a GPU's PCIe link the kernel has counted.
    pub(crate) fn pcie_errors(&mut self, uuid: &str, count: u64, now: u64) {
        let Some(Known { id, seen, .. }) = self.record.gpus.get_mut(uuid) else { return };
        let (id, report) = (*id, seen.pcie_errors(count));
        self.report(id, report.into_iter().collect(), now);
    }

    /// Takes a GPU's telemetry.
    pub(crate) fn telemetry(&mut self, uuid: &str, telemetry: &GpuTelemetry, now: u64) {
        let mut telemetry = *telemetry;
        self.untrained.remove(uuid);
        if self.in_mig_mode.contains(uuid) {
            telemetry.nvlink = None;
        } else if now < self.links_count_from {
            // Links are trained after the driver is loaded, or the GPU reset.
            let trained = telemetry.nvlink.filter(|links| links.active == links.links);
            if trained != std::mem::replace(&mut telemetry.nvlink, trained) {
                self.untrained.insert(uuid.to_owned());
            }
        }
        let links = self.links_behind_switches();
        let Some(Known { id, seen, .. }) = self.record.gpus.get_mut(uuid) else { return };
        let id = *id;
        if self.in_mig_mode.contains(uuid) {
            seen.without_links();
        } else if self.topology.place(id).map(|place| place.island) == self.switches {
            seen.expect_links(links);
        }
        let reports = seen.telemetry(&telemetry, now);
        self.report(id, reports, now);
    }

    /// Adds time at work to a GPU's history, in seconds.
    pub(crate) fn worked(&mut self, uuid: &str, seconds: u64, now: u64) {
        let Some(known) = self.record.gpus.get(uuid) else { return };
        if let Some(device) = self.record.domain.devices.get_mut(&known.id) {
            device.history.expose(&self.orders.policy.risk, now, seconds);
        }
    }

    /// Takes an XID. Returns whether it is new: driver and kernel's log may both report one.
    pub(crate) fn xid(&mut self, uuid: &str, number: u64, link: LinkSeverity, now: u64) -> bool {
        let Some(known) = self.record.gpus.get_mut(uuid) else { return false };
        let id = known.id;
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        self.xids.retain(|_, at| now.saturating_sub(*at) < SAME_XID);
        let xid = (uuid.to_owned(), number, link);
        if self.xids.contains_key(&xid) {
            return false;
        }
        self.xids.insert(xid, now);
        if self.orders.concerns_device(number) {
            known.seen.failed();
        }
        // A pod or claim is no job: one that fails is followed by others, often on the same GPU.
        let xid = Observation::Xid { number, job: None, link };
        self.report(id, vec![Report::Observation(xid)], now);
        true
    }

    /// Whether an XID says something of the device, and not of the application alone.
    pub(crate) fn concerns_device(&self, number: u64) -> bool {
        u32::try_from(number).is_ok_and(|number| self.orders.concerns_device(number))
    }

    /// Takes that an NVSwitch lost its links until it is reset.
    pub(crate) fn switch_failed(&mut self, now: u64) {
        let report = Report::Observation(Observation::Fabric { is_healthy: false });
        let switches =
            self.switches.map(|island| Signal { at: now, unit: Unit::Island(island), report });
        self.signals.extend(switches);
    }

    /// Whether the driver could not reach a GPU when it was last asked.
    pub(crate) fn is_lost(&self, uuid: &str) -> bool {
        self.record.gpus.get(uuid).is_some_and(|known| known.seen.is_lost())
    }

    /// The driver as a whole does not answer any more.
    pub(crate) fn driver_gone(&mut self, now: u64) {
        let since = self.driver.as_ref().map_or_else(|| seconds(now), |driver| driver.since);
        self.driver = Some(GpuState { is_driver_gone: true, since, ..GpuState::default() });
    }

    /// The driver is no longer used, at an administrator's request.
    pub(crate) fn driver_released(&mut self, now: u64) {
        let since = seconds(now);
        self.driver = Some(GpuState { is_driver_released: true, since, ..GpuState::default() });
    }

    /// The driver is open again. It may be another, and the GPUs reset.
    pub(crate) fn driver_back(&mut self) {
        if self.driver.take().is_some() {
            self.record.gpus.values_mut().for_each(|known| known.seen.away());
        }
    }

    /// Takes what API server and persons want. An order acts once.
    pub(crate) fn set_orders(&mut self, orders: Orders, now: u64) {
        for (uuid, (number, word)) in &orders.words {
            let Some(known) = self.record.gpus.get_mut(uuid) else { continue };
            if *number > known.order && *word == Word::Retire && self.missing.remove(uuid) {
                tracing::warn!(gpu = uuid, "a missing GPU is forgotten, as a person ordered");
                self.record.domain.forget(known.id);
                self.record.gpus.remove(uuid);
            } else if *number > known.order {
                tracing::warn!(gpu = uuid, ?word, number, "an order of a person is carried out");
                known.order = *number;
                let unit = Unit::Device(known.id);
                self.signals.push(Signal { at: now, unit, report: Report::Word(*word) });
                if *word == Word::Release {
                    let cards = self.record.nics.values_mut().filter(|card| card.serves(uuid));
                    cards.for_each(Card::accept);
                }
            }
        }
        (self.orders, self.has_orders) = (orders, true);
    }

    /// The GPUs that are not well.
    pub(crate) fn health(&self) -> Health {
        let state = |(uuid, known): (&String, &Known)| {
            let is_here = self.topology.place(known.id).is_some();
            let driver = self.driver.clone().filter(|_| is_here);
            let fence = self.decisions.fences.get(&known.id).copied();
            if driver.is_none() && fence.is_none() {
                return None;
            }
            let device = self.record.domain.devices.get(&known.id);
            let since = device.map_or(0, |device| seconds(device.track.since));
            let since = driver.as_ref().map_or(since, |driver| driver.since);
            let wait = self.decisions.waits.get(&known.id).copied();
            let test = self.test_detail(uuid, known);
            let state = GpuState { fence, wait, test, since, ..driver.unwrap_or_default() };
            Some((uuid.clone(), state))
        };
        self.record.gpus.iter().filter_map(state).collect()
    }

    /// Writes the record if it has changed. Returns whether it is written.
    pub(crate) fn store(&mut self) -> bool {
        let (Some(file), Some(period)) = (self.file.as_mut(), &self.period) else { return false };
        let Some(written) = period.within(|| file.write(&self.record)) else { return false };
        if let Err(error) = &written {
            tracing::error!(%error, "the health of GPUs is not recorded; a restart of the agent forgets fences");
        }
        written.is_ok()
    }

    /// Most links of a GPU behind the node's switches. All of them have as many.
    fn links_behind_switches(&self) -> u32 {
        let Some(island) = self.switches else { return 0 };
        let devices = self.topology.devices(Unit::Island(island));
        let known = self.record.gpus.values().filter(|known| devices.contains(&known.id));
        known.map(|known| known.seen.links()).max().unwrap_or_default()
    }

    fn report(&mut self, id: DeviceId, reports: Vec<Report>, now: u64) {
        let unit = Unit::Device(id);
        self.signals.extend(reports.into_iter().map(|report| Signal { at: now, unit, report }));
    }
}

fn seconds(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
