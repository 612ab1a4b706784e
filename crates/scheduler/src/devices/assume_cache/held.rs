//! The holdings of pools and nodes, observed and assumed together.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_dra::{AllocationResult, PoolRef};
use octavo_engine::placement::GpuParts;
use octavo_kube_io::objects::{Claim, Consumer, ObjectName, PodUid};

use super::{AssumeCache, AssumedClaim, ClaimKey, results};
use crate::devices::nodes::NodeGpus;
use crate::devices::pod_allocation::Holders;

/// What a claim holds of a node's devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldDevices {
    /// Key of the claim.
    pub claim: ClaimKey,
    /// Namespace and name of the claim.
    pub name: ObjectName,
    /// The pods that may use it.
    pub pods: BTreeSet<PodUid>,
    /// Parts of the node's GPUs, in order.
    pub parts: GpuParts,
    /// How many devices it holds that the engine does not count: of other drivers, fixed MIG
    /// instances, or no longer published.
    pub others: usize,
    /// Whether it is only assumed.
    pub is_assumed: bool,
}

impl AssumeCache {
    /// The holders of devices of these pools, each once.
    pub(in crate::devices) fn holders<'a>(
        &'a self,
        pools: &'a [PoolRef],
        holders: Holders<'a>,
    ) -> impl Iterator<Item = &'a octavo_dra::Claim> {
        static NO_POD: BTreeSet<PodUid> = BTreeSet::new();
        let (pools, leaving, lenders) = match holders {
            Holders::Present => (pools, &NO_POD, &NO_POD),
            Holders::Without(leaving) => (pools, leaving, &NO_POD),
            Holders::PresentBeside(lenders) => (pools, &NO_POD, lenders),
            Holders::None => (&[][..], &NO_POD, &NO_POD),
        };
        let nominated = self
            .nominated
            .iter()
            .filter(move |(pod, _)| !leaving.contains(*pod) && !lenders.contains(*pod));
        let nominated = nominated.flat_map(|(_, claims)| claims).filter(|claim| {
            results(claim).any(|result| pools.iter().any(|pool| is_of(result, pool)))
        });
        let has_several_pools = pools.len() > 1;
        let mut visited: BTreeSet<(&str, bool)> = BTreeSet::new();
        let observed = |pool| {
            let holders = self.observed.get(pool).into_iter().flatten();
            let stay = holders.filter(|(uid, claim)| {
                let consumers = || claim.reserved_for.iter().map(Consumer::pod_uid);
                let users = || self.users(uid);
                leaving.is_empty()
                    || consumers().next().is_none() && users().next().is_none()
                    || !consumers().all(|pod| leaving.contains(&pod))
                    || !users().all(|pod| leaving.contains(pod))
            });
            stay.map(|(uid, claim)| (&**uid, false, &claim.claim))
        };
        let assumed = |pool| {
            let holders = self.assumed_by_pool.get(pool).into_iter().flatten();
            let shown = holders.filter(|(key, assumed)| {
                let stays = leaving.is_empty()
                    || !leaving.contains(&assumed.pod)
                    || !self.users(key).all(|pod| leaving.contains(pod));
                stays && !self.is_observed(assumed)
            });
            shown.map(|(key, assumed)| (&**key, true, &assumed.claim))
        };
        pools
            .iter()
            .flat_map(move |pool| observed(pool).chain(assumed(pool)))
            .filter(move |(key, is_assumed, _)| {
                !has_several_pools || visited.insert((key, *is_assumed))
            })
            .map(|(_, _, claim)| claim)
            .chain(nominated)
    }

    /// What is held on a node that reaches these pools and has these GPUs.
    pub(in crate::devices) fn held(
        &self,
        pools: &[PoolRef],
        gpus: Option<&NodeGpus>,
    ) -> Vec<HeldDevices> {
        let observed = pools.iter().filter_map(|pool| self.observed.get(pool));
        let observed = observed.flat_map(|all| all.keys().map(|uid| &**uid));
        let assumed = pools.iter().filter_map(|pool| self.assumed_by_pool.get(pool));
        let assumed = assumed.flat_map(|all| all.keys().map(|key| &**key));
        let all: BTreeSet<&str> = observed.chain(assumed).collect();
        all.into_iter().filter_map(|key| self.held_by(key, pools, gpus)).collect()
    }

    /// What only this pod holds on a node. Claims of others are not read.
    pub(in crate::devices) fn held_alone_by(
        &self,
        pod: &str,
        pools: &[PoolRef],
        gpus: Option<&NodeGpus>,
    ) -> Vec<HeldDevices> {
        let assumed = self.assumed.get(pod).into_iter();
        let uses = assumed.clone().flat_map(|assumed| assumed.uses.keys());
        let allocated = assumed.flat_map(|assumed| &assumed.claims).map(|claim| &*claim.key);
        let used = self.reserved.get(pod).into_iter().flatten().chain(uses).map(|uid| &**uid);
        let claims: BTreeSet<&str> = used.chain(allocated).collect();
        let held = claims.into_iter().filter_map(|key| self.held_by(key, pools, gpus));
        held.filter(|held| held.pods.len() == 1 && held.pods.contains(pod)).collect()
    }

    /// What a claim holds of these pools, if anything.
    fn held_by(
        &self,
        key: &str,
        pools: &[PoolRef],
        gpus: Option<&NodeGpus>,
    ) -> Option<HeldDevices> {
        let mut held: Option<HeldDevices> = None;
        for pool in pools {
            let observed = self.observed.get(pool).and_then(|holders| holders.get(key));
            if let Some(claim) = observed {
                let held = held.get_or_insert_with(|| self.new_entry(ClaimKey::of(claim)));
                held.is_assumed = false;
                held.name.clone_from(&claim.meta.name);
                held.pods.extend(claim.reserved_for.iter().map(Consumer::pod_uid));
                add(held, results(&claim.claim), pool, gpus);
            }
            let assumed = self.assumed_by_pool.get(pool).and_then(|holders| holders.get(key));
            if let Some(assumed) = assumed.filter(|assumed| !self.is_observed(assumed)) {
                let held = held.get_or_insert_with(|| self.new_entry(assumed.key.clone()));
                let claim = &assumed.claim;
                held.name = ObjectName::new(claim.namespace.as_str(), claim.name.as_str());
                held.pods.insert(assumed.pod.clone());
                let is_observed_device = |result: &AllocationResult| {
                    let observed =
                        observed.map(|claim| results(&claim.claim)).into_iter().flatten();
                    observed.map(device).any(|known| known == device(result))
                };
                add(held, results(claim).filter(|result| !is_observed_device(result)), pool, gpus);
            }
        }
        held
    }

    fn new_entry(&self, claim: ClaimKey) -> HeldDevices {
        let pods = self.users(&claim).cloned().collect();
        HeldDevices { claim, pods, is_assumed: true, ..HeldDevices::default() }
    }

    /// Whether a claim is observed with the devices that are assumed for it.
    pub(super) fn is_observed(&self, assumed: &AssumedClaim) -> bool {
        self.observed_claim(assumed).is_some_and(|observed| {
            let of = |claim| results(claim).map(device).collect::<BTreeSet<_>>();
            observed.claim.allocation.is_some() && of(&observed.claim) == of(&assumed.claim)
        })
    }

    /// The observed claim of an assumption.
    pub(super) fn observed_claim(&self, assumed: &AssumedClaim) -> Option<&Arc<Claim>> {
        if assumed.key.is_extended_of(&assumed.pod) {
            return self.extended_claim_of(&assumed.pod);
        }
        let claim = &assumed.claim;
        self.claim(&ObjectName::new(claim.namespace.as_str(), claim.name.as_str()))
            .filter(|claim| *claim.meta.uid == *assumed.key)
    }
}

/// Adds devices of one pool.
fn add<'r>(
    held: &mut HeldDevices,
    results: impl Iterator<Item = &'r AllocationResult>,
    pool: &PoolRef,
    gpus: Option<&NodeGpus>,
) {
    for result in results.filter(|result| is_of(result, pool)) {
        match gpus.and_then(|gpus| gpus.part(result)) {
            Some(part) => held.parts.push(part),
            None => held.others += 1,
        }
    }
    held.parts.sort_unstable();
}

/// What identifies a device.
fn device(result: &AllocationResult) -> (&str, &str, &str) {
    (&result.driver, &result.pool, &result.device)
}

fn is_of(result: &AllocationResult, pool: &PoolRef) -> bool {
    result.pool == pool.pool && result.driver == pool.driver
}
