//! The thread, with processes that are played by the test: it writes their pages through their descriptors.

use std::io::{IoSliceMut, Write as _};
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use octavo_api::config::{ComputePart, ShareClass};
use octavo_arbiter::Terms;
use octavo_guard_abi::lease_page::{Lease, LeasePage, LeaseWord};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::{GpuTime, LeaseClient, TimedShare};

/// A process of a share, as the agent sees it.
pub(crate) struct Guard {
    page: OwnedFd,
    doorbell: Option<UnixStream>,
    launched: u64,
    joined: Option<LeaseClient>,
}

pub(crate) fn share(name: &str, gpu: &str, percent: u32) -> TimedShare {
    let request = ComputePart(percent * 1_000);
    let terms = Terms { request, limit: None, class: ShareClass::Normal, quantum: None };
    TimedShare { name: name.to_owned(), gpu: gpu.to_owned(), terms, claim: None }
}

/// A share of a claim with shares on several GPUs.
fn member(name: &str, gpu: &str, claim: &str) -> TimedShare {
    TimedShare { claim: Some(claim.to_owned()), ..share(name, gpu, 50) }
}

pub(crate) fn start(shares: Vec<TimedShare>) -> Arc<GpuTime> {
    let gpu_time = GpuTime::start().unwrap();
    gpu_time.set_shares(shares);
    gpu_time
}

pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

impl Guard {
    fn join(gpu_time: &Arc<GpuTime>, share: &str, pid: u32) -> Self {
        let (own, agent) = UnixStream::pair().unwrap();
        let joined = gpu_time.join(share, pid, agent).unwrap();
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        recvmsg(own, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
            .unwrap();
        let files = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files.collect::<Vec<_>>()),
            _ => None,
        });
        let [page, doorbell] = files.unwrap().try_into().unwrap();
        Self { page, doorbell: Some(doorbell.into()), launched: 0, joined: Some(joined) }
    }

    pub(crate) fn of_this_process(gpu_time: &Arc<GpuTime>, share: &str) -> Self {
        Self::join(gpu_time, share, std::process::id())
    }

    pub(crate) fn word(&self, offset: usize) -> u32 {
        let mut word = [0; 4];
        rustix::io::pread(&self.page, &mut word, offset as u64).unwrap();
        u32::from_ne_bytes(word)
    }

    fn lease(&self) -> Lease {
        LeaseWord(self.word(offset_of!(LeasePage, lease))).lease()
    }

    fn may_launch(&self) -> bool {
        self.lease() != Lease::None
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: usize) {
        assert_eq!(rustix::io::pwrite(&self.page, bytes, offset as u64), Ok(bytes.len()));
    }

    /// A thread waits, or none does.
    fn waits(&self, is_waiting: bool) {
        self.write(&u32::from(is_waiting).to_ne_bytes(), offset_of!(LeasePage, waiting));
        if let Some(mut doorbell) = self.doorbell.as_ref().filter(|_| is_waiting) {
            // A full socket rings, too.
            let _ = doorbell.write(&[1]);
        }
    }

    /// A kernel begins.
    fn launches(&mut self) {
        self.launched += 1;
        self.write(&self.launched.to_ne_bytes(), offset_of!(LeasePage, streams));
    }

    /// All kernels end.
    fn drains(&mut self) {
        self.write(&self.launched.to_ne_bytes(), offset_of!(LeasePage, streams) + 8);
    }

    /// Waits for a lease and launches.
    fn begins(&mut self) {
        self.waits(true);
        eventually("a lease", || self.may_launch());
        self.launches();
        self.waits(false);
    }
}

