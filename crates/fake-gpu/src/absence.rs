//! A process that is away from a GPU: its checkpoint in host memory has what it had there.

use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::process_handle::ProcessHandle;

/// What a process had on a GPU that it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    bytes: u64,
    contexts: u32,
}

impl ProcessHandle {
    /// Leaves the GPU: its memory and its contexts count no more. The process must have no unfinished work and no shared
    /// blocks, and must not use the GPU until it [returns](Self::return_to_gpu).
    pub fn leave_gpu(&self) -> Footprint {
        let locked = self.lock();
        let bytes = self.used();
        let contexts = self.slot().contexts.swap(0, Relaxed);
        locked.subtract(bytes);
        Footprint { bytes, contexts }
    }

    /// Returns with what the process had. Returns false, without a change, if its memory does not fit.
    pub fn return_to_gpu(&self, footprint: Footprint) -> bool {
        let is_charged = self.charge(footprint.bytes);
        if is_charged {
            self.slot().contexts.store(footprint.contexts, Release);
        }
        is_charged
    }
}

#[cfg(test)]
mod tests {
    use crate::{Clock, FakeGpu};

    #[test]
    fn a_process_returns_with_what_it_had_once_it_fits() {
        let folder = tempfile::tempdir().unwrap();
        let attach = || FakeGpu::open(folder.path(), 0, 100, Clock::Virtual).unwrap().attach();
        let (process, other) = (attach().unwrap(), attach().unwrap());
        let observer = FakeGpu::existing(folder.path(), 0, Clock::Virtual).unwrap();
        process.add_context();
        assert!(process.charge(60));
        let footprint = process.leave_gpu();
        assert_eq!((process.used(), process.free(), observer.processes().len()), (0, 100, 0));
        assert!(other.charge(50));
        assert!(!process.return_to_gpu(footprint));
        assert_eq!((process.used(), observer.processes().len()), (0, 0));
        other.refund(50);
        assert!(process.return_to_gpu(footprint));
        assert_eq!((process.used(), process.free(), observer.processes().len()), (60, 40, 1));
    }
}
