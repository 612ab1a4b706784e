//! Rounds: a plan of all policies, and its writes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::Client;
use octavo_api::health_policy::TemplateSpec;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::writes::{Write, send};
use crate::config::RepairConfig;
use crate::health::departures::{Departures, departures};
use crate::health::facts::{self, Change, Facts, MaintenanceFacts};
use crate::health::lost_nodes::LostMembers;
use crate::health::maintenance::{MaintenancePlan, Notice, Visit};
use crate::health::plan::{
    Eviction, Memory, Plan, TemplateProblem, Urgency, WRITES_OF_A_ROUND, plan,
};
use crate::health::remediation::Remediations;
use crate::shell::leader::{Leader, LeaderError};

/// Least time between two rounds: four times as long as the last plan took, so that plans take a fifth of a core, within these bounds.
const SHORTEST: Duration = Duration::from_millis(250);
const SHORTEST_OF_LONG: Duration = Duration::from_secs(1);
/// Time between two rounds without a change: permits expire, breakers close.
const LONGEST: Duration = Duration::from_secs(10);
/// Least time between two rounds that write copies of records alone: they are for a node that loses its disk.
const COPIES_INTERVAL: Duration = Duration::from_secs(10);
/// Writes at the same time.
const MAX_WRITES: usize = 16;

/// Plans and writes while this process leads.
pub(super) struct Rounds {
    client: Client,
    leader: Leader,
    outputs: Outputs,
    pub(super) facts: Facts,
    memory: Memory,
    /// How gangs on lost nodes are repaired, unless another program does so.
    repair: Option<RepairConfig>,
    /// How long the last plan took.
    planned: Duration,
    /// From when on copies of records are written.
    copies_at: Instant,
    /// The last names whose statuses of policies and of work, and taints were written when there were more than a round writes.
    last: [String; 3],
}

/// What a round wants of other tasks.
pub(super) struct Outputs {
    /// Nodes whose pods are to be read, by name.
    pub(super) departures: watch::Sender<BTreeMap<String, Departures>>,
    /// Work of which owners of pods get an event.
    pub(super) notices: watch::Sender<Vec<Notice>>,
    /// Objects of other programs that should exist.
    pub(super) remediations: watch::Sender<Remediations>,
}

/// What another task found out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// How many pods with GPUs a node has that are to leave.
    Pods(String, usize),
    /// Devices of a node, of those asked about, that have a pod which can save its work.
    Hooked(String, BTreeSet<String>),
    /// The members of gangs of a lost node.
    Lost(String, LostMembers),
    /// Owners of pods had their event of work on nodes, by the UID and generation of its object.
    Informed(String, Option<i64>),
    /// What became of the objects of a policy's template.
    Template(String, Option<TemplateProblem>),
    /// No object is left of a template that a policy does not use any more.
    Cleared(String, TemplateSpec),
}

impl Rounds {
    pub(super) fn new(
        client: Client,
        leader: Leader,
        outputs: Outputs,
        repair: Option<RepairConfig>,
    ) -> Self {
        Self {
            client,
            leader,
            outputs,
            facts: Facts::default(),
            memory: Memory::default(),
            repair,
            planned: Duration::ZERO,
            copies_at: Instant::now(),
            last: <[String; 3]>::default(),
        }
    }

    /// Goes on until the watches end.
    pub(super) async fn run(
        mut self,
        mut changes: mpsc::Receiver<Change>,
        mut found: mpsc::Receiver<Finding>,
    ) {
        // From when on a change begins a round.
        let (mut open, mut due) = (Instant::now(), Instant::now());
        loop {
            tokio::select! {
                biased;
                () = sleep_until(due) => {
                    let wait = self.round(Timestamp::now()).await;
                    open = Instant::now() + (4 * self.planned).clamp(SHORTEST, SHORTEST_OF_LONG);
                    due = open.max(Instant::now() + wait);
                }
                Some(finding) = found.recv() => {
                    self.learn(finding);
                    due = due.min(open);
                }
                change = changes.recv() => {
                    let Some(change) = change else { return };
                    self.facts.apply(change);
                    due = due.min(open);
                }
            }
        }
    }