#[test]
fn shares_that_wait_for_each_other_take_turns() {
    let gpu_time = start(vec![share("a", "GPU-1", 50), share("b", "GPU-1", 50)]);
    let mut a = Guard::of_this_process(&gpu_time, "a");
    let mut b = Guard::of_this_process(&gpu_time, "b");
    assert!(!a.may_launch() && !b.may_launch(), "a lease is given to those who wait");
    a.begins();
    for turn in 0..3 {
        assert!(turn == 0 || matches!(a.lease(), Lease::Capped(_)), "{:?}", a.lease());
        // The holder wants more, and so does the other.
        a.waits(true);
        b.waits(true);
        eventually("the end of the turn", || !a.may_launch());
        assert!(!b.may_launch(), "the first one has not drained");
        a.drains();
        eventually("the next turn", || b.may_launch());
        b.launches();
        (a, b) = (b, a);
    }
    let times = gpu_time.times();
    assert!(times["a"].used > 0 && times["b"].used > 0, "{times:?}");
    assert!(times["a"].turns >= 2, "{times:?}");
}

#[test]
fn a_share_alone_counts_nothing_after_a_while() {
    let gpu_time = start(vec![share("a", "GPU-1", 50), share("b", "GPU-1", 50)]);
    let mut a = Guard::of_this_process(&gpu_time, "a");
    let b = Guard::of_this_process(&gpu_time, "b");
    a.begins();
    eventually("freedom", || a.lease() == Lease::Free);
    b.waits(true);
    eventually("the end of freedom", || !a.may_launch());
    a.drains();
    eventually("a turn", || b.may_launch());
}

#[test]
fn gpus_do_not_wait_for_each_other() {
    let gpu_time = start(vec![share("a", "GPU-1", 50), share("b", "GPU-2", 50)]);
    let mut a = Guard::of_this_process(&gpu_time, "a");
    let mut b = Guard::of_this_process(&gpu_time, "b");
    a.begins();
    b.begins();
    assert!(a.may_launch());
}

#[test]
fn the_shares_of_one_claim_have_their_leases_together() {
    let shares = vec![
        member("one-0", "GPU-1", "one"),
        member("one-1", "GPU-2", "one"),
        member("other-0", "GPU-1", "other"),
        member("other-1", "GPU-2", "other"),
    ];
    let gpu_time = start(shares);
    let join = |share| Guard::of_this_process(&gpu_time, share);
    let mut one = [join("one-0"), join("one-1")];
    let mut other = [join("other-0"), join("other-1")];
    for guard in one.iter_mut().chain(&mut other) {
        guard.begins();
        guard.waits(true);
        guard.drains();
    }
    let (mut last, mut turns) = (None, 0);
    eventually("turns of both", || {
        let has = |guards: &[Guard; 2]| guards.iter().filter(|guard| guard.may_launch()).count();
        let now = match (has(&one), has(&other)) {
            (2, 0) => Some(0),
            (0, 2) => Some(1),
            // Their leases are read one after the other.
            _ => None,
        };
        if now.is_some() && now != last {
            turns += 1;
            last = now;
        }
        let holders = if now == Some(0) { &mut one } else { &mut other };
        for guard in holders.iter_mut().filter(|_| now.is_some()) {
            guard.launches();
            guard.drains();
        }
        turns > 4
    });
}

#[test]
fn all_processes_of_a_share_hold_its_lease() {
    let gpu_time = start(vec![share("a", "GPU-1", 50), share("b", "GPU-1", 50)]);
    let mut one = Guard::of_this_process(&gpu_time, "a");
    let other = Guard::of_this_process(&gpu_time, "a");
    let mut b = Guard::of_this_process(&gpu_time, "b");
    one.begins();
    assert_eq!(one.lease(), other.lease());
    b.waits(true);
    eventually("the end of the turn", || !one.may_launch() && !other.may_launch());
    one.drains();
    eventually("the next turn", || b.may_launch());
    b.launches();
}

fn child() -> Child {
    Command::new("sleep").arg("600").spawn().unwrap()
}

