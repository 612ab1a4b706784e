//! What the claims of a pod get on a node: the allocator's word, beside all that is held or decided.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_api::names::{DRIVER, OWNER_OCTAVO, TAINT_OWNER};
use octavo_dra::{
    AllocateError, Allocation, Allocator, Count, Explanation, ExtendedClaim, SliceIndex,
    TaintEffect, Toleration,
};
use octavo_engine::placement::{GpuPart, GpuParts};
use octavo_engine::shape::GpuDemand;
use octavo_kube_io::objects::Claim;
use uuid::Uuid;

use super::Devices;
use super::ask::{Ask, AskedClaim};
use super::ledger::{AssumedClaim, extended_key};
use super::nodes::{GpuSource, NodeView};
use super::pools::Pool;
use super::touched::Touched;
use super::written::written;
use crate::bind::{ClaimWrite, ExtendedWrite};

/// Name space of the UIDs of shares (version 5 of RFC 9562), a random number.
const SHARES: Uuid = Uuid::from_u128(0x6d0a_5b8e_2f14_4c7a_9e63_b1d7_40c8_f235);

/// What the claims of a pod get on a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// UID of the pod.
    pub pod: Arc<str>,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// The node.
    pub node: Arc<str>,
    /// The pod's claims, in its order, with what is to be written.
    pub claims: Vec<ClaimWrite>,
    /// The claim for its extended resources.
    pub extended: Option<ExtendedWrite>,
    /// Parts of the node's GPUs that are taken by it and were free before, in order.
    pub parts: GpuParts,
    /// Whether these are what was wanted.
    pub is_as_wanted: bool,
}

/// Why the claims of a pod get nothing on a node.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GrantError {
    /// The allocator has nothing.
    #[error(transparent)]
    Refused(#[from] AllocateError),
    /// A claim that is allocated already cannot be reached from the node.
    #[error("the devices of a claim that is allocated already cannot be reached from the node")]
    Elsewhere,
    /// Nothing is known of the node.
    #[error("there is no node {0} with devices")]
    UnknownNode(Arc<str>),
}

/// The claims to allocate, as the allocator gets them.
struct Wanted {
    claims: Vec<octavo_dra::Claim>,
    extended: Option<ExtendedClaim>,
}

