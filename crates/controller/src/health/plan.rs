//! What is to be written, and whose pods are to leave. Pure.

mod domain;
mod drains;
mod evictions;
mod ladder;
mod orders;
mod status;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_api::health_policy::{HealthPolicyStatus, TemplateSpec};
use octavo_api::node_health::DeviceOrders;

use self::domain::Members;
use self::evictions::{evictions, waiting};
use super::facts::{Facts, PolicyFacts, Version, seconds};
use super::lost_nodes::{LostNode, LostNodes};
use super::maintenance::{self, EvictionBudget, Findings, MaintenancePlan};
use super::remediation::{Remediations, remediations};
use crate::config::RepairConfig;

/// What is to be done now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Orders that differ from those of the agents' objects. Those that change copies alone are last, and not all of them may be there.
    pub orders: Vec<NodeOrders>,
    /// Statuses of policies that differ from those written.
    pub statuses: Vec<PolicyStatus>,
    /// Devices whose pods are to be evicted.
    pub evictions: Vec<Eviction>,
    /// Devices whose pods are to be evicted in their turn: the budget has no room for them now. Each is out of service since its time.
    pub waiting: Vec<Eviction>,
    /// Devices that pods with a hook may leave once they have saved their work. Whether they have such pods is to be found out.
    pub candidates: Vec<Candidate>,
    /// Lost nodes whose pods are to be read, by name.
    pub lost: BTreeMap<String, LostNode>,
    /// Work on nodes.
    pub maintenance: MaintenancePlan,
    /// Objects of other programs that should exist.
    pub remediations: Remediations,
}

/// All orders of the controller for a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeOrders {
    /// Name of the node.
    pub node: String,
    /// The version for which they were decided.
    pub version: Version,
    /// By device.
    pub devices: Vec<DeviceOrders>,
    /// Whether nothing but copies of records changes.
    pub are_copies: bool,
}

/// The status of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyStatus {
    /// Name of the policy.
    pub name: String,
    /// The version for which it was decided.
    pub version: Version,
    /// The status.
    pub status: HealthPolicyStatus,
}

/// A device whose pods are to be evicted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Eviction {
    /// Name of the node.
    pub node: String,
    /// Name of the device in slices.
    pub device: String,
    /// Key and value of its taint.
    pub taint: (&'static str, String),
    /// Why it is fenced, for people.
    pub reason: String,
    /// Since when, in seconds since 1970.
    pub since: u64,
    /// How its pods leave.
    pub urgency: Urgency,
}

/// How pods leave, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Those that can save their work are evicted once they have. The others run to their end.
    AtCheckpoint,
    /// All are evicted under their disruption budgets, those that can save their work after they had the time for it.
    Evicted,
    /// All are deleted at once: no process can use the device any more.
    Deleted,
}

/// A device that pods with a hook may leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Name of the node.
    pub node: String,
    /// Name of the device in slices.
    pub device: String,
}

/// Orders that are written after one plan, and statuses. The rest is planned again.
pub const WRITES_OF_A_ROUND: usize = 256;

/// What a controller remembers from plan to plan while it leads.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The last node whose orders were written when there were more than are written after one plan. Those that follow it come first.
    pub last_orders: String,
    /// By policy.
    breakers: BTreeMap<String, Breaker>,
    /// What was found out by reading pods.
    pub findings: Findings,
    /// Lost nodes.
    pub lost: LostNodes,
    /// What became of the objects of templates, by policy.
    pub templates: BTreeMap<String, Option<TemplateProblem>>,
    /// Templates that are not in use any more, and of which no object is left, by policy.
    pub cleared: BTreeMap<String, TemplateSpec>,
}

/// Why objects of a template are not as they should be: the reason for programs, and for people.
pub type TemplateProblem = (&'static str, String);

/// What is remembered for the circuit breaker of a policy.
#[derive(Clone, Debug, Default)]
struct Breaker {
    /// Nodes with a device that newly left service, and when the last one did.
    fenced: BTreeMap<String, u64>,
    /// Devices that left service, and when by their nodes' clocks, as they were at the last look; `None` before the first.
    seen: Option<BTreeSet<(Arc<str>, u64)>>,
    /// Until when remedies are stopped.
    until: u64,
}

/// Orders as they are found. Those that change copies alone may be as many as there are nodes. So no more of them are kept than are written,
/// and one that shows that there are more.
struct Orders<'a> {
    last: &'a str,
    acts: Vec<NodeOrders>,
    /// By whether their turn is over, and by node.
    copies: BTreeMap<(bool, String), NodeOrders>,
}

