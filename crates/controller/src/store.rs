//! The observed objects, as facts, and which domains a change concerns.
//!
//! Changes come from watches and from the answers to writes. Of two versions of an object the newer one stays.

mod channels;
mod facts;
mod gangs;
mod index;
mod related;
#[cfg(test)]
mod tests;
mod views;

use std::collections::{BTreeMap, BTreeSet};

use octavo_api::compute_domain::ComputeDomainChannelNumber;
use octavo_api::imex::ImexServices;

use crate::gangs::PodGang;
use crate::view::{CertificateSecret, ChannelClaim, Clique, DaemonPod, Domain, OwnedObject};

use channels::Channels;
use gangs::{Pods, pods_of};
use index::Index;

pub use facts::{SeenNode, claim, clique, daemon_set, domain, gang, node, pod, secret, template};

/// Kinds that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `ComputeDomain`.
    Domain,
    /// `ResourceClaim`.
    Claim,
    /// `Node`.
    Node,
    /// Pods of daemons.
    Pod,
    /// `ComputeDomainClique`.
    Clique,
    /// `ResourceClaimTemplate`.
    Template,
    /// `DaemonSet`.
    DaemonSet,
    /// Objects that announce gangs, of several kinds.
    Gang,
    /// `Secret`.
    Secret,
}

/// All kinds.
pub const KINDS: [Kind; 9] = [
    Kind::Domain,
    Kind::Claim,
    Kind::Node,
    Kind::Pod,
    Kind::Clique,
    Kind::Template,
    Kind::DaemonSet,
    Kind::Gang,
    Kind::Secret,
];

/// What the plans need of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// Of a domain.
    Domain(Domain),
    /// Of a claim with an allocated channel.
    Claim(ChannelClaim),
    /// Of a node.
    Node {
        /// Its clique.
        clique: Option<String>,
        /// UID of the domain in its label.
        label: Option<String>,
        /// Whether it does not report any more.
        is_lost: bool,
    },
    /// Of the pod of a daemon.
    Pod(DaemonPod),
    /// Of a clique.
    Clique(Clique),
    /// Of a template.
    Template(OwnedObject),
    /// Of a `DaemonSet`.
    DaemonSet(OwnedObject),
    /// Of an object that announces a gang: its minimum.
    Gang(u32),
    /// Of a Secret with the name of daemons.
    Secret(CertificateSecret),
}

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for nodes.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// An object as observed.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Where it is.
    pub key: Key,
    /// Its UID.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// What matters of it; `None`: nothing, such as a claim without a channel.
    pub fact: Option<Fact>,
}

/// A change of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// All objects of a kind follow.
    Begin(Kind),
    /// All objects of a kind were there.
    End(Kind),
    /// An object exists.
    Put(Observed),
    /// An object is gone.
    Gone(Observed),
    /// A pod of a claim was read.
    PodRead {
        /// UID of the pod.
        uid: String,
        /// Its gang; `None` if it has none, or could not be read.
        gang: Option<PodGang>,
    },
}

/// A row of the store.
#[derive(Clone, Debug)]
struct Row {
    uid: String,
    resource_version: String,
    fact: Fact,
    /// The list in which it was last seen.
    round: u64,
}

/// All observed objects.
#[derive(Clone, Debug, Default)]
pub struct Store {
    services: ImexServices,
    rows: BTreeMap<Key, Row>,
    index: Index,
    channels: Channels,
    pods: Pods,
    /// Lists so far, by kind.
    rounds: BTreeMap<Kind, u64>,
    /// Kinds of which one list is complete.
    complete: BTreeSet<Kind>,
    /// UIDs of objects that a write deleted, until a watch says so.
    deleted: BTreeMap<String, Kind>,
}

impl Store {
    /// An empty store, for these IMEX services.
    pub fn new(services: ImexServices) -> Self {
        Self { services, ..Self::default() }
    }

    /// Notes the channels that a plan has decided for a domain.
    pub fn decide(&mut self, uid: &str, channels: &[ComputeDomainChannelNumber]) {
        self.channels.decide(uid, channels);
    }

    /// Forgets all decisions: those of a leadership that is over.
    pub fn forget_decisions(&mut self) {
        self.channels.forget_decisions();
    }

    /// Whether every kind was listed once. Before that, what is missing may exist.
    pub fn is_complete(&self) -> bool {
        self.complete.len() == KINDS.len()
    }

