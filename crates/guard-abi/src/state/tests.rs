use std::boxed::Box;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const GENERATION: u64 = 42;

/// A new file, as the agent creates it.
fn file(generation: u64) -> Vec<u8> {
    let mut file = vec![0; SIZE];
    let header = header(generation);
    file[..header.len()].copy_from_slice(&header);
    file
}

/// The type as a guard maps it: each word read from its offset.
fn mapped(file: &[u8]) -> Box<State> {
    assert_eq!(file.len(), SIZE);
    let word = |offset| AtomicU64::new(u64_at(file, offset));
    let half = |offset| AtomicU32::new(u32_at(file, offset));
    Box::new(State {
        magic: word(offset_of!(State, magic)),
        version: half(offset_of!(State, version)),
        slot_count: half(offset_of!(State, slot_count)),
        generation: word(offset_of!(State, generation)),
        high: word(offset_of!(State, high)),
        _reserved: Default::default(),
        slots: core::array::from_fn(|index| {
            let slot = offset_of!(State, slots) + index * size_of::<Slot>();
            Slot {
                used_bytes: word(slot + offset_of!(Slot, used_bytes)),
                context_bytes: word(slot + offset_of!(Slot, context_bytes)),
                peak_bytes: word(slot + offset_of!(Slot, peak_bytes)),
                pid: word(slot + offset_of!(Slot, pid)),
                start_time: word(slot + offset_of!(Slot, start_time)),
                pid_namespace: word(slot + offset_of!(Slot, pid_namespace)),
                refused: word(slot + offset_of!(Slot, refused)),
                unknown: word(slot + offset_of!(Slot, unknown)),
                launches: word(slot + offset_of!(Slot, launches)),
                in_flight: word(slot + offset_of!(Slot, in_flight)),
                epoch: word(slot + offset_of!(Slot, epoch)),
                _reserved: Default::default(),
            }
        }),
    })
}

fn set(file: &mut [u8], offset: usize, value: u64) {
    file[offset..][..8].copy_from_slice(&value.to_ne_bytes());
}

fn slot_offset(index: usize) -> usize {
    offset_of!(State, slots) + index * size_of::<Slot>()
}

/// Damage of a file, or its slots with a process.
fn read(file: &[u8], generation: u64) -> Result<Vec<SlotCopy>, Damage> {
    slots(file, generation).map(Iterator::collect)
}

#[test]
fn a_new_file_is_whole_for_both_readers_and_has_no_process() {
    let file = file(GENERATION);
    assert_eq!(mapped(&file).check(GENERATION), Ok(()));
    assert_eq!(read(&file, GENERATION), Ok(vec![]));
    assert_eq!(mapped(&file).high.load(Ordering::Relaxed), 0);
}

#[test]
fn a_copy_says_of_a_slot_what_the_guard_wrote_there() {
    let mut file = file(GENERATION);
    set(&mut file, offset_of!(State, high), 4);
    let expected = SlotCopy {
        index: 3,
        used_bytes: 11,
        context_bytes: 12,
        peak_bytes: 13,
        pid: 14,
        start_time: 15,
        pid_namespace: 16,
        refused: 17,
        unknown: 18,
        launches: 19,
    };
    // In the order of the layout.
    for (word, value) in (11..=19).enumerate() {
        set(&mut file, slot_offset(3) + word * 8, value);
    }
    assert_eq!(read(&file, GENERATION), Ok(vec![expected]));
    let state = mapped(&file);
    assert_eq!(state.slots[3].used_bytes.load(Ordering::Relaxed), 11);
    assert_eq!(state.slots[3].pid.load(Ordering::Relaxed), 14);
    assert_eq!(state.slots[3].launches.load(Ordering::Relaxed), 19);
}

