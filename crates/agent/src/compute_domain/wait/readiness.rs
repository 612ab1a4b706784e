//! Whether a domain's status lets a pod of a node start. No I/O.

use octavo_api::compute_domain::{ComputeDomain, ComputeDomainStatus, Readiness, ReadyWhen};
use octavo_api::imex::ImexServices;
use octavo_api::names::{ANNOTATION_READY_WHEN, CONDITION_MEMBERS_READY};

/// Names of nodes in a message.
const MAX_NAMES: usize = 5;

/// What a pod may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DomainState {
    /// It may start, with this channel.
    Ready(u32),
    /// It may start when the time is over, with this channel: what is missing.
    Enough(u32, String),
    /// It may not start: why.
    Refused(String),
}

/// Where a pod is to start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) node: &'a str,
    /// The node's clique.
    pub(super) clique: &'a str,
    /// The node's IMEX services.
    pub(super) services: ImexServices,
}

/// The state of a domain for a pod.
pub(super) fn state(domain: &ComputeDomain, place: &Place<'_>) -> DomainState {
    let Place { node, clique, .. } = *place;
    let annotation = domain.metadata.annotations.as_ref();
    let annotation = annotation.and_then(|all| all.get(ANNOTATION_READY_WHEN));
    let ready_when = match annotation.map(|text| text.parse::<ReadyWhen>()).transpose() {
        Ok(ready_when) => ready_when,
        Err(error) => {
            return DomainState::Refused(format!(
                "its annotation {ANNOTATION_READY_WHEN}: {error}"
            ));
        }
    };
    let status = domain.status.clone().unwrap_or_default();
    let channel = match channel(&status, place) {
        Ok(channel) => channel,
        Err(problem) => return DomainState::Refused(problem),
    };
    let condition = status.conditions.iter().find(|it| it.type_ == CONDITION_MEMBERS_READY);
    let Some(own) = status.nodes.iter().find(|member| member.name == node) else {
        return DomainState::Refused(format!("node {node} is not in its status yet"));
    };
    if !own.clique_id.is_empty() && own.clique_id != clique {
        return DomainState::Refused(format!(
            "node {node} is in NVLink clique {clique} now, and its IMEX daemon is still in {}; delete the daemon's pod",
            own.clique_id
        ));
    }
    if own.status != Readiness::Ready {
        return DomainState::Refused(format!("the IMEX daemon of node {node} is not ready"));
    }
    let (ready, waiting): (Vec<_>, Vec<_>) =
        status.nodes.iter().partition(|member| member.status == Readiness::Ready);
    // NVIDIA's controller sets no condition.
    let is_complete = condition.map_or(waiting.is_empty(), |it| it.status == "True");
    let missing = || match condition {
        Some(condition) if waiting.is_empty() => condition.message.clone(),
        _ => missing(&waiting.iter().map(|member| member.name.as_str()).collect::<Vec<_>>()),
    };
    match ready_when {
        Some(ReadyWhen::Count(count))
            if ready.len() < usize::try_from(count).unwrap_or(usize::MAX) =>
        {
            DomainState::Refused(format!("{} of {count} nodes are ready", ready.len()))
        }
        Some(ReadyWhen::Node | ReadyWhen::Count(_)) => DomainState::Ready(channel),
        _ if is_complete => DomainState::Ready(channel),
        Some(ReadyWhen::Members) => DomainState::Refused(missing()),
        None => DomainState::Enough(channel, missing()),
    }
}

/// The domain's channel for a pod. Controller and agent must have the same settings: else pods would get the channel of others,
/// or of a service that does not run.
fn channel(status: &ComputeDomainStatus, place: &Place<'_>) -> Result<u32, String> {
    let Place { node, clique, services } = *place;
    let differs = |other: ImexServices| {
        format!(
            "the controller has `{other}`, and the agent of node {node} has `{services}`: give both the same settings"
        )
    };
    if let Some(found @ (ImexServices::OfHost | ImexServices::PerClique)) = status.services()
        && found != services
    {
        return Err(differs(found));
    }
    if services != ImexServices::PerClique {
        return Ok(0);
    }
    status.channel(clique).ok_or_else(|| {
        format!(
            "it has no channel in NVLink clique {clique} yet, which a controller with `{services}` gives"
        )
    })
}

/// The nodes whose daemons are not ready.
fn missing(names: &[&str]) -> String {
    let shown = names[..names.len().min(MAX_NAMES)].join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => format!("the IMEX daemons of {shown} are not ready"),
        more => format!("the IMEX daemons of {shown} and {more} more nodes are not ready"),
    }
}

#[cfg(test)]
mod tests;
