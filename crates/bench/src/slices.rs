//! The cost of publishing for the API server, with 500 nodes of eight GPUs. There are two variants:
//! GPUs without MIG, and GPUs with every MIG placement published.
//!
//! `OCTAVO_BENCH_NODES` sets another number of nodes. A run takes minutes, so progress and the
//! figures of each variant go to standard error.

use std::path::Path;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use octavo_figure::{Figure, Goal, Report};
use octavo_lab::{DynamicMig, Lab, Progress};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::lab_dir::LabDir;
use crate::{api_server, environment};

/// Nodes of the cluster, and the variable that sets another number.
const NODES: usize = 500;
const NODES_VARIABLE: &str = "OCTAVO_BENCH_NODES";
/// How long all agents may take to publish.
const PUBLISH_TIMEOUT: Duration = Duration::from_mins(30);
/// Claims that are allocated and prepared in it.
const CLAIMS: u32 = 50;

/// Measures both shapes, one after the other.
pub(crate) async fn run(octavo: &Path) -> anyhow::Result<Vec<Figure>> {
    let nodes = nodes()?;
    let mut figures = Vec::new();
    for (shape, dynamic_mig) in [("not cut", DynamicMig::None), ("all opted in", DynamicMig::All)] {
        print_progress(&format!("{shape}: bringing up {nodes} nodes"));
        let lab_dir = LabDir::new()?;
        let mut options = lab_dir.whole(octavo);
        options.nodes = Some(format!("dgx-h100={nodes}").parse()?);
        options.dynamic_mig = Some(dynamic_mig);
        options.ready_timeout = PUBLISH_TIMEOUT;
        options.progress = Progress::to_stderr();
        let started = Instant::now();
        let lab = Box::pin(Lab::up(options)).await?;
        let up = started.elapsed().as_secs_f64();
        print_progress(&format!("{shape}: all is published after {up:.0} s"));
        let measured = Box::pin(shape_figures(&lab, nodes, shape, up)).await;
        lab.down().await?;
        figures.extend(measured?);
    }
    Ok(figures)
}

fn print_figures(name: &str, figures: &[Figure]) {
    let report = Report {
        name: format!("slices, {name}"),
        commit: environment::commit(),
        machine: environment::machine(),
        figures: figures.to_vec(),
    };
    print_progress(&report.table());
}

#[expect(clippy::print_stderr, reason = "a run takes minutes, and its report is standard output")]
fn print_progress(text: &str) {
    eprintln!("{text}");
}

fn nodes() -> anyhow::Result<usize> {
    let Ok(text) = std::env::var(NODES_VARIABLE) else { return Ok(NODES) };
    let nodes = text.parse().ok().filter(|nodes| *nodes > 0);
    nodes.with_context(|| format!("{NODES_VARIABLE} is {text:?}, and has to be a number above 0"))
}

async fn shape_figures(
    lab: &Lab,
    count: usize,
    shape: &str,
    up: f64,
) -> anyhow::Result<Vec<Figure>> {
    let client = lab.client().await?;
    let nodes = per_node(&client).await?;
    ensure!(nodes.len() == count, "{} nodes publish slices, not {count}", nodes.len());
    let written = api_server::agent_writes(&client).await?.slices;
    let all = |value: fn(&Published) -> f64| nodes.values().map(value).collect::<Vec<_>>();
    let name = |what: &str| format!("{what}, {shape}");
    let mut figures = vec![
        Figure::new(name("lab up until all is published"), "s", &[up], Goal::None)?,
        Figure::new(name("slices of a node"), "slices", &all(|n| n.slices), Goal::None)?,
        Figure::new(name("devices of a node"), "devices", &all(|n| n.devices), Goal::None)?,
        Figure::new(name("JSON of a node's slices"), "kB", &all(|n| n.bytes / 1e3), Goal::None)?,
        Figure::new(
            name("writes of slices until all is published, dry runs and refused ones included"),
            "writes",
            &[written],
            Goal::None,
        )?,
    ];
    print_figures(&format!("publishing, {shape}"), &figures);
    let kinds: &[(&str, Value)] = if shape == "not cut" {
        &[("whole GPU", exactly("gpu.nvidia.com", &json!({}))), ("share", share())]
    } else {
        &[("MIG device", mig())]
    };
    for (kind, request) in kinds {
        print_progress(&format!("{shape}: {CLAIMS} pods, each with a {kind}"));
        let of_kind = allocations(&client, u32::try_from(count)?, &name(kind), request).await?;
        print_figures(&format!("allocations, {shape}"), &of_kind);
        figures.extend(of_kind);
    }
    Ok(figures)
}

