//! A word that counts the holds of memory, and the calls under way that end a hold.
//!
//! The driver has the memory until the last of those calls has returned, whichever of them dropped
//! the last hold. A thread whose call returns early must not release what another thread's call
//! still frees.

/// One hold.
const HOLD: u64 = 1;

/// One call under way. It lies above the maximum number of holds.
const CALL: u64 = 1 << 32;

/// Held once.
pub(super) const ONCE: u64 = HOLD;

/// One hold of memory that reuses a handle. Calls on the previous memory may still be under way,
/// and end by decrementing this word.
pub(super) fn once_keeping_calls(word: u64) -> u64 {
    word & !(CALL - 1) | HOLD
}

/// Adds a hold.
pub(super) fn take(word: &mut u64) {
    *word += HOLD;
}

/// Drops a hold that the driver has no more, or never had.
pub(super) fn give_up(word: &mut u64) {
    if is_held(*word) {
        *word -= HOLD;
    }
}

/// Drops a hold before the call that ends it.
pub(super) fn begin_call(word: &mut u64) {
    give_up(word);
    *word += CALL;
}

/// Records the end of that call, and whether it ended the hold.
pub(super) fn end_call(word: &mut u64, is_given_up: bool) {
    *word = word.saturating_sub(CALL);
    if !is_given_up {
        take(word);
    }
}

/// Whether there are holds.
pub(super) fn is_held(word: u64) -> bool {
    word % CALL >= HOLD
}

/// Whether there are neither holds nor calls under way.
pub(super) fn is_unused(word: u64) -> bool {
    word == 0
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// State of a thread with a hold.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Step {
        Idle,
        /// It has begun its call in the word, but not called the driver.
        Leaving,
        /// The driver has returned.
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
            // Each thread has one hold, and the driver knows all of them.
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
                        // The call sometimes fails and is retried.
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
        // The driver has reused the handle before the call returned.
        word = once_keeping_calls(word);
        begin_call(&mut word);
        end_call(&mut word, true);
        assert!(!is_unused(word));
        end_call(&mut word, true);
        assert!(is_unused(word));
    }
}
