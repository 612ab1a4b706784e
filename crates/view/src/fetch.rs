//! Reading a [`ClusterSnapshot`] from the API server: a few paged lists, no watch.

mod allocator;
mod convert;

use k8s_openapi::api::core::v1::{Event as KubeEvent, Node, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use kube::api::ListParams;
use kube::{Api, Client};
use octavo_api::names::AGENT_CONTROLLER;
use serde::de::DeserializeOwned;

use crate::error::ViewError;
use crate::explain::{AllocatorInput, Event};
use crate::snapshot::{ClaimSource, ClusterSnapshot, DRIVER, Gap, GapKind, ObjectName};

pub(crate) use convert::event as event_of;

/// Objects in one answer of the API server; bounds its memory and ours in a large cluster.
const PAGE_SIZE: u32 = 500;
/// Namespace of events about objects without a namespace.
const NODE_EVENTS_NAMESPACE: &str = "default";

/// Reads the input of `top`: nodes, slices of the driver and all claims.
///
/// Unreadable nodes are recorded as a gap. Unreadable slices or claims are an error, because the
/// report would be wrong without them.
pub async fn for_top(client: &Client) -> Result<ClusterSnapshot, ViewError> {
    let mut snapshot = ClusterSnapshot::default();
    read_slices(client, &mut snapshot).await?;
    read_claims(&Api::all(client.clone()), &mut snapshot).await?;
    if let Err(error) = read_nodes(client, &mut snapshot).await {
        record_gap(&mut snapshot, GapKind::Nodes, error)?;
    }
    Ok(snapshot)
}

/// Reads the input of `explain pod`: the pod, its events and the objects that it competes for.
/// Users may lack the right to read beyond their own namespace; missing parts are recorded as gaps.
pub async fn for_pod(
    client: &Client,
    name: &ObjectName,
) -> Result<(ClusterSnapshot, Vec<Event>), ViewError> {
    let mut snapshot = ClusterSnapshot::default();
    let namespace = &*name.namespace;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = match pods.get_opt(&name.name).await {
        Ok(Some(pod)) => pod,
        Ok(None) => return Err(missing_pod(client, name).await),
        Err(error) => return Err(ViewError::api("pods", error)),
    };
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let containers = allocator::containers(&pod);
    let pod = convert::pod(pod);
    // A pod without claims needs none of this, and only an unscheduled pod has competitors. In a
    // large cluster, reading takes most of the time.
    if !pod.claims.is_empty() || !pod.extended.is_empty() {
        let competes = pod.node.is_none() && pod.phase == "Pending";
        if competes {
            snapshot.allocator = Some(AllocatorInput { containers, ..AllocatorInput::default() });
        }
        read_templates(client, namespace, &pod.claims, &mut snapshot).await?;
        read_devices(client, namespace, competes, &mut snapshot).await?;
    }
    snapshot.pods.insert(name.clone(), pod);
    let events = match read_events(client, name, &uid).await {
        Ok(events) => events,
        Err(error) => {
            record_gap(&mut snapshot, GapKind::Events, error)?;
            Vec::new()
        }
    };
    Ok((snapshot, events))
}

/// Reads claims and devices: all that a pod of the namespace competes for, or only those of its own
/// claims.
async fn read_devices(
    client: &Client,
    namespace: &str,
    competes: bool,
    into: &mut ClusterSnapshot,
) -> Result<(), ViewError> {
    let own = Api::namespaced(client.clone(), namespace);
    if !competes {
        read_claims(&own, into).await?;
    } else if let Err(error) = read_claims(&Api::all(client.clone()), into).await {
        record_gap(into, GapKind::ClaimsElsewhere, error)?;
        read_claims(&own, into).await?;
    }
    if let Err(error) = read_slices(client, into).await {
        record_gap(into, GapKind::Slices, error)?;
        into.allocator = None;
    }
    if let Err(error) = read_classes(client, into).await {
        record_gap(into, GapKind::Classes, error)?;
        into.allocator = None;
    }
    if competes && let Err(error) = read_nodes(client, into).await {
        record_gap(into, GapKind::Nodes, error)?;
        // Without node labels the verdict is limited, but the devices are known.
        allocator::nodes_of_slices(into);
    }
    if competes && let Err(error) = read_node_warnings(client, into).await {
        record_gap(into, GapKind::NodeEvents, error)?;
    }
    Ok(())
}

async fn read_slices(client: &Client, into: &mut ClusterSnapshot) -> Result<(), ViewError> {
    // An allocator needs all; else the API server selects, so that other drivers' devices never travel.
    let params = match into.allocator {
        Some(_) => ListParams::default(),
        None => ListParams::default().fields(&format!("spec.driver={DRIVER}")),
    };
    let mut slices: Vec<ResourceSlice> =
        list("resourceslices", &Api::all(client.clone()), params).await?;
    slices.sort_by(|left, right| left.metadata.name.cmp(&right.metadata.name));
    let mut readable = Vec::with_capacity(slices.len());
    let mut unread = allocator::UnreadableObjects::default();
    for slice in &slices {
        match octavo_kube_io::slices::from_api(slice) {
            Ok(slice) => readable.push(slice),
            // Its pool then lacks a slice and is shown as incomplete.
            Err(error) => unread.add(&slice.metadata, &error),
        }
    }
    unread.record("ResourceSlice", into);
    let ours = readable.iter().filter(|slice| slice.driver == DRIVER).cloned();
    into.pools = crate::snapshot::newest_generations(ours);
    if let Some(input) = &mut into.allocator {
        input.slices = readable;
    }
    Ok(())
}

async fn read_claims(
    api: &Api<ResourceClaim>,
    into: &mut ClusterSnapshot,
) -> Result<(), ViewError> {
    let claims = list("resourceclaims", api, ListParams::default()).await?;
    allocator::add_claims(into, &claims);
    into.claims = claims.into_iter().map(convert::claim).collect();
    Ok(())
}

async fn read_nodes(client: &Client, into: &mut ClusterSnapshot) -> Result<(), ViewError> {
    let nodes: Vec<Node> = list("nodes", &Api::all(client.clone()), ListParams::default()).await?;
    if let Some(input) = &mut into.allocator {
        allocator::add_nodes(input, &nodes);
    }
    into.nodes = nodes.into_iter().map(convert::node).collect();
    Ok(())
}

async fn read_classes(client: &Client, into: &mut ClusterSnapshot) -> Result<(), ViewError> {
    let classes: Vec<DeviceClass> =
        list("deviceclasses", &Api::all(client.clone()), ListParams::default()).await?;
    allocator::add_classes(into, &classes);
    into.classes = classes.into_iter().map(convert::class).collect();
    Ok(())
}

async fn read_templates(
    client: &Client,
    namespace: &str,
    claims: &[crate::snapshot::PodClaim],
    into: &mut ClusterSnapshot,
) -> Result<(), ViewError> {
    let api: Api<ResourceClaimTemplate> = Api::namespaced(client.clone(), namespace);
    for claim in claims {
        let ClaimSource::ResourceClaimTemplate(template) = &claim.source else { continue };
        match api.get_opt(template).await {
            Ok(Some(_)) => {
                into.templates.insert(ObjectName::new(namespace, template));
            }
            Ok(None) => {}
            Err(error) => {
                record_gap(
                    into,
                    GapKind::Templates,
                    ViewError::api("resourceclaimtemplates", error),
                )?;
            }
        }
    }
    Ok(())
}

async fn read_events(
    client: &Client,
    name: &ObjectName,
    uid: &str,
) -> Result<Vec<Event>, ViewError> {
    let api: Api<KubeEvent> = Api::namespaced(client.clone(), &name.namespace);
    let selector = format!("involvedObject.name={},involvedObject.uid={uid}", name.name);
    let events = list("events", &api, ListParams::default().fields(&selector)).await?;
    let mut events: Vec<Event> = events.into_iter().map(convert::event).collect();
    events.sort();
    Ok(events)
}

/// Reads the agents' warnings about their nodes, such as a GPU that cannot be offered as asked.
async fn read_node_warnings(client: &Client, into: &mut ClusterSnapshot) -> Result<(), ViewError> {
    let api: Api<KubeEvent> = Api::namespaced(client.clone(), NODE_EVENTS_NAMESPACE);
    let selector =
        format!("involvedObject.kind=Node,type=Warning,reportingComponent={AGENT_CONTROLLER}");
    for event in list("events", &api, ListParams::default().fields(&selector)).await? {
        let Some(node) = event.involved_object.name.clone() else { continue };
        into.node_warnings.entry(node).or_default().push(convert::event(event));
    }
    for warnings in into.node_warnings.values_mut() {
        warnings.sort();
    }
    Ok(())
}

/// Lists all pages. If the continue token expires (410), the list restarts once.
pub async fn list<K>(
    kind: &'static str,
    api: &Api<K>,
    params: ListParams,
) -> Result<Vec<K>, ViewError>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = params.limit(PAGE_SIZE);
    let mut retried = false;
    let mut found = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let page = match &next {
            Some(token) => params.clone().continue_token(token),
            None => params.clone(),
        };
        match api.list(&page).await {
            Ok(list) => {
                found.extend(list.items);
                next = list.metadata.continue_.filter(|token| !token.is_empty());
                if next.is_none() {
                    return Ok(found);
                }
            }
            Err(kube::Error::Api(status)) if status.code == 410 && !retried => {
                retried = true;
                next = None;
                found.clear();
            }
            Err(error) => return Err(ViewError::api(kind, error)),
        }
    }
}

/// Records an object kind that the user may not read. Any other failure, such as no connection or a
/// server error, ends the command.
fn record_gap(
    into: &mut ClusterSnapshot,
    kind: GapKind,
    error: ViewError,
) -> Result<(), ViewError> {
    let Some(message) = error.forbidden() else { return Err(error) };
    if !into.lacks(kind) {
        into.gaps.push(Gap { kind, message });
    }
    Ok(())
}

/// The error for a missing pod: whether its namespace exists, and which namespaces have a pod of
/// this name.
async fn missing_pod(client: &Client, name: &ObjectName) -> ViewError {
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    if let Ok(None) = namespaces.get_opt(&name.namespace).await {
        return ViewError::NoNamespace { namespace: name.namespace.clone() };
    }
    let params = ListParams::default().fields(&format!("metadata.name={}", name.name));
    let elsewhere = list::<Pod>("pods", &Api::all(client.clone()), params)
        .await
        .map(|pods| pods.into_iter().filter_map(|pod| pod.metadata.namespace).collect())
        .unwrap_or_default();
    ViewError::NoPod { pod: name.clone(), elsewhere }
}

#[cfg(test)]
mod tests;
