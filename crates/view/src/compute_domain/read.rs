//! Reads the objects of a domain: the domain's namespace, the driver's namespace, and the nodes. No watch.

mod events;
mod unknown;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use octavo_api::ComputeDomainClique;
use octavo_api::compute_domain::ComputeDomain;
use octavo_api::imex::ImexServices;
use octavo_api::names::{LABEL_COMPUTE_DOMAIN, SHARED_IMEX_DOMAIN};

use super::convert;
use super::facts::{DaemonSetFacts, DomainFacts, DomainPod, TemplateState};
use crate::controller;
use crate::error::ViewError;
use crate::fetch::list;
use crate::scheduler::{LeaseName, LeaseProblem};
use crate::snapshot::{Gap, GapKind, ObjectName};

/// Nodes that are read at the same time.
const PARALLEL_NODES: usize = 8;

/// Reads a domain and what it waits for. Parts that the user may not read are recorded as gaps.
pub(crate) async fn read(
    client: &Client,
    name: &ObjectName,
    controller_lease: Option<&LeaseName>,
    now: Timestamp,
) -> Result<DomainFacts, ViewError> {
    let domains: Api<ComputeDomain> = Api::namespaced(client.clone(), &name.namespace);
    let domain = match domains.get_opt(&name.name).await {
        Ok(Some(domain)) => domain,
        Ok(None) => return Err(unknown::error(client, name).await),
        Err(error) => return Err(unknown::classify(error)),
    };
    let controller = controller::find(client, controller_lease, now).await?;
    let mut facts = convert::domain(domain, controller);
    if let Err(LeaseProblem::Forbidden { message }) = &facts.controller.holder {
        facts.gaps.push(Gap { kind: GapKind::Lease, message: message.clone() });
    }
    read_workload(client, &mut facts).await?;
    read_nodes(client, &mut facts).await?;
    read_daemons(client, &mut facts).await?;
    events::add(client, &mut facts).await?;
    Ok(facts)
}

/// Template, claims and pods in the domain's namespace.
async fn read_workload(client: &Client, facts: &mut DomainFacts) -> Result<(), ViewError> {
    let namespace = facts.name.namespace.clone();
    let templates: Api<ResourceClaimTemplate> = Api::namespaced(client.clone(), &namespace);
    let template = templates.get_opt(&facts.template).await;
    let template = template.map_err(|error| ViewError::api("resourceclaimtemplates", error));
    facts.template_state = facts.known(GapKind::Templates, template)?.map(|template| {
        let owner =
            |template: ResourceClaimTemplate| template.labels().get(LABEL_COMPUTE_DOMAIN).cloned();
        match template.map(owner) {
            None => TemplateState::Missing,
            Some(Some(uid)) if uid == facts.uid => TemplateState::Own,
            Some(other) => TemplateState::Foreign(other),
        }
    });
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), &namespace);
    let claims = list("resourceclaims", &claims, ListParams::default()).await?;
    facts.claims = claims.iter().filter_map(|claim| convert::claim(claim, &facts.uid)).collect();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let pods = list("pods", &pods, ListParams::default()).await;
    let pods = facts.known(GapKind::Pods, pods)?;
    facts.pods = pods.map(|pods| {
        let uses = |pod: &DomainPod| {
            let has_claim = facts.claims.iter().any(|claim| pod.claims.contains(&claim.name));
            has_claim || pod.templates.contains(&facts.template)
        };
        pods.iter().map(convert::pod).filter(uses).collect()
    });
    Ok(())
}

