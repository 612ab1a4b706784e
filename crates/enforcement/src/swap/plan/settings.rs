//! Times and sizes of the plan.

use std::time::Duration;

/// Times and sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanSettings {
    /// A share without work for so long is idle.
    pub(crate) idle_after: Duration,
    /// How long a share is resident before one that is out may take its place.
    pub(crate) turn: Duration,
    /// How long a request above a share's own is kept waiting for others to become idle.
    pub(crate) refuse_after: Duration,
    /// After which a share that is out returns without being asked for, if there is room.
    pub(crate) return_after: Duration,
    /// How long a share is left alone after a move failed.
    pub(crate) retry_after: Duration,
    /// Granted beyond what was asked for, if it is free: so that not each allocation asks.
    pub(crate) chunk: u64,
    /// Memory that stays free while any is lent. The driver takes some that no call asks for: code, and what contexts have beyond
    /// their charge.
    pub(crate) reserve: u64,
    /// How long a grant is not taken back, although it is not used yet.
    pub(crate) keep_grant: Duration,
    /// After which a share that is out wants to return, although no thread is seen to wait: it may wait in the driver.
    pub(crate) longest_out: Duration,
}

impl Default for PlanSettings {
    fn default() -> Self {
        Self {
            idle_after: Duration::from_secs(2),
            turn: Duration::from_secs(30),
            refuse_after: Duration::from_secs(3),
            return_after: Duration::from_mins(1),
            retry_after: Duration::from_secs(30),
            chunk: 256 << 20,
            reserve: 768 << 20,
            keep_grant: Duration::from_secs(1),
            longest_out: Duration::from_mins(10),
        }
    }
}
