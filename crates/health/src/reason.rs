//! Why a device is in its state. Text, reason of a condition and label of a metric are views of this value.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::remedy::Remedy;
use crate::signal::RecoveryAction;

/// Why a device is in its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reason {
    /// An XID.
    Xid(u32),
    /// XIDs of applications of several jobs, all on this device.
    RepeatedXid(u32),
    /// The driver's advice.
    RecoveryAction(RecoveryAction),
    /// A row remap that waits for a reset.
    RemapPending,
    /// A row remap that failed.
    RemapFailed,
    /// Memory errors that were not corrected.
    UncorrectedErrors,
    /// No margin of temperature.
    Hot,
    /// Slowdowns by the hardware.
    Slowdowns,
    /// Links of NVLink that are not active.
    LinkDown,
    /// Links of NVLink that recover often.
    LinkErrors,
    /// An NVLink fabric that does not serve the device.
    FabricUnhealthy,
    /// A slow link to the host.
    PcieDegraded,
    /// Fatal errors of the link to the host.
    PcieErrors,
    /// A network card whose port is down or has errors.
    Nic,
    /// A device that the driver cannot reach.
    Lost,
    /// A node that is not ready.
    NodeNotReady,
    /// A history that makes a failure likely.
    HighRisk,
    /// A remedy of another device that needs this one idle.
    PeerRemedy,
    /// A remedy that failed, or did not end in time.
    RemedyFailed(Remedy),
    /// A test that failed, or did not end in time.
    TestFailed,
    /// Too many fences soon after a return.
    Relapsed,
    /// An operator's word.
    Operator,
}

impl Reason {
    /// Whether it says nothing of the device itself: another device needs it idle, or a network card that serves it is at fault.
    pub fn is_of_others(self) -> bool {
        matches!(self, Self::PeerRemedy | Self::Nic)
    }

    /// The reason of a condition, and the label of a metric.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xid(_) => "Xid",
            Self::RepeatedXid(_) => "RepeatedXid",
            Self::RecoveryAction(_) => "RecoveryAction",
            Self::RemapPending => "RowRemapPending",
            Self::RemapFailed => "RowRemapFailed",
            Self::UncorrectedErrors => "UncorrectedMemoryErrors",
            Self::Hot => "NoTemperatureMargin",
            Self::Slowdowns => "HardwareSlowdowns",
            Self::LinkDown => "NVLinkDown",
            Self::LinkErrors => "NVLinkErrors",
            Self::FabricUnhealthy => "FabricUnhealthy",
            Self::PcieDegraded => "PCIeDegraded",
            Self::PcieErrors => "PCIeErrors",
            Self::Nic => "NetworkCard",
            Self::Lost => "GpuLost",
            Self::NodeNotReady => "NodeNotReady",
            Self::HighRisk => "HighRisk",
            Self::PeerRemedy => "PeerRemedy",
            Self::RemedyFailed(_) => "RemedyFailed",
            Self::TestFailed => "TestFailed",
            Self::Relapsed => "Relapsed",
            Self::Operator => "Operator",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xid(number) => write!(f, "the driver reported XID {number}"),
            Self::RepeatedXid(number) => {
                write!(
                    f,
                    "several jobs had application errors on this GPU alone, the last XID {number}"
                )
            }
            Self::RecoveryAction(RecoveryAction::Other(_)) => {
                f.write_str("the driver advises an unknown action")
            }
            Self::RecoveryAction(action) => write!(f, "the driver advises {}", action.name()),
            Self::RemapPending => f.write_str("a row remap waits for a reset"),
            Self::RemapFailed => f.write_str("a row remap failed; replace the board"),
            Self::UncorrectedErrors => f.write_str("memory errors were not corrected"),
            Self::Hot => f.write_str("the temperature is where the GPU slows down"),
            Self::Slowdowns => f.write_str("the hardware slows the GPU down often"),
            Self::LinkDown => f.write_str("links of NVLink are not active"),
            Self::LinkErrors => f.write_str("links of NVLink recover often"),
            Self::FabricUnhealthy => f.write_str("the NVLink fabric does not serve the GPU"),
            Self::PcieDegraded => f.write_str("the PCIe link is slower than the GPU allows"),
            Self::PcieErrors => f.write_str("the PCIe link had fatal errors"),
            Self::Nic => f.write_str("a network card of the GPU has errors, or its port is down"),
            Self::Lost => f.write_str("the driver cannot reach the GPU"),
            Self::NodeNotReady => f.write_str("the node is not ready"),
            Self::HighRisk => f.write_str("the GPU's history makes a failure likely"),
            Self::PeerRemedy => f.write_str("a remedy of another GPU needs this one idle"),
            Self::RemedyFailed(remedy) => {
                write!(f, "the remedy {} failed or did not end in time", remedy.name())
            }
            Self::TestFailed => f.write_str("the test failed or did not end in time"),
            Self::Relapsed => f.write_str("the GPU failed again and again soon after its return"),
            Self::Operator => f.write_str("an operator decided so"),
        }
    }
}
