//! Classes of nodes, and changes of them: amounts, taints, GPUs.

use std::sync::Arc;

use super::{Cluster, ClusterError, MAX_GPUS, index, too_many};
use crate::gpu::GpuFree;
use crate::node::{ClassId, NodeClass, NodeId};

impl Cluster {
    /// Changes the class of a node: taints, price, hazard, capacity, GPUs. Allocations stay, so free
    /// amounts may become negative. The GPUs can only change while none of them is in use.
    pub fn set_class(&mut self, node: NodeId, class: &NodeClass) -> Result<(), ClusterError> {
        self.check(node)?;
        let old = self.class(node);
        let has_same_gpus = (old.gpus, &old.links) == (class.gpus, &class.links)
            && (class.gpus == 0 || old.model == class.model);
        let more = class.capacity.minus(&old.capacity);
        let gpus = if has_same_gpus {
            None
        } else {
            if !self.gpus(node).iter().all(GpuFree::is_unused) {
                return Err(ClusterError::OtherGpus(Arc::clone(&self.names[index(node)])));
            }
            let idle = self.idle_gpu(&self.names[index(node)], class)?;
            Some(vec![idle; usize::from(class.gpus)].into_iter().flatten().collect())
        };
        let id = self.enter_class(class);
        self.totals.capacity = self.totals.capacity.plus(&more);
        self.totals.free = self.totals.free.plus(&more);
        self.change(node, |cluster| {
            cluster.node_classes[index(node)] = id;
            cluster.free[index(node)] = cluster.free[index(node)].plus(&more);
            if let Some(gpus) = gpus {
                cluster.replace_gpus(node, gpus);
            }
        });
        Ok(())
    }

    /// An idle GPU of a class; `None` if the class has no model. Fails if there are too many, or none
    /// of that model.
    pub(super) fn idle_gpu(
        &self,
        node: &Arc<str>,
        class: &NodeClass,
    ) -> Result<Option<GpuFree>, ClusterError> {
        if class.gpus > MAX_GPUS {
            return Err(too_many("GPUs of a node", class.gpus.into(), MAX_GPUS.into()));
        }
        let model = self.models.get(usize::from(class.model.0));
        if class.gpus > 0 && model.is_none() {
            let (node, models) = (Arc::clone(node), self.models.len());
            return Err(ClusterError::UnknownModel { node, model: class.model, models });
        }
        Ok(model.map(GpuFree::idle))
    }

    /// The number of a class, which is new if need be.
    pub(super) fn enter_class(&mut self, class: &NodeClass) -> ClassId {
        let next = ClassId(u32::try_from(self.classes.len()).unwrap_or(u32::MAX));
        *self.class_ids.entry(class.clone()).or_insert_with(|| {
            self.classes.push(class.clone());
            next
        })
    }

    /// Replaces the unused GPUs of a node by idle ones. Those of later nodes move in the list.
    fn replace_gpus(&mut self, node: NodeId, gpus: Vec<GpuFree>) {
        let old = self.gpu_range(node);
        let count = |gpus: usize| i64::try_from(gpus).unwrap_or(i64::MAX);
        let more = count(gpus.len()) - count(old.len());
        self.totals.gpus += more;
        self.totals.unused_gpus += more;
        self.totals.gpu_milli += more * 1000;
        let (removed, added) = (old.len(), gpus.len());
        self.gpus.splice(old, gpus);
        for start in &mut self.gpu_starts[index(node) + 1..] {
            *start = *start - removed + added;
        }
    }
}
