//! Checks of single decisions, and of a model with shares that allocate, free, rest and end at random.

use super::*;

mod model;
mod waits;

const GIB: u64 = 1 << 30;

/// Shares and what they may have.
#[derive(Default)]
struct Gpu {
    shares: BTreeMap<String, ShareMemory>,
    granted: BTreeMap<String, u64>,
    answered: Vec<String>,
    at: Duration,
}

struct Tenants<'a>(
    &'a BTreeMap<String, ShareMemory>,
    &'a mut BTreeMap<String, u64>,
    &'a mut Vec<String>,
);

impl Grants for Tenants<'_> {
    fn grant(&mut self, share: &str, bytes: u64) -> u64 {
        let bytes = bytes.max(self.0[share].used);
        self.1.insert(share.to_owned(), bytes);
        bytes
    }

    fn answer(&mut self, share: &str) {
        self.2.push(share.to_owned());
    }
}

impl Gpu {
    /// A GPU of 80 GiB with shares of so many GiB: request, limit, used.
    fn with(shares: &[(&str, u64, u64, u64)]) -> (Self, GpuMemory) {
        let shares = shares.iter().map(|(name, request, limit, used)| {
            let share = ShareMemory {
                request: request * GIB,
                limit: limit * GIB,
                used: used * GIB,
                driver: Some(used * GIB),
                processes: 1,
                ..ShareMemory::default()
            };
            ((*name).to_owned(), share)
        });
        let gpu = Self { shares: shares.collect(), ..Self::default() };
        (gpu, GpuMemory::new(PlanSettings { chunk: 0, reserve: 0, ..PlanSettings::default() }))
    }

    fn share(&mut self, name: &str) -> &mut ShareMemory {
        self.shares.get_mut(name).expect("a share")
    }

    fn needs(&mut self, name: &str, gibibytes: u64) {
        self.share(name).need = Some(gibibytes * GIB);
    }

    fn step(&mut self, memory: &mut GpuMemory, seconds: u64) -> Vec<Move> {
        self.at += Duration::from_secs(seconds);
        self.answered.clear();
        let mut tenants = Tenants(&self.shares, &mut self.granted, &mut self.answered);
        memory.step(self.at, 80 * GIB, &self.shares, &mut tenants)
    }

    /// Ends the move of a share to the host.
    fn leaves(&mut self, memory: &mut GpuMemory, name: &str) {
        memory.left(name, self.at, true);
        self.share(name).driver = Some(0);
    }

    fn comes_back(&mut self, memory: &mut GpuMemory, name: &str) {
        memory.returned(name, self.at, true);
        let used = self.share(name).used;
        self.share(name).driver = Some(used);
    }

    fn granted(&self, name: &str) -> u64 {
        self.granted[name] / GIB
    }
}

fn out(name: &str, gibibytes: u64) -> Move {
    Move::Out(name.to_owned(), gibibytes * GIB)
}

#[test]
fn a_share_has_its_request_and_gets_free_memory() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 70, 5), ("b", 20, 20, 0)]);
    assert_eq!(gpu.step(&mut memory, 0), []);
    assert_eq!(gpu.granted("a"), 10);
    gpu.needs("a", 50);
    assert_eq!(gpu.step(&mut memory, 1), []);
    assert_eq!((gpu.granted("a"), gpu.answered.as_slice()), (55, &["a".to_owned()][..]));
    // The other's request is not lent: it cannot be asked to wait.
    gpu.share("a").used = 55 * GIB;
    gpu.needs("a", 10);
    assert_eq!(gpu.step(&mut memory, 1), []);
    assert_eq!((gpu.granted("a"), gpu.answered.as_slice()), (55, &["a".to_owned()][..]));
}

