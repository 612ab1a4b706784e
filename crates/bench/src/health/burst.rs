//! A GPU fails on each of 200 nodes at once, under a pod.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use octavo_api::names::LABEL_GPU_PRESENT;
use octavo_api::{HealthPolicy, NodeHealth};
use octavo_figure::{Figure, Goal};
use octavo_lab::Lab;
use serde_json::{Value, json};

use super::observer::{Name, Observer};
use super::{Simulated, XIDS, quantiles};
use crate::api_server;
use crate::lab_dir::LabDir;

const NODES: usize = 200;
const TURNS: usize = 5;
const TIMEOUT: Duration = Duration::from_mins(5);
const APP: &str = "burst";
/// Writes at once of the client for comparison.
const RAW_AT_ONCE: usize = 32;

/// Times of one turn, in seconds, and how many writes it took.
struct Turn {
    taints: Vec<f64>,
    remedies: Vec<f64>,
    writes: f64,
    raw: f64,
}

/// Measures on a lab of 200 nodes.
pub(super) async fn run(octavo: &Path) -> anyhow::Result<Vec<Figure>> {
    let lab_dir = LabDir::new()?;
    let mut options = lab_dir.whole(octavo);
    options.nodes = Some(format!("t4={NODES}").parse()?);
    options.controller = Some(true);
    let lab = Box::pin(Lab::up(options)).await?;
    let turns = Box::pin(measure(&lab)).await;
    lab.down().await?;
    let turns = turns?;
    let all = |of: fn(&Turn) -> &Vec<f64>| turns.iter().flat_map(of).copied().collect::<Vec<f64>>();
    let last = |turn: &Turn| turn.remedies.iter().copied().fold(0.0, f64::max);
    let none = [Goal::None, Goal::None];
    let mut figures = Vec::from(quantiles(
        "XID to taint, 200 nodes at once",
        "s",
        &all(|turn| &turn.taints),
        none,
    )?);
    figures.extend(quantiles(
        "XID to remedy begun, 200 nodes at once, each with a pod",
        "s",
        &all(|turn| &turn.remedies),
        [Goal::Below(3.0), Goal::Below(5.0)],
    )?);
    let of_turns = |of: &dyn Fn(&Turn) -> f64| turns.iter().map(of).collect::<Vec<f64>>();
    figures.extend([
        Figure::new(
            "writes to the API server until all remedies began",
            "",
            &of_turns(&|turn| turn.writes),
            Goal::None,
        )?,
        Figure::new(
            "as many writes by a client, 32 at once",
            "s",
            &of_turns(&|turn| turn.raw),
            Goal::None,
        )?,
        Figure::new(
            "all remedies begun / as many writes",
            "x",
            &of_turns(&|turn| last(turn) / turn.raw),
            Goal::Below(1.5),
        )?,
    ]);
    Ok(figures)
}

async fn measure(lab: &Lab) -> anyhow::Result<Vec<Turn>> {
    let client = lab.client().await?;
    create(&client).await?;
    let mut observer = Observer::start(&client, "default");
    let all_run = |observer: &Observer| observer.running.len() == NODES;
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        observer.until("all pods run", TIMEOUT, all_run).await?;
        let held = held(&client).await?;
        ensure!(held.len() == NODES, "{} GPUs on {NODES} nodes have a pod", held.len());
        let machines: BTreeMap<&Name, (Simulated, u32)> = held
            .iter()
            .map(|name| {
                let machine = Simulated::of(lab.layout(), &name.0)?;
                let minor = name.1.trim_start_matches("gpu-").parse().context("a GPU's number")?;
                anyhow::Ok((name, (machine, minor)))
            })
            .collect::<Result<_, _>>()?;
        let before: f64 = api_server::writes(&client).await?.values().sum();
        observer.forget_times();
        let begins = fail_all(&machines)?;
        let all_begun =
            |observer: &Observer| held.iter().all(|name| observer.remedied.contains_key(name));
        observer.until("a remedy of each GPU has begun", TIMEOUT, all_begun).await?;
        let after: f64 = api_server::writes(&client).await?.values().sum();
        let since = |seen: &BTreeMap<Name, Instant>| -> Vec<f64> {
            let times = begins.iter().filter_map(|(name, began)| {
                Some(seen.get(*name)?.duration_since(*began).as_secs_f64())
            });
            times.collect()
        };
        let (taints, remedies) = (since(&observer.first_taints), since(&observer.remedied));
        ensure!(remedies.len() == NODES, "{} of {NODES} remedies have begun", remedies.len());
        // A GPU that failed in several turns is watched.
        let is_well = |state: &str| matches!(state, "Healthy" | "Probation" | "Watch");
        let all_well = |observer: &Observer| {
            all_run(observer) && observer.states.values().all(|(state, _)| is_well(state))
        };
        observer.until("all GPUs are back and all pods run", TIMEOUT, all_well).await?;
        let writes = after - before;
        let raw = raw_writes(&client, writes).await?;
        turns.push(Turn { taints, remedies, writes, raw });
    }
    Ok(turns)
}

