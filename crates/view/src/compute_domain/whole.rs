//! What concerns a domain as a whole.

use std::collections::{BTreeMap, BTreeSet};

use octavo_api::compute_domain::{Readiness, ReadyWhen};
use octavo_api::imex::ImexServices;
use octavo_api::names::{
    ANNOTATION_READY_WHEN, CONDITION_CERTIFICATE_PROBLEM, CONDITION_READY, CONDITION_SHARED_CLIQUE,
    LABEL_CLIQUE,
};

use super::facts::{DomainFacts, TemplateState};
use super::members::Member;
use super::pods::listed;
use super::{Missing, Note, Step};

/// The daemons for which a domain's pods wait, by its annotation.
pub(super) fn pods_wait_for(facts: &DomainFacts) -> String {
    let annotation = facts.ready_when.as_deref();
    if facts.services == ImexServices::OfHost && annotation.is_none() {
        return "the IMEX service that their own node runs".to_owned();
    }
    match annotation.map(str::parse::<ReadyWhen>) {
        None => {
            "the daemon of their own node, and at most 38 s for those of other nodes".to_owned()
        }
        Some(Ok(ReadyWhen::Node)) => "the daemon of their own node".to_owned(),
        Some(Ok(ReadyWhen::Members)) => {
            "the daemons of all nodes with an allocated channel".to_owned()
        }
        Some(Ok(ReadyWhen::Count(count))) => {
            format!("{count} ready daemons, that of their own node among them")
        }
        Some(Err(error)) => format!("a valid annotation {ANNOTATION_READY_WHEN}: {error}"),
    }
}

