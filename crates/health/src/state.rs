//! The states of a device, and what each means for pods.
//!
//! ```text
//!            warning            fault                needs a remedy, idle
//! Healthy ----------> Watch ---------> Suspect ------------+
//!    ^                  |                 | idle           v
//!    |  quiet           v  fault          |            Resetting
//!    +------------------+-------> Fenced -|----------------^  |
//!    |                              ^     v                   | applied
//!    |        24 h                  |   Verifying <-----------+
//!    +---------------- Probation <--|-----+  passed
//!                                   +-----+  failed: the next remedy, after the last one Retired
//! ```
//!
//! The effect of the taint, the action and the reason are views of the state, so a caller that crashed goes on from the stored
//! state alone.

mod step;

use serde::{Deserialize, Serialize};

pub use step::{Event, step};

use crate::reason::Reason;
use crate::remedy::{Ladder, Remedy};
use crate::signal::Attempt;
use crate::{DAY, HOUR};

/// The state of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// In service.
    #[default]
    Healthy,
    /// In service, placed last.
    Watch {
        /// Why.
        reason: Reason,
    },
    /// No new work.
    Suspect {
        /// Why.
        reason: Reason,
        /// What it needs once it is idle.
        needs: Remedy,
    },
    /// Out of service.
    Fenced {
        /// Why.
        reason: Reason,
        /// What it needs once it is idle.
        needs: Remedy,
    },
    /// A remedy is being applied.
    Resetting {
        /// Why.
        reason: Reason,
        /// Which.
        remedy: Remedy,
    },
    /// A test runs.
    Verifying {
        /// Why.
        reason: Reason,
        /// The remedy before it.
        after: Remedy,
    },
    /// In service again, placed last.
    Probation,
    /// Out of service for good.
    Retired {
        /// Why.
        reason: Reason,
    },
}

/// The effect of a device's taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Effect {
    /// Information.
    None,
    /// No new pods.
    NoSchedule,
    /// No pods.
    NoExecute,
}

/// A device's state and what of its past still matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Track {
    /// Its state.
    pub state: State,
    /// Since when, in seconds. In [`State::Watch`] the time of the last warning.
    pub since: u64,
    /// When it last returned to service after a fault of its own.
    pub returned: Option<u64>,
    /// Whether it had a fault of its own since it last was in service.
    pub has_failed: bool,
    /// Faults of its own soon after a return, in a row.
    pub relapses: u32,
    /// An operator fenced it: only an operator returns it.
    pub is_held: bool,
    /// The harshest remedy since it last was in service. A retired device that was released counts as replaced.
    pub tried: Remedy,
    /// Why it retires once the remedy that runs ends.
    pub retires: Option<Reason>,
    /// The attempt that runs, or the last one.
    pub attempt: Attempt,
}

/// Times and numbers of the states, and the ladder of remedies. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Automatic remedies.
    pub ladder: Ladder,
    /// Time without a warning after which a device is no longer watched.
    pub watch: u64,
    /// Time of probation.
    pub probation: u64,
    /// A fault of a device's own within this time after a return is a relapse.
    pub relapse: u64,
    /// The relapse that retires a device.
    pub last_relapse: u32,
    /// Time in which application XIDs of several jobs make a device suspect.
    pub repeat: u64,
    /// Time after which a remedy counts as failed. A test may take this much longer than its length.
    pub limit: u64,
    /// Time after which clients that do not leave hold up neither evictions elsewhere nor a remedy from outside the node.
    pub stuck: u64,
    /// Length of a test after a reset or without a remedy.
    pub short_test: u64,
    /// Length of a test after a remedy of the whole node.
    pub node_test: u64,
    /// Length of a test of a replaced device.
    pub burn_in: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            ladder: Ladder::default(),
            watch: DAY,
            probation: DAY,
            relapse: 7 * DAY,
            last_relapse: 3,
            repeat: DAY,
            limit: HOUR / 2,
            stuck: HOUR / 6,
            short_test: 60,
            node_test: 120,
            burn_in: 2 * HOUR,
        }
    }
}

impl State {
    /// Why the device is in its state; `None` if it is healthy or on probation.
    pub fn reason(self) -> Option<Reason> {
        match self {
            Self::Healthy | Self::Probation => None,
            Self::Watch { reason }
            | Self::Suspect { reason, .. }
            | Self::Fenced { reason, .. }
            | Self::Resetting { reason, .. }
            | Self::Verifying { reason, .. }
            | Self::Retired { reason } => Some(reason),
        }
    }

    /// Name in conditions and labels of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Watch { .. } => "Watch",
            Self::Suspect { .. } => "Suspect",
            Self::Fenced { .. } => "Fenced",
            Self::Resetting { .. } => "Resetting",
            Self::Verifying { .. } => "Verifying",
            Self::Probation => "Probation",
            Self::Retired { .. } => "Retired",
        }
    }

    /// Whether new pods may use the device.
    pub fn is_in_service(self) -> bool {
        matches!(self, Self::Healthy | Self::Watch { .. } | Self::Probation)
    }

    /// Whether running pods may use the device.
    pub fn may_run(self) -> bool {
        self.is_in_service() || matches!(self, Self::Suspect { .. })
    }

    /// What an idle device needs; `None` if it waits for nothing.
    pub fn needs(self) -> Option<Remedy> {
        match self {
            Self::Suspect { needs, .. } | Self::Fenced { needs, .. } => Some(needs),
            _ => None,
        }
    }

    /// The effect of the device's taint; `None` if it has none. Whether pods are evicted is the caller's to decide.
    pub fn effect(self, evicts: bool) -> Option<Effect> {
        match self {
            Self::Healthy => None,
            Self::Watch { .. } | Self::Probation => Some(Effect::None),
            Self::Suspect { .. } => Some(Effect::NoSchedule),
            _ if evicts => Some(Effect::NoExecute),
            _ => Some(Effect::NoSchedule),
        }
    }
}

impl Track {
    /// Length of the device's test, in seconds, by the harshest remedy before it. Each relapse doubles it.
    pub fn test_length(&self, rules: &Rules) -> u64 {
        let length = match self.tried {
            Remedy::Test | Remedy::ResetFunction | Remedy::ResetBus => rules.short_test,
            Remedy::ReloadDriver | Remedy::Reboot | Remedy::PowerCycle => rules.node_test,
            Remedy::Replace => rules.burn_in,
        };
        length.saturating_mul(1 << self.relapses.min(16))
    }
}

#[cfg(test)]
mod tests;
