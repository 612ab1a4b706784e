//! The kernel's log: XIDs and errors of NVSwitches, also those from while no agent had the node.
//!
//! The record of health says how far the log was read. The first look of an agent that has the node goes on from there, once the driver was
//! asked: what a reboot has mended is known by then.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use octavo_gpu::{Driver, KernelLog, KernelLogError, KernelLogEvent};
use octavo_health::signal::LinkSeverity;

use super::{Monitor, now};
use crate::health::LogNote;

/// How often the log is looked at.
const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// How often a log is opened again that cannot be read.
const LOG_RETRY_INTERVAL: Duration = Duration::from_mins(1);

/// The kernel's log, which is opened again after an error.
#[derive(Debug)]
pub(super) struct LogReader {
    path: PathBuf,
    log: Option<KernelLog>,
    next_at: Instant,
    has_failed: bool,
}

/// What a look finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    events: Vec<KernelLogEvent>,
    /// How far the log was read; `None` if it was not.
    note: Option<LogNote>,
    /// Whether it was the first look.
    is_first: bool,
}

impl LogReader {
    /// A log at a path, opened at the first look.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, log: None, next_at: Instant::now(), has_failed: false }
    }

    /// Whether its lines come to an agent that has the node, as far as is known.
    pub(super) fn is_read(&self) -> bool {
        !self.has_failed
    }

    /// Has the next look begin where the record says.
    pub(super) fn close(&mut self) {
        (self.log, self.next_at) = (None, Instant::now());
    }

    /// What is new since the last look, or at the first look since the note. After an error the log is read from its end on: faults of
    /// meanwhile, which the driver's events have, too, may be mended.
    fn read(&mut self, node: &str, note: Option<&LogNote>) -> Found {
        if Instant::now() < self.next_at {
            return Found::default();
        }
        self.next_at = Instant::now() + LOG_INTERVAL;
        match self.look(note) {
            Ok(found) => {
                self.has_failed = false;
                found
            }
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::error!(node, %error, "XIDs come from the driver's events alone; trying again");
                }
                self.next_at = Instant::now() + LOG_RETRY_INTERVAL;
                Found::default()
            }
        }
    }

    fn look(&mut self, note: Option<&LogNote>) -> Result<Found, KernelLogError> {
        let is_first = self.log.is_none();
        let mut log = if let Some(log) = self.log.take() {
            log
        } else {
            let note = note.filter(|_| !self.has_failed);
            KernelLog::open(&self.path, note.and_then(|note| note.position(&self.path)))?
        };
        let events = log.read()?;
        let note = Some(LogNote::new(&self.path, log.position()));
        self.log = Some(log);
        Ok(Found { events, note, is_first })
    }
}

impl Monitor {
    /// Whether the log is read. Its lines name GPUs by their addresses, so GPUs must be known. An agent that does not have the node reads
    /// none: it gets them once it has the record.
    fn reads_log(&self) -> bool {
        self.health.is_active() && self.uuids().next().is_some()
    }

    /// When the kernel's log is looked at next; `None` if it is not read.
    pub(super) fn log_at(&self) -> Option<Instant> {
        self.kernel_log.as_ref().filter(|_| self.reads_log()).map(|log| log.next_at)
    }

    /// Takes what the kernel's log has by now.
    pub(super) fn read_log_now(&mut self, driver: &dyn Driver) {
        if let Some(log) = self.kernel_log.as_mut().filter(|log| log.is_read()) {
            log.next_at = Instant::now();
        }
        self.read_log(driver);
    }

    /// Takes what is new in the kernel's log. Returns whether there is something to decide upon and to record.
    pub(super) fn read_log(&mut self, driver: &dyn Driver) -> bool {
        if !self.reads_log() {
            return false;
        }
        let Some(log) = &mut self.kernel_log else { return false };
        let Found { events, note, is_first } = log.read(&self.node, self.health.log_note());
        // How far it was read is recorded after events of the hardware. Other lines may be read twice, and an idle node writes nothing.
        let is_noted = is_first || events.iter().any(|event| self.is_of_hardware(event));
        let is_news = is_first || !events.is_empty();
        for event in events {
            match event {
                KernelLogEvent::Xid { gpu, number, is_fatal, .. } => {
                    let gpus = self.snapshot.inventory.iter().flat_map(|found| &found.gpus);
                    let Some(uuid) =
                        gpus.into_iter().find(|known| known.pci == gpu).map(|gpu| gpu.uuid.clone())
                    else {
                        tracing::warn!(node = %self.node, pci = %gpu, xid = number, "an XID of a GPU that is not known");
                        continue;
                    };
                    let link = match is_fatal {
                        Some(true) => LinkSeverity::Fatal,
                        Some(false) => LinkSeverity::NonFatal,
                        None => LinkSeverity::Unknown,
                    };
                    self.xid(&uuid, number, link);
                    self.health.answer(&uuid, &driver.health(&uuid), now());
                }
                KernelLogEvent::SwitchXid { switch, number, is_fatal, link } => {
                    let (node, pci) = (&self.node, switch);
                    tracing::warn!(%node, %pci, sxid = number, is_fatal, ?link, "SXID of an NVSwitch");
                    if is_fatal {
                        self.health.switch_failed(now());
                    }
                }
            }
        }
        if let Some(note) = note.filter(|_| is_noted) {
            self.health.log_read(note);
        }
        is_news
    }

    fn is_of_hardware(&self, event: &KernelLogEvent) -> bool {
        match event {
            KernelLogEvent::Xid { number, .. } => self.health.concerns_device(*number),
            KernelLogEvent::SwitchXid { is_fatal, .. } => *is_fatal,
        }
    }
}

#[cfg(test)]
mod tests;
