//! What an observation calls for. The table is that of docs/design/health.md.

use std::collections::BTreeMap;

use crate::reason::Reason;
use crate::remedy::Remedy;
use crate::signal::{LinkSeverity, NicPort, Observation, RecoveryAction};
use crate::xid::{self, XidClass};

/// Slowdowns by the hardware in 10 minutes from which on a device is watched.
const MANY_SLOWDOWNS: u64 = 6;

/// Symbol errors of a network port in an hour beyond which a device is suspect, as in NVSentinel.
pub const MANY_SYMBOL_ERRORS: u64 = 120;

/// Recoveries of a network port in a minute beyond which a device is watched.
const MANY_RECOVERIES: u64 = 5;

/// Times that a network port goes down in 12 hours from which on a device is suspect.
pub const MANY_FLAPS: u64 = 3;

/// How far a fence reaches beyond the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The device alone.
    Device,
    /// All devices of its island are fenced.
    Island,
    /// The other devices of its node take no new work, since the remedy needs them idle.
    Node,
}

/// What an observation calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Nothing,
    /// It is the job's fault, unless several jobs have it on this device alone.
    Application {
        /// The XID.
        number: u32,
    },
    /// The device is placed last.
    Watch {
        /// Why.
        reason: Reason,
        /// Whether a failure of the device is behind it.
        is_failure: bool,
    },
    /// The device takes no new work, and is tested once idle.
    Suspect {
        /// Why.
        reason: Reason,
        /// What it needs.
        needs: Remedy,
    },
    /// The device takes no work.
    Fence {
        /// Why.
        reason: Reason,
        /// What it needs.
        needs: Remedy,
        /// How far the fence reaches.
        reach: Reach,
    },
}

/// What an observation calls for. `overrides` has classes of XIDs that go before those of the catalogue.
pub fn of(observation: &Observation, overrides: &BTreeMap<u32, XidClass>) -> Verdict {
    match *observation {
        Observation::Xid { number, link, .. } => {
            of_xid(number, xid::class_by(number, overrides), link)
        }
        Observation::RecoveryAction(action) => of_action(action),
        Observation::RemappedRows { has_failed: true, .. } => {
            fence(Reason::RemapFailed, Remedy::Replace, Reach::Device)
        }
        Observation::RemappedRows { is_pending: true, .. } => watch(Reason::RemapPending),
        Observation::UncorrectedErrors(1..) => {
            suspect(Reason::UncorrectedErrors, Remedy::ResetFunction)
        }
        Observation::TemperatureMargin(..=0) => watch(Reason::Hot),
        Observation::Slowdowns(MANY_SLOWDOWNS..) => watch(Reason::Slowdowns),
        Observation::Nvlink { inactive: 1.., .. } => {
            suspect(Reason::LinkDown, Remedy::ResetFunction)
        }
        Observation::Nvlink { recoveries: 1.., .. } => watch(Reason::LinkErrors),
        Observation::Fabric { is_healthy: false } => {
            fence(Reason::FabricUnhealthy, Remedy::ResetFunction, Reach::Island)
        }
        Observation::Pcie { fatal: 1.., .. } => suspect(Reason::PcieErrors, Remedy::ResetFunction),
        Observation::Pcie { is_degraded: true, .. } => watch(Reason::PcieDegraded),
        Observation::Nic(port) => of_port(port),
        Observation::Lost => fence(Reason::Lost, Remedy::Reboot, Reach::Node),
        Observation::NodeReady(false) => suspect(Reason::NodeNotReady, Remedy::Test),
        Observation::RemappedRows { .. }
        | Observation::UncorrectedErrors(0)
        | Observation::TemperatureMargin(_)
        | Observation::Slowdowns(_)
        | Observation::Nvlink { .. }
        | Observation::Fabric { .. }
        | Observation::Pcie { .. }
        | Observation::NodeReady(true)
        | Observation::JobFailed { .. } => Verdict::Nothing,
    }
}

fn of_xid(number: u32, class: XidClass, link: LinkSeverity) -> Verdict {
    let reason = Reason::Xid(number);
    match class {
        XidClass::Notice => Verdict::Nothing,
        XidClass::Application => Verdict::Application { number },
        XidClass::Contained => Verdict::Watch { reason, is_failure: true },
        XidClass::Warning => watch(reason),
        XidClass::Link => match link {
            LinkSeverity::NonFatal => watch(reason),
            LinkSeverity::Fatal => fence(reason, Remedy::ResetFunction, Reach::Island),
            LinkSeverity::Unknown => suspect(reason, Remedy::ResetFunction),
        },
        XidClass::Suspect | XidClass::Unknown => suspect(reason, Remedy::Test),
        XidClass::Reset => fence(reason, Remedy::ResetFunction, Reach::Device),
        XidClass::Reboot => fence(reason, Remedy::Reboot, Reach::Node),
        XidClass::Replace => fence(reason, Remedy::Replace, Reach::Device),
    }
}

fn of_action(action: RecoveryAction) -> Verdict {
    let reason = Reason::RecoveryAction(action);
    match action {
        RecoveryAction::None => Verdict::Nothing,
        RecoveryAction::GpuReset => fence(reason, Remedy::ResetFunction, Reach::Device),
        RecoveryAction::NodeReboot => fence(reason, Remedy::Reboot, Reach::Node),
        RecoveryAction::DrainAndReset => suspect(reason, Remedy::ResetFunction),
        RecoveryAction::DrainP2p | RecoveryAction::Other(_) => suspect(reason, Remedy::Test),
        // The domain's daemons recover it; the device works.
        RecoveryAction::RecoverImexDomain => watch(reason),
    }
}

fn of_port(port: NicPort) -> Verdict {
    if port.is_down || port.symbol_errors > MANY_SYMBOL_ERRORS || port.flaps >= MANY_FLAPS {
        suspect(Reason::Nic, Remedy::Test)
    } else if port.recoveries > MANY_RECOVERIES {
        watch(Reason::Nic)
    } else {
        Verdict::Nothing
    }
}

fn watch(reason: Reason) -> Verdict {
    Verdict::Watch { reason, is_failure: false }
}

fn suspect(reason: Reason, needs: Remedy) -> Verdict {
    Verdict::Suspect { reason, needs }
}

fn fence(reason: Reason, needs: Remedy, reach: Reach) -> Verdict {
    Verdict::Fence { reason, needs, reach }
}

#[cfg(test)]
mod tests;