#[test]
fn only_what_can_be_moved_leaves_and_comes_back() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 50), ("b", 60, 70, 30)]);
    gpu.share("a").movable = Some(42 * GIB);
    gpu.step(&mut memory, 0);
    gpu.needs("b", 20);
    assert_eq!(gpu.step(&mut memory, 1), [out("a", 42)]);
    memory.left("a", gpu.at, true);
    assert_eq!(memory.parts("a"), Some((42 * GIB, 8 * GIB)));
    // The driver counts no less than what stays, so the rest of the GPU is free.
    gpu.share("a").driver = Some(8 * GIB);
    gpu.step(&mut memory, 1);
    assert_eq!((gpu.granted("b"), gpu.answered.as_slice()), (60, &["b".to_owned()][..]));
    gpu.share("b").used = 50 * GIB;
    gpu.share("b").driver = Some(50 * GIB);
    gpu.share("b").need = None;
    gpu.share("a").is_waiting = true;
    assert_eq!(gpu.step(&mut memory, 5), [], "there is room for a part of it only");
    gpu.share("b").used = 25 * GIB;
    gpu.share("b").driver = Some(25 * GIB);
    assert_eq!(gpu.step(&mut memory, 5), [Move::In("a".to_owned())]);
    assert_eq!(gpu.granted("a"), 50);
}

#[test]
fn a_share_whose_memory_stays_gets_no_more_than_its_request() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 12), ("b", 60, 70, 30)]);
    gpu.share("a").movable = Some(GIB);
    gpu.step(&mut memory, 0);
    gpu.needs("a", 5);
    gpu.step(&mut memory, 1);
    assert_eq!((gpu.granted("a"), gpu.answered.as_slice()), (12, &["a".to_owned()][..]));
    // Nothing of it can leave.
    gpu.share("a").need = None;
    gpu.share("a").movable = Some(0);
    gpu.needs("b", 40);
    assert_eq!(gpu.step(&mut memory, 1), []);
}

#[test]
fn some_memory_stays_free_while_any_is_lent() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 20), ("b", 60, 70, 50)]);
    memory.settings.reserve = GIB;
    gpu.step(&mut memory, 0);
    gpu.needs("b", 10);
    // 60 and 20 would fit, but for the driver's own.
    assert_eq!(gpu.step(&mut memory, 1), [out("a", 20)]);
    gpu.step(&mut memory, 1);
    assert!(gpu.answered.is_empty(), "nothing is free yet");
    gpu.leaves(&mut memory, "a");
    gpu.step(&mut memory, 1);
    assert_eq!((gpu.granted("b"), gpu.answered.as_slice()), (60, &["b".to_owned()][..]));
    // Shares within their requests may fill the GPU.
    let (mut gpu, mut memory) = Gpu::with(&[("a", 20, 30, 20), ("b", 60, 70, 50)]);
    memory.settings.reserve = GIB;
    gpu.step(&mut memory, 0);
    gpu.needs("b", 10);
    assert_eq!(gpu.step(&mut memory, 1), []);
    assert_eq!(gpu.granted("b"), 60);
}

#[test]
fn a_share_that_comes_while_its_memory_is_lent_gets_it() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 60)]);
    gpu.step(&mut memory, 0);
    assert_eq!(gpu.step(&mut memory, 1), []);
    let gib = |bytes| bytes * GIB;
    let plain = ShareMemory {
        request: gib(30),
        limit: gib(30),
        driver: Some(0),
        processes: 0,
        ..ShareMemory::default()
    };
    gpu.shares.insert("plain".to_owned(), plain);
    assert_eq!(gpu.step(&mut memory, 1), [out("a", 60)], "before the new one asks for anything");
    // What another one has not used yet goes back without a move.
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 20)]);
    gpu.step(&mut memory, 0);
    gpu.needs("a", 50);
    gpu.step(&mut memory, 1);
    gpu.share("a").need = None;
    gpu.shares.insert("plain".to_owned(), plain);
    assert_eq!(gpu.step(&mut memory, 5), []);
    assert_eq!(gpu.granted("a"), 50);
}

