//! The controller of `ComputeDomains`: its lease, and the namespace of the driver.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use crate::error::ViewError;
use crate::fetch::list;
use crate::scheduler::{LeaseName, LeaseProblem, lease_holder};

/// Labels of the controller's pods, for any release name.
const LABELS: &str = "app.kubernetes.io/part-of=octavo,app.kubernetes.io/component=controller";

/// What the controller's lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Controller {
    /// The lease that was read. Its namespace is that of the driver.
    pub(crate) lease: LeaseName,
    /// Its holder, or why it names none.
    pub(crate) holder: Result<String, LeaseProblem>,
}

impl Controller {
    /// What is wrong, as a sentence; `None` while a controller is active.
    pub(crate) fn problem(&self) -> Option<String> {
        let problem = self.holder.as_ref().err()?;
        Some(format!("no controller is active: the Lease {} {problem}", self.lease))
    }

    /// Whether the lease may not be read: then nothing is known.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self.holder, Err(LeaseProblem::Forbidden { .. }))
    }

    /// What to do where none is active.
    pub(crate) fn remedy(&self) -> String {
        let namespace = self.lease.namespace();
        match &self.holder {
            Ok(holder) => {
                format!("read the controller's log: kubectl logs -n {namespace} {holder}")
            }
            Err(LeaseProblem::Missing) => {
                "install the chart with computeDomains.enabled=true; --controller-lease \
                 NAMESPACE/NAME names another Lease"
                    .to_owned()
            }
            Err(LeaseProblem::Forbidden { .. }) => {
                format!("ask an administrator for the right to get the Lease {}", self.lease)
            }
            Err(_) => {
                format!("see the controller's pods: kubectl get pods -n {namespace} -l {LABELS}")
            }
        }
    }
}

/// Finds the controller: by the lease that is named, else by the default one, else by the chart's pods.
pub(crate) async fn find(
    client: &Client,
    named: Option<&LeaseName>,
    now: Timestamp,
) -> Result<Controller, ViewError> {
    let lease = named.cloned().unwrap_or_else(LeaseName::controller);
    let found = read(client, lease, now).await?;
    if named.is_some() || !matches!(found.holder, Err(LeaseProblem::Missing)) {
        return Ok(found);
    }
    let pods: Api<Pod> = Api::all(client.clone());
    let pods = match list("pods", &pods, ListParams::default().labels(LABELS)).await {
        Ok(pods) => pods,
        Err(error) if error.forbidden().is_some() => return Ok(found),
        Err(error) => return Err(error),
    };
    match pods.iter().find_map(lease_of) {
        Some(lease) if lease != found.lease => read(client, lease, now).await,
        _ => Ok(found),
    }
}

async fn read(client: &Client, lease: LeaseName, now: Timestamp) -> Result<Controller, ViewError> {
    let holder = lease_holder(client, &lease, now).await?;
    Ok(Controller { lease, holder: holder.map(|holder| holder.identity) })
}

/// The lease of a pod of the chart. It is named like the Deployment, the `ReplicaSet` like that and a hash.
fn lease_of(pod: &Pod) -> Option<LeaseName> {
    let owner = pod.owner_references().iter().find(|owner| owner.kind == "ReplicaSet")?;
    let (deployment, _) = owner.name.rsplit_once('-')?;
    Some(LeaseName::new(pod.namespace()?, deployment))
}

#[cfg(test)]
mod tests {
    use octavo_testkit::{ScriptedApi, failure};
    use serde_json::json;

    use super::*;
    use crate::fixtures::now;

    #[tokio::test]
    async fn a_release_in_another_namespace_is_found_by_its_pods() {
        let api = ScriptedApi::new(|request| match request.uri().path() {
            "/apis/coordination.k8s.io/v1/namespaces/gpus/leases/o-octavo-controller" => {
                let spec = json!({
                    "holderIdentity": "o-octavo-controller-5d-x", "leaseDurationSeconds": 15,
                    "renewTime": "2026-01-05T11:59:55.000000Z",
                });
                (200, json!({"metadata": {"name": "l"}, "spec": spec}))
            }
            "/api/v1/pods" => {
                let owner = json!({
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o-octavo-controller-5d",
                    "uid": "u",
                });
                let metadata =
                    json!({"namespace": "gpus", "name": "p", "ownerReferences": [owner]});
                (200, json!({"metadata": {}, "items": [{"metadata": metadata}]}))
            }
            path => failure(404, path),
        });
        let found = find(&api.client(), None, now()).await.unwrap();
        assert_eq!(found.lease.to_string(), "gpus/o-octavo-controller");
        assert_eq!(found.holder.as_deref(), Ok("o-octavo-controller-5d-x"));
        assert_eq!(found.problem(), None);
        let named = LeaseName::new("a", "b");
        let found = find(&api.client(), Some(&named), now()).await.unwrap();
        assert!(found.problem().unwrap().contains("the Lease a/b does not exist"));
    }
}
