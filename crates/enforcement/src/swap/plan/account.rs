//! What the plan keeps of one share.

use std::time::Duration;

/// Where a share's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On the GPU, since.
    Resident(Duration),
    /// On its way to the host, but for what stays on the GPU.
    Leaving { bytes: u64, staying: u64 },
    /// On the host, since. The driver's count shows when its memory is free.
    Out { bytes: u64, staying: u64, since: Duration },
    /// On its way back.
    Returning { bytes: u64, staying: u64 },
}

impl Place {
    /// Bytes on the host, or on their way, and those that stay on the GPU. `None` if the share is resident.
    pub(super) fn parts(self) -> Option<(u64, u64)> {
        match self {
            Self::Resident(_) => None,
            Self::Leaving { bytes, staying }
            | Self::Out { bytes, staying, .. }
            | Self::Returning { bytes, staying } => Some((bytes, staying)),
        }
    }
}

/// What it may have, and where it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    /// In bytes.
    pub(super) granted: u64,
    /// When it was last given something.
    pub(super) given_at: Duration,
    pub(super) place: Place,
    /// When it may have worked last.
    pub(super) active_at: Duration,
    /// Since when it wants memory that it does not have.
    pub(super) wants_since: Option<Duration>,
    /// Whether an earlier agent left it out. Then it wants to return: a thread that waits in the driver is not seen.
    pub(super) was_left_out: bool,
    /// Until when it is left alone after a failure.
    pub(super) retry_at: Duration,
    /// Moves to the host that failed, since the last one that did not.
    pub(super) failed_moves: u32,
}

impl Account {
    /// Of a share with memory at a place, which has nothing granted yet.
    pub(super) fn new(place: Place, now: Duration) -> Self {
        Self {
            granted: 0,
            given_at: now,
            place,
            active_at: now,
            wants_since: None,
            was_left_out: false,
            retry_at: Duration::ZERO,
            failed_moves: 0,
        }
    }
}