impl Devices {
    /// What the claims of a pod get on a node, all or none. `wanted` are the parts of its GPUs that were
    /// chosen: the allocator takes these devices if they serve, else any.
    ///
    /// Nothing is held by it: see [`Devices::assume`]. What is assumed for this pod already is in its own
    /// way: forget it first.
    pub fn allocate(
        &self,
        ask: &Ask,
        node: &str,
        wanted: Option<&[GpuPart]>,
    ) -> Result<Grant, GrantError> {
        if !self.is_allowed(ask, node) {
            return Err(GrantError::Elsewhere);
        }
        let Some((name, view)) = self.nodes.get_key_value(node) else {
            return without_devices(ask, node);
        };
        let asked = self.wanted(ask, view);
        let mut grant = Grant {
            pod: Arc::clone(&ask.pod),
            namespace: Arc::clone(&ask.namespace),
            node: Arc::clone(name),
            claims: Vec::with_capacity(ask.claims.len()),
            extended: None,
            parts: GpuParts::new(),
            is_as_wanted: true,
        };
        let allocations = self.with_allocator(view, |allocator| {
            let claims: Vec<&octavo_dra::Claim> = asked.claims.iter().collect();
            if claims.is_empty() {
                return Ok(Vec::new());
            }
            // All means all, and the first alternative goes before anybody's choice.
            let is_choice = claims.iter().flat_map(|claim| &claim.requests).all(|request| {
                matches!(&request.ask, octavo_dra::Ask::Exactly(one) if one.count != Count::All)
            });
            let wanted = wanted.filter(|_| is_choice);
            let devices = wanted.and_then(|wanted| names(ask, view, wanted));
            if let Some(devices) = devices {
                // Other drivers' devices are nobody's choice.
                let is_meant = |driver: &str, _: &str, device: &str| {
                    driver != DRIVER || devices.contains(device)
                };
                let node = &view.node;
                let found = allocator.allocate_among(node, &claims, &is_meant, &mut String::new);
                if found.is_ok() {
                    return found;
                }
            }
            allocator.allocate(&view.node, &claims, &mut String::new)
        })?;
        let mut allocations = allocations.into_iter();
        for claim in &ask.claims {
            let allocation = match claim {
                AskedClaim::Allocated { .. } => None,
                AskedClaim::Wanted(_) => allocations.next(),
            };
            let claim = claim.claim();
            let allocation = allocation.map(|mut allocation| {
                name_shares(&mut allocation, &format!("{}/{}", claim.meta.uid, claim.meta.version));
                grant.parts.extend(self.parts(node, &allocation));
                written(allocation, &claim.claim.requests, &claim.config, &self.class_objects)
            });
            grant.claims.push(ClaimWrite { claim: Arc::clone(claim), allocation });
        }
        if let Some((extended, mut allocation)) = asked.extended.zip(allocations.next()) {
            name_shares(&mut allocation, &format!("{}/extended/{}", ask.pod, node));
            grant.parts.extend(self.parts(node, &allocation));
            let allocation = written(allocation, &extended.requests, &[], &self.class_objects);
            grant.extended = Some(ExtendedWrite { claim: extended, allocation });
        }
        grant.parts.sort_unstable();
        // What a device plugin gives is no part of a grant.
        let is_plugin = self.gpus(node).is_some_and(|gpus| gpus.source == GpuSource::Plugin);
        grant.is_as_wanted = is_plugin
            || wanted.is_none_or(|wanted| {
                let mut wanted: GpuParts = wanted.into();
                wanted.sort_unstable();
                wanted == grant.parts
            });
        Ok(grant)
    }

    /// Takes a grant for granted: it holds its devices until the claims are seen allocated, or it is
    /// forgotten. What was assumed for the pod before is forgotten.
    pub fn assume(&mut self, grant: &Grant) -> Touched {
        let mut claims = Vec::new();
        let mut uses = BTreeSet::new();
        for ClaimWrite { claim, allocation } in &grant.claims {
            let is_listed = claim.reserved_for.iter().any(|one| one.uid == grant.pod);
            if !is_listed {
                uses.insert(Arc::clone(&claim.meta.uid));
            }
            if let Some(written) = allocation {
                let key = Arc::clone(&claim.meta.uid);
                claims.push(assumed(grant, key, &claim.claim, &written.allocation));
            }
        }
        if let Some(extended) = &grant.extended {
            let claim = extended.claim.claim(&grant.namespace);
            let key = extended_key(&grant.pod);
            claims.push(assumed(grant, key, &claim, &extended.allocation.allocation));
        }
        let changed = self.ledger.assume(&grant.pod, claims, uses);
        self.holdings(changed)
    }

    /// Forgets what is assumed for a pod. What the cluster has seen of it since stays.
    pub fn forget(&mut self, pod: &str) -> Touched {
        let changed = self.ledger.forget(pod);
        self.holdings(changed)
    }

    /// Whether anything is assumed for a pod that was not seen yet.
    pub fn is_assumed(&self, pod: &str) -> bool {
        self.ledger.is_assumed(pod)
    }

    /// Why the claims of a pod get nothing on a node, device by device; or that they do. `None`: the node
    /// has no devices, or what is allocated already cannot be reached from it.
    pub fn explain(&self, ask: &Ask, node: &str) -> Option<Explanation> {
        let view = self.nodes.get(node).filter(|_| self.is_allowed(ask, node))?;
        let asked = self.wanted(ask, view);
        let claims: Vec<&octavo_dra::Claim> = asked.claims.iter().collect();
        Some(self.with_allocator(view, |allocator| allocator.explain(&view.node, &claims)))
    }

