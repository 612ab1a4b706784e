//! Reasons of many nodes in one line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::Unfit;

/// Counts the reasons of many nodes. Its text is kube-scheduler's familiar line: `0/5 nodes are
/// available: 2 node(s) were unschedulable, 3 Insufficient cpu.`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReasonCounts {
    nodes: usize,
    reasons: BTreeMap<String, usize>,
    of_pod: BTreeSet<String>,
}

impl ReasonCounts {
    /// No reasons yet, for this number of nodes.
    pub fn new(nodes: usize) -> Self {
        Self { nodes, ..Self::default() }
    }

    /// Adds a node's reasons. A repeated one, for two ports say, counts once.
    pub fn add<'a>(&mut self, reasons: impl IntoIterator<Item = &'a Unfit>) {
        let mut texts = BTreeSet::new();
        for reason in reasons {
            if reason.is_pod_level() {
                self.of_pod.insert(reason.to_string());
            } else {
                texts.insert(reason.to_string());
            }
        }
        for text in texts {
            self.add_text(text);
        }
    }

    /// Adds a node's reason that is not from a predicate, such as an allocator's.
    pub fn add_text(&mut self, reason: impl Into<String>) {
        *self.reasons.entry(reason.into()).or_default() += 1;
    }
}

impl fmt::Display for ReasonCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0/{} nodes are available", self.nodes)?;
        let counted = self.reasons.iter().map(|(reason, count)| format!("{count} {reason}"));
        let mut lines: Vec<String> = counted.collect();
        lines.sort();
        lines.splice(0..0, self.of_pod.iter().cloned());
        for (index, line) in lines.iter().enumerate() {
            f.write_str(if index == 0 { ": " } else { ", " })?;
            f.write_str(line)?;
        }
        f.write_str(".")
    }
}
