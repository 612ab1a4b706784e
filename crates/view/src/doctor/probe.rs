//! A pod on each node that sees a GPU: what only a container shows of a host.
//!
//! The pod has a claim with `adminAccess`, which takes no GPU from anybody. Its start runs the agent's prepare, the CDI
//! spec and its hook through the node's own container runtime. Its program starts CUDA and lists the GPUs.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod, PodStatus};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{DeleteParams, ListParams, LogParams, PostParams};
use kube::{Api, Client};
use octavo_api::names::CLASS_GPU;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{Finding, node};
use crate::error::ViewError;

/// Namespace of the pods, made and deleted by each run. The API server permits `adminAccess` in namespaces with the label.
const NAMESPACE: &str = "octavo-doctor";
const ADMIN_ACCESS: &str = "resource.kubernetes.io/admin-access";
/// Interval between looks at a pod, or at a namespace that goes.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Nodes that are probed at a time.
const MAX_CONCURRENT_PROBES: usize = 16;
/// Time for an earlier run's namespace to go.
const NAMESPACE_TIMEOUT: Duration = Duration::from_mins(1);
/// Lines of a failed program that a finding has.
const LOG_LINES: i64 = 4;

/// Options of a probe.
#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// Image of the pods: one with `octavo`.
    pub image: String,
    /// Time for the pod of one node.
    pub timeout: Duration,
}

/// Probes nodes. Returns the findings and the number of nodes on which a container saw its GPU.
pub async fn probe(
    client: &Client,
    nodes: &[String],
    options: &ProbeOptions,
) -> Result<(Vec<Finding>, usize), ViewError> {
    make_namespace(client).await?;
    let probes = nodes.iter().enumerate().map(|(number, name)| async move {
        of_node(client, &format!("probe-{number}"), name, options).await
    });
    let results: Vec<Result<Option<Finding>, ViewError>> =
        futures::stream::iter(probes).buffer_unordered(MAX_CONCURRENT_PROBES).collect().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let deleted = namespaces.delete(NAMESPACE, &DeleteParams::default()).await;
    deleted.map_err(|error| ViewError::api("namespaces", error))?;
    let results: Vec<_> = results.into_iter().collect::<Result<_, _>>()?;
    let seen = results.iter().filter(|result| result.is_none()).count();
    Ok((results.into_iter().flatten().collect(), seen))
}

/// Makes the namespace, once that of an earlier run is gone.
async fn make_namespace(client: &Client) -> Result<(), ViewError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let object = json!({"metadata": {"name": NAMESPACE, "labels": {ADMIN_ACCESS: "true"}}});
    let object: Namespace = from_json(object)?;
    let until = Instant::now() + NAMESPACE_TIMEOUT;
    loop {
        match namespaces.create(&PostParams::default(), &object).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 && Instant::now() < until => {
                // It may be going already.
                drop(namespaces.delete(NAMESPACE, &DeleteParams::default()).await);
                sleep(POLL_INTERVAL).await;
            }
            Err(error) => return Err(ViewError::api("namespaces", error)),
        }
    }
}

/// Probes a node; `None` if a container saw its GPU.
async fn of_node(
    client: &Client,
    name: &str,
    node_name: &str,
    options: &ProbeOptions,
) -> Result<Option<Finding>, ViewError> {
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let params = PostParams::default();
    let claim = claims.create(&params, &claim(name)?).await;
    claim.map_err(|error| ViewError::api("resourceclaims", error))?;
    let pod = pods.create(&params, &pod(name, node_name, &options.image)?).await;
    pod.map_err(|error| ViewError::api("pods", error))?;
    let until = Instant::now() + options.timeout;
    let (phase, status) = loop {
        let pod = pods.get(name).await.map_err(|error| ViewError::api("pods", error))?;
        let status = pod.status.unwrap_or_default();
        let phase = status.phase.clone().unwrap_or_default();
        if matches!(phase.as_str(), "Succeeded" | "Failed") || Instant::now() > until {
            break (phase, status);
        }
        sleep(POLL_INTERVAL).await;
    };
    let subject = node(node_name);
    let error = start_error(&status);
    match phase.as_str() {
        "Succeeded" => Ok(None),
        "Failed" if error.is_some() => {
            Ok(Some(not_started(&subject, options.timeout, error.as_deref())))
        }
        "Failed" => {
            let params = LogParams { tail_lines: Some(LOG_LINES), ..LogParams::default() };
            let log = pods.logs(name, &params).await.unwrap_or_default();
            let problem = format!("a container cannot use its GPU: {}", log.trim());
            let remedy = "run nvidia-smi on the node; compare the versions of the driver's library \
                          and of its kernel module";
            Ok(Some(Finding::error(&subject, problem, remedy)))
        }
        _ => {
            let events = last_warning(client, name).await?;
            Ok(Some(not_started(&subject, options.timeout, events.as_deref())))
        }
    }
}

