//! A trace in the engine's types: its nodes as a cluster, its pods as shapes.
//!
//! The published protocol sets no limit of pods per node that these lists reach, so a node has
//! capacity for [`MAX_PODS_PER_NODE`] pods. The lists have no GPU memory, so it is not counted.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_engine::cluster::ClusterError;
use octavo_engine::fragmentation::TypicalPods;
use octavo_engine::node::NodeClass;
use octavo_engine::{
    Cluster, GpuDemand, GpuModel, ModelId, ModelSet, NodeId, NodeSpec, Resources, Shape,
};

use crate::trace::{NodeRow, PodRow, Trace};

/// Pods per node: more than any list has.
pub const MAX_PODS_PER_NODE: i64 = 1 << 40;

/// A trace's nodes in the engine.
#[derive(Clone, Debug)]
pub struct TraceCluster {
    /// The cluster, empty. Node ids follow the order of ties.
    pub cluster: Cluster,
    /// The row of each node, by id.
    rows: Vec<usize>,
}

impl TraceCluster {
    /// The nodes of a trace. They get their ids in `order`, indices of the trace's nodes, so that
    /// ties fall to the first of them.
    pub fn new(trace: &Trace, order: &[usize]) -> Result<Self, ClusterError> {
        let models = models(&trace.nodes);
        let ids: BTreeMap<String, ModelId> =
            (0..).map(ModelId).zip(&models).map(|(id, model)| (model.name.clone(), id)).collect();
        let mut cluster = Cluster::new(models, Vec::new())?;
        let mut rows = Vec::with_capacity(order.len());
        for &row in order {
            let Some(node) = trace.nodes.get(row) else { continue };
            let model = ids.get(&node.model).copied().unwrap_or_default();
            cluster.add_node(&spec(node, model))?;
            rows.push(row);
        }
        Ok(Self { cluster, rows })
    }

    /// Index of a node's row in the trace.
    pub fn row(&self, node: NodeId) -> Option<usize> {
        self.rows.get(usize::try_from(node.0).ok()?).copied()
    }
}

/// The shape of each pod of a trace. Pods that ask for the same have one shape.
pub fn shapes(trace: &Trace) -> Vec<Arc<Shape>> {
    let models = models(&trace.nodes);
    let mut interned: BTreeMap<Shape, Arc<Shape>> = BTreeMap::new();
    let mut intern = |shape: Shape| {
        let shared = interned.entry(shape.clone()).or_insert_with(|| Arc::new(shape));
        Arc::clone(shared)
    };
    trace.pods.iter().map(|pod| intern(shape(pod, &models))).collect()
}

/// The typical pods of a list, by which fragmentation is measured. They are those of the original
/// list, before tuning, as in the published runs.
pub fn typical(trace: &Trace, shapes: &[Arc<Shape>]) -> TypicalPods {
    TypicalPods::new(&models(&trace.nodes), shapes.iter().map(|shape| (&**shape, 1)))
}

/// Models of the nodes' GPUs in the order of their names.
fn models(nodes: &[NodeRow]) -> Vec<GpuModel> {
    let names: BTreeSet<&str> =
        nodes.iter().filter(|node| node.gpus > 0).map(|node| node.model.as_str()).collect();
    let model = |name: &str| GpuModel {
        name: name.to_owned(),
        memory_mib: 0,
        idle_watts: 0,
        full_watts: 0,
        mig: Vec::new(),
    };
    names.into_iter().map(model).collect()
}

fn spec(node: &NodeRow, model: ModelId) -> NodeSpec {
    let capacity =
        Resources { pods: MAX_PODS_PER_NODE, ..resources(node.cpu_milli, node.memory_mib) };
    // The limits of the lists are far below those of the engine.
    let gpus = u16::try_from(node.gpus).unwrap_or(u16::MAX);
    let class = NodeClass { capacity, gpus, model, ..NodeClass::default() };
    NodeSpec { name: Arc::from(node.name.as_str()), class, labels: BTreeMap::new() }
}

fn shape(pod: &PodRow, models: &[GpuModel]) -> Shape {
    let count = u16::try_from(pod.num_gpu).unwrap_or(u16::MAX);
    let milli = u16::try_from(pod.gpu_milli).unwrap_or(u16::MAX);
    let wanted = resources(pod.cpu_milli, pod.memory_mib);
    let mut shape = Shape::new(wanted, GpuDemand::of(count, milli));
    if count > 0 && !pod.models.is_empty() {
        // A model without a node is in no set, so no node fits.
        let ids = (0..).map(ModelId).zip(models);
        let allowed = ids.filter(|(_, model)| pod.is_allowed_on(&model.name));
        shape.models = allowed.fold(ModelSet(0), |set, (id, _)| set.with(id));
    }
    shape
}

fn resources(cpu_milli: u64, memory_mib: u64) -> Resources {
    let signed = |amount| i64::try_from(amount).unwrap_or(i64::MAX);
    Resources::of_pod(signed(cpu_milli), signed(memory_mib))
}
