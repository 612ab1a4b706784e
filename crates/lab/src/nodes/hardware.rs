//! The hardware of a simulated node: a folder that resembles the root file system of a GPU node.
//!
//! ```text
//!  <node>/driver/   the driver's root: libraries, binaries, firmware; machine.yaml, state.json
//!  <node>/proc/     the kernel's files about the driver; files of MIG instances come and go
//!  <node>/sys/      positions of the GPUs and network cards in the `PCIe` tree, and the cards' ports
//! ```
//!
//! There are no device nodes: containers get them by the numbers of `proc/devices`.
//!
//! `sys` and the capability numbers are the same on all nodes of a machine. Each is a symbolic link
//! to a folder that these nodes share. So is the folder through which nodes of a fabric share memory. With hundreds of nodes these are
//! most of the files, and removing a copy per node would dominate the time of `down`. Only a node whose network cards have failed has a
//! `sys` of its own, below `own`.
//!
//! The driver library is the simulated one, with one copy per node, because it reads the machine
//! description beside itself. All other files are only found, mounted and linked; no program runs
//! them. Removing the node's folder removes the hardware.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::Context as _;
use octavo_machine::{Machine, State};

use crate::nodes::driver_libraries::DriverLibraries;
use tree::Tree;

pub(crate) mod catalogue;
pub(crate) mod driver_modules;
mod driver_root;
mod nic_files;
mod proc_files;
mod sys_files;
mod tree;

/// Compute trays of one NVL72 rack, whose GPUs are one `NVLink` domain.
const TRAYS_PER_RACK: u32 = 18;

/// Folder of capability numbers within the shared folder.
const MIG_TABLE_DIR: &str = "nvidia-caps";

/// Folder of the memory that nodes of a fabric share, within the shared folder.
pub(crate) const FABRIC_DIR: &str = "fabric";

/// Folder of what a node does not share with others of its machine, although these do.
const OWN_DIR: &str = "own";

/// A node's own sysfs.
const OWN_SYS: &str = "own/sys";

/// Builds the files that all nodes of a machine share, in `shared_dir`.
pub(crate) fn build_shared(shared_dir: &Path, machine: &Machine) -> anyhow::Result<()> {
    let tree = Tree::new(shared_dir);
    if machine.model.mig.is_some() {
        let table = proc_files::mig_minors(machine);
        tree.file(Path::new(MIG_TABLE_DIR).join("mig-minors"), &table)?;
    }
    if proc_files::has_channels(machine) {
        // Programs of any user share memory.
        tree.folder(FABRIC_DIR)?;
        let folder = shared_dir.join(FABRIC_DIR);
        fs::set_permissions(&folder, Permissions::from_mode(0o1777))
            .with_context(|| format!("let all users write to {}", folder.display()))?;
    }
    sys_files::write(&tree, machine, &State::default())
}

/// Builds the hardware of node `node_name` in `node_dir`. Shared files are in `shared_dir`
/// ([`build_shared`]).
///
/// GPUs without a UUID get one derived from the node's name. The build is idempotent and keeps the
/// machine's state. A changed machine description discards the old hardware and its state. The next
/// build completes an interrupted one.
pub(crate) fn build(
    node_dir: &Path,
    shared_dir: &Path,
    node_name: &str,
    machine: &Machine,
    libraries: &DriverLibraries,
    boot_id: &str,
) -> anyhow::Result<()> {
    let mut machine = machine.clone();
    machine.instantiate(node_name);
    let description = machine.to_yaml()?;
    let description_path = node_dir.join(driver_root::LIBRARY_DIR).join("machine.yaml");
    // Written last: the file marks a complete build.
    if fs::read_to_string(&description_path).ok().as_ref() != Some(&description) {
        remove_hardware(node_dir)?;
    }
    let tree = Tree::new(node_dir);
    driver_root::write(&tree, &machine, libraries)?;
    proc_files::write(&tree, &machine, boot_id)?;
    if !has_own_sys(node_dir) {
        tree.link("sys", shared_dir.join("sys"))?;
    }
    if machine.model.mig.is_some() {
        tree.link(proc_files::MIG_TABLE, shared_dir.join(MIG_TABLE_DIR))?;
    }
    let libraries = Path::new(driver_root::LIBRARY_DIR);
    if proc_files::has_channels(&machine) {
        tree.link(libraries.join(FABRIC_DIR), shared_dir.join(FABRIC_DIR))?;
    }
    tree.replace(&libraries.join("machine.yaml"), &description)
}

/// Shows the states of a node's network cards and errors of `PCIe` links in its sysfs. From the first change on it has one of its own.
pub(crate) fn show_faults(node_dir: &Path, machine: &Machine, state: &State) -> anyhow::Result<()> {
    let own = node_dir.join(OWN_DIR);
    let tree = Tree::new(&own);
    if has_own_sys(node_dir) {
        return sys_files::update(&tree, machine, state);
    }
    sys_files::write(&tree, machine, state)?;
    // Readers find the old files or the new ones.
    let (path, next) = (node_dir.join("sys"), node_dir.join("sys.next"));
    let linked = match fs::remove_file(&next) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => symlink(OWN_SYS, &next).and_then(|()| fs::rename(&next, &path)),
    };
    linked.with_context(|| format!("link {}", path.display()))
}

fn has_own_sys(node_dir: &Path) -> bool {
    fs::read_link(node_dir.join("sys")).is_ok_and(|target| target == Path::new(OWN_SYS))
}

/// Assigns the machine to a fabric. 18 trays in index order are one rack with one cluster and
/// clique. Fabrics within a chassis (an all-zero cluster) and machines without a fabric are
/// unchanged.
pub(crate) fn place_in_fabric(machine: &mut Machine, tray_index: u32) {
    let rack = tray_index / TRAYS_PER_RACK;
    let Some(fabric) = &mut machine.fabric else { return };
    if !fabric.spans_nodes() || rack == 0 {
        return;
    }
    let derived = octavo_machine::derive_uuid(&fabric.cluster_uuid, rack);
    derived.trim_start_matches("GPU-").clone_into(&mut fabric.cluster_uuid);
}

fn remove_hardware(node_dir: &Path) -> anyhow::Result<()> {
    for part in ["driver", "dev", "proc", "sys", OWN_DIR] {
        let path = node_dir.join(part);
        match fs::remove_dir_all(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(e).with_context(|| format!("remove {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
