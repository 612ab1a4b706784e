//! The nodes in a domain's status.

use octavo_api::compute_domain::{ComputeDomainNode, Readiness};
use octavo_api::imex::ImexServices;

use super::Facts;

impl Facts<'_> {
    /// A member, as its IMEX service is.
    pub(super) fn node(&self, name: &str) -> ComputeDomainNode {
        match self.services {
            ImexServices::OfHost => ComputeDomainNode {
                name: name.to_owned(),
                clique_id: self.view.clique_label(name).unwrap_or_default().to_owned(),
                status: Readiness::Ready,
                ..ComputeDomainNode::default()
            },
            ImexServices::PerDomain => self.node_of_daemon(name),
            ImexServices::PerClique => self.node_of_clique(name),
        }
    }

    /// A node by the daemon of its clique. Without a fabric it needs neither daemon nor channel.
    fn node_of_clique(&self, name: &str) -> ComputeDomainNode {
        let Some(clique) = self.view.clique_of_member(name) else {
            let status = Readiness::Ready;
            return ComputeDomainNode {
                name: name.to_owned(),
                status,
                ..ComputeDomainNode::default()
            };
        };
        let has_label = self.view.clique_label(name).is_some();
        if has_label && self.channels.has(clique) {
            return self.node_of_daemon(name);
        }
        // An index says that pods may have started with the channel.
        let last = self.domain.status.iter().flat_map(|status| &status.nodes);
        let last = last.into_iter().find(|last| last.name == name && last.clique_id == clique);
        let has_channel = self.channels.given.iter().any(|given| given.clique_id == clique);
        ComputeDomainNode {
            name: name.to_owned(),
            clique_id: clique.to_owned(),
            index: last.and_then(|last| last.index).filter(|_| has_channel),
            ..ComputeDomainNode::default()
        }
    }

    /// A node by its daemon of this domain.
    fn node_of_daemon(&self, name: &str) -> ComputeDomainNode {
        let name = name.to_owned();
        let pod = self.daemons.pod(&name);
        if let Some(entry) = self.daemons.entry(&name) {
            // A daemon that was killed or cut off cannot write that it is not ready. Its entry stays, with its index, until
            // the next daemon has written its own.
            let is_served = pod.is_some_and(|pod| pod.may_serve(&entry.ip_address));
            return ComputeDomainNode {
                name,
                ip_address: entry.ip_address.clone(),
                clique_id: entry.clique_id.clone(),
                index: entry.index,
                status: if is_served { entry.status } else { Readiness::NotReady },
            };
        }
        if let Some(clique) = self.view.clique_label(&name) {
            return ComputeDomainNode {
                name: name.clone(),
                clique_id: clique.to_owned(),
                ..ComputeDomainNode::default()
            };
        }
        let is_ready = pod.is_some_and(|pod| pod.is_ready && !pod.ip.is_empty());
        ComputeDomainNode {
            name: name.clone(),
            ip_address: pod.map(|pod| pod.ip.clone()).unwrap_or_default(),
            status: if is_ready { Readiness::Ready } else { Readiness::NotReady },
            ..ComputeDomainNode::default()
        }
    }
}
