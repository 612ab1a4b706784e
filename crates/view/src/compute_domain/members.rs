//! The nodes with an allocated channel, and the first step that each lacks.

use std::collections::{BTreeMap, BTreeSet};

use octavo_api::compute_domain::{ComputeDomainDaemon, ComputeDomainNode, Readiness};
use octavo_api::imex::ImexServices;
use octavo_api::names::{CONDITION_READY, LABEL_COMPUTE_DOMAIN};

use super::facts::{CliqueFacts, DomainClaim, DomainFacts, DomainPod, NodeFacts};
use super::{Missing, Step, daemons, pods};

/// Most nodes of an IMEX domain, where no daemon says it.
const DEFAULT_SLOTS: usize = 18;

/// A node with an allocated channel of the domain.
#[derive(Debug)]
pub(super) struct Member<'a> {
    pub(super) name: &'a str,
    /// `None` if nodes could not be read, or this one does not exist.
    pub(super) node: Option<&'a NodeFacts>,
    pub(super) claims: Vec<&'a DomainClaim>,
    /// The domain's pods there that have not ended.
    pub(super) pods: Vec<&'a DomainPod>,
    pub(super) daemon: Option<&'a DomainPod>,
    pub(super) entry: Option<(&'a CliqueFacts, &'a ComputeDomainDaemon)>,
    pub(super) status: Option<&'a ComputeDomainNode>,
}

impl<'a> Member<'a> {
    /// All members.
    pub(super) fn all(facts: &'a DomainFacts) -> Vec<Self> {
        let mut claims: BTreeMap<&str, Vec<&DomainClaim>> = BTreeMap::new();
        for claim in &facts.claims {
            if let Some(node) = &claim.node {
                claims.entry(node).or_default().push(claim);
            }
        }
        let running = facts.pods.iter().flatten().filter(|pod| pod.is_bound && !pod.has_ended());
        let mut pods: BTreeMap<&str, Vec<&DomainPod>> = BTreeMap::new();
        for pod in running {
            pods.entry(pod.node.as_deref().unwrap_or_default()).or_default().push(pod);
        }
        let daemons: BTreeMap<&str, &DomainPod> = facts
            .daemons
            .iter()
            .flatten()
            .filter_map(|pod| Some((pod.node.as_deref()?, pod)))
            .collect();
        let status: BTreeMap<&str, &ComputeDomainNode> =
            facts.status.nodes.iter().map(|node| (node.name.as_str(), node)).collect();
        let mut entries: BTreeMap<&str, (&CliqueFacts, &ComputeDomainDaemon)> = BTreeMap::new();
        for clique in facts.cliques.iter().flatten() {
            for entry in &clique.daemons {
                let node = entry.node_name.as_str();
                // A node may have moved: its entry is in the clique of its label, or in any.
                if facts.clique_label(node) == Some(&clique.id) || !entries.contains_key(node) {
                    entries.insert(node, (clique, entry));
                }
            }
        }
        claims
            .into_iter()
            .map(|(name, claims)| Self {
                name,
                node: facts.nodes.as_ref().and_then(|nodes| nodes.get(name)),
                claims,
                pods: pods.remove(name).unwrap_or_default(),
                daemon: daemons.get(name).copied(),
                entry: entries.get(name).copied(),
                status: status.get(name).copied(),
            })
            .collect()
    }

