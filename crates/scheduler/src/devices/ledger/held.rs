//! What is held of pools and nodes, as seen and as decided together.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_dra::{AllocationResult, PoolRef};
use octavo_engine::placement::GpuParts;
use octavo_kube_io::objects::{Claim, ObjectName};

use super::{AssumedClaim, Ledger, results};
use crate::devices::nodes::NodeGpus;

/// What a claim holds of a node's devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// UID of the claim; for the extended claim of a pod that is not written yet `<pod's UID>/extended`.
    pub claim: Arc<str>,
    /// Namespace and name of the claim.
    pub name: ObjectName,
    /// Who may use it: UIDs of pods.
    pub pods: BTreeSet<Arc<str>>,
    /// Parts of the node's GPUs, in order.
    pub parts: GpuParts,
    /// How many devices it holds that the engine does not count: of other drivers, fixed MIG instances,
    /// devices that are not published any more.
    pub others: usize,
    /// Whether it is assumed only.
    pub is_assumed: bool,
}

impl Ledger {
    /// Everybody who holds something of these pools, each once.
    pub(in crate::devices) fn holders<'a>(
        &'a self,
        pools: &'a [PoolRef],
    ) -> impl Iterator<Item = &'a octavo_dra::Claim> {
        let several = pools.len() > 1;
        let mut met: BTreeSet<(&Arc<str>, bool)> = BTreeSet::new();
        let seen = |pool| {
            let there = self.seen.get(pool).into_iter().flatten();
            there.map(|(uid, claim)| (uid, false, &claim.claim))
        };
        let decided = |pool| {
            let there = self.decided.get(pool).into_iter().flatten();
            let shown = there.filter(|(_, assumed)| !self.is_covered(assumed));
            shown.map(|(key, assumed)| (key, true, &assumed.claim))
        };
        pools
            .iter()
            .flat_map(move |pool| seen(pool).chain(decided(pool)))
            .filter(move |(uid, is_assumed, _)| !several || met.insert((uid, *is_assumed)))
            .map(|(_, _, claim)| claim)
    }

    /// What is held of a node that reaches these pools and has these GPUs.
    pub(in crate::devices) fn held(&self, pools: &[PoolRef], gpus: Option<&NodeGpus>) -> Vec<Held> {
        let seen = pools.iter().filter_map(|pool| self.seen.get(pool)).flat_map(|all| all.keys());
        let decided =
            pools.iter().filter_map(|pool| self.decided.get(pool)).flat_map(|all| all.keys());
        let all: BTreeSet<&Arc<str>> = seen.chain(decided).collect();
        all.into_iter().filter_map(|uid| self.held_by(uid, pools, gpus)).collect()
    }

    /// Of what is held of a node that which only this pod may use, without a look at what others hold.
    pub(in crate::devices) fn held_alone_by(
        &self,
        pod: &str,
        pools: &[PoolRef],
        gpus: Option<&NodeGpus>,
    ) -> Vec<Held> {
        let assumed = self.assumed.get(pod);
        let decided = assumed
            .into_iter()
            .flat_map(|assumed| assumed.claims.iter().map(|claim| &claim.key).chain(&assumed.uses));
        let claims: BTreeSet<&Arc<str>> =
            self.reserved.get(pod).into_iter().flatten().chain(decided).collect();
        let held = claims.into_iter().filter_map(|uid| self.held_by(uid, pools, gpus));
        held.filter(|held| held.pods.len() == 1 && held.pods.contains(pod)).collect()
    }

    /// What a claim holds of these pools, if anything.
    fn held_by(&self, uid: &Arc<str>, pools: &[PoolRef], gpus: Option<&NodeGpus>) -> Option<Held> {
        let mut held: Option<Held> = None;
        for pool in pools {
            let seen = self.seen.get(pool).and_then(|there| there.get(uid));
            if let Some(claim) = seen {
                let held = held.get_or_insert_with(|| self.blank(uid));
                held.is_assumed = false;
                held.name.clone_from(&claim.meta.name);
                held.pods.extend(claim.reserved_for.iter().map(|one| Arc::clone(&one.uid)));
                add(held, results(&claim.claim), pool, gpus);
            }
            let decided = self.decided.get(pool).and_then(|there| there.get(uid));
            if let Some(assumed) = decided.filter(|assumed| !self.is_covered(assumed)) {
                let held = held.get_or_insert_with(|| self.blank(uid));
                let claim = &assumed.claim;
                held.name = ObjectName::new(claim.namespace.as_str(), claim.name.as_str());
                held.pods.insert(Arc::clone(&assumed.pod));
                let is_seen = |result: &AllocationResult| {
                    let seen = seen.map(|claim| results(&claim.claim)).into_iter().flatten();
                    seen.map(device).any(|known| known == device(result))
                };
                add(held, results(claim).filter(|result| !is_seen(result)), pool, gpus);
            }
        }
        held
    }

    fn blank(&self, uid: &Arc<str>) -> Held {
        let pods = self.users(uid).cloned().collect();
        Held { claim: Arc::clone(uid), pods, is_assumed: true, ..Held::default() }
    }

    /// Whether a claim is seen with the devices that are assumed for it.
    pub(super) fn is_covered(&self, assumed: &AssumedClaim) -> bool {
        self.is_firm(&assumed.pod)
            && self.counterpart(assumed).is_some_and(|seen| {
                let of = |claim| results(claim).map(device).collect::<BTreeSet<_>>();
                seen.claim.allocation.is_some() && of(&seen.claim) == of(&assumed.claim)
            })
    }

    /// The claim of an assumption, as it is seen.
    pub(super) fn counterpart(&self, assumed: &AssumedClaim) -> Option<&Arc<Claim>> {
        if assumed.key.strip_suffix("/extended") == Some(&*assumed.pod) {
            return self.extended_of(&assumed.pod);
        }
        let claim = &assumed.claim;
        self.claim(&ObjectName::new(claim.namespace.as_str(), claim.name.as_str()))
            .filter(|claim| claim.meta.uid == assumed.key)
    }
}

/// Adds devices of one pool.
fn add<'r>(
    held: &mut Held,
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

/// What names a device.
fn device(result: &AllocationResult) -> (&str, &str, &str) {
    (&result.driver, &result.pool, &result.device)
}

fn is_of(result: &AllocationResult, pool: &PoolRef) -> bool {
    result.pool == pool.pool && result.driver == pool.driver
}
