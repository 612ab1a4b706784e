//! The driver's advice in the form of the rules.

use octavo_gpu::RecoveryAction;
use octavo_health::signal::RecoveryAction as Advice;

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
