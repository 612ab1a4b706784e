//! How many orders may be in flight: up by one for a whole window of answers, down by half when the API
//! server is overloaded.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The window. Shared by all requests of a binder.
#[derive(Debug)]
pub(super) struct Window(Mutex<State>);

#[derive(Debug)]
struct State {
    most: u32,
    limit: u32,
    /// Answers since the limit last changed.
    answers: u32,
    /// Requests sent so far.
    sent: u64,
    /// Number of the first request that was sent after the last halving: what was sent before says
    /// nothing about the smaller window.
    halved_at: u64,
}

impl Window {
    /// A window of `most`, open.
    pub(super) fn new(most: u32) -> Self {
        let most = most.max(1);
        Self(Mutex::new(State { most, limit: most, answers: 0, sent: 0, halved_at: 0 }))
    }

    /// Orders that may be in flight now; at least 1.
    pub(super) fn limit(&self) -> u32 {
        self.lock().limit
    }

    /// A request is sent: its number.
    pub(super) fn sent(&self) -> u64 {
        let mut state = self.lock();
        state.sent += 1;
        state.sent - 1
    }

    /// The server answered in time.
    pub(super) fn answered(&self) {
        let mut state = self.lock();
        state.answers += 1;
        if state.answers >= state.limit {
            state.answers = 0;
            state.limit = state.limit.saturating_add(1).min(state.most);
        }
    }

    /// The server had too much to do for request `number`.
    pub(super) fn overloaded(&self, number: u64) {
        let mut state = self.lock();
        if number >= state.halved_at {
            state.limit = (state.limit / 2).max(1);
            state.answers = 0;
            state.halved_at = state.sent;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Plain numbers: whole at every moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_overload_halves_once_however_many_requests_meet_it() {
        let window = Window::new(64);
        let numbers: Vec<u64> = (0..64).map(|_| window.sent()).collect();
        for number in numbers {
            window.overloaded(number);
        }
        assert_eq!(window.limit(), 32);
        let next = window.sent();
        window.overloaded(next);
        assert_eq!(window.limit(), 16);
    }

    #[test]
    fn it_opens_by_one_for_a_window_of_answers_and_no_further_than_it_was() {
        let window = Window::new(8);
        let number = window.sent();
        window.overloaded(number);
        assert_eq!(window.limit(), 4);
        for _ in 0..4 {
            window.answered();
        }
        assert_eq!(window.limit(), 5);
        for _ in 0..1000 {
            window.answered();
        }
        assert_eq!(window.limit(), 8);
    }

    #[test]
    fn it_never_closes() {
        let window = Window::new(0);
        for _ in 0..10 {
            let number = window.sent();
            window.overloaded(number);
        }
        assert_eq!(window.limit(), 1);
    }
}
