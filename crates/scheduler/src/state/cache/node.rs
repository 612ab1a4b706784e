//! A node in the cache: the API object, its usage, and its form for the engine.

use std::sync::Arc;

use octavo_api::names::{LABEL_OWNER, TAINT_OWNER};
use octavo_engine::devices::PublishedGpu;
use octavo_engine::node::{FeatureMask, Links, NodeClass};
use octavo_engine::{ModelId, NodeSpec, Resources};
use octavo_health::risk::RiskClass;
use octavo_kube_io::objects::{Node, NodeTaint, TaintEffect};

use super::engine_cache::DesiredNode;
use super::gpu_risk::GpuRisks;
use super::pod::engine_amount;
use crate::devices::{GpuSource, NodeGpus};
use crate::predicates::{Capacity, Usage};

/// A node and its usage by placed pods.
#[derive(Clone, Debug)]
pub(in crate::state) struct NodeRecord {
    pub(in crate::state) node: Arc<Node>,
    pub(in crate::state) capacity: Capacity,
    pub(in crate::state) usage: Usage,
    /// Bits of the node requirements that this node satisfies.
    pub(in crate::state) features: FeatureMask,
}

/// How a pod requests GPUs, as far as it makes nodes differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::state) enum GpuUse {
    /// No GPUs.
    #[default]
    None,
    /// Through claims, from devices of `ResourceSlice`s.
    Claims,
    /// Through the extended resource, from a device plugin. `true`: a `DeviceClass` serves it, too.
    Resource(bool),
}

impl GpuUse {
    /// Whether a node's GPUs can serve the request. A node whose GPUs are not modeled may serve it,
    /// too.
    pub(in crate::state) fn suits(self, gpus: Option<&NodeGpus>) -> bool {
        let Some(gpus) = gpus else { return true };
        match (self, &gpus.source) {
            (Self::None, _) | (Self::Resource(_), GpuSource::Plugin) => true,
            (Self::Claims, source) => matches!(source, GpuSource::Pool(_)),
            (Self::Resource(is_served), GpuSource::Pool(_)) => is_served,
        }
    }
}

/// Whether this scheduler allocates the devices of the node.
pub(in crate::state) fn is_owned(node: &Node, owner: &str) -> bool {
    node.meta.labels.get(LABEL_OWNER).is_some_and(|name| name == owner)
}

/// The node without the taint that keeps other schedulers away from it. A device plugin's GPUs have
/// no taints of their own, so their node is tainted. Pods of this scheduler need no toleration.
pub(in crate::state) fn without_own_taint(node: &Arc<Node>, owner: &str) -> Arc<Node> {
    let is_own = |taint: &NodeTaint| {
        taint.key == TAINT_OWNER && taint.value == owner && taint.effect == TaintEffect::NoSchedule
    };
    if !node.taints.iter().any(is_own) {
        return Arc::clone(node);
    }
    let mut node = Node::clone(node);
    node.taints.retain(|taint| !is_own(taint));
    Arc::new(node)
}

/// The node as the engine should know it. `labels` are the keys of the topology levels.
pub(in crate::state) fn desired_node(
    record: &NodeRecord,
    gpus: Option<&NodeGpus>,
    owner: &str,
    labels: &[String],
    risks: &GpuRisks,
) -> DesiredNode {
    let node = &record.node;
    let capacity = Resources {
        cpu_milli: engine_amount(record.capacity.amounts.cpu),
        // Rounded down: what the engine assigns must exist.
        memory_mib: engine_amount(record.capacity.amounts.memory >> 20),
        pods: engine_amount(record.capacity.pods),
    };
    let is_open = gpus.is_some_and(|gpus| gpus.is_settled && is_owned(node, owner));
    let published = gpus.map_or(&[][..], |gpus| &gpus.devices.gpus);
    let closed = (0..).zip(published).fold(0, |closed: u64, (index, gpu)| {
        if gpu.is_closed || !is_open { closed | 1 << index } else { closed }
    });
    let name = Arc::clone(&node.meta.name.name);
    let risk = |(gpu, published): (u16, &PublishedGpu)| {
        let risk = risks.of(&name, &published.device);
        (risk > RiskClass::Usual).then_some((gpu, risk))
    };
    let risks = (0..).zip(published).filter_map(risk).collect();
    let class = NodeClass {
        capacity,
        gpus: u16::try_from(published.len()).unwrap_or(u16::MAX),
        model: gpus.map_or(ModelId::default(), |gpus| gpus.model),
        links: gpus.map_or(Links::default(), |gpus| gpus.devices.links.clone()),
        features: record.features,
        ..NodeClass::default()
    };
    let of_levels = labels.iter().filter_map(|key| node.meta.labels.get_key_value(key));
    let labels = of_levels.map(|(key, value)| (key.clone(), value.clone())).collect();
    DesiredNode { spec: NodeSpec { name, class, labels }, closed, risks }
}
