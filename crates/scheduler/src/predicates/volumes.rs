//! Persistent volume claims and their volumes.

mod late_binding;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_kube_io::objects::{
    Change, CsiCapacity, CsiDriver, CsiNode, Delta, Meta, NodeName, ObjectName, PersistentVolume,
    Pod, PodVolume, StorageClass, VolumeClaim, VolumeSource,
};

use super::Unfit;
use super::labels::{Labels, Term, valid_terms};
pub(super) use late_binding::{LateClaim, choose};
pub(crate) use late_binding::{SELECTED_NODE, VolumeChoice};

/// Zone and region labels, older names first, each with the label that nodes may have instead.
const ZONE_LABELS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];

/// A cache of volume claims, volumes, storage classes and the attach limits of nodes.
#[derive(Clone, Debug, Default)]
pub struct Volumes {
    claims: BTreeMap<ObjectName, Arc<VolumeClaim>>,
    persistent: BTreeMap<Arc<str>, Arc<PersistentVolume>>,
    /// Names of the volumes that are for a claim, by its name, and of those for any claim.
    by_claim: BTreeMap<Option<ObjectName>, BTreeSet<Arc<str>>>,
    classes: BTreeMap<Arc<str>, Arc<StorageClass>>,
    nodes: BTreeMap<NodeName, Arc<CsiNode>>,
    drivers: BTreeMap<Arc<str>, Arc<CsiDriver>>,
    capacities: BTreeMap<ObjectName, Arc<CsiCapacity>>,
    /// Volumes that claims are about to be bound to.
    assumed: BTreeMap<Arc<str>, ObjectName>,
    /// Nodes for which volumes of claims were requested.
    selected: BTreeMap<ObjectName, NodeName>,
}

/// The nodes from which a bound volume can be reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct VolumeReach {
    /// Terms of which one must match a node's labels; `None`: all nodes.
    terms: Option<Vec<Term>>,
    /// Label, its substitute, and its values.
    zones: Vec<(&'static str, &'static str, BTreeSet<String>)>,
}

/// Driver and handle of a CSI volume.
pub(super) type CsiVolume<'a> = (&'a str, CsiHandle<'a>);

