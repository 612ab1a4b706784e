//! How new what was read is, and what must be read anew.

use super::Core;

impl Core {
    /// All that was written of pods and claims before this moment was told (milliseconds, as
    /// [`Core::time_is`] is told).
    pub fn read_anew(&mut self, at: u64) {
        self.read = self.read.max(at);
    }

    /// Wants to be told all that was written of pods and claims up to this moment: by lists that begin
    /// after it.
    pub fn wants_reading(&self) -> Option<u64> {
        None
    }
}
