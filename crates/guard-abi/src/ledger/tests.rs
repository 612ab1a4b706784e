mod race;

use std::cell::Cell;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const LIMIT: u64 = 1000;

/// A share of a few slots, seen by one process at a time; who owns which slot is kept beside it, as the
/// kernel keeps it.
struct Share {
    high: AtomicU64,
    used: Vec<AtomicU64>,
    untracked: u64,
    owned: Vec<Cell<bool>>,
}

impl Share {
    fn new(slots: usize) -> Self {
        Self {
            high: AtomicU64::new(0),
            used: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            untracked: 0,
            owned: std::vec![Cell::new(false); slots],
        }
    }

    fn entered(&self) -> usize {
        enter(self, self).expect("a free slot")
    }

    fn admit(&self, slot: usize, bytes: u64) -> Result<(), Refused> {
        admit(self, slot, bytes, |_| {
            reap(self, self, slot);
        })
    }

    /// The process of a slot ends: the kernel drops the lock, and nothing else happens.
    fn dies(&self, slot: usize) {
        self.owned[slot].set(false);
    }

    fn used(&self, slot: usize) -> u64 {
        self.used[slot].load(Ordering::SeqCst)
    }
}

impl Book for Share {
    type Word = AtomicU64;

    fn slots(&self) -> usize {
        self.used.len()
    }

    fn high(&self) -> &AtomicU64 {
        &self.high
    }

    fn used(&self, slot: usize) -> &AtomicU64 {
        &self.used[slot]
    }

    fn limit(&self) -> u64 {
        LIMIT
    }

    fn untracked(&self) -> u64 {
        self.untracked
    }
}

impl Owners for Share {
    fn take(&self, slot: usize) -> bool {
        !self.owned[slot].replace(true)
    }

    fn give_back(&self, slot: usize) {
        self.owned[slot].set(false);
    }
}

#[test]
fn a_share_is_granted_to_its_last_byte_and_no_further() {
    let share = Share::new(4);
    let slot = share.entered();
    assert_eq!(share.admit(slot, LIMIT - 1), Ok(()));
    assert_eq!(share.admit(slot, 1), Ok(()));
    assert_eq!(share.admit(slot, 1), Err(Refused { used: LIMIT }));
    assert_eq!(total(&share), LIMIT);
    release(&share, slot, 1);
    assert_eq!(share.admit(slot, 1), Ok(()));
}

#[test]
fn processes_of_a_share_count_together() {
    let share = Share::new(4);
    let (first, second) = (share.entered(), share.entered());
    assert_ne!(first, second);
    assert_eq!(share.admit(first, 600), Ok(()));
    assert_eq!(share.admit(second, 401), Err(Refused { used: 600 }));
    assert_eq!(share.admit(second, 400), Ok(()));
    assert_eq!((share.used(first), share.used(second)), (600, 400));
}

#[test]
fn what_is_not_in_the_slots_counts_too() {
    let share = Share { untracked: 900, ..Share::new(2) };
    let slot = share.entered();
    assert_eq!(share.admit(slot, 101), Err(Refused { used: 900 }));
    assert_eq!(share.admit(slot, 100), Ok(()));
}

#[test]
fn what_was_taken_already_is_counted_beyond_the_limit_and_then_nothing_fits() {
    let share = Share::new(2);
    let slot = share.entered();
    force(&share, slot, LIMIT + 50);
    assert_eq!(total(&share), LIMIT + 50);
    assert_eq!(share.admit(slot, 1), Err(Refused { used: LIMIT + 50 }));
    release(&share, slot, 51);
    assert_eq!(share.admit(slot, 1), Ok(()));
}

#[test]
fn nothing_is_admitted_where_the_limit_is_reached_not_even_a_wish_that_would_wrap() {
    let share = Share::new(2);
    let slot = share.entered();
    assert_eq!(share.admit(slot, 300), Ok(()));
    for bytes in [LIMIT + 1, u64::MAX - 1, u64::MAX] {
        assert_eq!(share.admit(slot, bytes), Err(Refused { used: 300 }), "{bytes}");
        assert_eq!(share.used(slot), 300);
    }
}

