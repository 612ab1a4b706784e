//! The driver's kernel modules: loaded, or not.
//!
//! As with real modules, a process that holds a device keeps them from being unloaded. The
//! simulated libraries hold `machine.yaml` open as long as they are initialised, as the real ones
//! hold `/dev/nvidiactl`. A program with a CUDA context has a file of the GPU's chip open.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::bail;
use octavo_machine::{KernelModule, Machine, State};

use super::driver_root::LIBRARY_DIR;

/// Unloads the modules of the node in `node_dir`. Fails while processes hold its devices.
pub(crate) fn unload(node_dir: &Path) -> anyhow::Result<()> {
    let holders = holders(&node_dir.join(LIBRARY_DIR));
    if !holders.is_empty() {
        bail!(
            "the modules are in use by {}: release the driver with `octavo driver release NODE`, and \
             end the programs that use GPUs",
            holders.join(", ")
        );
    }
    change(node_dir, |_, state| {
        for module in KernelModule::ALL {
            state.unload(module);
        }
    })
}

/// Loads the modules of the node in `node_dir`. `uvm_major`: the major number that `nvidia-uvm` gets;
/// `None`: the usual one.
pub(crate) fn load(node_dir: &Path, uvm_major: Option<u32>) -> anyhow::Result<()> {
    change(node_dir, |machine, state| {
        state.uvm_major = uvm_major;
        for module in KernelModule::ALL {
            state.load(machine, module);
        }
    })
}

fn change(node_dir: &Path, edit: impl FnOnce(&Machine, &mut State)) -> anyhow::Result<()> {
    let driver = node_dir.join(LIBRARY_DIR);
    let machine = Machine::read(&driver.join("machine.yaml"))?;
    octavo_machine::change(&driver, &machine, |state| {
        edit(&machine, state);
        anyhow::Ok(())
    })
}

/// Processes that hold devices of the driver in `driver_dir`: `NAME (PID)`, in order of their pids.
fn holders(driver_dir: &Path) -> Vec<String> {
    let chips = fs::read_dir(driver_dir.join("chip")).into_iter().flatten().flatten();
    let files = chips.map(|chip| chip.path()).chain([driver_dir.join("machine.yaml")]);
    let held: Vec<(u64, u64)> = files.filter_map(|file| identity(&file)).collect();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    let holds = |pid: &u32| {
        // A file of another mount namespace is found by its identity.
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        files.flatten().any(|file| identity(&file.path()).is_some_and(|id| held.contains(&id)))
    };
    let name = |pid: u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("{} ({pid})", name.trim_end())
    };
    pids.into_iter().filter(holds).map(name).collect()
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_holds_the_driver_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("chip")).unwrap();
        assert_eq!(holders(folder.path()), [""; 0]);
        let file = fs::File::create(folder.path().join("machine.yaml")).unwrap();
        let own = format!("({})", std::process::id());
        let found = holders(folder.path());
        assert!(found.len() == 1 && found[0].ends_with(&own), "{found:?}");
        drop(file);
        assert_eq!(holders(folder.path()), [""; 0]);
    }
}
