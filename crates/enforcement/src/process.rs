//! Processes of containers: what the system says of them, and how they are stopped.

pub mod container;
pub(crate) mod freezer;
pub(crate) mod kill;
pub(crate) mod proc;

/// A process, identified beyond the reuse of its pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// Its pid on the host.
    pub pid: u32,
    /// When it began, in clock ticks since boot.
    pub start_time: u64,
}

#[cfg(test)]
mod tests;