/// The slices of a node.
#[derive(Default)]
struct Published {
    slices: f64,
    devices: f64,
    bytes: f64,
}

async fn per_node(client: &Client) -> anyhow::Result<BTreeMap<String, Published>> {
    let api: Api<ResourceSlice> = Api::all(client.clone());
    let mut nodes: BTreeMap<String, Published> = BTreeMap::new();
    for slice in api.list(&ListParams::default()).await?.items {
        let text = serde_json::to_vec(&slice)?;
        let node = nodes.entry(slice.spec.node_name.unwrap_or_default()).or_default();
        node.slices += 1.0;
        node.devices += f64::from(u32::try_from(slice.spec.devices.unwrap_or_default().len())?);
        node.bytes += f64::from(u32::try_from(text.len())?);
    }
    Ok(nodes)
}

fn exactly(class: &str, more: &Value) -> Value {
    let mut request = json!({"deviceClassName": class});
    if let (Some(request), Some(more)) = (request.as_object_mut(), more.as_object()) {
        request.extend(more.clone());
    }
    request
}

fn share() -> Value {
    let amounts = json!({"memory": "20Gi", "compute": "25"});
    exactly("gpu.nvidia.com", &json!({"capacity": {"requests": amounts}}))
}

fn mig() -> Value {
    let expression = "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'";
    exactly("mig.nvidia.com", &json!({"selectors": [{"cel": {"expression": expression}}]}))
}

/// A node affinity like that of a `DaemonSet`'s pods: the scheduler considers this node only.
fn only_on(node: &str) -> Value {
    let name = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let terms = json!({"nodeSelectorTerms": [{"matchFields": [name]}]});
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
}

/// Pods with claims, from creation to running: the agents' writes and the total time.
///
/// Each pod may run on one node only, because the agents are measured and not the scheduler. With
/// 100,000 devices and few processors, kube-scheduler's search exceeds its own filter timeout of
/// ten seconds.
async fn allocations(
    client: &Client,
    nodes: u32,
    kind: &str,
    request: &Value,
) -> anyhow::Result<Vec<Figure>> {
    let claims: Api<ResourceClaim> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let before = api_server::agent_writes(client).await?;
    let label = kind.replace([' ', ','], "-").to_lowercase();
    let started = Instant::now();
    for number in 0..CLAIMS {
        let name = format!("{label}-{number}");
        let claim = serde_json::from_value(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}},
        }))?;
        claims.create(&PostParams::default(), &claim).await?;
        let pod = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"bench": label}},
            "spec": {
                "affinity": only_on(&format!("dgx-h100-{}", number % nodes)),
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
                "containers": [{
                    "name": "main", "image": "bench",
                    "resources": {"claims": [{"name": "gpu"}]},
                }],
            },
        }))?;
        pods.create(&PostParams::default(), &pod).await?;
    }
    let selected = ListParams::default().labels(&format!("bench={label}"));
    let deadline = Instant::now() + Duration::from_mins(5);
    loop {
        let found = pods.list(&selected).await?.items;
        let runs = |pod: &&Pod| {
            pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
        };
        if found.iter().filter(runs).count() == usize::try_from(CLAIMS)? {
            break;
        }
        if Instant::now() > deadline {
            let waiting = found.iter().find(|pod| !runs(pod)).map(kube::ResourceExt::name_any);
            anyhow::bail!("pod {} does not run", waiting.unwrap_or_default());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let took = started.elapsed().as_secs_f64();
    // The status of a share or MIG device is written in parallel to the pod's start.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = api_server::agent_writes(client).await?;
    let count = f64::from(CLAIMS);
    Ok(vec![
        Figure::new(
            format!("claim status writes by the agent per allocation: {kind}"),
            "writes",
            &[(after.statuses - before.statuses) / count],
            Goal::None,
        )?,
        Figure::new(
            format!("slice writes per allocation: {kind}"),
            "writes",
            &[(after.slices - before.slices) / count],
            Goal::Exactly(0.0),
        )?,
        Figure::new(
            format!("{CLAIMS} pods of given nodes from the first create to all running: {kind}"),
            "s",
            &[took],
            Goal::None,
        )?,
    ])
}