    /// One round. Returns the time until the next, if nothing changes.
    pub(super) async fn round(&mut self, now: Timestamp) -> Duration {
        if !self.leader.is_leading() {
            // What another leader does meanwhile is not known here.
            self.memory = Memory::default();
            self.leader.metrics.health().clear();
            renew(&self.outputs.departures, BTreeMap::new());
            renew(&self.outputs.notices, Vec::new());
            renew(&self.outputs.remediations, Remediations::new());
            return SHORTEST_OF_LONG;
        }
        if !self.facts.are_complete() {
            return SHORTEST_OF_LONG;
        }
        let now = facts::unix(now);
        let began = Instant::now();
        let Plan {
            mut orders,
            mut statuses,
            evictions,
            mut waiting,
            candidates,
            lost,
            mut maintenance,
            remediations,
        } = plan(&self.facts, &mut self.memory, self.repair.as_ref(), now);
        self.planned = began.elapsed();
        self.leader.metrics.health().planned(self.planned);
        let has_copies = orders.iter().any(|orders| orders.are_copies);
        if began < self.copies_at {
            orders.retain(|orders| !orders.are_copies);
        }
        // A breaker is written before what it stops, so that a leader that follows knows of it.
        let mut of_works = std::mem::take(&mut maintenance.statuses);
        let mut taints = std::mem::take(&mut maintenance.taints);
        let [last_status, last_work, last_taint] = &mut self.last;
        let last_orders = &mut self.memory.last_orders;
        turn(&mut statuses, last_status, |status| (false, &status.name));
        turn(&mut of_works, last_work, |status| (false, &status.name));
        turn(&mut taints, last_taint, |(node, _)| (false, node));
        turn(&mut orders, last_orders, |orders| (orders.are_copies, &orders.node));
        let counts = [statuses.len(), of_works.len(), taints.len(), orders.len()];
        let is_more = counts.iter().any(|count| *count > WRITES_OF_A_ROUND);
        let statuses = statuses.into_iter().map(|status| Write::Status(Box::new(status)));
        self.write(statuses.collect()).await;
        let of_works = of_works.into_iter().map(|status| Write::Work(Box::new(status)));
        self.write(of_works.collect()).await;
        let taints = taints.into_iter().map(|(node, is_wanted)| Write::Taint(node, is_wanted));
        self.write(taints.collect()).await;
        let is_done = self.write(orders.into_iter().map(Write::Orders).collect()).await;
        // What was too much for this round, or failed, does not wait.
        if has_copies && is_done && began >= self.copies_at {
            self.copies_at = began + COPIES_INTERVAL;
        }
        // An eviction is ordered before pods are evicted: a leader that follows counts it.
        let evictions = if is_done { evictions } else { self.ordered(evictions, &mut waiting) };
        let visits = self.order(maintenance, now);
        let departures = departures(&self.facts, evictions, waiting, candidates, visits, lost);
        renew(&self.outputs.departures, departures);
        renew(&self.outputs.remediations, remediations);
        self.show();
        if is_more {
            SHORTEST_OF_LONG
        } else if has_copies {
            LONGEST.min(self.copies_at.saturating_duration_since(Instant::now())).max(SHORTEST)
        } else {
            LONGEST
        }
    }

    /// Shows figures of what is written.
    fn show(&self) {
        let policies = self.facts.policies.iter().map(|(name, policy)| (name, &policy.status));
        let nodes = self.facts.nodes.values().filter(|node| node.is_in_maintenance).count();
        let is_unreadable = !self.facts.have_maintenances();
        self.leader.metrics.health().show(policies, nodes, is_unreadable);
    }

    /// Takes what another task found out, while this process leads.
    fn learn(&mut self, finding: Finding) {
        let findings = &mut self.memory.findings;
        match finding {
            Finding::Pods(node, pods) => {
                findings.pods.insert(node, pods);
            }
            Finding::Hooked(node, devices) => {
                findings.hooked.insert(node, devices);
            }
            Finding::Lost(node, members) => {
                self.memory.lost.members.insert(node, members);
            }
            Finding::Informed(uid, generation) => {
                findings.informed.insert((uid, generation));
            }
            Finding::Template(policy, problem) => {
                self.memory.templates.insert(policy, problem);
            }
            Finding::Cleared(policy, template) => {
                self.memory.templates.remove(&policy);
                self.memory.cleared.insert(policy, template);
            }
        }
    }

