use std::vec::Vec;

use super::*;

/// Next step of a thread.
#[derive(Clone, Copy, Debug)]
enum Step {
    Advance,
    Call,
    Ticket,
    Ask,
    Enter,
}

/// A thread that grows the reserve (with an advance) or shrinks it.
#[derive(Clone, Copy, Debug)]
struct Thread {
    step: Step,
    /// Bytes; negative if it shrinks.
    change: i64,
    advance: Charge,
    ticket: u64,
    result: u64,
}

const SHARE: u8 = 1;

fn random(state: &mut u64, end: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % end
}

fn fresh(state: &mut u64) -> Thread {
    let bytes = i64::try_from(random(state, 100)).expect("small");
    let change = if random(state, 3) == 0 { -bytes } else { bytes };
    Thread { step: Step::Advance, change, advance: Charge::NONE, ticket: 0, result: 0 }
}

#[test]
fn charges_match_the_driver_in_every_thread_order() {
    for seed in 0..400 {
        let mut state = seed;
        let charge = Charge { share: SHARE, bytes: 0 };
        let mut entry = Entry { charge, context: 0, extra: [0; 2] };
        let (mut size, mut tickets) = (0_u64, 0);
        let mut threads: Vec<Thread> = (0..4).map(|_| fresh(&mut state)).collect();
        for round in 0..2000 {
            let index = usize::try_from(random(&mut state, 4)).expect("small");
            let thread = &mut threads[index];
            thread.step = match thread.step {
                Step::Advance => {
                    // Up to its possible growth, and sometimes more.
                    let bytes = u64::try_from(thread.change).unwrap_or(0) + random(&mut state, 3);
                    thread.advance = Charge { share: SHARE, bytes };
                    entry.extra[ADVANCED_WORD] += bytes;
                    Step::Call
                }
                Step::Call => {
                    size = size.saturating_add_signed(thread.change);
                    Step::Ticket
                }
                Step::Ticket => {
                    tickets += 1;
                    thread.ticket = tickets;
                    Step::Ask
                }
                Step::Ask => {
                    thread.result = size;
                    Step::Enter
                }
                Step::Enter => {
                    let Thread { advance, ticket, result, .. } = *thread;
                    let unused = record_size(&mut entry, 0, advance, ticket, Some(result));
                    assert!(unused.bytes <= advance.bytes);
                    *thread = if round < 1900 {
                        fresh(&mut state)
                    } else {
                        Thread { change: 0, ..*thread }
                    };
                    Step::Advance
                }
            };
            let counted = entry.charge.bytes + entry.extra[ADVANCED_WORD];
            assert!(counted >= size, "seed {seed}, round {round}: {counted} of {size}");
        }
        // All threads under way finish.
        for thread in &threads {
            if matches!(thread.step, Step::Call | Step::Ticket | Step::Ask | Step::Enter) {
                if matches!(thread.step, Step::Call) {
                    size = size.saturating_add_signed(thread.change);
                }
                tickets += 1;
                record_size(&mut entry, 0, thread.advance, tickets, Some(size));
            }
        }
        record_size(&mut entry, 0, Charge::NONE, tickets + 1, Some(size));
        assert_eq!((entry.charge.bytes, entry.extra[ADVANCED_WORD]), (size, 0), "seed {seed}");
    }
}

#[test]
fn a_reserve_uses_its_advance_up_to_its_growth() {
    let mut charge = Charge { share: SHARE, bytes: 10 };
    let advance = Charge { share: SHARE, bytes: 8 };
    assert_eq!(resize(&mut charge, 0, 15, advance).bytes, 3);
    assert_eq!((charge.share, charge.bytes), (SHARE, 15));
    // Nothing is taken from an advance of another share.
    let other = Charge { share: SHARE + 1, bytes: 8 };
    assert_eq!(resize(&mut charge, 0, 20, other).bytes, 8);
    assert_eq!((charge.share, charge.bytes), (SHARE, 20));
    assert_eq!(resize(&mut charge, 0, 5, advance).bytes, 8);
    assert_eq!(charge.bytes, 5);
    // A reserve without a share lies in the share of its first bytes.
    let mut charge = Charge::NONE;
    assert_eq!(resize(&mut charge, 0, 6, other).bytes, 2);
    assert_eq!((charge.share, charge.bytes), (SHARE + 1, 6));
}

#[test]
fn without_a_size_the_advance_is_counted() {
    let charge = Charge { share: SHARE, bytes: 10 };
    let mut entry = Entry { charge, context: 0, extra: [3, 8] };
    let advance = Charge { share: SHARE, bytes: 8 };
    assert_eq!(record_size(&mut entry, 0, advance, 4, None).bytes, 0);
    assert_eq!((entry.charge.bytes, entry.extra[ADVANCED_WORD]), (18, 0));
}

#[test]
fn a_peak_reserve_never_shrinks() {
    let charge = Charge { share: SHARE, bytes: 10 };
    let mut entry = Entry { charge, context: 0, extra: [3 | KEEPS_PEAK, 0] };
    assert_eq!(record_size(&mut entry, 0, Charge::NONE, 4, Some(2)).bytes, 0);
    assert_eq!(entry.charge.bytes, 10);
    let advance = Charge { share: SHARE, bytes: 8 };
    entry.extra[ADVANCED_WORD] = 8;
    assert_eq!(record_size(&mut entry, 0, advance, 5, Some(15)).bytes, 3);
    // An earlier report is dropped as usual.
    assert_eq!(record_size(&mut entry, 0, Charge::NONE, 4, Some(40)).bytes, 0);
    assert_eq!((entry.charge.bytes, latest_ticket(&entry)), (15, 5));
}
