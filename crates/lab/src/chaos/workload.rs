//! The objects of a run: a policy by which agents act at once, and a Deployment whose pods have a GPU each.

use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DeleteParams, ListParams};
use kube::core::DynamicObject;
use kube::{Api, Client};
use octavo_api::health_policy::HealthPolicy;
use octavo_api::names::{LABEL_GPU_PRESENT, LABEL_OWNER, OWNER_OCTAVO};
use serde_json::{Value, json};

use crate::cli::tour::delete_namespace;
use crate::cluster::apply;

/// Namespace of the pods.
pub(super) const NAMESPACE: &str = NAME;
/// Name of the namespace, the policy and the Deployment.
const NAME: &str = "octavo-chaos";
/// Time for the namespace to be gone.
const REMOVE_TIMEOUT: Duration = Duration::from_mins(2);

/// The objects of a run.
pub(super) struct Workload {
    client: Client,
    pods: usize,
}

impl Workload {
    /// Creates them, for a number of pods.
    pub(super) async fn create(client: &Client, pods: usize) -> anyhow::Result<Self> {
        let policies: Api<HealthPolicy> = Api::all(client.clone());
        let found = policies.list(&ListParams::default()).await.context("list health policies")?;
        let others = found.iter().filter_map(|policy| policy.metadata.name.as_deref());
        if let Some(other) = others.into_iter().find(|name| *name != NAME) {
            bail!("the HealthPolicy {other} would apply beside that of the run: delete it first");
        }
        let is_octavo_s = is_octavo_s(client).await?;
        let objects: Vec<DynamicObject> =
            [namespace(), policy(), claim_template(), deployment(pods, is_octavo_s)]
                .into_iter()
                .map(serde_json::from_value)
                .collect::<Result<_, _>>()
                .context("make the objects of the run")?;
        let workload = Self { client: client.clone(), pods };
        apply::apply(client, &objects).await.context("apply the objects of the run")?;
        Ok(workload)
    }

    /// Number of the pods.
    pub(super) fn pods(&self) -> usize {
        self.pods
    }

    /// Removes the objects, and waits until they are gone.
    pub(super) async fn remove(self) -> anyhow::Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), NAME);
        let deleted = deployments.delete(NAME, &DeleteParams::default()).await;
        deleted.context("delete the Deployment of the run")?;
        delete_namespace(&self.client, NAME, REMOVE_TIMEOUT).await?;
        let policies: Api<HealthPolicy> = Api::all(self.client);
        let deleted = policies.delete(NAME, &DeleteParams::default()).await;
        deleted.map(drop).context("delete the policy of the run")
    }
}

/// Whether Octavo's scheduler owns the nodes.
async fn is_octavo_s(client: &Client) -> anyhow::Result<bool> {
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    let owned = ListParams::default().labels(&format!("{LABEL_OWNER}={OWNER_OCTAVO}"));
    Ok(!nodes.list_metadata(&owned).await.context("list nodes")?.items.is_empty())
}

fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}})
}

/// Acts at once, without limits, and trusts GPUs again: the faults of a month come within minutes. The driver's word is the test, since
/// the simulated driver interprets the kernels of the other one, which takes longer than all else.
fn policy() -> Value {
    json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "HealthPolicy", "metadata": {"name": NAME},
        "spec": {
            "nodeSelector": {LABEL_GPU_PRESENT: "true"},
            "mode": "Act",
            "evict": true,
            "test": "Driver",
            "budget": {"remediesPercent": 100, "remediesPerRack": 1_000, "evictionsPercent": 100},
            "breaker": {"percent": 100, "nodes": 1_000_000},
            "times": {
                "watchSeconds": 5, "probationSeconds": 5, "relapseSeconds": 0, "relapses": 16,
                "remedyLimitSeconds": 180, "stuckClientsSeconds": 30,
                "shortTestSeconds": 1, "nodeTestSeconds": 1, "burnInSeconds": 1,
            },
        },
    })
}

fn claim_template() -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": NAME, "namespace": NAME},
        "spec": {"spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
        ]}}},
    })
}

fn deployment(pods: usize, is_octavo_s: bool) -> Value {
    let labels = json!({"app": NAME});
    let scheduler = if is_octavo_s { OWNER_OCTAVO } else { "default-scheduler" };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": NAME},
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "schedulerName": scheduler,
                    "terminationGracePeriodSeconds": 0,
                    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": NAME}],
                    "containers": [{
                        "name": "main", "image": "octavo.dev/chaos",
                        "resources": {"claims": [{"name": "gpu"}]},
                    }],
                },
            },
        },
    })
}
