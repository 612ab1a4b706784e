//! How a program ended that did not fail.

use std::process::ExitCode;

use octavo_install::InstallStatus;
use octavo_sim::run::SimStatus;
use octavo_validate::ValidateStatus;
use octavo_view::{DoctorStatus, ExplainStatus, HealthStatus};

/// The end of a program that did not fail, as its exit code tells it to scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// All is well: 0.
    Success,
    /// A check found a fault: 1.
    CheckFailed,
    /// What was asked about waits, does not fit, or needs something else first: 3.
    NotSatisfied,
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(match status {
            ExitStatus::Success => 0,
            ExitStatus::CheckFailed => 1,
            ExitStatus::NotSatisfied => 3,
        })
    }
}

impl From<ExplainStatus> for ExitStatus {
    fn from(status: ExplainStatus) -> Self {
        match status {
            ExplainStatus::Settled => Self::Success,
            ExplainStatus::Waiting => Self::NotSatisfied,
        }
    }
}

impl From<DoctorStatus> for ExitStatus {
    fn from(status: DoctorStatus) -> Self {
        match status {
            DoctorStatus::Well => Self::Success,
            DoctorStatus::Sick => Self::CheckFailed,
        }
    }
}

impl From<HealthStatus> for ExitStatus {
    fn from(status: HealthStatus) -> Self {
        match status {
            HealthStatus::Done => Self::Success,
            HealthStatus::Waits => Self::NotSatisfied,
            HealthStatus::Invalid => Self::CheckFailed,
        }
    }
}

impl From<InstallStatus> for ExitStatus {
    fn from(status: InstallStatus) -> Self {
        match status {
            InstallStatus::Done => Self::Success,
            InstallStatus::Waits => Self::NotSatisfied,
        }
    }
}

impl From<ValidateStatus> for ExitStatus {
    fn from(status: ValidateStatus) -> Self {
        match status {
            ValidateStatus::Ready => Self::Success,
            ValidateStatus::Failed => Self::CheckFailed,
            ValidateStatus::NotTried => Self::NotSatisfied,
        }
    }
}

impl From<SimStatus> for ExitStatus {
    fn from(status: SimStatus) -> Self {
        match status {
            SimStatus::Done => Self::Success,
            SimStatus::DoesNotFit => Self::NotSatisfied,
        }
    }
}
