//! Limit of concurrent operations by additive increase and multiplicative decrease (AIMD).
//!
//! The limit grows by one after as many responses as it allows operations. It is halved when the
//! API server is overloaded.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The limit. Shared by all requests of a binder.
#[derive(Debug)]
pub(super) struct AimdLimit(Mutex<State>);

#[derive(Debug)]
struct State {
    max: u32,
    limit: u32,
    /// Responses since the limit last changed.
    answers: u32,
    /// Requests sent so far.
    requests: u64,
    /// Number of the first request after the last halving. Overload of an earlier request says
    /// nothing about the halved limit.
    halved_at: u64,
}

impl AimdLimit {
    /// A limit that starts at its maximum.
    pub(super) fn new(max: u32) -> Self {
        let max = max.max(1);
        Self(Mutex::new(State { max, limit: max, answers: 0, requests: 0, halved_at: 0 }))
    }

    /// Operations that may be in flight now; at least 1.
    pub(super) fn limit(&self) -> u32 {
        self.lock().limit
    }

    /// Counts a request and returns its number.
    pub(super) fn next_request(&self) -> u64 {
        let mut state = self.lock();
        state.requests += 1;
        state.requests - 1
    }

    /// Records a response in time.
    pub(super) fn answered(&self) {
        let mut state = self.lock();
        state.answers += 1;
        if state.answers >= state.limit {
            state.answers = 0;
            state.limit = state.limit.saturating_add(1).min(state.max);
        }
    }

    /// Records that the server was overloaded at request `number`.
    pub(super) fn overloaded(&self, number: u64) {
        let mut state = self.lock();
        if number >= state.halved_at {
            state.limit = (state.limit / 2).max(1);
            state.answers = 0;
            state.halved_at = state.requests;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Plain numbers, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_overload_halves_the_limit_once() {
        let limit = AimdLimit::new(64);
        let numbers: Vec<u64> = (0..64).map(|_| limit.next_request()).collect();
        for number in numbers {
            limit.overloaded(number);
        }
        assert_eq!(limit.limit(), 32);
        let next = limit.next_request();
        limit.overloaded(next);
        assert_eq!(limit.limit(), 16);
    }

    #[test]
    fn limit_grows_by_one_per_limit_of_responses_up_to_the_maximum() {
        let limit = AimdLimit::new(8);
        let number = limit.next_request();
        limit.overloaded(number);
        assert_eq!(limit.limit(), 4);
        for _ in 0..4 {
            limit.answered();
        }
        assert_eq!(limit.limit(), 5);
        for _ in 0..1000 {
            limit.answered();
        }
        assert_eq!(limit.limit(), 8);
    }

    #[test]
    fn limit_stays_at_least_one() {
        let limit = AimdLimit::new(0);
        for _ in 0..10 {
            let number = limit.next_request();
            limit.overloaded(number);
        }
        assert_eq!(limit.limit(), 1);
    }
}
