//! The time that a GPU adds to a pod's start on a real node: kubelet, containerd and runc, with and
//! without a claim in turn, and with and without a GPU of the device plugin.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use octavo_api::names::{EXTENDED_RESOURCE_GPU, LABEL_MODE};
use octavo_figure::{Figure, Goal, percentile};
use octavo_lab::{Lab, TOOLS_IMAGE, real_node_obstacle};
use serde_json::{Value, json};

use futures::TryStreamExt as _;

use crate::lab_dir::LabDir;

/// Pods of each kind.
const PODS: usize = 25;
/// Timeout for one pod.
const POD_TIMEOUT: Duration = Duration::from_mins(2);

/// What a pod asks for.
#[derive(Clone, Copy)]
enum Demand {
    Nothing,
    /// A claim, with this request of the class of whole GPUs.
    Claim(&'static str),
    /// A GPU of the device plugin.
    Resource,
}

/// The kinds of pods in each mode of the node, started in turn. The first has no GPU.
const CLAIMING: [(&str, Demand); 3] = [
    ("without a claim", Demand::Nothing),
    ("with a claim for a GPU", Demand::Claim("{}")),
    (
        "with a claim for a share",
        Demand::Claim(r#"{"capacity": {"requests": {"memory": "10Gi", "compute": "10"}}}"#),
    ),
];
const COUNTING: [(&str, Demand); 2] = [
    ("without a GPU, beside a device plugin", Demand::Nothing),
    ("with a GPU of the device plugin", Demand::Resource),
];

/// Brings up a lab of one real node and measures pod starts on it.
pub(crate) async fn run(octavo: &Path) -> anyhow::Result<Vec<Figure>> {
    if let Some(obstacle) = real_node_obstacle() {
        bail!("this machine can have no real node: {obstacle}");
    }
    let lab_dir = LabDir::new()?;
    let mut options = lab_dir.control_plane_only(octavo);
    options.real_nodes = Some("1".parse()?);
    let lab = Box::pin(Lab::up(options)).await?;
    let figures = Box::pin(measure(&lab)).await;
    lab.down().await?;
    figures
}

async fn measure(lab: &Lab) -> anyhow::Result<Vec<Figure>> {
    let client = lab.client().await?;
    let mut figures = compare(&client, &CLAIMING).await?;
    let node = &lab.real_nodes().first().context("the lab has no real node")?.name;
    use_device_plugin(&client, node).await?;
    figures.extend(compare(&client, &COUNTING).await?);
    Ok(figures)
}

/// Gives the node the mode of the device plugin, and waits until its kubelet counts GPUs.
async fn use_device_plugin(client: &Client, node: &str) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": {LABEL_MODE: "device-plugin"}}}));
    nodes.patch_metadata(node, &PatchParams::default(), &patch).await?;
    let deadline = Instant::now() + POD_TIMEOUT;
    loop {
        let status = nodes.get(node).await?.status.unwrap_or_default();
        let count = status.allocatable.and_then(|mut all| all.remove(EXTENDED_RESOURCE_GPU));
        if count.is_some_and(|count| count.0 != "0") {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("the kubelet counts no GPU within {POD_TIMEOUT:?}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Starts pods of these kinds in turn, and compares each with the first.
async fn compare(client: &Client, kinds: &[(&str, Demand)]) -> anyhow::Result<Vec<Figure>> {
    let mut samples = vec![Vec::new(); kinds.len()];
    // The first pods of a node initialize what later pods reuse.
    for round in 0..=PODS {
        for (index, (_, demand)) in kinds.iter().enumerate() {
            let took = start(client, &format!("bench-{index}-{round}"), *demand).await?;
            if let (1.., Some(samples)) = (round, samples.get_mut(index)) {
                samples.push(took.as_secs_f64() * 1_000.0);
            }
        }
    }
    let median = |samples: &[f64]| {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        percentile(&sorted, 50.0).context("no samples")
    };
    let plain = median(samples.first().context("no kinds")?)?;
    let mut figures = Vec::new();
    for ((what, demand), samples) in kinds.iter().zip(&samples) {
        let name = format!("pod create to container running, {what}");
        figures.push(Figure::new(name, "ms", samples, Goal::None)?);
        if !matches!(demand, Demand::Nothing) {
            let more = median(samples)? - plain;
            let name = format!("of which more than without, {what}");
            figures.push(Figure::new(name, "ms", &[more], Goal::Below(100.0))?);
        }
    }
    Ok(figures)
}

/// Creates a pod, its claim beforehand, waits until its container runs, and removes both.
async fn start(client: &Client, name: &str, demand: Demand) -> anyhow::Result<Duration> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let claims: Api<ResourceClaim> = Api::default_namespaced(client.clone());
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {"name": "main", "image": TOOLS_IMAGE, "command": ["sleep", "10000"]},
            ],
        },
    });
    if let Demand::Claim(more) = demand {
        let mut request: Value = serde_json::from_str(more)?;
        request["deviceClassName"] = json!("gpu.nvidia.com");
        let claim = serde_json::from_value(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}},
        }))?;
        claims.create(&PostParams::default(), &claim).await?;
        pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": name}]);
        pod["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "gpu"}]});
    }
    if matches!(demand, Demand::Resource) {
        let limits = json!({"limits": {EXTENDED_RESOURCE_GPU: "1"}});
        pod["spec"]["containers"][0]["resources"] = limits;
    }
    let began = Instant::now();
    let pod: Pod = pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let since = pod.metadata.resource_version.unwrap_or_default();
    let only = WatchParams::default().fields(&format!("metadata.name={name}"));
    let running = async {
        let mut events = Box::pin(pods.watch(&only, &since).await?);
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Modified(pod) = event
                && pod.status.and_then(|status| status.phase).as_deref() == Some("Running")
            {
                return anyhow::Ok(began.elapsed());
            }
        }
        bail!("the watch ended before pod {name} ran")
    };
    let took = tokio::time::timeout(POD_TIMEOUT, running)
        .await
        .with_context(|| format!("pod {name} did not run within {POD_TIMEOUT:?}"))??;
    pods.delete(name, &DeleteParams::default()).await?;
    let deadline = Instant::now() + POD_TIMEOUT;
    while pods.get_opt(name).await?.is_some() {
        if Instant::now() > deadline {
            bail!("pod {name} is not gone within {POD_TIMEOUT:?}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    if matches!(demand, Demand::Claim(_)) {
        claims.delete(name, &DeleteParams::default()).await?;
    }
    Ok(took)
}
