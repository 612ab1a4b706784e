//! Prepared devices: whole GPUs, MIG devices, and GPUs that a virtual machine has.

use serde::Deserialize;

use super::decode::field;
use super::{CheckpointError, PreparedDevice};

/// What a prepared device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A whole GPU, or a share of it.
    Gpu {
        /// Its UUID.
        uuid: String,
    },
    /// A MIG device.
    Mig(MigDevice),
    /// A GPU that is passed through to a virtual machine.
    Vfio {
        /// The UUID that the driver made of its PCI address.
        uuid: String,
        /// Its PCI address, if the release recorded it (0.4 and later).
        pci_bus_id: Option<String>,
    },
}

/// A MIG device, as it was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigDevice {
    /// Its UUID.
    pub uuid: String,
    /// The next four are known since release 25.12. UUID of its GPU.
    pub parent_uuid: Option<String>,
    /// PCI address of its GPU, if it was recorded (0.4 and later).
    pub parent_pci_bus_id: Option<String>,
    /// Id of its GPU instance.
    pub gpu_instance: Option<u32>,
    /// Id of its compute instance.
    pub compute_instance: Option<u32>,
    /// What its name says of it, if the name has the driver's form.
    pub placement: Option<MigPlacement>,
}

/// What the name of a MIG device says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigPlacement {
    /// Minor number of its GPU.
    pub parent_minor: u32,
    /// The profile, such as `1g.10gb`. `None` where the name has attributes, whose `+` and `-` it writes alike, and before 25.12.
    pub profile: Option<String>,
    /// Id of the profile of its GPU instance, as `nvidia-smi mig -lgip` lists it.
    pub profile_id: u32,
    /// First memory slice.
    pub start: u32,
    /// Memory slices, in names of releases before 25.12.
    pub size: Option<u32>,
}

/// `PreparedDevice` of the driver: one of them is set.
#[derive(Deserialize)]
pub(super) struct RawDevice {
    #[serde(default)]
    gpu: Option<RawGpu>,
    #[serde(default)]
    mig: Option<RawMig>,
    #[serde(default)]
    vfio: Option<RawVfio>,
}

#[derive(Deserialize)]
struct RawGpu {
    info: Option<RawInfo>,
    device: Option<RawKubeletDevice>,
}

#[derive(Deserialize)]
struct RawVfio {
    info: Option<RawInfo>,
    device: Option<RawKubeletDevice>,
}

/// `concrete` since 25.12, `info` before.
#[derive(Deserialize)]
struct RawMig {
    concrete: Option<RawConcrete>,
    info: Option<RawInfo>,
    device: Option<RawKubeletDevice>,
}

#[derive(Deserialize)]
struct RawInfo {
    uuid: String,
    #[serde(default, rename = "pciBusID")]
    pci_bus_id: Option<String>,
}

/// `MigLiveTuple` of the driver.
#[derive(Deserialize)]
struct RawConcrete {
    #[serde(rename = "giId")]
    gpu_instance: u32,
    #[serde(rename = "ciId")]
    compute_instance: u32,
    #[serde(rename = "migUUID")]
    uuid: String,
    #[serde(rename = "parentUUID")]
    parent_uuid: String,
    #[serde(default, rename = "parentPCIBusID")]
    parent_pci_bus_id: Option<String>,
}

/// `kubeletplugin.Device` of Kubernetes, which has no JSON names.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawKubeletDevice {
    requests: Option<Vec<String>>,
    pool_name: String,
    device_name: String,
    #[serde(rename = "CDIDeviceIDs")]
    cdi_device_ids: Option<Vec<String>>,
    #[serde(default, rename = "ShareID")]
    share_id: Option<String>,
}

