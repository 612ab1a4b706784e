//! Changes the state of a simulated machine, one writer at a time.

use std::fs::File;
use std::path::Path;

use crate::mig::capabilities::CapabilityFiles;
use crate::{Machine, MachineError, State};

/// Changes the state in `folder`, which has `state.json` and `machine.yaml`.
///
/// A lock on `state.lock` serializes the writers of all processes. A rejected change has no effect.
/// If the folder belongs to a simulated node with a `/proc`, the files of its MIG capabilities
/// follow. New files appear before the state is written, and old files are removed after it. A
/// crash in between leaves files without an instance until the next change.
pub fn change<T, E: From<MachineError>>(
    folder: &Path,
    machine: &Machine,
    change: impl FnOnce(&mut State) -> Result<T, E>,
) -> Result<T, E> {
    let lock = folder.join("state.lock");
    let io = |source| MachineError::Io { action: "lock", path: lock.clone(), source };
    let file = File::create(&lock).map_err(io)?;
    file.lock().map_err(io)?;
    let path = folder.join("state.json");
    let before = State::read(&path)?;
    let mut state = before.clone();
    let answer = change(&mut state)?;
    if state != before {
        let files = CapabilityFiles::of(folder, machine, &state);
        files.as_ref().map_or(Ok(()), CapabilityFiles::make)?;
        state.write(&path)?;
        files.as_ref().map_or(Ok(()), CapabilityFiles::remove)?;
    }
    Ok(answer)
}

#[cfg(test)]
mod tests;
