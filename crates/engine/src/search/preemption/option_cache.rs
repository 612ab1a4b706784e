//! The candidate state while victims are chosen: the pods that may still be disrupted, and the
//! options of each node. Results are cached per node signature.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::disruption_cost::DisruptionCost;
use super::eviction_uses::EvictionUses;
use super::node_options::{self, DisruptionKind, NodeOptions, NodeView};
use super::node_view;
use super::victims::{Disruption, PodIndex, Taken, VictimPool};
use crate::World;
use crate::node::NodeId;
use crate::shape::Shape;

/// The part shared by all domains. It changes only when a pod class turns out to be immovable.
#[derive(Debug, Default)]
pub(super) struct OptionCache {
    /// By pod class: whether its pods cannot be moved.
    pub(super) is_immovable: Vec<bool>,
    /// By node: its signature, once it was asked for.
    signatures: Vec<Option<u32>>,
    ids: FxHashMap<Vec<u64>, u32>,
    keys: BTreeMap<(u32, DisruptionKind, DisruptionCost, u32), u32>,
    /// By signature, group of the gang, and maximum number of members.
    options: BTreeMap<(u32, u32, u32), Arc<NodeOptions>>,
}

/// The cache, with a world from which the removed pods are already gone.
pub(super) struct CandidateState<'a> {
    pub(super) world: &'a World,
    pub(super) pool: &'a VictimPool,
    pub(super) cache: &'a mut OptionCache,
    pub(super) taken: Taken,
    /// States of nodes that were looked at.
    pub(super) spent: &'a mut u64,
    /// The step limit.
    pub(super) limit: u64,
}

impl OptionCache {
    pub(super) fn new(nodes: usize, classes: usize) -> Self {
        Self {
            is_immovable: vec![false; classes],
            signatures: vec![None; nodes],
            ..Self::default()
        }
    }

    /// Marks a pod class as immovable and clears the signatures of all nodes.
    pub(super) fn set_immovable(&mut self, class: u32) {
        if let Some(immovable) = self.is_immovable.get_mut(class as usize) {
            *immovable = true;
        }
        self.signatures.fill(None);
    }

    /// Drops the signature of a changed node.
    pub(super) fn forget(&mut self, node: NodeId) {
        if let Some(signature) = self.signatures.get_mut(node.0 as usize) {
            *signature = None;
        }
    }

    /// Sets which kinds cannot be moved.
    pub(super) fn restore(&mut self, is_immovable: Vec<bool>) {
        self.is_immovable = is_immovable;
        self.signatures.fill(None);
    }
}

impl<'a> CandidateState<'a> {
    /// Whether no more may be looked at.
    pub(super) fn is_spent(&self) -> bool {
        *self.spent > self.limit
    }

    pub(super) fn kind(&self, pod: PodIndex) -> Option<DisruptionKind> {
        let workload = self.pool.workload(pod);
        let number = self.pool.pod(pod).workload;
        let is_immovable = self.cache.is_immovable[self.pool.pod(pod).class as usize];
        if workload.may_move && !is_immovable {
            Some(DisruptionKind::Move)
        } else if !workload.may_evict {
            None
        } else if self.slack(number) > 0 {
            Some(DisruptionKind::Evict)
        } else {
            workload.may_evict_all.then_some(DisruptionKind::EvictAll)
        }
    }

    /// The number of pods of a workload that may still be evicted alone.
    pub(super) fn slack(&self, workload: u32) -> u32 {
        self.taken.slack(self.pool, workload)
    }

    /// What disruptions use of the limits, apart from pods that are gone already.
    pub(super) fn uses(
        &self,
        disruptions: &[Disruption],
        is_removed: &impl Fn(PodIndex) -> bool,
    ) -> EvictionUses {
        let pods = disruptions.iter().flat_map(|disruption| self.pool.pods_of(*disruption));
        self.pool.uses(pods.filter(|pod| !self.taken.gone[*pod as usize] && !is_removed(*pod)))
    }

