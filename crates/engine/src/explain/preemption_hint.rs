//! The least disruption that would make a refused request fit, by the names that users know, and
//! why it is not carried out.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::lines::count;

/// Most pods and gangs that are named one by one.
const MAX_NAMED: usize = 4;

/// The least disruption that would make a refused request fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionHint {
    /// Pods that would be evicted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<VictimRef>,
    /// Pods that would be restarted elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<VictimRef>,
    /// Why the disruption is not carried out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hindrances: Vec<String>,
}

/// A pod that would lose its placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VictimRef {
    /// Its type and name, such as `pod team/train-0`.
    pub name: String,
    /// The gang that it belongs to, such as `PodGroup team/train`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang: Option<String>,
    /// Its priority.
    pub priority: i32,
    /// Its node.
    pub node: String,
    /// The node on which it would be started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

impl PreemptionHint {
    /// In one sentence.
    pub fn line(&self) -> String {
        let acts = [("evict", &self.evictions), ("move", &self.moves)];
        let acts = acts.iter().filter(|(_, victims)| !victims.is_empty());
        let acts: Vec<_> = acts.map(|(act, victims)| format!("{act} {}", all(victims))).collect();
        let mut line = format!("it would help to {}", acts.join(" and to "));
        if !self.hindrances.is_empty() {
            line = format!("{line}; that is not done: {}", self.hindrances.join("; "));
        }
        line
    }
}

/// Pods, each gang once.
fn all(victims: &[VictimRef]) -> String {
    let mut groups: Vec<Vec<&VictimRef>> = Vec::new();
    for victim in victims {
        let is_same_gang = |group: &&mut Vec<&VictimRef>| {
            victim.gang.is_some() && group.first().is_some_and(|first| first.gang == victim.gang)
        };
        match groups.iter_mut().find(is_same_gang) {
            Some(group) => group.push(victim),
            None => groups.push(vec![victim]),
        }
    }
    let mut words: Vec<_> =
        groups.iter().take(MAX_NAMED).map(|group| victim_group(group)).collect();
    let rest: usize = groups.iter().skip(MAX_NAMED).map(Vec::len).sum();
    if rest > 0 {
        words.push(format!("{} more", count(rest, "pod")));
    }
    words.join(", ")
}

/// A pod by itself, or members of one gang.
fn victim_group(group: &[&VictimRef]) -> String {
    let Some(first) = group.first() else { return String::new() };
    let priority = first.priority;
    let name = match &first.gang {
        Some(gang) => format!("{} of {gang} (priority {priority})", count(group.len(), "pod")),
        None => format!("{} (priority {priority})", first.name),
    };
    let from = places(group.iter().map(|victim| victim.node.as_str()));
    let to: Vec<_> = group.iter().filter_map(|victim| victim.to.as_deref()).collect();
    let to = if to.is_empty() { String::new() } else { format!(" to {}", places(to.into_iter())) };
    format!("{name} from {from}{to}")
}

fn places<'a>(nodes: impl Iterator<Item = &'a str>) -> String {
    let nodes: BTreeSet<&str> = nodes.collect();
    match (nodes.len(), nodes.first()) {
        (1, Some(node)) => format!("node {node}"),
        (several, _) => count(several, "node"),
    }
}
