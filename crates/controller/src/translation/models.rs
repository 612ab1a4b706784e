//! The GPU models of a cluster, from its `ResourceSlice`s.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use octavo_api::names::{CAPACITY_MEMORY, DRIVER};
use octavo_migration::{GpuModel, Models};

/// Memory in MiB by product name.
type Amounts = BTreeMap<String, u64>;

/// The models of all slices.
#[derive(Debug, Default)]
pub(crate) struct ClusterModels {
    /// Models of the config.
    fixed: Amounts,
    /// Models of each slice, by its name.
    slices: BTreeMap<String, Amounts>,
}

impl ClusterModels {
    /// No slices yet. `fixed` are models that count without a slice: those of nodes that an autoscaler may add.
    pub(crate) fn new(fixed: &[GpuModel]) -> Self {
        Self { fixed: smallest(fixed.iter().cloned()), slices: BTreeMap::new() }
    }

    /// Puts a slice. Returns whether a model may have changed.
    pub(crate) fn put(&mut self, slice: &ResourceSlice) -> bool {
        let devices = slice.spec.devices.iter().flatten().filter(|_| slice.spec.driver == DRIVER);
        let models = smallest(devices.filter_map(model));
        let name = slice.metadata.name.clone().unwrap_or_default();
        let before = if models.is_empty() {
            self.slices.remove(&name)
        } else {
            self.slices.insert(name, models.clone())
        };
        before.unwrap_or_default() != models
    }

    /// Forgets a slice. Returns whether a model may have changed.
    pub(crate) fn remove(&mut self, slice: &ResourceSlice) -> bool {
        self.slices.remove(slice.metadata.name.as_deref().unwrap_or_default()).is_some()
    }

    /// Forgets all slices: they are listed again.
    pub(crate) fn clear(&mut self) {
        self.slices.clear();
    }

    /// The models, smallest memory first, then by name: a fraction takes the smallest GPU that serves it. Of a model with two
    /// amounts, such as with and without ECC, the smaller one counts, since it fits both.
    pub(crate) fn models(&self) -> Models {
        let all = self.slices.values().chain([&self.fixed]).flatten();
        let all = all.map(|(name, mib)| GpuModel { product_name: name.clone(), memory_mib: *mib });
        let mut models: Vec<GpuModel> = smallest(all)
            .into_iter()
            .map(|(product_name, memory_mib)| GpuModel { product_name, memory_mib })
            .collect();
        models.sort_by(|one, other| {
            (one.memory_mib, &one.product_name).cmp(&(other.memory_mib, &other.product_name))
        });
        // Names are there, and differ.
        Models::new(models).unwrap_or_default()
    }
}

/// The smallest amount of each name.
fn smallest(models: impl IntoIterator<Item = GpuModel>) -> Amounts {
    let mut amounts = Amounts::new();
    for GpuModel { product_name, memory_mib } in models {
        let amount = amounts.entry(product_name).or_insert(memory_mib);
        *amount = memory_mib.min(*amount);
    }
    amounts
}

/// The model of a device, if it is a GPU.
fn model(device: &Device) -> Option<GpuModel> {
    let attributes = device.attributes.as_ref()?;
    let text = |name: &str| attributes.get(name)?.string.as_deref();
    if text("type") != Some("gpu") {
        return None;
    }
    let name = text("productName").filter(|name| !name.is_empty())?;
    let memory = device.capacity.as_ref()?.get(CAPACITY_MEMORY)?;
    GpuModel::parse(name, &memory.value.0).ok()
}
