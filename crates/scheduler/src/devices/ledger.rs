//! Who holds what: claims that are allocated, and allocations that were decided and are not seen yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_dra::{Allocation, AllocationResult, PoolRef};
use octavo_engine::placement::GpuParts;
use octavo_kube_io::objects::{Claim, Delta, ObjectName};

use super::nodes::NodeGpus;

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

/// Who holds what.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    claims: BTreeMap<ObjectName, Arc<Claim>>,
    /// Claims for extended resources that are there, by UID of the pod.
    extended: BTreeMap<Arc<str>, ObjectName>,
    /// Holders by pool, by the claims' UIDs.
    holders: BTreeMap<PoolRef, BTreeMap<Arc<str>, Holder>>,
    /// By UID of the pod.
    assumed: BTreeMap<Arc<str>, Assumed>,
    /// Pods whose use of a claim is assumed, by the claim's UID.
    users: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// The pod whose order allocates a claim, by the claim's UID.
    allocating: BTreeMap<Arc<str>, Arc<str>>,
    /// UIDs of claims that were seen reserved for a pod, by the pod's UID.
    reserved: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

/// A claim with an allocation.
#[derive(Clone, Debug)]
pub(super) enum Holder {
    /// It was seen.
    Seen(Arc<Claim>),
    /// It was decided.
    Assumed(Arc<AssumedClaim>),
}

/// An allocation that was decided.
#[derive(Clone, Debug)]
pub(super) struct AssumedClaim {
    /// As allocators see it.
    pub(super) claim: octavo_dra::Claim,
    /// The pod for which it was decided.
    pub(super) pod: Arc<str>,
    /// Its key: its UID, or one made up for the extended claim of a pod.
    pub(super) key: Arc<str>,
}

/// What is assumed for a pod.
#[derive(Clone, Debug, Default)]
struct Assumed {
    /// Allocations.
    claims: Vec<Arc<AssumedClaim>>,
    /// UIDs of claims that it uses.
    uses: BTreeSet<Arc<str>>,
}

/// What a change touches.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// Claims that changed.
    pub(super) claims: BTreeSet<ObjectName>,
    /// Pools of which something else is held.
    pub(super) pools: BTreeSet<PoolRef>,
}

impl Ledger {
    /// Takes in what changed of claims.
    pub(super) fn apply(&mut self, delta: &Delta<Claim>) -> Changed {
        let mut changed = Changed::default();
        if let Delta::All(_, claims) = delta {
            let there: BTreeSet<_> = claims.iter().map(|claim| &claim.meta.name).collect();
            let gone: Vec<_> =
                self.claims.keys().filter(|name| !there.contains(name)).cloned().collect();
            for name in &gone {
                self.remove(name, &mut changed);
            }
        }
        if let Delta::Gone(claim) = delta {
            self.remove(&claim.meta.name, &mut changed);
        }
        for claim in delta.present() {
            self.set(claim, &mut changed);
        }
        changed
    }

    /// A claim by name.
    pub(super) fn claim(&self, name: &ObjectName) -> Option<&Arc<Claim>> {
        self.claims.get(name)
    }

    /// The claim for a pod's extended resources that is there already.
    pub(super) fn extended_of(&self, pod: &str) -> Option<&Arc<Claim>> {
        self.claims.get(self.extended.get(pod)?)
    }

    /// What is decided for a claim and not seen yet, with the pod whose order allocates it.
    pub(super) fn pending(&self, claim: &str) -> Option<&Arc<AssumedClaim>> {
        let pod = self.allocating.get(claim)?;
        self.assumed.get(pod)?.claims.iter().find(|assumed| &*assumed.key == claim)
    }

    /// How many more pods than are written are decided to use a claim.
    pub(super) fn users(&self, claim: &str) -> impl Iterator<Item = &Arc<str>> {
        self.users.get(claim).into_iter().flatten()
    }

