//! The claims of a pod, resolved as in kube-scheduler.

use std::sync::Arc;

use octavo_kube_io::objects::{Claim, ObjectName, Pod, PodClaim, PodUid};

use super::ask::{AskError, AskedClaim};
use super::assume_cache::AssumeCache;

/// Most consumers of a claim (`ResourceClaimReservedForMaxSize`).
const MAX_CONSUMERS: usize = 256;

/// The claims of a pod in the order of its spec, each once, even if two names refer to it.
pub(super) fn of(cache: &AssumeCache, pod: &Pod) -> Result<Vec<AskedClaim>, AskError> {
    let mut claims: Vec<AskedClaim> = Vec::new();
    for pod_claim in &pod.spec.claims {
        let Some(claim) = find(cache, pod, pod_claim)? else { continue };
        if claims.iter().any(|other| other.claim().meta.uid == claim.meta.uid) {
            continue;
        }
        claims.push(state(cache, pod, claim)?);
    }
    Ok(claims)
}

/// A claim of a pod; `None` if none is needed.
fn find<'l>(
    cache: &'l AssumeCache,
    pod: &Pod,
    pod_claim: &PodClaim,
) -> Result<Option<&'l Arc<Claim>>, AskError> {
    let is_generated = pod_claim.claim.is_none();
    let name = match (&pod_claim.claim, pod.claims.get(&pod_claim.name)) {
        (Some(name), _) | (None, Some(Some(name))) => name,
        (None, Some(None)) => return Ok(None),
        (None, None) => {
            let claim = pod_claim.name.clone();
            return Err(AskError::NotGenerated { claim });
        }
    };
    let name = ObjectName::new(Arc::clone(&pod.meta.name.namespace), name.as_str());
    let Some(claim) = cache.claim(&name) else {
        return Err(AskError::ClaimNotFound { claim: name });
    };
    if claim.meta.deleted.is_some() {
        return Err(AskError::BeingDeleted { claim: name });
    }
    let is_own = claim.meta.owner.as_ref().is_some_and(|owner| owner.uid == pod.meta.uid);
    if is_generated && !is_own {
        return Err(AskError::OwnedByOther { claim: name });
    }
    Ok(Some(claim))
}

/// Whether a claim is allocated, and whether the pod may use it.
fn state(cache: &AssumeCache, pod: &Pod, claim: &Arc<Claim>) -> Result<AskedClaim, AskError> {
    let uid = &claim.meta.uid;
    let pending = cache.pending(uid);
    let allocation = claim.claim.allocation.as_ref();
    if allocation.is_none() && pending.is_none_or(|pending| *pending.pod == *pod.meta.uid) {
        return Ok(AskedClaim::Wanted(Arc::clone(claim)));
    }
    let is_reserved = claim.reserved_for.iter().any(|consumer| consumer.uid == pod.meta.uid);
    let is_listed = |pod: &PodUid| claim.reserved_for.iter().any(|consumer| *consumer.uid == **pod);
    let decided = cache.users(uid).filter(|user| ***user != *pod.meta.uid && !is_listed(user));
    let users = claim.reserved_for.len() + decided.count();
    if !is_reserved && users >= MAX_CONSUMERS {
        return Err(AskError::TooManyConsumers { claim: claim.meta.name.clone() });
    }
    // If the observed devices differ from those assumed for another pod, the observed state is from
    // an earlier operation.
    let other_pending = pending.filter(|pending| *pending.pod != *pod.meta.uid);
    let decided = other_pending.and_then(|pending| pending.claim.allocation.as_ref());
    let nodes = decided.or(allocation).and_then(|allocation| allocation.nodes.clone());
    let allocating = other_pending.map(|pending| pending.pod.clone());
    Ok(AskedClaim::Allocated { claim: Arc::clone(claim), nodes, allocating, is_reserved })
}