#[test]
fn the_lease_of_a_killed_process_is_given_to_the_next() {
    let gpu_time = start(vec![share("a", "GPU-1", 50), share("b", "GPU-1", 50)]);
    let mut process = child();
    let mut a = Guard::join(&gpu_time, "a", process.id());
    let b = Guard::of_this_process(&gpu_time, "b");
    a.begins();
    b.waits(true);
    eventually("the end of the turn", || !a.may_launch());
    // It never drains, and a child that it forked may keep its connection.
    process.kill().unwrap();
    eventually("the lease", || b.may_launch());
    process.wait().unwrap();
    drop(a.joined.take());
    assert!(b.may_launch());
}

#[test]
fn a_process_that_closes_its_doorbell_has_its_turn() {
    let gpu_time = start(vec![share("a", "GPU-1", 50), share("b", "GPU-1", 50)]);
    let mut a = Guard::of_this_process(&gpu_time, "a");
    a.doorbell = None;
    a.begins();
    assert!(a.may_launch());
}

#[test]
fn a_process_that_rings_without_end_keeps_no_other_waiting() {
    let gpu_time = start(vec![share("a", "GPU-1", 50), share("b", "GPU-2", 50)]);
    let loud = Guard::of_this_process(&gpu_time, "a");
    let mut b = Guard::of_this_process(&gpu_time, "b");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let ends = Instant::now() + Duration::from_millis(300);
            while Instant::now() < ends {
                loud.waits(true);
            }
        });
        b.begins();
        assert!(b.may_launch());
    });
}

#[test]
fn a_process_without_a_known_share_needs_no_lease() {
    let gpu_time = start(vec![share("a", "GPU-1", 50)]);
    let mut a = Guard::of_this_process(&gpu_time, "a");
    let other = Guard::of_this_process(&gpu_time, "other");
    eventually("no lease is needed", || other.lease() == Lease::Free);
    a.begins();
    // The share is given back while its process ends.
    gpu_time.set_shares(Vec::new());
    eventually("no lease is needed", || a.lease() == Lease::Free);
    // Shares may become known after their processes.
    gpu_time.set_shares(vec![share("a", "GPU-1", 50), share("other", "GPU-1", 50)]);
    eventually("leases are needed", || !other.may_launch());
}

#[test]
fn without_the_thread_no_process_needs_a_lease() {
    let gpu_time = start(vec![share("a", "GPU-1", 50), share("b", "GPU-1", 50)]);
    let mut a = Guard::of_this_process(&gpu_time, "a");
    let b = Guard::of_this_process(&gpu_time, "b");
    a.begins();
    drop(gpu_time);
    a.joined = None;
    eventually("the process that left needs none", || a.lease() == Lease::Free);
    assert!(!b.may_launch());
    let page = b.page.try_clone().unwrap();
    drop(b);
    let mut word = [0; 4];
    eventually("the last one needs none", || {
        rustix::io::pread(&page, &mut word, offset_of!(LeasePage, lease) as u64).unwrap();
        LeaseWord(u32::from_ne_bytes(word)).lease() == Lease::Free
    });
}

#[test]
fn a_process_that_is_stopped_while_it_waits_keeps_no_other_waiting() {
    let gpu_time = start(vec![share("a", "GPU-1", 50), share("b", "GPU-1", 50)]);
    let a = Guard::of_this_process(&gpu_time, "a");
    let mut b = Guard::of_this_process(&gpu_time, "b");
    // It runs nothing in its turns.
    a.waits(true);
    eventually("a turn", || a.may_launch());
    for _ in 0..3 {
        b.begins();
        b.waits(true);
        eventually("the end of the turn", || !b.may_launch());
        b.drains();
    }
}

#[test]
fn a_process_that_has_ended_cannot_join() {
    let gpu_time = start(vec![share("a", "GPU-1", 50)]);
    let mut process = child();
    process.kill().unwrap();
    process.wait().unwrap();
    let (_own, agent) = UnixStream::pair().unwrap();
    gpu_time.join("a", process.id(), agent).unwrap_err();
}
