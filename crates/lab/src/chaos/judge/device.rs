//! A GPU as its node's agent reports it.

mod remedies;

use std::time::Duration;

use octavo_api::node_health::is_in_service;

use super::DeviceName;
use crate::chaos::plan::GpuFault;
use crate::chaos::violation::Broken;
use remedies::Remedies;

/// Time in which the fault of an island may take a GPU of it out of service.
const ISLAND_LAGS: Duration = Duration::from_mins(1);
/// Remedies after which a GPU may retire: no other is left.
const LADDER: usize = 3;
/// Relapses after which a GPU may retire.
const RELAPSES: u32 = 3;

/// Time in which a report may be of the time before a fault.
const REPORT_LAGS: Duration = Duration::from_secs(10);

/// What an agent reports of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::chaos) struct Reported {
    pub(in crate::chaos) state: String,
    pub(in crate::chaos) reason: Option<String>,
    /// Number of the last attempt.
    pub(in crate::chaos) attempt: i64,
    /// Number of the last order of a person.
    pub(in crate::chaos) order: i64,
    pub(in crate::chaos) waits: Option<String>,
    /// Whether it has clients.
    pub(in crate::chaos) is_occupied: bool,
}

/// What was seen of a GPU.
#[derive(Clone, Debug, Default)]
pub(in crate::chaos) struct Device {
    pub(in crate::chaos) reported: Reported,
    /// When its state was reported first.
    pub(in crate::chaos) since: Duration,
    /// Faults since it was in service.
    pub(in crate::chaos) faults: Vec<Duration>,
    /// When a fault of its island was made last.
    island_fault: Option<Duration>,
    /// Whether its board is to be replaced.
    is_board_bad: bool,
    /// Times that it went out of service after a return.
    relapses: u32,
    has_returned: bool,
    remedies: Remedies,
    /// Since when its slice has a taint of it.
    pub(in crate::chaos) tainted_since: Option<Duration>,
    /// When it went out of service, and what was reported then, with the last attempt that had ended.
    out: Option<(Duration, Reported)>,
}

impl Device {
    /// Whether new pods may use it.
    pub(in crate::chaos) fn is_in_service(&self) -> bool {
        is_in_service(&self.reported.state)
    }

    /// Whether it is out of service for good.
    pub(in crate::chaos) fn is_retired(&self) -> bool {
        self.reported.state == "Retired"
    }

    /// A fault of it is made.
    pub(super) fn injected(&mut self, at: Duration, fault: GpuFault) {
        self.faults.push(at);
        self.is_board_bad |= fault == GpuFault::RemapFailed;
    }

    /// A fault of another GPU of its island is made.
    pub(super) fn island_injected(&mut self, at: Duration) {
        self.island_fault = Some(at);
    }

    /// The first fault for which it may be out of service at a time.
    pub(super) fn cause(&self, at: Duration) -> Option<Duration> {
        let of_island = self.island_fault.filter(|fault| at <= *fault + ISLAND_LAGS);
        self.faults.iter().copied().chain(of_island).min()
    }

    /// Whether a report may be of the time before its last fault.
    pub(super) fn has_new_fault(&self, at: Duration) -> bool {
        let last = self.faults.iter().copied().chain(self.island_fault).max();
        last.is_some_and(|fault| at < fault + REPORT_LAGS)
    }

    /// `nvidia-smi` has begun this many resets of it so far.
    pub(super) fn resets(&mut self, name: &DeviceName, at: Duration, begun: u64) -> Option<Broken> {
        self.remedies.count(begun);
        self.remedies.excess(name, at)
    }

    /// Reports were missed: of attempts since its return not all are known.
    pub(super) fn reports_missed(&mut self) {
        self.remedies.restart();
        if self.reported.state == "Resetting" {
            // Its reset may be still to come.
            self.remedies.attempted(self.reported.attempt);
        }
    }

    /// It is out of service at the end.
    pub(super) fn not_returned(&self, name: &DeviceName) -> Broken {
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "nothing".to_owned());
        Broken::NotReturned {
            device: name.clone(),
            state: self.reported.state.clone(),
            reason: text(&self.reported.reason),
            waits: text(&self.reported.waits),
        }
    }

    /// Takes a report. Returns what does not hold, and for a GPU that is back how long it was out of service.
    pub(super) fn report(
        &mut self,
        name: &DeviceName,
        at: Duration,
        reported: Reported,
        node_has_fault: bool,
    ) -> (Vec<Broken>, Option<Duration>) {
        let mut broken = Vec::new();
        let old = std::mem::replace(&mut self.reported, reported.clone());
        if old.state != reported.state {
            self.since = at;
        }
        if reported.attempt < old.attempt {
            let (from, to) = (old.attempt, reported.attempt);
            broken.push(Broken::AttemptsFell { device: name.clone(), from, to });
        }
        if reported.attempt != old.attempt {
            self.remedies.attempted(reported.attempt);
        }
        if !self.is_in_service() {
            if self.out.is_none() {
                // A remedy may have begun before the first report of it, as for a remap of an idle GPU.
                let runs = matches!(reported.state.as_str(), "Resetting" | "Verifying");
                let attempt = if runs { old.attempt } else { reported.attempt };
                self.out = Some((at, Reported { attempt, ..reported.clone() }));
                self.relapses += u32::from(self.has_returned);
                // It may stay out for longer than its island's fault is a cause.
                self.faults.extend(self.cause(at).filter(|_| self.faults.is_empty()));
            }
            if self.is_retired() && old.state != reported.state && !self.may_retire(&old) {
                let reason = reported.reason.clone().unwrap_or_default();
                broken.push(Broken::RetiredWithoutCause { device: name.clone(), reason });
            }
            // A remedy reaches peers, and when it fails, it has failed for all of them.
            let of_peer = ["PeerRemedy", "RemedyFailed"];
            let is_of_peer = node_has_fault
                && reported.reason.as_deref().is_some_and(|it| of_peer.contains(&it));
            let changes = old.state != reported.state || old.reason != reported.reason;
            if self.faults.is_empty() && !is_of_peer && changes {
                let reason = reported.reason.unwrap_or_else(|| "no reason".to_owned());
                let (device, state) = (name.clone(), reported.state);
                broken.push(Broken::FalseFence { device, state, reason });
            }
            return (broken, None);
        }
        let Some((since, begin)) = self.out.take() else { return (broken, None) };
        let is_of_peer = begin.reason.as_deref() == Some("PeerRemedy");
        if (begin.attempt, begin.order) == (reported.attempt, reported.order) && !is_of_peer {
            let (device, attempt) = (name.clone(), reported.attempt);
            broken.push(Broken::UntestedReturn { device, attempt });
        }
        broken.extend(self.remedies.excess_at_return(name));
        self.remedies.restart();
        self.faults.retain(|fault| *fault + REPORT_LAGS > at);
        (self.is_board_bad, self.has_returned) = (false, true);
        (broken, Some(at.saturating_sub(since)))
    }

    /// Whether a board, a person's word, relapses or remedies are a cause to retire it. `before` was reported before.
    fn may_retire(&self, before: &Reported) -> bool {
        let began = self.out.as_ref().map_or(before.order, |(_, began)| began.order);
        let has_word = self.reported.order > began.min(before.order);
        match self.reported.reason.as_deref() {
            Some("Relapsed") => self.relapses >= RELAPSES,
            Some("Operator") => has_word,
            _ => self.is_board_bad || has_word || self.remedies.attempts() >= LADDER,
        }
    }
}
