//! A pod on each node that sees a GPU: what only a container shows of a host.
//!
//! The pod has a claim with `adminAccess`, which takes no GPU from anybody. Its start runs the agent's prepare, the CDI
//! spec and its hook through the node's own container runtime. Its program starts CUDA and lists the GPUs.

use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod, PodStatus};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{DeleteParams, ListParams, LogParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use octavo_api::names::CLASS_GPU;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{Finding, node};
use crate::error::ViewError;

/// Labels of the namespace that each run makes and deletes. The API server permits `adminAccess` where the first is.
const ADMIN_ACCESS: &str = "resource.kubernetes.io/admin-access";
const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const MANAGER: &str = "octavo-doctor";
/// Age in seconds at which a namespace is one of a run that was killed.
const OLD_SECONDS: i64 = 3600;
/// Remedy where the API server refuses.
const RIGHTS: &str =
    "see the message; a probe needs the rights to make namespaces, claims and pods";
/// Interval between looks at a pod, or at a namespace that goes.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Nodes that are probed at a time.
const MAX_CONCURRENT_PROBES: usize = 16;
/// Lines of a failed program that a finding has.
const LOG_LINES: i64 = 4;

/// Options of a probe.
#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// Image of the pods: one with `octavo`.
    pub image: String,
    /// Time for the pod of one node; `None` for no limit.
    pub timeout: Option<Duration>,
}

/// Probes nodes. Returns the findings and the number of nodes on which a container saw its GPU.
pub async fn probe(
    client: &Client,
    nodes: &[String],
    options: &ProbeOptions,
) -> (Vec<Finding>, usize) {
    let refused = |subject: &str, error: ViewError| {
        Finding::error(subject, format!("no probe pod could be made: {error}"), RIGHTS)
    };
    let namespace = match make_namespace(client).await {
        Ok(namespace) => namespace,
        Err(error) => return (vec![refused("cluster", error)], 0),
    };
    let (namespace, refused) = (namespace.as_str(), &refused);
    let probes = nodes.iter().enumerate().map(|(number, name)| async move {
        let probe = Probe { client, namespace, name: format!("probe-{number}"), node: name };
        probe.run(options).await.unwrap_or_else(|error| Some(refused(&node(name), error)))
    });
    let results: Vec<Option<Finding>> =
        futures::stream::iter(probes).buffer_unordered(MAX_CONCURRENT_PROBES).collect().await;
    let seen = results.iter().filter(|result| result.is_none()).count();
    let mut findings: Vec<_> = results.into_iter().flatten().collect();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    if let Err(error) = namespaces.delete(namespace, &DeleteParams::default()).await {
        let remedy = format!("kubectl delete namespace {namespace}");
        let problem = format!("the namespace of the probe pods could not be deleted: {error}");
        findings.push(Finding::warning("cluster", problem, &remedy));
    }
    (findings, seen)
}

/// Makes a namespace for this run, and deletes those of runs that were killed.
async fn make_namespace(client: &Client) -> Result<String, ViewError> {
    let failed = |error| ViewError::api("namespaces", error);
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let own = ListParams::default().labels(&format!("{MANAGED_BY}={MANAGER}"));
    for old in crate::fetch::list("namespaces", &namespaces, own).await? {
        let age = old.creation_timestamp().map(|time| Timestamp::now().duration_since(time.0));
        if age.is_some_and(|age| age.as_secs() > OLD_SECONDS) {
            namespaces.delete(&old.name_any(), &DeleteParams::default()).await.map_err(failed)?;
        }
    }
    let object = from_json(json!({"metadata": {"generateName": "octavo-doctor-", "labels": {
        ADMIN_ACCESS: "true", MANAGED_BY: MANAGER, POD_SECURITY: "baseline"}}}))?;
    let made = namespaces.create(&PostParams::default(), &object).await.map_err(failed)?;
    Ok(made.name_any())
}

/// The probe of one node.
struct Probe<'a> {
    client: &'a Client,
    namespace: &'a str,
    /// Name of claim and pod.
    name: String,
    node: &'a str,
}