    /// Everybody who holds something of these pools, each once.
    pub(super) fn holders<'a>(
        &'a self,
        pools: &'a [PoolRef],
    ) -> impl Iterator<Item = &'a octavo_dra::Claim> {
        let of_pools = pools.iter().filter_map(|pool| self.holders.get(pool));
        let several = pools.len() > 1;
        let mut seen: BTreeSet<&Arc<str>> = BTreeSet::new();
        of_pools
            .flatten()
            .filter(move |(uid, _)| !several || seen.insert(uid))
            .map(|(_, holder)| holder.claim())
    }

    /// What is held of a node that reaches these pools and has these GPUs.
    pub(super) fn held(&self, pools: &[PoolRef], gpus: Option<&NodeGpus>) -> Vec<Held> {
        let mut all: BTreeMap<&Arc<str>, Held> = BTreeMap::new();
        for pool in pools {
            for (uid, holder) in self.holders.get(pool).into_iter().flatten() {
                let held = all.entry(uid).or_insert_with(|| self.blank(uid, holder));
                add_results(held, holder, pool, gpus);
            }
        }
        all.into_values().collect()
    }

    /// Of what is held of a node that which only this pod may use, without a look at what others hold.
    pub(super) fn held_alone_by(
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
        let held = claims.into_iter().filter_map(|uid| {
            let mut held: Option<Held> = None;
            for pool in pools {
                let Some(holder) = self.holders.get(pool).and_then(|of_pool| of_pool.get(uid))
                else {
                    continue;
                };
                let held = held.get_or_insert_with(|| self.blank(uid, holder));
                add_results(held, holder, pool, gpus);
            }
            held.filter(|held| held.pods.len() == 1 && held.pods.contains(pod))
        });
        held.collect()
    }

    /// Names of claims that were seen with an allocation.
    pub(super) fn allocated(&self) -> impl Iterator<Item = &ObjectName> {
        let holding = self.claims.iter().filter(|(_, claim)| claim.claim.allocation.is_some());
        holding.map(|(name, _)| name)
    }

    /// Assumes allocations of claims, and the use of claims, for a pod.
    pub(super) fn assume(
        &mut self,
        pod: &Arc<str>,
        claims: Vec<AssumedClaim>,
        uses: BTreeSet<Arc<str>>,
    ) -> Changed {
        let mut changed = self.forget(pod);
        let mut assumed = Assumed { claims: Vec::new(), uses };
        for claim in &assumed.uses {
            self.users.entry(Arc::clone(claim)).or_default().insert(Arc::clone(pod));
        }
        for claim in claims {
            let claim = Arc::new(claim);
            for pool in pools_of(&claim.claim) {
                let holders = self.holders.entry(pool.clone()).or_default();
                holders.insert(Arc::clone(&claim.key), Holder::Assumed(Arc::clone(&claim)));
                changed.pools.insert(pool);
            }
            self.allocating.insert(Arc::clone(&claim.key), Arc::clone(pod));
            assumed.claims.push(claim);
        }
        self.assumed.insert(Arc::clone(pod), assumed);
        changed
    }

    /// Forgets what is assumed for a pod. What was seen since stays.
    pub(super) fn forget(&mut self, pod: &str) -> Changed {
        let mut changed = Changed::default();
        let Some(assumed) = self.assumed.remove(pod) else { return changed };
        for claim in &assumed.claims {
            self.drop_assumed(claim, &mut changed);
        }
        for claim in &assumed.uses {
            self.stop_using(claim, pod);
        }
        changed
    }

    /// Pods of which something is assumed.
    pub(super) fn is_assumed(&self, pod: &str) -> bool {
        self.assumed.contains_key(pod)
    }

    fn set(&mut self, claim: &Arc<Claim>, changed: &mut Changed) {
        let name = &claim.meta.name;
        let uid = &claim.meta.uid;
        let old = self.claims.get(name).cloned();
        match &old {
            Some(old) if old.meta.uid != *uid => self.remove(name, changed),
            Some(old) if old == claim => return,
            _ => {}
        }
        let old = old.filter(|old| old.meta.uid == *uid);
        if let Some(old) = &old {
            self.forget_reserved(old);
        }
        for consumer in &claim.reserved_for {
            let of_pod = self.reserved.entry(Arc::clone(&consumer.uid)).or_default();
            of_pod.insert(Arc::clone(uid));
        }
        changed.claims.insert(name.clone());
        self.claims.insert(name.clone(), Arc::clone(claim));
        if claim.is_extended
            && let Some(owner) = &claim.meta.owner
        {
            self.extended.insert(Arc::clone(&owner.uid), name.clone());
        }
        if claim.claim.allocation.is_some() {
            self.see_allocated(claim, changed);
        }
        for consumer in &claim.reserved_for {
            self.see_reserved(uid, &consumer.uid);
        }
        let before = old.as_ref().map(|old| &old.claim);
        let is_same = before.is_some_and(|before| before.allocation == claim.claim.allocation);
        if let (Some(before), false) = (before, is_same) {
            // An assumption that took its place stays: it is not seen yet.
            self.drop_seen(before, uid, changed);
        }
        for pool in pools_of(&claim.claim) {
            let holders = self.holders.entry(pool.clone()).or_default();
            let old = holders.insert(Arc::clone(uid), Holder::Seen(Arc::clone(claim)));
            if !is_same || !matches!(old, Some(Holder::Seen(_))) {
                changed.pools.insert(pool);
            }
        }
    }

    fn remove(&mut self, name: &ObjectName, changed: &mut Changed) {
        let Some(claim) = self.claims.remove(name) else { return };
        let uid = &claim.meta.uid;
        self.forget_reserved(&claim);
        changed.claims.insert(name.clone());
        if let Some(owner) = &claim.meta.owner
            && self.extended.get(&owner.uid) == Some(name)
        {
            self.extended.remove(&owner.uid);
        }
        self.drop_seen(&claim.claim, uid, changed);
        // Whatever was decided for it cannot be written any more.
        if let Some(pod) = self.allocating.get(uid).cloned() {
            self.drop_one(&pod, uid, changed);
        }
        for pod in self.users.remove(uid).into_iter().flatten() {
            if let Some(assumed) = self.assumed.get_mut(&pod) {
                assumed.uses.remove(uid);
            }
            self.drop_if_empty(&pod);
        }
    }

    /// What was decided for a claim is written, or somebody else was faster: it counts as it stands.
    fn see_allocated(&mut self, claim: &Arc<Claim>, changed: &mut Changed) {
        if let Some(pod) = self.allocating.get(&claim.meta.uid).cloned() {
            self.drop_one(&pod, &claim.meta.uid, changed);
        }
        if let (true, Some(owner)) = (claim.is_extended, &claim.meta.owner) {
            self.drop_one(&owner.uid, &extended_key(&owner.uid), changed);
        }
    }

    fn forget_reserved(&mut self, claim: &Claim) {
        for consumer in &claim.reserved_for {
            let Some(of_pod) = self.reserved.get_mut(&consumer.uid) else { continue };
            of_pod.remove(&claim.meta.uid);
            if of_pod.is_empty() {
                self.reserved.remove(&consumer.uid);
            }
        }
    }

    fn see_reserved(&mut self, claim: &Arc<str>, pod: &Arc<str>) {
        let Some(assumed) = self.assumed.get_mut(pod) else { return };
        if assumed.uses.remove(claim) {
            self.stop_using(claim, pod);
            self.drop_if_empty(pod);
        }
    }

    /// Drops one allocation that is assumed for a pod.
    fn drop_one(&mut self, pod: &str, key: &str, changed: &mut Changed) {
        let Some(assumed) = self.assumed.get_mut(pod) else { return };
        let Some(index) = assumed.claims.iter().position(|claim| &*claim.key == key) else {
            return;
        };
        let claim = assumed.claims.remove(index);
        self.drop_assumed(&claim, changed);
        self.drop_if_empty(pod);
    }

    fn drop_if_empty(&mut self, pod: &str) {
        if self.assumed.get(pod).is_some_and(|one| one.claims.is_empty() && one.uses.is_empty()) {
            self.assumed.remove(pod);
        }
    }

    fn drop_assumed(&mut self, claim: &AssumedClaim, changed: &mut Changed) {
        self.allocating.remove(&claim.key);
        for pool in pools_of(&claim.claim) {
            let is_it = |holder: &Holder| matches!(holder, Holder::Assumed(_));
            self.drop_holder(pool, &claim.key, is_it, changed);
        }
    }

    fn drop_seen(&mut self, claim: &octavo_dra::Claim, uid: &str, changed: &mut Changed) {
        for pool in pools_of(claim) {
            let is_it = |holder: &Holder| matches!(holder, Holder::Seen(_));
            self.drop_holder(pool, uid, is_it, changed);
        }
    }

    fn drop_holder(
        &mut self,
        pool: PoolRef,
        uid: &str,
        is_it: impl Fn(&Holder) -> bool,
        changed: &mut Changed,
    ) {
        let Some(holders) = self.holders.get_mut(&pool) else { return };
        if !holders.get(uid).is_some_and(is_it) {
            return;
        }
        holders.remove(uid);
        if holders.is_empty() {
            self.holders.remove(&pool);
        }
        changed.pools.insert(pool);
    }

    fn stop_using(&mut self, claim: &str, pod: &str) {
        let Some(users) = self.users.get_mut(claim) else { return };
        users.remove(pod);
        if users.is_empty() {
            self.users.remove(claim);
        }
    }

    fn blank(&self, uid: &Arc<str>, holder: &Holder) -> Held {
        let mut held = Held { claim: Arc::clone(uid), ..Held::default() };
        match holder {
            Holder::Seen(claim) => {
                held.name = claim.meta.name.clone();
                held.pods = claim.reserved_for.iter().map(|one| Arc::clone(&one.uid)).collect();
            }
            Holder::Assumed(assumed) => {
                let claim = &assumed.claim;
                held.name = ObjectName::new(claim.namespace.as_str(), claim.name.as_str());
                held.pods.insert(Arc::clone(&assumed.pod));
                held.is_assumed = true;
            }
        }
        held.pods.extend(self.users(uid).cloned());
        held
    }
}

