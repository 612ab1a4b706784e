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
mod tests;