/// A device of the file.
pub(super) fn device(raw: RawDevice, path: &str) -> Result<PreparedDevice, CheckpointError> {
    let missing = |name: &str| field(&format!("{path}.{name}"), "is missing");
    let (kind, device) = match (raw.gpu, raw.mig, raw.vfio) {
        (Some(gpu), None, None) => {
            let uuid = gpu.info.ok_or_else(|| missing("gpu.info"))?.uuid;
            (DeviceKind::Gpu { uuid }, gpu.device.ok_or_else(|| missing("gpu.device"))?)
        }
        (None, Some(mig), None) => {
            let device = mig.device.ok_or_else(|| missing("mig.device"))?;
            let placement = placement(&device.device_name);
            let mig = match (mig.concrete, mig.info) {
                (Some(concrete), _) => MigDevice {
                    uuid: concrete.uuid,
                    parent_uuid: Some(concrete.parent_uuid),
                    parent_pci_bus_id: concrete.parent_pci_bus_id,
                    gpu_instance: Some(concrete.gpu_instance),
                    compute_instance: Some(concrete.compute_instance),
                    placement,
                },
                (None, Some(info)) => MigDevice {
                    uuid: info.uuid,
                    parent_uuid: None,
                    parent_pci_bus_id: None,
                    gpu_instance: None,
                    compute_instance: None,
                    placement,
                },
                (None, None) => return Err(missing("mig.concrete")),
            };
            (DeviceKind::Mig(mig), device)
        }
        (None, None, Some(vfio)) => {
            let info = vfio.info.ok_or_else(|| missing("vfio.info"))?;
            let kind = DeviceKind::Vfio { uuid: info.uuid, pci_bus_id: info.pci_bus_id };
            (kind, vfio.device.ok_or_else(|| missing("vfio.device"))?)
        }
        (None, None, None) => {
            return Err(field(
                path,
                "has none of gpu, mig and vfio: a later release may know more",
            ));
        }
        _ => return Err(field(path, "has more than one of gpu, mig and vfio")),
    };
    Ok(PreparedDevice {
        requests: device.requests.unwrap_or_default(),
        pool: device.pool_name,
        name: device.device_name,
        cdi_device_ids: device.cdi_device_ids.unwrap_or_default(),
        share_id: device.share_id,
        kind,
    })
}

/// Reads `gpu-<minor>-mig-<profile>-<profile id>-<start>`, or `gpu-<minor>-mig-<profile id>-<start>-<size>` of older releases.
fn placement(name: &str) -> Option<MigPlacement> {
    let (minor, rest) = name.strip_prefix("gpu-")?.split_once("-mig-")?;
    let parent_minor = minor.parse().ok()?;
    let (rest, last) = rest.rsplit_once('-')?;
    let (first, middle) = rest.rsplit_once('-')?;
    let (last, middle) = (last.parse().ok()?, middle.parse().ok()?);
    Some(match first.parse() {
        Ok(profile_id) => MigPlacement {
            parent_minor,
            profile: None,
            profile_id,
            start: middle,
            size: Some(last),
        },
        Err(_) => MigPlacement {
            parent_minor,
            profile: profile(first),
            profile_id: middle,
            start: last,
            size: None,
        },
    })
}

/// `1g10gb` as `1g.10gb`: names of devices have no dots.
fn profile(text: &str) -> Option<String> {
    let (slices, memory) = text.split_once('g')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let gigabytes = memory.strip_suffix("gb")?;
    (is_number(slices) && is_number(gigabytes)).then(|| format!("{slices}g.{gigabytes}gb"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_placement() {
        let of = |name| {
            let found = placement(name)?;
            let MigPlacement { parent_minor, profile, profile_id, start, size } = found;
            Some((parent_minor, profile, profile_id, start, size))
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(of("gpu-1-mig-3g40gb-9-4"), Some((1, text("3g.40gb"), 9, 4, None)));
        assert_eq!(of("gpu-12-mig-1g10gb-19-6"), Some((12, text("1g.10gb"), 19, 6, None)));
        // `+me` and `-me` have one name.
        assert_eq!(of("gpu-0-mig-1g10gb-me-20-3"), Some((0, None, 20, 3, None)));
        assert_eq!(of("gpu-1-mig-9-4-4"), Some((1, None, 9, 4, Some(4))));
        for name in ["gpu-0", "gpu-0-mig-", "gpu-0-mig-1g10gb-19", "gpu-x-mig-1g10gb-19-0", ""] {
            assert_eq!(of(name), None, "{name}");
        }
    }
}
