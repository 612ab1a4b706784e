//! Nodes whose GPUs are not counted: said once, and counted in the metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::devices::Outside;
use crate::metrics::Metrics;
use crate::state::nodes_phrase;

/// What was said of nodes whose GPUs are not counted.
#[derive(Debug, Default)]
pub(crate) struct OutsideTold {
    known: BTreeMap<Arc<str>, Outside>,
}

/// What is new of such nodes.
#[derive(Debug, Default, PartialEq, Eq)]
struct News {
    /// By why: nodes that are left out from now on.
    out: BTreeMap<String, Vec<Arc<str>>>,
    /// Nodes that are not, any more.
    back: Vec<Arc<str>>,
}

impl OutsideTold {
    /// Says what is new.
    pub(crate) fn tell(&mut self, now: &BTreeMap<Arc<str>, Outside>, metrics: &Metrics) {
        if self.known == *now {
            return;
        }
        let News { out, back } = self.take(now);
        let names = |nodes: &[Arc<str>]| {
            let names: Vec<_> = nodes.iter().map(|name| &**name).collect();
            nodes_phrase(&names)
        };
        for (why, nodes) in &out {
            tracing::warn!("{} left out for GPUs: {why}", names(nodes));
        }
        if !back.is_empty() {
            tracing::info!("{} no longer left out for GPUs", names(&back));
        }
        let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
        for why in now.values() {
            *counts.entry(why.reason()).or_default() += 1;
        }
        metrics.nodes_unmodeled(&counts);
    }

    fn take(&mut self, now: &BTreeMap<Arc<str>, Outside>) -> News {
        let mut news = News::default();
        for (name, why) in now {
            if self.known.get(name) != Some(why) {
                news.out.entry(why.to_string()).or_default().push(Arc::clone(name));
            }
        }
        let gone = self.known.keys().filter(|name| !now.contains_key(*name));
        news.back = gone.cloned().collect();
        self.known.clone_from(now);
        news
    }
}

#[cfg(test)]
mod tests;