#[test]
fn a_share_within_its_request_waits_for_a_borrower_that_rests() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 60), ("b", 40, 80, 20)]);
    gpu.step(&mut memory, 0);
    gpu.needs("b", 20);
    assert_eq!(gpu.step(&mut memory, 5), [out("a", 60)]);
    memory.left("a", gpu.at, false);
    for _ in 0..5 {
        assert_eq!(gpu.step(&mut memory, 1), []);
        assert!(gpu.answered.is_empty(), "it may be moved later");
    }
    assert_eq!(gpu.step(&mut memory, 30), [out("a", 60)]);
}

#[test]
fn a_ledger_that_a_container_forged_takes_nothing_from_others() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 5), ("forged", 20, 20, 5)]);
    gpu.share("forged").used = u64::MAX;
    gpu.step(&mut memory, 0);
    gpu.needs("a", 50);
    assert_eq!(gpu.step(&mut memory, 1), []);
    assert_eq!((gpu.granted("a"), gpu.answered.as_slice()), (55, &["a".to_owned()][..]));
}

#[test]
fn what_the_driver_still_counts_is_not_given_away() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 60), ("b", 40, 80, 20)]);
    gpu.step(&mut memory, 0);
    gpu.needs("b", 20);
    assert_eq!(gpu.step(&mut memory, 5), [out("a", 60)]);
    memory.left("a", gpu.at, true);
    assert_eq!(gpu.step(&mut memory, 1), []);
    assert!(gpu.answered.is_empty());
    gpu.share("a").driver = None;
    gpu.step(&mut memory, 1);
    assert!(gpu.answered.is_empty(), "what it does not tell is not free");
    gpu.share("a").driver = Some(0);
    gpu.step(&mut memory, 1);
    assert_eq!(gpu.answered, ["b"]);
}

#[test]
fn a_share_whose_threads_are_not_seen_to_wait_returns_by_turns() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 60), ("b", 40, 80, 20)]);
    gpu.step(&mut memory, 0);
    gpu.needs("b", 20);
    gpu.step(&mut memory, 5);
    gpu.leaves(&mut memory, "a");
    gpu.step(&mut memory, 1);
    *gpu.share("b") = ShareMemory {
        used: 60 * GIB,
        driver: Some(60 * GIB),
        need: None,
        is_active: true,
        ..*gpu.share("b")
    };
    memory.accounts.get_mut("b").unwrap().granted = 60 * GIB;
    assert_eq!(gpu.step(&mut memory, 300), []);
    assert_eq!(gpu.step(&mut memory, 301), [out("b", 60)]);
}

#[test]
fn an_unused_request_is_lent_and_had_back() {
    let (mut gpu, mut memory) = Gpu::with(&[("idle", 40, 80, 2), ("busy", 40, 80, 40)]);
    gpu.step(&mut memory, 0);
    assert_eq!(gpu.granted("idle"), 40);
    gpu.needs("busy", 30);
    assert_eq!(gpu.step(&mut memory, 1), []);
    assert_eq!((gpu.granted("busy"), gpu.granted("idle")), (70, 10));
    *gpu.share("busy") = ShareMemory {
        used: 70 * GIB,
        driver: Some(70 * GIB),
        need: None,
        is_active: true,
        ..*gpu.share("busy")
    };
    // Within its request a share takes any victim, even one that works.
    gpu.needs("idle", 20);
    assert_eq!(gpu.step(&mut memory, 1), [out("busy", 70)]);
    assert!(gpu.answered.is_empty() && memory.is_suspended("busy"));
    assert_eq!(gpu.step(&mut memory, 1), [], "it is on its way");
    memory.left("busy", gpu.at, true);
    assert_eq!(gpu.step(&mut memory, 1), [], "the driver still counts it");
    assert!(gpu.answered.is_empty());
    gpu.leaves(&mut memory, "busy");
    assert_eq!(gpu.step(&mut memory, 1), []);
    assert_eq!((gpu.granted("idle"), gpu.answered.as_slice()), (40, &["idle".to_owned()][..]));
    assert_eq!(memory.swapped("busy"), 70 * GIB);
}

