//! Health of one GPU, derived from the driver's events and answers. No I/O.
//!
//! A GPU is unhealthy if the driver lost it or is gone itself, if the driver advises an action, or after an XID that
//! requires one. It recovers when the driver reports no problem. Drivers too old to advise leave an XID standing until
//! the GPU disappeared and returned, or the agent restarts.

use std::collections::BTreeMap;

use octavo_gpu::xid::{self, XidClass};
use octavo_gpu::{DriverError, GpuHealth, RecoveryAction};

/// Time without problems after which an XID is dropped, in seconds. Applies to XIDs that require an action which the
/// driver, although it gives advice, never advised.
const XID_FORGET_SECONDS: i64 = 300;

/// Problems of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuState {
    /// The driver as a whole does not answer: it is unloaded, or being upgraded.
    pub is_driver_gone: bool,
    /// The driver was released at an administrator's request.
    pub is_driver_released: bool,
    /// The driver cannot reach the GPU.
    pub is_lost: bool,
    /// The last XID that called for an action.
    pub xid: Option<u64>,
    /// Action advised by the driver: `gpu-reset`, `node-reboot` and so on.
    pub advice: Option<&'static str>,
    /// When that was found, in seconds of Unix time.
    pub since: i64,
}

/// Unhealthy GPUs of a node, by UUID.
pub type Health = BTreeMap<String, GpuState>;

/// The driver's answer about a GPU's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HealthReading {
    /// The GPU does not answer.
    Lost,
    /// Something is to be done.
    Advises(&'static str),
    /// Nothing is to be done.
    Well,
    /// The GPU responds, but the driver is too old to advise.
    Silent,
    /// The question failed.
    Failed,
}

/// Health tracking of one GPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct GpuHealthTracker {
    state: Option<GpuState>,
    /// Time of the last observed problem, in seconds of Unix time.
    last_trouble: i64,
}

impl GpuState {
    /// The state in a sentence for people.
    pub fn message(&self) -> String {
        let mut parts = Vec::new();
        if self.is_driver_released {
            parts.push("the driver is released".to_owned());
        } else if self.is_driver_gone {
            parts.push("the driver does not answer".to_owned());
        }
        if self.is_lost {
            parts.push("the driver lost the GPU".to_owned());
        }
        if let Some(xid) = self.xid {
            let description =
                xid::lookup(xid).map_or("not in the catalogue", |xid| xid.description);
            parts.push(format!("XID {xid} ({description})"));
        }
        if let Some(advice) = self.advice {
            parts.push(format!("the driver advises {advice}"));
        }
        parts.join("; ")
    }
}

impl GpuHealthTracker {
    /// The GPU's problems; `None` if it is healthy.
    pub(crate) fn state(&self) -> Option<&GpuState> {
        self.state.as_ref()
    }

    /// Handles an XID and the driver's answer right after it. Returns the action that the XID requires.
    pub(crate) fn on_xid(
        &mut self,
        number: u64,
        answer: HealthReading,
        advice: Option<RecoveryAction>,
        now: i64,
    ) -> XidClass {
        let class = xid::classify(number, advice);
        if !class.leaves_gpu_usable() || answer == HealthReading::Lost {
            self.worsen(now).xid = Some(number);
        }
        self.on_answer(answer, now);
        class
    }

    /// Handles that the driver as a whole does not answer any more.
    pub(crate) fn on_driver_gone(&mut self, now: i64) {
        let state = self.worsen(now);
        (state.is_driver_gone, state.is_driver_released) = (true, false);
    }

    /// Handles that the driver is no longer used, at an administrator's request.
    pub(crate) fn on_driver_released(&mut self, now: i64) {
        self.worsen(now).is_driver_released = true;
    }

    /// Handles that the driver is open again. What was known of the GPU before may be over, too: the driver may be
    /// another, and the GPU reset.
    pub(crate) fn on_driver_back(&mut self) {
        if self.state.as_ref().is_some_and(|state| state.is_driver_gone || state.is_driver_released)
        {
            *self = Self::default();
        }
    }

    /// Handles the driver's current answer.
    pub(crate) fn on_answer(&mut self, answer: HealthReading, now: i64) {
        match answer {
            HealthReading::Lost => self.worsen(now).is_lost = true,
            HealthReading::Advises(advice) => self.worsen(now).advice = Some(advice),
            HealthReading::Failed => {}
            HealthReading::Well | HealthReading::Silent => {
                let Some(state) = &self.state else { return };
                // An observed problem is over.
                let is_over = state.is_lost || state.advice.is_some();
                let is_quiet =
                    answer == HealthReading::Well && now - self.last_trouble >= XID_FORGET_SECONDS;
                if is_over || is_quiet {
                    *self = Self::default();
                }
            }
        }
    }

    fn worsen(&mut self, now: i64) -> &mut GpuState {
        self.last_trouble = now;
        self.state.get_or_insert(GpuState { since: now, ..GpuState::default() })
    }
}

impl HealthReading {
    /// Converts the driver's answer.
    pub(crate) fn of(health: &Result<GpuHealth, DriverError>) -> Self {
        match health {
            Err(DriverError::GpuLost { .. } | DriverError::NotFound { .. }) => Self::Lost,
            Err(_) => Self::Failed,
            Ok(health) => match (health.recovery_action, health.remap_failed) {
                (Some(action), _) if action != RecoveryAction::None => {
                    Self::Advises(action_name(action))
                }
                (_, Some(true)) => Self::Advises("replace-board"),
                (Some(_), _) => Self::Well,
                (None, _) => Self::Silent,
            },
        }
    }
}

fn action_name(action: RecoveryAction) -> &'static str {
    match action {
        RecoveryAction::None => "nothing",
        RecoveryAction::GpuReset => "gpu-reset",
        RecoveryAction::NodeReboot => "node-reboot",
        RecoveryAction::DrainP2p => "drain-p2p",
        RecoveryAction::DrainAndReset => "drain-and-reset",
        RecoveryAction::RecoverImexDomain => "recover-imex-domain",
        RecoveryAction::Other(_) => "unknown",
    }
}

#[cfg(test)]
mod tests;
