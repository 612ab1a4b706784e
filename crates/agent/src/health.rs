//! Health of a node's GPUs: what driver and kernel say, judged by the rules of `octavo_health`. No I/O but the record's file.
//!
//! ```text
//! answers, telemetry, XIDs, lines of the kernel's log --Seen--> signals --Domain--> states --> Health: taints, events, pod status
//!                                     what changed                        |
//!                                                                         v
//!                                                      record: a file that outlives agent and boot
//! ```
//!
//! A fence ends with a test, not with time: what the driver says of the GPU (`Seen::is_good`), then `octavo probe verify`.

mod advice;
mod log_note;
mod nics;
mod node;
mod orders;
mod period;
mod place;
mod record;
mod report;
mod seen;

use std::collections::BTreeMap;

use octavo_gpu::xid;
use octavo_health::decide::{Fence, Wait};
use octavo_health::reason::Reason;
use octavo_health::state::{Effect, State};

pub(crate) use log_note::LogNote;
pub(crate) use nics::CardLook;
pub(crate) use node::{Ended, NodeHealth, RemedyOutcome, TestOutcome, TestResult, TestRun};
#[cfg(test)]
pub(crate) use orders::Permit;
pub(crate) use orders::{Chosen, Orders, Policies};
pub(crate) use period::{Period, Periods};
pub(crate) use record::RecordFile;

/// What keeps a GPU from being well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuState {
    /// The driver as a whole does not answer: it is unloaded, or being upgraded.
    pub is_driver_gone: bool,
    /// The driver was released at an administrator's request.
    pub is_driver_released: bool,
    /// Its state, unless that is Healthy.
    pub fence: Option<Fence>,
    /// Why it waits for a remedy or a test, if it does.
    pub wait: Option<Wait>,
    /// What its test found, or why it could not be tried.
    pub test: Option<String>,
    /// Since when, in seconds of Unix time.
    pub since: i64,
}

/// GPUs of a node that are not well, by UUID.
pub type Health = BTreeMap<String, GpuState>;

/// Whether a GPU may have new pods.
pub fn takes_pods(health: &Health, uuid: &str) -> bool {
    health.get(uuid).is_none_or(GpuState::takes_pods)
}

impl GpuState {
    /// Whether the GPU may have new pods.
    pub fn takes_pods(&self) -> bool {
        let is_fenced = self.fence.is_some_and(|fence| fence.effect != Effect::None);
        !is_fenced && !self.is_driver_gone && !self.is_driver_released
    }

    /// The state without what changes while it lasts.
    pub(crate) fn without_times(&self) -> Self {
        Self { since: 0, wait: None, test: None, ..self.clone() }
    }

    /// Why the GPU is not well, and whether it takes pods: what remedy and test do not change.
    pub(crate) fn cause(&self) -> (bool, bool, bool, bool, Option<Reason>) {
        let reason = self.fence.and_then(|fence| fence.reason);
        let is_retired = self.fence.is_some_and(|it| matches!(it.state, State::Retired { .. }));
        let (is_gone, is_released) = (self.is_driver_gone, self.is_driver_released);
        (self.takes_pods(), is_gone, is_released, is_retired, reason)
    }

    /// The state in a sentence for people.
    pub fn message(&self) -> String {
        let mut parts = Vec::new();
        if self.is_driver_released {
            parts.push("the driver is released".to_owned());
        } else if self.is_driver_gone {
            parts.push("the driver does not answer".to_owned());
        }
        if let Some(fence) = &self.fence {
            parts.push(fence.reason.map_or_else(|| "it is on probation".to_owned(), reason));
            parts.extend(self.test.clone());
            if let Some(needs) = fence.state.needs() {
                parts.push(format!("it needs the remedy {}", needs.name()));
            }
            parts.extend(self.wait.and_then(waits_for).map(str::to_owned));
        }
        parts.join("; ")
    }
}

/// A reason, with NVIDIA's description of an XID.
fn reason(reason: Reason) -> String {
    match reason {
        Reason::Xid(number) => {
            let known = xid::lookup(number.into());
            let description = known.map_or("not in the catalogue", |xid| xid.description);
            format!("XID {number} ({description})")
        }
        reason => reason.to_string(),
    }
}

/// Why something does not begin, unless the detail of the test says it.
fn waits_for(wait: Wait) -> Option<&'static str> {
    let why = match wait {
        Wait::TestNotPossible => return None,
        Wait::Observe => "the policy only observes",
        Wait::Person => "the policy leaves remedies to a person",
        Wait::Permit => "it waits for the controller's permit",
        Wait::Operator => "an operator holds it",
        Wait::Storm => "remedies are stopped, since many nodes failed at once",
        Wait::HarsherRemedy => "it waits for a harsher remedy of another GPU",
        Wait::NodeNotReady => "its node is not ready",
        Wait::Island => "it waits for a remedy or test of a GPU on the same NVLink",
        Wait::Budget => "as many remedies run as the policy allows",
        Wait::Clients => "it waits until no process uses it",
    };
    Some(why)
}

#[cfg(test)]
mod tests;
