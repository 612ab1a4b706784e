//! Pods of a domain without a node, and pods that do not start on theirs.

use std::collections::BTreeMap;

use octavo_api::compute_domain::{Readiness, ReadyWhen};
use octavo_api::imex::ImexServices;
use octavo_api::names::{ANNOTATION_READY_WHEN, CONDITION_MEMBERS_READY};

use super::facts::{DomainFacts, DomainPod};
use super::members::Member;
use super::{Missing, Step};

/// Names in one sentence.
const MAX_NAMES: usize = 5;

/// Names in a sentence, the first ones with the count of the others.
pub(super) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let shown = names[..names.len().min(MAX_NAMES)].join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The pods whose claims are not allocated. Those with the same reason are one row.
pub(super) fn without_node(facts: &DomainFacts) -> Vec<Missing> {
    let waiting = facts.pods.iter().flatten().filter(|pod| !pod.is_bound && !pod.has_ended());
    let mut by_cause: BTreeMap<Option<String>, Vec<&DomainPod>> = BTreeMap::new();
    for pod in waiting {
        by_cause.entry(cause(pod)).or_default().push(pod);
    }
    let rows = by_cause.into_iter().map(|(cause, pods)| {
        let names = listed(pods.iter().map(|pod| pod.name.as_str()));
        let word = if pods.len() == 1 { "pod" } else { "pods" };
        let first = pods.first().map(|pod| pod.name.as_str()).unwrap_or_default();
        Missing {
            step: Step::Claim,
            subject: format!("{word} {names}"),
            problem: "no node is chosen, so the claim on a channel is not allocated".to_owned(),
            cause,
            remedy: format!("octavo explain pod {first} -n {}", facts.name.namespace),
        }
    });
    rows.collect()
}

fn cause(pod: &DomainPod) -> Option<String> {
    if !pod.gates.is_empty() {
        return Some(format!("scheduling gates hold it back: {}", pod.gates.join(", ")));
    }
    let scheduled = pod.scheduled.as_ref().filter(|found| found.status != "True");
    let says = scheduled.map(|found| found.message.as_str()).filter(|words| !words.is_empty());
    says.map(|words| format!("the scheduler says: {words}")).or_else(|| pod.warning_text())
}

/// The pods on a node whose daemon is ready that do not run.
pub(super) fn not_running(member: &Member<'_>, facts: &DomainFacts) -> Option<Missing> {
    let starting: Vec<&&DomainPod> =
        member.pods.iter().filter(|pod| pod.phase == "Pending" && !pod.is_deleting).collect();
    let first = starting.first()?;
    let names = listed(starting.iter().map(|pod| pod.name.as_str()));
    let cause = member
        .node_trouble()
        .or_else(|| first.trouble.clone())
        .or_else(|| waits_for_others(facts))
        .or_else(|| first.warning_text());
    let remedy = format!("octavo explain pod {} -n {}", first.name, facts.name.namespace);
    let service = match facts.services {
        ImexServices::OfHost => "the node's own IMEX service is asked",
        ImexServices::PerDomain | ImexServices::PerClique => "the daemon is ready",
    };
    let problem = format!("{service}, and pods do not run yet: {names}");
    Some(member.missing(Step::Pod, problem, cause, remedy))
}

/// The nodes for which `octavo.dev/ready-when` lets a pod wait.
fn waits_for_others(facts: &DomainFacts) -> Option<String> {
    let ready_when = facts.ready_when.as_deref().map(str::parse::<ReadyWhen>);
    let (ready, waiting): (Vec<_>, Vec<_>) =
        facts.status.nodes.iter().partition(|node| node.status == Readiness::Ready);
    let names = listed(waiting.iter().map(|node| node.name.as_str()));
    match ready_when {
        Some(Ok(ReadyWhen::Members)) if !waiting.is_empty() => {
            Some(format!("{ANNOTATION_READY_WHEN} is Members, and nodes are not ready: {names}"))
        }
        Some(Ok(ReadyWhen::Count(count)))
            if ready.len() < usize::try_from(count).unwrap_or(usize::MAX) =>
        {
            Some(format!("{ANNOTATION_READY_WHEN} is {count}, and {} nodes are ready", ready.len()))
        }
        None if !waiting.is_empty() => {
            Some(format!("it waits up to 38 s for nodes that are not ready: {names}"))
        }
        None | Some(Ok(ReadyWhen::Members)) => {
            // All nodes are ready: the minimum of a gang is missing.
            let members = facts.status.conditions.iter();
            let mut members = members.filter(|it| it.type_ == CONDITION_MEMBERS_READY);
            let found = members.find(|it| it.status == "False")?;
            Some(format!("the domain is not complete: {}: {}", found.reason, found.message))
        }
        _ => None,
    }
}
