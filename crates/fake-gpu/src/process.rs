//! Who uses a chip.

/// A process that uses a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id as it sees itself.
    pub pid: u32,
    /// Inode of its process namespace.
    pub namespace: u64,
    /// When it started, in clock ticks since boot, as `/proc/<pid>/stat` says it.
    pub started: u64,
    /// Contexts that it has on the chip.
    pub contexts: u32,
    /// Bytes of the chip's memory that count for it.
    pub used: u64,
    /// Nanoseconds of the chip's time that it had.
    pub served: u64,
    /// Whether it has work that is not done.
    pub is_busy: bool,
}
