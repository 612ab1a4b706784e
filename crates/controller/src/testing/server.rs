//! Objects by key, with versions and the preconditions of writes.

use std::collections::BTreeMap;

use crate::store::{Change, Fact, Key, Kind, Observed};
use crate::view::{ChannelClaim, Clique, DaemonPod, Domain, OwnedObject};

/// The server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    pub(crate) objects: BTreeMap<Key, Observed>,
    version: u64,
    /// What watches have not seen yet, by kind.
    pub(crate) events: BTreeMap<Kind, Vec<Change>>,
    /// Whether new pods of daemons have a certificate.
    pub(crate) encrypts: bool,
    /// UIDs of the Secrets that pods of daemons have read.
    pub(crate) certificates: BTreeMap<Key, String>,
}

pub(crate) fn key(kind: Kind, namespace: &str, name: &str) -> Key {
    Key { kind, namespace: namespace.to_owned(), name: name.to_owned() }
}

impl Server {
    /// Stores an object. A new one gets a UID, unless it has one.
    pub(crate) fn put(&mut self, key: Key, fact: Fact) -> Change {
        self.version += 1;
        let version = self.version.to_string();
        let old = self.objects.get(&key).map(|old| old.uid.clone());
        let fresh = || match &fact {
            Fact::Domain(domain) => domain.uid.clone(),
            Fact::Claim(claim) => claim.uid.clone(),
            _ => format!("uid-{version}"),
        };
        let uid = old.unwrap_or_else(fresh);
        let mut fact = fact;
        match &mut fact {
            Fact::Domain(domain) => domain.resource_version.clone_from(&version),
            Fact::Template(object)
            | Fact::DaemonSet(object)
            | Fact::Clique(Clique { object, .. }) => {
                object.resource_version.clone_from(&version);
                object.uid.clone_from(&uid);
            }
            Fact::Secret(secret) => {
                secret.object.resource_version.clone_from(&version);
                secret.object.uid.clone_from(&uid);
            }
            Fact::Claim(_) | Fact::Node { .. } | Fact::Pod(_) | Fact::Gang(_) => {}
        }
        let observed =
            Observed { key: key.clone(), uid, resource_version: version, fact: Some(fact) };
        let kind = key.kind;
        self.objects.insert(key, observed.clone());
        self.say(kind, Change::Put(observed))
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, key: &Key) -> Change {
        self.version += 1;
        let mut observed = self.objects.remove(key).unwrap();
        self.certificates.remove(key);
        observed.resource_version = self.version.to_string();
        self.say(key.kind, Change::Gone(observed))
    }

    fn say(&mut self, kind: Kind, change: Change) -> Change {
        self.events.entry(kind).or_default().push(change.clone());
        change
    }

    /// Ends the watch of a kind: it misses what it has not seen, and lists again.
    pub(crate) fn relist(&mut self, kind: Kind) {
        let objects = self.objects.values().filter(|object| object.key.kind == kind);
        let list = objects.map(|object| Change::Put(object.clone()));
        let list = [Change::Begin(kind)].into_iter().chain(list).chain([Change::End(kind)]);
        self.events.insert(kind, list.collect());
    }

    /// The last version.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn put_domain(&mut self, domain: Domain) {
        let key = key(Kind::Domain, &domain.namespace, &domain.name);
        self.put(key, Fact::Domain(domain));
    }

    pub(crate) fn put_claim(&mut self, claim: ChannelClaim) {
        let key = key(Kind::Claim, &claim.namespace, &claim.name);
        self.put(key, Fact::Claim(claim));
    }

    pub(crate) fn put_node(&mut self, name: &str, clique: Option<&str>, label: Option<&str>) {
        let (clique, label) = (clique.map(str::to_owned), label.map(str::to_owned));
        self.put(key(Kind::Node, "", name), Fact::Node { clique, label, is_lost: false });
    }

    pub(crate) fn put_pod(&mut self, pod: DaemonPod) {
        let name = format!("{}-{}", pod.domain, pod.node);
        self.put(key(Kind::Pod, "octavo", &name), Fact::Pod(pod));
    }

    pub(crate) fn put_template(&mut self, object: OwnedObject) {
        let key = key(Kind::Template, &object.namespace, &object.name);
        self.put(key, Fact::Template(object));
    }

    /// A fact, for a look or a change.
    pub(crate) fn fact(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Fact> {
        self.objects.get(&key(kind, namespace, name))?.fact.as_ref()
    }

    pub(crate) fn clique(&self, name: &str) -> Option<Clique> {
        match self.fact(Kind::Clique, "octavo", name)? {
            Fact::Clique(clique) => Some(clique.clone()),
            _ => None,
        }
    }

    pub(crate) fn node_label(&self, name: &str) -> Option<String> {
        match self.fact(Kind::Node, "", name) {
            Some(Fact::Node { label, .. }) => label.clone(),
            _ => None,
        }
    }

    pub(crate) fn domain(&self, name: &str) -> Option<Domain> {
        match self.fact(Kind::Domain, "team", name)? {
            Fact::Domain(domain) => Some(domain.clone()),
            _ => None,
        }
    }

    /// Deletes a domain as a user does.
    pub(crate) fn delete_domain(&mut self, name: &str) {
        let mut domain = self.domain(name).unwrap();
        domain.is_deleting = true;
        domain.generation = Some(2);
        if domain.finalizers.is_empty() {
            self.remove(&key(Kind::Domain, "team", name));
        } else {
            self.put_domain(domain);
        }
    }
}