    /// Applies a change of a watch, and returns the UIDs of the domains that it concerns.
    pub fn apply(&mut self, change: Change) -> BTreeSet<String> {
        match change {
            Change::Begin(kind) => {
                *self.rounds.entry(kind).or_default() += 1;
                BTreeSet::new()
            }
            Change::End(kind) => self.end(kind),
            Change::Put(observed) => self.put(observed),
            Change::PodRead { uid, gang } => self.pod_read(&uid, gang),
            Change::Gone(observed) => {
                let is_late = self.rows.get(&observed.key).is_some_and(|row| {
                    // Another object of the name exists, which this deletion made room for.
                    row.uid != observed.uid
                        && !is_older(&row.resource_version, &observed.resource_version)
                });
                self.deleted.remove(&observed.uid);
                if is_late { BTreeSet::new() } else { self.remove(&observed.key) }
            }
        }
    }

    /// Applies the answer to a write. An object that a write deleted does not return with an older event.
    pub fn apply_own(&mut self, change: Change) -> BTreeSet<String> {
        if let Change::Gone(observed) = &change {
            let (uid, kind) = (observed.uid.clone(), observed.key.kind);
            // Where the watch was first, no older event can follow.
            let is_known = self.rows.get(&observed.key).is_some_and(|row| row.uid == uid);
            let concerned = self.apply(change);
            if is_known {
                self.deleted.insert(uid, kind);
            }
            return concerned;
        }
        self.apply(change)
    }

    /// Forgets an object that a write did not find. The answer to an earlier write may have come after its deletion.
    pub fn forget(&mut self, key: &Key) -> BTreeSet<String> {
        self.remove(key)
    }

    fn put(&mut self, observed: Observed) -> BTreeSet<String> {
        let Observed { key, uid, resource_version, fact } = observed;
        if self.deleted.contains_key(&uid) {
            return BTreeSet::new();
        }
        let round = self.rounds.get(&key.kind).copied().unwrap_or_default();
        let old = self.rows.get_mut(&key);
        if let Some(old) = old {
            if is_older(&resource_version, &old.resource_version) {
                old.round = round;
                return BTreeSet::new();
            }
            if fact.as_ref() == Some(&old.fact) {
                (old.uid, old.resource_version, old.round) = (uid, resource_version, round);
                return BTreeSet::new();
            }
        }
        let Some(fact) = fact else { return self.remove(&key) };
        let mut concerned = self.concerned_by(&key);
        let old = self.rows.get(&key).map(|row| row.uid.clone());
        if let Some(row) = self.rows.get(&key) {
            if let Fact::Domain(domain) = &row.fact {
                if row.uid != uid {
                    concerned.extend(self.related(&domain.uid));
                }
                self.channels.remove(domain);
                concerned.extend(self.sharing_channels(domain, &fact));
            }
            self.index.remove(&key, &row.fact);
        }
        if let Fact::Domain(domain) = &fact {
            self.channels.add(domain);
        }
        let before = self.rows.get(&key).map(|row| &row.fact);
        self.pods.replace(&key, pods_of(before), pods_of(Some(&fact)));
        self.index.add(&key, &fact);
        if let Fact::Domain(domain) = &fact
            && old.as_ref() != Some(&uid)
        {
            // Claims of it may have been there before: they hold labels and count as neighbours now.
            concerned.extend(self.related(&domain.uid));
        }
        self.rows.insert(key.clone(), Row { uid, resource_version, fact, round });
        concerned.extend(self.concerned_by(&key));
        concerned
    }

    fn remove(&mut self, key: &Key) -> BTreeSet<String> {
        let mut concerned = self.concerned_by(key);
        if let Some(row) = self.rows.remove(key) {
            self.index.remove(key, &row.fact);
            if let Fact::Domain(domain) = &row.fact {
                self.channels.remove(domain);
                concerned.extend(self.related(&domain.uid));
            }
            self.pods.replace(key, pods_of(Some(&row.fact)), &[]);
        }
        concerned
    }

    fn end(&mut self, kind: Kind) -> BTreeSet<String> {
        let round = self.rounds.get(&kind).copied().unwrap_or_default();
        let old = self.rows.iter().filter(|(key, row)| key.kind == kind && row.round < round);
        let old: Vec<Key> = old.map(|(key, _)| key.clone()).collect();
        let mut concerned = BTreeSet::new();
        for key in old {
            concerned.extend(self.remove(&key));
        }
        // The list was made after these deletions.
        self.deleted.retain(|_, deleted| *deleted != kind);
        self.complete.insert(kind);
        concerned
    }
}

/// Whether a version is older. Versions of one resource are numbers that grow.
pub(crate) fn is_older(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version < than,
        _ => false,
    }
}
