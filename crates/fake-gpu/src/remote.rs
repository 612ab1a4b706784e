//! The work of another process on the same GPU, for events that it has shared.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::file::{self, LockByte};
use crate::process_handle::ProcessHandle;

/// A process on a GPU, as others know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteProcess {
    slot: usize,
    pid: u32,
    started: u64,
}

impl RemoteProcess {
    /// Numbers from which another process of the machine can make it again.
    pub fn to_words(self) -> [u64; 3] {
        [u64::try_from(self.slot).unwrap_or(u64::MAX), self.pid.into(), self.started]
    }

    /// The process of such numbers, which may be any.
    pub fn from_words([slot, pid, started]: [u64; 3]) -> Self {
        let slot = usize::try_from(slot).unwrap_or(usize::MAX);
        Self { slot, pid: u32::try_from(pid).unwrap_or(0), started }
    }
}

impl ProcessHandle {
    /// This process, for others.
    pub fn as_remote(&self) -> RemoteProcess {
        let slot = self.slot();
        let (pid, started) = (slot.pid.load(Relaxed), slot.started.load(Relaxed));
        RemoteProcess { slot: self.slot_index(), pid, started }
    }

    /// The mark of all work that a process has submitted so far; `None` if it has ended, and its work with it.
    pub fn submitted_by(&self, process: RemoteProcess) -> Option<u64> {
        let slot = self.map().slots.get(process.slot)?;
        let is_same =
            slot.pid.load(Relaxed) == process.pid && slot.started.load(Relaxed) == process.started;
        let lives = process.slot == self.slot_index()
            || file::is_held(self.file(), LockByte::Slot(process.slot));
        (is_same && lives).then(|| slot.submitted.load(Acquire))
    }

    /// Whether the work of a process up to `mark` is done, as [`poll_done`](Self::poll_done).
    pub fn poll_done_by(&self, process: RemoteProcess, mark: u64) -> bool {
        self.submitted_by(process).is_none() || self.poll_done_in(process.slot, mark)
    }

    /// Waits until the work of a process up to `mark` is done, as [`wait`](Self::wait).
    pub fn wait_for(
        &self,
        process: RemoteProcess,
        mark: u64,
        is_cancelled: &mut dyn FnMut() -> bool,
    ) -> bool {
        let mut has_ended = false;
        let done = self.wait_in(process.slot, mark, &mut || {
            has_ended = self.submitted_by(process).is_none();
            has_ended || is_cancelled()
        });
        done || has_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, ENDLESS, FakeGpu};

    #[test]
    fn a_process_waits_for_the_work_of_another_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let attach = || FakeGpu::open(folder.path(), 0, 100, Clock::Virtual).unwrap().attach();
        let (one, other) = (attach().unwrap(), attach().unwrap());
        let remote = RemoteProcess::from_words(other.as_remote().to_words());
        assert_eq!(remote, other.as_remote());
        other.submit(5_000);
        let mark = one.submitted_by(remote).unwrap();
        assert_eq!((mark, one.poll_done_by(remote, mark)), (5_000, false));
        assert!(one.wait_for(remote, mark, &mut || false));
        assert_eq!((one.now(), one.poll_done_by(remote, mark)), (5_000, true));
        let mark = other.submit(ENDLESS);
        let mut asked = 0;
        let mut enough = || {
            asked += 1;
            asked > 2
        };
        assert!(!one.wait_for(remote, mark, &mut enough));
        drop(other);
        assert!(one.wait_for(remote, mark, &mut || false), "the work ends with its process");
        assert_eq!(one.submitted_by(RemoteProcess::from_words([u64::MAX; 3])), None);
    }
}
