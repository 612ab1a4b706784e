//! The hardware of a simulated node: a folder that looks as a GPU node's root does to an agent.
//!
//! ```text
//!  <node>/driver/   the driver's root: libraries, binaries, firmware; machine.yaml, state.json
//!  <node>/dev/      device nodes
//!  <node>/proc/     what the kernel tells of the driver; files of MIG instances come and go
//!  <node>/sys/      where the GPUs sit in the `PCIe` tree
//! ```
//!
//! `dev`, `sys` and the numbers of capabilities say nothing of a single node: each is a link to a folder that all nodes of a
//! machine share. With hundreds of nodes these are most of the files, and removing them would take
//! longer than all else.
//!
//! The library of the driver is the simulated one, a copy for each node, since it finds its
//! machine beside itself. Everything else is there to be found, mounted and linked: nothing runs
//! it. Removing the node's folder removes the hardware.

use std::path::Path;

use anyhow::Context as _;
use octavo_machine::Machine;

use crate::nodes::driver_libraries::DriverLibraries;
use tree::Tree;

pub(crate) mod catalogue;
mod device_nodes;
mod driver_root;
mod proc_files;
mod sys_files;
mod tree;

/// Compute trays of one NVL72 rack, whose GPUs are one `NVLink` domain.
const TRAYS_PER_RACK: u32 = 18;

/// Parts that all nodes of a machine share.
const SHARED_DIRS: [&str; 2] = ["dev", "sys"];

/// Numbers of capabilities in the folder that nodes of a machine share.
const MIG_TABLE_DIR: &str = "nvidia-caps";

/// Builds what all nodes of a machine share in `shared_dir`.
pub(crate) fn build_shared(shared_dir: &Path, machine: &Machine) -> anyhow::Result<()> {
    let tree = Tree::new(shared_dir);
    device_nodes::write(&tree, machine)?;
    if machine.model.mig.is_some() {
        let table = proc_files::mig_minors(machine);
        tree.file(Path::new(MIG_TABLE_DIR).join("mig-minors"), &table)?;
    }
    sys_files::write(&tree, machine)
}

/// Builds the hardware of node `node_name` in `node_dir`; what it shares with others of its kind
/// lies in `shared_dir` ([`build_shared`]).
///
/// GPUs without a UUID get one that follows from the node's name. Building again leaves the
/// folder as a first build would, and the machine's state as it is; only a change of the machine
/// begins anew, without state. A build that was cut short is finished by the next.
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
    // Written last: where it is, a build was finished.
    if std::fs::read_to_string(&description_path).ok().as_ref() != Some(&description) {
        remove_hardware(node_dir)?;
    }
    let tree = Tree::new(node_dir);
    driver_root::write(&tree, &machine, libraries)?;
    proc_files::write(&tree, &machine, boot_id)?;
    for part in SHARED_DIRS {
        tree.link(part, shared_dir.join(part))?;
    }
    if machine.model.mig.is_some() {
        tree.link(proc_files::MIG_TABLE, shared_dir.join(MIG_TABLE_DIR))?;
    }
    tree.replace(&Path::new(driver_root::LIBRARY_DIR).join("machine.yaml"), &description)
}

/// Gives the machine its place among others of its kind: 18 trays, in order of their index, are
/// one rack with one cluster and clique. Fabrics that end at the chassis (an all-zero cluster)
/// and machines without one stay as they are.
pub(crate) fn place_in_fabric(machine: &mut Machine, tray_index: u32) {
    let rack = tray_index / TRAYS_PER_RACK;
    let Some(fabric) = &mut machine.fabric else { return };
    let chassis = fabric.cluster_uuid.bytes().all(|byte| matches!(byte, b'0' | b'-'));
    if chassis || rack == 0 {
        return;
    }
    let derived = octavo_machine::derive_uuid(&fabric.cluster_uuid, rack);
    derived.trim_start_matches("GPU-").clone_into(&mut fabric.cluster_uuid);
}

fn remove_hardware(node_dir: &Path) -> anyhow::Result<()> {
    for part in ["driver", "dev", "proc", "sys"] {
        let path = node_dir.join(part);
        match std::fs::remove_dir_all(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(e).with_context(|| format!("remove {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
