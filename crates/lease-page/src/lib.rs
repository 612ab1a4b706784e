//! The agent's side of a lease page ([`octavo_guard_abi::lease_page`]): memory shared with one process.
//!
//! It is a crate of its own because mapping memory needs unsafe code, which the agent does without. The page lies in a
//! memory file (`memfd_create`) of fixed size: its seals let the process neither shrink it, which would fault in the
//! agent, nor grow it.

use std::fmt;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use octavo_guard_abi::lease_page::{Lease, LeasePage, LeaseWord, SIZE};
use octavo_guard_abi::message::REPLY;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use rustix::thread::futex;

/// Name of the memory file of a page, as the maps of a process show it (proc(5)).
pub const NAME: &str = "octavo-lease";

/// A lease page, mapped until it is dropped.
pub struct SharedPage {
    start: NonNull<LeasePage>,
}

// JUSTIFICATION: a mapping is a pointer.
// SAFETY: the page consists of atomic words, which all threads and processes may use. Only drop unmaps it.
unsafe impl Send for SharedPage {}
// JUSTIFICATION: as above.
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    /// Creates a page without a lease. Also returns the agent's end of the doorbell, and what a process needs to use both.
    pub fn create() -> io::Result<(Self, OwnedFd, Offer)> {
        let file = memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, SIZE as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // JUSTIFICATION: memory is shared between processes by mapping it.
        // SAFETY: the kernel chooses the address, so no other memory is replaced.
        let start =
            unsafe { mmap(std::ptr::null_mut(), SIZE, access, MapFlags::SHARED, &file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let page = Self { start };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (own, doorbell) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        Ok((page, own, Offer { page: file, doorbell }))
    }

    /// The page.
    pub fn words(&self) -> &LeasePage {
        // JUSTIFICATION: the mapping is the only place of the page.
        // SAFETY: it is at least as long as a page, begins at a page boundary, and is mapped while `self` lives. Its size
        // is sealed, so no access faults. All its bytes are words of any value.
        unsafe { self.start.as_ref() }
    }

    /// Sets the lease, and wakes the threads that wait for a change. Returns whether it changed.
    pub fn set(&self, lease: Lease) -> bool {
        let word = &self.words().lease;
        let old = LeaseWord(word.load(Ordering::Relaxed));
        let new = old.with(lease);
        if new == old {
            return false;
        }
        word.store(new.0, Ordering::SeqCst);
        wake(word);
        true
    }

    /// Answers requests for memory up to this number.
    pub fn answer(&self, number: u32) {
        let word = &self.words().answered;
        if word.swap(number, Ordering::SeqCst) != number {
            wake(word);
        }
    }

    /// Lets calls that touch memory wait, or go on.
    pub fn suspend(&self, is_suspended: bool) {
        let word = &self.words().suspended;
        if word.swap(u32::from(is_suspended), Ordering::SeqCst) != u32::from(is_suspended) {
            wake(word);
        }
    }
}

/// Wakes all threads that wait for a word of a page.
fn wake(word: &AtomicU32) {
    // Nothing waits if it fails.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX.unsigned_abs());
}

/// A page and a doorbell for a process.
#[derive(Debug)]
pub struct Offer {
    page: OwnedFd,
    doorbell: OwnedFd,
}

impl Offer {
    /// Sends it on the socket of a guard that asks for a page. Does not block: fails with `WouldBlock` if the socket is
    /// full.
    pub fn send(&self, socket: impl AsFd) -> io::Result<()> {
        let descriptors = [self.page.as_fd(), self.doorbell.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(socket, &[IoSlice::new(&[REPLY])], &mut control, flags)?;
        Ok(())
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // JUSTIFICATION: a mapping is unmapped by hand.
        // SAFETY: it was mapped with this size, and no reference outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), SIZE) };
    }
}

impl fmt::Debug for SharedPage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("SharedPage").field(&self.words().lease).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::fs::fcntl_get_seals;
    use rustix::thread::Timespec;

    use super::*;

    #[test]
    fn the_size_of_a_page_cannot_change() {
        let (page, _, Offer { page: file, .. }) = SharedPage::create().expect("a page");
        ftruncate(&file, 0).expect_err("sealed");
        ftruncate(&file, 2 * SIZE as u64).expect_err("sealed");
        let seals = fcntl_get_seals(&file).expect("seals");
        assert!(seals.contains(SealFlags::SEAL), "the process cannot forbid the agent to write");
        assert_eq!(LeaseWord(page.words().lease.load(Ordering::Relaxed)).lease(), Lease::None);
    }

    #[test]
    fn a_change_of_the_lease_wakes_those_who_wait() {
        let (page, ..) = SharedPage::create().expect("a page");
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let word = &page.words().lease;
                let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
                while LeaseWord(word.load(Ordering::SeqCst)).lease() == Lease::None {
                    // It may wake for no reason.
                    if let Err(rustix::io::Errno::TIMEDOUT) =
                        futex::wait(word, futex::Flags::empty(), 0, Some(&limit))
                    {
                        return false;
                    }
                }
                true
            });
            thread::yield_now();
            assert!(page.set(Lease::Capped(4)));
            assert!(waiter.join().expect("ended"), "it is woken long before its limit");
        });
        assert!(!page.set(Lease::Capped(4)), "the lease is the same");
    }

    #[test]
    fn another_mapping_shows_the_same_words() {
        let (page, _, Offer { page: file, .. }) = SharedPage::create().expect("a page");
        page.set(Lease::Free);
        let mut word = [0; 4];
        rustix::io::pread(&file, &mut word, 0).expect("read");
        assert_eq!(LeaseWord(u32::from_ne_bytes(word)).lease(), Lease::Free);
    }
}
