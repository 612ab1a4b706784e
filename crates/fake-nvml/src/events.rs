//! Event sets: results of `nvmlEventSetWait`.

use std::sync::{Mutex, PoisonError};

use nvml_wrapper_sys::bindings as sys;
use octavo_machine::{Event, EventKind, State};

/// An event set: a position in the machine's list of events, and its registrations.
///
/// The list is append-only, so a position is enough to report every event once and in order,
/// however many occur at a time.
pub(crate) struct EventSet {
    progress: Mutex<Progress>,
}

struct Progress {
    registrations: Vec<Registration>,
    next: usize,
}

/// Registration for events of one GPU, from one event on.
#[derive(Clone, Copy)]
struct Registration {
    gpu: u32,
    types: u64,
    since: usize,
    /// Changes of the GPU's MIG mode before it. The next one ends it.
    mode_changes: u32,
}

/// Event types that a GPU with or without error correction supports.
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
    /// A set for a machine whose first `past` events are over.
    pub(crate) fn new(past: usize) -> Self {
        let progress = Progress { registrations: Vec::new(), next: past };
        Self { progress: Mutex::new(progress) }
    }

    /// Registers for events of `gpu` after the first `past`, until its MIG mode has changed more often
    /// than `mode_changes` times.
    pub(crate) fn register(&self, gpu: u32, types: u64, past: usize, mode_changes: u32) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.registrations.push(Registration { gpu, types, since: past, mode_changes });
    }

    /// The next event that the set is registered for.
    pub(crate) fn take(&self, state: &State) -> Option<Event> {
        let events = &state.events;
        let mode_changes = |gpu| state.gpus.get(&gpu).map_or(0, |gpu| gpu.mig_mode_changes);
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let Progress { registrations, next } = &mut *progress;
        if *next > events.len() {
            // The list was emptied: go on with new events.
            *next = events.len();
            for registration in registrations.iter_mut() {
                registration.since = registration.since.min(*next);
            }
        }
        while let Some(event) = events.get(*next) {
            let place = *next;
            *next += 1;
            let wanted = |r: &Registration| {
                r.gpu == event.gpu
                    && r.types & event.kind.bit() != 0
                    && r.since <= place
                    && r.mode_changes == mode_changes(r.gpu)
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
