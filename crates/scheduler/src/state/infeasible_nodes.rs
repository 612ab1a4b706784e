//! Nodes on which a refused unit could not be whatever runs there: a taint, a claim that cannot be read; and
//! those where others have what the engine does not count: a port, a volume. The engine counts room alone,
//! so it cannot say it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::decide::is_gpu;
use super::node::NodeRecord;
use super::node_mask::NodeMask;
use super::queue::QueueKey;
use super::{Scheduler, pod};
use crate::devices::{Ask, Found, GrantError};

/// Members of a gang that are looked at: those that ask for the same are told apart by little.
const MAX_MEMBERS: usize = 16;
/// Reasons that are told.
const MAX_REASONS: usize = 4;

/// Why nodes were left out. Without numbers of nodes: what is told to thousands of pods may not change with
/// each node that comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InfeasibleNodes {
    reasons: BTreeSet<String>,
    covers_all_nodes: bool,
    /// Why there may be a place all the same.
    caveats: BTreeSet<String>,
}

impl InfeasibleNodes {
    /// The same where the refusal is no proof, and why.
    pub(super) fn with_caveats(self, caveats: BTreeSet<String>) -> Self {
        Self { caveats, ..self }
    }

    /// Why something was refused, in one sentence, from what the engine says of it.
    pub(super) fn message(&self, refusal: String) -> String {
        let reasons: Vec<_> = self.reasons.iter().take(MAX_REASONS).map(String::as_str).collect();
        let message = match (reasons.as_slice(), self.covers_all_nodes) {
            ([], _) => refusal,
            (reasons, true) => format!("no node will do: {}", reasons.join("; ")),
            (reasons, false) => format!("{refusal}; nodes are left out: {}", reasons.join("; ")),
        };
        if self.caveats.is_empty() {
            return message;
        }
        let caveats_text: Vec<_> = self.caveats.iter().map(String::as_str).collect();
        format!("{message}; this is no proof: {}", caveats_text.join("; "))
    }
}

impl Scheduler {
    /// Why nodes were left out for the pods of a unit that wait.
    pub(super) fn infeasible_nodes(&mut self, key: &QueueKey) -> InfeasibleNodes {
        let waits = |uid: &Arc<str>| {
            let record = self.pods.get(uid);
            record.is_some_and(|record| record.is_pending_for(&self.config.scheduler_name))
        };
        let uids: Vec<_> = self.pods_of(key).into_iter().filter(waits).take(MAX_MEMBERS).collect();
        let mut infeasible = InfeasibleNodes::default();
        let mut seen: Vec<u8> = Vec::new();
        for uid in &uids {
            let Ok(ask) = self.ask(uid) else { continue };
            let Some(record) = self.pods.get(uid) else { continue };
            let Some((mask, ..)) = &record.node_mask else { continue };
            if let (NodeMask::Bit(bit), true) = (mask, ask.is_exact && ask.claims.is_empty()) {
                if seen.contains(bit) {
                    continue;
                }
                seen.push(*bit);
            }
            let (reasons, covers_all_nodes) = self.collect_infeasible(uid, &ask);
            if covers_all_nodes && !infeasible.covers_all_nodes {
                // Why one has no node at all is why all wait; the others' reasons are beside it.
                infeasible = InfeasibleNodes { reasons, covers_all_nodes, ..infeasible };
            } else if covers_all_nodes == infeasible.covers_all_nodes {
                infeasible.reasons.extend(reasons);
            }
        }
        infeasible
    }

    /// Why nodes are left out for a pod, and whether all of them are, whoever left.
    fn collect_infeasible(&self, uid: &Arc<str>, ask: &Ask) -> (BTreeSet<String>, bool) {
        let mut reasons = BTreeSet::new();
        let Some(record) = self.pods.get(uid) else { return (reasons, false) };
        let away = self.neighbours.away(&record.pod, &self.volumes);
        let takes_more = pod::takes_uncounted(&record.footprint, |name| is_gpu(name, ask));
        let wish = (!ask.is_exact).then(|| self.devices.wish(ask));
        let has_fault = |node: &str| {
            wish.is_some_and(|wish| self.devices.found(ask, wish, node) == Found::Fault)
        };
        let mut covers_all_nodes = !self.nodes.is_empty();
        // One claim that cannot be read is said once, and not for each device.
        let mut fault: Option<String> = None;
        for (name, node) in &self.nodes {
            if let Some(reason) = self.unfit_reason(uid, node) {
                reasons.insert(reason);
            } else if let Err(unfit) = away.check(&node.node) {
                reasons.insert(unfit.to_string());
            } else if !self.may_allocate_devices(ask, name) {
                reasons.insert("node(s) whose devices this scheduler does not give".to_owned());
            } else if !self.devices.is_allowed(ask, name) {
                reasons.insert(GrantError::Elsewhere.to_string());
            } else if has_fault(name) {
                fault = fault.or_else(|| self.claim_fault_on(ask, name));
            } else if takes_more {
                let shortages = self.uncounted_shortages(record, ask, node, &node.usage);
                // What others have is a reason as well, but no word against the node for good.
                covers_all_nodes &= shortages.iter().any(|unfit| !unfit.is_of_neighbours());
                reasons.extend(shortages.iter().map(ToString::to_string));
            } else {
                covers_all_nodes = false;
            }
        }
        reasons.extend(fault);
        (reasons, covers_all_nodes)
    }

    /// Why a node's name, labels or taints do not suit a pod.
    fn unfit_reason(&self, uid: &Arc<str>, node: &NodeRecord) -> Option<String> {
        let (mask, rules, used) = self.pods.get(uid)?.node_mask.as_ref()?;
        if let NodeMask::Bit(bit) = mask
            && node.features.0 >> bit & 1 == 1
        {
            return None;
        }
        if let Err(unfit) = rules.check(&node.node) {
            return Some(unfit.to_string());
        }
        let gpus = self.devices.gpus(&node.node.meta.name.name);
        (!used.suits(gpus)).then(|| "node(s) whose GPUs are asked for in another way".to_owned())
    }

    /// What is wrong with the pod's claims, found on a node: no node has devices for them before it is put
    /// right.
    fn claim_fault_on(&self, ask: &Ask, node: &str) -> Option<String> {
        match self.devices.allocate(ask, node, None) {
            Err(GrantError::Refused(refusal)) if !refusal.is_of_node() => Some(refusal.to_string()),
            _ => None,
        }
    }
}