/// The nodes with the domain's label, and its members.
async fn read_nodes(client: &Client, facts: &mut DomainFacts) -> Result<(), ViewError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let labelled = ListParams::default().labels(&selector(&facts.uid));
    let labelled = list("nodes", &nodes, labelled).await;
    let Some(labelled) = facts.known(GapKind::Nodes, labelled)? else { return Ok(()) };
    let mut found: std::collections::BTreeMap<_, _> = labelled.iter().map(convert::node).collect();
    let members = facts.claims.iter().filter_map(|claim| claim.node.clone());
    let others = members.filter(|member| !found.contains_key(member));
    let others: std::collections::BTreeSet<String> = others.collect();
    let others: Result<Vec<Option<Node>>, kube::Error> = stream::iter(others)
        .map(|name| {
            let nodes = nodes.clone();
            async move { nodes.get_opt(&name).await }
        })
        .buffered(PARALLEL_NODES)
        .try_collect()
        .await;
    let others = others.map_err(|error| ViewError::api("nodes", error));
    let others = facts.known(GapKind::Nodes, others)?;
    facts.nodes = others.map(|others| {
        found.extend(others.iter().flatten().map(convert::node));
        found
    });
    Ok(())
}

/// Daemons and cliques in the driver's namespace.
async fn read_daemons(client: &Client, facts: &mut DomainFacts) -> Result<(), ViewError> {
    let namespace = facts.controller.lease.namespace().to_owned();
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), &namespace);
    if facts.status.services().is_none() {
        // The status does not say yet who runs the services.
        let shared = daemon_set(&sets, SHARED_IMEX_DOMAIN).await;
        if facts.known(GapKind::DaemonSets, shared)?.is_some_and(|shared| shared.exists) {
            facts.services = ImexServices::PerClique;
        }
    }
    let uid = facts.daemons_uid().to_owned();
    let labelled = ListParams::default().labels(&selector(&uid));
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let pods = list("pods", &pods, labelled.clone()).await;
    let pods = facts.known(GapKind::DaemonPods, pods)?;
    facts.daemons = pods.map(|pods| {
        // A pod that ends comes before one that replaces it.
        let mut pods: Vec<DomainPod> = pods.iter().map(convert::pod).collect();
        pods.sort_by_key(|pod| (!pod.is_deleting, !pod.has_ended()));
        pods
    });
    let set = daemon_set(&sets, &uid).await;
    facts.daemon_set = facts.known(GapKind::DaemonSets, set)?;
    let cliques: Api<ComputeDomainClique> = Api::namespaced(client.clone(), &namespace);
    // The name decides, as for the controller: a clique may lack its label.
    let cliques = list("computedomaincliques", &cliques, ListParams::default()).await;
    let cliques = facts.known(GapKind::Cliques, cliques)?;
    facts.cliques = cliques.map(|cliques| {
        cliques.into_iter().filter_map(|clique| convert::clique(clique, &uid)).collect()
    });
    Ok(())
}

async fn daemon_set(sets: &Api<DaemonSet>, uid: &str) -> Result<DaemonSetFacts, ViewError> {
    let set = sets.get_opt(&daemon_set_name(uid)).await;
    let set = set.map_err(|error| ViewError::api("daemonsets", error))?;
    Ok(DaemonSetFacts {
        exists: set.is_some(),
        desired: set.and_then(|set| set.status).map_or(0, |status| status.desired_number_scheduled),
        warning: None,
    })
}

/// Name of a domain's `DaemonSet`.
pub(super) fn daemon_set_name(uid: &str) -> String {
    format!("computedomain-daemon-{uid}")
}

fn selector(uid: &str) -> String {
    format!("{LABEL_COMPUTE_DOMAIN}={uid}")
}

impl DomainFacts {
    /// What was read; `None` and a gap if the user lacks the right. Other failures end the command.
    fn known<T>(
        &mut self,
        kind: GapKind,
        answer: Result<T, ViewError>,
    ) -> Result<Option<T>, ViewError> {
        let error = match answer {
            Ok(found) => return Ok(Some(found)),
            Err(error) => error,
        };
        let Some(message) = error.forbidden() else { return Err(error) };
        if !self.gaps.iter().any(|gap| gap.kind == kind) {
            self.gaps.push(Gap { kind, message });
        }
        Ok(None)
    }
}
