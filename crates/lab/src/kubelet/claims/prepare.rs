//! Prepares the claims of a pod before its containers start, and unprepares them after their end.
//!
//! ```text
//! GET every claim -> check -> lock -> cache on disk -> NodePrepareResources, once per driver
//!                                  -> devices and "prepared" on disk
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{Api, ResourceExt as _};

use crate::kubelet::claims::claim_info::{NameTaken, claim_key};
use crate::kubelet::claims::{self, ClaimProblem, UsableClaim};
use crate::kubelet::node::Node;
use crate::kubelet::plugins::calls::{self, CallError, ClaimRef};
use crate::kubelet::plugins::{NotRegistered, PluginInstance};
use crate::kubelet::{ApiError, within};

/// Claims could not be prepared or unprepared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    /// The pod may not use a claim that it names.
    #[error(transparent)]
    Claim(#[from] ClaimProblem),
    /// The API server did not return the claim.
    #[error("fetch ResourceClaim {0}: {1}")]
    Fetch(String, ApiError),
    /// No plugin serves a driver of the allocation.
    #[error(transparent)]
    NotRegistered(#[from] NotRegistered),
    /// An earlier claim of the same name is still held.
    #[error(transparent)]
    NameTaken(#[from] NameTaken),
    /// A plugin failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The claim cache could not be saved.
    #[error("checkpoint ResourceClaim state: {0}")]
    Checkpoint(#[from] std::io::Error),
}

/// Prepares all claims of `pod`. No plugin is called for claims that are already prepared.
pub(crate) async fn prepare(node: &Node, pod: &Pod) -> Result<(), PrepareError> {
    let named = claims::claims_of(pod)?;
    if named.is_empty() {
        return Ok(());
    }
    // Record nothing until all claims are usable. Otherwise a pod whose driver never registers
    // would leave claims that cannot be unprepared.
    let namespace = pod.namespace().unwrap_or_default();
    let api: Api<ResourceClaim> = Api::namespaced(node.client.clone(), &namespace);
    let mut usable: Vec<UsableClaim> = Vec::new();
    for claim in &named {
        let object = within(api.get(&claim.name)).await;
        let object = object.map_err(|error| PrepareError::Fetch(claim.name.clone(), error))?;
        let claim = claims::check(pod, claim, &object)?;
        if !usable.iter().any(|listed| listed.uid == claim.uid) {
            usable.push(claim);
        }
    }
    let mut plugins: BTreeMap<String, Arc<PluginInstance>> = BTreeMap::new();
    for driver in usable.iter().flat_map(|claim| &claim.drivers) {
        plugins.insert(driver.clone(), node.plugins.get(driver)?);
    }

    let keys = usable.iter().map(|claim| claim_key(&claim.namespace, &claim.name)).collect();
    let _locked = node.lock_claims(&keys).await;
    let pod_uid = pod.uid().unwrap_or_default();
    let needed = node.update_claim_infos(|cache| {
        usable
            .iter()
            .map(|claim| Ok(cache.reserve(&pod_uid, claim)?.then_some(claim)))
            .collect::<Result<Vec<_>, NameTaken>>()
    })??;
    let needed: Vec<&UsableClaim> = needed.into_iter().flatten().collect();
    if needed.is_empty() {
        return Ok(());
    }

    let mut answers = Vec::new();
    for (driver, plugin) in &plugins {
        let batch: Vec<ClaimRef> = needed
            .iter()
            .filter(|claim| claim.drivers.contains(driver))
            .map(|claim| ClaimRef {
                namespace: claim.namespace.clone(),
                name: claim.name.clone(),
                uid: claim.uid.clone(),
            })
            .collect();
        if !batch.is_empty() {
            answers.push((driver, Box::pin(calls::prepare(plugin, &batch)).await?));
        }
    }
    let uids: BTreeSet<String> = needed.iter().map(|claim| claim.uid.clone()).collect();
    node.update_claim_infos(|cache| {
        for (driver, claims) in answers {
            for (uid, devices) in claims {
                cache.record(&uid, driver, devices);
            }
        }
        cache.set_prepared(&uids);
    })?;
    Ok(())
}

/// Unprepares the claims whose last user is the pod, and removes the pod from the others.
/// Idempotent; does nothing for a pod without claims.
pub(crate) async fn unprepare(node: &Node, pod_uid: &str) -> Result<(), PrepareError> {
    let keys = node.claim_infos().claim_keys_of(pod_uid);
    if keys.is_empty() {
        return Ok(());
    }
    let _locked = node.lock_claims(&keys).await;
    let last = node.update_claim_infos(|cache| cache.release(pod_uid))?;
    let drivers: BTreeSet<&String> = last.iter().flat_map(|info| info.drivers.keys()).collect();
    for driver in drivers {
        let batch: Vec<ClaimRef> = last
            .iter()
            .filter(|info| info.drivers.contains_key(driver))
            .map(ClaimRef::from)
            .collect();
        Box::pin(calls::unprepare(&*node.plugins.get(driver)?, &batch)).await?;
    }
    node.update_claim_infos(|cache| last.iter().for_each(|info| cache.remove(&info.uid)))?;
    Ok(())
}
