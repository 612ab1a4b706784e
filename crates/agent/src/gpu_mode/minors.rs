//! Minor numbers that a change of MIG mode moved, until the monitor has read them again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Moved minor numbers, by UUID.
#[derive(Debug, Default)]
pub(crate) struct MovedMinors(Mutex<BTreeMap<String, Moved>>);

#[derive(Debug)]
struct Moved {
    /// Numbers that the GPU had before.
    stale: BTreeSet<u32>,
    now: u32,
}

impl MovedMinors {
    /// Notes that a change of mode moved a GPU's number, or did not.
    pub(crate) fn moved(&self, uuid: &str, before: u32, after: u32) {
        if before == after {
            return;
        }
        tracing::info!(
            gpu = uuid,
            before,
            after,
            "a change of MIG mode gave the GPU another minor number"
        );
        let mut all = self.all();
        let moved = all
            .entry(uuid.to_owned())
            .or_insert_with(|| Moved { stale: BTreeSet::new(), now: after });
        moved.stale.insert(before);
        moved.stale.remove(&after);
        moved.now = after;
    }

    /// A GPU's number, of which the last read said `read`.
    pub(crate) fn of(&self, uuid: &str, read: u32) -> u32 {
        let mut all = self.all();
        match all.get(uuid) {
            Some(moved) if moved.stale.contains(&read) => moved.now,
            Some(moved) if moved.now == read => {
                // Read again. A later move by hand may give it a former number.
                all.remove(uuid);
                read
            }
            _ => read,
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Moved>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_number_counts_until_it_is_read() {
        let minors = MovedMinors::default();
        assert_eq!(minors.of("GPU-0", 0), 0);
        minors.moved("GPU-0", 0, 0);
        minors.moved("GPU-0", 0, 6);
        minors.moved("GPU-0", 6, 7);
        for read in [0, 6] {
            assert_eq!(minors.of("GPU-0", read), 7);
        }
        assert_eq!(minors.of("GPU-1", 0), 0, "another GPU");
        // It comes back to where it was.
        minors.moved("GPU-0", 7, 0);
        assert_eq!(minors.of("GPU-0", 7), 0);
        assert_eq!(minors.of("GPU-0", 0), 0);
        assert_eq!(minors.of("GPU-0", 7), 7, "moved by hand after it was read");
    }
}
