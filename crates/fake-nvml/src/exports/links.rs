//! Connections between GPUs: `NVLink`, peer-to-peer access and the `PCIe` tree.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as sys;
use octavo_machine::{Gpu, Machine, NvLink};

use crate::code::Code;
use crate::pointers::Out;
use crate::session::Device;

use super::identity::{PciAddress, pci_info};

gpu_calls! {
    fn nvmlDeviceGetNvLinkState(gpu, link: c_uint, active: Out<sys::nvmlEnableState_t>) {
        nvlink(gpu, link)?;
        active.put(u32::from(!gpu.state.nvlink.inactive.contains(&link)))
    }

    fn nvmlDeviceGetMaxPcieLinkGeneration(gpu, generation: Out<c_uint>) {
        generation.put(pcie_generation(gpu))
    }

    /// As when the GPU works: links of idle GPUs save power by a lower generation.
    fn nvmlDeviceGetCurrPcieLinkGeneration(gpu, generation: Out<c_uint>) {
        generation.put(gpu.state.pcie.generation.unwrap_or_else(|| pcie_generation(gpu)))
    }

    fn nvmlDeviceGetMaxPcieLinkWidth(_gpu, width: Out<c_uint>) { width.put(PCIE_LANES) }

    fn nvmlDeviceGetCurrPcieLinkWidth(gpu, width: Out<c_uint>) {
        width.put(gpu.state.pcie.width.unwrap_or(PCIE_LANES))
    }

    fn nvmlDeviceGetNvLinkVersion(gpu, link: c_uint, version: Out<c_uint>) {
        version.put(version_code(nvlink(gpu, link)?))
    }

    fn nvmlDeviceGetNvLinkCapability(
        gpu,
        link: c_uint,
        capability: sys::nvmlNvLinkCapability_t,
        value: Out<c_uint>,
    ) {
        use sys::nvmlNvLinkCapability_enum_NVML_NVLINK_CAP_COUNT as COUNT;
        use sys::nvmlNvLinkCapability_enum_NVML_NVLINK_CAP_SLI_BRIDGE as BRIDGE;
        nvlink(gpu, link)?;
        if capability >= COUNT {
            return Err(Code::INVALID_ARGUMENT);
        }
        value.put(u32::from(capability != BRIDGE))
    }

    fn nvmlDeviceGetNvLinkRemoteDeviceType(
        gpu,
        link: c_uint,
        kind: Out<sys::nvmlIntNvLinkDeviceType_t>,
    ) {
        kind.put(if nvlink(gpu, link)?.switched {
            sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH
        } else {
            sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU
        })
    }

    fn nvmlDeviceGetNvLinkRemotePciInfo(gpu, link: c_uint, pci: Out<sys::nvmlPciInfo_t>) {
        pci.put(remote(gpu, link)?)
    }

    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(gpu, link: c_uint, pci: Out<sys::nvmlPciInfo_t>) {
        pci.put(remote(gpu, link)?)
    }
}

machine_calls! {
    fn nvmlDeviceGetTopologyCommonAncestor(
        session,
        one: sys::nvmlDevice_t,
        other: sys::nvmlDevice_t,
        level: Out<sys::nvmlGpuTopologyLevel_t>,
    ) {
        let call = "nvmlDeviceGetTopologyCommonAncestor";
        let (one, other) = (session.place(call, one)?, session.place(call, other)?);
        level.put(common_ancestor(session.machine(), one, other)?)
    }

    fn nvmlDeviceGetP2PStatus(
        session,
        one: sys::nvmlDevice_t,
        other: sys::nvmlDevice_t,
        capability: sys::nvmlGpuP2PCapsIndex_t,
        status: Out<sys::nvmlGpuP2PStatus_t>,
    ) {
        let call = "nvmlDeviceGetP2PStatus";
        let (one, other) = (session.place(call, one)?, session.place(call, other)?);
        status.put(peer_status(session.machine(), one, other, capability)?)
    }
}

/// Lanes of a GPU's `PCIe` link.
const PCIE_LANES: c_uint = 16;

/// The `PCIe` generation of a GPU's architecture.
fn pcie_generation(gpu: &Device<'_>) -> c_uint {
    match gpu.model.architecture.as_str() {
        "Volta" | "Turing" => 3,
        "Ampere" | "Ada" => 4,
        _ => 5,
    }
}

/// The `NVLink` of a link number.
fn nvlink(gpu: &Device<'_>, link: c_uint) -> Result<NvLink, Code> {
    let nvlink = gpu.model.nvlink.ok_or(Code::NOT_SUPPORTED)?;
    if link < nvlink.links { Ok(nvlink) } else { Err(Code::INVALID_ARGUMENT) }
}

