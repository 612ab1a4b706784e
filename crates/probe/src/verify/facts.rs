//! What the driver says of a GPU, by NVML.

use std::path::Path;

use octavo_gpu::nvml::Nvml;
use octavo_gpu::{Driver, DriverError, GpuHealth, GpuTelemetry, RecoveryAction};

use super::report::{Check, CheckName};

/// Which links of NVLink are to be active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// All.
    All,
    /// All, or none: a virtual machine with one GPU of a board has such.
    AllOrNone,
    /// Another program judges them, which has seen the GPU before.
    Unasked,
}

/// Asks the driver by its management library.
pub(super) fn check(library: &Path, uuid: &str, links: Links) -> Check {
    let unknown = |error: DriverError| {
        let remedy = "the container needs NVML (the capability `utility`), and the GPU as a whole";
        Check::not_tried(CheckName::Facts, format!("{error}: {remedy}"))
    };
    let nvml = match Nvml::open(library, Path::new("/sys")) {
        Ok(nvml) => nvml,
        Err(error) => return unknown(error),
    };
    match nvml.health(uuid).and_then(|health| Ok((health, nvml.telemetry(uuid)?))) {
        Ok((health, telemetry)) => judge(&health, &telemetry, links),
        Err(error @ (DriverError::Missing { .. } | DriverError::NotFound { .. })) => unknown(error),
        Err(error) => Check::failed(CheckName::Facts, error.to_string(), None),
    }
}

/// What GPU or driver do not report is no fault.
fn judge(health: &GpuHealth, telemetry: &GpuTelemetry, wanted: Links) -> Check {
    let mut faults = Vec::new();
    if let Some(action) = health.recovery_action.filter(|action| *action != RecoveryAction::None) {
        faults.push(format!("the driver advises {}", advice(action)));
    }
    if health.remap_failed == Some(true) {
        faults.push("a row remap has failed, so the board must be replaced".to_owned());
    }
    if health.remap_pending == Some(true) {
        faults.push("a row remap waits for a reset".to_owned());
    }
    let links = telemetry.nvlink.filter(|links| match wanted {
        Links::All => true,
        Links::AllOrNone => links.active > 0,
        Links::Unasked => false,
    });
    if let Some(links) = links.filter(|links| links.active < links.links) {
        let inactive = links.links - links.active;
        faults.push(format!("of {} NVLink links {inactive} are not active", links.links));
    }
    if faults.is_empty() {
        Check::passed(CheckName::Facts, None)
    } else {
        Check::failed(CheckName::Facts, faults.join("; "), None)
    }
}

fn advice(action: RecoveryAction) -> String {
    match action {
        RecoveryAction::None => "nothing".to_owned(),
        RecoveryAction::GpuReset => "a reset of the GPU".to_owned(),
        RecoveryAction::NodeReboot => "a reboot of the node".to_owned(),
        RecoveryAction::DrainP2p => "to drain traffic between GPUs".to_owned(),
        RecoveryAction::DrainAndReset => "to drain the GPU and reset it".to_owned(),
        RecoveryAction::RecoverImexDomain => "to recover its IMEX domain".to_owned(),
        RecoveryAction::Other(number) => format!("recovery action {number}"),
    }
}

#[cfg(test)]
mod tests {
    use octavo_gpu::NvLinkTelemetry;

    use super::super::report::Verdict;
    use super::*;

    fn well() -> GpuHealth {
        GpuHealth {
            recovery_action: Some(RecoveryAction::None),
            uncorrected_errors: Some(3),
            corrected_errors: None,
            remap_failed: Some(false),
            remap_pending: None,
        }
    }

    #[test]
    fn a_gpu_without_advice_passes_and_what_is_not_reported_is_no_fault() {
        let telemetry = GpuTelemetry::default();
        assert_eq!(judge(&well(), &telemetry, Links::AllOrNone).verdict, Verdict::Passed);
        let silent = GpuHealth { recovery_action: None, remap_failed: None, ..well() };
        assert_eq!(judge(&silent, &telemetry, Links::AllOrNone).verdict, Verdict::Passed);
    }

    #[test]
    fn links_without_any_other_gpu_need_not_be_active() {
        let links = NvLinkTelemetry { active: 0, links: 18, ..NvLinkTelemetry::default() };
        let telemetry = GpuTelemetry { nvlink: Some(links), ..GpuTelemetry::default() };
        assert_eq!(judge(&well(), &telemetry, Links::AllOrNone).verdict, Verdict::Passed);
        assert_eq!(judge(&well(), &telemetry, Links::All).verdict, Verdict::Failed);
        assert_eq!(judge(&well(), &telemetry, Links::Unasked).verdict, Verdict::Passed);
    }

    #[test]
    fn each_fact_that_speaks_against_the_gpu_is_named() {
        let health = GpuHealth {
            recovery_action: Some(RecoveryAction::GpuReset),
            remap_pending: Some(true),
            remap_failed: Some(true),
            ..well()
        };
        let links = NvLinkTelemetry { active: 16, links: 18, ..NvLinkTelemetry::default() };
        let telemetry = GpuTelemetry { nvlink: Some(links), ..GpuTelemetry::default() };
        let check = judge(&health, &telemetry, Links::AllOrNone);
        let message = check.message.expect("a message");
        assert_eq!(check.verdict, Verdict::Failed);
        for fault in ["a reset of the GPU", "replaced", "waits for a reset", "of 18 NVLink links 2"]
        {
            assert!(message.contains(fault), "{message}");
        }
    }
}