    /// A node and its possible victims. Pods in `removed` count as gone, although the cluster still
    /// has them.
    pub(super) fn view(
        &self,
        node: NodeId,
        is_removed: impl Fn(PodIndex) -> bool,
    ) -> Option<NodeView<'a>> {
        let mut state = node_view::of_node(&self.world.cluster, node)?;
        let mut view_pods: SmallVec<[PodIndex; 8]> = SmallVec::new();
        let (mut members, mut kinds) = (SmallVec::new(), SmallVec::new());
        for pod in self.pool.on(node) {
            if self.taken.gone[*pod as usize] {
                continue;
            }
            let Some(member) = self.pool.member(self.world, *pod) else { continue };
            if is_removed(*pod) {
                node_view::take_off(&mut state, member);
            } else if let Some(kind) = self.kind(*pod) {
                view_pods.push(*pod);
                members.push(member);
                kinds.push(kind);
            }
        }
        Some(NodeView { state, pods: view_pods, members, kinds })
    }

    /// The options and the signature of a node that is as in the cluster.
    pub(super) fn options(
        &mut self,
        node: NodeId,
        group: u32,
        shape: &Shape,
        most: u32,
    ) -> Option<(u32, Arc<NodeOptions>)> {
        let index = node.0 as usize;
        let cache = self.cache.signatures.get(index).copied().flatten();
        let signature = if let Some(signature) = cache {
            signature
        } else {
            let view = self.view(node, |_| false)?;
            let (signature, _) = self.sign(&view);
            *self.cache.signatures.get_mut(index)? = Some(signature);
            signature
        };
        let key = (signature, group, most);
        if let Some(options) = self.cache.options.get(&key) {
            return Some((signature, Arc::clone(options)));
        }
        let view = self.ordered(node)?;
        let options = Arc::new(self.find(&view, shape, most));
        self.cache.options.insert(key, Arc::clone(&options));
        Some((signature, options))
    }

    /// A node whose pods are in the order of its signature.
    pub(super) fn ordered(&mut self, node: NodeId) -> Option<NodeView<'a>> {
        let mut view = self.view(node, |_| false)?;
        let (_, order) = self.sign(&view);
        let order = || order.iter().map(|place| usize::from(*place));
        view.pods = order().map(|place| view.pods[place]).collect();
        view.members = order().map(|place| view.members[place]).collect();
        view.kinds = order().map(|place| view.kinds[place]).collect();
        Some(view)
    }

    pub(super) fn find(&mut self, view: &NodeView<'_>, shape: &Shape, most: u32) -> NodeOptions {
        node_options::find(self.world, self.pool, view, shape, most, &self.taken, self.spent)
    }

    /// Whether a disruption affects other nodes.
    pub(super) fn is_multi_node(&self, disruption: Disruption) -> bool {
        match disruption {
            Disruption::Move(_) => false,
            Disruption::Evict(pod) => self.pool.workload(pod).is_multi_node,
            Disruption::EvictAll(workload) => self.pool.workloads[workload as usize].is_multi_node,
        }
    }

    fn sign(&mut self, view: &NodeView<'_>) -> (u32, SmallVec<[u16; 8]>) {
        let pool = self.pool;
        let mut rows: SmallVec<[(u32, &crate::workload::Member); 8]> = SmallVec::new();
        for ((pod, member), kind) in view.pods.iter().zip(&view.members).zip(&view.kinds) {
            let number = pool.pod(*pod).workload;
            let (disruption, cost) = match kind {
                DisruptionKind::Move => (Disruption::Move(*pod), DisruptionCost::ZERO),
                DisruptionKind::Evict => {
                    (Disruption::Evict(*pod), pool.cost(Disruption::EvictAll(number)))
                }
                DisruptionKind::EvictAll => (Disruption::EvictAll(number), DisruptionCost::ZERO),
            };
            let cost = cost.plus(pool.cost(disruption)).without_age();
            // Several pods of one workload on a node are coupled unless each may be evicted alone.
            // Limits of the workload may count members elsewhere, too.
            let workload = &pool.workloads[number as usize];
            let is_alone = || {
                view.pods.iter().filter(|other| pool.pod(**other).workload == number).count() <= 1
            };
            let is_bound = *kind != DisruptionKind::Move
                && self.slack(number) < workload.members
                && (workload.is_limited || !is_alone());
            let bound = if is_bound { number } else { u32::MAX };
            let next = u32::try_from(self.cache.keys.len()).unwrap_or(u32::MAX);
            let key = (pool.pod(*pod).class, *kind, cost, bound);
            rows.push((*self.cache.keys.entry(key).or_insert(next), member));
        }
        let (words, order) = node_view::signature(self.world, &view.state, &rows);
        let next = u32::try_from(self.cache.ids.len()).unwrap_or(u32::MAX);
        (*self.cache.ids.entry(words).or_insert(next), order)
    }
}
