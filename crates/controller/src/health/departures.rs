//! What the pods of a node are read for. Pure.

use std::collections::{BTreeMap, BTreeSet};

use octavo_api::checkpoint::CheckpointOutcome;

use super::facts::{Facts, HealthFacts};
use super::lost_nodes::LostNode;
use super::maintenance::Visit;
use super::plan::{Candidate, Eviction};

/// What the pods of a node are read for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departures {
    /// Devices whose pods leave.
    pub evictions: Vec<Eviction>,
    /// Devices whose pods leave in their turn, within the budget.
    pub waiting: Vec<Eviction>,
    /// Names of devices whose pods may leave once one of them can save its work.
    pub candidates: BTreeSet<String>,
    /// Work on the node.
    pub visit: Option<Visit>,
    /// How the node is lost.
    pub lost: Option<LostNode>,
    /// UIDs of pods that were asked to save their work, and whether their agent has answered.
    pub asked: BTreeMap<String, bool>,
}

impl Departures {
    /// Whether claims of the pods matter, or the pods alone.
    pub fn reads_claims(&self) -> bool {
        let has_devices = !(self.evictions.is_empty() && self.waiting.is_empty());
        has_devices || !self.candidates.is_empty() || self.visit.is_some()
    }

    /// What is wanted by the health of the node as it is now. The watch may be late: a device that returned keeps its pods.
    #[must_use]
    pub fn in_force(&self, health: Option<&HealthFacts>) -> Self {
        let mut wanted = self.clone();
        wanted.evictions.retain(|it| health.is_some_and(|health| health.evicts(it)));
        wanted.waiting.retain(|it| health.is_some_and(|health| health.is_to_be_left(it)));
        wanted
    }
}

/// The nodes whose pods are to be read. One with requests is read until these are gone.
pub fn departures(
    facts: &Facts,
    evictions: Vec<Eviction>,
    waiting: Vec<Eviction>,
    candidates: Vec<Candidate>,
    visits: Vec<Visit>,
    lost: BTreeMap<String, LostNode>,
) -> BTreeMap<String, Departures> {
    let mut nodes: BTreeMap<String, Departures> = BTreeMap::new();
    for eviction in evictions {
        nodes.entry(eviction.node.clone()).or_default().evictions.push(eviction);
    }
    for eviction in waiting {
        nodes.entry(eviction.node.clone()).or_default().waiting.push(eviction);
    }
    for Candidate { node, device } in candidates {
        nodes.entry(node).or_default().candidates.insert(device);
    }
    for visit in visits {
        let node = visit.node.clone();
        nodes.entry(node).or_default().visit = Some(visit);
    }
    for (name, lost) in lost {
        nodes.entry(name).or_default().lost = Some(lost);
    }
    for (name, health) in facts.healths.iter().filter(|(_, health)| !health.requests.is_empty()) {
        nodes.entry(name.clone()).or_default().asked = asked(health);
    }
    nodes
}

fn asked(health: &HealthFacts) -> BTreeMap<String, bool> {
    let is_answered = |uid: &str| {
        let mut reports = health.reports.iter();
        reports.any(|it| it.uid == uid && it.outcome != CheckpointOutcome::Running)
    };
    let requests = health.requests.iter();
    requests.map(|request| (request.uid.clone(), is_answered(&request.uid))).collect()
}
