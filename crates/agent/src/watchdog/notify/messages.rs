//! Texts of events and conditions.

use std::collections::BTreeMap;

use octavo_guard_abi::state::Damage;

use octavo_api::names::{CONDITION_ENFORCED, REASON_NOT_WATCHED, REASON_WATCHED};

use crate::claims::{ActiveShare, ShareFinding, Status};
use crate::enforcement::BackendKind;
use crate::watchdog::overflow::{Notice, Response, StateDamage};
use crate::watchdog::visibility::BlindSpot;

/// Text about an overflow, or about damage of a share's state.
pub(in crate::watchdog) fn overflow_message(notice: &Notice, share: &ActiveShare) -> String {
    let of = format!("share {} of {}", share.share_id, share.device);
    match notice {
        Notice::Overflow { driver_bytes, response, has_failed } => {
            let done = match response {
                Response::Frozen if *has_failed => {
                    "its containers could not all be frozen, and its launches and allocations wait until it has \
                     less; the log of the node's agent says why. Delete the pod to end it"
                }
                Response::Killed if *has_failed => {
                    "processes with memory that Octavo did not admit could not all be killed, and launches and \
                     allocations wait until there is less; the log of the node's agent says why. Delete the pod \
                     to end it"
                }
                Response::Reported => "its policy is to report it and to do nothing",
                Response::Held => "its launches and allocations wait until it has less",
                Response::Frozen => {
                    "its containers are frozen until it has less; delete the pod to end it"
                }
                Response::Killed => "processes with memory that Octavo did not admit are killed",
            };
            let (has, may) = (mebibytes(*driver_bytes), mebibytes(share.memory_bytes));
            format!("the driver counts {has} for {of}, which may have {may}: {done}")
        }
        Notice::StillFenced => format!(
            "{of} is fenced since its ledger was changed: its containers can neither allocate nor launch any more; \
             delete the pod, and look at what it runs"
        ),
        Notice::Within => format!("{of} has no more memory than it may, again"),
        Notice::Tampered(damage) => {
            let damage = match damage {
                StateDamage::Gone => "is gone".to_owned(),
                StateDamage::Damaged(Damage::Size) => {
                    "was made shorter or longer, and is cut back to its size".to_owned()
                }
                StateDamage::Damaged(damage) => format!("was changed ({damage:?})"),
                StateDamage::Reported(value) => {
                    format!("was changed, as one of its own guards says (code {value})")
                }
            };
            format!(
                "the ledger of {of} {damage}: its containers can neither allocate nor launch any more; \
                 delete the pod, and look at what it runs"
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
                "what goes round the wall of {of} is not seen on {}: {}",
                share.gpu_uuid,
                kind.explanation()
            ),
            condition: condition(Status::Unknown),
        },
        None => ShareFinding {
            reason: REASON_WATCHED,
            message: format!("what goes round the wall of {of} is seen, again"),
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