/// What the domain lacks, besides what its nodes and pods do.
pub(super) fn missing(
    facts: &DomainFacts,
    members: &[Member<'_>],
    others: &[Missing],
) -> Vec<Missing> {
    let mut missing: Vec<Missing> =
        [deletion(facts, members), template(facts), annotation(facts), nodes(facts, members)]
            .into_iter()
            .flatten()
            .collect();
    let is_ready = facts.status.status == Readiness::Ready;
    let waits = !is_ready || !missing.is_empty() || !others.is_empty();
    if waits && let Some(problem) = controller_problem(facts) {
        missing.push(of_domain(problem, None, facts.controller.remedy()));
    }
    if !is_ready && !facts.is_deleting && missing.is_empty() && others.is_empty() {
        let ready = facts.status.conditions.iter().find(|it| it.type_ == CONDITION_READY);
        let cause = ready.map(|it| format!("the controller says: {}: {}", it.reason, it.message));
        let problem = "nothing that was read is missing, and the domain's status is not Ready";
        missing.push(of_domain(problem, cause, facts.controller.remedy()));
    }
    missing
}

/// What to know, and holds no pod back.
pub(super) fn notes(facts: &DomainFacts, members: &[Member<'_>], waits: bool) -> Vec<Note> {
    let mut notes = Vec::new();
    if !waits && let Some(problem) = controller_problem(facts) {
        notes.push(Note {
            text: format!("{problem}. What runs goes on; changes wait"),
            remedy: facts.controller.remedy(),
        });
    }
    let condition = |type_: &str| {
        let mut conditions = facts.status.conditions.iter();
        conditions.find(|it| it.type_ == type_ && it.status == "True")
    };
    if let Some(certificate) = condition(CONDITION_CERTIFICATE_PROBLEM) {
        notes.push(Note {
            text: format!("{}: {}", certificate.reason, certificate.message),
            remedy: "as the controller says".to_owned(),
        });
    }
    if let Some(shared) = condition(CONDITION_SHARED_CLIQUE) {
        notes.push(Note {
            text: format!("SharedClique: {}", shared.message),
            remedy: "drivers may refuse two domains in one clique; end one of them where its pods cannot map memory".to_owned(),
        });
    }
    notes.extend(cliques(facts, members));
    if let Some(nodes) = &facts.nodes {
        let names: BTreeSet<&str> = members.iter().map(|member| member.name).collect();
        let stale = nodes.iter().filter(|(name, node)| {
            node.domain.as_ref() == Some(&facts.uid) && !names.contains(name.as_str())
        });
        let stale: Vec<&str> = stale.map(|(name, _)| name.as_str()).collect();
        if !stale.is_empty() {
            notes.push(Note {
                text: format!(
                    "nodes have the domain's label and no claim of it: {}",
                    listed(stale)
                ),
                remedy: "none: the controller removes the label, unless none is active".to_owned(),
            });
        }
    }
    notes
}

fn of_domain(
    problem: impl Into<String>,
    cause: Option<String>,
    remedy: impl Into<String>,
) -> Missing {
    let subject = "domain".to_owned();
    let (problem, remedy) = (problem.into(), remedy.into());
    Missing { step: Step::Domain, subject, problem, cause, remedy }
}

/// A lease that may not be read proves nothing.
fn controller_problem(facts: &DomainFacts) -> Option<String> {
    facts.controller.problem().filter(|_| !facts.controller.is_unknown())
}

fn deletion(facts: &DomainFacts, members: &[Member<'_>]) -> Option<Missing> {
    if !facts.is_deleting {
        return None;
    }
    let claims: Vec<String> = members
        .iter()
        .flat_map(|member| {
            member.claims.iter().map(move |claim| match claim.reserved_for.as_slice() {
                [] => format!("{} on {}", claim.name, member.name),
                pods => format!("{} on {} (pods: {})", claim.name, member.name, pods.join(", ")),
            })
        })
        .collect();
    if claims.is_empty() {
        let finalizers = facts.finalizers.join(", ");
        let cause = Some(format!("its finalizers are: {finalizers}"));
        let problem = "the domain is being deleted, and waits for the controller only";
        return Some(of_domain(problem, cause, facts.controller.remedy()));
    }
    let problem = format!(
        "the domain is being deleted, and claims of it are still allocated: {}",
        listed(claims.iter().map(String::as_str))
    );
    Some(of_domain(
        problem,
        None,
        "delete these pods, or wait until they end; they run on meanwhile",
    ))
}

fn template(facts: &DomainFacts) -> Option<Missing> {
    let name = &facts.template;
    match facts.template_state.as_ref().filter(|_| !facts.is_deleting)? {
        TemplateState::Own => None,
        TemplateState::Missing => Some(of_domain(
            format!("there is no ResourceClaimTemplate {name}, so pods get no claim"),
            controller_problem(facts),
            facts.controller.remedy(),
        )),
        TemplateState::Foreign(owner) => {
            let owner = owner.as_ref().map_or_else(
                || "not of a ComputeDomain".to_owned(),
                |uid| format!("of the ComputeDomain with UID {uid}"),
            );
            Some(of_domain(
                format!("the ResourceClaimTemplate {name} exists, and is {owner}"),
                None,
                "delete it, or create the domain with another spec.channel.resourceClaimTemplate.name",
            ))
        }
    }
}

fn annotation(facts: &DomainFacts) -> Option<Missing> {
    let error = facts.ready_when.as_deref()?.parse::<ReadyWhen>().err()?;
    let problem = format!("no pod starts: the annotation {ANNOTATION_READY_WHEN} is invalid");
    let remedy = format!(
        "kubectl annotate computedomain -n {} {} --overwrite {ANNOTATION_READY_WHEN}=Members",
        facts.name.namespace, facts.name.name
    );
    Some(of_domain(problem, Some(error), remedy))
}

fn nodes(facts: &DomainFacts, members: &[Member<'_>]) -> Option<Missing> {
    if facts.is_deleting {
        return None;
    }
    if members.is_empty() {
        if facts.pods.as_ref().is_some_and(|pods| !pods.is_empty()) {
            return None;
        }
        return Some(of_domain(
            "no pod of the domain has an allocated claim",
            None,
            format!("create pods whose spec.resourceClaims names the template {}", facts.template),
        ));
    }
    let wanted = usize::try_from(facts.num_nodes).unwrap_or_default();
    (members.len() < wanted).then(|| {
        of_domain(
            format!("{} of {wanted} nodes (spec.numNodes) have a pod of the domain", members.len()),
            None,
            "create the other pods; those that exist do not wait for this",
        )
    })
}

/// Members without a clique, in several cliques, or more of them than slots.
fn cliques(facts: &DomainFacts, members: &[Member<'_>]) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut cliques: BTreeMap<Option<&str>, Vec<&str>> = BTreeMap::new();
    if facts.nodes.is_some() {
        for member in members {
            cliques.entry(member.clique()).or_default().push(member.name);
        }
    }
    if let Some(nodes) = cliques.remove(&None) {
        notes.push(Note {
            text: format!("nodes without the label {LABEL_CLIQUE}: {}. Their pods get no channel", listed(nodes)),
            remedy: "if they have a multi-node NVLink fabric: `octavo doctor`, and nvidia-smi -q there (Fabric)".to_owned(),
        });
    }
    if cliques.len() > 1 {
        let each = cliques.iter().map(|(clique, nodes)| {
            format!("{} ({} nodes)", clique.unwrap_or_default(), nodes.len())
        });
        let each: Vec<String> = each.collect();
        let each = listed(each.iter().map(String::as_str));
        notes.push(Note {
            text: format!(
                "the nodes are in {} cliques: {each}. Only pods of one clique map each other's memory",
                cliques.len()
            ),
            remedy: format!("give the pods octavo.dev/topology-required: {LABEL_CLIQUE}, or affinity by it"),
        });
    }
    let slots = facts.slots();
    for (clique, nodes) in cliques.iter().filter(|(_, nodes)| nodes.len() > slots) {
        notes.push(Note {
            text: format!(
                "{} nodes of clique {} have pods, and its IMEX domain has {slots} slots",
                nodes.len(),
                clique.unwrap_or_default()
            ),
            remedy: "use several domains, or fewer nodes".to_owned(),
        });
    }
    notes
}