impl Holder {
    /// As allocators see it.
    fn claim(&self) -> &octavo_dra::Claim {
        match self {
            Self::Seen(claim) => &claim.claim,
            Self::Assumed(assumed) => &assumed.claim,
        }
    }
}

/// What stands in for the UID of a pod's extended claim until it has one.
pub(super) fn extended_key(pod: &str) -> Arc<str> {
    format!("{pod}/extended").into()
}

/// Adds what a holder has of one pool.
fn add_results(held: &mut Held, holder: &Holder, pool: &PoolRef, gpus: Option<&NodeGpus>) {
    for result in results(holder.claim()).filter(|result| is_of(result, pool)) {
        match gpus.and_then(|gpus| gpus.part(result)) {
            Some(part) => held.parts.push(part),
            None => held.others += 1,
        }
    }
    held.parts.sort_unstable();
}

fn results(claim: &octavo_dra::Claim) -> impl Iterator<Item = &AllocationResult> {
    claim.allocation.iter().flat_map(|allocation: &Allocation| &allocation.results)
}

fn is_of(result: &AllocationResult, pool: &PoolRef) -> bool {
    result.pool == pool.pool && result.driver == pool.driver
}

/// The pools of a claim's devices, each once.
fn pools_of(claim: &octavo_dra::Claim) -> BTreeSet<PoolRef> {
    let pool = |result: &AllocationResult| PoolRef {
        driver: result.driver.clone(),
        pool: result.pool.clone(),
    };
    results(claim).map(pool).collect()
}
