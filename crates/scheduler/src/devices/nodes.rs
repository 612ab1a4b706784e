//! A node: the pools it reaches, and its GPUs as the engine models them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use octavo_api::names::{DRIVER, EXTENDED_RESOURCE_GPU};
use octavo_dra::{
    AllocationResult, AttributeValue, Capacity, CounterSet, Device, NodeScope, PoolRef, Quantity,
    Slice, SliceIndex, Toleration,
};
use octavo_engine::cluster::MAX_GPUS;
use octavo_engine::devices::{DevicesError, NodeDevices};
use octavo_engine::gpu::ModelId;
use octavo_engine::placement::GpuPart;
use octavo_kube_io::objects::{Node, NodeName};

use super::fit::tolerates;
use super::models::{ModelKey, Models};
use super::pools::Pools;

/// Node label with the GPU product (GPU feature discovery).
const LABEL_PRODUCT: &str = "nvidia.com/gpu.product";
/// Node label with the memory of one GPU in MiB (GPU feature discovery).
const LABEL_MEMORY: &str = "nvidia.com/gpu.memory";

/// GPUs of a node as the engine models them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeGpus {
    /// The GPUs. Their model's name is the product's; [`NodeGpus::model`] distinguishes models.
    pub devices: NodeDevices,
    /// Their model, an index into [`super::Devices::models`].
    pub model: ModelId,
    /// Who serves them.
    pub source: GpuSource,
    /// Whether new allocations are accepted. While the driver rewrites its slices there are none,
    /// and the last complete state is kept.
    pub is_settled: bool,
}

/// What serves the GPUs of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuSource {
    /// A DRA driver: devices of this pool.
    Pool(PoolRef),
    /// A device plugin: a number of `nvidia.com/gpu`, which pods request as a plain amount.
    Plugin,
}

/// Why the engine does not model a node's GPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnmodeledReason {
    /// The engine cannot represent the devices.
    #[error(
        "{0}; the node is used only for claims that no other node could serve, and the allocator alone places \
         them"
    )]
    Devices(#[from] DevicesError),
    /// The driver publishes several pools for the node.
    #[error(
        "driver {DRIVER} publishes {0} pools for the node; only one is supported, so the node is used \
         only for claims that no other node could serve, and the allocator alone places them"
    )]
    SeveralPools(usize),
    /// A device plugin serves the same GPUs.
    #[error(
        "both the device plugin and driver {DRIVER} serve the node's GPUs, so that one GPU could be \
         allocated twice; disable one of them"
    )]
    ServedTwice,
    /// The table of models is full.
    #[error("the cluster has more GPU models than the engine supports")]
    TooManyModels,
}

impl UnmodeledReason {
    /// The metric label.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Devices(DevicesError::MixedModels(_)) => "MixedModels",
            Self::Devices(DevicesError::TooMany(_)) => "TooManyGpus",
            Self::Devices(_) => "Devices",
            Self::SeveralPools(_) => "SeveralPools",
            Self::ServedTwice => "ServedTwice",
            Self::TooManyModels => "TooManyModels",
        }
    }
}

/// A node.
#[derive(Debug)]
pub(super) struct NodeView {
    /// The node as the allocator needs it.
    pub(super) node: octavo_dra::Node,
    /// Whether the node object was observed.
    has_object: bool,
    /// What its device plugins serve, as whole numbers.
    pub(super) allocatable: BTreeMap<String, i64>,
    /// The pools that it reaches.
    pub(super) pools: Vec<PoolRef>,
    /// Its GPUs.
    pub(super) gpus: Result<Option<NodeGpus>, UnmodeledReason>,
    key: Option<ModelKey>,
    /// The allocator's index of the pools' slices.
    pub(super) survey: OnceLock<Arc<SliceIndex>>,
    /// Number of its last change.
    pub(super) revision: u64,
}

impl NodeGpus {
    /// What a result of an allocation takes of the GPUs; `None` for devices that the engine does
    /// not count.
    pub fn part(&self, result: &AllocationResult) -> Option<GpuPart> {
        let GpuSource::Pool(pool) = &self.source else { return None };
        let is_here = result.driver == pool.driver && result.pool == pool.pool;
        if is_here { self.devices.part(result) } else { None }
    }
}

impl NodeView {
    /// A node of which only the name is known.
    pub(super) fn named(name: &NodeName) -> Self {
        Self {
            node: octavo_dra::Node { name: name.to_string(), labels: BTreeMap::new() },
            has_object: false,
            allocatable: BTreeMap::new(),
            pools: Vec::new(),
            gpus: Ok(None),
            key: None,
            survey: OnceLock::new(),
            revision: 0,
        }
    }

    /// Its GPUs, if the engine models them.
    pub(super) fn gpus(&self) -> Option<&NodeGpus> {
        self.gpus.as_ref().ok()?.as_ref()
    }

    /// Applies the node object. Returns whether anything about devices may have changed.
    pub(super) fn update_node(&mut self, node: &Node) -> bool {
        let whole = |(name, amount): (&String, &Quantity)| {
            let is_extended = octavo_dra::is_extended_resource(name);
            let amount = i64::try_from(amount.value()).unwrap_or(i64::MAX);
            is_extended.then(|| (name.clone(), amount))
        };
        let allocatable = node.allocatable.iter().filter_map(whole).collect();
        let is_same = self.has_object
            && self.allocatable == allocatable
            && self.node.labels == node.meta.labels;
        if is_same {
            return false;
        }
        self.has_object = true;
        self.allocatable = allocatable;
        self.node.labels.clone_from(&node.meta.labels);
        true
    }

