//! Reserve, unreserve and bind: from a decided place to assumed devices and a write operation.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_engine::GpuPart;
use octavo_engine::gpu::WHOLE;
use octavo_engine::placement::GpuParts;
use octavo_engine::shape::GpuDemand;

use octavo_kube_io::objects::{NodeName, PodUid};

use crate::bind::{Bind, OpKind};
use crate::devices::{Ask, Devices, PodAllocation, PodAllocationError};
use crate::predicates::{Capacity, Usage, check_resource_fit};
use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::cache::node::NodeRecord;
use crate::state::cache::pod::{Place, PlaceState, PodRecord};
use crate::state::operations::OpPurpose;

/// Why a pod cannot have the place that the engine chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::state) enum ReserveError {
    /// The node does not take it: its taints, labels, volumes, or pods that keep it away.
    Rules(String),
    /// Rules about other pods keep it away from the node, or of other pods.
    Neighbours(String),
    /// Victims that have not left yet still use the room. It will be free.
    Leaving(String),
    /// Resources that the engine does not count are missing there.
    Fit(String),
    /// The allocator has no devices for it there.
    Devices(String),
    /// The node is gone.
    NoNode,
}

impl ReserveError {
    /// The reason in words.
    pub(in crate::state) fn message(&self) -> &str {
        match self {
            Self::Rules(reasons)
            | Self::Neighbours(reasons)
            | Self::Leaving(reasons)
            | Self::Fit(reasons)
            | Self::Devices(reasons) => reasons,
            Self::NoNode => "the node is gone",
        }
    }
}

impl Scheduler {
    /// Checks all resources of a pod on a node exactly, except for devices. It must fit beside the
    /// nominated pods, and beside the pods that run there now.
    pub(in crate::state) fn check_node_fit(
        &self,
        uid: &PodUid,
        node: &str,
    ) -> Result<(), ReserveError> {
        let (Some(record), Some(node)) = (self.cache.pod(uid), self.cache.node(node)) else {
            return Err(ReserveError::NoNode);
        };
        self.cache.check_amounts(record, &node.capacity, &node.usage).map_err(ReserveError::Fit)?;
        let is_leaving = |uid| self.cache.pod(uid).is_some_and(is_leaving);
        if self.reservations.has_no_nomination()
            || !self.cache.pods_on(&node.node.meta.name.name).any(|uid| is_leaving(uid))
        {
            // Decisions count with what is used.
            return Ok(());
        }
        let present = self.cache.usage_by_present_pods(node);
        self.cache.check_amounts(record, &node.capacity, &present).map_err(|reasons| {
            ReserveError::Leaving(format!("{reasons}, until pods that are leaving have left"))
        })
    }

    /// Checks whether a pod fits into the room of a node that is kept for nominated pods: beside the
    /// pods that run there now, and within the GPUs that are kept.
    pub(in crate::state) fn check_lent_fit(
        &self,
        uid: &PodUid,
        node: &str,
    ) -> Result<(), ReserveError> {
        let (Some(record), Some(node)) = (self.cache.pod(uid), self.cache.node(node)) else {
            return Err(ReserveError::NoNode);
        };
        let present = self.cache.usage_by_present_pods(node);
        self.cache.check_amounts(record, &node.capacity, &present).map_err(ReserveError::Fit)?;
        let wanted = record.shape.as_ref().map_or(0, |shape| match &shape.gpus {
            // A MIG device takes part of a GPU.
            GpuDemand::Mig { count, .. } => i64::from(*count) * i64::from(WHOLE),
            gpus => gpus.total_milli(),
        });
        if wanted > self.cache.lendable_milli(&node.node.meta.name.name) {
            return Err(ReserveError::Devices("too few GPUs are kept".to_owned()));
        }
        Ok(())
    }

    /// Whether the amounts that a pod requests would be free on a node if these pods had left it.
    pub(in crate::state) fn would_fit_without(
        &self,
        uid: &PodUid,
        node: &str,
        borrowers: &[&PodUid],
    ) -> bool {
        let (Some(record), Some(node)) = (self.cache.pod(uid), self.cache.node(node)) else {
            return false;
        };
        let mut usage = self.cache.usage_by_present_pods(node);
        for borrower in borrowers.iter().filter_map(|uid| self.cache.pod(uid)) {
            usage.remove(&borrower.footprint);
        }
        self.cache.check_amounts(record, &node.capacity, &usage).is_ok()
    }

    /// Reserves a place for a pod: checks rules and resources exactly (I-17), allocates devices, and
    /// assumes both. Writes nothing yet.
    pub(in crate::state) fn reserve(
        &mut self,
        uid: &PodUid,
        ask: &Ask,
        node: &NodeName,
        parts: Option<&[GpuPart]>,
    ) -> Result<AssumedPlacement, ReserveError> {
        self.check_rules(uid, ask, node)?;
        self.check_node_fit(uid, node)?;
        let allocate = |devices: &Devices| devices.allocate(ask, node, parts);
        self.assume_place(uid, ask, node, parts, allocate)
    }

