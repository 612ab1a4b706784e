mod race;

use std::cell::Cell;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const LIMIT: u64 = 1000;

/// A share of a few slots, used by one process at a time. The owners of slots are stored beside it,
/// as the kernel does.
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

    fn claim_slot(&self) -> usize {
        claim_slot(self, self).expect("a free slot")
    }

    fn try_charge(&self, slot: usize, bytes: u64) -> Result<(), LimitExceeded> {
        try_charge(self, slot, bytes, |_| {
            reap(self, self, slot);
        })
    }

    /// The process of a slot ends: the kernel drops its lock, and nothing else happens.
    fn kill(&self, slot: usize) {
        self.owned[slot].set(false);
    }

    fn used(&self, slot: usize) -> u64 {
        self.used[slot].load(Ordering::SeqCst)
    }
}

impl SlotTable for Share {
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

impl SlotLocks for Share {
    fn try_lock(&self, slot: usize) -> bool {
        !self.owned[slot].replace(true)
    }

    fn unlock(&self, slot: usize) {
        self.owned[slot].set(false);
    }
}

#[test]
fn a_share_is_granted_to_its_last_byte_and_no_further() {
    let share = Share::new(4);
    let slot = share.claim_slot();
    assert_eq!(share.try_charge(slot, LIMIT - 1), Ok(()));
    assert_eq!(share.try_charge(slot, 1), Ok(()));
    assert_eq!(share.try_charge(slot, 1), Err(LimitExceeded { used: LIMIT }));
    assert_eq!(total(&share), LIMIT);
    release(&share, slot, 1);
    assert_eq!(share.try_charge(slot, 1), Ok(()));
}

#[test]
fn processes_of_a_share_count_together() {
    let share = Share::new(4);
    let (first, second) = (share.claim_slot(), share.claim_slot());
    assert_ne!(first, second);
    assert_eq!(share.try_charge(first, 600), Ok(()));
    assert_eq!(share.try_charge(second, 401), Err(LimitExceeded { used: 600 }));
    assert_eq!(share.try_charge(second, 400), Ok(()));
    assert_eq!((share.used(first), share.used(second)), (600, 400));
}

#[test]
fn what_is_not_in_the_slots_counts_too() {
    let share = Share { untracked: 900, ..Share::new(2) };
    let slot = share.claim_slot();
    assert_eq!(share.try_charge(slot, 101), Err(LimitExceeded { used: 900 }));
    assert_eq!(share.try_charge(slot, 100), Ok(()));
}

#[test]
fn unchecked_charges_count_beyond_the_limit() {
    let share = Share::new(2);
    let slot = share.claim_slot();
    charge_unchecked(&share, slot, LIMIT + 50);
    assert_eq!(total(&share), LIMIT + 50);
    assert_eq!(share.try_charge(slot, 1), Err(LimitExceeded { used: LIMIT + 50 }));
    release(&share, slot, 51);
    assert_eq!(share.try_charge(slot, 1), Ok(()));
}

#[test]
fn an_overflowing_charge_is_refused() {
    let share = Share::new(2);
    let slot = share.claim_slot();
    assert_eq!(share.try_charge(slot, 300), Ok(()));
    for bytes in [LIMIT + 1, u64::MAX - 1, u64::MAX] {
        assert_eq!(share.try_charge(slot, bytes), Err(LimitExceeded { used: 300 }), "{bytes}");
        assert_eq!(share.used(slot), 300);
    }
}

#[test]
fn only_free_slots_and_slots_of_the_dead_can_be_claimed() {
    let share = Share::new(2);
    let (first, second) = (share.claim_slot(), share.claim_slot());
    assert_eq!(claim_slot(&share, &share), None);
    assert_eq!(share.try_charge(first, 700), Ok(()));
    share.kill(first);
    assert_eq!(claim_slot(&share, &share), Some(first));
    assert_eq!(share.used(first), 0);
    assert_eq!(share.try_charge(second, LIMIT), Ok(()));
}

#[test]
fn the_dead_are_emptied_when_room_is_needed() {
    let share = Share::new(8);
    let slots: Vec<_> = (0..5).map(|_| share.claim_slot()).collect();
    for slot in &slots {
        assert_eq!(share.try_charge(*slot, 200), Ok(()));
    }
    share.kill(slots[1]);
    share.kill(slots[4]);
    assert_eq!(share.try_charge(slots[0], 400), Ok(()));
    assert_eq!(total(&share), LIMIT);
    assert_eq!((share.used(slots[1]), share.used(slots[2]), share.used(slots[4])), (0, 200, 0));
    assert_eq!(reap(&share, &share, slots[0]), 0);
    assert!(!share.owned[slots[1]].get());
}

#[test]
fn a_reaper_leaves_its_own_slot_alone() {
    let share = Share::new(2);
    let slot = share.claim_slot();
    assert_eq!(share.try_charge(slot, 200), Ok(()));
    // A process can take its own lock again.
    share.kill(slot);
    assert_eq!(reap(&share, &share, slot), 0);
    assert_eq!(share.used(slot), 200);
}

#[test]
fn noise_in_the_file_is_never_room() {
    let share = Share::new(4);
    let slot = share.claim_slot();
    share.high.store(u64::MAX, Ordering::SeqCst);
    share.used[2].store(u64::MAX, Ordering::SeqCst);
    share.used[3].store(u64::MAX, Ordering::SeqCst);
    assert_eq!(total(&share), u64::MAX);
    share.owned[2].set(true);
    assert!(share.try_charge(slot, 1).is_err());
    assert_eq!(share.used(slot), 0);
}

/// Steps of processes on a share, in sequence.
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
    /// In sequence, a charge is refused only for lack of memory: dead processes count for nothing.
    #[test]
    fn sequential_charges_equal_a_plain_sum(
        steps in prop::collection::vec(any_step(), 0..120),
    ) {
        let share = Share::new(6);
        let mut living: Vec<(usize, Vec<u64>)> = Vec::new();
        for step in steps {
            let held = |living: &[(usize, Vec<u64>)]| living.iter().flat_map(|it| &it.1).sum::<u64>();
            let before = held(&living);
            match step {
                Step::Enter => {
                    let slot = claim_slot(&share, &share);
                    prop_assert_eq!(slot.is_some(), living.len() < 6);
                    living.extend(slot.map(|slot| (slot, Vec::new())));
                }
                Step::Admit { who, bytes } if who < living.len() => {
                    let granted = share.try_charge(living[who].0, bytes);
                    if before + bytes <= LIMIT {
                        prop_assert_eq!(granted, Ok(()));
                        living[who].1.push(bytes);
                    } else {
                        // A charge above the limit is refused without a check for dead processes.
                        let used = granted.expect_err("no room").used;
                        prop_assert!(used == before || bytes > LIMIT && used >= before);
                    }
                }
                Step::Release { who } if who < living.len() => {
                    if let Some(bytes) = living[who].1.pop() {
                        release(&share, living[who].0, bytes);
                    }
                }
                Step::Die { who } if who < living.len() => share.kill(living.remove(who).0),
                _ => {}
            }
            for (slot, held) in &living {
                prop_assert_eq!(share.used(*slot), held.iter().sum::<u64>());
            }
        }
    }
}
