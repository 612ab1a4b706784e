//! Event sets: what `nvmlEventSetWait` tells.

use std::sync::{Mutex, PoisonError};

use nvml_wrapper_sys::bindings as sys;
use octavo_machine::{Event, EventKind};

/// An event set: a place in the machine's list of events, and what it is registered for.
///
/// Since the list is only appended to, a place in it is all that is needed to tell every event
/// once and in order, however many came at a time.
pub(crate) struct EventSet {
    progress: Mutex<Progress>,
}

struct Progress {
    registrations: Vec<Registration>,
    next: usize,
}

/// Interest in events of one GPU, from one event on.
#[derive(Clone, Copy)]
struct Registration {
    gpu: u32,
    types: u64,
    since: usize,
}

/// Event types that a GPU with or without error correction can tell.
pub(crate) fn supported_types(ecc: bool) -> u64 {
    let ecc_types = EventKind::SingleBitEcc.bit() | EventKind::DoubleBitEcc.bit();
    EventKind::Xid.bit() | if ecc { ecc_types } else { 0 }
}

/// The NVML bit of an event type.
pub(crate) trait TypeBit {
    fn bit(self) -> u64;
}

impl TypeBit for EventKind {
    fn bit(self) -> u64 {
        u64::from(match self {
            EventKind::Xid => sys::nvmlEventTypeXidCriticalError,
            EventKind::SingleBitEcc => sys::nvmlEventTypeSingleBitEccError,
            EventKind::DoubleBitEcc => sys::nvmlEventTypeDoubleBitEccError,
        })
    }
}

impl EventSet {
    /// A set for a machine of which the first `past` events are over.
    pub(crate) fn new(past: usize) -> Self {
        let progress = Progress { registrations: Vec::new(), next: past };
        Self { progress: Mutex::new(progress) }
    }

    /// Adds interest in events of `gpu` that come after the first `past`.
    pub(crate) fn register(&self, gpu: u32, types: u64, past: usize) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.registrations.push(Registration { gpu, types, since: past });
    }

    /// The next event that the set is registered for.
    pub(crate) fn take(&self, events: &[Event]) -> Option<Event> {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let Progress { registrations, next } = &mut *progress;
        if *next > events.len() {
            // Somebody emptied the list: go on with what comes from now on.
            *next = events.len();
            for registration in registrations.iter_mut() {
                registration.since = registration.since.min(*next);
            }
        }
        while let Some(event) = events.get(*next) {
            let place = *next;
            *next += 1;
            let wanted = |r: &Registration| {
                r.gpu == event.gpu && r.types & event.kind.bit() != 0 && r.since <= place
            };
            if registrations.iter().any(wanted) {
                return Some(*event);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
