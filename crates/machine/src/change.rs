//! Changes the state of a simulated machine, one writer at a time.

use std::fs::File;
use std::path::Path;

use crate::mig::capabilities::CapabilityFiles;
use crate::{Machine, MachineError, State};

/// Folder of the driver's libraries within a simulated node's folder.
const LIBRARY_DIR: &str = "driver/usr/lib64";

/// The folder of the simulated node whose driver has its libraries in `folder`; `None` if there is no such node.
pub(crate) fn node_of(folder: &Path) -> Option<&Path> {
    let levels = Path::new(LIBRARY_DIR).iter().count();
    folder.ends_with(LIBRARY_DIR).then(|| folder.ancestors().nth(levels))?
}

/// Changes the state in `folder`, which has `state.json` and `machine.yaml`.
///
/// A lock on `state.lock` serializes the writers of all processes. A rejected change has no effect.
/// If the folder belongs to a simulated node with a `/proc`, the files of its MIG capabilities
/// follow, and the kernel's lists of modules and devices. New files appear before the state is written, and old files are removed
/// after it. A crash in between leaves files without an instance until the next change.
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
        let modules = |state: &State| (state.unloaded_modules.clone(), state.uvm_major);
        if modules(&state) != modules(&before)
            && let Some(node) = node_of(folder)
        {
            state.write_lists(node)?;
        }
    }
    Ok(answer)
}

#[cfg(test)]
mod tests;
