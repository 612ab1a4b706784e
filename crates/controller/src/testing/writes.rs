//! Writes, with the preconditions that the API server checks.

use serde_json::Value;

use super::server::{Server, key};
use crate::certificate::CertificateRequest;
use crate::plan::Write;
use crate::store::{Change, Fact, Key, Kind};
use crate::view::{CertificateSecret, Clique, OwnedKind, OwnedObject};
use crate::wanted::{daemon_name, hash_of, names_hash};

/// A refused write.
pub(crate) type Refused = &'static str;

impl Server {
    /// Carries out a write as the API server does.
    pub(crate) fn write(&mut self, write: &Write) -> Result<Change, Refused> {
        match write {
            Write::SetFinalizers { namespace, name, resource_version, finalizers } => {
                let key = key(Kind::Domain, namespace, name);
                let Fact::Domain(mut domain) = self.at(&key, None, Some(resource_version))? else {
                    return Err("no domain");
                };
                domain.finalizers.clone_from(finalizers);
                if domain.is_deleting && finalizers.is_empty() {
                    return Ok(self.remove(&key));
                }
                Ok(self.put(key, Fact::Domain(domain)))
            }
            Write::SetStatus { namespace, name, uid, resource_version, status } => {
                let key = key(Kind::Domain, namespace, name);
                let version = resource_version.as_ref();
                let Fact::Domain(mut domain) = self.at(&key, Some(uid), version)? else {
                    return Err("no domain");
                };
                let mut status = status.clone();
                for condition in &mut status.conditions {
                    if condition.last_transition_time.is_empty() {
                        condition.last_transition_time = format!("time-{}", self.version());
                    }
                }
                domain.status = Some(status);
                Ok(self.put(key, Fact::Domain(domain)))
            }
            Write::AnnotateClaim { namespace, name, uid, .. } => {
                let key = key(Kind::Claim, namespace, name);
                let Fact::Claim(mut claim) = self.at(&key, Some(uid), None)? else {
                    return Err("no claim");
                };
                claim.is_annotated = true;
                Ok(self.put(key, Fact::Claim(claim)))
            }
            Write::LabelNode { node, before, domain } => {
                let key = key(Kind::Node, "", node);
                let Fact::Node { clique, label, .. } = self.at(&key, None, None)? else {
                    return Err("no node");
                };
                if label != *before {
                    return Err("another label: 422");
                }
                Ok(self.put(key, Fact::Node { clique, label: domain.clone(), is_lost: false }))
            }
            Write::Create(object) => self.create(object),
            Write::IssueCertificate(request) => self.create_secret(request),
            Write::ReplaceDaemonSet { resource_version, object } => {
                let (key, mut new) = made(object);
                let Fact::DaemonSet(old) = self.at(&key, None, Some(resource_version))? else {
                    return Err("no DaemonSet");
                };
                new.finalizers = old.finalizers;
                Ok(self.put(key, Fact::DaemonSet(new)))
            }
            Write::DropFinalizer(object) => self.change_owned(object, true, |found| {
                found.finalizers.clear();
                found.is_deleting
            }),
            Write::Delete(object) => self.change_owned(object, false, |found| {
                found.is_deleting = true;
                found.finalizers.is_empty()
            }),
            Write::LabelClique { object, labels, counts } => {
                let mut clique = self.clique_at(object)?;
                clique.object.domain = Some(labels[0].1.clone());
                clique.id_label = Some(labels[1].1.clone());
                if !counts {
                    clique.index_changes = Some(0);
                }
                Ok(self
                    .put(key(Kind::Clique, &object.namespace, &object.name), Fact::Clique(clique)))
            }
            Write::AssignIndices { object, seen, changes } => {
                let mut clique = self.clique(&object.name).ok_or("no clique")?;
                if clique.object.uid != object.uid || clique.index_changes != Some(*seen) {
                    return Err("indices have changed: 422");
                }
                clique.index_changes = Some(seen + 1);
                for change in changes {
                    let found = clique.daemons.get_mut(change.position);
                    match found.filter(|daemon| daemon.node_name == change.node) {
                        Some(daemon) => daemon.index = change.index,
                        None => return Err("another entry is there: 422"),
                    }
                }
                Ok(self
                    .put(key(Kind::Clique, &object.namespace, &object.name), Fact::Clique(clique)))
            }
            Write::RemoveEntries { object, entries } => {
                let mut clique = self.clique(&object.name).ok_or("no clique")?;
                if self.pods().iter().any(|(_, pod)| entries.iter().any(|it| it.2 == pod.ip)) {
                    return Err("its daemon runs");
                }
                for (position, node, address) in entries {
                    let found = clique.daemons.get(*position).ok_or("no entry there")?;
                    if found.node_name != *node || found.ip_address != *address {
                        return Err("another entry is there: 422");
                    }
                    clique.daemons.remove(*position);
                }
                Ok(self
                    .put(key(Kind::Clique, &object.namespace, &object.name), Fact::Clique(clique)))
            }
        }
    }