    /// The claims to allocate on a node: they do not mind that Octavo keeps others away.
    fn wanted(&self, ask: &Ask, view: &NodeView) -> Wanted {
        let extended = ask.extended_claim(self, &view.allocatable);
        let claims = ask.wanted().map(|claim: &Arc<Claim>| claim.claim.clone());
        let of_pod = extended.iter().map(|extended| extended.claim(&ask.namespace));
        let mut claims: Vec<octavo_dra::Claim> = claims.chain(of_pod).collect();
        for request in claims.iter_mut().flat_map(|claim| &mut claim.requests) {
            match &mut request.ask {
                octavo_dra::Ask::Exactly(one) => one.tolerations.push(own_toleration()),
                octavo_dra::Ask::FirstAvailable(all) => {
                    for (_, one) in all {
                        one.tolerations.push(own_toleration());
                    }
                }
            }
        }
        Wanted { claims, extended }
    }

    /// An allocator of a node's devices, beside all who hold any.
    fn with_allocator<T>(&self, view: &NodeView, with: impl FnOnce(&Allocator<'_>) -> T) -> T {
        let pools = view.pools.iter().filter_map(|name| self.pools.pool(name));
        let slices = pools.flat_map(Pool::slices);
        let survey =
            view.survey.get_or_init(|| Arc::new(SliceIndex::new(slices.clone(), self.features)));
        let holders = self.ledger.holders(&view.pools);
        with(&Allocator::with_slice_index(&self.classes, slices, survey, holders))
    }
}

/// A grant on a node without devices: there is nothing to allocate, or nothing to be had.
fn without_devices(ask: &Ask, node: &str) -> Result<Grant, GrantError> {
    if ask.wanted().next().is_some() || !ask.extended.is_empty() {
        return Err(GrantError::UnknownNode(node.into()));
    }
    let claims = ask
        .claims
        .iter()
        .map(|claim| ClaimWrite { claim: Arc::clone(claim.claim()), allocation: None });
    Ok(Grant {
        pod: Arc::clone(&ask.pod),
        namespace: Arc::clone(&ask.namespace),
        node: node.into(),
        claims: claims.collect(),
        extended: None,
        parts: GpuParts::new(),
        is_as_wanted: true,
    })
}

/// Names of the devices that are parts of a node's GPUs.
fn names<'d>(ask: &Ask, view: &'d NodeView, wanted: &[GpuPart]) -> Option<BTreeSet<&'d str>> {
    let gpus = view.gpus.as_ref().ok()?.as_ref()?;
    let mut names = BTreeSet::new();
    for part in wanted {
        let profile = match &ask.demand {
            GpuDemand::Mig { profile, .. } => Some(&**profile),
            _ => None,
        };
        let profile = profile.filter(|_| !part.slices.is_empty());
        names.insert(gpus.devices.device(part, profile)?);
    }
    Some(names)
}

fn assumed(
    grant: &Grant,
    key: Arc<str>,
    claim: &octavo_dra::Claim,
    allocation: &Allocation,
) -> AssumedClaim {
    let claim = octavo_dra::Claim {
        namespace: claim.namespace.clone(),
        name: claim.name.clone(),
        uid: key.to_string(),
        allocation: Some(allocation.clone()),
        ..octavo_dra::Claim::default()
    };
    AssumedClaim { claim, pod: Arc::clone(&grant.pod), key }
}

/// Names the shares of an allocation: the same try has the same names.
fn name_shares(allocation: &mut Allocation, claim: &str) {
    for (index, result) in allocation.results.iter_mut().enumerate() {
        if result.share_id.is_some() {
            let name = format!("{claim}/{}/{index}", result.request);
            result.share_id = Some(Uuid::new_v5(&SHARES, name.as_bytes()).to_string());
        }
    }
}

/// The toleration of the taint by which Octavo keeps other schedulers away.
fn own_toleration() -> Toleration {
    Toleration {
        key: Some(TAINT_OWNER.to_owned()),
        value: Some(OWNER_OCTAVO.to_owned()),
        effect: Some(TaintEffect::NoSchedule),
        seconds: None,
    }
}
