//! Writes an inventory as a machine description, with which the simulated driver can imitate the
//! node.

use octavo_machine as machine;

use crate::{AddressingMode, FabricState, Gpu, Inventory};

/// Why an inventory cannot be described.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescribeError {
    /// The driver counts no GPU.
    #[error("the driver counts no GPU: a description needs at least one")]
    Empty,
    /// A GPU could not be read. A description without it would renumber the GPUs after it.
    #[error("GPU {index} could not be read ({error}): repair or remove it, then try again")]
    Unreadable {
        /// NVML index.
        index: u32,
        /// The driver's error.
        error: crate::DriverError,
    },
    /// The GPUs are not of one model.
    #[error(
        "GPUs {first} and {second} differ in {fact} ({of_first} and {of_second}), and a description \
         holds one model: describe a node whose GPUs are alike, or write the file by hand"
    )]
    Mixed {
        /// NVML index of the first GPU.
        first: u32,
        /// NVML index of the differing GPU.
        second: u32,
        /// The differing fact.
        fact: &'static str,
        /// Its value on the first GPU.
        of_first: String,
        /// Its value on the differing GPU.
        of_second: String,
    },
    /// Sysfs does not name a GPU's PCIe root.
    #[error(
        "the PCIe root of GPU {index} at {pci} is not known: is sysfs seen at the configured sysRoot?"
    )]
    NoPcieRoot {
        /// NVML index.
        index: u32,
        /// PCI address.
        pci: String,
    },
    /// The description is inconsistent.
    #[error(transparent)]
    Invalid(#[from] machine::MachineError),
}

/// Describes the machine under a name that is suitable for a file, such as `dgx-h100`.
///
/// Numbers that the driver does not report (clocks, power, multiprocessors) become 0. If the driver
/// has a MIG mode, the profile table is chosen by product name and memory; an unknown product has
/// none.
pub fn describe(inventory: &Inventory, name: &str) -> Result<machine::Machine, DescribeError> {
    if let Some(gpu) = inventory.unreadable.first() {
        let (index, error) = (gpu.index, gpu.error.clone());
        return Err(DescribeError::Unreadable { index, error });
    }
    let gpus = &inventory.gpus;
    let Some(first) = gpus.first() else { return Err(DescribeError::Empty) };
    for gpu in gpus {
        check_same_model(first, gpu)?;
    }
    let versions = &inventory.versions;
    let machine = machine::Machine {
        name: name.to_owned(),
        description: format!("{} x {}, read from the driver", gpus.len(), first.name),
        driver: machine::Driver {
            version: versions.driver.clone(),
            cuda: dotted(versions.cuda),
            nvml: versions.nvml.clone(),
        },
        model: model(gpus, first),
        fabric: fabric(first),
        gpus: gpus.iter().map(place).collect::<Result<_, _>>()?,
        // The driver does not know them.
        nics: Vec::new(),
        simulation: machine::Simulation::default(),
    };
    machine.check()?;
    Ok(machine)
}

fn model(gpus: &[Gpu], first: &Gpu) -> machine::Model {
    // Administrators set limits per GPU, and the memory reserved by firmware varies a little. The
    // model has the maximum of each.
    let max = |fact: fn(&Gpu) -> Option<u64>| gpus.iter().filter_map(fact).max().unwrap_or(0);
    let memory_mib = first.memory_bytes >> 20;
    let power_milliwatts = max(|gpu| gpu.power_limit_milliwatts.map(u64::from));
    machine::Model {
        name: first.name.clone(),
        brand: first.brand.clone(),
        architecture: architecture(&first.architecture).to_owned(),
        compute_capability: dotted(first.compute_capability),
        memory_mib,
        reserved_mib: max(|gpu| gpu.reserved_bytes) >> 20,
        multiprocessors: first.multiprocessors.unwrap_or(0),
        pci_device_id: packed(first.pci_device_id),
        pci_subsystem_id: (first.pci_subsystem_id != 0).then(|| packed(first.pci_subsystem_id)),
        addressing_mode: first.addressing_mode.map(|mode| match mode {
            AddressingMode::None => machine::AddressingMode::None,
            AddressingMode::Hmm => machine::AddressingMode::Hmm,
            AddressingMode::Ats => machine::AddressingMode::Ats,
        }),
        ecc: first.ecc.unwrap_or(false),
        power_limit_watts: u32::try_from(power_milliwatts / 1000).unwrap_or(u32::MAX),
        sm_clock_mhz: first.sm_clock_mhz.unwrap_or(0),
        memory_clock_mhz: first.memory_clock_mhz.unwrap_or(0),
        nvlink: first.nvlink.as_ref().map(|nvlink| machine::NvLink {
            version: nvlink.version,
            links: nvlink.links,
            switched: nvlink.switched,
        }),
        mig: mig(first, memory_mib),
    }
}

