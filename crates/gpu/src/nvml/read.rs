//! Reads each GPU on its own, so that one GPU's failure does not affect the others.

use std::collections::BTreeMap;
use std::path::Path;

use nvml_wrapper_sys::bindings as sys;

use super::device::{Device, Memory};
use super::library::Library;
use super::links::Links;
use super::{fabric, links, names, processes, sysfs};
use crate::{DriverError, Gpu, Mig, PciAddress, UnreadableGpu};

/// Reads every GPU that the driver counts.
pub(super) fn gpus(
    library: &Library,
    sys_root: &Path,
) -> Result<Vec<Result<Gpu, UnreadableGpu>>, DriverError> {
    let mut read: Vec<_> = (0..library.device_count()?)
        .map(|index| gpu(library, sys_root, index).map_err(|error| UnreadableGpu { index, error }))
        .collect();
    let at: BTreeMap<PciAddress, u32> =
        read.iter().flatten().map(|(gpu, _)| (gpu.pci, gpu.index)).collect();
    for (gpu, links) in read.iter_mut().flatten() {
        gpu.nvlink = links.take().map(|links| links.among(&at));
    }
    Ok(read.into_iter().map(|gpu| gpu.map(|(gpu, _)| gpu)).collect())
}

/// Reads a GPU with its links. Their remote ends are known only when all GPUs have been read.
fn gpu(
    library: &Library,
    sys_root: &Path,
    index: u32,
) -> Result<(Gpu, Option<Links>), DriverError> {
    let device = library.device_at(index)?;
    let uuid = device.uuid()?;
    let pci = device.pci()?;
    // GPUs that share the processor's memory, such as GB10, have none of their own.
    let memory = supported(device.memory())?.unwrap_or_default();
    let reserved = match memory {
        Memory { reserved: None, total: 1.., .. } => measured_reserve(library, device, &uuid),
        known => known.reserved,
    };
    let compute_capability = device.compute_capability()?;
    let power_limit = optional(device.power_limit_milliwatts())?;
    let sm_clock = optional(device.max_clock_mhz(sys::nvmlClockType_enum_NVML_CLOCK_SM))?;
    let memory_clock = optional(device.max_clock_mhz(sys::nvmlClockType_enum_NVML_CLOCK_MEM))?;
    // Mandatory: a GPU in MIG mode must never be offered as a whole one.
    let mig = supported(device.mig_mode())?.map(|(enabled, pending)| Mig { enabled, pending });
    let mig_profiles = match mig {
        // Without them its instances would be unknown, and it would be offered as nothing.
        Some(Mig { enabled: true, .. }) => {
            supported(super::mig::profiles(device))?.unwrap_or_default()
        }
        Some(_) => optional(super::mig::profiles(device))?.unwrap_or_default(),
        None => Vec::new(),
    };
    let mig_instances = match mig {
        // Unreported instances would be allocated again.
        Some(Mig { enabled: true, .. }) => {
            supported(super::mig::instances_of(device, &mig_profiles))?.unwrap_or_default()
        }
        _ => Vec::new(),
    };
    let minor = device.minor()?;
    let gpu = Gpu {
        index,
        minor,
        number: minor,
        uuid,
        name: device.name()?,
        brand: supported(device.brand())?.map_or(names::UNKNOWN, names::brand).to_owned(),
        architecture: supported(device.architecture())?
            .map_or(names::UNKNOWN, names::architecture)
            .to_owned(),
        compute_capability,
        memory_bytes: memory.total,
        reserved_bytes: reserved,
        multiprocessors: multiprocessors(device, compute_capability)?,
        pci: pci.address,
        pci_device_id: pci.device_id,
        pci_subsystem_id: pci.subsystem_id,
        pcie_root: sysfs::pcie_root(sys_root, pci.address),
        numa_node: sysfs::numa_node(sys_root, pci.address),
        module: optional(device.module())?,
        serial: optional(device.serial())?.filter(|serial| !serial.is_empty()),
        addressing_mode: optional(device.addressing_mode())?.and_then(names::addressing_mode),
        ecc: optional(device.ecc())?,
        power_limit_milliwatts: reported(power_limit),
        sm_clock_mhz: reported(sm_clock),
        memory_clock_mhz: reported(memory_clock),
        nvlink: None,
        fabric: optional(fabric::fabric(device))?,
        mig,
        mig_profiles,
        mig_instances,
    };
    Ok((gpu, links::links(device)?))
}

/// What driver and firmware reserve of a GPU whose driver does not say, as before r510: the memory that
/// is in use while no process has any. It is measured once, at the first such moment.
fn measured_reserve(library: &Library, device: Device<'_>, uuid: &str) -> Option<u64> {
    library.reserve(uuid, || {
        let is_idle = || processes::processes(device).is_ok_and(|found| found.is_empty());
        // A process that ends or starts meanwhile would be part of it.
        let used = is_idle().then(|| device.memory().ok())??.used;
        is_idle().then_some(used)
    })
}

/// The driver reports CUDA cores on every GPU, multiprocessors only on some.
fn multiprocessors(device: Device<'_>, capability: (u32, u32)) -> Result<Option<u32>, DriverError> {
    if let Some(count) = reported(optional(device.multiprocessors())?) {
        return Ok(Some(count));
    }
    let cores = reported(optional(device.cuda_cores())?);
    let each = names::cores_per_multiprocessor(capability);
    Ok(cores.zip(each).map(|(cores, each)| cores / each))
}

/// An optional fact: absent for any reason of the driver, unless the GPU is lost, when no fact can
/// be trusted.
pub(super) fn optional<T>(answer: Result<T, DriverError>) -> Result<Option<T>, DriverError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error @ DriverError::GpuLost { .. }) => Err(error),
        Err(_) => Ok(None),
    }
}

/// A fact that the GPU or driver may be too old for, and that is mandatory otherwise.
pub(super) fn supported<T>(answer: Result<T, DriverError>) -> Result<Option<T>, DriverError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(DriverError::NotSupported { .. } | DriverError::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// NVML returns zero for an unknown number.
fn reported(number: Option<u32>) -> Option<u32> {
    number.filter(|&number| number != 0)
}