    /// Removes the node object. Returns whether it was known.
    pub(super) fn forget_node(&mut self) -> bool {
        self.node.labels.clear();
        self.allocatable.clear();
        std::mem::take(&mut self.has_object)
    }

    /// Whether nothing is known of it any more.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_object && self.pools.is_empty()
    }

    /// What distinguishes its GPU model.
    pub(super) fn model_key(&self) -> Option<&ModelKey> {
        self.key.as_ref()
    }

    /// Sets the index of the model.
    pub(super) fn set_model(&mut self, models: &Models) {
        let id = self.key.as_ref().map(|key| models.id(key));
        match (&mut self.gpus, id) {
            (Ok(Some(gpus)), Some(Some(id))) => gpus.model = id,
            (Ok(Some(_)), _) => self.gpus = Err(UnmodeledReason::TooManyModels),
            _ => {}
        }
    }

    /// Re-reads pools and GPUs. GPUs whose taints `own` does not tolerate are closed.
    pub(super) fn refresh(&mut self, pools: &Pools, own: &Toleration) {
        self.survey = OnceLock::new();
        self.pools = pools.local_to(&self.node.name).cloned().collect();
        for (name, pool) in pools.shared() {
            if !self.pools.contains(name) && pool.slices().any(|slice| self.reaches(slice)) {
                self.pools.push(name.clone());
            }
        }
        self.pools.sort();
        let before = std::mem::replace(&mut self.gpus, Ok(None));
        self.gpus = self.read(pools, own, before.ok().flatten());
        self.key = self.gpus().map(|gpus| ModelKey {
            product: gpus.devices.model.name.clone(),
            is_plugin: gpus.source == GpuSource::Plugin,
            memory_mib: gpus.devices.model.memory_mib,
            mig: gpus.devices.model.mig.clone(),
        });
    }

    /// Whether the node reaches any device of a slice.
    fn reaches(&self, slice: &Slice) -> bool {
        let is_in = |scope: &NodeScope| match scope {
            NodeScope::Node(name) => *name == self.node.name,
            // A malformed selector counts as a match, so that the allocator reports it where it
            // stands in the way.
            NodeScope::Selector(selector) => selector.matches(&self.node).unwrap_or(true),
            NodeScope::All => true,
            NodeScope::PerDevice => false,
        };
        match &slice.nodes {
            NodeScope::PerDevice => {
                slice.devices.iter().filter_map(|device| device.nodes.as_ref()).any(is_in)
            }
            scope => is_in(scope),
        }
    }

    fn read(
        &self,
        pools: &Pools,
        own: &Toleration,
        before: Option<NodeGpus>,
    ) -> Result<Option<NodeGpus>, UnmodeledReason> {
        let driver_pools: Vec<&PoolRef> =
            pools.local_to(&self.node.name).filter(|pool| pool.driver == DRIVER).collect();
        let plugin_gpus = self.allocatable.get(EXTENDED_RESOURCE_GPU).copied().unwrap_or(0);
        let name = match driver_pools.as_slice() {
            [] if plugin_gpus > 0 => return self.read_plugin(plugin_gpus).map(Some),
            [] => return Ok(None),
            [name] => *name,
            several => return Err(UnmodeledReason::SeveralPools(several.len())),
        };
        let Some(pool) = pools.pool(name) else { return Ok(None) };
        let newest = pool.slices().map(|slice| slice.generation).max();
        let slices = || pool.slices().filter(|slice| Some(slice.generation) == newest);
        let wanted = slices().next().map_or(0, |slice| slice.slice_count);
        let is_complete = i64::try_from(slices().count()).is_ok_and(|count| count == wanted);
        if let (false, Some(before)) = (is_complete, before)
            && before.source == GpuSource::Pool(name.clone())
        {
            return Ok(Some(NodeGpus { is_settled: false, ..before }));
        }
        let devices = slices().flat_map(|slice| &slice.devices);
        let counters = slices().flat_map(|slice: &Slice| -> &[CounterSet] { &slice.counters });
        let devices = NodeDevices::read(devices, counters, |taint| tolerates(own, taint))?;
        if devices.gpus.is_empty() {
            return Ok(None);
        }
        if plugin_gpus > 0 {
            return Err(UnmodeledReason::ServedTwice);
        }
        let source = GpuSource::Pool(name.clone());
        Ok(Some(NodeGpus { devices, model: ModelId(0), source, is_settled: is_complete }))
    }

    /// GPUs of a device plugin: as many identical ones as it serves.
    fn read_plugin(&self, count: i64) -> Result<NodeGpus, UnmodeledReason> {
        let label = |name: &str| self.node.labels.get(name);
        let product = label(LABEL_PRODUCT).map_or("GPU", String::as_str);
        let memory_mib = label(LABEL_MEMORY).and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > usize::from(MAX_GPUS) {
            return Err(DevicesError::TooMany(count).into());
        }
        let text = |value: &str| AttributeValue::String(value.to_owned());
        let memory = Quantity::binary(i64::from(memory_mib) << 20);
        let devices: Vec<Device> = (0..count)
            .map(|index| Device {
                name: format!("gpu-{index}"),
                attributes: [("type", "gpu"), ("productName", product)]
                    .map(|(name, value)| (name.to_owned(), text(value)))
                    .into(),
                capacity: [("memory".to_owned(), Capacity::whole(memory))].into(),
                ..Device::default()
            })
            .collect();
        let devices = NodeDevices::read(&devices, [], |_| false)?;
        let model = ModelId(0);
        Ok(NodeGpus { devices, model, source: GpuSource::Plugin, is_settled: true })
    }
}