#[test]
fn a_share_within_its_request_is_never_moved() {
    let (mut gpu, mut memory) = Gpu::with(&[("within", 40, 80, 40), ("above", 20, 80, 40)]);
    gpu.step(&mut memory, 0);
    for _ in 0..100 {
        gpu.needs("above", 30);
        assert_eq!(gpu.step(&mut memory, 1), []);
    }
    assert!(gpu.answered.contains(&"above".to_owned()), "it cannot have it");
}

#[test]
fn a_share_above_its_request_waits_for_one_to_be_idle_and_is_refused() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 50), ("b", 10, 80, 20)]);
    gpu.share("a").is_active = true;
    gpu.step(&mut memory, 0);
    gpu.needs("b", 20);
    for _ in 0..3 {
        assert_eq!(gpu.step(&mut memory, 1), []);
        assert!(gpu.answered.is_empty() && memory.is_short());
    }
    gpu.step(&mut memory, 1);
    assert_eq!(gpu.answered, ["b"], "the other one works on");
    // Once it rests, it is moved.
    gpu.share("b").need = None;
    gpu.step(&mut memory, 1);
    gpu.share("a").is_active = false;
    gpu.needs("b", 20);
    assert_eq!(gpu.step(&mut memory, 1), []);
    assert_eq!(gpu.step(&mut memory, 1), [out("a", 50)]);
}

#[test]
fn shares_that_do_not_fit_together_take_turns() {
    let (mut gpu, mut memory) =
        Gpu::with(&[("a", 20, 40, 40), ("b", 20, 40, 40), ("c", 20, 40, 0)]);
    for name in ["a", "b", "c"] {
        gpu.share(name).is_active = true;
    }
    gpu.step(&mut memory, 0);
    gpu.needs("c", 20);
    assert_eq!(gpu.step(&mut memory, 1), [out("a", 40)]);
    gpu.leaves(&mut memory, "a");
    gpu.share("a").is_waiting = true;
    gpu.step(&mut memory, 1);
    *gpu.share("c") = ShareMemory { used: 20 * GIB, need: Some(20 * GIB), ..*gpu.share("c") };
    assert_eq!(gpu.step(&mut memory, 1), []);
    assert_eq!(gpu.granted("c"), 40);
    *gpu.share("c") =
        ShareMemory { used: 40 * GIB, driver: Some(40 * GIB), need: None, ..*gpu.share("c") };
    // It waits for the turn of the one that has been there for longest.
    let mut moved = Vec::new();
    while moved.is_empty() && gpu.at < Duration::from_mins(1) {
        moved = gpu.step(&mut memory, 1);
    }
    assert_eq!((moved, gpu.at), (vec![out("b", 40)], Duration::from_secs(30)));
    gpu.leaves(&mut memory, "b");
    gpu.share("b").is_waiting = true;
    // The third one has had its turn, too.
    assert_eq!(gpu.step(&mut memory, 1), [Move::In("a".to_owned()), out("c", 40)]);
    assert_eq!(gpu.granted("a"), 40, "its memory is reserved before it returns");
    gpu.comes_back(&mut memory, "a");
    gpu.share("a").is_waiting = false;
    assert!(!memory.is_suspended("a"));
}

#[test]
fn a_share_returns_by_itself_once_there_is_room() {
    let (mut gpu, mut memory) =
        Gpu::with(&[("a", 10, 80, 30), ("b", 20, 80, 5), ("c", 10, 80, 40)]);
    gpu.step(&mut memory, 0);
    gpu.needs("b", 15);
    assert_eq!(gpu.step(&mut memory, 5), [out("a", 30)]);
    gpu.leaves(&mut memory, "a");
    gpu.step(&mut memory, 1);
    *gpu.share("b") =
        ShareMemory { used: 20 * GIB, driver: Some(20 * GIB), need: None, ..*gpu.share("b") };
    assert_eq!(gpu.step(&mut memory, 100), [], "there is no room");
    *gpu.share("c") = ShareMemory { used: 30 * GIB, driver: Some(30 * GIB), ..*gpu.share("c") };
    assert_eq!(gpu.step(&mut memory, 1), [Move::In("a".to_owned())]);
}