    fn create(&mut self, object: &Value) -> Result<Change, Refused> {
        let (key, owned) = made(object);
        if self.objects.contains_key(&key) {
            return Err("exists already: 409");
        }
        let fact = match key.kind {
            Kind::Template => Fact::Template(owned),
            Kind::DaemonSet => Fact::DaemonSet(owned),
            _ => {
                let id = key.name.split_once('.').unwrap().1.to_owned();
                let annotations = &object["metadata"]["annotations"];
                let count = annotations[octavo_api::names::ANNOTATION_INDEX_CHANGES].as_str();
                Fact::Clique(Clique {
                    object: owned,
                    id_label: Some(id.clone()),
                    id,
                    index_changes: count.and_then(|count| count.parse().ok()),
                    daemons: Vec::new(),
                })
            }
        };
        Ok(self.put(key, fact))
    }

    fn create_secret(&mut self, request: &CertificateRequest) -> Result<Change, Refused> {
        let name = daemon_name(&request.domain);
        let key = key(Kind::Secret, &request.namespace, &name);
        if self.objects.contains_key(&key) {
            return Err("exists already: 409");
        }
        let namespace = &request.namespace;
        let mut object = super::object(OwnedKind::Secret, namespace, &name, Some(&request.domain));
        object.hash = Some(names_hash(request.slots));
        let (domain, owner) = (request.domain.clone(), Some(request.owner.clone()));
        let (created, expires) = (None, None);
        let secret = CertificateSecret { object, domain, owner, created, expires };
        Ok(self.put(key, Fact::Secret(secret)))
    }

    fn at(
        &self,
        key: &Key,
        uid: Option<&String>,
        version: Option<&String>,
    ) -> Result<Fact, Refused> {
        let found = self.objects.get(key).ok_or("not found: 404")?;
        if uid.is_some_and(|uid| *uid != found.uid)
            || version.is_some_and(|it| *it != found.resource_version)
        {
            return Err("another version: 409");
        }
        Ok(found.fact.clone().unwrap())
    }

    fn clique_at(&self, object: &OwnedObject) -> Result<Clique, Refused> {
        let key = key(Kind::Clique, &object.namespace, &object.name);
        match self.at(&key, None, Some(&object.resource_version))? {
            Fact::Clique(clique) => Ok(clique),
            _ => Err("no clique"),
        }
    }

    /// Changes an owned object; it is gone if `change` says so.
    fn change_owned(
        &mut self,
        object: &OwnedObject,
        is_versioned: bool,
        change: impl FnOnce(&mut OwnedObject) -> bool,
    ) -> Result<Change, Refused> {
        let kind = match object.kind {
            OwnedKind::Template => Kind::Template,
            OwnedKind::DaemonSet => Kind::DaemonSet,
            OwnedKind::Clique => Kind::Clique,
            OwnedKind::Secret => Kind::Secret,
        };
        let key = key(kind, &object.namespace, &object.name);
        let version = is_versioned.then_some(&object.resource_version);
        let mut fact = self.at(&key, Some(&object.uid), version)?;
        let (Fact::Template(found)
        | Fact::DaemonSet(found)
        | Fact::Secret(CertificateSecret { object: found, .. })
        | Fact::Clique(Clique { object: found, .. })) = &mut fact
        else {
            return Err("not an owned object");
        };
        assert!(found.domain.is_some(), "an object of another owner is changed: {found:?}");
        Ok(if change(found) { self.remove(&key) } else { self.put(key, fact) })
    }
}

/// Key and metadata of an object as it is sent.
fn made(object: &Value) -> (Key, OwnedObject) {
    let metadata = &object["metadata"];
    let (namespace, name) =
        (metadata["namespace"].as_str().unwrap(), metadata["name"].as_str().unwrap());
    let (kind, owned) = match object["kind"].as_str().unwrap() {
        "ResourceClaimTemplate" => (Kind::Template, OwnedKind::Template),
        "DaemonSet" => (Kind::DaemonSet, OwnedKind::DaemonSet),
        _ => (Kind::Clique, OwnedKind::Clique),
    };
    let label = metadata["labels"][octavo_api::names::LABEL_COMPUTE_DOMAIN].as_str();
    let mut made = super::object(owned, namespace, name, label);
    made.hash = hash_of(object).map(str::to_owned);
    (key(kind, namespace, name), made)
}
