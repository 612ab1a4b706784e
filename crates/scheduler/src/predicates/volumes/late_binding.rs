//! Volume claims whose volumes are chosen when their pod is placed (`WaitForFirstConsumer`).
//!
//! As kube-scheduler's filter `VolumeBinding`: on a node a claim gets the smallest existing volume
//! that serves it and that the node reaches. If there is none, a volume is provisioned, where the
//! storage class allows it and has capacity. Smaller claims choose first.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_kube_io::objects::{
    BindingMode, NodeName, ObjectName, PersistentVolume, Pod, StorageClass, VolumeClaim,
};

use super::{ClaimState, Volumes};
use crate::predicates::Unfit;
use crate::predicates::labels::{
    Labels, Requirement, Term, all_hold, requirements, selects, valid_terms,
};

/// The provisioner of classes whose volumes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// The node for which a claim's volume is provisioned.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Where a claim without a volume could get one. Claims of one template have equal ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LateClaim {
    requested: i128,
    /// The node for which a volume is being provisioned.
    selected_node: Option<NodeName>,
    /// Volumes that could serve it, the smallest first.
    candidates: Vec<Candidate>,
    /// How volumes are provisioned, if they are.
    provisioning: Option<Provisioning>,
}

/// A volume that could serve a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Candidate {
    volume: Arc<str>,
    /// Whether it is reserved for the claim, which then takes no other.
    is_reserved: bool,
    /// Terms of which one must match a node's labels; `None`: all nodes.
    terms: Option<Vec<Term>>,
}

/// Where volumes of a storage class can be provisioned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Provisioning {
    /// Lists of labels and values, of which a node must match one; empty: all nodes.
    topologies: Vec<Vec<(String, Vec<String>)>>,
    /// Selectors of the nodes with enough capacity; `None`: capacity is not published.
    capacities: Option<Vec<Vec<Requirement>>>,
}

/// How a claim gets its volume on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VolumeChoice {
    /// It is bound to this volume.
    Bind { claim: ObjectName, volume: Arc<str> },
    /// A volume is provisioned for the node.
    Provision { claim: ObjectName },
}

impl VolumeChoice {
    /// The claim.
    pub(crate) fn claim(&self) -> &ObjectName {
        match self {
            Self::Bind { claim, .. } | Self::Provision { claim } => claim,
        }
    }
}

/// The volumes that claims get on a node, in their order; `None` where one is provisioned. Fails if
/// a claim gets none.
pub(crate) fn choose<'a>(
    claims: &'a [LateClaim],
    node: &str,
    labels: &Labels,
) -> Result<Vec<Option<&'a Arc<str>>>, Unfit> {
    let is_elsewhere = |claim: &LateClaim| {
        claim.selected_node.as_ref().is_some_and(|selected| **selected != *node)
    };
    if claims.iter().any(is_elsewhere) {
        return Err(Unfit::NoVolume);
    }
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    let mut volumes = Vec::with_capacity(claims.len());
    for claim in claims {
        let volume = match claim.selected_node {
            Some(_) => None,
            None => claim.find(&taken, labels),
        };
        match volume {
            Some(volume) => _ = taken.insert(volume),
            None => claim.check_provisioning(labels)?,
        }
        volumes.push(volume);
    }
    Ok(volumes)
}

impl LateClaim {
    /// The smallest volume that serves the claim on a node.
    fn find(&self, taken: &BTreeSet<&str>, labels: &Labels) -> Option<&Arc<str>> {
        let reaches = |candidate: &Candidate| {
            let terms = candidate.terms.as_ref();
            terms.is_none_or(|terms| terms.iter().any(|term| term.matches_labels(labels)))
        };
        let free = || self.candidates.iter().filter(|one| !taken.contains(&*one.volume));
        let found = match free().find(|candidate| candidate.is_reserved) {
            Some(reserved) => Some(reserved).filter(|reserved| reaches(reserved)),
            None => free().find(|candidate| reaches(candidate)),
        };
        found.map(|candidate| &candidate.volume)
    }

