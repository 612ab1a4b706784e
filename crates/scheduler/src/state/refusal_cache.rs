//! Refusals of single pods, so that pods with equal requests are searched for once.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_engine::Shape;
use octavo_engine::workload::TopologyConstraint;
use octavo_kube_io::objects::{AffinityTerm, Pod, Spread};
use rustc_hash::FxHashMap;

use super::node_mask::NodeMask;
use super::pending_reason::PendingReason;
use super::queue::ClassId;
use crate::devices::RequestKey;
use crate::predicates::PodRequests;

/// Distinct requests from which on the classes get new numbers.
const MAX_CLASSES: usize = 8192;

/// All that decides whether a pod is refused: request, priority, policy, and which pods it may evict
/// or move.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RefusalKey {
    pub(super) shape: Arc<Shape>,
    pub(super) priority: i32,
    pub(super) may_evict: bool,
    pub(super) moves: u32,
    pub(super) topology: TopologyConstraint,
    pub(super) policy: String,
    /// The footprint of a pod that takes resources that the engine does not count.
    pub(super) uncounted: Option<Arc<PodRequests>>,
    /// Namespace, labels and rules of a pod that other pods may keep away from nodes.
    pub(super) neighbours: Option<NeighbourKey>,
    /// The claims of a pod for which only the allocator can decide.
    pub(super) claims: Option<RequestKey>,
}

/// What the filters for neighbours know of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NeighbourKey {
    pub(super) namespace: Arc<str>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) affinity: Vec<AffinityTerm>,
    pub(super) anti_affinity: Vec<AffinityTerm>,
    pub(super) spread: Vec<Spread>,
}

impl NeighbourKey {
    pub(super) fn of(pod: &Pod) -> Self {
        let Pod { meta, spec, .. } = pod;
        Self {
            namespace: Arc::clone(&meta.name.namespace),
            labels: meta.labels.clone(),
            affinity: spec.affinity.clone(),
            anti_affinity: spec.anti_affinity.clone(),
            spread: spec.spread.clone(),
        }
    }
}

/// Refusals since the last change of the cluster, and the classes of pods with equal requests.
#[derive(Debug, Default)]
pub(super) struct RefusalCache {
    cluster_revision: u64,
    answers: FxHashMap<RefusalKey, PendingReason>,
    classes: FxHashMap<RefusalKey, ClassId>,
}

impl RefusalCache {
    /// The refusal of an equal pod since this cluster revision.
    pub(super) fn answer(&mut self, key: &RefusalKey, revision: u64) -> Option<PendingReason> {
        if self.cluster_revision != revision {
            self.answers.clear();
            self.cluster_revision = revision;
        }
        self.answers.get(key).cloned()
    }

    /// Keeps a refusal that holds for all pods with an equal request. Returns their class; `new`
    /// makes one.
    pub(super) fn keep(
        &mut self,
        key: RefusalKey,
        refusal: PendingReason,
        new: impl FnOnce() -> ClassId,
    ) -> ClassId {
        if self.classes.len() >= MAX_CLASSES {
            self.classes.clear();
        }
        let class = *self.classes.entry(key.clone()).or_insert_with(new);
        self.answers.insert(key, refusal);
        class
    }

    /// The class of pods with this request.
    pub(super) fn class(&self, key: &RefusalKey) -> Option<ClassId> {
        self.classes.get(key).copied()
    }

    /// Forgets the refusals. Equal requests stay equal.
    pub(super) fn forget_answers(&mut self) {
        self.answers.clear();
    }

    /// Forgets the requests with a node mask that now stands for another requirement.
    pub(super) fn forget_mask(&mut self, mask: NodeMask) {
        let features = mask.required_features();
        self.answers.clear();
        self.classes.retain(|key, _| !key.shape.needs.has_all(features));
    }

    /// Forgets all, after a change of what requests mean.
    pub(super) fn clear(&mut self) {
        self.answers.clear();
        self.classes.clear();
    }
}
