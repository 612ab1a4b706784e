//! Constraints of a description beyond its types: uniqueness and address formats.

use std::collections::BTreeSet;

use super::Machine;
use crate::{MachineError, MigTable};

pub(super) fn check(machine: &Machine) -> Result<(), MachineError> {
    let model = &machine.model;
    if machine.gpus.is_empty() {
        return Err(invalid("gpus", "a GPU machine needs at least one GPU"));
    }
    packed_id("model.pciDeviceId", &model.pci_device_id)?;
    if let Some(id) = &model.pci_subsystem_id {
        packed_id("model.pciSubsystemId", id)?;
    }
    two_numbers("model.computeCapability", &model.compute_capability)?;
    two_numbers("driver.cuda", &machine.driver.cuda)?;
    if model.memory_mib == 0 || model.reserved_mib >= model.memory_mib {
        return Err(invalid("model.memoryMib", "must be more than what is reserved"));
    }
    let simulation = &machine.simulation;
    if simulation.longest_kernel_nanos < simulation.shortest_kernel_nanos {
        let problem = "must be no less than shortestKernelNanos";
        return Err(invalid("simulation.longestKernelNanos", problem));
    }
    if simulation.copy_mib_per_second == 0 {
        return Err(invalid("simulation.copyMibPerSecond", "must be more than zero"));
    }
    if let Some(mig) = &model.mig
        && MigTable::find(&mig.table).is_none()
    {
        let keys: Vec<_> = MigTable::keys().collect();
        return Err(invalid("model.mig.table", &format!("must be one of {}", keys.join(", "))));
    }
    if let Some(fabric) = &machine.fabric
        && !is_uuid(&fabric.cluster_uuid)
    {
        return Err(invalid("fabric.clusterUuid", "must be a UUID of 8-4-4-4-12 hex digits"));
    }
    let (mut minors, mut addresses, mut uuids) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (index, gpu) in machine.gpus.iter().enumerate() {
        let field = |name: &str| format!("gpus[{index}].{name}");
        if !minors.insert(gpu.minor) {
            return Err(invalid(field("minor"), "is another GPU's minor, too"));
        }
        if !is_pci_address(&gpu.pci) {
            return Err(invalid(field("pci"), "must look like 0000:1b:00.0"));
        }
        if !addresses.insert(&gpu.pci) {
            return Err(invalid(field("pci"), "is another GPU's address, too"));
        }
        if !gpu.pcie_root.strip_prefix("pci").is_some_and(is_root_bus) {
            return Err(invalid(field("pcieRoot"), "must look like pci0000:15"));
        }
        if let Some(uuid) = &gpu.uuid {
            if !uuid.strip_prefix("GPU-").is_some_and(is_uuid) {
                return Err(invalid(field("uuid"), "must be GPU- and a UUID"));
            }
            if !uuids.insert(uuid) {
                return Err(invalid(field("uuid"), "is another GPU's UUID, too"));
            }
        }
    }
    check_nics(machine, addresses)
}

fn check_nics<'a>(
    machine: &'a Machine,
    mut addresses: BTreeSet<&'a String>,
) -> Result<(), MachineError> {
    let mut names = BTreeSet::new();
    for (index, nic) in machine.nics.iter().enumerate() {
        let field = |name: &str| format!("nics[{index}].{name}");
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if nic.name.is_empty() || !nic.name.bytes().all(is_name) {
            return Err(invalid(field("name"), "must look like mlx5_0"));
        }
        if !names.insert(&nic.name) {
            return Err(invalid(field("name"), "is another card's name, too"));
        }
        if !is_pci_address(&nic.pci) {
            return Err(invalid(field("pci"), "must look like 0000:1b:00.0"));
        }
        if !addresses.insert(&nic.pci) {
            return Err(invalid(field("pci"), "is another device's address, too"));
        }
        if !nic.pcie_root.strip_prefix("pci").is_some_and(is_root_bus) {
            return Err(invalid(field("pcieRoot"), "must look like pci0000:15"));
        }
    }
    Ok(())
}

fn invalid(field: impl Into<String>, problem: &str) -> MachineError {
    MachineError::Invalid { field: field.into(), problem: problem.to_owned() }
}

fn packed_id(field: &str, value: &str) -> Result<(), MachineError> {
    let digits = value.strip_prefix("0x").filter(|digits| is_hex(digits, 8));
    digits.map(drop).ok_or_else(|| invalid(field, "must be 0x and eight hex digits"))
}

fn two_numbers(field: &str, value: &str) -> Result<(), MachineError> {
    let mut parts = value.split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(Ok(_)), Some(Ok(_)), None) => Ok(()),
        _ => Err(invalid(field, "must be two numbers joined by a dot")),
    }
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_uuid(text: &str) -> bool {
    let mut parts = text.split('-');
    [8, 4, 4, 4, 12].iter().all(|&n| parts.next().is_some_and(|part| is_hex(part, n)))
        && parts.next().is_none()
}

/// Lower case as in sysfs, where the address is a file name.
fn is_pci_address(text: &str) -> bool {
    let Some((bus, function)) = text.rsplit_once('.') else { return false };
    let parts: Vec<&str> = bus.split(':').collect();
    let [domain, bus, device] = parts[..] else { return false };
    is_hex(domain, 4)
        && is_hex(bus, 2)
        && is_hex(device, 2)
        && is_hex(function, 1)
        && !text.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_root_bus(text: &str) -> bool {
    text.split_once(':').is_some_and(|(domain, bus)| is_hex(domain, 4) && is_hex(bus, 2))
}