    fn check_provisioning(&self, labels: &Labels) -> Result<(), Unfit> {
        let Some(Provisioning { topologies, capacities }) = &self.provisioning else {
            return Err(Unfit::NoVolume);
        };
        let is_in = |(key, values): &(String, Vec<String>)| {
            labels.get(key).is_some_and(|value| values.contains(value))
        };
        // As in Kubernetes an empty list matches no node.
        let is_allowed = topologies.is_empty()
            || topologies.iter().any(|all| !all.is_empty() && all.iter().all(is_in));
        if !is_allowed {
            return Err(Unfit::NoVolume);
        }
        let has_capacity = capacities
            .as_ref()
            .is_none_or(|capacities| capacities.iter().any(|all| all_hold(all, labels)));
        if has_capacity { Ok(()) } else { Err(Unfit::NoStorage) }
    }

    /// Whether it gets a volume on every node.
    fn is_served_everywhere(&self) -> bool {
        let is_provisioned = self.provisioning.as_ref().is_some_and(|provisioning| {
            provisioning.topologies.is_empty() && provisioning.capacities.is_none()
        });
        self.selected_node.is_none() && self.candidates.is_empty() && is_provisioned
    }
}

impl Volumes {
    /// The claims of a pod that have no volume yet and get one when it is placed, the smallest
    /// first.
    fn late_claims(&self, pod: &Pod) -> Vec<(ObjectName, LateClaim)> {
        let late = pod.spec.volumes.iter().filter_map(|volume| match self.state(pod, volume)? {
            ClaimState::Unbound(claim) => Some((claim.meta.name.clone(), self.late_claim(claim)?)),
            _ => None,
        });
        let mut late: Vec<_> = late.collect();
        late.sort_by_key(|(_, claim)| claim.requested);
        late
    }

    /// The claims of a pod without volumes that do not get one on every node.
    pub(crate) fn restricting_claims(&self, pod: &Pod) -> Vec<LateClaim> {
        let late = self.late_claims(pod).into_iter().map(|(_, claim)| claim);
        late.filter(|claim| !claim.is_served_everywhere()).collect()
    }

    /// How a pod's claims without volumes get them on a node.
    pub(crate) fn choose_volumes(
        &self,
        pod: &Pod,
        node: &str,
        labels: &Labels,
    ) -> Result<Vec<VolumeChoice>, Unfit> {
        let (names, mut claims): (Vec<_>, Vec<_>) = self.late_claims(pod).into_iter().unzip();
        for (name, claim) in names.iter().zip(&mut claims) {
            // It may have been requested for another pod. What pods require of nodes in general
            // knows only what the watch has shown.
            claim.selected_node =
                claim.selected_node.take().or_else(|| self.selected.get(name).cloned());
        }
        let volumes = choose(&claims, node, labels)?;
        let choices = names.into_iter().zip(volumes).map(|(claim, volume)| match volume {
            Some(volume) => VolumeChoice::Bind { claim, volume: Arc::clone(volume) },
            None => VolumeChoice::Provision { claim },
        });
        Ok(choices.collect())
    }

    /// The claim's storage class if it binds volumes when a pod is placed.
    pub(super) fn late_binding_class(&self, claim: &VolumeClaim) -> Option<&StorageClass> {
        let class = self.classes.get(claim.class.as_deref()?)?;
        let is_late = class.binding == BindingMode::WaitForFirstConsumer && !claim.is_prebound;
        is_late.then_some(&**class)
    }

    fn late_claim(&self, claim: &VolumeClaim) -> Option<LateClaim> {
        let class = self.late_binding_class(claim)?;
        // Most volumes of a cluster are for other claims.
        let for_it = [None, Some(claim.meta.name.clone())];
        let names = for_it.iter().filter_map(|key| self.by_claim.get(key)).flatten();
        let mut volumes: Vec<&Arc<PersistentVolume>> = names
            .filter_map(|name| self.persistent.get(name))
            .filter(|volume| self.may_serve(volume, claim))
            .collect();
        volumes.sort_by_key(|volume| (volume.capacity, &volume.meta.name.name));
        let candidates = volumes.into_iter().map(|volume| Candidate {
            volume: Arc::clone(&volume.meta.name.name),
            is_reserved: volume.claim.is_some()
                || self.assumed.contains_key(&volume.meta.name.name),
            terms: volume.node_affinity.as_ref().map(valid_terms),
        });
        Some(LateClaim {
            requested: claim.requested.unwrap_or(0),
            selected_node: claim.meta.annotations.get(SELECTED_NODE).map(|node| (&**node).into()),
            candidates: candidates.collect(),
            provisioning: self.provisioning(claim, class),
        })
    }

