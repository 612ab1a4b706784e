//! The times by which leases are given.

use octavo_api::config::ShareClass;

use crate::{MILLISECOND, Terms};

/// The times by which leases are given, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Shortest turn of a latency-critical share that others wait for.
    pub latency_critical_quantum: u64,
    /// Shortest turn of a normal share that others of its class wait for. Shorter quanta let others wait less; each
    /// change costs the GPU some hundred microseconds.
    pub normal_quantum: u64,
    /// Shortest turn of a best-effort share that others of its class wait for.
    pub best_effort_quantum: u64,
    /// The time over which shares have their parts. A share that waits gathers at most its part of it, and a debt is at
    /// most ten times as large.
    pub window: u64,
    /// A share that had nothing in flight and nothing to launch for this long gives up its turn to one that waits.
    pub idle_after: u64,
    /// Best-effort shares begin when all others had nothing to do for this long.
    pub best_effort_after: u64,
    /// A share needs no cap when no other share wanted time for this long.
    pub alone_after: u64,
    /// Work that a share may have in flight, as time: it is how long the end of a turn takes.
    pub queue: u64,
    /// The same while a share of the GPU is latency-critical.
    pub latency_critical_queue: u64,
    /// How long GPUs that were cleared for a gang are kept for it while the last of them are not clear yet.
    pub gang_deadline: u64,
    /// How much longer a latency-critical share may take beside best-effort work, in percent of its time alone.
    pub critical_slowdown_percent: u64,
    /// By how much best-effort work that may be in flight beside a latency-critical share grows, as time.
    pub beside_step: u64,
    /// Interval of steps while shares wait for each other.
    pub interval: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            latency_critical_quantum: 5 * MILLISECOND,
            normal_quantum: 20 * MILLISECOND,
            best_effort_quantum: 100 * MILLISECOND,
            window: 1_000 * MILLISECOND,
            idle_after: MILLISECOND / 5,
            best_effort_after: 2 * MILLISECOND,
            alone_after: 1_000 * MILLISECOND,
            queue: 4 * MILLISECOND,
            latency_critical_queue: 2 * MILLISECOND,
            gang_deadline: 6 * MILLISECOND,
            critical_slowdown_percent: 15,
            beside_step: MILLISECOND / 20,
            interval: MILLISECOND,
        }
    }
}

impl Settings {
    /// The shortest turn of a share: its own, or that of its class.
    pub fn quantum(&self, terms: &Terms) -> u64 {
        terms.quantum.unwrap_or(match terms.class {
            ShareClass::LatencyCritical => self.latency_critical_quantum,
            ShareClass::Normal => self.normal_quantum,
            ShareClass::BestEffort => self.best_effort_quantum,
        })
    }
}
