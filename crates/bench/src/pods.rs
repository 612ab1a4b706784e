//! The time that a claim adds to a pod's start on a real node: kubelet, containerd and runc, with
//! and without a claim in turn.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{DeleteParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use octavo_figure::{Figure, Goal, percentile};
use octavo_lab::{Lab, TOOLS_IMAGE, real_node_obstacle};
use serde_json::{Value, json};

use futures::TryStreamExt as _;

use crate::lab_dir::LabDir;

/// Pods of each kind.
const PODS: usize = 25;
/// Timeout for one pod.
const POD_TIMEOUT: Duration = Duration::from_mins(2);

/// The kinds of pods, started in turn.
const KINDS: [(&str, Option<&str>); 3] = [
    ("without a claim", None),
    ("with a claim for a GPU", Some("{}")),
    (
        "with a claim for a share",
        Some(r#"{"capacity": {"requests": {"memory": "10Gi", "compute": "10"}}}"#),
    ),
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
    let mut samples = [const { Vec::new() }; KINDS.len()];
    // The first pods of a node initialize what later pods reuse.
    for round in 0..=PODS {
        for (index, (_, more)) in KINDS.iter().enumerate() {
            let took = start(&client, &format!("bench-{index}-{round}"), *more).await?;
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
    let [plain, ..] = &samples;
    let plain = median(plain)?;
    let mut figures = Vec::new();
    for ((what, claim), samples) in KINDS.iter().zip(&samples) {
        let name = format!("pod create to container running, {what}");
        figures.push(Figure::new(name, "ms", samples, Goal::None)?);
        if claim.is_some() {
            let more = median(samples)? - plain;
            let name = format!("of which more than without, {what}");
            figures.push(Figure::new(name, "ms", &[more], Goal::Below(100.0))?);
        }
    }
    Ok(figures)
}

/// Creates a pod, its claim beforehand, waits until its container runs, and removes both.
async fn start(client: &Client, name: &str, claim: Option<&str>) -> anyhow::Result<Duration> {
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
    if let Some(more) = claim {
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
    if claim.is_some() {
        claims.delete(name, &DeleteParams::default()).await?;
    }
    Ok(took)
}
