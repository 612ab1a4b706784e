//! Who holds what: claims that are allocated, and allocations that were decided and are not seen yet.
//!
//! An assumption ends when its claim is seen allocated, or it is forgotten. Where an order of before wrote to
//! the claim and took that back, a watch that lags may tell both after the next order was given, and with
//! the same devices: versions of what an order wrote are not known here. Such an assumption is *firm*: it
//! holds beside all that is seen until its order has failed, its pod has ended or is gone, or the claim is.

mod held;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_dra::{Allocation, AllocationResult, PoolRef};
use octavo_kube_io::objects::{Claim, Delta, ObjectName};

pub use held::Held;

/// Who holds what.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    claims: BTreeMap<ObjectName, Arc<Claim>>,
    /// Claims for extended resources that are there, by UID of the pod.
    extended: BTreeMap<Arc<str>, ObjectName>,
    /// Claims that were seen allocated, by pool, by UID.
    seen: BTreeMap<PoolRef, BTreeMap<Arc<str>, Arc<Claim>>>,
    /// Allocations that were decided, by pool, by key.
    decided: BTreeMap<PoolRef, BTreeMap<Arc<str>, Arc<AssumedClaim>>>,
    /// By UID of the pod.
    assumed: BTreeMap<Arc<str>, Assumed>,
    /// Pods whose use of a claim is assumed, by the claim's UID.
    users: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// The pod whose order allocates a claim, by the claim's UID.
    allocating: BTreeMap<Arc<str>, Arc<str>>,
    /// UIDs of claims that were seen reserved for a pod, by the pod's UID.
    reserved: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Keys of claims that were taken back: what a watch tells of them may be older than an order.
    /// Since when that is so; `None`: since before the next time that is told.
    taken_back: BTreeMap<Arc<str>, Option<u64>>,
    /// Those of them without a time.
    just_taken_back: Vec<Arc<str>>,
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
    /// Whether it holds whatever is seen of its claims: that may be what an order of before wrote or took
    /// back. It ends when it is forgotten, or its claims are gone.
    is_firm: bool,
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
        if let Delta::Replace(_, claims) = delta {
            let there: BTreeSet<_> = claims.iter().map(|claim| &claim.meta.name).collect();
            let gone: Vec<_> =
                self.claims.keys().filter(|name| !there.contains(name)).cloned().collect();
            for name in &gone {
                self.remove(name, &mut changed);
            }
        }
        if let Delta::Delete(claim) = delta {
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
        self.assumption(claim).filter(|assumed| !self.is_covered(assumed))
    }

    /// How many more pods than are written are decided to use a claim.
    pub(super) fn users(&self, claim: &str) -> impl Iterator<Item = &Arc<str>> {
        self.users.get(claim).into_iter().flatten()
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
        let is_firm = claims.iter().any(|claim| self.taken_back.contains_key(&claim.key));
        let mut assumed = Assumed { claims: Vec::new(), uses, is_firm };
        for claim in &assumed.uses {
            self.users.entry(Arc::clone(claim)).or_default().insert(Arc::clone(pod));
        }
        for claim in claims {
            let claim = Arc::new(claim);
            for pool in pools_of(&claim.claim) {
                let decided = self.decided.entry(pool.clone()).or_default();
                decided.insert(Arc::clone(&claim.key), Arc::clone(&claim));
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

    /// Gives assumed allocations of a pod to others that use the same claims, of these.
    pub(super) fn hand_over(&mut self, pod: &str, heirs: &BTreeSet<Arc<str>>) {
        let Some(assumed) = self.assumed.get_mut(pod) else { return };
        let is_firm = assumed.is_firm;
        let mut kept = Vec::new();
        let mut given = Vec::new();
        for claim in std::mem::take(&mut assumed.claims) {
            let users = self.users.get(&claim.key);
            let mut users = users.into_iter().flatten().filter(|user| ***user != *pod);
            match users.find(|user| heirs.contains(*user)) {
                Some(heir) => given.push((Arc::clone(heir), claim)),
                None => kept.push(claim),
            }
        }
        assumed.claims = kept;
        for (heir, claim) in given {
            let claim = Arc::new(AssumedClaim { pod: Arc::clone(&heir), ..(*claim).clone() });
            for pool in pools_of(&claim.claim) {
                let decided = self.decided.entry(pool).or_default();
                decided.insert(Arc::clone(&claim.key), Arc::clone(&claim));
            }
            self.allocating.insert(Arc::clone(&claim.key), Arc::clone(&heir));
            let of_heir = self.assumed.entry(heir).or_default();
            of_heir.is_firm |= is_firm;
            of_heir.claims.push(claim);
        }
    }

    /// A claim may have been written and taken back (its UID, or the key of a pod's extended claim): a watch
    /// may tell both only after the next order for it was given.
    pub(super) fn take_back(&mut self, key: Arc<str>) {
        self.taken_back.insert(Arc::clone(&key), None);
        self.just_taken_back.push(key);
    }

    /// What was taken back until now was taken back by this time.
    pub(super) fn time_is(&mut self, now: u64) {
        for key in self.just_taken_back.drain(..) {
            if let Some(since @ None) = self.taken_back.get_mut(&key) {
                *since = Some(now);
            }
        }
    }

    /// Claims were read anew, by lists that began at this time.
    pub(super) fn read_anew(&mut self, at: u64) {
        self.taken_back.retain(|_, since| since.is_none_or(|since| since > at));
    }

    /// Whether a claim may have been taken back since it was seen.
    pub(super) fn is_taken_back(&self, key: &str) -> bool {
        self.taken_back.contains_key(key)
    }

    /// A pod is gone, and its extended claim is nobody's.
    pub(super) fn pod_gone(&mut self, pod: &str) {
        self.taken_back.remove(&extended_key(pod));
    }

    /// Another may have written to the claims of a pod: what is seen of them counts, also against what was
    /// decided.
    pub(super) fn trust_seen(&mut self, pod: &str) -> Changed {
        let mut changed = Changed::default();
        let Some(assumed) = self.assumed.get_mut(pod).filter(|assumed| assumed.is_firm) else {
            return changed;
        };
        assumed.is_firm = false;
        let claims: Vec<_> = assumed.claims.iter().map(Arc::clone).collect();
        let seen = self.reserved.get(pod).cloned().unwrap_or_default();
        for claim in claims {
            if self.counterpart(&claim).is_some_and(|seen| seen.claim.allocation.is_some()) {
                self.drop_one(pod, &claim.key, &mut changed);
            }
        }
        for claim in seen {
            self.see_reserved(&claim, &pod.into());
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
            self.drop_seen(before, uid, changed);
        }
        for pool in pools_of(&claim.claim) {
            let seen = self.seen.entry(pool.clone()).or_default();
            let old = seen.insert(Arc::clone(uid), Arc::clone(claim));
            if !is_same || old.is_none() {
                changed.pools.insert(pool);
            }
        }
        if !is_same {
            self.uncover(claim, changed);
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
        self.uncover(&claim, changed);
        self.taken_back.remove(uid);
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

    /// What was decided for a claim is written, or somebody else was faster: it counts as it stands, unless
    /// it may be older than the order.
    fn see_allocated(&mut self, claim: &Claim, changed: &mut Changed) {
        let assumptions: Vec<_> = self.assumptions_of(claim).map(Arc::clone).collect();
        for assumed in assumptions {
            if !self.is_firm(&assumed.pod) {
                self.drop_one(&assumed.pod, &assumed.key, changed);
            }
        }
    }

    /// What a claim shows of assumptions is another now.
    fn uncover(&self, claim: &Claim, changed: &mut Changed) {
        for assumed in self.assumptions_of(claim) {
            changed.pools.extend(pools_of(&assumed.claim));
        }
    }

    /// What is assumed of a claim, and of the extended claim of its owner if it is one.
    fn assumptions_of<'a>(
        &'a self,
        claim: &'a Claim,
    ) -> impl Iterator<Item = &'a Arc<AssumedClaim>> {
        let owner = claim.meta.owner.as_ref().filter(|_| claim.is_extended);
        let extended = owner.and_then(|owner| self.assumption(&extended_key(&owner.uid)));
        self.assumption(&claim.meta.uid).into_iter().chain(extended)
    }

    fn assumption(&self, key: &str) -> Option<&Arc<AssumedClaim>> {
        let pod = self.allocating.get(key)?;
        self.assumed.get(pod)?.claims.iter().find(|assumed| &*assumed.key == key)
    }

    fn is_firm(&self, pod: &str) -> bool {
        self.assumed.get(pod).is_some_and(|assumed| assumed.is_firm)
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
        if !assumed.is_firm && assumed.uses.remove(claim) {
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
        drop_of(&mut self.decided, &claim.claim, &claim.key, changed);
    }

    fn drop_seen(&mut self, claim: &octavo_dra::Claim, uid: &str, changed: &mut Changed) {
        drop_of(&mut self.seen, claim, uid, changed);
    }

    fn stop_using(&mut self, claim: &str, pod: &str) {
        let Some(users) = self.users.get_mut(claim) else { return };
        users.remove(pod);
        if users.is_empty() {
            self.users.remove(claim);
        }
    }
}

/// What stands in for the UID of a pod's extended claim until it has one.
pub(super) fn extended_key(pod: &str) -> Arc<str> {
    format!("{pod}/extended").into()
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

/// Takes a holder out of the pools of these devices.
fn drop_of<T>(
    holders: &mut BTreeMap<PoolRef, BTreeMap<Arc<str>, T>>,
    claim: &octavo_dra::Claim,
    key: &str,
    changed: &mut Changed,
) {
    for pool in pools_of(claim) {
        let Some(there) = holders.get_mut(&pool) else { continue };
        if there.remove(key).is_none() {
            continue;
        }
        if there.is_empty() {
            holders.remove(&pool);
        }
        changed.pools.insert(pool);
    }
}