impl Probe<'_> {
    /// Runs it; `None` if a container saw its GPU.
    async fn run(&self, options: &ProbeOptions) -> Result<Option<Finding>, ViewError> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), self.namespace);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace);
        let subject = node(self.node);
        let params = PostParams::default();
        let claim = claims.create(&params, &claim(&self.name)?).await;
        let claim = claim.map_err(|error| ViewError::api("resourceclaims", error))?;
        if !has_admin_access(&claim) {
            let problem = "the API server drops adminAccess, without which a probe takes a GPU";
            let remedy =
                "turn on the feature DRAAdminAccess, or probe without it by a pod of your own";
            return Ok(Some(Finding::warning(&subject, problem, remedy)));
        }
        let pod = pods.create(&params, &pod(&self.name, self.node, &options.image)?).await;
        pod.map_err(|error| ViewError::api("pods", error))?;
        let until = options.timeout.map(|timeout| Instant::now() + timeout);
        let status = loop {
            let pod = pods.get(&self.name).await.map_err(|error| ViewError::api("pods", error))?;
            let status = pod.status.unwrap_or_default();
            let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
            if has_ended || until.is_some_and(|until| Instant::now() > until) {
                break status;
            }
            sleep(POLL_INTERVAL).await;
        };
        match status.phase.as_deref() {
            Some("Succeeded") => Ok(None),
            Some("Failed") => {
                if let Some(error) = start_error(&status) {
                    return Ok(Some(not_started(&subject, Some(&error))));
                }
                let params = LogParams { tail_lines: Some(LOG_LINES), ..LogParams::default() };
                let log = pods.logs(&self.name, &params).await.unwrap_or_default();
                let problem = format!("a container cannot use its GPU: {}", log.trim());
                let remedy = "run nvidia-smi on the node; compare the versions of the driver's \
                              library and of its kernel module";
                Ok(Some(Finding::error(&subject, problem, remedy)))
            }
            _ => Ok(Some(not_started(&subject, self.last_warning().await?.as_deref()))),
        }
    }

    /// The last warning about the pod.
    async fn last_warning(&self) -> Result<Option<String>, ViewError> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), self.namespace);
        let selector = format!("involvedObject.name={},type=Warning", self.name);
        let found =
            crate::fetch::list("events", &events, ListParams::default().fields(&selector)).await?;
        let time = |event: &Event| {
            let last = event.last_timestamp.as_ref().map(|time| time.0);
            last.or(event.event_time.as_ref().map(|time| time.0))
        };
        Ok(found.into_iter().max_by_key(time).and_then(|event| event.message))
    }
}

/// Whether the API server kept the field.
fn has_admin_access(claim: &ResourceClaim) -> bool {
    let requests = claim.spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten());
    let mut exact = requests.filter_map(|request| request.exactly.as_ref());
    exact.any(|request| request.admin_access == Some(true))
}

/// Why no container ran, in the words of the runtime, or of the kubelet that rejected the pod.
fn start_error(status: &PodStatus) -> Option<String> {
    let Some(container) = status.container_statuses.as_ref().and_then(|found| found.first()) else {
        let words = [status.reason.clone(), status.message.clone()];
        return Some(words.into_iter().flatten().collect::<Vec<_>>().join(": "));
    };
    let ended = container.state.as_ref()?.terminated.as_ref()?;
    let is_start = matches!(ended.reason.as_deref(), Some("StartError" | "ContainerCannotRun"));
    ended.message.clone().filter(|_| is_start)
}

/// The finding about a pod whose container did not run to its end.
pub(super) fn not_started(subject: &str, event: Option<&str>) -> Finding {
    let event = event.unwrap_or("its events say nothing");
    let remedy = if event.contains("unresolvable CDI devices") {
        "let the container runtime read CDI specs from the agent's cdiRoot: enable_cdi and \
         cdi_spec_dirs of containerd, cdi_spec_dirs of CRI-O"
    } else if event.contains("octavo-cdi-hook") {
        "check that the host may execute agent.hookDir of the chart"
    } else if event.contains("ErrImage") || event.contains("pull") {
        let problem = format!("no probe pod could start: {event}");
        let remedy = "give an image with octavo that this node can pull without a secret: --image";
        return Finding::warning(subject, problem, remedy);
    } else if event.contains("Insufficient") || event.contains("nodes are available") {
        "let a pod onto the node: it may be cordoned, full, or without a free pod address"
    } else {
        "see `octavo explain pod` and the message above"
    };
    let problem = format!("no container with a GPU ran: {event}");
    Finding::error(subject, problem, remedy)
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
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [
                    {"key": "metadata.name", "operator": "In", "values": [node]}]}]}}},
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