#[test]
fn what_cannot_be_moved_gets_nothing_beyond_its_request() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 5)]);
    gpu.share("a").is_unmovable = true;
    gpu.step(&mut memory, 0);
    gpu.needs("a", 10);
    assert_eq!(gpu.step(&mut memory, 1), []);
    assert_eq!((gpu.granted("a"), gpu.answered.as_slice()), (10, &["a".to_owned()][..]));
}

#[test]
fn a_share_whose_move_failed_is_left_alone() {
    let (mut gpu, mut memory) =
        Gpu::with(&[("a", 10, 80, 40), ("b", 10, 80, 30), ("c", 20, 40, 5)]);
    gpu.step(&mut memory, 0);
    gpu.needs("c", 10);
    let moves = gpu.step(&mut memory, 5);
    assert_eq!(moves, [out("a", 40)]);
    memory.left("a", gpu.at, false);
    assert_eq!(gpu.step(&mut memory, 1), [out("b", 30)]);
    assert!(!memory.is_suspended("a"));
}

#[test]
fn a_share_that_could_not_return_tries_again() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 50)]);
    gpu.step(&mut memory, 0);
    memory.adopt_out("a", (50 * GIB, 0), gpu.at);
    gpu.share("a").driver = Some(0);
    assert_eq!(
        gpu.step(&mut memory, 1),
        [Move::In("a".to_owned())],
        "an earlier agent left it out"
    );
    memory.returned("a", gpu.at, false);
    assert_eq!(memory.swapped("a"), 50 * GIB);
    gpu.share("a").is_waiting = true;
    let mut moved = Vec::new();
    while moved.is_empty() && gpu.at < Duration::from_secs(100) {
        moved = gpu.step(&mut memory, 1);
    }
    assert_eq!(moved, [Move::In("a".to_owned())]);
}

#[test]
fn a_share_whose_processes_ended_outside_is_forgotten() {
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 50)]);
    gpu.step(&mut memory, 0);
    memory.adopt_out("a", (50 * GIB, 0), gpu.at);
    *gpu.share("a") = ShareMemory { processes: 0, used: 0, driver: Some(0), ..*gpu.share("a") };
    assert_eq!(gpu.step(&mut memory, 1), []);
    assert_eq!((memory.swapped("a"), memory.is_suspended("a"), gpu.granted("a")), (0, false, 10));
}

#[test]
fn what_a_broken_move_left_on_the_gpu_is_not_counted_twice() {
    // An agent was killed after it had written the record, and before a byte had moved.
    let (mut gpu, mut memory) = Gpu::with(&[("a", 10, 80, 50), ("b", 20, 20, 0)]);
    gpu.step(&mut memory, 0);
    memory.adopt_out("a", (50 * GIB, 0), gpu.at);
    assert_eq!(gpu.step(&mut memory, 1), [Move::In("a".to_owned())]);
    assert_eq!(gpu.granted("a"), 50);
    memory.returned("a", gpu.at, true);
    assert!(!memory.is_suspended("a"));
}

#[test]
fn a_critical_share_is_no_victim_of_a_lower_class() {
    let (mut gpu, mut memory) = Gpu::with(&[("critical", 10, 80, 40), ("normal", 10, 80, 30)]);
    gpu.share("critical").class = ShareClass::LatencyCritical;
    gpu.step(&mut memory, 0);
    gpu.needs("normal", 20);
    assert_eq!(gpu.step(&mut memory, 10), []);
    assert_eq!(gpu.answered, ["normal"]);
    // The other way round it works.
    gpu.share("normal").need = None;
    gpu.needs("critical", 20);
    assert_eq!(gpu.step(&mut memory, 10), [out("normal", 30)]);
}
