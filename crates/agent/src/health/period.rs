//! The periods in which an agent has its node, and with it the record of health.
//!
//! The agent's tasks begin and end them. The driver's thread may learn of an end late, since a call of the driver may let it wait. So
//! whatever it does to the node asks here first, and a period does not end in the middle of a write.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The periods of one agent. Clones are of the same agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Periods(Arc<Mutex<u64>>);

/// A period. It goes on until the agent's next one begins, or this one is ended.
#[derive(Clone, Debug)]
pub(crate) struct Period {
    number: u64,
    periods: Periods,
}

impl Periods {
    /// Begins a period. The one before ends.
    pub(crate) fn begin(&self) -> Period {
        let mut number = self.lock();
        *number += 1;
        Period { number: *number, periods: self.clone() }
    }

    /// Ends the period that goes on, once nothing holds it.
    pub(crate) fn end(&self) {
        *self.lock() += 1;
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        // A number is whole at any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Period {
    /// Whether it goes on.
    pub(crate) fn goes_on(&self) -> bool {
        *self.periods.lock() == self.number
    }

    /// Does something to the node, unless the period is over. It does not end meanwhile.
    pub(crate) fn within<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let current = self.periods.lock();
        (*current == self.number).then(act)
    }
}