    /// Carries out writes. Returns whether all were done.
    async fn write(&mut self, writes: Vec<Write>) -> bool {
        let is_all = writes.len() <= WRITES_OF_A_ROUND;
        let (client, leader) = (&self.client, &self.leader);
        let results: Vec<_> = futures::stream::iter(writes.into_iter().take(WRITES_OF_A_ROUND))
            .map(|write| send(client, leader, write))
            .buffer_unordered(MAX_WRITES)
            .collect()
            .await;
        let mut is_done = is_all;
        let mut problem = None;
        for result in results {
            match result {
                Ok(Some(change)) => self.facts.apply(change),
                Ok(None) | Err(LeaderError::NotLeader) => is_done = false,
                Err(error) => {
                    is_done = false;
                    problem = Some(error);
                }
            }
        }
        if let Some(error) = problem {
            tracing::warn!(%error, "the health of nodes cannot be written; it is tried again");
        }
        is_done
    }

    /// Those evictions that stand in the objects of their nodes. The others wait, so that none is announced again once it is written.
    fn ordered(&self, evictions: Vec<Eviction>, waiting: &mut Vec<Eviction>) -> Vec<Eviction> {
        let is_ordered = |eviction: &Eviction| {
            let health = self.facts.healths.get(&eviction.node);
            health.is_some_and(|health| health.evicts(eviction))
        };
        let (ordered, others): (Vec<_>, Vec<_>) = evictions.into_iter().partition(is_ordered);
        // A drain at a checkpoint is announced only once it is ordered. The time of an eviction that is not written is new in each round, and
        // what changes is looked at again at once: the time of the fault counts.
        let others = others.into_iter().filter(|it| it.urgency != Urgency::AtCheckpoint);
        waiting.extend(others.filter_map(|it| {
            let since = self.facts.healths.get(&it.node)?.since(&it.device)?;
            Some(Eviction { since, ..it })
        }));
        ordered
    }

    /// Hands on the notices of work on nodes, and returns its visits.
    fn order(&self, maintenance: MaintenancePlan, now: u64) -> Vec<Visit> {
        let MaintenancePlan { mut visits, notices, .. } = maintenance;
        for visit in &mut visits {
            // As with devices: a leader that follows counts a node that is drained.
            let work = self.facts.maintenances.get(&visit.maintenance);
            let node = self.facts.nodes.get(&visit.node);
            let drains = |(work, node): (&MaintenanceFacts, _)| work.drains(&visit.node, node, now);
            visit.is_drained &= work.zip(node).is_some_and(drains);
        }
        renew(&self.outputs.notices, notices);
        visits
    }
}

fn renew<T: PartialEq>(known: &watch::Sender<T>, wanted: T) {
    known.send_if_modified(|known| {
        let is_new = *known != wanted;
        *known = wanted;
        is_new
    });
}

/// Brings writes into the order of their turns, if there are more than a round does: those that follow the last one come first, so that
/// writes which fail hold up no other. `key` gives the class of a write, of which the lower goes first, and the name of its object.
fn turn<T>(writes: &mut [T], last: &mut String, key: impl Fn(&T) -> (bool, &String)) {
    if writes.len() <= WRITES_OF_A_ROUND {
        return;
    }
    writes.sort_by_cached_key(|write| {
        let (class, node) = key(write);
        (class, *node <= *last, node.clone())
    });
    if let Some(write) = writes.get(WRITES_OF_A_ROUND - 1) {
        key(write).1.clone_into(last);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn writes_that_fail_hold_up_no_other() {
        let mut last = String::new();
        let mut done = BTreeSet::new();
        for _ in 0..3 {
            // None succeeds, so all are wanted again, by name.
            let mut writes: Vec<(String, bool)> =
                (0..600).map(|number| (format!("n{number:03}"), number == 599)).collect();
            // They come policy by policy.
            writes.sort_by_key(|(node, _)| node.ends_with('7'));
            turn(&mut writes, &mut last, |(node, is_copy)| (*is_copy, node));
            assert!(writes.last().unwrap().1, "copies come last");
            done.extend(writes.into_iter().take(WRITES_OF_A_ROUND).map(|(node, _)| node));
        }
        assert_eq!(done.len(), 599, "all but the copy had a turn");
        let mut few = vec![("b".to_owned(), false), ("a".to_owned(), false)];
        turn(&mut few, &mut "a".to_owned(), |(node, is_copy)| (*is_copy, node));
        assert_eq!(few[0].0, "b");
    }
}
