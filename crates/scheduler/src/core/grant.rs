//! From a place that was decided to devices, an order, and what is assumed of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_engine::placement::GpuParts;
use octavo_engine::workload::{Bonds, Profile};
use octavo_engine::{GpuPart, Resources, Shape};

use super::picture::{Want, WorkloadWant};
use super::pod::{Hold, Place};
use super::shape::demand_of;
use super::{Core, FlightKind};
use crate::bind::{Bind, OpKind};
use crate::devices::{Ask, PodAllocation};
use crate::predicates::check_resource_fit;

/// Why a pod cannot have a place that the engine chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unplaced {
    /// Something that the engine does not know is taken there.
    Room(String),
    /// The allocator has no devices for it there.
    Devices(String),
    /// The node is gone.
    NoNode,
}

impl Unplaced {
    /// In words.
    pub(super) fn words(&self) -> &str {
        match self {
            Self::Room(words) | Self::Devices(words) => words,
            Self::NoNode => "the node is gone",
        }
    }
}

impl Core {
    /// Whether a pod fits a node exactly, by everything but devices.
    pub(super) fn check_room_on(&self, uid: &Arc<str>, node: &str) -> Result<(), Unplaced> {
        let (Some(record), Some(node)) = (self.pods.get(uid), self.nodes.get(node)) else {
            return Err(Unplaced::NoNode);
        };
        let serves = |resource: &str| self.devices.is_class_resource(resource);
        let room = check_resource_fit(
            &record.footprint,
            &node.capacity,
            &node.usage,
            &self.volumes,
            serves,
        );
        room.map_err(|reasons| {
            let words: Vec<_> = reasons.iter().map(ToString::to_string).collect();
            Unplaced::Room(words.join(", "))
        })
    }

    /// Gives a pod its place: room is checked exactly, devices are allocated, and all of it is assumed.
    /// No order is given yet.
    pub(super) fn grant(
        &mut self,
        uid: &Arc<str>,
        ask: &Ask,
        node: &Arc<str>,
        parts: Option<&[GpuPart]>,
    ) -> Result<Granted, Unplaced> {
        self.check_room_on(uid, node)?;
        let grant = if ask.is_empty() {
            None
        } else {
            let granted = self.devices.allocate(ask, node, parts);
            Some(granted.map_err(|refusal| Unplaced::Devices(refusal.to_string()))?)
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
        let place = Place { node: Arc::clone(node), gpus, hold: Hold::Promised };
        self.put(uid, Some(place));
        Ok(Granted { uid: Arc::clone(uid), node: Arc::clone(node), grant })
    }

    /// Orders that a grant be carried out.
    pub(super) fn order_grant(&mut self, granted: Granted) {
        let Granted { uid, node, grant } = granted;
        let Some(record) = self.pods.get(&uid) else { return };
        let has_devices = grant.is_some();
        let joins = grant
            .as_ref()
            .is_some_and(|grant| grant.claims.iter().any(|claim| claim.allocation.is_none()));
        let (claims, extended) =
            grant.map_or((Vec::new(), None), |grant| (grant.claims, grant.extended));
        let pod = record.reference();
        // What is seen of its claims may have been taken back since: that is looked at first.
        let is_retry = claims.iter().any(|write| {
            write.allocation.is_none()
                && write.claim.reserved_for.iter().any(|one| one.uid == uid)
                && self.devices.may_have_been_rolled_back(&write.claim)
        });
        let task = OpKind::Bind(Bind { pod, node: Arc::clone(&node), claims, extended, is_retry });
        let order = self.order(&uid, FlightKind::Bind, task);
        if let Some(record) = self.pods.get_mut(&uid)
            && let Some(place) = &mut record.place
        {
            place.hold = Hold::Assumed(order);
        }
        // Now its claims say what it has.
        self.refresh(&uid);
        if joins {
            // What one pod had is of two.
            self.refresh_node(&node);
        } else if has_devices {
            self.refresh_claims(&node);
        }
    }

    /// Takes back a grant of which no order was given.
    pub(super) fn take_back(&mut self, granted: &Granted) {
        self.devices.forget(&granted.uid);
        self.put(&granted.uid, None);
        self.holders_changed(&granted.node);
    }

    /// Puts a pod into its place, or out of it.
    pub(super) fn put(&mut self, uid: &Arc<str>, place: Option<Place>) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        let old = std::mem::replace(&mut record.place, place.clone());
        let is_bound = record.pod.node.is_some();
        if let Some(old) = old.filter(|_| !is_bound)
            && let Some(there) = self.on_node.get_mut(&old.node)
        {
            there.remove(uid);
        }
        if let Some(place) = place {
            self.on_node.entry(place.node).or_default().insert(Arc::clone(uid));
        }
        self.refresh(uid);
    }

    /// Claims of a node that no single placed pod has: they hold their devices by themselves.
    pub(super) fn refresh_claims(&mut self, node: &Arc<str>) {
        if self.is_picture_old {
            return;
        }
        let mut there: BTreeSet<Arc<str>> = BTreeSet::new();
        for held in self.devices.held(node) {
            let owner = held.pods.iter().next().filter(|_| held.pods.len() == 1);
            let is_owned = owner.and_then(|uid| self.pods.get(uid)).is_some_and(|record| {
                record.occupies() && record.place.as_ref().is_some_and(|place| place.node == *node)
            });
            // Of those who leave for others the devices are promised.
            let is_promised =
                !held.pods.is_empty() && held.pods.iter().all(|uid| self.has_left_for_others(uid));
            if is_owned || is_promised || held.parts.is_empty() {
                continue;
            }
            let holder: Arc<str> = format!("claim:{}", held.claim).into();
            let profile = Profile {
                is_preemptible: false,
                is_movable: false,
                tenant: Arc::clone(&held.name.namespace),
                ..Profile::new(format!("claim {}", held.name))
            };
            let shape = Shape::new(Resources::default(), demand_of(&held.parts));
            let workload = WorkloadWant {
                profile: Arc::new(profile),
                min_members: 1,
                bonds: Bonds::default(),
            };
            let want =
                Want { workload, shape: Arc::new(shape), node: Arc::clone(node), gpus: held.parts };
            self.picture.set(&holder, Some(want));
            there.insert(holder);
        }
        let before = self.claim_holders.insert(Arc::clone(node), there.clone()).unwrap_or_default();
        for gone in before.difference(&there) {
            self.picture.set(gone, None);
        }
    }
}

/// A place that a pod was given, before its order.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    pub(super) uid: Arc<str>,
    pub(super) node: Arc<str>,
    pub(super) grant: Option<PodAllocation>,
}
