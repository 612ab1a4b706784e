//! What is observed, about which part, and what became of remedies.

use serde::{Deserialize, Serialize};

use crate::unit::{DeviceId, Unit};

/// A job: pods that fail together. Callers number jobs as they like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u64);

/// How severe an error of a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LinkSeverity {
    /// The link goes on.
    NonFatal,
    /// The link is lost.
    Fatal,
    /// The source does not say: an event of NVML has the number alone.
    Unknown,
}

/// What the driver advises for a device (`nvmlDeviceGpuRecoveryAction_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecoveryAction {
    /// Nothing.
    None,
    /// A reset.
    GpuReset,
    /// A reboot of the node.
    NodeReboot,
    /// An end of peer-to-peer traffic, since a peer will be reset.
    DrainP2p,
    /// An end of work, then a reset.
    DrainAndReset,
    /// A recovery of the IMEX domain.
    RecoverImexDomain,
    /// A value that this version does not know.
    Other(u32),
}

impl RecoveryAction {
    /// Name in values of taints: `gpu-reset`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::GpuReset => "gpu-reset",
            Self::NodeReboot => "node-reboot",
            Self::DrainP2p => "drain-p2p",
            Self::DrainAndReset => "drain-and-reset",
            Self::RecoverImexDomain => "recover-imex-domain",
            Self::Other(_) => "unknown",
        }
    }
}

/// State of a network card's port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NicPort {
    /// Whether the port is down.
    pub is_down: bool,
    /// Symbol errors in the last hour.
    pub symbol_errors: u64,
    /// Recoveries of the link in the last minute.
    pub recoveries: u64,
    /// Times that the port went down in the last 12 hours.
    pub flaps: u64,
}

/// What was observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Observation {
    /// The driver reported an XID.
    Xid {
        /// Its number.
        number: u32,
        /// The job that used the device; `None` if that is not known.
        job: Option<JobId>,
        /// Severity, for errors of links.
        link: LinkSeverity,
    },
    /// What the driver advises now.
    RecoveryAction(RecoveryAction),
    /// Remapped rows of memory. They cannot be read while MIG instances exist.
    RemappedRows {
        /// A remap takes effect at the next reset.
        is_pending: bool,
        /// A remap failed.
        has_failed: bool,
    },
    /// Uncorrected memory errors since the last observation.
    UncorrectedErrors(u64),
    /// Degrees Celsius between a device's temperature and the one at which it slows down.
    TemperatureMargin(i32),
    /// Slowdowns by the hardware in the last 10 minutes.
    Slowdowns(u64),
    /// Links of NVLink.
    Nvlink {
        /// Links that are not active and should be.
        inactive: u32,
        /// Recoveries and replays since the last observation.
        recoveries: u64,
    },
    /// Whether the NVLink fabric serves the device. Fabric Manager that is dead, or an unhealthy fabric, does not.
    Fabric {
        /// Whether it does.
        is_healthy: bool,
    },
    /// The device's link to the host.
    Pcie {
        /// Under load the link is slower or narrower than the device allows.
        is_degraded: bool,
        /// Fatal errors since the last observation (`aer_dev_fatal`).
        fatal: u64,
    },
    /// A port of a network card.
    Nic(NicPort),
    /// The driver cannot reach the device.
    Lost,
    /// Whether the node is ready.
    NodeReady(bool),
    /// A job failed, and one of several devices may have caused it.
    JobFailed {
        /// Devices of the job that may have. The signal's own unit does not matter.
        suspects: Vec<DeviceId>,
    },
}

/// An operator's word about a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Word {
    /// Fence it, and leave it alone until it is released.
    Fence,
    /// Return it without a test. A retired device is tested first. A remedy that runs is ended first.
    Release,
    /// Take it out of service for good.
    Retire,
}

/// One go at a device: a remedy and the test after it, or a test alone. A domain numbers them.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Attempt(pub u64);

/// What became of a remedy or test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// The remedy was applied.
    Remedied,
    /// The remedy was refused or failed.
    Refused,
    /// The test passed: the driver advises nothing, rows and links are clear, the load ran without errors.
    Passed,
    /// The test failed.
    Failed,
    /// The test could not be tried, so nothing is known. It is tried again.
    NotTried,
}

/// What a report is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Report {
    /// Something was observed.
    Observation(Observation),
    /// A remedy or test ended.
    Outcome {
        /// Which, as decided. The outcome of another attempt than the one that runs changes nothing.
        attempt: Attempt,
        /// How.
        outcome: Outcome,
    },
    /// A remedy that no attempt began shows in what is observed: a person reset the device, or its node started again. What the
    /// device needed is done, and its test is next.
    RemediedByOthers,
    /// An operator decided.
    Word(Word),
}

/// A report about a part at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Signal {
    /// When, in seconds.
    pub at: u64,
    /// The part.
    pub unit: Unit,
    /// What.
    pub report: Report,
}
