//! Reads what agents and the controller write about the health of GPUs: three lists, and which nodes have agents.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client, Resource, ResourceExt};
use octavo_api::{HealthPolicy, Maintenance, NodeHealth};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::HealthError;
use crate::error::ViewError;
use crate::fetch::{self, list};
use crate::shares::AGENT_LABELS;
use crate::snapshot::{ClusterSnapshot, Gap, GapKind};

/// The resource of the agents' objects.
pub(crate) const NODE_HEALTHS: &str = "nodehealths";
const POLICIES: &str = "healthpolicies";
const MAINTENANCES: &str = "maintenances";

/// What is known of the health of GPUs.
#[derive(Clone, Debug, Default)]
pub struct HealthFacts {
    /// Whether the cluster serves `NodeHealth`.
    pub is_defined: bool,
    /// What agents report, by node.
    pub nodes: BTreeMap<String, NodeHealth>,
    /// The policies by name.
    pub policies: BTreeMap<String, HealthPolicy>,
    /// Work on nodes by name.
    pub maintenances: BTreeMap<String, Maintenance>,
    /// Objects of another version.
    pub unreadable: Vec<Unreadable>,
    /// Nodes with a pod of an agent.
    pub agents: BTreeSet<String>,
    /// Objects that the user may not read.
    pub gaps: Vec<Gap>,
}

/// An object that was read and not understood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unreadable {
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Where and why.
    pub message: String,
}

/// Reads the facts. `NodeHealth` that the user may not read is an error, the rest is recorded as gaps.
pub async fn read(client: &Client) -> Result<HealthFacts, ViewError> {
    let mut facts = HealthFacts::default();
    let Some(found) = objects::<NodeHealth>(client, NODE_HEALTHS).await? else {
        return Ok(facts);
    };
    facts.is_defined = true;
    facts.nodes = facts.readable(found);
    match objects::<HealthPolicy>(client, POLICIES).await {
        Ok(found) => facts.policies = facts.readable(found.unwrap_or_default()),
        Err(error) => facts.gap(GapKind::HealthPolicies, error)?,
    }
    match objects::<Maintenance>(client, MAINTENANCES).await {
        Ok(found) => facts.maintenances = facts.readable(found.unwrap_or_default()),
        Err(error) => facts.gap(GapKind::Maintenances, error)?,
    }
    let agents = ListParams::default().labels(AGENT_LABELS);
    match list::<Pod>("pods", &Api::all(client.clone()), agents).await {
        Ok(pods) => {
            let nodes = pods.into_iter().filter_map(|pod| pod.spec?.node_name);
            facts.agents = nodes.collect();
        }
        Err(error) => facts.gap(GapKind::Pods, error)?,
    }
    Ok(facts)
}

/// Reads what holds GPUs: claims and slices. What the user may not read, or an old cluster does not serve, is left out.
pub async fn claims(client: &Client) -> Result<ClusterSnapshot, ViewError> {
    match fetch::for_top(client).await {
        Err(ViewError::Refused { code: 404, .. }) => Ok(ClusterSnapshot::default()),
        Err(error) => {
            let message = error.forbidden().ok_or(error)?;
            let gaps = vec![Gap { kind: GapKind::ClaimsElsewhere, message }];
            Ok(ClusterSnapshot { gaps, ..ClusterSnapshot::default() })
        }
        snapshot => snapshot,
    }
}

/// Reads the `NodeHealth` of one node.
pub async fn node(client: &Client, name: &str) -> Result<NodeHealth, ViewError> {
    let api = dynamic::<NodeHealth>(client);
    match api.get_opt(name).await {
        Ok(Some(object)) => parsed(object).map_err(|unread| {
            let (node, message) = (unread.name, unread.message);
            HealthError::Unreadable { node, message }.into()
        }),
        Ok(None) => {
            let known = objects::<NodeHealth>(client, NODE_HEALTHS).await?;
            let known = known.ok_or(HealthError::NoDefinition)?.into_iter();
            let known = known.map(|found| found.map_or_else(|it| it.name, |it| it.name_any()));
            Err(HealthError::NoNode { node: name.to_owned(), known: known.collect() }.into())
        }
        Err(error) => Err(ViewError::api(NODE_HEALTHS, error)),
    }
}

/// All objects of a kind, each as far as it is understood; `None` if the cluster does not serve the kind.
pub(crate) async fn objects<K>(
    client: &Client,
    resource: &'static str,
) -> Result<Option<Vec<Result<K, Unreadable>>>, ViewError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
{
    match list(resource, &dynamic::<K>(client), ListParams::default()).await {
        Ok(found) => Ok(Some(found.into_iter().map(parsed).collect())),
        Err(ViewError::Refused { code: 404, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The objects of a kind as they are, so that one of another version does not hide the others.
pub(super) fn dynamic<K: Resource<DynamicType = ()>>(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<K>(&()))
}

fn parsed<K>(object: DynamicObject) -> Result<K, Unreadable>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let name = object.name_any();
    let object = serde_json::to_value(object).and_then(serde_json::from_value);
    object.map_err(|error| Unreadable {
        kind: K::kind(&()).into_owned(),
        name,
        message: error.to_string(),
    })
}

impl HealthFacts {
    /// The objects by name. Those that are not understood are noted.
    fn readable<K: ResourceExt>(
        &mut self,
        found: Vec<Result<K, Unreadable>>,
    ) -> BTreeMap<String, K> {
        let mut readable = BTreeMap::new();
        for object in found {
            match object {
                Ok(object) => _ = readable.insert(object.name_any(), object),
                Err(unread) => self.unreadable.push(unread),
            }
        }
        readable
    }

    /// Notes what the user may not read. Another failure is an error.
    fn gap(&mut self, kind: GapKind, error: ViewError) -> Result<(), ViewError> {
        let message = error.forbidden().ok_or(error)?;
        self.gaps.push(Gap { kind, message });
        Ok(())
    }

    /// The error for a node that has no readable `NodeHealth`.
    pub(super) fn no_node(&self, node: &str) -> HealthError {
        let node = node.to_owned();
        if !self.is_defined {
            return HealthError::NoDefinition;
        }
        let unread = self.unreadable.iter();
        let mut unread = unread.filter(|it| it.kind == "NodeHealth" && it.name == node);
        if let Some(unread) = unread.next() {
            return HealthError::Unreadable { node, message: unread.message.clone() };
        }
        HealthError::NoNode { node, known: self.nodes.keys().cloned().collect() }
    }
}