#[test]
fn slots_without_a_process_and_beyond_the_highest_are_left_out() {
    let mut file = file(GENERATION);
    for index in [0, 2, 5] {
        set(&mut file, slot_offset(index) + offset_of!(Slot, pid), 100 + index as u64);
        set(&mut file, slot_offset(index + 1) + offset_of!(Slot, used_bytes), 1);
    }
    set(&mut file, offset_of!(State, high), 5);
    let pids: Vec<_> = read(&file, GENERATION).unwrap().iter().map(|slot| slot.pid).collect();
    assert_eq!(pids, [100, 102]);
}

#[test]
fn a_highest_slot_beyond_the_last_is_the_last() {
    let mut file = file(GENERATION);
    set(&mut file, slot_offset(SLOTS - 1) + offset_of!(Slot, pid), 1);
    for high in [SLOTS as u64, SLOTS as u64 + 1, 1 << 32, u64::MAX] {
        set(&mut file, offset_of!(State, high), high);
        assert_eq!(read(&file, GENERATION).unwrap().len(), 1, "{high}");
    }
}

#[test]
fn a_file_of_another_size_is_damaged() {
    let mut file = file(GENERATION);
    for size in [0, 8, 128, SIZE - 1] {
        assert_eq!(read(&file[..size], GENERATION), Err(Damage::Size), "{size} bytes");
    }
    file.push(0);
    assert_eq!(read(&file, GENERATION), Err(Damage::Size));
}

#[test]
fn a_file_that_is_not_the_shares_is_damaged_for_both_readers() {
    let whole = file(GENERATION);
    let cases: [(usize, &[u8], Damage); 5] = [
        (offset_of!(State, magic), b"OCTLIM\0\0", Damage::Magic),
        (offset_of!(State, magic), &[0; 8], Damage::Magic),
        (offset_of!(State, version), &9_u32.to_ne_bytes(), Damage::Version(9)),
        // The reported version is right then: the number of slots is not.
        (offset_of!(State, slot_count), &256_u32.to_ne_bytes(), Damage::Version(VERSION)),
        (offset_of!(State, generation), &43_u64.to_ne_bytes(), Damage::Generation(43)),
    ];
    for (offset, bytes, damage) in cases {
        let mut file = whole.clone();
        file[offset..][..bytes.len()].copy_from_slice(bytes);
        assert_eq!(read(&file, GENERATION), Err(damage));
        assert_eq!(mapped(&file).check(GENERATION), Err(damage));
    }
}

#[test]
fn locks_of_slots_lie_one_beside_the_other_behind_the_file() {
    assert!(lock_offset(0) > SIZE as u64);
    for slot in 1..SLOTS {
        assert_eq!(lock_offset(slot), lock_offset(slot - 1) + 1);
    }
    // File offsets are signed.
    assert!(i64::try_from(lock_offset(SLOTS)).is_ok());
}

#[test]
fn processes_write_no_line_of_one_another() {
    assert_eq!(align_of::<Slot>(), 64);
    assert_eq!(size_of::<Slot>() % 64, 0);
    assert_eq!(SIZE, 128 + SLOTS * 128);
}

proptest! {
    #[test]
    fn any_bytes_are_slots_or_damage(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        prop_assert_eq!(read(&bytes, GENERATION), Err(Damage::Size));
    }

    #[test]
    fn a_file_full_of_noise_has_no_more_processes_than_slots(
        seed: [u8; 251],
        noise in prop::collection::vec((0..160_usize, any::<u8>()), 0..8),
        high: u64,
    ) {
        // Noise after the header, of a length that is no multiple of a slot.
        let mut file = file(GENERATION);
        for (byte, noise) in file.iter_mut().skip(offset_of!(State, high)).zip(seed.iter().cycle()) {
            *byte = *noise;
        }
        set(&mut file, offset_of!(State, high), high);
        for (place, byte) in noise {
            file[place] = byte;
        }
        let copied = read(&file, GENERATION);
        prop_assert_eq!(copied.clone().map(|_| ()), mapped(&file).check(GENERATION));
        if let Ok(copied) = copied {
            prop_assert!(copied.len() <= SLOTS);
            prop_assert!(copied.iter().all(|slot| slot.pid != 0 && slot.index < SLOTS));
        }
    }
}
