//! The time of work on nodes.

/// When work on nodes is done, in seconds since 1970. The end is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    /// Its begin.
    pub start: u64,
    /// Its end, which is later.
    pub end: u64,
}

impl Window {
    /// Whether the work may be done at a time.
    pub fn is_open(self, now: u64) -> bool {
        (self.start..self.end).contains(&now)
    }

    /// Whether it is over at a time.
    pub fn is_over(self, now: u64) -> bool {
        self.end <= now
    }
}