#[test]
fn a_process_finds_no_slot_where_all_have_owners_and_the_dead_ones_where_not() {
    let share = Share::new(2);
    let (first, second) = (share.entered(), share.entered());
    assert_eq!(enter(&share, &share), None);
    assert_eq!(share.admit(first, 700), Ok(()));
    share.dies(first);
    assert_eq!(enter(&share, &share), Some(first));
    assert_eq!(share.used(first), 0);
    assert_eq!(share.admit(second, LIMIT), Ok(()));
}

#[test]
fn the_dead_are_emptied_when_room_is_needed() {
    let share = Share::new(8);
    let slots: Vec<_> = (0..5).map(|_| share.entered()).collect();
    for slot in &slots {
        assert_eq!(share.admit(*slot, 200), Ok(()));
    }
    share.dies(slots[1]);
    share.dies(slots[4]);
    assert_eq!(share.admit(slots[0], 400), Ok(()));
    assert_eq!(total(&share), LIMIT);
    assert_eq!((share.used(slots[1]), share.used(slots[2]), share.used(slots[4])), (0, 200, 0));
    assert_eq!(reap(&share, &share, slots[0]), 0);
    assert!(!share.owned[slots[1]].get());
}

#[test]
fn a_reaper_leaves_its_own_slot_alone() {
    let share = Share::new(2);
    let slot = share.entered();
    assert_eq!(share.admit(slot, 200), Ok(()));
    // A lock of one's own is no obstacle to taking it again.
    share.dies(slot);
    assert_eq!(reap(&share, &share, slot), 0);
    assert_eq!(share.used(slot), 200);
}

#[test]
fn noise_in_the_file_is_never_room() {
    let share = Share::new(4);
    let slot = share.entered();
    share.high.store(u64::MAX, Ordering::SeqCst);
    share.used[2].store(u64::MAX, Ordering::SeqCst);
    share.used[3].store(u64::MAX, Ordering::SeqCst);
    assert_eq!(total(&share), u64::MAX);
    share.owned[2].set(true);
    assert!(share.admit(slot, 1).is_err());
    assert_eq!(share.used(slot), 0);
}

/// What processes do to a share, one after another.
#[derive(Clone, Debug)]
enum Step {
    Enter,
    Admit { who: usize, bytes: u64 },
    Release { who: usize },
    Die { who: usize },
}

fn any_step() -> impl Strategy<Value = Step> {
    let who = 0..6_usize;
    prop_oneof![
        Just(Step::Enter),
        (who.clone(), 0..LIMIT + 100).prop_map(|(who, bytes)| Step::Admit { who, bytes }),
        (who.clone(), 0..LIMIT / 4).prop_map(|(who, bytes)| Step::Admit { who, bytes }),
        who.clone().prop_map(|who| Step::Release { who }),
        who.prop_map(|who| Step::Die { who }),
    ]
}

proptest! {
    /// One after another nobody is refused but for want of room: the dead count for nothing.
    #[test]
    fn processes_that_take_turns_get_what_a_plain_sum_would_give_them(
        steps in prop::collection::vec(any_step(), 0..120),
    ) {
        let share = Share::new(6);
        let mut living: Vec<(usize, Vec<u64>)> = Vec::new();
        for step in steps {
            let held = |living: &[(usize, Vec<u64>)]| living.iter().flat_map(|it| &it.1).sum::<u64>();
            let before = held(&living);
            match step {
                Step::Enter => {
                    let slot = enter(&share, &share);
                    prop_assert_eq!(slot.is_some(), living.len() < 6);
                    living.extend(slot.map(|slot| (slot, Vec::new())));
                }
                Step::Admit { who, bytes } if who < living.len() => {
                    let granted = share.admit(living[who].0, bytes);
                    if before + bytes <= LIMIT {
                        prop_assert_eq!(granted, Ok(()));
                        living[who].1.push(bytes);
                    } else {
                        // What no share could hold is refused without a look at who lives.
                        let used = granted.expect_err("no room").used;
                        prop_assert!(used == before || bytes > LIMIT && used >= before);
                    }
                }
                Step::Release { who } if who < living.len() => {
                    if let Some(bytes) = living[who].1.pop() {
                        release(&share, living[who].0, bytes);
                    }
                }
                Step::Die { who } if who < living.len() => share.dies(living.remove(who).0),
                _ => {}
            }
            for (slot, held) in &living {
                prop_assert_eq!(share.used(*slot), held.iter().sum::<u64>());
            }
        }
    }
}
