//! Refusals of single pods, so that pods with equal requests are searched for once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use octavo_engine::Shape;
use octavo_engine::workload::TopologyConstraint;
use octavo_kube_io::objects::{AffinityTerm, NodeName, Pod, Spread};

use crate::devices::RequestKey;
use crate::predicates::PodRequests;
use crate::state::cache::maintenance::Stay;
use crate::state::cache::node_mask::NodeMask;
use crate::state::queue::{ClassId, Search};
use crate::state::reporter::pending_reason::PendingReason;

/// Distinct requests from which on the classes get new numbers.
const MAX_CLASSES: usize = 8192;

/// What decides whether a pod is refused: request, priority, policy, and which pods it may evict or
/// move.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::state) struct RefusalKey {
    pub(in crate::state) shape: Arc<Shape>,
    pub(in crate::state) priority: i32,
    /// Whether it may borrow the place of another entry.
    pub(in crate::state) can_yield: bool,
    /// How long it may hold up work on nodes.
    pub(in crate::state) stay: Stay,
    pub(in crate::state) may_evict: bool,
    pub(in crate::state) moves: u32,
    pub(in crate::state) topology: TopologyConstraint,
    pub(in crate::state) policy: String,
    /// The footprint of a pod that takes resources that the engine does not count.
    pub(in crate::state) uncounted: Option<Arc<PodRequests>>,
    /// Namespace, labels and rules of a pod that other pods keep away from nodes, or may.
    pub(in crate::state) neighbours: Option<NeighbourKey>,
    /// Its claims and extended resources.
    pub(in crate::state) claims: Option<RequestKey>,
}

/// What the filters for neighbours know of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::state) struct NeighbourKey {
    pub(in crate::state) namespace: Arc<str>,
    pub(in crate::state) labels: BTreeMap<String, String>,
    pub(in crate::state) affinity: Vec<AffinityTerm>,
    pub(in crate::state) anti_affinity: Vec<AffinityTerm>,
    pub(in crate::state) spread: Vec<Spread>,
}

impl NeighbourKey {
    /// The key of a pod. Other labels than these do not matter to any rule.
    pub(in crate::state) fn of(pod: &Pod, labels: BTreeMap<String, String>) -> Self {
        let Pod { meta, spec, .. } = pod;
        Self {
            namespace: Arc::clone(&meta.name.namespace),
            labels,
            affinity: spec.affinity.clone(),
            anti_affinity: spec.anti_affinity.clone(),
            spread: spec.spread.clone(),
        }
    }
}

/// Refusals since the last change of the cluster, and the classes of pods with equal requests.
#[derive(Debug, Default)]
pub(in crate::state) struct RefusalCache {
    cluster_revision: u64,
    answers: HashMap<RefusalKey, PendingReason>,
    classes: HashMap<RefusalKey, Class>,
    /// What is known of the refusal that is being handled.
    pub(in crate::state) last: LastRefusal,
}

/// A class, and its last reason.
#[derive(Debug)]
struct Class {
    id: ClassId,
    reason: PendingReason,
}

/// The class of a refused pod, if its refusal holds for a class, and what was searched.
#[derive(Debug, Default)]
pub(in crate::state) struct LastRefusal {
    pub(in crate::state) class: Option<ClassId>,
    pub(in crate::state) search: Search,
    /// Nodes where borrowers of lower priority use what it lacks.
    pub(in crate::state) lent: BTreeSet<NodeName>,
}

impl RefusalCache {
    /// The refusal of an equal pod since this cluster revision.
    pub(in crate::state) fn answer(
        &mut self,
        key: &RefusalKey,
        revision: u64,
    ) -> Option<PendingReason> {
        if self.cluster_revision != revision {
            self.answers.clear();
            self.cluster_revision = revision;
        }
        self.answers.get(key).cloned()
    }

    /// Keeps a refusal that holds for all pods with an equal request. Returns their class; `new`
    /// makes one.
    pub(in crate::state) fn keep(
        &mut self,
        key: RefusalKey,
        refusal: PendingReason,
        new: impl FnOnce() -> ClassId,
    ) -> ClassId {
        if self.classes.len() >= MAX_CLASSES {
            self.classes.clear();
        }
        let class = self
            .classes
            .entry(key.clone())
            .or_insert_with(|| Class { id: new(), reason: refusal.clone() });
        class.reason = refusal.clone();
        self.answers.insert(key, refusal);
        class.id
    }

    /// The class of pods with this request, and why it was refused last.
    pub(in crate::state) fn class(&self, key: &RefusalKey) -> Option<(ClassId, &PendingReason)> {
        self.classes.get(key).map(|class| (class.id, &class.reason))
    }

    /// Whether no class of refused pods is known.
    pub(in crate::state) fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// Forgets the refusals. Equal requests stay equal.
    pub(in crate::state) fn forget_answers(&mut self) {
        self.answers.clear();
    }

    /// Forgets the requests with a node mask that now stands for another requirement.
    pub(in crate::state) fn forget_mask(&mut self, mask: NodeMask) {
        let features = mask.required_features();
        self.answers.clear();
        self.classes.retain(|key, _| !key.shape.needs.has_all(features));
    }

    /// Forgets all, after a change of what requests mean.
    pub(in crate::state) fn clear(&mut self) {
        self.answers.clear();
        self.classes.clear();
    }
}
