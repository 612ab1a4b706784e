//! What helm does not remove, because programs wrote it: labels of nodes, slices, leases and definitions.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{ResourceClaimTemplate, ResourceSlice};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use octavo_api::names::{
    AGENT_CONTROLLER, ANNOTATION_LEAVING, DISCOVER_MANAGER, DRIVER, DRIVER_COMPUTE_DOMAIN,
    FEATURE_LABELS_MANAGER, LABEL_DRIVER_RELEASED, LABEL_DYNAMIC_MIG, LABEL_MODE, LABEL_OWNER,
    LABEL_TRANSLATED, MIG_MANAGER,
};
use octavo_view::ViewError;
use octavo_view::fetch::list;
use serde_json::{Map, Value, json};
use tokio::time::{sleep, timeout};

use crate::facts::{dynamic, plural};
use crate::objects::{annotation, name, text};
use crate::owner::{Release, of_release};
use crate::progress::report;

/// Interval of looks at a definition that is being removed, and the longest wait for its end.
const INTERVAL: Duration = Duration::from_millis(200);
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Node labels with which people say how the agent works.
const OWN_LABELS: [&str; 4] = [LABEL_MODE, LABEL_OWNER, LABEL_DYNAMIC_MIG, LABEL_DRIVER_RELEASED];
/// Field managers of NVIDIA's labels that the agent and `octavo discover` write.
const MANAGERS: [&str; 4] =
    [AGENT_CONTROLLER, FEATURE_LABELS_MANAGER, MIG_MANAGER, DISCOVER_MANAGER];

/// Removes the labels of nodes that a release's programs, or people for them, have set.
///
/// # Errors
///
/// A node cannot be changed.
pub(crate) async fn remove_labels(client: &Client, nodes: &BTreeSet<String>) -> anyhow::Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    for found in list("nodes", &api, ListParams::default()).await? {
        let name = found.metadata.name.unwrap_or_default();
        let managers = found.metadata.managed_fields.unwrap_or_default();
        let uid = found.metadata.uid.unwrap_or_default();
        for manager in MANAGERS {
            if managers.iter().any(|entry| entry.manager.as_deref() == Some(manager)) {
                // What a manager applies no more goes, if no other program has it, too.
                // With the UID, a node that is gone meanwhile is not made again.
                let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"uid": uid}});
                let params = PatchParams::apply(manager).force();
                let patch = api.patch_metadata(&name, &params, &Patch::Apply(&object)).await;
                gone(patch.map(drop))
                    .with_context(|| format!("labels of node {name} cannot be removed"))?;
            }
        }
        let labels = found.metadata.labels.unwrap_or_default();
        let own = OWN_LABELS.into_iter().filter(|key| labels.contains_key(*key));
        let own: Map<String, Value> = own.map(|key| (key.to_owned(), Value::Null)).collect();
        if nodes.contains(&name) && !own.is_empty() {
            let patch = Patch::Merge(json!({"metadata": {
                "labels": own, "annotations": {ANNOTATION_LEAVING: Value::Null},
            }}));
            let patch = api.patch_metadata(&name, &PatchParams::default(), &patch).await;
            gone(patch.map(drop))
                .with_context(|| format!("labels of node {name} cannot be removed"))?;
        }
    }
    Ok(())
}

/// Removes the slices of nodes.
///
/// # Errors
///
/// One cannot be removed.
pub(crate) async fn remove_slices(client: &Client, nodes: &BTreeSet<String>) -> anyhow::Result<()> {
    let api: Api<ResourceSlice> = Api::all(client.clone());
    for driver in [DRIVER, DRIVER_COMPUTE_DOMAIN] {
        let of_driver = ListParams::default().fields(&format!("spec.driver={driver}"));
        for slice in list("resourceslices", &api, of_driver).await? {
            let name = slice.metadata.name.unwrap_or_default();
            if slice.spec.node_name.is_some_and(|node| nodes.contains(&node)) {
                gone(api.delete(&name, &DeleteParams::default()).await.map(drop))
                    .with_context(|| format!("ResourceSlice {name} cannot be removed"))?;
            }
        }
    }
    Ok(())
}

/// The names of the leases that a release's programs may have made, also those that are turned off now. They begin as the names of
/// its workloads do.
///
/// # Errors
///
/// The cluster cannot be read.
pub(crate) async fn leases(client: &Client, release: &Release) -> Result<Vec<String>, ViewError> {
    let labels = || ListParams::default().labels(&of_release(release));
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), &release.namespace);
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &release.namespace);
    let sets = list("daemonsets", &sets, labels()).await?.into_iter().map(|it| it.metadata);
    let deployments = list("deployments", &deployments, labels()).await?.into_iter();
    let mut workloads = sets.chain(deployments.map(|it| it.metadata));
    let prefix = workloads.find_map(|meta| {
        let component = meta.labels?.remove("app.kubernetes.io/component")?;
        Some(meta.name?.strip_suffix(&format!("-{component}"))?.to_owned())
    });
    let prefix = prefix.unwrap_or_else(|| release.name.clone());
    Ok(["scheduler", "controller"].map(|component| format!("{prefix}-{component}")).into())
}

