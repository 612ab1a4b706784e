//! The environment of the process: driver, GPUs, shares.

use std::fs;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::driver::{Cuda, CudaError};
use crate::nvml::{Memory, Nvml};

/// Folder of the shares in a container.
const SHARES: &str = "/run/octavo/shares";

/// The environment.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Environment {
    /// CUDA version of the driver: `13.0`.
    pub(crate) cuda: String,
    /// GPUs in the driver's order.
    pub(crate) gpus: Vec<Gpu>,
    /// Shares described by files in the container.
    pub(crate) shares: Vec<Share>,
}

/// A GPU.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Gpu {
    /// Number in this process.
    pub(crate) number: i32,
    /// Product name.
    pub(crate) name: String,
    /// `GPU-...`.
    pub(crate) uuid: String,
    /// Memory that CUDA reports, in bytes.
    pub(crate) total_bytes: u64,
    /// Memory reported by NVML.
    #[serde(rename = "management")]
    pub(crate) nvml: Option<Memory>,
}

/// A share as described by its folder.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Share {
    /// Name of its folder.
    pub(crate) folder: String,
    /// UUID of its GPU.
    pub(crate) gpu: String,
    /// Memory in bytes.
    pub(crate) memory_bytes: u64,
}

/// Reads the environment. The driver must be initialised.
pub(crate) fn read(cuda: &Cuda) -> Result<Environment, CudaError> {
    let mut version = 0;
    cuda.driver_version(&mut version)?;
    let mut count = 0;
    cuda.device_count(&mut count)?;
    let nvml = Nvml::open();
    let gpus =
        (0..count).map(|number| gpu(cuda, number, nvml.as_ref())).collect::<Result<_, _>>()?;
    let cuda = format!("{}.{}", version / 1000, version % 1000 / 10);
    Ok(Environment { cuda, gpus, shares: shares(Path::new(SHARES)) })
}

fn gpu(cuda: &Cuda, number: i32, nvml: Option<&Nvml>) -> Result<Gpu, CudaError> {
    let mut device = 0;
    cuda.device_get(&mut device, number)?;
    let mut uuid = [0; 16];
    cuda.device_uuid(&mut uuid, device)?;
    let mut total = 0;
    cuda.device_total(&mut total, device)?;
    let uuid = text_of(uuid);
    let nvml = nvml.and_then(|nvml| nvml.memory(&uuid));
    let name = cuda.device_name(device)?;
    Ok(Gpu { number, name, uuid, total_bytes: total as u64, nvml })
}

/// A UUID as text: `GPU-` and groups of digits.
fn text_of(uuid: [u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(uuid));
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The shares whose folders can be read, ordered by name.
fn shares(folder: &Path) -> Vec<Share> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut shares: Vec<Share> = entries
        .filter_map(|entry| {
            let text = fs::read(entry.path().join("limits.json")).ok()?;
            let limits: Value = serde_json::from_slice(&text).ok()?;
            Some(Share {
                folder: entry.file_name().to_string_lossy().into_owned(),
                gpu: limits.pointer("/gpu/uuid")?.as_str()?.to_owned(),
                memory_bytes: limits.get("memoryBytes")?.as_u64()?,
            })
        })
        .collect();
    shares.sort_by(|one, other| one.folder.cmp(&other.folder));
    shares
}

#[cfg(test)]
mod tests;
