//! An independent check of a policy's placements.
//!
//! The validator knows nodes, pods and a log of events, and nothing of the engine. It shares no
//! code with any policy and keeps its accounts as simply as possible. It stops at the first
//! violation. A figure is only meaningful together with `valid`: the simulator behind the published
//! figures sometimes allocates a GPU twice, and no check caught it.

use std::collections::{BTreeMap, BTreeSet};

use crate::trace::{NodeRow, PodRow};

mod account;
#[cfg(test)]
mod tests;
mod violation;

use account::Account;
pub use violation::{Fault, Violation};

/// Something that a run did, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'a> {
    /// A pod arrived and was placed or skipped. A pod that was skipped or has left may arrive
    /// again.
    Arrive {
        /// The pod's unique name; for a copy, not the name of its row.
        name: &'a str,
        /// Its requests.
        pod: &'a PodRow,
        /// Its gang, if any. All members have the same `min_members`.
        gang: Option<Gang<'a>>,
        /// Its placement; `None` if it was skipped.
        placement: Option<Placement<'a>>,
    },
    /// A placed pod left.
    Depart {
        /// The pod's name in its arrival.
        name: &'a str,
        /// Whether it ran to its end.
        why: Departure,
    },
    /// A decision is complete: every gang must now be whole or gone.
    Settled,
}

/// Pods that are placed together or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gang<'a> {
    /// Unique in the run.
    pub id: &'a str,
    /// Members that must be placed if any is; fewer than all for an elastic gang.
    pub min_members: u32,
}

/// A node and parts of its GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement<'a> {
    /// The node's name.
    pub node: &'a str,
    /// Index of the GPU in the node, from 0, and thousandths of it.
    pub gpus: Vec<(u32, u32)>,
}

/// Why a pod leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It was over. A gang's other members go on without it.
    Finished,
    /// It was evicted: preempted, moved, or its node failed. The gang continues only with enough
    /// running members.
    Evicted,
}

/// Sums of a valid log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Events seen.
    pub events: usize,
    /// Arrivals, repeated ones included.
    pub arrivals: usize,
    /// Arrivals that were placed.
    pub placed: usize,
    /// Arrivals that were skipped.
    pub skipped: usize,
    /// Departures.
    pub departed: usize,
    /// Placed pods.
    pub running: usize,
    /// Thousandths of GPUs that are taken, summed over every GPU of every node.
    pub allocated_gpu_milli: u64,
    /// Thousandths of GPUs that the nodes have.
    pub capacity_gpu_milli: u64,
}

/// Replays a log.
#[derive(Debug)]
pub struct Validator {
    accounts: BTreeMap<String, Account>,
    running: BTreeMap<String, RunningPod>,
    gangs: BTreeMap<String, GangCount>,
    /// Gangs of which something changed since the last decision was over.
    unsettled: BTreeSet<String>,
    totals: Totals,
}

/// Resources of a running pod.
#[derive(Debug)]
struct RunningPod {
    node: String,
    cpu_milli: u64,
    memory_mib: u64,
    gpus: Vec<(u32, u32)>,
    gang: Option<String>,
}

#[derive(Debug, Default)]
struct GangCount {
    min_members: u32,
    running: u32,
    finished: u32,
}

/// Replays a whole log and sums it up.
pub fn validate<'a>(
    nodes: &[NodeRow],
    log: impl IntoIterator<Item = &'a Event<'a>>,
) -> Result<Totals, Violation> {
    let mut validator = Validator::new(nodes)?;
    for event in log {
        validator.apply(event)?;
    }
    validator.finish()
}

impl Validator {
    /// An empty cluster of these nodes.
    pub fn new(nodes: &[NodeRow]) -> Result<Self, Violation> {
        let mut accounts = BTreeMap::new();
        for node in nodes {
            if accounts.insert(node.name.clone(), Account::of(node)).is_some() {
                let fault = Fault::TwoNodes { node: node.name.clone() };
                return Err(Violation { event: 0, pod: None, fault });
            }
        }
        let capacity_gpu_milli = nodes.iter().map(NodeRow::gpu_milli).sum();
        Ok(Self {
            accounts,
            running: BTreeMap::new(),
            gangs: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            totals: Totals { capacity_gpu_milli, ..Totals::default() },
        })
    }

