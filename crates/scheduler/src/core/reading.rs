//! What the core wants to be read anew, and that it was.

use super::Core;

impl Core {
    /// All was read anew: lists that began at `at`, by the clock of [`Core::time_is`], have been taken in.
    pub fn read_anew(&mut self, at: u64) {
        self.end_doubts_read(at);
    }

    /// The time that a reading must not be older than, for what cannot be known without one.
    pub fn wants_reading(&self) -> Option<u64> {
        self.doubts_want_reading()
    }
}
