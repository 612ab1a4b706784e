//! Texts of events and conditions.

use std::collections::BTreeMap;

use octavo_guard_abi::state::Damage;

use octavo_api::config::ShareClass;
use octavo_api::names::{
    CONDITION_ENFORCED, CONDITION_TIME_ENFORCED, REASON_LEASES, REASON_LONG_WAIT,
    REASON_NOT_WATCHED, REASON_WATCHED,
};

use crate::backend::BackendKind;
use crate::process::Process;
use crate::share::{ActiveShare, ShareFinding, Status};
use crate::watchdog::overflow::{Notice, Response, StateDamage};
use crate::watchdog::visibility::BlindSpot;

/// A share waits long for GPU time.
pub(in crate::watchdog) fn long_wait_finding(share: &ActiveShare) -> ShareFinding {
    let why = match (share.class, share.compute_limit) {
        (ShareClass::BestEffort, _) => "it has only the time that other shares leave",
        (_, Some(_)) => "others use the GPU, or its limit is used up",
        (_, None) => "others use the GPU",
    };
    let message = format!(
        "share {} of {} has waited for GPU time for more than 10 s: {why}; `octavo top --shares` shows the time of each share. Ask for \
         more `compute`, or move a share to another GPU",
        share.share_id, share.device
    );
    ShareFinding { reason: REASON_LONG_WAIT, message, condition: None }
}

/// Finding about whether a share is held to its part of the GPU's time: what keeps it from that, and the process with an old
/// guard.
pub(in crate::watchdog) fn time_finding(
    share: &ActiveShare,
    problem: Option<&'static str>,
    old: Option<Process>,
) -> ShareFinding {
    let of = format!("share {} of {}", share.share_id, share.device);
    let message = match (problem, old) {
        (Some(_), Some(process)) => format!(
            "process {} of {of} has a guard of an earlier version and launches without leases; delete the pod so that its containers \
             start with the guard of this version",
            process.pid
        ),
        (Some(_), None) => format!(
            "{of} has no leases of GPU time, because the agent's thread for them does not run; the log of the node's agent says why. \
             Delete the agent's pod so that it starts again"
        ),
        (None, _) => format!("all processes of {of} need leases again"),
    };
    let status = if problem.is_some() { Status::False } else { Status::True };
    ShareFinding {
        reason: problem.unwrap_or(REASON_LEASES),
        message,
        condition: Some((CONDITION_TIME_ENFORCED, status)),
    }
}

/// Text about an overflow, or about damage of a share's state.
pub(in crate::watchdog) fn overflow_message(notice: &Notice, share: &ActiveShare) -> String {
    let of = format!("share {} of {}", share.share_id, share.device);
    match notice {
        Notice::Overflow { driver_bytes, response, has_failed } => {
            let done = match response {
                Response::Frozen if *has_failed => {
                    "some of its containers could not be frozen; its launches and allocations wait until its use is \
                     below the limit; the log of the node's agent says why. Delete the pod to end it"
                }
                Response::Killed if *has_failed => {
                    "some processes with memory beyond the limit could not be killed; launches and allocations \
                     wait until its use is below the limit; the log of the node's agent says why. Delete the pod \
                     to end it"
                }
                Response::Reported => "its policy is to report only",
                Response::Refused => {
                    "no call of its programs asked for what is beyond: the driver takes memory for code and stacks; its \
                     further allocations are refused. Ask for a larger share"
                }
                Response::Held => {
                    "its launches and allocations wait until its use is below the limit"
                }
                Response::Frozen => {
                    "its containers are frozen until its use is below the limit; delete the pod to end it"
                }
                Response::Killed => "processes are killed until its use is below the limit",
            };
            let (has, may) = (mebibytes(*driver_bytes), mebibytes(share.memory_bytes));
            format!("the driver counts {has} for {of} with a limit of {may}: {done}")
        }
        Notice::StillFenced => format!(
            "{of} is fenced because its ledger was changed: its containers can no longer allocate or launch; \
             delete the pod, and check its programs"
        ),
        Notice::Within => format!("{of} is within its memory limit again"),
        Notice::Tampered(damage) => {
            let damage = match damage {
                StateDamage::Gone => "is gone".to_owned(),
                StateDamage::Damaged(Damage::Size) => {
                    "has a wrong size and was truncated".to_owned()
                }
                StateDamage::Damaged(damage) => format!("was changed ({damage:?})"),
                StateDamage::Reported(value) => {
                    format!("was changed, as one of its own guards says (code {value})")
                }
            };
            format!(
                "the ledger of {of} {damage}: its containers can no longer allocate or launch; \
                 delete the pod, and check its programs"
            )
        }
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// Finding about a change of visibility: whether bypassing allocations of a share would be detected.
pub(in crate::watchdog) fn visibility_finding(
    share: &ActiveShare,
    blind_spot: Option<BlindSpot>,
) -> ShareFinding {
    let of = format!("share {} of {}", share.share_id, share.device);
    // The driver's own limit also holds without monitoring.
    let is_held = share.backend == Some(BackendKind::Driver);
    let condition = |status| (!is_held).then_some((CONDITION_ENFORCED, status));
    match blind_spot {
        Some(kind) => ShareFinding {
            reason: REASON_NOT_WATCHED,
            message: format!(
                "allocations that bypass the limit of {of} are not detected on {}: {}",
                share.gpu_uuid,
                kind.explanation()
            ),
            condition: condition(Status::Unknown),
        },
        None => ShareFinding {
            reason: REASON_WATCHED,
            message: format!("allocations that bypass the limit of {of} are detected again"),
            condition: condition(Status::True),
        },
    }
}

/// Finding about driver functions that the guards of a share do not know.
pub(in crate::watchdog) fn unknown_functions_finding(
    share: &ActiveShare,
    names: &BTreeMap<String, bool>,
) -> ShareFinding {
    let named = |(name, is_refused): (&String, &bool)| {
        format!("{name} ({})", if *is_refused { "refused" } else { "let through" })
    };
    let names: Vec<_> = names.iter().map(named).collect();
    let message = format!(
        "containers of share {} of {} use driver functions that this version of Octavo does not know: {}; what \
         they allocate is seen by the driver's count only. Update Octavo, or set strictness: Strict",
        share.share_id,
        share.device,
        names.join(", ")
    );
    ShareFinding { reason: "UnknownDriverFunction", message, condition: None }
}

#[cfg(test)]
mod tests;