    /// Does one event. After a violation the accounts are of no more use.
    pub fn apply(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        let index = self.totals.events;
        self.totals.events += 1;
        let (pod, done) = match event {
            Event::Arrive { name, pod, gang, placement } => {
                (Some(*name), self.arrive(name, pod, *gang, placement.as_ref()))
            }
            Event::Depart { name, why } => (Some(*name), self.depart(name, *why)),
            Event::Settled => (None, self.settle()),
        };
        let violation = |fault| Violation { event: index, pod: pod.map(str::to_owned), fault };
        done.map_err(violation)
    }

    /// The sums of the log so far, recounted from every GPU of every node.
    pub fn totals(&self) -> Totals {
        Totals {
            running: self.running.len(),
            allocated_gpu_milli: self.accounts.values().map(Account::taken_gpu_milli).sum(),
            ..self.totals
        }
    }

    /// Ends the log. Gangs must be whole, and the running pods must hold exactly what is allocated
    /// on the nodes.
    pub fn finish(mut self) -> Result<Totals, Violation> {
        let event = self.totals.events;
        let at_the_end = |fault| Violation { event, pod: None, fault };
        self.settle().map_err(at_the_end)?;
        let mut held: BTreeMap<&str, Vec<&RunningPod>> = BTreeMap::new();
        for pod in self.running.values() {
            held.entry(&pod.node).or_default().push(pod);
        }
        for (name, account) in &self.accounts {
            let pods = held.get(name.as_str()).map_or(&[][..], Vec::as_slice);
            let cpu_milli = pods.iter().map(|pod| pod.cpu_milli).sum();
            let memory_mib = pods.iter().map(|pod| pod.memory_mib).sum();
            let gpus = pods.iter().flat_map(|pod| pod.gpus.iter().copied());
            if !account.has_taken(cpu_milli, memory_mib, gpus) {
                return Err(at_the_end(Fault::Unbalanced { node: name.clone() }));
            }
        }
        Ok(self.totals())
    }

    fn arrive(
        &mut self,
        name: &str,
        pod: &PodRow,
        gang: Option<Gang<'_>>,
        placement: Option<&Placement<'_>>,
    ) -> Result<(), Fault> {
        self.totals.arrivals += 1;
        if self.running.contains_key(name) {
            return Err(Fault::RunsAlready);
        }
        if let Some(Gang { id, min_members }) = gang {
            let count = self.gangs.entry(id.to_owned()).or_default();
            if count.min_members != 0 && count.min_members != min_members {
                let (gang, before) = (id.to_owned(), count.min_members);
                return Err(Fault::MinMembersDiffer { gang, before, now: min_members });
            }
            count.min_members = min_members;
        }
        let Some(placement) = placement else {
            self.totals.skipped += 1;
            return Ok(());
        };
        let account = self
            .accounts
            .get_mut(placement.node)
            .ok_or_else(|| Fault::UnknownNode { node: placement.node.to_owned() })?;
        account.take(pod, &placement.gpus)?;
        self.totals.placed += 1;
        if let Some(Gang { id, .. }) = gang {
            self.gangs.entry(id.to_owned()).or_default().running += 1;
            self.unsettled.insert(id.to_owned());
        }
        let held = RunningPod {
            node: placement.node.to_owned(),
            cpu_milli: pod.cpu_milli,
            memory_mib: pod.memory_mib,
            gpus: placement.gpus.clone(),
            gang: gang.map(|gang| gang.id.to_owned()),
        };
        self.running.insert(name.to_owned(), held);
        Ok(())
    }

    fn depart(&mut self, name: &str, why: Departure) -> Result<(), Fault> {
        let held = self.running.remove(name).ok_or(Fault::DoesNotRun)?;
        self.totals.departed += 1;
        if let Some(account) = self.accounts.get_mut(&held.node) {
            account.give_back(held.cpu_milli, held.memory_mib, &held.gpus);
        }
        if let Some(id) = held.gang {
            let count = self.gangs.entry(id.clone()).or_default();
            count.running = count.running.saturating_sub(1);
            if why == Departure::Finished {
                count.finished += 1;
            }
            self.unsettled.insert(id);
        }
        Ok(())
    }

    /// Members that finished count as served: their gang need not replace them.
    fn settle(&mut self) -> Result<(), Fault> {
        for id in std::mem::take(&mut self.unsettled) {
            let Some(count) = self.gangs.get(&id) else { continue };
            if count.running > 0 && count.running + count.finished < count.min_members {
                return Err(Fault::GangInPart {
                    running: count.running,
                    finished: count.finished,
                    min_members: count.min_members,
                    gang: id,
                });
            }
        }
        Ok(())
    }
}
