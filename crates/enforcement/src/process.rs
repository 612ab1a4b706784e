//! Processes of containers: what the system says of them, and how they are stopped.

pub(crate) mod freezer;
pub(crate) mod kill;
pub(crate) mod proc;

/// A process, identified beyond the reuse of its pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Process {
    /// Its pid on the host.
    pub(crate) pid: u32,
    /// When it began, in clock ticks since boot.
    pub(crate) start_time: u64,
}

#[cfg(test)]
mod tests;
