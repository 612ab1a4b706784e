//! Work on nodes: which nodes take no new pods, which are drained within the budget, and what is reported of it. Pure.
//!
//! The taint of a node is what schedulers of any kind keep to. It belongs to this controller, so a node has it exactly while work is in
//! progress there. Which nodes are drained stands in the status before pods are evicted, so that another leader counts them.

mod status;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use octavo_api::maintenance::{Drain, DrainingNode, MAX_DRAINING, MaintenanceStatus, Plan};
use octavo_health::budget::Budget;
use octavo_health::state::Rules;

use super::facts::{Facts, MaintenanceFacts, NodeFacts, Version, date, is_meant, seconds};

/// What is to be done for work on nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MaintenancePlan {
    /// Nodes that get the taint, or lose it.
    pub taints: Vec<(String, bool)>,
    /// Statuses that differ from those written.
    pub statuses: Vec<WorkStatus>,
    /// Nodes whose pods are to be counted, and evicted where the status says so.
    pub visits: Vec<Visit>,
    /// Work whose owners of pods are to get an event.
    pub notices: Vec<Notice>,
}

/// The status of work on nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkStatus {
    /// Name of the object.
    pub name: String,
    /// The version for which it was decided.
    pub version: Version,
    /// The status.
    pub status: MaintenanceStatus,
}

/// A node whose pods are to be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Its name.
    pub node: String,
    /// The work for which its pods are to leave.
    pub maintenance: String,
    /// Why, for people.
    pub note: String,
    /// Whether its pods are evicted now.
    pub is_drained: bool,
}

/// Work of which owners of pods get an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Name of the object.
    pub maintenance: String,
    /// Its UID.
    pub uid: String,
    /// Its `metadata.generation`.
    pub generation: Option<i64>,
    /// The nodes.
    pub nodes: BTreeSet<String>,
    /// What the event says.
    pub note: String,
}

/// What a controller finds out by reading pods while it leads.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Pods with GPUs by node, of nodes that were visited.
    pub pods: BTreeMap<String, usize>,
    /// Names of devices with a pod that can save its work, by node.
    pub hooked: BTreeMap<String, BTreeSet<String>>,
    /// Work whose owners of pods had their event: UID and generation.
    pub informed: BTreeSet<(String, Option<i64>)>,
}

/// What evictions of a policy's nodes may touch at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvictionBudget {
    /// Nodes at once.
    pub most: u64,
    /// Nodes that lose pods now.
    pub busy: BTreeSet<String>,
    /// Whether many failures at once have stopped what can wait.
    pub is_stopped: bool,
    /// Seconds after which pods that do not leave hold up no other node.
    pub stuck: u64,
}

/// Nodes that are drained at a time, and since when.
pub fn draining(facts: &Facts, now: u64) -> BTreeMap<&str, u64> {
    let open = facts.maintenances.values().filter(|work| work.open(now).is_some());
    let nodes = open.flat_map(|work| &work.status.draining);
    nodes.map(|node| (node.name.as_str(), since(node, now))).collect()
}

/// Plans at a time, in seconds since 1970. `budgets` are those of policies.
pub fn plan<'a>(
    facts: &'a Facts,
    budgets: &mut BTreeMap<&'a str, EvictionBudget>,
    findings: &mut Findings,
    now: u64,
) -> MaintenancePlan {
    let mut wanted = MaintenancePlan::default();
    let mut tainted = BTreeSet::new();
    let mut of_all: BTreeMap<&str, Work<'_>> = BTreeMap::new();
    for (name, facts_of_work) in &facts.maintenances {
        let mut work = Work { facts: facts_of_work, nodes: BTreeMap::new(), draining: Vec::new() };
        if let Some(plan) = facts_of_work.plan().filter(|plan| !plan.window.is_over(now)) {
            let meant = facts.nodes.iter().filter(|(node, it)| is_meant(plan, node, it));
            work.nodes.extend(meant.map(|(node, it)| (node.as_str(), it)));
            let names = work.nodes.keys().copied();
            if plan.window.is_open(now) {
                tainted.extend(names);
            } else if work.is_notice_due(plan, findings, now) {
                wanted.notices.push(Notice {
                    maintenance: name.clone(),
                    uid: facts_of_work.version.uid.clone(),
                    generation: facts_of_work.generation,
                    nodes: names.map(str::to_owned).collect(),
                    note: format!("{}{}", status::times("is planned", plan), because(plan)),
                });
            }
        }
        of_all.insert(name, work);
    }
    // Work that cannot be read may be in progress: no taint is removed.
    let is_known = facts.maintenances.values().all(|work| work.plan.is_ok());
    let differs = facts.nodes.iter().filter_map(|(name, node)| {
        let is_wanted = tainted.contains(name.as_str()) || (node.is_in_maintenance && !is_known);
        (is_wanted != node.is_in_maintenance).then(|| (name.clone(), is_wanted))
    });
    wanted.taints.extend(differs);
    drain(facts, &mut of_all, budgets, findings, now);
    wanted.visits = visits(&of_all, now);
    findings.pods.retain(|node, _| tainted.contains(node.as_str()));
    let exists = |uid: &str| facts.maintenances.values().any(|work| work.version.uid == uid);
    findings.informed.retain(|(uid, _)| exists(uid));
    for (name, work) in of_all {
        let status = status::of(&work, findings, now);
        if status != work.facts.status {
            let version = work.facts.version.clone();
            wanted.statuses.push(WorkStatus { name: name.to_owned(), version, status });
        }
    }
    wanted
}

