use std::boxed::Box;
use std::collections::BTreeMap;

use super::*;

fn table() -> Box<Table> {
    // JUSTIFICATION: the memory of a process is created the same way.
    // SAFETY: zero bytes are an empty table.
    unsafe { Box::<Table>::new_zeroed().assume_init() }
}

fn entry(number: u64) -> Entry {
    Entry { charge: Charge::NONE, context: 0, extra: [number, 0] }
}

#[test]
fn what_was_put_in_is_found_until_it_is_taken_out() {
    let table = table();
    let mut oracle = BTreeMap::new();
    let mut random = 1_u64;
    for step in 0..200_000_u64 {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = 0x7f00_0000_0000 + (random >> 33) % 3000 * 0x20_0000;
        let kind = if random >> 60 & 1 == 0 { EntryKind::Memory } else { EntryKind::Context };
        if random >> 62 == 0 {
            let old = table.insert(kind, key, entry(step)).expect("memory");
            assert_eq!(old.map(|old| old.extra[0]), oracle.insert((kind as u8, key), step));
        } else {
            let old = table.remove(kind, key);
            assert_eq!(old.map(|old| old.extra[0]), oracle.remove(&(kind as u8, key)));
        }
    }
    let mut left = 0;
    table.sweep(|kind, key, entry| {
        assert_eq!(oracle.get(&(kind as u8, key)), Some(&entry.extra[0]));
        left += 1;
        false
    });
    assert_eq!(left, oracle.len());
}

#[test]
fn a_sweep_takes_out_all_that_went_with_a_context() {
    let table = table();
    for key in 1..=1000_u64 {
        let context = usize::try_from(key % 3).expect("small");
        let entry = Entry { context, ..entry(key) };
        table.insert(EntryKind::Memory, key << 21, entry).expect("memory");
    }
    table.sweep(|_, _, entry| entry.context == 1);
    for key in 1..=1000 {
        assert_eq!(table.remove(EntryKind::Memory, key << 21).is_some(), key % 3 != 1, "{key}");
    }
}

#[test]
fn a_change_is_seen_and_of_nothing_is_none() {
    let table = table();
    assert_eq!(table.change(EntryKind::Memory, 8, |_| ()), None);
    table.insert(EntryKind::Memory, 8, entry(1)).expect("memory");
    assert_eq!(table.change(EntryKind::Memory, 8, |entry| entry.extra[0] += 1), Some(()));
    assert_eq!(table.remove(EntryKind::Memory, 8).map(|entry| entry.extra[0]), Some(2));
}
