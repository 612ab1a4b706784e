//! What was last read of a GPU, so that changes show: new errors, and remedies that others applied.

use std::collections::{BTreeMap, BTreeSet};

use octavo_gpu::{GpuHealth, GpuTelemetry};
use octavo_health::HOUR;
use octavo_health::signal::{Observation, RecoveryAction, Report};
use serde::{Deserialize, Serialize};

use super::advice::advice;

/// Time in which slowdowns are counted, in seconds.
const SLOWDOWN_WINDOW: u64 = 600;

/// What was last read of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Seen {
    /// What was so at the last look.
    signs: BTreeSet<Sign>,
    /// Uncorrected memory errors since its last reset.
    uncorrected: Option<u64>,
    /// Most links that were active at once. A GPU may have links that lead nowhere.
    links: u32,
    /// Links that were active before, and are not.
    inactive: u32,
    /// Recoveries of its links since its last reset.
    recoveries: Option<u64>,
    /// Replays of its PCIe link since its last reset.
    replays: Option<u64>,
    /// Fatal errors of its PCIe link, by the kernel, since the node was started.
    fatal_errors: Option<u64>,
    /// When warnings were last reported, in seconds. Each is reported once an hour at most.
    warned: BTreeMap<Sign, u64>,
    /// When the hardware began to slow it down, of late.
    #[serde(skip)]
    slowdowns: Vec<u64>,
}

/// What is so at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Sign {
    /// The driver cannot reach the GPU.
    Lost,
    /// GPU, driver or node were away since the driver last had nothing to advise. So the GPU may have been reset.
    Away,
    /// The driver advises something.
    Advice,
    /// A row remap waits for a reset.
    RemapPending,
    /// A row remap failed.
    RemapFailed,
    /// The driver does not say how the GPU is.
    Silent,
    /// Links recovered.
    LinkRecoveries,
    /// The PCIe link is slow under load.
    SlowLink,
    /// There is no margin of temperature.
    Hot,
    /// The hardware slows the GPU down.
    SlowedDown,
}

impl Seen {
    /// Whether the GPU passes the test that needs no load: the driver reaches it and advises nothing, rows and links are clear.
    pub(super) fn is_good(&self) -> bool {
        let bad = [Sign::Lost, Sign::Silent, Sign::Advice, Sign::RemapPending, Sign::RemapFailed];
        self.inactive == 0 && bad.iter().all(|sign| !self.signs.contains(sign))
    }

    /// Whether the driver could not reach it at the last look.
    pub(super) fn is_lost(&self) -> bool {
        self.signs.contains(&Sign::Lost)
    }

    /// Most links that were active at once.
    pub(super) fn links(&self) -> u32 {
        self.links
    }

    /// Takes how many links are to be active at least.
    pub(super) fn expect_links(&mut self, links: u32) {
        self.links = self.links.max(links);
    }

    /// Driver or node were away: the GPU may have been reset.
    pub(super) fn away(&mut self) {
        self.signs.insert(Sign::Away);
    }

    /// The GPU had an error: what was before it mends nothing.
    pub(super) fn failed(&mut self) {
        self.signs.remove(&Sign::Away);
    }

    /// The driver cannot reach the GPU.
    pub(super) fn lost(&mut self) -> Report {
        self.signs.extend([Sign::Lost, Sign::Away]);
        Report::Observation(Observation::Lost)
    }

    /// The driver answers, but not about this GPU.
    pub(super) fn silent(&mut self) {
        self.signs.insert(Sign::Silent);
    }

    /// Links are not looked at: the GPU has none now, as in MIG mode.
    pub(super) fn without_links(&mut self) {
        (self.links, self.inactive) = (0, 0);
    }