/// Removes leases.
///
/// # Errors
///
/// One cannot be removed.
pub(crate) async fn remove_leases(
    client: &Client,
    release: &Release,
    names: &[String],
) -> anyhow::Result<()> {
    let api: Api<Lease> = Api::namespaced(client.clone(), &release.namespace);
    for name in names {
        gone(api.delete(name, &DeleteParams::default()).await.map(drop))
            .with_context(|| format!("Lease {name} cannot be removed"))?;
    }
    Ok(())
}

/// Removes the claim templates that the controller's webhook made. No pod needs them any more.
///
/// # Errors
///
/// One cannot be removed.
pub(crate) async fn remove_templates(client: &Client) -> anyhow::Result<()> {
    let all: Api<ResourceClaimTemplate> = Api::all(client.clone());
    let translated = ListParams::default().labels(&format!("{LABEL_TRANSLATED}=true"));
    for template in list("resourceclaimtemplates", &all, translated).await? {
        let (namespace, name) = (
            template.metadata.namespace.unwrap_or_default(),
            template.metadata.name.unwrap_or_default(),
        );
        let api: Api<ResourceClaimTemplate> = Api::namespaced(client.clone(), &namespace);
        gone(api.delete(&name, &DeleteParams::default()).await.map(drop)).with_context(|| {
            format!("ResourceClaimTemplate {namespace}/{name} cannot be removed")
        })?;
    }
    Ok(())
}

/// What agents write of their nodes. No person made it, so it goes with them.
const NODE_HEALTHS: &str = "nodehealths.octavo.dev";

/// Removes the definitions of a release's custom resources that helm has kept. Those with objects stay, unless `all` go, or agents
/// wrote them.
///
/// # Errors
///
/// One cannot be read or removed.
pub(crate) async fn remove_definitions(
    client: &Client,
    release: &Release,
    all: bool,
) -> anyhow::Result<()> {
    let kind = "CustomResourceDefinition";
    let api = dynamic(client, "apiextensions.k8s.io/v1", kind, plural(kind));
    let of_octavo = ListParams::default().labels("app.kubernetes.io/part-of=octavo");
    for definition in list("customresourcedefinitions", &api, of_octavo).await? {
        let definition = serde_json::to_value(&definition)?;
        let theirs = Release {
            namespace: annotation(&definition, "meta.helm.sh/release-namespace").to_owned(),
            name: annotation(&definition, "meta.helm.sh/release-name").to_owned(),
        };
        if theirs != *release {
            continue;
        }
        let name = name(&definition);
        let goes = all || name == NODE_HEALTHS;
        let left = if goes { 0 } else { objects_of(client, &definition).await? };
        if left > 0 {
            report(&format!(
                "{name} stays: there are {left} objects of it; `octavo uninstall --crds` would remove them"
            ));
            continue;
        }
        gone(api.delete(name, &DeleteParams::default()).await.map(drop))
            .with_context(|| format!("CustomResourceDefinition {name} cannot be removed"))?;
        let is_gone = async {
            while api.get_metadata_opt(name).await?.is_some() {
                sleep(INTERVAL).await;
            }
            Ok::<_, kube::Error>(())
        };
        match timeout(REMOVAL_TIMEOUT, is_gone).await {
            Ok(read) => read.with_context(|| format!("{name} cannot be read"))?,
            Err(_) => {
                report(&format!("{name} is being removed; finalizers of its objects may keep it"));
            }
        }
    }
    Ok(())
}

/// How many objects there are of a definition.
async fn objects_of(client: &Client, definition: &Value) -> Result<usize, ViewError> {
    let group = text(definition, "/spec/group");
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let served = versions.into_iter().flatten().find(|version| version["served"] == true);
    let version = served.map(|version| text(version, "/name")).unwrap_or_default();
    let (kind, plural) =
        (text(definition, "/spec/names/kind"), text(definition, "/spec/names/plural"));
    let api = dynamic(client, &format!("{group}/{version}"), kind, plural);
    Ok(list("custom resources", &api, ListParams::default()).await?.len())
}

/// What is not there, or is another object by now, need not be removed.
fn gone(result: kube::Result<()>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        result => result,
    }
}
