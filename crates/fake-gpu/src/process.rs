//! Users of a GPU.

/// A process that uses a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Pid in its own namespace.
    pub pid: u32,
    /// Inode of its pid namespace.
    pub namespace: u64,
    /// Start time in clock ticks since boot, as in `/proc/<pid>/stat`.
    pub started: u64,
    /// Its contexts on the GPU.
    pub contexts: u32,
    /// GPU memory charged to it, in bytes.
    pub used: u64,
    /// GPU time that it received, in nanoseconds.
    pub served: u64,
    /// Whether it has unfinished work.
    pub is_busy: bool,
}
