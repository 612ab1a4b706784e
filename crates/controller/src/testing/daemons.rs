//! What the controller of `DaemonSets`, kubelets and daemons do.

use std::collections::BTreeSet;

use octavo_api::compute_domain::{ComputeDomainDaemon, Readiness};
use octavo_api::names::SHARED_IMEX_DOMAIN;

use super::server::{Server, key};
use crate::store::{Fact, Key, Kind};
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
                let ip = format!("address-{}", self.version());
                self.put_pod(DaemonPod { is_ready: false, ..super::pod(uid, name, &ip) });
                has_changed = true;
            }
        }
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
            } else {
                has_changed |= self.step_daemon(pod);
            }
        }
        has_changed
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
            Some(Fact::Node { clique, label }) => {
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
