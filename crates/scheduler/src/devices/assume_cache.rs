//! The assume cache: holders of devices. These are allocated claims, and allocations that were
//! decided and are not observed yet.
//!
//! An assumption holds until its operation has ended, whatever is observed meanwhile: a lagging
//! watch may deliver writes and rollbacks of earlier operations. The result has the versions of
//! the claims that the operation wrote. An observed claim of that version or a later one replaces
//! the assumption, as in client-go's `AssumeCache`. An assumption without a version holds until it
//! is forgotten, or its claim is gone.

mod claim_key;
mod held;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_dra::{Allocation, AllocationResult, PoolRef};
use octavo_kube_io::objects::{Claim, ClaimUid, Delta, ObjectName, PodUid};

use crate::bind::ClaimVersions;

pub use claim_key::ClaimKey;
pub use held::HeldDevices;

/// The holders of devices.
#[derive(Debug, Default)]
pub(super) struct AssumeCache {
    claims: BTreeMap<ObjectName, Arc<Claim>>,
    /// Existing claims for extended resources, by UID of the pod.
    extended: BTreeMap<PodUid, ObjectName>,
    /// Claims that are observed allocated, by pool and UID.
    observed: BTreeMap<PoolRef, BTreeMap<ClaimUid, Arc<Claim>>>,
    /// Assumed allocations, by pool and key.
    assumed_by_pool: BTreeMap<PoolRef, BTreeMap<ClaimKey, Arc<AssumedClaim>>>,
    assumed: BTreeMap<PodUid, Assumed>,
    /// Pods whose use of a claim is assumed.
    users: BTreeMap<ClaimUid, BTreeSet<PodUid>>,
    /// The pod whose operation allocates a claim.
    allocating: BTreeMap<ClaimKey, PodUid>,
    /// Claims that are observed reserved for a pod.
    reserved: BTreeMap<PodUid, BTreeSet<ClaimUid>>,
    /// Devices that are reserved for nominated pods. Victims may still hold them.
    nominated: BTreeMap<PodUid, Vec<octavo_dra::Claim>>,
}

/// An assumed allocation.
#[derive(Clone, Debug)]
pub(super) struct AssumedClaim {
    /// As the allocator needs it.
    pub(super) claim: octavo_dra::Claim,
    /// The pod for which it was decided.
    pub(super) pod: PodUid,
    /// The claim's key.
    pub(super) key: ClaimKey,
}

/// What is assumed for a pod.
#[derive(Clone, Debug, Default)]
struct Assumed {
    /// Allocations.
    claims: Vec<Arc<AssumedClaim>>,
    /// Claims that it uses, with their names.
    uses: BTreeMap<ClaimUid, ObjectName>,
    /// What replaces it.
    replaced_by: ReplacedBy,
}

/// The observed claims that replace what is assumed for a pod.
#[derive(Clone, Debug, Default)]
pub(super) enum ReplacedBy {
    /// None: the outcome of the pod's operation is not known.
    #[default]
    None,
    /// Those of these versions and later ones.
    Versions(ClaimVersions),
    /// Those that are allocated: another client may have written them.
    Allocated,
}

/// What a change touches.
#[derive(Debug, Default)]
pub(super) struct HoldingsChange {
    /// Claims that changed.
    pub(super) claims: BTreeSet<ObjectName>,
    /// Pools whose holdings changed.
    pub(super) pools: BTreeSet<PoolRef>,
}

