//! Gangs on lost nodes: members are deleted there, so that their owners make them again elsewhere. Pure.
//!
//! Kubernetes evicts such pods after the seconds of their tolerations. Here members of gangs leave after the longer of a setting and these
//! seconds, within the budget of evictions of the node's policy. Where many nodes are lost at once, they are probably cut off from the API
//! server, and their pods still run: nothing is deleted there. The taint `out-of-service` says that a node is shut down. Its pods have
//! ended, so it waits for nothing.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::facts::{Facts, Loss, NodeFacts};
use super::maintenance::{EvictionBudget, budget_of};
use crate::config::RepairConfig;

/// Lost nodes that a domain must have to count as cut off.
const MIN_CUT_OFF_NODES: usize = 3;
/// Percentage of a domain's nodes that must be exceeded by lost ones for it to count as cut off.
const MAX_LOST_PERCENT: usize = 10;

/// A lost node whose pods are to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostNode {
    /// Since when it counts as lost, in seconds since 1970.
    pub since: u64,
    /// Seconds from then until members of gangs leave, at least.
    pub after: u64,
    /// The scheduler of these pods.
    pub scheduler: String,
    /// Whether they leave now, those that are due.
    pub is_evicted: bool,
}

/// Members of gangs on a lost node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostMembers {
    /// Those that are to leave and do not yet.
    pub due: usize,
    /// Since when the last one leaves, in seconds since 1970.
    pub leaving_since: Option<u64>,
}

/// What a controller remembers of lost nodes while it leads, by name.
#[derive(Clone, Debug, Default)]
pub struct LostNodes {
    /// Since when they count as lost.
    since: BTreeMap<String, u64>,
    /// What their pods are known to be.
    pub members: BTreeMap<String, LostMembers>,
    /// Since when members of theirs are to leave that still do not.
    granted: BTreeMap<String, u64>,
}

impl LostNodes {
    /// Nodes whose members leave, and since when.
    pub fn leaving(&self) -> impl Iterator<Item = (&str, u64)> {
        let members = self.members.iter();
        members.filter_map(|(name, members)| Some((name.as_str(), members.leaving_since?)))
    }

    /// Nodes whose members are due, and since when their turn is. The rest of a gang waits for them, so their turn comes before that of
    /// pods which run.
    pub fn due<'a>(&'a self, facts: &'a Facts, now: u64) -> BTreeMap<&'a str, u64> {
        let due = self.members.iter().filter(|(_, members)| members.due > 0);
        let lost = due.filter_map(|(name, _)| Some((name, facts.nodes.get(name)?)));
        let lost: Vec<_> = lost.filter(|(_, node)| node.loss == Some(Loss::Lost)).collect();
        if lost.is_empty() {
            return BTreeMap::new();
        }
        let cut_off = CutOff::new(facts);
        let lost = lost.into_iter().filter(|(_, node)| !cut_off.has(node));
        let since = |name: &String| self.granted.get(name).copied().unwrap_or(now).min(now);
        lost.map(|(name, _)| (name.as_str(), since(name))).collect()
    }

    /// The lost nodes whose pods are to be read at a time, in seconds since 1970, those first that are lost for longest. `budgets` are what
    /// evictions of policies may touch.
    pub fn plan<'a>(
        &mut self,
        facts: &'a Facts,
        settings: &RepairConfig,
        budgets: &mut BTreeMap<&'a str, EvictionBudget>,
        now: u64,
    ) -> BTreeMap<String, LostNode> {
        let lost = |name: &str| facts.nodes.get(name).and_then(|node| node.loss);
        self.since.retain(|name, _| lost(name).is_some());
        self.members.retain(|name, _| lost(name).is_some());
        self.granted.retain(|name, _| lost(name).is_some());
        let cut_off = CutOff::new(facts);
        let mut waiting = Vec::new();
        for (name, node) in &facts.nodes {
            let Some(loss) = node.loss else { continue };
            let since = self.since.entry(name.clone()).or_insert(now);
            if loss == Loss::Lost && cut_off.has(node) {
                // Nodes of such a domain come back one by one. The last of them have as much time as if they were the first.
                *since = now;
                continue;
            }
            *since = now.min(*since);
            let members = self.members.get(name).copied().unwrap_or_default();
            let budget = budget_of(budgets, facts, node);
            if members.leaving_since.is_some_and(|at| now.saturating_sub(at) < budget.stuck) {
                budget.busy.insert(name.clone());
            }
            waiting.push((*since, name, node, loss, members));
        }
        waiting.sort_by_key(|(since, name, ..)| (*since, *name));
        let plan = waiting.into_iter().map(|(since, name, node, loss, members)| {
            let is_shut_down = loss == Loss::OutOfService;
            let granted = self.granted.get(name).copied();
            let budget = budget_of(budgets, facts, node);
            // Members that cannot be deleted hold up no other node.
            let is_stuck = granted.is_some_and(|at| now.saturating_sub(at) >= budget.stuck);
            let mut has_turn = || (is_stuck && !budget.is_stopped) || budget.take(name);
            let is_evicted = members.due > 0 && (is_shut_down || has_turn());
            if is_evicted {
                self.granted.insert(name.clone(), granted.unwrap_or(now).min(now));
            } else {
                self.granted.remove(name);
            }
            let lost = LostNode {
                since,
                after: if is_shut_down { 0 } else { settings.after_seconds },
                scheduler: settings.scheduler_name.clone(),
                is_evicted,
            };
            (name.clone(), lost)
        });
        plan.collect()
    }
}

/// How many nodes are lost, by topology domain.
struct CutOff(BTreeMap<u64, (usize, usize)>);

impl CutOff {
    /// Nodes that are out of service are known to be shut down, so they do not count as lost.
    fn new(facts: &Facts) -> Self {
        let mut domains: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
        for node in facts.nodes.values() {
            for domain in &node.domains {
                let (lost, all) = domains.entry(*domain).or_default();
                *lost += usize::from(node.loss == Some(Loss::Lost));
                *all += 1;
            }
        }
        Self(domains)
    }

    /// Whether a node is in a domain, up to the whole cluster, with many lost nodes.
    fn has(&self, node: &NodeFacts) -> bool {
        node.domains
            .iter()
            .filter_map(|domain| self.0.get(domain))
            .any(|(lost, all)| *lost >= MIN_CUT_OFF_NODES && lost * 100 > all * MAX_LOST_PERCENT)
    }
}
