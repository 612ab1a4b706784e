//! Nodes on which a refused unit could not be whatever runs there: a taint, a claim that cannot be read. The
//! engine counts room alone, so it cannot say it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::marks::Mark;
use super::node::NodeRecord;
use super::queue::Unit;
use super::{Core, pod};
use crate::devices::{Ask, GrantError};

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
}

impl LeftOut {
    /// Why something was refused, in one sentence, from what the engine says of it.
    pub(super) fn beside(&self, refused: String) -> String {
        let all: Vec<_> = self.reasons.iter().take(MOST_REASONS).map(String::as_str).collect();
        match (all.as_slice(), self.is_everywhere) {
            ([], _) => refused,
            (all, true) => format!("no node will do: {}", all.join("; ")),
            (all, false) => format!("{refused}; nodes are left out: {}", all.join("; ")),
        }
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
            left.is_everywhere |= self.leave_out(uid, &ask, &mut left.reasons);
        }
        left
    }

    /// Adds why nodes are left out for a pod. Says whether all of them are.
    fn leave_out(&self, uid: &Arc<str>, ask: &Ask, reasons: &mut BTreeSet<String>) -> bool {
        let Some(record) = self.pods.get(uid) else { return false };
        let away = self.neighbours.away(&record.pod, &self.volumes);
        let is_gpu =
            |name: &str| name == octavo_api::names::EXTENDED_RESOURCE_GPU && ask.demand.is_some();
        let has_more = pod::has_more(&record.footprint, is_gpu);
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
            } else if let Some(words) = self.fault_on(ask, name) {
                fault.get_or_insert(words);
            } else if has_more && let Err(unplaced) = self.check_room_on(uid, name) {
                reasons.insert(unplaced.words().to_owned());
            } else {
                is_everywhere = false;
            }
        }
        reasons.extend(fault);
        is_everywhere
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
        if ask.is_exact {
            return None;
        }
        match self.devices.allocate(ask, node, None) {
            Err(GrantError::Refused(refusal)) if !refusal.is_of_node() => Some(refusal.to_string()),
            _ => None,
        }
    }
}
