//! What people are told, in words.

use std::collections::BTreeMap;

use octavo_guard_abi::state::Damage;

use octavo_api::names::{CONDITION_ENFORCED, REASON_NOT_WATCHED, REASON_WATCHED};

use super::decision::{Harm, News, Response};
use super::sight::Blindness;
use crate::claims::{LiveShare, ShareNews, Status};
use crate::enforcement::BackendKind;

/// Words about what happened to a share.
pub(super) fn words(news: &News, share: &LiveShare) -> String {
    let of = format!("share {} of {}", share.share_id, share.device);
    match news {
        News::Overflow { driver_bytes, response, has_failed } => {
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
        News::StillFenced => format!(
            "{of} is fenced since its ledger was changed: its containers can neither allocate nor launch any more; \
             delete the pod, and look at what it runs"
        ),
        News::Within => format!("{of} has no more memory than it may, again"),
        News::Tampered(harm) => {
            let harm = match harm {
                Harm::Gone => "is gone".to_owned(),
                Harm::Damaged(Damage::Size) => {
                    "was made shorter or longer, and is cut back to its size".to_owned()
                }
                Harm::Damaged(damage) => format!("was changed ({damage:?})"),
                Harm::Reported(value) => {
                    format!("was changed, as one of its own guards says (code {value})")
                }
            };
            format!(
                "the ledger of {of} {harm}: its containers can neither allocate nor launch any more; \
                 delete the pod, and look at what it runs"
            )
        }
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// News of whether what goes round a share's wall is seen.
pub(super) fn blind(share: &LiveShare, blindness: Option<Blindness>) -> ShareNews {
    let of = format!("share {} of {}", share.share_id, share.device);
    // The driver's own limit holds whoever looks.
    let is_held = share.backend == Some(BackendKind::Driver);
    let condition = |status| (!is_held).then_some((CONDITION_ENFORCED, status));
    match blindness {
        Some(kind) => ShareNews {
            reason: REASON_NOT_WATCHED,
            message: format!(
                "what goes round the wall of {of} is not seen on {}: {}",
                share.gpu_uuid,
                kind.words()
            ),
            condition: condition(Status::Unknown),
        },
        None => ShareNews {
            reason: REASON_WATCHED,
            message: format!("what goes round the wall of {of} is seen, again"),
            condition: condition(Status::True),
        },
    }
}

/// News of functions that the guards of a share do not know.
pub(super) fn unknown(share: &LiveShare, names: &BTreeMap<String, bool>) -> ShareNews {
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
    ShareNews { reason: "UnknownDriverFunction", message, condition: None }
}

#[cfg(test)]
mod tests;
