//! Reserve, unreserve and bind: from a decided place to assumed devices and a write operation.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_engine::placement::GpuParts;
use octavo_engine::workload::{Coupling, Profile};
use octavo_engine::{GpuPart, Plan, Resources, Shape};

use octavo_kube_io::objects::{NodeName, PodUid};

use super::engine_cache::{DesiredMember, DesiredWorkload, Holder};
use super::node::NodeRecord;
use super::pod::{Place, PlaceState, PodRecord};
use super::shape::demand_of;
use super::{OpPurpose, Scheduler};
use crate::bind::{Bind, OpKind};
use crate::devices::{Ask, PodAllocation};
use crate::predicates::{Neighbours, NodeFilterKey, Usage, check_resource_fit};

/// Why a pod cannot have the place that the engine chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReserveError {
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
    pub(super) fn message(&self) -> &str {
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
    /// Checks a node's taints, labels and reach of volumes.
    pub(super) fn check_node_rules(&self, uid: &PodUid, node: &str) -> Result<(), ReserveError> {
        let (Some(record), Some(node)) = (self.pods.get(uid), self.nodes.get(node)) else {
            return Err(ReserveError::NoNode);
        };
        let node = &node.node;
        let gpus = self.devices.gpus(&node.meta.name.name);
        let checked = match &record.node_mask {
            Some((_, _, used)) if !used.suits(gpus) => {
                let why = "its GPUs are not of the kind that is requested";
                return Err(ReserveError::Rules(why.to_owned()));
            }
            Some((_, rules, _)) => rules.check(node),
            // The pod has changed since it got its place.
            None => NodeFilterKey::of(&record.pod, &self.volumes).check(node),
        };
        checked.map_err(|unfit| ReserveError::Rules(unfit.to_string()))
    }

    /// Checks whether other pods keep a pod without a place away from a node.
    pub(super) fn check_neighbours(&self, uid: &PodUid, node: &str) -> Result<(), ReserveError> {
        let (Some(record), Some(node)) = (self.pods.get(uid), self.nodes.get(node)) else {
            return Err(ReserveError::NoNode);
        };
        let away = self.neighbours.exclusions(&record.pod, &self.volumes);
        away.check(&node.node).map_err(|unfit| ReserveError::Neighbours(unfit.to_string()))
    }

    /// Checks the rules about other pods for members of a plan as they will be: the plan's victims
    /// are gone, and the members before are in their places.
    pub(super) fn check_neighbours_after_plan(
        &mut self,
        members: &[(PodUid, NodeName)],
        plan: &Plan,
    ) -> Result<(), ReserveError> {
        let is_concerned = |uid: &PodUid| {
            let record = self.pods.get(uid);
            record.is_some_and(|record| Neighbours::has_rules(&record.pod))
                || !self.exclusions(uid).is_empty()
        };
        if !members.iter().any(|(uid, _)| is_concerned(uid)) {
            return Ok(());
        }
        let leaving = plan.evictions.iter().chain(plan.moves.iter().map(|step| &step.member));
        let leaving = leaving.filter_map(|id| self.pods.get(&**self.engine.holder(*id)?));
        let leaving: Vec<PodUid> = leaving.map(|record| record.pod.uid()).collect();
        self.without_neighbours(&leaving, |scheduler| {
            let mut placed: Vec<&PodUid> = Vec::new();
            let mut result = Ok(());
            for (uid, node) in members {
                result = scheduler.check_neighbours(uid, node);
                let Some(record) = scheduler.pods.get(uid).filter(|_| result.is_ok()) else {
                    break;
                };
                scheduler.neighbours.add(&record.pod, node);
                placed.push(uid);
            }
            for uid in placed {
                scheduler.neighbours.remove(uid);
            }
            result
        })
    }

    /// Asks as if these pods had left, as the rules of other pods see them.
    pub(super) fn without_neighbours<T>(
        &mut self,
        leaving: &[PodUid],
        ask: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let records = leaving.iter().filter_map(|uid| self.pods.get(uid));
        let counted: Vec<_> = records
            .filter_map(|record| Some((Arc::clone(&record.pod), record.neighbour_on.clone()?)))
            .collect();
        for (pod, _) in &counted {
            self.neighbours.remove(&pod.meta.uid);
        }
        let answer = ask(self);
        for (pod, node) in &counted {
            self.neighbours.add(pod, node);
        }
        answer
    }

    /// A node's usage as if these pods had left.
    pub(super) fn usage_without<'a>(
        &self,
        node: &NodeName,
        leaving: impl IntoIterator<Item = &'a str>,
    ) -> Option<Usage> {
        let mut usage = self.nodes.get(node)?.usage.clone();
        let gone = leaving.into_iter().filter_map(|uid| self.pods.get(uid));
        for gone in gone.filter(|gone| gone.counted_on.as_ref() == Some(node)) {
            usage.remove(&gone.footprint);
        }
        Some(usage)
    }

    /// Checks all resources of a pod on a node exactly, except for devices. It must fit beside the
    /// nominated pods, and beside the pods that run there now.
    pub(super) fn check_node_fit(&self, uid: &PodUid, node: &str) -> Result<(), ReserveError> {
        let (Some(record), Some(node)) = (self.pods.get(uid), self.nodes.get(node)) else {
            return Err(ReserveError::NoNode);
        };
        let serves = |resource: &str| self.devices.is_class_resource(resource);
        let fits = |usage: &Usage| {
            let fit =
                check_resource_fit(&record.footprint, &node.capacity, usage, &self.volumes, serves);
            fit.map_err(|reasons| {
                let reasons: Vec<_> = reasons.iter().map(ToString::to_string).collect();
                reasons.join(", ")
            })
        };
        fits(&node.usage).map_err(ReserveError::Fit)?;
        let Some(present) = self.usage_by_present_pods(node) else { return Ok(()) };
        fits(&present).map_err(|reasons| {
            ReserveError::Leaving(format!("{reasons}, until pods that are leaving have left"))
        })
    }

    /// A node's usage by the pods that run there: with victims that have not left yet, and without
    /// nominated pods. `None` if it is the usage that decisions count with.
    fn usage_by_present_pods(&self, node: &NodeRecord) -> Option<Usage> {
        if self.nominations.is_empty() {
            return None;
        }
        let residents = self.on_node.get(&*node.node.meta.name.name)?;
        let residents: Vec<_> = residents.iter().filter_map(|uid| self.pods.get(uid)).collect();
        let is_leaving = |record: &&&PodRecord| record.is_leaving && record.is_present();
        if !residents.iter().any(|record| is_leaving(&record)) {
            return None;
        }
        let mut usage = node.usage.clone();
        for leaving in residents.iter().filter(is_leaving) {
            usage.add(&leaving.footprint);
        }
        for nominated in residents.iter().filter(|record| record.is_nominated()) {
            if nominated.counted_on.is_some() {
                usage.remove(&nominated.footprint);
            }
        }
        Some(usage)
    }

    /// Reserves a place for a pod: checks rules and resources exactly (I-17), allocates devices, and
    /// assumes both. Writes nothing yet.
    pub(super) fn reserve(
        &mut self,
        uid: &PodUid,
        ask: &Ask,
        node: &NodeName,
        parts: Option<&[GpuPart]>,
    ) -> Result<AssumedPlacement, ReserveError> {
        // A kept place may have been chosen long ago.
        self.check_node_rules(uid, node)?;
        if !self.may_allocate_devices(ask, node) {
            let why = "another scheduler allocates its devices";
            return Err(ReserveError::Rules(why.to_owned()));
        }
        self.check_neighbours(uid, node)?;
        self.check_node_fit(uid, node)?;
        let volumes = self
            .choose_volumes(uid, node)
            .map_err(|unfit| ReserveError::Rules(unfit.to_string()))?;
        let grant = if ask.is_empty() {
            None
        } else {
            let assumed = self.devices.allocate(ask, node, parts);
            Some(assumed.map_err(|refusal| ReserveError::Devices(refusal.to_string()))?)
        };
        let gpus = match &grant {
            Some(grant) => grant.parts.clone(),
            None => GpuParts::new(),
        };
        let gpus =
            if gpus.is_empty() { parts.map(GpuParts::from).unwrap_or_default() } else { gpus };
        if let Some(grant) = &grant {
            self.devices.assume(grant);
        }
        self.volumes.assume(&volumes);
        let place = Place { node: node.clone(), gpus, state: PlaceState::Reserved };
        self.set_place(uid, Some(place));
        Ok(AssumedPlacement { uid: uid.clone(), node: node.clone(), devices: grant })
    }

    /// Submits the bind of an assumed placement.
    pub(super) fn submit_bind(&mut self, assumed: AssumedPlacement) {
        let AssumedPlacement { uid, node, devices: grant } = assumed;
        let Some(record) = self.pods.get(&uid) else { return };
        let has_devices = grant.is_some();
        let joins_claim = grant
            .as_ref()
            .is_some_and(|grant| grant.claims.iter().any(|claim| claim.allocation.is_none()));
        let (claims, extended) =
            grant.map_or((Vec::new(), None), |grant| (grant.claims, grant.extended));
        let pod = record.reference();
        // Its claims may have been rolled back since they were observed; then the binder re-reads
        // them first.
        let is_retry = claims.iter().any(|write| {
            write.allocation.is_none()
                && write.claim.reserved_for.iter().any(|user| *user.uid == *uid)
                && self.devices.may_have_been_rolled_back(&write.claim)
        });
        let task = OpKind::Bind(Bind { pod, node: node.clone(), claims, extended, is_retry });
        let op = self.submit(&uid, OpPurpose::Bind, task);
        if let Some(record) = self.pods.get_mut(&uid)
            && let Some(place) = &mut record.place
        {
            place.state = PlaceState::Assumed(op);
        }
        self.neighbour_changed(&uid);
        // From now on its claims decide what it holds.
        self.refresh_pod(&uid);
        if joins_claim {
            // A claim of one pod is shared by two now.
            self.refresh_node(&node);
        } else if has_devices {
            self.refresh_claim_holders(&node);
        }
    }

    /// Undoes an assumed placement that was not submitted.
    pub(super) fn unreserve(&mut self, assumed: &AssumedPlacement) {
        self.devices.forget(&assumed.uid);
        self.forget_volumes(&assumed.uid);
        self.set_place(&assumed.uid, None);
        self.holders_changed(&assumed.node);
    }

    /// Forgets the volumes that were assumed for a pod.
    pub(super) fn forget_volumes(&mut self, uid: &PodUid) {
        if let Some(record) = self.pods.get(uid)
            && self.volumes.forget(&record.pod)
        {
            self.volumes_changed(false);
        }
    }

    /// Sets or removes the place of a pod.
    pub(super) fn set_place(&mut self, uid: &PodUid, place: Option<Place>) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        let old = std::mem::replace(&mut record.place, place.clone());
        let is_bound = record.pod.node.is_some();
        if let Some(old) = old.filter(|_| !is_bound)
            && let Some(residents) = self.on_node.get_mut(&old.node)
        {
            residents.remove(uid);
        }
        if let Some(place) = place {
            self.on_node.entry(place.node).or_default().insert(uid.clone());
        }
        self.refresh_pod(uid);
    }

    /// Removes the place of a pod, which others may use from now on.
    pub(super) fn release_place(&mut self, uid: &PodUid) {
        let place = self.pods.get(uid).and_then(|record| record.place.as_ref());
        if let Some(node) = place.map(|place| place.node.clone()) {
            self.room_changed(&node);
        }
        self.forget_volumes(uid);
        self.devices.forget(uid);
        self.set_place(uid, None);
    }

    /// Refreshes the claims of a node that have no single placed pod as owner. They hold their
    /// devices by themselves.
    pub(super) fn refresh_claim_holders(&mut self, node: &NodeName) {
        if self.is_engine_stale {
            return;
        }
        let mut residents: BTreeSet<Holder> = BTreeSet::new();
        for held in self.devices.held(node) {
            let owner = held.pods.iter().next().filter(|_| held.pods.len() == 1);
            let is_owned = owner.and_then(|uid| self.pods.get(uid)).is_some_and(|record| {
                record.occupies() && record.place.as_ref().is_some_and(|place| place.node == *node)
            });
            // Devices of a nomination's victims are reserved for its pods.
            let is_nominated =
                !held.pods.is_empty() && held.pods.iter().all(|uid| self.is_nomination_victim(uid));
            if is_owned || is_nominated || held.parts.is_empty() {
                continue;
            }
            let holder: Holder = format!("claim:{}", held.claim).into();
            let profile = Profile {
                is_preemptible: false,
                is_movable: false,
                tenant: Arc::clone(&held.name.namespace),
                ..Profile::new(format!("claim {}", held.name))
            };
            let shape = Shape::new(Resources::default(), demand_of(&held.parts));
            let workload = DesiredWorkload {
                profile: Arc::new(profile),
                min_members: 1,
                coupling: Coupling::default(),
            };
            let desired = DesiredMember {
                workload,
                shape: Arc::new(shape),
                node: node.clone(),
                gpus: held.parts,
            };
            self.engine.set_desired(&holder, Some(desired));
            residents.insert(holder);
        }
        let before = self.claim_holders.insert(node.clone(), residents.clone()).unwrap_or_default();
        for gone in before.difference(&residents) {
            self.engine.set_desired(gone, None);
        }
    }
}

/// A place that is assumed for a pod and not submitted yet.
#[derive(Clone, Debug)]
pub(super) struct AssumedPlacement {
    pub(super) uid: PodUid,
    pub(super) node: NodeName,
    pub(super) devices: Option<PodAllocation>,
}