/// What identifies a CSI volume of its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CsiHandle<'a> {
    /// The volume's own handle.
    Known(&'a str),
    /// There is no volume yet.
    OfClaim(&'a ObjectName),
}

/// The state of a claim that a pod uses.
pub(super) enum ClaimState<'a> {
    /// It is bound to this volume.
    Bound(&'a PersistentVolume),
    /// It waits for a volume.
    Unbound(&'a VolumeClaim),
    /// It cannot be used.
    Unusable(Unfit),
}

impl Volumes {
    /// Applies a change. Returns whether anything relevant changed.
    pub fn apply(&mut self, change: &Change) -> bool {
        match change {
            Change::VolumeClaim(delta) => {
                let relevant = |claim: &VolumeClaim| {
                    let Meta { uid, owner, deleted, annotations, .. } = &claim.meta;
                    let meta = (uid.clone(), owner.clone(), deleted.is_some());
                    let spec = VolumeClaim { meta: Meta::default(), ..claim.clone() };
                    (spec, meta, annotations.get(SELECTED_NODE).cloned())
                };
                apply_delta(&mut self.claims, delta, |claim| claim.meta.name.clone(), relevant)
            }
            Change::Volume(delta) => {
                let relevant = |volume: &PersistentVolume| {
                    let Meta { labels, deleted, .. } = &volume.meta;
                    let spec = PersistentVolume { meta: Meta::default(), ..volume.clone() };
                    (spec, labels.clone(), deleted.is_some())
                };
                let before = match delta {
                    Delta::Upsert(volume) | Delta::Delete(volume) => {
                        self.persistent.get(&volume.meta.name.name).cloned()
                    }
                    Delta::Replace(..) => None,
                };
                let name = |volume: &PersistentVolume| name_of(&volume.meta);
                let has_changed = apply_delta(&mut self.persistent, delta, name, relevant);
                self.index_volumes(delta, before.as_deref());
                has_changed
            }
            Change::StorageClass(delta) => {
                let relevant =
                    |class: &StorageClass| StorageClass { meta: Meta::default(), ..class.clone() };
                apply_delta(&mut self.classes, delta, |object| name_of(&object.meta), relevant)
            }
            Change::CsiNode(delta) => {
                let name = |node: &CsiNode| name_of(&node.meta).into();
                apply_delta(&mut self.nodes, delta, name, |node| node.limits.clone())
            }
            Change::CsiDriver(delta) => {
                let name = |driver: &CsiDriver| name_of(&driver.meta);
                apply_delta(&mut self.drivers, delta, name, |driver| driver.has_capacity)
            }
            Change::CsiCapacity(delta) => {
                let relevant =
                    |one: &CsiCapacity| CsiCapacity { meta: Meta::default(), ..one.clone() };
                apply_delta(&mut self.capacities, delta, |one| one.meta.name.clone(), relevant)
            }
            _ => false,
        }
    }

    /// Notes for which claims volumes are. `before` is the former state of a single one.
    fn index_volumes(
        &mut self,
        delta: &Delta<PersistentVolume>,
        before: Option<&PersistentVolume>,
    ) {
        let claim_of =
            |volume: &PersistentVolume| volume.claim.as_ref().map(|(name, _)| name.clone());
        if let Some(before) = before
            && let Some(names) = self.by_claim.get_mut(&claim_of(before))
        {
            names.remove(&before.meta.name.name);
            if names.is_empty() {
                self.by_claim.remove(&claim_of(before));
            }
        }
        if matches!(delta, Delta::Replace(..)) {
            self.by_claim.clear();
        }
        for volume in delta.present() {
            let names = self.by_claim.entry(claim_of(volume)).or_default();
            names.insert(name_of(&volume.meta));
        }
    }

    /// Whether a pod uses claims. What was computed for such a pod must be recomputed when
    /// [`Self::apply`] returns true.
    pub fn uses_claims(pod: &Pod) -> bool {
        let is_claim = |volume: &PodVolume| {
            matches!(volume.source, VolumeSource::Claim(_) | VolumeSource::Ephemeral)
        };
        pod.spec.volumes.iter().any(is_claim)
    }

    /// Why a pod's volumes let it run on no node now.
    pub(super) fn pod_level_reason(&self, pod: &Pod) -> Option<Unfit> {
        pod.spec.volumes.iter().find_map(|volume| match self.state(pod, volume)? {
            ClaimState::Bound(_) => None,
            ClaimState::Unbound(claim) if self.late_binding_class(claim).is_some() => None,
            ClaimState::Unbound(_) => Some(Unfit::UnboundClaim),
            ClaimState::Unusable(unfit) => Some(unfit),
        })
    }

    /// The reach of a pod's bound volumes, without those that all nodes reach.
    pub(super) fn reaches(&self, pod: &Pod) -> Vec<VolumeReach> {
        let reach = |volume: &PodVolume| match self.state(pod, volume)? {
            ClaimState::Bound(bound) => {
                Some(VolumeReach::of(bound, matches!(volume.source, VolumeSource::Claim(_))))
            }
            _ => None,
        };
        let all = pod.spec.volumes.iter().filter_map(reach);
        all.filter(|reach| reach.terms.is_some() || !reach.zones.is_empty()).collect()
    }

    /// The state of the claim behind a pod's volume; `None` if the volume has no claim.
    pub(super) fn state(&self, pod: &Pod, volume: &PodVolume) -> Option<ClaimState<'_>> {
        let name = claim_name(pod, volume)?;
        let Some(claim) = self.claims.get(&name) else {
            return Some(ClaimState::Unusable(Unfit::MissingClaim { claim: name }));
        };
        if claim.meta.deleted.is_some() {
            return Some(ClaimState::Unusable(Unfit::DeletedClaim { claim: name }));
        }
        let is_own = || claim.meta.owner.as_ref().is_some_and(|owner| owner.uid == pod.meta.uid);
        if volume.source == VolumeSource::Ephemeral && !is_own() {
            return Some(ClaimState::Unusable(Unfit::ForeignClaim { claim: name }));
        }
        let Some(bound) = &claim.volume else { return Some(ClaimState::Unbound(claim)) };
        Some(match self.persistent.get(&**bound) {
            Some(volume) => ClaimState::Bound(volume),
            None => ClaimState::Unusable(Unfit::MissingVolume { volume: Arc::from(&**bound) }),
        })
    }

    /// Whether only one pod at a time may use a claim (`ReadWriteOncePod`).
    pub(super) fn is_for_one_pod(&self, claim: &ObjectName) -> bool {
        let claim = self.claims.get(claim);
        claim.is_some_and(|claim| claim.access_modes.iter().any(|mode| mode == "ReadWriteOncePod"))
    }

    /// Driver and handle of the CSI volume of a claim. A claim without a volume has one of its own,
    /// from the provisioner of its class.
    pub(super) fn csi_volume<'a>(&'a self, name: &'a ObjectName) -> Option<CsiVolume<'a>> {
        let claim = self.claims.get(name)?;
        if !claim.is_prebound {
            let class = self.classes.get(claim.class.as_deref()?)?;
            return Some((&class.provisioner, CsiHandle::OfClaim(name)));
        }
        let bound = claim.volume.as_deref()?;
        let (driver, handle) = self.persistent.get(bound)?.csi.as_ref()?;
        (!driver.is_empty() && !handle.is_empty())
            .then_some((driver.as_str(), CsiHandle::Known(handle)))
    }

    /// How many volumes of each driver a node can attach; `None` without limits.
    pub(super) fn limits(&self, node: &str) -> Option<&BTreeMap<String, Option<u32>>> {
        self.nodes.get(node).map(|node| &node.limits)
    }
}

impl VolumeReach {
    fn of(volume: &PersistentVolume, has_zones: bool) -> Self {
        let zones = ZONE_LABELS.iter().filter(|_| has_zones).filter_map(|(label, fallback)| {
            let values = volume.meta.labels.get(*label)?.split("__").map(str::trim);
            let values: BTreeSet<String> = values.map(str::to_owned).collect();
            // A list of zones with an empty name is ignored.
            (!values.contains("")).then_some((*label, *fallback, values))
        });
        Self { terms: volume.node_affinity.as_ref().map(valid_terms), zones: zones.collect() }
    }

    /// Why a node with these labels does not reach the volume.
    pub(super) fn affinity_mismatch(&self, labels: &Labels) -> Option<Unfit> {
        let terms = self.terms.as_ref()?;
        let is_match = terms.iter().any(|term| term.matches_labels(labels));
        (!is_match).then_some(Unfit::VolumeAffinity)
    }

    /// Why the volume is not in the zone or region of a node with these labels. A node without zone
    /// labels is in a cluster of one zone.
    pub(super) fn zone_mismatch(&self, labels: &Labels) -> Option<Unfit> {
        if self.zones.is_empty()
            || !ZONE_LABELS.iter().any(|(label, _)| labels.contains_key(*label))
        {
            return None;
        }
        let is_in = |(label, fallback, values): &(&str, &str, BTreeSet<String>)| {
            let value = labels.get(*label).or_else(|| labels.get(*fallback));
            value.is_some_and(|value| values.contains(value))
        };
        let is_match = self.zones.iter().all(is_in);
        (!is_match).then_some(Unfit::VolumeZone)
    }
}

/// The claim behind a pod's volume.
pub(super) fn claim_name(pod: &Pod, volume: &PodVolume) -> Option<ObjectName> {
    let namespace = Arc::clone(&pod.meta.name.namespace);
    match &volume.source {
        VolumeSource::Claim(name) => Some(ObjectName { namespace, name: Arc::from(&**name) }),
        VolumeSource::Ephemeral => {
            let name = format!("{}-{}", pod.meta.name.name, volume.name);
            Some(ObjectName { namespace, name: Arc::from(name) })
        }
        _ => None,
    }
}

/// The name of a cluster-scoped object.
fn name_of(meta: &Meta) -> Arc<str> {
    Arc::clone(&meta.name.name)
}

/// Applies a change. Returns whether what is `relevant` of any object differs.
fn apply_delta<K: Ord + Clone, T, R: PartialEq>(
    objects: &mut BTreeMap<K, Arc<T>>,
    delta: &Delta<T>,
    key: impl Fn(&T) -> K,
    relevant: impl Fn(&T) -> R,
) -> bool {
    let mut has_changed = false;
    for key in delta.gone(objects.keys(), &key) {
        has_changed |= objects.remove(&key).is_some();
    }
    for object in delta.present() {
        let old = objects.insert(key(object), Arc::clone(object));
        has_changed |= old.is_none_or(|old| relevant(&old) != relevant(object));
    }
    has_changed
}