    /// As [`Self::reserve`], in the room that is kept for nominated pods, with GPUs that are kept for
    /// them. So other pods find the same GPUs as without the loan.
    pub(in crate::state) fn reserve_lent(
        &mut self,
        uid: &PodUid,
        ask: &Ask,
        node: &NodeName,
    ) -> Result<AssumedPlacement, ReserveError> {
        self.check_rules(uid, ask, node)?;
        self.check_lent_fit(uid, node)?;
        let (lenders, kept) = self.cache.lent_gpus(node);
        let allocate = |devices: &Devices| devices.allocate_lent(ask, node, &kept, &lenders);
        let assumed = self.assume_place(uid, ask, node, None, allocate)?;
        let is_kept = |part: &GpuPart| {
            let of_gpu = kept.iter().filter(|kept| kept.gpu == part.gpu);
            part.milli <= of_gpu.map(|kept| kept.milli).sum()
        };
        if assumed.devices.as_ref().is_some_and(|devices| !devices.parts.iter().all(is_kept)) {
            self.unreserve(&assumed);
            return Err(ReserveError::Devices("other GPUs are kept".to_owned()));
        }
        Ok(assumed)
    }

    /// Checks all rules for a pod on a node. A kept place may have been chosen long ago.
    fn check_rules(
        &mut self,
        uid: &PodUid,
        ask: &Ask,
        node: &NodeName,
    ) -> Result<(), ReserveError> {
        self.cache.check_node_rules(uid, node)?;
        if !self.cache.may_allocate_devices(ask, node) {
            let why = "another scheduler allocates its devices";
            return Err(ReserveError::Rules(why.to_owned()));
        }
        self.cache.check_neighbours(uid, node)
    }

    /// Allocates devices with `allocate`, and assumes them, the volumes and the place.
    fn assume_place(
        &mut self,
        uid: &PodUid,
        ask: &Ask,
        node: &NodeName,
        parts: Option<&[GpuPart]>,
        allocate: impl FnOnce(&Devices) -> Result<PodAllocation, PodAllocationError>,
    ) -> Result<AssumedPlacement, ReserveError> {
        let volumes = self
            .cache
            .choose_volumes(uid, node)
            .map_err(|unfit| ReserveError::Rules(unfit.to_string()))?;
        let grant = if ask.is_empty() {
            None
        } else {
            let assumed = allocate(self.cache.devices());
            Some(assumed.map_err(|refusal| ReserveError::Devices(refusal.to_string()))?)
        };
        let gpus = match &grant {
            Some(grant) => grant.parts.clone(),
            None => GpuParts::new(),
        };
        let gpus =
            if gpus.is_empty() { parts.map(GpuParts::from).unwrap_or_default() } else { gpus };
        if let Some(grant) = &grant {
            self.cache.devices_mut().assume(grant);
        }
        self.cache.assume_volumes(&volumes);
        let place = Place { node: node.clone(), gpus, state: PlaceState::Reserved };
        self.cache.set_place(uid, Some(place));
        Ok(AssumedPlacement { uid: uid.clone(), node: node.clone(), devices: grant })
    }

    /// Submits the bind of an assumed placement. `gang_placed` is what it says about the pod's gang.
    pub(in crate::state) fn submit_bind(
        &mut self,
        assumed: AssumedPlacement,
        gang_placed: Option<Arc<str>>,
    ) {
        let AssumedPlacement { uid, node, devices: grant } = assumed;
        let Some(record) = self.cache.pod(&uid) else { return };
        let has_devices = grant.is_some();
        let joins_claim = grant
            .as_ref()
            .is_some_and(|grant| grant.claims.iter().any(|claim| claim.allocation.is_none()));
        let (claims, extended) =
            grant.map_or((Vec::new(), None), |grant| (grant.claims, grant.extended));
        let pod = record.reference();
        let node_name = node.clone();
        let bind = Bind { pod, node: node_name, claims, extended, gang_placed, is_retry: false };
        let task = OpKind::Bind(bind);
        let op = self.operations.submit(&uid, OpPurpose::Bind, task);
        self.cache.set_assumed(&uid, op);
        self.cache.neighbour_changed(&uid);
        // From now on its claims decide what it holds.
        self.cache.refresh_pod(&uid);
        if joins_claim {
            // A claim of one pod is shared by two now.
            self.refresh_node(&node);
        } else if has_devices {
            self.refresh_claim_holders(&node);
        }
    }

