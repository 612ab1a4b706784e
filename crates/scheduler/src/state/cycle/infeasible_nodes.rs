//! Infeasible nodes of an unschedulable entry. Some are infeasible whatever runs there, for example
//! because of a taint or an unreadable claim. Others lack resources that the engine does not count,
//! such as a port or a volume. The engine only explains a lack of the resources it counts.

use std::collections::{BTreeMap, BTreeSet};

use octavo_engine::gpu::ModelSet;
use octavo_kube_io::objects::{NodeName, PodUid};

use crate::devices::{Ask, AskedClaim, Feasibility, PodAllocationError, RequestKey};
use crate::predicates::Unfit;
use crate::state::Scheduler;
use crate::state::cache::node::NodeRecord;
use crate::state::cache::node_mask::NodeMask;
use crate::state::cache::pod;
use crate::state::cache::{Cache, maintenance};
use crate::state::cycle::decide::is_gpu;
use crate::state::queue::QueueKey;

/// Members of a gang that are checked; members with equal requests give nearly equal reasons.
const MAX_MEMBERS: usize = 16;
/// Nodes at most for which the allocator explains why they would never serve a pod.
const MAX_EXPLAINED: usize = 16;
/// Why a node does not serve a pod now.
const TAKEN: &str = "node(s) whose suitable devices other pods hold";
/// Reasons in a message.
const MAX_REASONS: usize = 4;

/// Why nodes are infeasible. Without node counts: a message for thousands of pods must not change
/// with each new node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::state) struct InfeasibleNodes {
    reasons: BTreeSet<String>,
    covers_all_nodes: bool,
    /// Why the entry may be schedulable nevertheless.
    caveats: BTreeSet<String>,
}

impl InfeasibleNodes {
    /// Adds reasons why the refusal is no proof.
    pub(in crate::state) fn with_caveats(self, caveats: BTreeSet<String>) -> Self {
        Self { caveats, ..self }
    }

    /// The message of an unschedulable entry, from the words of the engine's refusal.
    pub(in crate::state) fn message(&self, refusal: String) -> String {
        let reasons: Vec<_> = self.reasons.iter().take(MAX_REASONS).map(String::as_str).collect();
        let message = match (reasons.as_slice(), self.covers_all_nodes) {
            ([], _) => refusal,
            (reasons, true) => format!("no node is feasible: {}", reasons.join("; ")),
            (reasons, false) => format!("{refusal}; infeasible nodes: {}", reasons.join("; ")),
        };
        if self.caveats.is_empty() {
            return message;
        }
        let caveats_text: Vec<_> = self.caveats.iter().map(String::as_str).collect();
        format!("{message}; this is not certain: {}", caveats_text.join("; "))
    }
}

impl Scheduler {
    /// Why nodes are infeasible for the pending pods of an entry.
    pub(in crate::state) fn infeasible_nodes(&mut self, key: &QueueKey) -> InfeasibleNodes {
        let waits = |uid: &PodUid| {
            let record = self.cache.pod(uid);
            record.is_some_and(|record| record.is_pending_for(&self.cache.config().scheduler_name))
        };
        let uids: Vec<_> =
            self.cache.pods_of(key).into_iter().filter(waits).take(MAX_MEMBERS).collect();
        let mut infeasible = InfeasibleNodes::default();
        let mut seen: Vec<(u8, RequestKey)> = Vec::new();
        for uid in &uids {
            let Ok(ask) = self.ask(uid) else { continue };
            let Some(record) = self.cache.pod(uid) else { continue };
            let Some((mask, ..)) = &record.node_mask else { continue };
            let is_wanted = |claim: &AskedClaim| matches!(claim, AskedClaim::Wanted(_));
            if let (NodeMask::Bit(bit), true) = (mask, ask.claims.iter().all(is_wanted)) {
                let kind = (*bit, self.cache.devices().request_key(&ask));
                if seen.contains(&kind) {
                    continue;
                }
                seen.push(kind);
            }
            let (reasons, covers_all_nodes) = self.cache.collect_infeasible(uid, &ask);
            if covers_all_nodes && !infeasible.covers_all_nodes {
                // A member without any feasible node explains why all wait; the reasons of others
                // do not.
                infeasible = InfeasibleNodes { reasons, covers_all_nodes, ..infeasible };
            } else if covers_all_nodes == infeasible.covers_all_nodes {
                infeasible.reasons.extend(reasons);
            }
        }
        infeasible
    }
}