/// Makes all GPUs fail, and says when each did.
fn fail_all<'a>(
    machines: &BTreeMap<&'a Name, (Simulated, u32)>,
) -> anyhow::Result<BTreeMap<&'a Name, Instant>> {
    let fail = |(name, (machine, gpu)): (&&'a Name, &(Simulated, u32))| {
        let began = Instant::now();
        machine.fail(*gpu, XIDS[0])?;
        anyhow::Ok((*name, began))
    };
    machines.iter().map(fail).collect()
}

/// The GPUs that claims have.
async fn held(client: &Client) -> anyhow::Result<Vec<Name>> {
    let claims: Api<ResourceClaim> = Api::default_namespaced(client.clone());
    let claims = claims.list(&ListParams::default()).await?;
    let allocations = claims.into_iter().filter_map(|claim| claim.status?.allocation);
    let results = allocations.filter_map(|allocation| allocation.devices?.results).flatten();
    Ok(results.map(|result| (result.pool, result.device)).collect())
}

/// As many writes by one client: how long they take, in seconds.
async fn raw_writes(client: &Client, count: f64) -> anyhow::Result<f64> {
    let healths: Api<NodeHealth> = Api::all(client.clone());
    let names: Vec<String> = (0..NODES).map(|node| format!("t4-{node}")).collect();
    let began = Instant::now();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of requests"
    )]
    let count = count as usize;
    let writes = names.iter().cycle().take(count).enumerate().map(|(number, name)| {
        let (healths, number) = (&healths, number.to_string());
        async move {
            let patch = json!({"metadata": {"annotations": {"octavo.dev/bench": number}}});
            healths.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await
        }
    });
    let mut writes = futures::stream::iter(writes).buffer_unordered(RAW_AT_ONCE);
    while let Some(written) = writes.next().await {
        written?;
    }
    Ok(began.elapsed().as_secs_f64())
}

/// A policy that acts at once, and a pod on each node that ends at once.
async fn create(client: &Client) -> anyhow::Result<()> {
    let policy = json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "HealthPolicy", "metadata": {"name": APP},
        "spec": {
            "nodeSelector": {LABEL_GPU_PRESENT: "true"}, "mode": "Act", "evict": true,
            "budget": {"remediesPercent": 100, "remediesPerRack": 1_000, "evictionsPercent": 100},
            "breaker": {"percent": 100, "nodes": 1_000_000},
            // A simulated GPU computes on the processor: tests of some would hold up the remedies of others.
            "test": "Driver",
            "times": {"probationSeconds": 1, "relapseSeconds": 0, "relapses": 16},
        },
    });
    let template = json!({
        "metadata": {"name": APP},
        "spec": {"spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
        ]}}},
    });
    let deployment = json!({
        "metadata": {"name": APP},
        "spec": {
            "replicas": NODES,
            "selector": {"matchLabels": {"app": APP}},
            "template": {"metadata": {"labels": {"app": APP}}, "spec": {
                "terminationGracePeriodSeconds": 0,
                "topologySpreadConstraints": [{
                    "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": APP}},
                }],
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": APP}],
                "containers": [{
                    "name": "main", "image": "octavo.dev/burst",
                    "resources": {"claims": [{"name": "gpu"}]},
                }],
            }},
        },
    });
    let policies: Api<HealthPolicy> = Api::all(client.clone());
    policies.create(&PostParams::default(), &parsed(policy)?).await?;
    let templates: Api<ResourceClaimTemplate> = Api::default_namespaced(client.clone());
    templates.create(&PostParams::default(), &parsed(template)?).await?;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &parsed(deployment)?).await?;
    Ok(())
}

fn parsed<K: serde::de::DeserializeOwned>(object: Value) -> anyhow::Result<K> {
    serde_json::from_value(object).context("make an object of the benchmark")
}
