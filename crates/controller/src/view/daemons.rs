//! Entries and pods of daemons, by node.

use std::collections::BTreeMap;

use octavo_api::compute_domain::ComputeDomainDaemon;

use super::{Clique, DaemonPod, View};

/// Entries and pods of a domain's daemons, by node.
#[derive(Clone, Debug, Default)]
pub struct Daemons<'a> {
    entries: BTreeMap<&'a str, (&'a Clique, &'a ComputeDomainDaemon)>,
    pods: BTreeMap<&'a str, &'a DaemonPod>,
}

impl<'a> Daemons<'a> {
    /// Those of these cliques and pods.
    pub(super) fn of(view: &View, cliques: &'a [Clique], pods: &'a [DaemonPod]) -> Self {
        let mut daemons = Self::default();
        for clique in cliques {
            for entry in &clique.daemons {
                let node = entry.node_name.as_str();
                // A node may have moved: its entry is in the clique of its label, or in any.
                if view.clique_label(node) == Some(clique.id.as_str())
                    || !daemons.entries.contains_key(node)
                {
                    daemons.entries.insert(node, (clique, entry));
                }
            }
        }
        for pod in pods {
            let found = daemons.pods.entry(&pod.node).or_insert(pod);
            if found.is_deleting {
                *found = pod;
            }
        }
        daemons
    }

    /// The clique in which a node has its entry.
    pub fn clique(&self, node: &str) -> Option<&'a Clique> {
        self.entries.get(node).map(|(clique, _)| *clique)
    }

    /// The entry of a node.
    pub fn entry(&self, node: &str) -> Option<&'a ComputeDomainDaemon> {
        self.entries.get(node).map(|(_, entry)| *entry)
    }

    /// The daemon's pod on a node; one that runs comes before one that ends.
    pub fn pod(&self, node: &str) -> Option<&'a DaemonPod> {
        self.pods.get(node).copied()
    }
}