    /// What a driver's answer reports. States that last are reported again every hour.
    pub(super) fn answer(&mut self, health: &GpuHealth, now: u64) -> Vec<Report> {
        let mut found = Vec::new();
        self.signs.remove(&Sign::Lost);
        self.signs.remove(&Sign::Silent);
        let action = health.recovery_action.map_or(RecoveryAction::None, advice);
        let has_advice = action != RecoveryAction::None;
        let had_advice = self.set(Sign::Advice, has_advice);
        if has_advice {
            found.push(Observation::RecoveryAction(action));
        }
        // Rows cannot be read while MIG instances exist. What was known of them stays.
        if let Some(is_pending) = health.remap_pending {
            self.set(Sign::RemapPending, is_pending);
        }
        if let Some(has_failed) = health.remap_failed {
            self.set(Sign::RemapFailed, has_failed);
        }
        let is_pending = self.signs.contains(&Sign::RemapPending);
        let has_failed = self.signs.contains(&Sign::RemapFailed);
        if !is_pending {
            self.warned.remove(&Sign::RemapPending);
        }
        if has_failed || (is_pending && self.warns(Sign::RemapPending, now)) {
            found.push(Observation::RemappedRows { is_pending, has_failed });
        }
        let errors = self.risen(|seen| &mut seen.uncorrected, health.uncorrected_errors);
        found.extend(errors.map(Observation::UncorrectedErrors));
        let mut reports: Vec<_> = found.into_iter().map(Report::Observation).collect();
        if self.is_good() && (self.set(Sign::Away, false) || had_advice) {
            reports.push(Report::RemediedByOthers);
        }
        reports
    }

    /// What telemetry reports. Errors of links that were there before the first look are not new.
    pub(super) fn telemetry(&mut self, telemetry: &GpuTelemetry, now: u64) -> Vec<Report> {
        let mut found = Vec::new();
        if let Some(margin) = telemetry.margin_celsius
            && margin <= 0
            && self.warns(Sign::Hot, now)
        {
            found.push(Observation::TemperatureMargin(margin));
        }
        let is_slowed = telemetry.slowdown.is_some_and(|slowdown| slowdown.is_by_hardware);
        if !self.set(Sign::SlowedDown, is_slowed) && is_slowed {
            self.slowdowns.retain(|at| now.saturating_sub(*at) < SLOWDOWN_WINDOW);
            self.slowdowns.push(now);
            let slowdowns = u64::try_from(self.slowdowns.len()).unwrap_or(u64::MAX);
            found.push(Observation::Slowdowns(slowdowns));
        }
        if let Some(links) = telemetry.nvlink {
            self.links = self.links.max(links.active);
            let inactive = self.links - links.active;
            if inactive < std::mem::replace(&mut self.inactive, inactive) {
                // Links that are back were trained again, as by a reset.
                self.away();
            }
            let recoveries = self.risen(|seen| &mut seen.recoveries, Some(links.recoveries));
            let recoveries = recoveries.filter(|_| self.warns(Sign::LinkRecoveries, now));
            if inactive > 0 || recoveries.is_some() {
                let recoveries = recoveries.unwrap_or_default();
                found.push(Observation::Nvlink { inactive, recoveries });
            }
        }
        if let (Some(link), Some(false)) = (telemetry.pcie, telemetry.is_idle) {
            let is_slow = link.generation < link.max_generation || link.width < link.max_width;
            if is_slow && self.warns(Sign::SlowLink, now) {
                found.push(Observation::Pcie { is_degraded: true, fatal: 0 });
            }
        }
        // Replays are no warning by themselves. They begin at zero after a reset.
        self.risen(|seen| &mut seen.replays, telemetry.pcie_replays);
        found.into_iter().map(Report::Observation).collect()
    }

    /// How many fatal errors of its PCIe link the kernel has counted. Those from before the first look are not new.
    pub(super) fn pcie_errors(&mut self, count: u64) -> Option<Report> {
        let fatal = self.risen(|seen| &mut seen.fatal_errors, Some(count))?;
        Some(Report::Observation(Observation::Pcie { is_degraded: false, fatal }))
    }

    /// Whether a warning is to be reported: it was not within the hour. A clock that was set back makes it due, too.
    fn warns(&mut self, sign: Sign, now: u64) -> bool {
        let last = self.warned.get(&sign);
        let is_due = last.is_none_or(|last| now < *last || now - last >= HOUR);
        if is_due {
            self.warned.insert(sign, now);
        }
        is_due
    }

    /// Notes whether something is so. Returns whether it was.
    fn set(&mut self, sign: Sign, is_so: bool) -> bool {
        let was_so = self.signs.contains(&sign);
        if is_so {
            self.signs.insert(sign);
        } else {
            self.signs.remove(&sign);
        }
        was_so
    }

    /// By how much a counter rose since the last look; `None` if it did not. One that fell was set to zero by a reset.
    fn risen(
        &mut self,
        counter: fn(&mut Self) -> &mut Option<u64>,
        now: Option<u64>,
    ) -> Option<u64> {
        let now = now?;
        let before = counter(self).replace(now)?;
        if now < before {
            self.away();
        }
        now.checked_sub(before).filter(|risen| *risen > 0)
    }
}

#[cfg(test)]
mod tests;
