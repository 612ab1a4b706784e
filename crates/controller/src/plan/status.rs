//! The status of a domain, and what is wrong with it.

mod channels;
mod nodes;

use std::collections::BTreeSet;

use octavo_api::Condition;
use octavo_api::compute_domain::{ComputeDomainNode, ComputeDomainStatus, Readiness};
use octavo_api::imex::ImexServices;
use octavo_api::names::{
    CONDITION_CERTIFICATE_PROBLEM, CONDITION_MEMBERS_READY, CONDITION_READY,
    CONDITION_SHARED_CLIQUE,
};

use super::certificate::Problem;
use super::channels::ChannelPlan;
use super::conditions::{Verdict, listed, listed_for, updated};
use super::{Reason, Regarding, Warning, Write};
use crate::view::{Daemons, Domain, Gang, View};

/// What the status depends on.
pub(super) struct Facts<'a> {
    pub(super) view: &'a View,
    pub(super) domain: &'a Domain,
    pub(super) services: ImexServices,
    pub(super) members: &'a BTreeSet<&'a str>,
    pub(super) daemons: &'a Daemons<'a>,
    /// Whether the template's name is taken.
    pub(super) is_taken: bool,
    /// Cliques without a free index, and the members that wait for one.
    pub(super) full: &'a [(String, Vec<String>)],
    pub(super) channels: &'a ChannelPlan,
    /// What is wrong with the certificate of its daemons.
    pub(super) certificate: Option<Problem>,
}

impl Facts<'_> {
    /// The write of the status, if it changes.
    pub(super) fn changed_status(&self) -> Option<Write> {
        let nodes: Vec<ComputeDomainNode> =
            self.members.iter().map(|name| self.node(name)).collect();
        let ready = self.ready(&nodes);
        let status = if ready.is_true { Readiness::Ready } else { Readiness::NotReady };
        let old = self.domain.status.as_ref();
        let conditions = old.map(|status| status.conditions.as_slice()).unwrap_or_default();
        let verdicts = [
            (CONDITION_READY, Some(ready)),
            (CONDITION_MEMBERS_READY, Some(self.members_ready(&nodes))),
            (CONDITION_SHARED_CLIQUE, self.shared_clique(conditions)),
            (CONDITION_CERTIFICATE_PROBLEM, self.certificate_problem(conditions)),
        ];
        let conditions = updated(conditions, &verdicts, self.domain.generation);
        let channels = self.channels.given.clone();
        let version = &self.domain.resource_version;
        let status = ComputeDomainStatus { status, nodes, channels, conditions };
        (old != Some(&status)).then(|| Write::SetStatus {
            namespace: self.domain.namespace.clone(),
            name: self.domain.name.clone(),
            uid: self.domain.uid.clone(),
            resource_version: self.is_shared().then(|| version.clone()),
            status,
        })
    }

    /// Warnings that hold now.
    pub(super) fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if self.is_taken {
            let (reason, note) = (Reason::TemplateNameTaken, self.template_taken());
            warnings.push(Warning { regarding: Regarding::Domain, reason, note });
        }
        if !self.full.is_empty() {
            let (reason, note) = (Reason::CliqueFull, self.clique_full());
            warnings.push(Warning { regarding: Regarding::Domain, reason, note });
        }
        if let Some(problem) = &self.certificate {
            let (reason, note) = (problem.reason(), problem.note());
            warnings.push(Warning { regarding: Regarding::Domain, reason, note });
        }
        let is_foreign = |namespace: &str| namespace != self.domain.namespace;
        for claim in self.view.claims.iter().filter(|claim| is_foreign(&claim.namespace)) {
            warnings.push(Warning {
                regarding: Regarding::Claim {
                    namespace: claim.namespace.clone(),
                    name: claim.name.clone(),
                    uid: claim.uid.clone(),
                },
                reason: Reason::ForeignNamespace,
                // Neither name nor namespace of the domain: its tenant is another one.
                note: format!(
                    "The claim names a ComputeDomain of another namespace, with UID {}. Its node does not join the domain, and its \
                     pods do not start. Create a ComputeDomain in namespace {}, and use its template.",
                    self.domain.uid, claim.namespace
                ),
            });
        }
        warnings
    }

    /// The rule of NVIDIA's controller: enough nodes, all ready. Here a domain without nodes is not ready.
    fn ready(&self, nodes: &[ComputeDomainNode]) -> Verdict {
        if self.domain.is_deleting {
            return Verdict::no(Reason::Deleting, self.deleting());
        }
        if self.is_taken {
            return Verdict::no(Reason::TemplateNameTaken, self.template_taken());
        }
        if let Some(refusal) = self.certificate.as_ref().and_then(Problem::refusal) {
            return refusal;
        }
        if !self.full.is_empty() {
            return Verdict::no(Reason::CliqueFull, self.clique_full());
        }
        if self.services == ImexServices::OfHost {
            return host_managed();
        }
        if let Some(problem) = self.channel_problem() {
            return problem;
        }
        let wanted = usize::try_from(self.domain.num_nodes).unwrap_or_default();
        if !nodes.is_empty() && nodes.len() < wanted {
            let note = format!(
                "{} of {wanted} nodes (spec.numNodes) have a pod of the domain.",
                nodes.len()
            );
            return Verdict::no(Reason::FewerNodesThanNumNodes, note);
        }
        self.nodes_ready(nodes)
    }

    /// The condition that prepare waits for: the nodes, and the minimums of the gangs of their pods.
    fn members_ready(&self, nodes: &[ComputeDomainNode]) -> Verdict {
        let nodes_ready = match self.services {
            ImexServices::OfHost => host_managed(),
            ImexServices::PerDomain | ImexServices::PerClique => self.nodes_ready(nodes),
        };
        let incomplete = gang_incomplete(&self.view.gangs);
        // The pods of a deleted domain end: their gangs will not be complete again.
        let incomplete = incomplete.filter(|_| !self.domain.is_deleting);
        incomplete.filter(|_| self.channel_problem().is_none()).unwrap_or(nodes_ready)
    }

    fn nodes_ready(&self, nodes: &[ComputeDomainNode]) -> Verdict {
        self.channel_problem().unwrap_or_else(|| members_ready(nodes))
    }

    fn is_shared(&self) -> bool {
        self.services == ImexServices::PerClique
    }

    fn shared_clique(&self, old: &[Condition]) -> Option<Verdict> {
        if self.is_shared() {
            // It is what the setting is for.
            return None;
        }
        let cliques: BTreeSet<&str> =
            self.members.iter().filter_map(|node| self.view.clique_label(node)).collect();
        let others: BTreeSet<&str> = cliques
            .iter()
            .filter_map(|clique| self.view.neighbours.get(*clique))
            .flatten()
            .map(String::as_str)
            .collect();
        if !others.is_empty() {
            let others = listed_for(&self.domain.namespace, others);
            let note =
                format!("Other ComputeDomains have nodes in the same NVLink clique: {others}.");
            return Some(Verdict::yes(Reason::OtherDomain, note));
        }
        let was_shared = old.iter().any(|condition| condition.type_ == CONDITION_SHARED_CLIQUE);
        let note = "No other ComputeDomain has nodes in the cliques of this one.";
        was_shared.then(|| Verdict::no(Reason::NoOtherDomain, note.to_owned()))
    }

    fn certificate_problem(&self, old: &[Condition]) -> Option<Verdict> {
        if let Some(problem) = &self.certificate {
            return Some(problem.verdict());
        }
        let had = old.iter().any(|condition| condition.type_ == CONDITION_CERTIFICATE_PROBLEM);
        let note = "The certificate of the domain's daemons has no problem.";
        had.then(|| Verdict::no(Reason::CertificateGood, note.to_owned()))
    }

    fn deleting(&self) -> String {
        if self.members.is_empty() {
            return "The domain is deleted: its daemons are removed.".to_owned();
        }
        format!(
            "The domain is deleted, and its claims are still allocated on nodes: {}. It disappears with its last pod.",
            listed(self.members.iter().copied())
        )
    }

    fn template_taken(&self) -> String {
        let name = &self.domain.template;
        format!(
            "The ResourceClaimTemplate {name} exists and is not of this domain. Delete it, or create the domain with another \
             spec.channel.resourceClaimTemplate.name."
        )
    }

    fn clique_full(&self) -> String {
        let cliques = listed(self.full.iter().map(|(clique, _)| clique.as_str()));
        let nodes = self.full.iter().flat_map(|(_, nodes)| nodes).map(String::as_str);
        format!(
            "No index is free in NVLink clique {cliques} for nodes: {}. They cannot join until others leave. Use several domains, \
             or fewer nodes.",
            listed(nodes)
        )
    }
}