    /// Its clique, by its label, its entry or the domain's status.
    pub(super) fn clique(&self) -> Option<&'a str> {
        let label = self.node.and_then(|node| node.clique.as_deref());
        let entry = self.entry.map(|(clique, _)| clique.id.as_str());
        let status = self.status.map(|status| status.clique_id.as_str());
        label.or(entry).or(status).filter(|clique| !clique.is_empty())
    }

    /// Its index, by its entry or the domain's status.
    pub(super) fn index(&self) -> Option<i64> {
        let entry = self.entry.and_then(|(_, entry)| entry.index);
        entry.or_else(|| self.status.and_then(|status| status.index))
    }

    /// Whether the domain's status says that it is ready.
    pub(super) fn is_ready(&self) -> bool {
        self.status.is_some_and(|status| status.status == Readiness::Ready)
    }

    /// The first step that is missing, in the order of a pod's start.
    pub(super) fn first_missing(&self, facts: &DomainFacts) -> Option<Missing> {
        self.label(facts)
            .or_else(|| self.of_daemon(facts))
            .or_else(|| self.channel_of(facts))
            .or_else(|| self.copied(facts))
            .or_else(|| pods::not_running(self, facts))
    }

    /// What its daemon lacks, where there is one.
    fn of_daemon(&self, facts: &DomainFacts) -> Option<Missing> {
        let has_daemon = match facts.services {
            ImexServices::PerDomain => true,
            // Shared daemons are where a clique is.
            ImexServices::PerClique => self.clique().is_some(),
            ImexServices::OfHost => false,
        };
        let missing = || {
            daemons::missing(self, facts)
                .or_else(|| self.entry(facts))
                .or_else(|| self.index_of(facts))
                .or_else(|| self.service(facts))
        };
        has_daemon.then(missing).flatten()
    }

    /// The domain's channel in its clique, where domains share the clique.
    pub(super) fn channel(&self, facts: &DomainFacts) -> Option<u32> {
        facts.status.channel(self.clique()?)
    }

    fn channel_of(&self, facts: &DomainFacts) -> Option<Missing> {
        let clique = self.clique().filter(|_| facts.services == ImexServices::PerClique)?;
        if self.channel(facts).is_some() {
            return None;
        }
        let ready = facts.status.conditions.iter().find(|it| it.type_ == CONDITION_READY);
        let cause = ready.map(|it| format!("the controller says: {}: {}", it.reason, it.message));
        let problem = format!("the domain has no channel in clique {clique}");
        let cause = facts.controller.problem().or(cause);
        Some(self.missing(Step::Channel, problem, cause, facts.controller.remedy()))
    }

    /// Something that is missing on this node.
    pub(super) fn missing(
        &self,
        step: Step,
        problem: impl Into<String>,
        cause: Option<String>,
        remedy: impl Into<String>,
    ) -> Missing {
        let (problem, remedy) = (problem.into(), remedy.into());
        Missing { step, subject: format!("node {}", self.name), problem, cause, remedy }
    }

    /// A node that is not ready explains much.
    pub(super) fn node_trouble(&self) -> Option<String> {
        let is_down = self.node.is_some_and(|node| !node.is_ready);
        is_down.then(|| "the node itself is not Ready".to_owned())
    }

    fn label(&self, facts: &DomainFacts) -> Option<Missing> {
        let nodes = facts.nodes.as_ref()?;
        let Some(node) = nodes.get(self.name) else {
            let claims: Vec<&str> = self.claims.iter().map(|claim| claim.name.as_str()).collect();
            return Some(self.missing(
                Step::Label,
                format!(
                    "the node does not exist, and claims have its channel: {}",
                    claims.join(", ")
                ),
                None,
                "delete the pods of these claims; their controller makes them again elsewhere",
            ));
        };
        if facts.services != ImexServices::PerDomain || node.domain.as_ref() == Some(&facts.uid) {
            return None;
        }
        let problem = format!("the node has no label {LABEL_COMPUTE_DOMAIN}: no daemon comes");
        Some(match &node.domain {
            Some(other) => self.missing(
                Step::Label,
                format!("the node has the label of another ComputeDomain, with UID {other}"),
                Some("a node is in one domain at a time; the other one keeps it while it has a claim there".to_owned()),
                "end the pods of the other domain there: `kubectl get computedomains -A -o wide`",
            ),
            None => self.missing(Step::Label, problem, facts.controller.problem(), facts.controller.remedy()),
        })
    }

    /// A daemon without a fabric writes no entry.
    fn entry(&self, facts: &DomainFacts) -> Option<Missing> {
        let cliques = facts.cliques.as_ref()?;
        let clique = self.clique()?;
        let daemon = self.daemon;
        let log = daemon.map_or_else(|| "see the daemon's pod".to_owned(), daemons::log);
        let Some((_, entry)) = self.entry else {
            if !cliques.iter().any(|found| found.id == clique) {
                let problem = format!(
                    "there is no ComputeDomainClique {}.{clique}, into which the daemon writes",
                    facts.daemons_uid()
                );
                let cause = facts.controller.problem();
                return Some(self.missing(Step::Entry, problem, cause, facts.controller.remedy()));
            }
            let problem = format!("the daemon has not written its entry into clique {clique}");
            return Some(self.missing(Step::Entry, problem, self.node_trouble(), log));
        };
        let is_earlier = daemon.is_some_and(|pod| !pod.ip.is_empty() && pod.ip != entry.ip_address);
        let problem = format!(
            "the entry in clique {clique} is of an earlier daemon, with address {}",
            entry.ip_address
        );
        is_earlier.then(|| self.missing(Step::Entry, problem, self.node_trouble(), log))
    }

    fn index_of(&self, facts: &DomainFacts) -> Option<Missing> {
        let (clique, entry) = self.entry?;
        if entry.index.is_some() {
            return None;
        }
        let taken: BTreeSet<i64> =
            clique.daemons.iter().filter_map(|daemon| daemon.index).collect();
        let slots = facts.slots();
        if taken.len() >= slots {
            return Some(self.missing(
                Step::Index,
                format!("no index is free in clique {}: {} of {slots} are taken", clique.id, taken.len()),
                Some("more nodes have pods of the domain than an IMEX domain can have".to_owned()),
                "use several domains, or fewer nodes; an index is free when a node's last pod has ended",
            ));
        }
        let problem = format!("the entry in clique {} has no index", clique.id);
        Some(self.missing(
            Step::Index,
            problem,
            facts.controller.problem(),
            facts.controller.remedy(),
        ))
    }

    fn service(&self, facts: &DomainFacts) -> Option<Missing> {
        let (_, entry) = self.entry?;
        if entry.status == Readiness::Ready {
            return None;
        }
        let restarts = self.daemon.map_or(0, |daemon| daemon.restarts);
        let restarts =
            (restarts > 0).then(|| format!("its container was restarted {restarts} times"));
        let cause = self.node_trouble().or(restarts).unwrap_or_else(|| {
            format!("nvidia-imex on {} does not answer READY", entry.ip_address)
        });
        let log = self.daemon.map(daemons::log).unwrap_or_default();
        let remedy = format!(
            "{log}; TCP ports 50000 and 50005 must be open between the daemons' pods ({})",
            facts.controller.lease.namespace()
        );
        let remedy = remedy.trim_start_matches("; ").to_owned();
        Some(self.missing(Step::Ready, "the IMEX service is not ready", Some(cause), remedy))
    }

    fn copied(&self, facts: &DomainFacts) -> Option<Missing> {
        if self.is_ready() {
            return None;
        }
        let remedy = facts.controller.remedy();
        let problem = match (self.entry, self.status) {
            // Without the right to read daemons, the status alone is known.
            (None, Some(_)) if facts.daemons.is_none() || facts.cliques.is_none() => {
                let remedy = format!(
                    "see the daemon's pod in namespace {}, or ask an administrator",
                    facts.controller.lease.namespace()
                );
                let problem = "its daemon is not ready, as the domain's status says";
                return Some(self.missing(Step::Ready, problem, self.node_trouble(), remedy));
            }
            (_, None) => "the node is not in the domain's status",
            (_, Some(_)) if facts.services == ImexServices::OfHost => {
                "the domain's status does not have it as ready yet"
            }
            (_, Some(_)) => "its daemon is ready, and the domain's status does not say so yet",
        };
        Some(self.missing(Step::Status, problem, facts.controller.problem(), remedy))
    }
}

impl DomainFacts {
    /// The clique in a node's label.
    pub(super) fn clique_label(&self, node: &str) -> Option<&String> {
        self.nodes.as_ref()?.get(node)?.clique.as_ref()
    }

    /// Slots in the daemons' lists of nodes.
    pub(super) fn slots(&self) -> usize {
        let announced = self.daemons.iter().flatten().find_map(|daemon| daemon.slots);
        announced.unwrap_or(DEFAULT_SLOTS)
    }
}
