//! A pod in the cache.

use std::sync::Arc;

use octavo_engine::placement::GpuParts;
use octavo_engine::workload::Profile;
use octavo_engine::{Resources, Shape};
use octavo_kube_io::objects::{NodeName, Pod};

use super::maintenance::Stay;
use super::node::GpuUse;
use super::node_mask::NodeMask;
use crate::bind::{OpId, PodRef};
use crate::groups::{GroupError, GroupName, Member, MemberState};
use crate::predicates::{NodeFilterKey, PodRequests};

/// A pod and the decisions about it.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Clone, Debug)]
pub(in crate::state) struct PodRecord {
    pub(in crate::state) pod: Arc<Pod>,
    /// When it was first observed, in milliseconds.
    pub(in crate::state) observed_at: u64,
    pub(in crate::state) footprint: Arc<PodRequests>,
    /// The gang that it belongs to.
    pub(in crate::state) member: Option<Member>,
    /// Why it is not a member of the gang that it names.
    pub(in crate::state) group_fault: Option<GroupError>,
    /// The gang that it names, known or not.
    pub(in crate::state) named_group: Option<GroupName>,
    /// Its last member state, and whether it had no scheduling gates.
    pub(in crate::state) member_state: Option<(MemberState, bool)>,
    /// Whether it is in the index of claim users.
    pub(in crate::state) has_indexed_claims: bool,
    /// Its node requirement, held while it is pending, or placed by this scheduler.
    pub(in crate::state) node_mask: Option<(NodeMask, NodeFilterKey, GpuUse)>,
    /// How long it may hold up work on nodes, as its node requirement takes it.
    pub(in crate::state) stay: Stay,
    /// Its request for the engine.
    pub(in crate::state) shape: Option<Arc<Shape>>,
    pub(in crate::state) profile: Option<Arc<Profile>>,
    /// Its place, if bound, assumed or nominated.
    pub(in crate::state) place: Option<Place>,
    /// The node whose usage includes it.
    pub(in crate::state) counted_on: Option<NodeName>,
    /// The node on which other pods' rules see it: affinity, anti-affinity, topology spread.
    pub(in crate::state) neighbour_on: Option<NodeName>,
    /// Whether its labels have changed since it was counted there, or its deletion has begun.
    pub(in crate::state) has_neighbour_changed: bool,
    /// Whether it is a victim of a nomination, or borrows a place of it.
    pub(in crate::state) is_leaving: bool,
    /// Whether the packing policy has learned of its arrival.
    pub(in crate::state) has_arrived: bool,
    /// `status.nominatedNodeName` as it was written last, or observed if it was not written since.
    pub(in crate::state) nominated_node: Option<NodeName>,
    /// Writes of it in flight. Until they end, observed values may be from before them.
    pub(in crate::state) nominated_node_writes: u32,
    /// Failed binds in a row.
    pub(in crate::state) failures: u32,
    /// Whether it was asked to leave for its gang's sake: its node is lost, or the gang is too small.
    pub(in crate::state) is_repaired: bool,
    /// Whether its end was counted as a fault of its gang.
    pub(in crate::state) is_fault_counted: bool,
    /// It is not evicted again before this time in milliseconds, because an eviction failed.
    pub(in crate::state) eviction_retry_at: u64,
}

/// The place of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::state) struct Place {
    pub(in crate::state) node: NodeName,
    /// Parts of GPUs of the decision. For a bound pod its claims are authoritative.
    pub(in crate::state) gpus: GpuParts,
    pub(in crate::state) state: PlaceState,
}

/// State of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) enum PlaceState {
    /// Observed in the API.
    Bound,
    /// Decided; the bind is in flight, or succeeded and not observed yet.
    Assumed(OpId),
    /// Decided; victims must leave first.
    Nominated,
    /// Reserved in this decision; its bind is submitted when all pods of the entry have places.
    Reserved,
}

impl PodRecord {
    /// A pod without decisions, first observed at this time in milliseconds.
    pub(in crate::state) fn new(
        pod: Arc<Pod>,
        footprint: Arc<PodRequests>,
        observed_at: u64,
    ) -> Self {
        let nominated_node = pod.nominated_node.clone();
        Self {
            pod,
            observed_at,
            footprint,
            member: None,
            group_fault: None,
            named_group: None,
            member_state: None,
            has_indexed_claims: false,
            node_mask: None,
            stay: Stay::default(),
            shape: None,
            profile: None,
            place: None,
            counted_on: None,
            neighbour_on: None,
            has_neighbour_changed: false,
            is_leaving: false,
            has_arrived: false,
            nominated_node,
            nominated_node_writes: 0,
            failures: 0,
            is_repaired: false,
            is_fault_counted: false,
            eviction_retry_at: 0,
        }
    }

    /// Name and UID.
    pub(in crate::state) fn reference(&self) -> PodRef {
        PodRef { name: self.pod.meta.name.clone(), uid: self.pod.uid() }
    }

    /// Whether it has a place and has not ended. A victim is present until it has left.
    pub(in crate::state) fn is_present(&self) -> bool {
        self.place.is_some() && !self.pod.has_ended()
    }

    /// Whether it uses its place: it is bound or assumed, has not ended, and is no victim.
    pub(in crate::state) fn occupies(&self) -> bool {
        self.place.is_some() && !self.pod.has_ended() && !self.is_leaving
    }

    /// Whether it has a place that victims must leave first.
    pub(in crate::state) fn is_nominated(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.state == PlaceState::Nominated)
    }

    /// Notes the observed `status.nominatedNodeName`.
    pub(in crate::state) fn observe_nominated_node(&mut self) {
        if self.nominated_node_writes == 0 {
            self.nominated_node.clone_from(&self.pod.nominated_node);
        }
    }

    /// Whether it is pending and belongs to the scheduler of this name.
    pub(in crate::state) fn is_pending_for(&self, scheduler: &str) -> bool {
        self.pod.spec.scheduler == scheduler
            && self.pod.node.is_none()
            && self.place.is_none()
            && !self.pod.has_ended()
            && self.pod.meta.deleted.is_none()
            && self.pod.spec.gates.is_empty()
    }
}

/// The resources that the engine counts. Memory is rounded up to whole MiB.
pub(in crate::state) fn resources(footprint: &PodRequests) -> Resources {
    let memory = footprint.amounts.memory;
    let mib = (memory >> 20) + i128::from(memory & ((1 << 20) - 1) != 0);
    Resources {
        cpu_milli: engine_amount(footprint.amounts.cpu),
        memory_mib: engine_amount(mib),
        pods: 1,
    }
}

/// An amount as the engine counts it. Larger ones than any node has are lowered, so that the sum over the
/// pods of a node, and over all nodes, is always exact.
pub(in crate::state) fn engine_amount(amount: i128) -> i64 {
    /// A million such amounts fit into an `i64`.
    const MAX_AMOUNT: i64 = i64::MAX >> 20;
    i64::try_from(amount).map_or(MAX_AMOUNT, |amount| amount.min(MAX_AMOUNT))
}

/// Whether a pod takes resources that the engine does not count.
pub(in crate::state) fn takes_uncounted(
    footprint: &PodRequests,
    is_gpu: impl Fn(&str) -> bool,
) -> bool {
    footprint.amounts.storage > 0
        || footprint.amounts.others.iter().any(|(name, _)| !is_gpu(name))
        || !footprint.ports.is_empty()
        || !footprint.disks.is_empty()
        || !footprint.claims.is_empty()
}