/// No policy has this name.
const NO_POLICY: &str = "";

/// Work on nodes, while it is planned.
struct Work<'a> {
    facts: &'a MaintenanceFacts,
    /// The nodes that are meant, unless it is over.
    nodes: BTreeMap<&'a str, &'a NodeFacts>,
    /// Those whose pods are evicted.
    draining: Vec<DrainingNode>,
}

impl Work<'_> {
    fn is_notice_due(&self, plan: &Plan, findings: &Findings, now: u64) -> bool {
        let is_time = |notice| now.saturating_add(notice) >= plan.window.start;
        plan.notice.is_some_and(is_time) && !status::is_informed(self.facts, findings)
    }
}

/// Goes on with nodes that are drained, and grants others, soonest start first.
fn drain<'a>(
    facts: &'a Facts,
    of_all: &mut BTreeMap<&'a str, Work<'a>>,
    budgets: &mut BTreeMap<&'a str, EvictionBudget>,
    findings: &Findings,
    now: u64,
) {
    let left = |node: &str| findings.pods.get(node).copied();
    let mut taken = BTreeSet::new();
    for work in of_all.values_mut() {
        let is_draining = work.facts.open(now).is_some_and(|plan| plan.drain == Drain::AtStart);
        for node in work.facts.status.draining.iter().filter(|_| is_draining) {
            let found = work.nodes.get_key_value(node.name.as_str());
            let Some((name, &it)) = found.filter(|_| left(&node.name) != Some(0)) else { continue };
            work.draining.push(node.clone());
            taken.insert(*name);
            let budget = budget_of(budgets, facts, it);
            if now.saturating_sub(since(node, now)) < budget.stuck {
                budget.busy.insert(node.name.clone());
            }
        }
    }
    let mut order: Vec<(u64, &str)> = of_all
        .iter()
        .filter_map(|(name, work)| {
            let plan = work.facts.open(now).filter(|plan| plan.drain == Drain::AtStart)?;
            Some((plan.window.start, *name))
        })
        .collect();
    order.sort_unstable();
    for (_, name) in order {
        let Some(work) = of_all.get_mut(name) else { continue };
        // A successor of a pod must not come back, so the taint is first.
        let nodes = work.nodes.iter().filter(|(_, node)| node.is_in_maintenance);
        for (node, &it) in nodes.filter(|(node, _)| left(node).is_some_and(|pods| pods > 0)) {
            let is_free = work.draining.len() < MAX_DRAINING && !taken.contains(*node);
            if is_free && budget_of(budgets, facts, it).take(node) {
                taken.insert(*node);
                work.draining.push(DrainingNode { name: (*node).to_owned(), since: date(now) });
            }
        }
    }
}

/// The budget of the policy of a node. One that is not valid has that of nodes without.
pub fn budget_of<'r, 'a>(
    budgets: &'r mut BTreeMap<&'a str, EvictionBudget>,
    facts: &'a Facts,
    node: &'a NodeFacts,
) -> &'r mut EvictionBudget {
    let policy = facts.policies_of(node).next().map(|(name, _)| name);
    let name = policy.filter(|name| budgets.contains_key(name)).unwrap_or(NO_POLICY);
    budgets.entry(name).or_insert_with(|| EvictionBudget::without_policy(facts))
}

impl EvictionBudget {
    /// That of nodes without a policy: the default budget of those that have GPUs.
    fn without_policy(facts: &Facts) -> Self {
        let without = facts.nodes.iter().filter(|(name, node)| {
            let has_gpus = node.is_labelled_with_gpus || facts.healths.contains_key(*name);
            has_gpus && facts.policies_of(node).next().is_none()
        });
        let most = Budget::default().evictions(without.count());
        Self { most, stuck: Rules::default().stuck, ..Self::default() }
    }

    /// Takes a node as one that loses pods now, if there is room.
    pub fn take(&mut self, node: &str) -> bool {
        let count = u64::try_from(self.busy.len()).unwrap_or(u64::MAX);
        let has_room = !self.is_stopped && (self.busy.contains(node) || count < self.most);
        if has_room {
            self.busy.insert(node.to_owned());
        }
        has_room
    }
}

/// The nodes whose pods are to leave. Of several works on a node the one counts for which it is drained.
fn visits(of_all: &BTreeMap<&str, Work<'_>>, now: u64) -> Vec<Visit> {
    let mut visits: BTreeMap<&str, Visit> = BTreeMap::new();
    for (name, work) in of_all {
        let Some(plan) = work.facts.open(now).filter(|plan| plan.drain == Drain::AtStart) else {
            continue;
        };
        let drained: BTreeSet<&str> = work.draining.iter().map(|it| it.name.as_str()).collect();
        for node in work.nodes.keys() {
            let is_drained = drained.contains(node);
            if is_drained || !visits.contains_key(node) {
                let times = status::times("is in progress", plan);
                let note = format!("work on node {node} {times}{}", because(plan));
                let (maintenance, name) = ((*name).to_owned(), (*node).to_owned());
                visits.insert(node, Visit { node: name, maintenance, note, is_drained });
            }
        }
    }
    visits.into_values().collect()
}

fn because(plan: &Plan) -> String {
    plan.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
}

/// Since when a node is drained. A time that cannot be read, or is still to come, is now.
fn since(node: &DrainingNode, now: u64) -> u64 {
    seconds(&node.since).unwrap_or(now).min(now)
}
