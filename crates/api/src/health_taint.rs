//! The taint of a GPU that is not in the state Healthy. The agent writes it, and the controller compares tolerations with it.

use octavo_health::reason::Reason;

use crate::names::{TAINT_GPU_LOST, TAINT_HEALTH, TAINT_RECOVERY_ACTION, TAINT_XID};

/// Key and value of the taint, by the reason and the name of the state. The key says what happened; those of XIDs and losses are
/// NVIDIA's.
pub fn key_and_value(reason: Option<Reason>, state: &str) -> (&'static str, String) {
    match reason {
        Some(Reason::Xid(number) | Reason::RepeatedXid(number)) => (TAINT_XID, number.to_string()),
        Some(Reason::Lost) => (TAINT_GPU_LOST, String::new()),
        Some(Reason::RecoveryAction(advice)) => (TAINT_RECOVERY_ACTION, advice.name().to_owned()),
        Some(reason) => (TAINT_HEALTH, reason.name().to_owned()),
        None => (TAINT_HEALTH, state.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use octavo_health::signal::RecoveryAction;

    use super::*;

    #[test]
    fn the_key_says_what_happened() {
        let of = |reason| key_and_value(reason, "Fenced");
        assert_eq!(of(Some(Reason::Xid(48))), ("gpu.nvidia.com/xid", "48".to_owned()));
        assert_eq!(of(Some(Reason::RepeatedXid(31))), ("gpu.nvidia.com/xid", "31".to_owned()));
        assert_eq!(of(Some(Reason::Lost)), ("gpu.nvidia.com/gpu-lost", String::new()));
        let reset = Some(Reason::RecoveryAction(RecoveryAction::GpuReset));
        assert_eq!(of(reset), ("octavo.dev/recovery-action", "gpu-reset".to_owned()));
        assert_eq!(of(Some(Reason::Hot)), ("octavo.dev/health", "NoTemperatureMargin".to_owned()));
        assert_eq!(of(None), ("octavo.dev/health", "Fenced".to_owned()));
    }
}