    /// Whether a volume could serve a claim on some node.
    fn may_serve(&self, volume: &PersistentVolume, claim: &VolumeClaim) -> bool {
        let is_for_it = |(name, uid): &(ObjectName, Arc<str>)| {
            *name == claim.meta.name && (uid.is_empty() || *uid == claim.meta.uid)
        };
        if volume.claim.as_ref().is_some_and(|reserved| !is_for_it(reserved)) {
            return false;
        }
        let fits = volume.capacity >= claim.requested.unwrap_or(0)
            && volume.is_block == claim.is_block
            && volume.attributes_class == claim.attributes_class
            && volume.class.as_deref().unwrap_or("") == claim.class.as_deref().unwrap_or("")
            && volume.meta.deleted.is_none();
        if !fits || volume.claim.is_some() {
            return fits;
        }
        let assumed = self.assumed.get(&volume.meta.name.name);
        let is_selected =
            claim.selector.as_ref().is_none_or(|selector| selects(selector, &volume.meta.labels));
        volume.is_available
            && assumed.is_none_or(|assumed| *assumed == claim.meta.name)
            && is_selected
            && claim.access_modes.iter().all(|mode| volume.access_modes.contains(mode))
    }

    fn provisioning(&self, claim: &VolumeClaim, class: &StorageClass) -> Option<Provisioning> {
        if class.provisioner.is_empty() || class.provisioner == NO_PROVISIONER {
            return None;
        }
        let publishes = self.drivers.get(&*class.provisioner).is_some_and(|one| one.has_capacity);
        let capacities = claim.requested.filter(|_| publishes).map(|requested| {
            let of_class =
                self.capacities.values().filter(|one| *one.class == *class.meta.name.name);
            let enough = of_class.filter(|one| one.most.is_some_and(|most| most >= requested));
            let mut nodes: Vec<_> =
                enough.filter_map(|capacity| requirements(capacity.nodes.as_ref()?)).collect();
            nodes.sort_unstable();
            nodes.dedup();
            nodes
        });
        Some(Provisioning { topologies: class.allowed_topologies.clone(), capacities })
    }

    /// Counts volumes as taken by these claims, until the watch shows it or [`Self::forget`].
    pub(crate) fn assume(&mut self, choices: &[VolumeChoice]) {
        for choice in choices {
            if let VolumeChoice::Bind { claim, volume } = choice {
                self.assumed.insert(Arc::clone(volume), claim.clone());
            }
        }
    }

    /// Notes the node for which volumes of these claims are requested, until [`Self::forget`].
    pub(crate) fn select_node(&mut self, choices: &[VolumeChoice], node: &NodeName) {
        for choice in choices {
            if let VolumeChoice::Provision { claim } = choice {
                self.selected.insert(claim.clone(), node.clone());
            }
        }
    }

    /// Forgets what was assumed for a pod's claims. Returns whether volumes are free again.
    pub(crate) fn forget(&mut self, pod: &Pod) -> bool {
        if self.assumed.is_empty() && self.selected.is_empty() {
            return false;
        }
        let claims = pod.spec.volumes.iter();
        let claims: BTreeSet<ObjectName> =
            claims.filter_map(|volume| super::claim_name(pod, volume)).collect();
        self.selected.retain(|claim, _| !claims.contains(claim));
        let before = self.assumed.len();
        self.assumed.retain(|_, claim| !claims.contains(claim));
        self.assumed.len() < before
    }

    /// Whether a claim of a pod names its volume and is not bound to it yet, or the volume is not
    /// observed yet.
    pub(crate) fn is_binding(&self, pod: &Pod) -> bool {
        let reason = self.pod_level_reason(pod);
        matches!(reason, Some(Unfit::UnboundClaim | Unfit::MissingVolume { .. }))
    }

    /// The node for which a claim's volume is being provisioned.
    pub(crate) fn selected_node(&self, claim: &ObjectName) -> Option<&str> {
        self.claims.get(claim)?.meta.annotations.get(SELECTED_NODE).map(String::as_str)
    }

    /// A claim as the watch has it.
    pub(crate) fn claim(&self, name: &ObjectName) -> Option<&Arc<VolumeClaim>> {
        self.claims.get(name)
    }

    /// A volume as the watch has it.
    pub(crate) fn volume(&self, name: &str) -> Option<&Arc<PersistentVolume>> {
        self.persistent.get(name)
    }
}
