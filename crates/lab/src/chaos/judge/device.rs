//! A GPU as its node's agent reports it.

use std::time::Duration;

use octavo_api::node_health::is_in_service;

use super::DeviceName;
use crate::chaos::violation::Broken;

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
    /// Since when its slice has a taint of it.
    pub(in crate::chaos) tainted_since: Option<Duration>,
    /// When it went out of service, and what was reported then.
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
        if !self.is_in_service() {
            if self.out.is_none() {
                self.out = Some((at, reported.clone()));
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
        self.faults.retain(|fault| *fault + REPORT_LAGS > at);
        (broken, Some(at.saturating_sub(since)))
    }
}
