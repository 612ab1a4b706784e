//! The table of GPU models. It is the same for the same slices, in whatever order they came.

use std::collections::BTreeMap;

use octavo_engine::cluster::MAX_MODELS;
use octavo_engine::gpu::{GpuModel, MigProfile, ModelId, ModelSet};

/// What distinguishes a model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ModelKey {
    /// Name of the product.
    pub(super) product: String,
    /// Whether a device plugin serves them.
    pub(super) is_plugin: bool,
    /// Memory in MiB.
    pub(super) memory_mib: u32,
    /// MIG profiles.
    pub(super) mig: Vec<MigProfile>,
}

/// The GPU models of the cluster.
#[derive(Debug, Default)]
pub(super) struct Models {
    /// How many nodes have each.
    nodes: BTreeMap<ModelKey, u32>,
    table: Vec<GpuModel>,
    /// Keys in the order of the table.
    keys: BTreeMap<ModelKey, ModelId>,
    is_stale: bool,
}

impl Models {
    /// Counts a node whose model changed.
    pub(super) fn move_node(&mut self, old: Option<&ModelKey>, new: Option<&ModelKey>) {
        if let Some(new) = new {
            let nodes = self.nodes.entry(new.clone()).or_insert(0);
            *nodes += 1;
            self.is_stale |= *nodes == 1;
        }
        if let Some(old) = old
            && let Some(nodes) = self.nodes.get_mut(old)
        {
            *nodes -= 1;
            if *nodes == 0 {
                self.nodes.remove(old);
                self.is_stale = true;
            }
        }
    }

    /// Rebuilds the table if the set of models changed. Returns whether the table differs.
    pub(super) fn rebuild_if_stale(&mut self) -> bool {
        if !std::mem::take(&mut self.is_stale) {
            return false;
        }
        let mut by_name: BTreeMap<String, &ModelKey> = BTreeMap::new();
        let mut of_product: BTreeMap<&str, Vec<&ModelKey>> = BTreeMap::new();
        for key in self.nodes.keys() {
            of_product.entry(&key.product).or_default().push(key);
        }
        for (product, keys) in of_product {
            for (index, key) in keys.iter().enumerate() {
                let mut name = name(product, key, &keys);
                // These differ only in details of MIG.
                while by_name.contains_key(&name) {
                    name = format!("{name} #{}", index + 1);
                }
                by_name.insert(name, key);
            }
        }
        let all = by_name.into_iter().take(MAX_MODELS);
        let before = std::mem::take(&mut self.table);
        let keys_before = std::mem::take(&mut self.keys);
        for (name, key) in all {
            let Ok(index) = u8::try_from(self.table.len()) else { break };
            self.keys.insert(key.clone(), ModelId(index));
            self.table.push(GpuModel {
                name,
                memory_mib: key.memory_mib,
                idle_watts: 0,
                full_watts: 0,
                mig: key.mig.clone(),
            });
        }
        before != self.table || keys_before != self.keys
    }

    /// The models, by name.
    pub(super) fn table(&self) -> &[GpuModel] {
        &self.table
    }

    /// The index of a model; `None` beyond the number of models that the engine supports.
    pub(super) fn id(&self, key: &ModelKey) -> Option<ModelId> {
        self.keys.get(key).copied()
    }

    /// Models that device plugins serve.
    pub(super) fn plugin_models(&self) -> ModelSet {
        let plugins = self.keys.iter().filter(|(key, _)| key.is_plugin);
        plugins.fold(ModelSet(0), |set, (_, id)| set.with(*id))
    }
}

/// The product's name, with what distinguishes the model from others of the product.
fn name(product: &str, key: &ModelKey, all: &[&ModelKey]) -> String {
    let mut name = product.to_owned();
    if all.iter().any(|other| other.memory_mib != key.memory_mib) {
        name = format!("{name} {} MiB", key.memory_mib);
    }
    if all.iter().any(|other| other.mig != key.mig) && !key.mig.is_empty() {
        name.push_str(" MIG");
    }
    if key.is_plugin && all.iter().any(|other| !other.is_plugin) {
        name.push_str(" (device plugin)");
    }
    name
}