impl Cache {
    /// The first volume of the pending pods of an entry that cannot be used on any node.
    pub(in crate::state) fn unusable_volume(&self, key: &QueueKey) -> Option<Unfit> {
        self.pods_of(key).iter().find_map(|uid| {
            let (_, rules, _) = self.pod(uid)?.node_mask.as_ref()?;
            rules.pod_level_reason().cloned()
        })
    }

    /// Why nodes are infeasible for a pod, and whether all nodes are, even if every pod left.
    fn collect_infeasible(&self, uid: &PodUid, ask: &Ask) -> (BTreeSet<String>, bool) {
        let mut reasons = BTreeSet::new();
        let Some(record) = self.pod(uid) else { return (reasons, false) };
        let away = self.neighbours().exclusions(&record.pod, self.volumes());
        let takes_more = pod::takes_uncounted(&record.footprint, |name| is_gpu(name, ask));
        let wish = (!ask.is_exact).then(|| self.devices().request_key(ask));
        // No node has devices for an exact request: the engine has no name for what lacks.
        let is_unknown = ask.is_exact && ask.demand.is_some() && ask.models == ModelSet(0);
        let found = |node: &str| match wish {
            Some(wish) => self.devices().feasibility(ask, wish, node),
            None if is_unknown => Feasibility::Never,
            None => Feasibility::Feasible { list_score: 0 },
        };
        let mut explained = 0;
        let mut covers_all_nodes = !self.nodes().is_empty();
        // An unreadable claim is reported once, not for each device.
        let mut fault: Option<String> = None;
        let stay = self.stay_of(record);
        // Each time once, with a node as an example.
        let mut work: BTreeMap<u64, (&NodeName, usize)> = BTreeMap::new();
        for (name, node) in self.nodes() {
            if let Some(reason) = self.unfit_reason(uid, node) {
                reasons.insert(reason);
            } else if let Some(start) = self.work_before_end(stay, name) {
                work.entry(start).or_insert((name, 0)).1 += 1;
            } else if let Err(unfit) = away.check(&node.node) {
                reasons.insert(unfit.to_string());
            } else if !self.may_allocate_devices(ask, name) {
                reasons.insert("node(s) whose devices this scheduler does not allocate".to_owned());
            } else if !self.devices().is_allowed(ask, name) {
                reasons.insert(PodAllocationError::ClaimUnreachable.to_string());
            } else if found(name) == Feasibility::Invalid {
                fault = fault.or_else(|| self.claim_fault_on(ask, name));
            } else if found(name) == Feasibility::Never {
                // Nodes are mostly alike.
                if explained < MAX_EXPLAINED {
                    explained += 1;
                    reasons.extend(self.devices().unserved_reason(ask, name));
                }
            } else if found(name) == Feasibility::Taken {
                reasons.insert(TAKEN.to_owned());
                covers_all_nodes = false;
            } else if takes_more {
                let shortages = self.uncounted_shortages(record, ask, node, &node.usage);
                // Resources that other pods hold are a reason too, but may become free.
                covers_all_nodes &= shortages.iter().any(|unfit| !unfit.could_preemption_help());
                reasons.extend(shortages.iter().map(ToString::to_string));
            } else {
                covers_all_nodes = false;
            }
        }
        reasons.extend(fault);
        let phrase = |(start, (name, count)): (u64, (&NodeName, usize))| {
            maintenance::phrase(name, count > 1, start)
        };
        reasons.extend(work.into_iter().map(phrase));
        (reasons, covers_all_nodes)
    }

    /// Why a node's name, labels or taints do not suit a pod.
    fn unfit_reason(&self, uid: &PodUid, node: &NodeRecord) -> Option<String> {
        let (mask, rules, used) = self.pod(uid)?.node_mask.as_ref()?;
        if let NodeMask::Bit(bit) = mask
            && node.features.0 >> bit & 1 == 1
        {
            return None;
        }
        if let Err(unfit) = rules.check(&node.node) {
            return Some(unfit.to_string());
        }
        let gpus = self.devices().gpus(&node.node.meta.name.name);
        (!used.suits(gpus)).then(|| "node(s) whose GPUs are requested in another way".to_owned())
    }

    /// A fault of the pod's claims, found on this node. No node has devices for the claims until it
    /// is corrected.
    fn claim_fault_on(&self, ask: &Ask, node: &str) -> Option<String> {
        match self.devices().allocate(ask, node, None) {
            Err(PodAllocationError::Refused(refusal)) if !refusal.is_node_specific() => {
                Some(refusal.to_string())
            }
            _ => None,
        }
    }
}