    /// Undoes an assumed placement that was not submitted.
    pub(in crate::state) fn unreserve(&mut self, assumed: &AssumedPlacement) {
        self.cache.devices_mut().forget(&assumed.uid);
        self.forget_volumes(&assumed.uid);
        self.cache.set_place(&assumed.uid, None);
        self.holders_changed(&assumed.node);
    }

    /// Forgets the volumes that were assumed for a pod.
    pub(in crate::state) fn forget_volumes(&mut self, uid: &PodUid) {
        if self.cache.forget_volumes(uid) {
            self.volumes_changed(false);
        }
    }

    /// Removes the place of a pod, which others may use from now on.
    pub(in crate::state) fn release_place(&mut self, uid: &PodUid) {
        let place = self.cache.pod(uid).and_then(|record| record.place.as_ref());
        if let Some(node) = place.map(|place| place.node.clone()) {
            self.cache.room_changed(&node);
        }
        self.forget_volumes(uid);
        self.cache.devices_mut().forget(uid);
        self.cache.set_place(uid, None);
    }

    /// Refreshes a node after the holders of its devices may have changed.
    pub(in crate::state) fn holders_changed(&mut self, node: &NodeName) {
        let reservations = &self.reservations;
        self.cache.holders_changed(node, |uid| reservations.is_victim(uid));
    }

    /// Refreshes all pods and claims that hold devices of a node.
    pub(in crate::state) fn refresh_node(&mut self, node: &NodeName) {
        let reservations = &self.reservations;
        self.cache.refresh_node(node, |uid| reservations.is_victim(uid));
    }

    /// Refreshes the claims of a node that have no single placed pod as owner.
    pub(in crate::state) fn refresh_claim_holders(&mut self, node: &NodeName) {
        let reservations = &self.reservations;
        self.cache.refresh_claim_holders(node, |uid| reservations.is_victim(uid));
    }
}

impl Cache {
    /// Whether the amounts that a pod requests fit on a node beside this usage; why not, in words.
    fn check_amounts(
        &self,
        record: &PodRecord,
        capacity: &Capacity,
        usage: &Usage,
    ) -> Result<(), String> {
        let serves = |resource: &str| self.devices().is_class_resource(resource);
        let fit = check_resource_fit(&record.footprint, capacity, usage, self.volumes(), serves);
        fit.map_err(|reasons| {
            let reasons: Vec<_> = reasons.iter().map(ToString::to_string).collect();
            reasons.join(", ")
        })
    }

    /// A node's usage by the pods that run there: with victims that have not left yet, and without
    /// nominated pods.
    fn usage_by_present_pods(&self, node: &NodeRecord) -> Usage {
        let mut usage = node.usage.clone();
        for record in self.pods_on(&node.node.meta.name.name).filter_map(|uid| self.pod(uid)) {
            if is_leaving(record) {
                usage.add(&record.footprint);
            } else if record.is_nominated() && record.counted_on.is_some() {
                usage.remove(&record.footprint);
            }
        }
        usage
    }

    /// The nominated pods of a node, and the parts of GPUs that are kept for them.
    fn lent_gpus(&self, node: &str) -> (BTreeSet<PodUid>, GpuParts) {
        let residents = self.pods_on(node).filter_map(|uid| Some((uid, self.pod(uid)?)));
        let mut lent = (BTreeSet::new(), GpuParts::new());
        for (uid, record) in residents.filter(|(_, record)| record.is_nominated()) {
            lent.0.insert(uid.clone());
            lent.1.extend(record.place.iter().flat_map(|place| place.gpus.iter().copied()));
        }
        lent
    }

    /// Thousandths of GPUs of a node that are kept for nominated pods and that no leaving pod uses.
    fn lendable_milli(&self, node: &str) -> i64 {
        let milli = |gpus: &GpuParts| gpus.iter().map(|part| i64::from(part.milli)).sum::<i64>();
        let residents = self.pods_on(node).filter_map(|uid| Some((uid, self.pod(uid)?)));
        let amounts = residents.filter_map(|(uid, record)| match &record.place {
            Some(place) if record.is_nominated() => Some(milli(&place.gpus)),
            Some(place) if is_leaving(record) => Some(-milli(&self.gpus_of(uid, place))),
            _ => None,
        });
        amounts.sum()
    }
}

/// Whether a pod has its place and must leave it: a victim or a borrower.
fn is_leaving(record: &PodRecord) -> bool {
    record.is_leaving && record.is_present()
}

/// A place that is assumed for a pod and not submitted yet.
#[derive(Clone, Debug)]
pub(in crate::state) struct AssumedPlacement {
    pub(in crate::state) uid: PodUid,
    pub(in crate::state) node: NodeName,
    pub(in crate::state) devices: Option<PodAllocation>,
}
