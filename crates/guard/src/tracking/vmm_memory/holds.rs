//! How often memory is held, and how many calls that give up a hold are under way, in one word.
//!
//! The driver has the memory until the last of those calls is done, whichever of them it was that gave up the
//! last hold: a thread that is done early must not give back what another thread's call still frees.

/// One hold.
const HOLD: u64 = 1;

/// One call under way, above as many holds as there can be.
const CALL: u64 = 1 << 32;

/// Held once.
pub(super) const ONCE: u64 = HOLD;

/// The same, of memory that takes the place of other under the same name: calls that gave up holds of that one
/// may not have come back yet, and will count themselves out here.
pub(super) fn once_keeping_calls(word: u64) -> u64 {
    word & !(CALL - 1) | HOLD
}

/// One more.
pub(super) fn take(word: &mut u64) {
    *word += HOLD;
}

/// One is given up that the driver does not have any more, or never had.
pub(super) fn give_up(word: &mut u64) {
    if *word % CALL >= HOLD {
        *word -= HOLD;
    }
}

/// One is given up by a call that is about to be made.
pub(super) fn begin_call(word: &mut u64) {
    give_up(word);
    *word += CALL;
}

/// That call is done, and did it or not.
pub(super) fn end_call(word: &mut u64, is_given_up: bool) {
    *word = word.saturating_sub(CALL);
    if !is_given_up {
        take(word);
    }
}

/// Whether nothing holds it and no call is under way.
pub(super) fn is_unused(word: u64) -> bool {
    word == 0
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// What a thread does with a hold that it has.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Step {
        Idle,
        /// It has counted itself out and not called the driver.
        Leaving,
        /// The driver has answered.
        Answered(bool),
    }

    fn random(state: &mut u64, end: u64) -> u64 {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % end
    }

    #[test]
    fn memory_counts_exactly_while_the_driver_has_it() {
        for seed in 0..5000 {
            let mut state = seed;
            let mut threads = [Step::Idle; 4];
            // Each thread has a hold; the driver knows of all.
            let (mut word, mut holds_of_driver) = (ONCE, 1);
            for _ in 1..threads.len() {
                take(&mut word);
                holds_of_driver += 1;
            }
            let mut to_do: Vec<usize> = (0..threads.len()).collect();
            while !to_do.is_empty() {
                let place = usize::try_from(random(&mut state, to_do.len() as u64)).expect("small");
                let thread = &mut threads[to_do[place]];
                *thread = match *thread {
                    Step::Idle => {
                        begin_call(&mut word);
                        Step::Leaving
                    }
                    Step::Leaving => {
                        // It fails now and then, and is tried again.
                        let is_given_up = random(&mut state, 4) > 0;
                        holds_of_driver -= u32::from(is_given_up);
                        Step::Answered(is_given_up)
                    }
                    Step::Answered(is_given_up) => {
                        end_call(&mut word, is_given_up);
                        if is_given_up {
                            to_do.swap_remove(place);
                        }
                        Step::Idle
                    }
                };
                assert!(holds_of_driver == 0 || !is_unused(word), "seed {seed}");
            }
            assert!(is_unused(word), "seed {seed}");
        }
    }

    #[test]
    fn pending_calls_do_not_release_a_reused_handle() {
        let mut word = ONCE;
        begin_call(&mut word);
        // The driver has given the name to other memory before the call has come back.
        word = once_keeping_calls(word);
        begin_call(&mut word);
        end_call(&mut word, true);
        assert!(!is_unused(word));
        end_call(&mut word, true);
        assert!(is_unused(word));
    }
}