/// NVML has its own numbering of `NVLink` versions, in which 3 is a variant of version 2.
pub(super) fn version_code(nvlink: NvLink) -> sys::nvmlNvlinkVersion_t {
    match nvlink.version {
        1 => sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_1_0,
        2 => sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_2_0,
        3 => sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_3_0,
        4 => sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_4_0,
        5 => sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_5_0,
        _ => sys::nvmlNvlinkVersion_enum_NVML_NVLINK_VERSION_INVALID,
    }
}

/// The other end of a link.
fn remote(gpu: &Device<'_>, link: c_uint) -> Result<sys::nvmlPciInfo_t, Code> {
    let nvlink = nvlink(gpu, link)?;
    if nvlink.switched {
        return switch(gpu, nvlink, link).ok_or(Code::NOT_SUPPORTED);
    }
    let peer = peer(gpu, nvlink, link).ok_or(Code::NOT_SUPPORTED)?;
    let mut info = PciAddress::parse(&peer.pci).ok_or(Code::UNKNOWN)?.info();
    info.pciDeviceId = pci_info(gpu)?.pciDeviceId;
    Ok(info)
}

/// A switch in the GPUs' chassis has a PCI address. One in another tray of the rack has no address
/// on this host. The addresses are simulated: buses of a separate PCI domain.
fn switch(gpu: &Device<'_>, nvlink: NvLink, link: c_uint) -> Option<sys::nvmlPciInfo_t> {
    const DOMAIN: u32 = 0xff;
    let elsewhere =
        gpu.machine.fabric.as_ref().is_some_and(|fabric| {
            fabric.cluster_uuid.bytes().any(|byte| byte != b'0' && byte != b'-')
        });
    if elsewhere {
        return None;
    }
    // A100 systems have six switches, later ones four.
    let switches = if nvlink.version <= 3 { 6 } else { 4 };
    let address = format!("{DOMAIN:04x}:{:02x}:00.0", 1 + link % switches);
    Some(PciAddress::parse(&address)?.info())
}

/// Direct links are distributed evenly over the other GPUs, in order.
fn peer<'a>(gpu: &Device<'a>, nvlink: NvLink, link: c_uint) -> Option<&'a Gpu> {
    let others: Vec<&Gpu> = (0u32..)
        .zip(&gpu.machine.gpus)
        .filter(|(index, _)| *index != gpu.place)
        .map(|(_, gpu)| gpu)
        .collect();
    let busy_percent = nvlink.links as usize / others.len().max(1);
    let place = (link as usize).checked_div(busy_percent)?;
    others.get(place).copied()
}

fn two(machine: &Machine, one: u32, other: u32) -> Result<(&Gpu, &Gpu), Code> {
    let gpu = |index: u32| machine.gpus.get(index as usize).ok_or(Code::INVALID_ARGUMENT);
    Ok((gpu(one)?, gpu(other)?))
}

fn common_ancestor(
    machine: &Machine,
    one: u32,
    other: u32,
) -> Result<sys::nvmlGpuTopologyLevel_t, Code> {
    let (a, b) = two(machine, one, other)?;
    Ok(if one == other {
        sys::nvmlGpuLevel_enum_NVML_TOPOLOGY_INTERNAL
    } else if a.pcie_root == b.pcie_root {
        // In the descriptions, GPUs are below one root only if a switch joins them.
        sys::nvmlGpuLevel_enum_NVML_TOPOLOGY_SINGLE
    } else if a.numa_node.is_some() && a.numa_node == b.numa_node {
        sys::nvmlGpuLevel_enum_NVML_TOPOLOGY_NODE
    } else {
        sys::nvmlGpuLevel_enum_NVML_TOPOLOGY_SYSTEM
    })
}

fn peer_status(
    machine: &Machine,
    one: u32,
    other: u32,
    capability: sys::nvmlGpuP2PCapsIndex_t,
) -> Result<sys::nvmlGpuP2PStatus_t, Code> {
    let (a, b) = two(machine, one, other)?;
    if one == other {
        return Err(Code::INVALID_ARGUMENT);
    }
    let nvlink = machine.model.nvlink.is_some();
    let near = a.numa_node == b.numa_node;
    Ok(match capability {
        sys::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_NVLINK
        | sys::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_ATOMICS => {
            if nvlink {
                OK
            } else {
                NOT_SUPPORTED
            }
        }
        sys::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_READ
        | sys::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_WRITE => {
            if nvlink || near {
                OK
            } else {
                CHIPSET
            }
        }
        sys::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_PCI => {
            if near {
                OK
            } else {
                CHIPSET
            }
        }
        _ => return Err(Code::INVALID_ARGUMENT),
    })
}

const OK: sys::nvmlGpuP2PStatus_t = sys::nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_OK;
const NOT_SUPPORTED: sys::nvmlGpuP2PStatus_t =
    sys::nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_NOT_SUPPORTED;
const CHIPSET: sys::nvmlGpuP2PStatus_t =
    sys::nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED;
