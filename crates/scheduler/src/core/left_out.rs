//! Nodes on which a refused unit could not be whatever runs there: a taint, a claim that cannot be read; and
//! those where others have what the engine does not count: a port, a volume. The engine counts room alone,
//! so it cannot say it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::decide::is_gpu;
use super::marks::Mark;
use super::node::NodeRecord;
use super::queue::Unit;
use super::{Core, pod};
use crate::devices::{Ask, Found, GrantError};

/// Members of a gang that are looked at: those that ask for the same are told apart by little.
const MOST_MEMBERS: usize = 16;
/// Reasons that are told.
const MOST_REASONS: usize = 4;

/// Why nodes were left out. Without numbers of nodes: what is told to thousands of pods may not change with
/// each node that comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    reasons: BTreeSet<String>,
    is_everywhere: bool,
    /// Why there may be a place all the same.
    unproven: BTreeSet<String>,
}

impl LeftOut {
    /// The same where the refusal is no proof, and why.
    pub(super) fn unproven(self, unproven: BTreeSet<String>) -> Self {
        Self { unproven, ..self }
    }

    /// Why something was refused, in one sentence, from what the engine says of it.
    pub(super) fn beside(&self, refused: String) -> String {
        let all: Vec<_> = self.reasons.iter().take(MOST_REASONS).map(String::as_str).collect();
        let told = match (all.as_slice(), self.is_everywhere) {
            ([], _) => refused,
            (all, true) => format!("no node will do: {}", all.join("; ")),
            (all, false) => format!("{refused}; nodes are left out: {}", all.join("; ")),
        };
        if self.unproven.is_empty() {
            return told;
        }
        let why: Vec<_> = self.unproven.iter().map(String::as_str).collect();
        format!("{told}; this is no proof: {}", why.join("; "))
    }
}

impl Core {
    /// Why nodes were left out for the pods of a unit that wait.
    pub(super) fn left_out(&mut self, unit: &Unit) -> LeftOut {
        let waits = |uid: &Arc<str>| {
            let record = self.pods.get(uid);
            record.is_some_and(|one| one.waits_for(&self.config.scheduler_name))
        };
        let uids: Vec<_> =
            self.uids_of(unit).into_iter().filter(waits).take(MOST_MEMBERS).collect();
        let mut left = LeftOut::default();
        let mut seen: Vec<u8> = Vec::new();
        for uid in &uids {
            let Ok(ask) = self.ask(uid) else { continue };
            let Some(record) = self.pods.get(uid) else { continue };
            let Some((mark, ..)) = &record.mark else { continue };
            if let (Mark::Bit(bit), true) = (mark, ask.is_exact && ask.claims.is_empty()) {
                if seen.contains(bit) {
                    continue;
                }
                seen.push(*bit);
            }
            let (reasons, is_everywhere) = self.leave_out(uid, &ask);
            if is_everywhere && !left.is_everywhere {
                // Why one has no node at all is why all wait; the others' reasons are beside it.
                left = LeftOut { reasons, is_everywhere, ..left };
            } else if is_everywhere == left.is_everywhere {
                left.reasons.extend(reasons);
            }
        }
        left
    }

    /// Why nodes are left out for a pod, and whether all of them are, whoever left.
    fn leave_out(&self, uid: &Arc<str>, ask: &Ask) -> (BTreeSet<String>, bool) {
        let mut reasons = BTreeSet::new();
        let Some(record) = self.pods.get(uid) else { return (reasons, false) };
        let away = self.neighbours.away(&record.pod, &self.volumes);
        let has_more = pod::has_more(&record.footprint, |name| is_gpu(name, ask));
        let wish = (!ask.is_exact).then(|| self.devices.wish(ask));
        let has_fault = |node: &str| {
            wish.is_some_and(|wish| self.devices.found(ask, wish, node) == Found::Fault)
        };
        let mut is_everywhere = !self.nodes.is_empty();
        // One claim that cannot be read is said once, and not for each device.
        let mut fault: Option<String> = None;
        for (name, node) in &self.nodes {
            if let Some(words) = self.unfit_words(uid, node) {
                reasons.insert(words);
            } else if let Err(unfit) = away.check(&node.node) {
                reasons.insert(unfit.to_string());
            } else if !self.may_give_devices(ask, name) {
                reasons.insert("node(s) whose devices this scheduler does not give".to_owned());
            } else if !self.devices.is_allowed(ask, name) {
                reasons.insert(GrantError::Elsewhere.to_string());
            } else if has_fault(name) {
                fault = fault.or_else(|| self.fault_on(ask, name));
            } else if has_more {
                let taken = self.taken_beside(record, ask, node, &node.usage);
                // What others have is a reason as well, but no word against the node for good.
                is_everywhere &= taken.iter().any(|unfit| !unfit.is_of_neighbours());
                reasons.extend(taken.iter().map(ToString::to_string));
            } else {
                is_everywhere = false;
            }
        }
        reasons.extend(fault);
        (reasons, is_everywhere)
    }

    /// Why a node's name, labels or taints do not suit a pod.
    fn unfit_words(&self, uid: &Arc<str>, node: &NodeRecord) -> Option<String> {
        let (mark, rules, used) = self.pods.get(uid)?.mark.as_ref()?;
        if let Mark::Bit(bit) = mark
            && node.marks.0 >> bit & 1 == 1
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
    fn fault_on(&self, ask: &Ask, node: &str) -> Option<String> {
        match self.devices.allocate(ask, node, None) {
            Err(GrantError::Refused(refusal)) if !refusal.is_node_specific() => {
                Some(refusal.to_string())
            }
            _ => None,
        }
    }
}