impl AssumeCache {
    /// Applies a change of claims.
    pub(super) fn apply(&mut self, delta: &Delta<Claim>) -> HoldingsChange {
        let mut changed = HoldingsChange::default();
        for name in delta.gone(self.claims.keys(), |claim| claim.meta.name.clone()) {
            self.remove(&name, &mut changed);
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

    /// The pools from which claims with a label hold devices of a driver.
    pub(super) fn pools_held_with_label(
        &self,
        (label, value): (&str, &str),
        driver: &str,
    ) -> BTreeSet<String> {
        let labelled = self
            .claims
            .values()
            .filter(|claim| claim.meta.labels.get(label).is_some_and(|found| found == value));
        let allocations = labelled.filter_map(|claim| match self.pending(&claim.uid()) {
            Some(assumed) => assumed.claim.allocation.as_ref(),
            None => claim.claim.allocation.as_ref(),
        });
        let results = allocations.flat_map(|allocation| &allocation.results);
        let of_driver = results.filter(|result| result.driver == driver);
        of_driver.map(|result| result.pool.clone()).collect()
    }

    /// The existing claim for a pod's extended resources.
    pub(super) fn extended_claim_of(&self, pod: &str) -> Option<&Arc<Claim>> {
        self.claims.get(self.extended.get(pod)?)
    }

    /// What is assumed for a claim and not observed yet, with the pod whose operation allocates it.
    pub(super) fn pending(&self, claim: &str) -> Option<&Arc<AssumedClaim>> {
        self.assumption(claim).filter(|assumed| !self.is_observed(assumed))
    }

    /// Pods whose use of a claim is assumed and not yet written.
    pub(super) fn users(&self, claim: &str) -> impl Iterator<Item = &PodUid> {
        self.users.get(claim).into_iter().flatten()
    }

    /// Names of claims that are observed with an allocation.
    pub(super) fn allocated(&self) -> impl Iterator<Item = &ObjectName> {
        let holding = self.claims.iter().filter(|(_, claim)| claim.claim.allocation.is_some());
        holding.map(|(name, _)| name)
    }

    /// Assumes, for a pod, allocations of claims and the use of claims.
    pub(super) fn assume(
        &mut self,
        pod: &PodUid,
        claims: Vec<AssumedClaim>,
        uses: BTreeMap<ClaimUid, ObjectName>,
    ) -> HoldingsChange {
        let mut changed = self.forget(pod);
        let mut assumed = Assumed { uses, ..Assumed::default() };
        for claim in assumed.uses.keys() {
            self.users.entry(claim.clone()).or_default().insert(pod.clone());
        }
        for claim in claims {
            let claim = Arc::new(claim);
            for pool in pools_of(&claim.claim) {
                let of_pool = self.assumed_by_pool.entry(pool.clone()).or_default();
                of_pool.insert(claim.key.clone(), Arc::clone(&claim));
                changed.pools.insert(pool);
            }
            self.allocating.insert(claim.key.clone(), pod.clone());
            assumed.claims.push(claim);
        }
        self.assumed.insert(pod.clone(), assumed);
        changed
    }

    /// Reserves the devices of these claims for a nominated pod.
    pub(super) fn reserve_nominated(
        &mut self,
        pod: &PodUid,
        claims: Vec<octavo_dra::Claim>,
    ) -> HoldingsChange {
        let mut changed = self.release_nominated(pod);
        changed.pools.extend(claims.iter().flat_map(pools_of));
        self.nominated.insert(pod.clone(), claims);
        changed
    }

    /// Ends the reservation of a nominated pod.
    pub(super) fn release_nominated(&mut self, pod: &str) -> HoldingsChange {
        let mut changed = HoldingsChange::default();
        if let Some(claims) = self.nominated.remove(pod) {
            changed.pools.extend(claims.iter().flat_map(pools_of));
        }
        changed
    }

    /// Whether devices are reserved for a nominated pod.
    pub(super) fn has_nominated(&self, pod: &str) -> bool {
        self.nominated.contains_key(pod)
    }

    /// Forgets what is assumed for a pod. What was observed since stays.
    pub(super) fn forget(&mut self, pod: &str) -> HoldingsChange {
        let mut changed = self.release_nominated(pod);
        let Some(assumed) = self.assumed.remove(pod) else { return changed };
        for claim in &assumed.claims {
            self.remove_assumed(claim, &mut changed);
        }
        for claim in assumed.uses.keys() {
            self.stop_using(claim, pod);
        }
        changed
    }

    /// Transfers assumed allocations of a pod to those of `successors` that use the same claims.
    pub(super) fn transfer_assumed(&mut self, pod: &str, successors: &BTreeSet<PodUid>) {
        let Some(assumed) = self.assumed.get_mut(pod) else { return };
        let mut kept = Vec::new();
        let mut transferred = Vec::new();
        for claim in std::mem::take(&mut assumed.claims) {
            let users = self.users.get(&*claim.key);
            let mut users = users.into_iter().flatten().filter(|user| ***user != *pod);
            match users.find(|user| successors.contains(*user)) {
                Some(successor) => transferred.push((successor.clone(), claim)),
                None => kept.push(claim),
            }
        }
        assumed.claims = kept;
        for (successor, claim) in transferred {
            let claim = Arc::new(AssumedClaim { pod: successor.clone(), ..(*claim).clone() });
            for pool in pools_of(&claim.claim) {
                let of_pool = self.assumed_by_pool.entry(pool).or_default();
                of_pool.insert(claim.key.clone(), Arc::clone(&claim));
            }
            self.allocating.insert(claim.key.clone(), successor.clone());
            self.assumed.entry(successor).or_default().claims.push(claim);
        }
    }

    /// Sets which observed claims replace what is assumed for a pod. Changes are devices that were
    /// assumed and are not observed.
    pub(super) fn replace(&mut self, pod: &str, replaced_by: ReplacedBy) -> HoldingsChange {
        let mut changed = HoldingsChange::default();
        let Some(assumed) = self.assumed.get_mut(pod) else { return changed };
        assumed.replaced_by = replaced_by;
        let (claims, uses) = (assumed.claims.clone(), assumed.uses.clone());
        for claim in claims {
            let observed = self.observed_claim(&claim).map(Arc::clone);
            if observed.is_some_and(|observed| self.is_replaced(pod, &observed)) {
                let is_same = self.is_observed(&claim);
                let dropped = self.drop_assumed_claim(pod, &claim.key);
                changed.pools.extend(dropped.pools.into_iter().filter(|_| !is_same));
            }
        }
        for (uid, name) in uses {
            let observed = self.claim(&name).filter(|observed| *observed.meta.uid == *uid);
            if observed.is_some_and(|observed| self.is_use_replaced(pod, observed)) {
                self.drop_use(pod, &uid);
            }
        }
        changed
    }

    /// Whether anything is assumed for a pod.
    pub(super) fn is_assumed(&self, pod: &str) -> bool {
        self.assumed.contains_key(pod)
    }

    fn set(&mut self, claim: &Arc<Claim>, changed: &mut HoldingsChange) {
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
            let of_pod = self.reserved.entry(consumer.pod_uid()).or_default();
            of_pod.insert(claim.uid());
        }
        changed.claims.insert(name.clone());
        self.claims.insert(name.clone(), Arc::clone(claim));
        if claim.is_extended
            && let Some(owner) = &claim.meta.owner
        {
            self.extended.insert(PodUid::from(Arc::clone(&owner.uid)), name.clone());
        }
        self.replace_assumed(claim, changed);
        let before = old.as_ref().map(|old| &old.claim);
        let is_same = before.is_some_and(|before| before.allocation == claim.claim.allocation);
        if let (Some(before), false) = (before, is_same) {
            remove_holder(&mut self.observed, before, uid, changed);
        }
        for pool in pools_of(&claim.claim) {
            let observed = self.observed.entry(pool.clone()).or_default();
            let old = observed.insert(claim.uid(), Arc::clone(claim));
            if !is_same || old.is_none() {
                changed.pools.insert(pool);
            }
        }
        if !is_same {
            self.mark_pools_changed(claim, changed);
        }
    }

    fn remove(&mut self, name: &ObjectName, changed: &mut HoldingsChange) {
        let Some(claim) = self.claims.remove(name) else { return };
        let uid: &str = &claim.meta.uid;
        self.forget_reserved(&claim);
        changed.claims.insert(name.clone());
        if let Some(owner) = &claim.meta.owner
            && self.extended.get(&*owner.uid) == Some(name)
        {
            self.extended.remove(&*owner.uid);
        }
        remove_holder(&mut self.observed, &claim.claim, uid, changed);
        self.mark_pools_changed(&claim, changed);
        // What was assumed for it cannot be written any more.
        if let Some(pod) = self.allocating.get(uid).cloned() {
            changed.pools.extend(self.drop_assumed_claim(&pod, uid).pools);
        }
        for pod in self.users.remove(uid).into_iter().flatten() {
            if let Some(assumed) = self.assumed.get_mut(&pod) {
                assumed.uses.remove(uid);
            }
            self.drop_if_empty(&pod);
        }
    }

    /// Drops what this observed claim replaces.
    fn replace_assumed(&mut self, claim: &Claim, changed: &mut HoldingsChange) {
        let assumptions: Vec<_> = self.assumptions_of(claim).map(Arc::clone).collect();
        for assumed in assumptions {
            if self.is_replaced(&assumed.pod, claim) {
                changed.pools.extend(self.drop_assumed_claim(&assumed.pod, &assumed.key).pools);
            }
        }
        let users = self.users(&claim.meta.uid);
        let replaced = users.filter(|pod| self.is_use_replaced(pod, claim));
        for pod in replaced.cloned().collect::<Vec<_>>() {
            self.drop_use(&pod, &claim.meta.uid);
        }
    }

    /// Whether an observed claim replaces the allocation that is assumed for a pod.
    fn is_replaced(&self, pod: &str, claim: &Claim) -> bool {
        match self.assumed.get(pod).map(|assumed| &assumed.replaced_by) {
            None | Some(ReplacedBy::None) => false,
            Some(ReplacedBy::Versions(written)) => written
                .get(&*claim.meta.uid)
                .is_some_and(|written| claim.meta.version_number() >= Some(*written)),
            Some(ReplacedBy::Allocated) => claim.claim.allocation.is_some(),
        }
    }

    /// Whether an observed claim replaces the use that is assumed for a pod.
    fn is_use_replaced(&self, pod: &str, claim: &Claim) -> bool {
        let is_reserved = || claim.reserved_for.iter().any(|consumer| *consumer.uid == *pod);
        match self.assumed.get(pod).map(|assumed| &assumed.replaced_by) {
            Some(ReplacedBy::Allocated) => is_reserved(),
            _ => self.is_replaced(pod, claim),
        }
    }

    /// Marks the pools of a claim's assumptions as changed, because its observed state changed.
    fn mark_pools_changed(&self, claim: &Claim, changed: &mut HoldingsChange) {
        for assumed in self.assumptions_of(claim) {
            changed.pools.extend(pools_of(&assumed.claim));
        }
    }

    /// What is assumed for a claim. For an extended claim this includes what is assumed for its
    /// owner.
    fn assumptions_of<'a>(
        &'a self,
        claim: &'a Claim,
    ) -> impl Iterator<Item = &'a Arc<AssumedClaim>> {
        let owner = claim.meta.owner.as_ref().filter(|_| claim.is_extended);
        let extended = owner.and_then(|owner| self.assumption(&ClaimKey::extended(&owner.uid)));
        self.assumption(&claim.meta.uid).into_iter().chain(extended)
    }

    fn assumption(&self, key: &str) -> Option<&Arc<AssumedClaim>> {
        let pod = self.allocating.get(key)?;
        self.assumed.get(pod)?.claims.iter().find(|assumed| &*assumed.key == key)
    }

    fn forget_reserved(&mut self, claim: &Claim) {
        for consumer in &claim.reserved_for {
            let Some(of_pod) = self.reserved.get_mut(&*consumer.uid) else { continue };
            of_pod.remove(&*claim.meta.uid);
            if of_pod.is_empty() {
                self.reserved.remove(&*consumer.uid);
            }
        }
    }

    /// Drops the assumed use of a claim.
    fn drop_use(&mut self, pod: &str, claim: &str) {
        if let Some(assumed) = self.assumed.get_mut(pod) {
            assumed.uses.remove(claim);
        }
        self.stop_using(claim, pod);
        self.drop_if_empty(pod);
    }

    /// Drops one assumed allocation of a pod.
    fn drop_assumed_claim(&mut self, pod: &str, key: &str) -> HoldingsChange {
        let mut changed = HoldingsChange::default();
        let Some(assumed) = self.assumed.get_mut(pod) else { return changed };
        let Some(index) = assumed.claims.iter().position(|claim| &*claim.key == key) else {
            return changed;
        };
        let claim = assumed.claims.remove(index);
        self.remove_assumed(&claim, &mut changed);
        self.drop_if_empty(pod);
        changed
    }

    fn drop_if_empty(&mut self, pod: &str) {
        if self
            .assumed
            .get(pod)
            .is_some_and(|assumed| assumed.claims.is_empty() && assumed.uses.is_empty())
        {
            self.assumed.remove(pod);
        }
    }

    fn remove_assumed(&mut self, claim: &AssumedClaim, changed: &mut HoldingsChange) {
        self.allocating.remove(&claim.key);
        remove_holder(&mut self.assumed_by_pool, &claim.claim, &claim.key, changed);
    }

    fn stop_using(&mut self, claim: &str, pod: &str) {
        let Some(users) = self.users.get_mut(claim) else { return };
        users.remove(pod);
        if users.is_empty() {
            self.users.remove(claim);
        }
    }
}

fn results(claim: &octavo_dra::Claim) -> impl Iterator<Item = &AllocationResult> {
    claim.allocation.iter().flat_map(|allocation: &Allocation| &allocation.results)
}

/// The pools of a claim's devices, each once.
fn pools_of(claim: &octavo_dra::Claim) -> BTreeSet<PoolRef> {
    let pool = |result: &AllocationResult| PoolRef {
        driver: result.driver.clone(),
        pool: result.pool.clone(),
    };
    results(claim).map(pool).collect()
}

/// Removes a holder from the pools of these devices.
fn remove_holder<K: Borrow<str> + Ord, T>(
    holders: &mut BTreeMap<PoolRef, BTreeMap<K, T>>,
    claim: &octavo_dra::Claim,
    key: &str,
    changed: &mut HoldingsChange,
) {
    for pool in pools_of(claim) {
        let Some(listed) = holders.get_mut(&pool) else { continue };
        if listed.remove(key).is_none() {
            continue;
        }
        if listed.is_empty() {
            holders.remove(&pool);
        }
        changed.pools.insert(pool);
    }
}
