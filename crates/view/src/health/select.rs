//! Which GPUs of a node are meant.

use kube::ResourceExt;
use octavo_api::NodeHealth;
use octavo_api::node_health::DeviceHealth;

use super::HealthError;
use crate::usage::natural_sort_key;

/// The GPUs of a node by name (`gpu-0`), index (`0`) or UUID, each once; all if none is named.
pub fn devices(health: &NodeHealth, words: &[String]) -> Result<Vec<DeviceHealth>, HealthError> {
    let all = listed(health);
    if words.is_empty() {
        return if all.is_empty() { Err(unknown(health, "*")) } else { Ok(all) };
    }
    if let Some(word) = words.iter().find(|word| !all.iter().any(|gpu| is_meant(gpu, word))) {
        return Err(unknown(health, word));
    }
    let meant = |gpu: &DeviceHealth| words.iter().any(|word| is_meant(gpu, word));
    Ok(all.into_iter().filter(meant).collect())
}

/// The GPUs of a node in order of their names.
pub fn listed(health: &NodeHealth) -> Vec<DeviceHealth> {
    let mut all = health.status.clone().unwrap_or_default().devices;
    all.sort_by_cached_key(|gpu| natural_sort_key(&gpu.name));
    all
}

pub(super) fn is_meant(gpu: &DeviceHealth, word: &str) -> bool {
    let is_index = || gpu.name.strip_prefix("gpu-").is_some_and(|index| index == word);
    gpu.name == word || gpu.uuid == word || is_index()
}

pub(super) fn unknown(health: &NodeHealth, gpu: &str) -> HealthError {
    let known = listed(health).into_iter().map(|gpu| format!("{} ({})", gpu.name, gpu.uuid));
    HealthError::NoGpu { node: health.name_any(), gpu: gpu.to_owned(), known: known.collect() }
}
