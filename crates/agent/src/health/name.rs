//! The driver's advice in names, and in the form of the rules.

use octavo_gpu::RecoveryAction;
use octavo_health::signal::RecoveryAction as Advice;

/// The value of the taint of a GPU for which the driver advises something.
pub(crate) fn advice_name(advice: Advice) -> &'static str {
    match advice {
        Advice::None => "nothing",
        Advice::GpuReset => "gpu-reset",
        Advice::NodeReboot => "node-reboot",
        Advice::DrainP2p => "drain-p2p",
        Advice::DrainAndReset => "drain-and-reset",
        Advice::RecoverImexDomain => "recover-imex-domain",
        Advice::Other(_) => "unknown",
    }
}

/// The driver's advice as the rules have it.
pub(super) fn advice(action: RecoveryAction) -> Advice {
    match action {
        RecoveryAction::None => Advice::None,
        RecoveryAction::GpuReset => Advice::GpuReset,
        RecoveryAction::NodeReboot => Advice::NodeReboot,
        RecoveryAction::DrainP2p => Advice::DrainP2p,
        RecoveryAction::DrainAndReset => Advice::DrainAndReset,
        RecoveryAction::RecoverImexDomain => Advice::RecoverImexDomain,
        RecoveryAction::Other(number) => Advice::Other(number),
    }
}
