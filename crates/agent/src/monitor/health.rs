//! What the driver's thread asks and reads about the health of GPUs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use octavo_gpu::{Driver, DriverError, GpuEvent, GpuEventKind, GpuHealth};
use octavo_health::HOUR;
use octavo_health::signal::LinkSeverity;

use super::log::LogReader;
use super::requests::HealthMessage;
use super::{Monitor, now};
use crate::health::takes_pods;

/// How often driver's answers about memory errors and row remaps are read of GPUs that are well.
const ANSWER_INTERVAL: Duration = Duration::from_mins(1);
/// XIDs of NVLink whose severity the kernel's log alone has.
const LINK_XIDS: std::ops::RangeInclusive<u64> = 144..=150;

/// When telemetry and answers were last read.
#[derive(Debug, Default)]
pub(super) struct Telemetry {
    read_at: Option<Instant>,
    answered_at: Option<Instant>,
    /// Time at work that is not in histories yet, by UUID. They get it by the hour, so that the record is rarely written.
    worked: BTreeMap<String, Duration>,
}

/// Whether the driver answered about a GPU, if only that it lost it.
pub(super) fn is_answer(health: &Result<GpuHealth, DriverError>) -> bool {
    health.as_ref().map_or_else(DriverError::is_lost, |_| true)
}

impl Monitor {
    /// UUIDs of the known GPUs.
    pub(super) fn uuids(&self) -> impl Iterator<Item = &String> {
        let gpus = self.snapshot.inventory.iter().flat_map(|inventory| &inventory.gpus);
        gpus.map(|gpu| &gpu.uuid)
    }

    /// UUIDs of the GPUs that take no pods.
    pub(super) fn sick(&self) -> Vec<String> {
        let is_sick = |uuid: &&String| !takes_pods(&self.snapshot.health, uuid);
        self.uuids().filter(is_sick).cloned().collect()
    }

    /// Whether a GPU takes no pods or cannot be read.
    pub(super) fn is_sick(&self) -> bool {
        let has_unreadable =
            self.snapshot.inventory.as_ref().is_some_and(|found| !found.unreadable.is_empty());
        has_unreadable || !self.sick().is_empty()
    }

    /// Takes an event. Returns whether it says something of a GPU's health.
    pub(super) fn handle(&mut self, driver: &dyn Driver, event: &GpuEvent) -> bool {
        let number = match event.kind {
            GpuEventKind::Xid(number) => Some(number),
            GpuEventKind::DoubleBitEcc => None,
            // The driver counts corrected errors; they need no action.
            _ => return false,
        };
        let Some(uuid) = &event.uuid else {
            tracing::warn!(node = %self.node, ?event, "an event of a GPU that the driver cannot name");
            self.ask_all(driver);
            return true;
        };
        // The log has its severity, too.
        let has_log = self.kernel_log.as_ref().is_some_and(LogReader::is_read);
        if let Some(number) = number.filter(|number| !(has_log && LINK_XIDS.contains(number))) {
            self.xid(uuid, number, LinkSeverity::Unknown);
        }
        self.health.answer(uuid, &driver.health(uuid), now());
        true
    }

    pub(super) fn xid(&mut self, uuid: &str, number: u64, link: LinkSeverity) {
        if self.health.xid(uuid, number, link, now()) {
            self.metrics.xid(&self.node, number);
            tracing::warn!(node = %self.node, gpu = %uuid, xid = number, "XID");
        }
    }

    /// Takes a message about the health of GPUs. `driver` is `None` while it cannot be opened.
    pub(super) fn obey(&mut self, driver: Option<&dyn Driver>, message: HealthMessage) {
        match message {
            HealthMessage::Serve(period, answer) => {
                self.metrics.healing.serves(&self.node);
                let inventory = self.snapshot.inventory.clone();
                self.health.serve(period, inventory.as_deref(), now());
                if self.kernel_log.is_none() {
                    self.health.forget_log();
                }
                if let Some(driver) = driver {
                    self.ask_all(driver);
                }
                self.publish();
                // The task that asked may wait no more.
                let _ = answer.send(());
                // It may take minutes, and fences of the record wait for nothing.
                if self.has_node() {
                    self.restore_driver();
                }
            }
            HealthMessage::Rest => self.rest(),
            HealthMessage::Orders(orders) => self.health.set_orders(*orders, now()),
            HealthMessage::Remedied(attempt, outcome, took) => {
                self.health.ended(attempt, outcome, took, now());
            }
            HealthMessage::Tested(results) => self.health.tested(results),
            HealthMessage::Postponed(attempt) => self.health.postponed(attempt),
            HealthMessage::Nics(number, found) => self.take_nics(number, found),
        }
    }

    /// Whether this agent has the node, and with it the record. Another may have got both while the driver let this thread wait.
    pub(super) fn has_node(&mut self) -> bool {
        let has_node = self.health.is_active();
        if !has_node && self.health.period().is_some() {
            self.rest();
        }
        has_node
    }

    fn rest(&mut self) {
        self.end_tests();
        self.health.rest();
        if let Some(log) = &mut self.kernel_log {
            log.close();
        }
    }

    /// Asks the driver about all GPUs, and decides.
    pub(super) fn ask_all(&mut self, driver: &dyn Driver) {
        let uuids: Vec<_> = self.uuids().cloned().collect();
        for uuid in &uuids {
            self.health.answer(uuid, &driver.health(uuid), now());
        }
        self.telemetry.answered_at = Some(Instant::now());
        self.decide(driver);
    }

    /// Reads the telemetry of the GPUs that answer, and their memory errors once a minute. Begins a look at their network cards.
    pub(super) fn read_telemetry(&mut self, driver: &dyn Driver) {
        let begin = Instant::now();
        let passed =
            self.telemetry.read_at.replace(begin).map_or(Duration::ZERO, |last| begin - last);
        let uuids: Vec<_> =
            self.uuids().filter(|uuid| !self.health.is_lost(uuid)).cloned().collect();
        for uuid in uuids {
            let Ok(telemetry) = driver.telemetry(&uuid) else { continue };
            self.health.telemetry(&uuid, &telemetry, now());
            if telemetry.is_idle == Some(false) {
                let worked = self.telemetry.worked.entry(uuid.clone()).or_default();
                *worked += passed;
                if worked.as_secs() >= HOUR {
                    self.health.worked(&uuid, std::mem::take(worked).as_secs(), now());
                }
            }
        }
        self.read_pcie_errors();
        self.look_at_nics();
        let is_due =
            self.telemetry.answered_at.is_none_or(|last| last.elapsed() >= ANSWER_INTERVAL);
        if is_due {
            if self.has_node() {
                self.restore_driver();
            }
            self.ask_all(driver);
        } else {
            self.decide(driver);
        }
    }

    /// Decides upon what was read.
    pub(super) fn decide(&mut self, driver: &dyn Driver) {
        // A lost GPU has no processes that could go on. Where the driver does not say, nothing begins that needs an idle GPU.
        let is_unknown_used = self.health.needs_idle_gpus();
        let is_used = |uuid: &str| match driver.processes(uuid) {
            Ok(found) => !found.is_empty(),
            Err(error) if error.is_lost() => false,
            Err(_) => is_unknown_used,
        };
        self.health.decide(now(), is_used);
        self.count_ends();
        self.snapshot.health = self.health.health();
    }

    /// Counts the remedies and tests that ended with a decision.
    pub(super) fn count_ends(&mut self) {
        for ended in self.health.take_ended() {
            self.metrics.healing.ended(&self.node, ended);
        }
    }
}
