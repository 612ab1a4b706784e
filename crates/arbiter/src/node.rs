//! The GPUs of a node: an arbiter for each, and the gangs that need several of them.

use std::collections::{BTreeMap, BTreeSet};

use octavo_guard_abi::lease_page::Lease;

use crate::Arbiter;
use crate::account::{Activity, ShareTime};
use crate::gangs::{self, Gang};
use crate::settings::Settings;
use crate::terms::Terms;

/// A share of one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeShare<G, K> {
    /// The GPU.
    pub gpu: G,
    /// Its name, which no other share of the node has.
    pub name: K,
    /// What it asks for.
    pub terms: Terms,
    /// Its claim. The shares of one claim on several GPUs have their leases together.
    pub claim: Option<K>,
}

/// The GPUs of a node, named by `G`, and their shares, named by `K`. GPUs without a gang do not wait for each other.
#[derive(Clone, Debug)]
pub struct Node<G, K> {
    settings: Settings,
    arbiters: BTreeMap<G, Arbiter<K>>,
    gangs: BTreeMap<K, Gang<G, K>>,
    gpu_of: BTreeMap<K, G>,
    /// When the next step of a GPU is due.
    due: BTreeMap<G, u64>,
}

impl<G: Ord + Clone, K: Ord + Clone> Node<G, K> {
    /// A node without shares.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            arbiters: BTreeMap::new(),
            gangs: BTreeMap::new(),
            gpu_of: BTreeMap::new(),
            due: BTreeMap::new(),
        }
    }

    /// Takes the shares that there are now. A share that is known keeps its balance and its lease. A step of all GPUs is due.
    pub fn set_shares(&mut self, now: u64, shares: impl IntoIterator<Item = NodeShare<G, K>>) {
        let mut by_gpu: BTreeMap<G, BTreeMap<K, Terms>> = BTreeMap::new();
        let mut by_claim: BTreeMap<K, BTreeMap<G, K>> = BTreeMap::new();
        self.gpu_of.clear();
        for NodeShare { gpu, name, terms, claim } in shares {
            if let Some(claim) = claim {
                // Two shares of one GPU cannot have it together. The first one is the member.
                let members = by_claim.entry(claim).or_default();
                members.entry(gpu.clone()).or_insert_with(|| name.clone());
            }
            self.gpu_of.insert(name.clone(), gpu.clone());
            by_gpu.entry(gpu).or_default().insert(name, terms);
        }
        self.arbiters.retain(|gpu, _| by_gpu.contains_key(gpu));
        self.due = by_gpu.keys().map(|gpu| (gpu.clone(), now)).collect();
        for (gpu, shares) in by_gpu {
            let arbiter =
                self.arbiters.entry(gpu).or_insert_with(|| Arbiter::new(self.settings, now));
            arbiter.set_shares(shares);
            arbiter.shares.values_mut().for_each(|account| account.seat = None);
            arbiter.is_wanted = false;
        }
        by_claim.retain(|_, members| members.len() > 1);
        self.gangs.retain(|claim, _| by_claim.contains_key(claim));
        for (claim, members) in by_claim {
            self.gangs.entry(claim).or_insert_with(Gang::new).set_members(members);
        }
    }

    /// Makes a step of a share's GPU due: the share began to wait, has drained, or lost a process.
    pub fn look(&mut self, share: &K, now: u64) {
        if let Some(gpu) = self.gpu_of.get(share) {
            self.due.insert(gpu.clone(), now);
        }
    }

    /// Makes a step of all GPUs due.
    pub fn look_at_all(&mut self, now: u64) {
        self.due = self.arbiters.keys().map(|gpu| (gpu.clone(), now)).collect();
    }

    /// When the next step is due; `None` if none is until a share's activity changes.
    pub fn due(&self) -> Option<u64> {
        self.due.values().min().copied()
    }

    /// Makes the steps that are due (see [`Arbiter::step`]), and returns the GPUs of which leases may have changed.
    pub fn step(&mut self, now: u64, activity: impl Fn(&K) -> Activity) -> BTreeSet<G> {
        let mut gpus: BTreeSet<G> =
            self.due.iter().filter(|(_, at)| **at <= now).map(|(gpu, _)| gpu.clone()).collect();
        let of_gangs: BTreeSet<&G> = self.gangs.values().flat_map(Gang::gpus).collect();
        let has_gangs = gpus.iter().any(|gpu| of_gangs.contains(gpu));
        if has_gangs {
            gpus.extend(of_gangs.into_iter().cloned());
        }
        self.observe(&gpus, has_gangs, now, activity);
        if has_gangs {
            gangs::call(&mut self.gangs, &mut self.arbiters, &self.settings, now);
        }
        for gpu in &gpus {
            self.arbiters.get_mut(gpu).into_iter().for_each(Arbiter::end_turns);
        }
        if has_gangs {
            gangs::begin(&mut self.gangs, &mut self.arbiters, &self.settings, now);
        }
        for gpu in &gpus {
            let Some(arbiter) = self.arbiters.get_mut(gpu) else { continue };
            arbiter.begin_turn();
            arbiter.set_freedom();
            match arbiter.next_step() {
                Some(next) => self.due.insert(gpu.clone(), next),
                None => self.due.remove(gpu),
            };
        }
        gpus
    }

    /// Takes what shares do. One of a gang that waits is taken for waiting if any of them is.
    fn observe(
        &mut self,
        gpus: &BTreeSet<G>,
        has_gangs: bool,
        now: u64,
        activity: impl Fn(&K) -> Activity,
    ) {
        let Self { arbiters, gangs, settings, .. } = self;
        let stepped = || gpus.iter().filter_map(|gpu| Some((gpu, arbiters.get(gpu)?)));
        let mut activities: BTreeMap<(&G, K), Activity> = stepped()
            .flat_map(|(gpu, arbiter)| arbiter.shares.keys().map(move |key| (gpu, key.clone())))
            .map(|(gpu, key)| ((gpu, key.clone()), activity(&key)))
            .collect();
        for gang in gangs.values_mut().filter(|_| has_gangs) {
            let waits = gang.observe(now, settings, |gpu, share| {
                let account = arbiters.get(gpu).and_then(|arbiter| arbiter.shares.get(share));
                let is_free = account.is_some_and(|it| it.is_free && it.is_holding());
                (activities.get(&(gpu, share.clone())).copied().unwrap_or_default(), is_free)
            });
            for ((gpu, share), activity) in activities.iter_mut().filter(|_| waits) {
                activity.is_waiting |= gang.has_member(gpu, share);
            }
        }
        for gpu in gpus {
            if let Some(arbiter) = arbiters.get_mut(gpu) {
                let of = |key: &K| activities.get(&(gpu, key.clone())).copied().unwrap_or_default();
                arbiter.observe(now, of);
            }
        }
    }

    /// The lease of a share; none if the share is unknown.
    pub fn lease(&self, share: &K) -> Lease {
        let arbiter = self.gpu_of.get(share).and_then(|gpu| self.arbiters.get(gpu));
        arbiter.map_or(Lease::None, |arbiter| arbiter.lease(share))
    }

    /// What each share had of the GPU's time so far.
    pub fn times(&self) -> impl Iterator<Item = (&K, ShareTime)> {
        self.arbiters.values().flat_map(Arbiter::times)
    }
}
