//! What the controller of `DaemonSets`, kubelets and daemons do.

use std::collections::BTreeSet;

use octavo_api::compute_domain::{ComputeDomainDaemon, Readiness};
use octavo_api::names::SHARED_IMEX_DOMAIN;

use super::server::{Server, key};
use crate::store::{Fact, Key, Kind, Observed};
use crate::view::DaemonPod;
use crate::wanted::daemon_name;

impl Server {
    /// One step of each daemon and its pod; returns whether something changed. `may` lets a step happen.
    pub(crate) fn step_daemons(&mut self, mut may: impl FnMut() -> bool) -> bool {
        let mut has_changed = false;
        let wanted = self.wanted_daemons();
        for (name, uid) in &wanted {
            let has_set = self.fact(Kind::DaemonSet, "octavo", &daemon_name(uid)).is_some();
            let has_pod = self.fact(Kind::Pod, "octavo", &format!("{uid}-{name}")).is_some();
            if has_set && !has_pod && may() {
                let ip = if self.encrypts { String::new() } else { self.address() };
                let secret = self.encrypts.then(|| daemon_name(uid));
                let pod = super::pod(uid, name, &ip);
                self.put_pod(DaemonPod { is_ready: false, secret, ..pod });
                has_changed = true;
            }
        }
        has_changed |= self.collect_garbage(&mut may);
        for (pod_key, pod) in self.pods() {
            let is_wanted = wanted.contains(&(pod.node.clone(), pod.domain.clone()))
                && self.fact(Kind::DaemonSet, "octavo", &daemon_name(&pod.domain)).is_some();
            if !may() {
                continue;
            }
            if pod.is_deleting {
                self.remove(&pod_key);
                has_changed = true;
            } else if !is_wanted {
                self.put_pod(DaemonPod { is_deleting: true, ..pod });
                has_changed = true;
            } else if pod.ip.is_empty() {
                has_changed |= self.start_encrypted(&pod_key, pod);
            } else {
                has_changed |= self.step_daemon(pod);
            }
        }
        has_changed
    }

    fn address(&self) -> String {
        format!("address-{}", self.version())
    }

    /// A Secret disappears with the `DaemonSet` that owns it.
    fn collect_garbage(&mut self, may: &mut impl FnMut() -> bool) -> bool {
        let sets = self.objects.iter().filter(|(key, _)| key.kind == Kind::DaemonSet);
        let sets: BTreeSet<String> = sets.map(|(_, set)| set.uid.clone()).collect();
        let is_left = |observed: &&Observed| match &observed.fact {
            Some(Fact::Secret(secret)) => {
                secret.owner.as_ref().is_some_and(|it| !sets.contains(it))
            }
            _ => false,
        };
        let left: Vec<Key> =
            self.objects.values().filter(is_left).map(|observed| observed.key.clone()).collect();
        let left: Vec<Key> = left.into_iter().filter(|_| may()).collect();
        for key in &left {
            self.remove(key);
        }
        !left.is_empty()
    }

    /// A pod with the volume of a Secret waits for it.
    fn start_encrypted(&mut self, pod_key: &Key, pod: DaemonPod) -> bool {
        let secret = key(Kind::Secret, "octavo", &daemon_name(&pod.domain));
        let Some(uid) = self.objects.get(&secret).map(|secret| secret.uid.clone()) else {
            return false;
        };
        self.certificates.insert(pod_key.clone(), uid);
        let ip = self.address();
        self.put_pod(DaemonPod { ip, ..pod });
        true
    }

    /// Nodes and the UIDs of the domains whose daemons belong there: that of the label, and the shared ones with a clique.
    fn wanted_daemons(&self) -> BTreeSet<(String, String)> {
        let nodes = self.nodes().into_iter().flat_map(|(name, clique, label)| {
            let shared = clique.map(|_| SHARED_IMEX_DOMAIN.to_owned());
            label.into_iter().chain(shared).map(move |uid| (name.clone(), uid))
        });
        nodes.collect()
    }

    /// A daemon writes its entry, and is ready once it has an index. Without a fabric it is ready at once.
    fn step_daemon(&mut self, pod: DaemonPod) -> bool {
        let nodes = self.nodes();
        let clique = nodes
            .into_iter()
            .find(|(name, ..)| *name == pod.node)
            .and_then(|(_, clique, _)| clique);
        let Some(id) = clique else {
            let changes = !pod.is_ready;
            if changes {
                self.put_pod(DaemonPod { is_ready: true, ..pod });
            }
            return changes;
        };
        let name = format!("{}.{id}", pod.domain);
        let Some(mut clique) = self.clique(&name) else { return false };
        let position = clique.daemons.iter().position(|daemon| daemon.node_name == pod.node);
        let wanted = ComputeDomainDaemon {
            node_name: pod.node.clone(),
            ip_address: pod.ip.clone(),
            clique_id: id,
            index: position.and_then(|position| clique.daemons[position].index),
            status: Readiness::NotReady,
        };
        let is_present = position.is_some_and(|it| clique.daemons[it].ip_address == pod.ip);
        let status = if is_present && wanted.index.is_some() {
            Readiness::Ready
        } else {
            Readiness::NotReady
        };
        let wanted = ComputeDomainDaemon { status, ..wanted };
        match position {
            Some(position) if clique.daemons[position] == wanted => return false,
            Some(position) => clique.daemons[position] = wanted,
            None => clique.daemons.push(wanted),
        }
        self.put(key(Kind::Clique, "octavo", &name), Fact::Clique(clique));
        true
    }

    pub(crate) fn nodes(&self) -> Vec<(String, Option<String>, Option<String>)> {
        let nodes = self.objects.iter().filter_map(|(key, object)| match &object.fact {
            Some(Fact::Node { clique, label, .. }) => {
                Some((key.name.clone(), clique.clone(), label.clone()))
            }
            _ => None,
        });
        nodes.collect()
    }

    pub(crate) fn pods(&self) -> Vec<(Key, DaemonPod)> {
        let pods = self.objects.iter().filter_map(|(key, object)| match &object.fact {
            Some(Fact::Pod(pod)) => Some((key.clone(), pod.clone())),
            _ => None,
        });
        pods.collect()
    }
}
