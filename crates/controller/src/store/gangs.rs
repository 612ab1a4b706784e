//! Gangs of the pods of claims. Each pod is read once, and kept while a claim names it.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::gang_key;
use super::{Fact, Key, Store};
use crate::gangs::PodGang;
use crate::view::{ChannelClaim, ClaimPod, Domain, Gang};

/// What is known of the pods of claims, by UID.
#[derive(Clone, Debug, Default)]
pub(super) struct Pods {
    by_uid: BTreeMap<String, Known>,
    /// Pods that nothing reads yet.
    unread: Vec<ClaimPod>,
}

/// A pod of claims.
#[derive(Clone, Debug, Default)]
struct Known {
    claims: BTreeSet<Key>,
    gang: Reading,
}

/// What is known of a pod's gang.
#[derive(Clone, Debug, Default)]
enum Reading {
    /// The pod is not read yet.
    #[default]
    Pending,
    /// It is in no gang, or could not be read.
    NoGang,
    /// It is in a gang.
    Gang(PodGang),
}

impl Pods {
    /// Replaces the pods of a claim. One that stays is not read again; one without claims is forgotten.
    pub(super) fn replace(&mut self, key: &Key, old: &[ClaimPod], new: &[ClaimPod]) {
        for pod in new.iter().filter(|pod| !old.contains(pod)) {
            if !self.by_uid.contains_key(&pod.uid) {
                self.unread.push(pod.clone());
            }
            self.by_uid.entry(pod.uid.clone()).or_default().claims.insert(key.clone());
        }
        for pod in old.iter().filter(|pod| !new.contains(pod)) {
            if let Some(known) = self.by_uid.get_mut(&pod.uid) {
                known.claims.remove(key);
                if known.claims.is_empty() {
                    self.by_uid.remove(&pod.uid);
                }
            }
        }
    }

    /// Keys of the claims whose pods are in a gang.
    pub(super) fn claims_in<'a>(&'a self, gang: &'a Key) -> impl Iterator<Item = &'a Key> {
        let is_in = |known: &&Known| match &known.gang {
            Reading::Gang(found) => gang_key(&found.name) == *gang,
            Reading::Pending | Reading::NoGang => false,
        };
        self.by_uid.values().filter(is_in).flat_map(|known| &known.claims)
    }
}

impl Store {
    /// The pods that are to be read, each once.
    pub fn take_unread(&mut self) -> Vec<ClaimPod> {
        std::mem::take(&mut self.pods.unread)
    }

    /// A pod was read. Returns the domains that it concerns.
    pub(super) fn pod_read(&mut self, uid: &str, gang: Option<PodGang>) -> BTreeSet<String> {
        let Some(known) = self.pods.by_uid.get_mut(uid) else { return BTreeSet::new() };
        known.gang = gang.map_or(Reading::NoGang, Reading::Gang);
        let claims = known.claims.clone();
        claims.iter().filter_map(|key| self.claim(key)).map(|claim| claim.domain.clone()).collect()
    }

    /// The gangs of a domain's members, and whether pods are still to be read.
    pub(super) fn gangs(&self, domain: &Domain, claims: &[ChannelClaim]) -> (Vec<Gang>, bool) {
        let own = claims.iter().filter(|claim| claim.namespace == domain.namespace);
        let uids: BTreeSet<&str> =
            own.flat_map(|claim| &claim.pods).map(|pod| pod.uid.as_str()).collect();
        let (mut counts, mut is_reading) = (BTreeMap::new(), false);
        for known in uids.iter().filter_map(|uid| self.pods.by_uid.get(*uid)) {
            match &known.gang {
                Reading::Pending => is_reading = true,
                Reading::NoGang => {}
                Reading::Gang(gang) => {
                    let entry = counts.entry(&gang.name).or_insert((0, None));
                    entry.0 += 1;
                    entry.1 = gang.minimum;
                }
            }
        }
        let gangs = counts.into_iter().filter_map(|(name, (pods, declared))| {
            let announced = || match self.rows.get(&gang_key(name))?.fact {
                Fact::Gang(minimum) => Some(minimum),
                _ => None,
            };
            let minimum = declared.or_else(announced)?;
            Some(Gang { name: name.to_string(), pods, minimum })
        });
        (gangs.collect(), is_reading)
    }
}

/// The pods of a fact, if it is of a claim.
pub(super) fn pods_of(fact: Option<&Fact>) -> &[ClaimPod] {
    match fact {
        Some(Fact::Claim(claim)) => &claim.pods,
        _ => &[],
    }
}
