//! Nodes whose GPUs the engine does not model: logged once, and counted in the metrics.

use std::collections::BTreeMap;

use octavo_kube_io::objects::NodeName;

use crate::devices::UnmodeledReason;
use crate::metrics::Metrics;
use crate::state::nodes_phrase;

/// Reports nodes whose GPUs the engine does not model.
#[derive(Debug, Default)]
pub(crate) struct UnmodeledNodesReporter {
    reported: BTreeMap<NodeName, UnmodeledReason>,
}

/// What changed since the last report.
#[derive(Debug, Default, PartialEq, Eq)]
struct UnmodeledChange {
    /// Nodes that are left out from now on, by reason.
    added: BTreeMap<String, Vec<NodeName>>,
    /// Nodes that are no longer left out.
    recovered: Vec<NodeName>,
}

impl UnmodeledNodesReporter {
    /// Reports what changed.
    pub(crate) fn report(&mut self, now: &BTreeMap<NodeName, UnmodeledReason>, metrics: &Metrics) {
        if self.reported == *now {
            return;
        }
        let UnmodeledChange { added, recovered } = self.update(now);
        let names = |nodes: &[NodeName]| {
            let names: Vec<_> = nodes.iter().map(|name| &**name).collect();
            nodes_phrase(&names)
        };
        for (why, nodes) in &added {
            tracing::warn!("{} left out for GPUs: {why}", names(nodes));
        }
        if !recovered.is_empty() {
            tracing::info!("{} no longer left out for GPUs", names(&recovered));
        }
        let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
        for why in now.values() {
            *counts.entry(why.reason()).or_default() += 1;
        }
        metrics.nodes_unmodeled(&counts);
    }

    fn update(&mut self, now: &BTreeMap<NodeName, UnmodeledReason>) -> UnmodeledChange {
        let mut change = UnmodeledChange::default();
        for (name, why) in now {
            if self.reported.get(name) != Some(why) {
                change.added.entry(why.to_string()).or_default().push(name.clone());
            }
        }
        let gone = self.reported.keys().filter(|name| !now.contains_key(*name));
        change.recovered = gone.cloned().collect();
        self.reported.clone_from(now);
        change
    }
}

#[cfg(test)]
mod tests;
