//! What the core wants to be read anew, and that it was.

use super::Core;

impl Core {
    /// All that was written of pods and claims before `at` was told, by the clock of [`Core::tick`]: lists
    /// that began then have been taken in.
    pub fn on_relist(&mut self, at: u64) {
        self.end_doubts_read(at);
    }

    /// The time that lists of pods and claims must not be older than, for what cannot be known without them.
    pub fn wants_reading(&self) -> Option<u64> {
        self.doubts_want_reading()
    }
}
