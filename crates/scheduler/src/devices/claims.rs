//! The claims of a pod, looked up as kube-scheduler does.

use std::sync::Arc;

use octavo_kube_io::objects::{Claim, ObjectName, Pod, PodClaim};

use super::ask::{AskError, AskedClaim};
use super::ledger::Ledger;

/// Most consumers of a claim (`ResourceClaimReservedForMaxSize`).
const MOST_CONSUMERS: usize = 256;

/// The claims of a pod, in its order; each that two names stand for is there once.
pub(super) fn of(ledger: &Ledger, pod: &Pod) -> Result<Vec<AskedClaim>, AskError> {
    let mut claims: Vec<AskedClaim> = Vec::new();
    for named in &pod.spec.claims {
        let Some(claim) = find(ledger, pod, named)? else { continue };
        if claims.iter().any(|other| other.claim().meta.uid == claim.meta.uid) {
            continue;
        }
        claims.push(state(ledger, pod, claim)?);
    }
    Ok(claims)
}

/// A claim of a pod; `None` where none is needed.
fn find<'l>(
    ledger: &'l Ledger,
    pod: &Pod,
    named: &PodClaim,
) -> Result<Option<&'l Arc<Claim>>, AskError> {
    let is_generated = named.claim.is_none();
    let name = match (&named.claim, pod.claims.get(&named.name)) {
        (Some(name), _) | (None, Some(Some(name))) => name,
        (None, Some(None)) => return Ok(None),
        (None, None) => {
            let claim = named.name.clone();
            return Err(AskError::NotGenerated { claim });
        }
    };
    let name = ObjectName::new(Arc::clone(&pod.meta.name.namespace), name.as_str());
    let Some(claim) = ledger.claim(&name) else { return Err(AskError::NoClaim { claim: name }) };
    if claim.meta.deleted.is_some() {
        return Err(AskError::BeingDeleted { claim: name });
    }
    let is_own = claim.meta.owner.as_ref().is_some_and(|owner| owner.uid == pod.meta.uid);
    if is_generated && !is_own {
        return Err(AskError::OfAnother { claim: name });
    }
    Ok(Some(claim))
}

/// Whether a claim is allocated, and whether the pod may use it.
fn state(ledger: &Ledger, pod: &Pod, claim: &Arc<Claim>) -> Result<AskedClaim, AskError> {
    let uid = &claim.meta.uid;
    let pending = ledger.pending(uid);
    let allocation = claim.claim.allocation.as_ref();
    if allocation.is_none() && pending.is_none_or(|pending| pending.pod == pod.meta.uid) {
        return Ok(AskedClaim::Wanted(Arc::clone(claim)));
    }
    let is_reserved = claim.reserved_for.iter().any(|one| one.uid == pod.meta.uid);
    let is_listed = |pod: &Arc<str>| claim.reserved_for.iter().any(|one| one.uid == *pod);
    let decided = ledger.users(uid).filter(|user| **user != pod.meta.uid && !is_listed(user));
    let users = claim.reserved_for.len() + decided.count();
    if !is_reserved && users >= MOST_CONSUMERS {
        return Err(AskError::Crowded { claim: claim.meta.name.clone() });
    }
    // With other devices than are decided for another pod it is seen as an order of before left it.
    let of_others = pending.filter(|pending| pending.pod != pod.meta.uid);
    let decided = of_others.and_then(|pending| pending.claim.allocation.as_ref());
    let nodes = decided.or(allocation).and_then(|allocation| allocation.nodes.clone());
    let allocating = of_others.map(|one| Arc::clone(&one.pod));
    Ok(AskedClaim::Allocated { claim: Arc::clone(claim), nodes, allocating, is_reserved })
}
