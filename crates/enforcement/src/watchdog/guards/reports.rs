//! Reports of a share's guards until the next poll. They come from a container and may be forged, so they are bounded.
//! They affect only the share itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use octavo_guard_abi::message::{Frame, Kind};

use crate::process::Process;

/// Function names kept per share. Further ones are only counted.
const MAX_NAMES: usize = 32;
/// Maximum count accepted from one frame.
const MAX_COUNT_PER_FRAME: u64 = 1 << 20;
/// Connections per process. A guard has one, and a second one while it forks or loads twice.
const MAX_CONNECTIONS_PER_PROCESS: usize = 4;

/// Reports about one share.
#[derive(Debug, Default)]
pub(crate) struct GuardReports(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Connected processes, with their numbers of connections.
    connected: BTreeMap<Process, usize>,
    /// Those of them whose guard asked for no lease page.
    without_page: BTreeSet<Process>,
    /// Damage of the state file found by a guard.
    tampered: Option<u64>,
    refused: u64,
    unknown: u64,
    /// New function names, and whether each was refused.
    new_names: BTreeMap<String, bool>,
    known_names: BTreeSet<String>,
}

/// Reports since the last poll.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewReports {
    /// Damage of the state file, as in the frame. Permanent.
    pub(crate) tampered: Option<u64>,
    /// Allocations that were refused.
    pub(crate) refused: u64,
    /// Calls of functions that the guard does not know.
    pub(crate) unknown: u64,
    /// New function names, and whether each was refused.
    pub(crate) names: BTreeMap<String, bool>,
}

impl GuardReports {
    /// Registers a connection of a process; `false` if it has too many.
    pub(crate) fn connect(&self, process: Process) -> bool {
        let mut state = self.state();
        let connections = state.connected.entry(process).or_default();
        if *connections >= MAX_CONNECTIONS_PER_PROCESS {
            return false;
        }
        *connections += 1;
        true
    }

    /// Forgets a connection.
    pub(crate) fn disconnect(&self, process: Process) {
        let mut state = self.state();
        if let Some(connections) = state.connected.get_mut(&process) {
            *connections -= 1;
            if *connections == 0 {
                state.connected.remove(&process);
                state.without_page.remove(&process);
            }
        }
    }

    /// Whether a process is connected.
    pub(crate) fn is_connected(&self, process: Process) -> bool {
        self.state().connected.contains_key(&process)
    }

    /// Notes that a connected process has a guard that asked for no lease page.
    pub(crate) fn has_no_page(&self, process: Process) {
        let mut state = self.state();
        if state.connected.contains_key(&process) {
            state.without_page.insert(process);
        }
    }

    /// A connected process whose guard asked for no lease page.
    pub(crate) fn without_page(&self) -> Option<Process> {
        self.state().without_page.first().copied()
    }

    /// Takes a frame.
    pub(crate) fn take(&self, frame: &Frame) {
        let mut state = self.state();
        match frame.kind {
            Kind::Hello => {}
            Kind::Unknown => {
                state.unknown = state.unknown.saturating_add(1);
                let name = plain(frame.text());
                if state.known_names.len() < MAX_NAMES && state.known_names.insert(name.clone()) {
                    state.new_names.insert(name, frame.value == 1);
                }
            }
            Kind::Tampered => {
                state.tampered.get_or_insert(frame.value);
            }
            Kind::Refused => {
                state.refused = state.refused.saturating_add(frame.value.min(MAX_COUNT_PER_FRAME));
            }
        }
    }

    /// Takes the reports since the last call.
    pub(crate) fn take_new(&self) -> NewReports {
        let mut state = self.state();
        NewReports {
            tampered: state.tampered,
            refused: std::mem::take(&mut state.refused),
            unknown: std::mem::take(&mut state.unknown),
            names: std::mem::take(&mut state.new_names),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whole between statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A function name without other characters than such names have, since people read it.
fn plain(text: &[u8]) -> String {
    let plain = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(*byte),
        _ => '?',
    };
    text.iter().map(plain).collect()
}

#[cfg(test)]
mod tests;