/// The runtime's words about a container that it could not start.
fn start_error(status: &PodStatus) -> Option<String> {
    let ended = status.container_statuses.as_ref()?.first()?.state.as_ref()?.terminated.as_ref()?;
    let is_start = matches!(ended.reason.as_deref(), Some("StartError" | "ContainerCannotRun"));
    ended.message.clone().filter(|_| is_start)
}

/// The finding about a pod whose container did not run to its end.
pub(super) fn not_started(subject: &str, timeout: Duration, event: Option<&str>) -> Finding {
    let event = event.unwrap_or("its events say nothing");
    let remedy = if event.contains("unresolvable CDI devices") {
        "let the container runtime read CDI specs from the agent's cdiRoot: enable_cdi and \
         cdi_spec_dirs of containerd, cdi_spec_dirs of CRI-O"
    } else if event.contains("octavo-cdi-hook") {
        "check that the host may execute agent.hookDir of the chart"
    } else if event.contains("ErrImage") || event.contains("pull") {
        "give an image with octavo that this node can pull: --image"
    } else if event.contains("Insufficient") || event.contains("nodes are available") {
        "let a pod onto the node: it may be cordoned, full, or without a free pod address"
    } else {
        "see `octavo explain pod` and the message above"
    };
    let seconds = timeout.as_secs();
    let problem = format!("no container with a GPU ran within {seconds} s: {event}");
    Finding::error(subject, problem, remedy)
}

/// The last warning about a pod.
async fn last_warning(client: &Client, pod: &str) -> Result<Option<String>, ViewError> {
    let events: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    let params = ListParams::default().fields(&format!("involvedObject.name={pod},type=Warning"));
    let found = crate::fetch::list("events", &events, params).await?;
    // Repeated events count up, so their order by time is not that of their names.
    let by_time: BTreeMap<_, _> = found
        .into_iter()
        .map(|event| {
            let at = event.last_timestamp.as_ref().map(|time| time.0);
            let at = at.or(event.event_time.as_ref().map(|time| time.0));
            (at, event)
        })
        .collect();
    Ok(by_time.into_values().next_back().and_then(|event| event.message))
}

fn claim(name: &str) -> Result<ResourceClaim, ViewError> {
    from_json(json!({
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
            "deviceClassName": CLASS_GPU, "adminAccess": true,
            "selectors": [{"cel": {"expression": "device.attributes['gpu.nvidia.com'].type == 'gpu'"}}],
            "tolerations": [{"operator": "Exists"}],
        }}]}},
    }))
}

fn pod(name: &str, node: &str, image: &str) -> Result<Pod, ViewError> {
    from_json(json!({
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
            "containers": [{
                "name": "probe", "image": image, "imagePullPolicy": "IfNotPresent",
                "command": ["octavo", "probe", "--seen"],
                "resources": {"claims": [{"name": "gpu"}]},
            }],
        },
    }))
}

/// An object of constants and names, which is always valid.
fn from_json<T: serde::de::DeserializeOwned>(object: serde_json::Value) -> Result<T, ViewError> {
    serde_json::from_value(object)
        .map_err(|error| ViewError::Encode { format: "JSON", message: error.to_string() })
}