/// The verdict on services that the controller does not see.
fn host_managed() -> Verdict {
    let note = "The hosts run the IMEX services. The agents ask them when pods start.";
    Verdict::yes(Reason::HostManaged, note.to_owned())
}

/// The verdict on gangs whose pods do not all have a channel yet.
fn gang_incomplete(gangs: &[Gang]) -> Option<Verdict> {
    let incomplete = gangs.iter().filter(|gang| gang.pods < gang.minimum);
    let incomplete: Vec<String> = incomplete
        .map(|gang| {
            format!("{} of {} pods of {} have a channel", gang.pods, gang.minimum, gang.name)
        })
        .collect();
    (!incomplete.is_empty()).then(|| {
        let note = format!("{}.", listed(incomplete.iter().map(String::as_str)));
        Verdict::no(Reason::GangIncomplete, note)
    })
}

fn members_ready(nodes: &[ComputeDomainNode]) -> Verdict {
    if nodes.is_empty() {
        let note = "No pod of the domain has an allocated claim. Create pods with its template.";
        return Verdict::no(Reason::NoNodes, note.to_owned());
    }
    let missing: Vec<&str> = nodes
        .iter()
        .filter(|node| node.status == Readiness::NotReady)
        .map(|node| node.name.as_str())
        .collect();
    if missing.is_empty() {
        return Verdict::yes(
            Reason::AllNodesReady,
            format!("Nodes that are ready: {}.", nodes.len()),
        );
    }
    let note = format!(
        "{} of {} nodes are not ready: {}. See the pods of their daemons.",
        missing.len(),
        nodes.len(),
        listed(missing)
    );
    Verdict::no(Reason::NodesNotReady, note)
}