fn mig(gpu: &Gpu, memory_mib: u64) -> Option<machine::Mig> {
    Some(machine::Mig {
        enabled: gpu.mig?.enabled,
        table: mig_table(&gpu.name, memory_mib)?.to_owned(),
        // Later architectures change the mode without a reset.
        mode_needs_reset: gpu.architecture == "Ampere",
    })
}

fn fabric(gpu: &Gpu) -> Option<machine::Fabric> {
    let fabric = gpu.fabric.as_ref()?;
    let state = match fabric.state {
        FabricState::NotSupported => return None,
        FabricState::NotStarted => machine::FabricState::NotStarted,
        FabricState::InProgress => machine::FabricState::InProgress,
        FabricState::Completed => machine::FabricState::Completed,
    };
    Some(machine::Fabric {
        cluster_uuid: fabric.cluster_uuid.clone(),
        clique_id: fabric.clique_id,
        state,
    })
}

fn place(gpu: &Gpu) -> Result<machine::Gpu, DescribeError> {
    let pci = gpu.pci.to_string();
    let Some(pcie_root) = gpu.pcie_root.clone() else {
        return Err(DescribeError::NoPcieRoot { index: gpu.index, pci });
    };
    Ok(machine::Gpu {
        uuid: Some(gpu.uuid.clone()),
        minor: gpu.minor,
        module: gpu.module,
        pci,
        pcie_root,
        numa_node: gpu.numa_node,
        serial: gpu.serial.clone(),
    })
}

/// Rejects a GPU of another model than the first.
fn check_same_model(first: &Gpu, gpu: &Gpu) -> Result<(), DescribeError> {
    let differing = facts(first).into_iter().zip(facts(gpu)).find(|(a, b)| a != b);
    let Some(((fact, of_first), (_, of_second))) = differing else { return Ok(()) };
    Err(DescribeError::Mixed { first: first.index, second: gpu.index, fact, of_first, of_second })
}

/// The facts that a description states once for all GPUs.
fn facts(gpu: &Gpu) -> [(&'static str, String); 14] {
    let links = gpu.nvlink.as_ref().map(|n| (n.version, n.links, n.switched));
    let fabric = gpu.fabric.as_ref().map(|f| (f.state, f.cluster_uuid.clone(), f.clique_id));
    [
        ("product name", gpu.name.clone()),
        ("brand", gpu.brand.clone()),
        ("architecture", gpu.architecture.clone()),
        ("compute capability", dotted(gpu.compute_capability)),
        ("memory in MiB", (gpu.memory_bytes >> 20).to_string()),
        ("multiprocessors", reported(gpu.multiprocessors)),
        ("PCI device", packed(gpu.pci_device_id)),
        ("PCI subsystem", packed(gpu.pci_subsystem_id)),
        ("addressing mode", reported(gpu.addressing_mode)),
        ("error correction", reported(gpu.ecc)),
        (
            "clocks in MHz",
            format!("{}/{}", reported(gpu.sm_clock_mhz), reported(gpu.memory_clock_mhz)),
        ),
        ("NVLink", links.map_or_else(|| "none".to_owned(), |links| format!("{links:?}"))),
        ("fabric", fabric.map_or_else(|| "none".to_owned(), |fabric| format!("{fabric:?}"))),
        ("MIG mode", reported(gpu.mig.map(|mig| mig.enabled))),
    ]
}

fn reported(fact: Option<impl ToString>) -> String {
    fact.map_or_else(|| "not reported".to_owned(), |fact| fact.to_string())
}

/// The first word of an architecture's name, which descriptions use.
fn architecture(name: &str) -> &str {
    name.split_whitespace().next().unwrap_or(name)
}

/// Key of a product's MIG profile table. Products with one name exist with different memory sizes.
fn mig_table(name: &str, memory_mib: u64) -> Option<&'static str> {
    let is = |product: &str| name.split_whitespace().any(|word| word.starts_with(product));
    if is("GB200") {
        return Some("gb200-186");
    }
    if is("B200") {
        return Some("b200-180");
    }
    if is("GH200") {
        return (memory_mib > 140_000).then_some("gh200-144");
    }
    if is("H200") {
        return Some("h200-141");
    }
    if is("H100") {
        return match memory_mib {
            80_000..90_000 => Some("h100-80"),
            90_000.. if is("NVL") => Some("h100-nvl-94"),
            _ => None,
        };
    }
    if is("A30") {
        return Some("a30-24");
    }
    if is("A100") || is("A800") {
        return Some(if memory_mib > 60_000 { "a100-80" } else { "a100-40" });
    }
    None
}

fn dotted((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

fn packed(id: u32) -> String {
    format!("0x{id:08X}")
}

#[cfg(test)]
pub(crate) mod tests;