impl Orders<'_> {
    fn extend(&mut self, found: impl IntoIterator<Item = NodeOrders>) {
        for orders in found {
            if orders.are_copies {
                let turn = (*orders.node <= *self.last, orders.node.clone());
                self.copies.insert(turn, orders);
                if self.copies.len() > WRITES_OF_A_ROUND + 1 {
                    self.copies.pop_last();
                }
            } else {
                self.acts.push(orders);
            }
        }
    }

    /// Those that change copies alone are last.
    fn all(mut self) -> Vec<NodeOrders> {
        self.acts.extend(self.copies.into_values());
        self.acts
    }
}

/// Plans at a time, in seconds since 1970. `repair` is `None` if another program deletes members of gangs on lost nodes.
pub fn plan(facts: &Facts, memory: &mut Memory, repair: Option<&RepairConfig>, now: u64) -> Plan {
    let mut plan = Plan::default();
    let last = memory.last_orders.clone();
    let mut orders = Orders { last: &last, acts: Vec::new(), copies: BTreeMap::new() };
    let mut domains: BTreeMap<&str, Members<'_>> = BTreeMap::new();
    let mut overlaps: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for (name, health) in &facts.healths {
        let node = facts.nodes.get(name);
        let mut applies = node.into_iter().flat_map(|node| facts.policies_of(node));
        let first = applies.next();
        // Work on a node stops and starts its GPUs: nothing begins there, and nothing of it is a storm.
        let node = node.filter(|node| !node.is_in_maintenance);
        if let (Some(node), Some((first, PolicyFacts { policy: Ok(_), .. }))) = (node, first) {
            domains.entry(first).or_default().add(name, node, health);
        } else {
            // No other policy takes the place of one that is not valid, as on the node itself: it might disturb more.
            orders.extend(orders::without_policy(name, health));
        }
        if let Some((first, _)) = first {
            for (other, _) in applies {
                overlaps.entry(other).or_insert((first, 0)).1 += 1;
            }
        }
    }
    memory.breakers.retain(|name, _| facts.policies.contains_key(name));
    memory.templates.retain(|name, _| facts.policies.contains_key(name));
    memory.cleared.retain(|name, _| facts.policies.contains_key(name));
    let mut draining = maintenance::draining(facts, now);
    draining.extend(memory.lost.leaving());
    let none = BTreeMap::new();
    let due = repair.map(|_| memory.lost.due(facts, now)).unwrap_or_default();
    let mut budgets: BTreeMap<&str, EvictionBudget> = BTreeMap::new();
    for (name, policy) in &facts.policies {
        let members = domains.remove(name.as_str()).unwrap_or_default();
        let decided = policy.policy.as_ref().ok().map(|checked| {
            let breaker = memory.breakers.entry(name.clone()).or_default();
            // Another controller may have led meanwhile.
            let until = policy.status.breaker_open_until.as_deref().and_then(seconds);
            breaker.until = breaker.until.max(until.unwrap_or_default());
            let disturbed = domain::Disturbed {
                draining: &draining,
                // While the breaker is open these wait.
                due: if breaker.until > now { &none } else { &due },
                hooked: &memory.findings.hooked,
            };
            domain::decide(checked, members, breaker, disturbed, now)
        });
        if let Some(decided) = &decided {
            orders.extend(orders::of(decided, now));
            plan.evictions.extend(evictions(decided));
            plan.waiting.extend(waiting(decided));
            plan.candidates.extend(decided.candidates());
            budgets.insert(name, decided.eviction_budget(now));
        }
        let overlap = overlaps.get(name.as_str()).copied();
        let template = status::OfTemplate {
            noted: status::template(policy, memory.cleared.get(name)),
            found: memory.templates.get(name),
        };
        if template.noted.as_ref() == policy.usable_template() {
            memory.cleared.remove(name);
        }
        let status = status::of(policy, decided.as_ref(), overlap, template, now);
        if status != policy.status {
            let version = policy.version.clone();
            plan.statuses.push(PolicyStatus { name: name.clone(), version, status });
        }
    }
    let findings = &mut memory.findings;
    findings.hooked.retain(|node, _| plan.candidates.iter().any(|it| it.node == *node));
    plan.remediations = remediations(facts, now);
    if let Some(repair) = repair {
        plan.lost = memory.lost.plan(facts, repair, &mut budgets, now);
    }
    // What cannot be read may be in progress: no node changes for it.
    if facts.have_maintenances() {
        plan.maintenance = maintenance::plan(facts, &mut budgets, findings, now);
    }
    plan.orders = orders.all();
    plan
}
