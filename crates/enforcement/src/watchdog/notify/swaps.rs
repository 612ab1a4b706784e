//! Findings about memory that is moved between the GPU and the host.

use std::time::Duration;

use octavo_api::names::{
    CONDITION_MEMORY_SWAP, REASON_DRIVER_TOO_OLD, REASON_NO_HOST_MEMORY, REASON_SEVERAL_GPUS,
    REASON_SHARES_MEMORY, REASON_SWAP_FAILED, REASON_SWAPPABLE, REASON_SWAPPED_IN,
    REASON_SWAPPED_OUT, REASON_USES_MANAGED_MEMORY,
};

use crate::share::{ActiveShare, ShareFinding, Status};

/// Whether the memory of a share can be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::watchdog) enum SwapState {
    /// It can, as far as is known.
    Swappable,
    /// A process has managed memory.
    Managed,
    /// A process shares memory with others.
    Shared,
    /// A process sees several GPUs, so its guard moves nothing.
    SeveralGpus,
    /// The driver has no checkpoints.
    DriverTooOld,
    /// The host, or the container, had no room.
    NoHostMemory,
    /// The driver refused it, or its work did not end.
    Failed,
}

impl SwapState {
    /// Whether a program is the reason, so that it ends with it.
    pub(in crate::watchdog) fn is_of_program(self) -> bool {
        matches!(self, Self::Managed | Self::Shared | Self::SeveralGpus)
    }
}

/// Finding about a change of whether a share's memory can be moved. `why` is the cause, where it is not plain.
pub(in crate::watchdog) fn state_finding(
    share: &ActiveShare,
    state: SwapState,
    why: Option<&str>,
) -> ShareFinding {
    let of = format!("the memory of share {} of {}", share.share_id, share.device);
    let why = why.unwrap_or("the node's agent has the reason in its log");
    let stays = "it gets no more than its request from now on";
    let (reason, status, message) = match state {
        SwapState::Swappable => {
            (REASON_SWAPPABLE, Status::True, format!("{of} can be moved to the host"))
        }
        SwapState::Managed => (
            REASON_USES_MANAGED_MEMORY,
            Status::False,
            format!(
                "{of} cannot be moved to the host: a process has managed memory \
                 (cudaMallocManaged), which the driver does not move; {stays}"
            ),
        ),
        SwapState::Shared => (
            REASON_SHARES_MEMORY,
            Status::False,
            format!(
                "{of} cannot be moved to the host: a process shares memory with others (IPC, \
                 exported handles or multicast), which the driver does not move; {stays}"
            ),
        ),
        SwapState::SeveralGpus => (
            REASON_SEVERAL_GPUS,
            Status::False,
            format!(
                "{of} cannot be moved to the host: a process sees several GPUs, and its share has \
                 swapUnit: Pages; {stays}"
            ),
        ),
        SwapState::DriverTooOld => {
            (REASON_DRIVER_TOO_OLD, Status::False, format!("{of} was not moved to the host: {why}"))
        }
        SwapState::NoHostMemory => {
            (REASON_NO_HOST_MEMORY, Status::False, format!("{of} was not moved to the host: {why}"))
        }
        SwapState::Failed => {
            (REASON_SWAP_FAILED, Status::False, format!("{of} was not moved: {why}"))
        }
    };
    ShareFinding { reason, message, condition: Some((CONDITION_MEMORY_SWAP, status)) }
}

/// Finding about a move.
pub(in crate::watchdog) fn moved_finding(
    share: &ActiveShare,
    is_out: bool,
    bytes: Option<u64>,
    took: Duration,
) -> ShareFinding {
    let of = format!("share {} of {}", share.share_id, share.device);
    let took = format!("{:.1} s", took.as_secs_f64());
    let (reason, message) = if is_out {
        let bytes = bytes.unwrap_or(0) >> 20;
        let message = format!(
            "{bytes} MiB of {of} were moved to the host in {took}: another share needs the memory; \
             its processes wait until they are back"
        );
        (REASON_SWAPPED_OUT, message)
    } else {
        (REASON_SWAPPED_IN, format!("the processes of {of} are on the GPU again, after {took}"))
    };
    ShareFinding { reason, message, condition: None }
}
