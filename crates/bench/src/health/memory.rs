//! Memory of the controller on 12,500 nodes with eight GPUs each.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use octavo_api::names::LABEL_GPU_PRESENT;
use octavo_api::node_health::{DeviceHealth, NodeHealth, NodeHealthSpec, NodeHealthStatus};
use octavo_api::{HealthPolicy, HealthPolicySpec};
use octavo_figure::{Figure, Goal};
use octavo_lab::{Component, Lab, UpOptions};
use serde_json::{Value, json};

use crate::lab_dir::LabDir;
use crate::process;

const NODES: usize = 12_500;
const GPUS: usize = 8;
/// Starts of the controller.
const TURNS: usize = 5;
/// Nodes with a GPU out of service: one in this many.
const SICK: usize = 100;
/// Labels of a node, as many as feature discovery gives it.
const LABELS: usize = 40;
const AT_ONCE: usize = 64;
const TIMEOUT: Duration = Duration::from_mins(5);
const POLICY: &str = "memory";
/// Time of the records, in seconds since 1970.
const SINCE: u64 = 1_790_000_000;

/// Measures on a control plane with nodes that are objects alone.
pub(super) async fn run(octavo: &Path) -> anyhow::Result<Vec<Figure>> {
    let lab_dir = LabDir::new()?;
    // No kubelet renews leases of these nodes.
    let without = "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller";
    let options = UpOptions {
        controller: Some(true),
        more_args: [(Component::KubeControllerManager, vec![without.to_owned()])].into(),
        ..lab_dir.control_plane_only(octavo)
    };
    let lab = Box::pin(Lab::up(options)).await?;
    let measured = Box::pin(measure(&lab)).await;
    lab.down().await?;
    let (peaks, residents) = measured?;
    Ok(vec![
        Figure::new(
            "controller, 12,500 nodes with 8 GPUs each: most memory, start included",
            "MiB",
            &peaks,
            Goal::Below(128.0),
        )?,
        Figure::new("the same, memory at rest", "MiB", &residents, Goal::None)?,
    ])
}

async fn measure(lab: &Lab) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    lab.kill(Component::OctavoController).await;
    let client = lab.client().await?;
    create(&client).await?;
    let (mut peaks, mut residents) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        reset_status(&client).await?;
        lab.start(Component::OctavoController).await?;
        let process = lab.process(Component::OctavoController).context("no controller runs")?;
        let pid = process.pid.cast_unsigned();
        wait_for_status(&client).await.with_context(|| format!("turn {turn}"))?;
        quiet(pid).await?;
        peaks.push(process::peak_memory(pid)?);
        residents.push(process::memory(pid)?.resident);
        lab.kill(Component::OctavoController).await;
    }
    Ok((peaks, residents))
}

async fn create(client: &Client) -> anyhow::Result<()> {
    let spec = HealthPolicySpec {
        node_selector: [(LABEL_GPU_PRESENT.to_owned(), "true".to_owned())].into(),
        ..HealthPolicySpec::default()
    };
    let policies: Api<HealthPolicy> = Api::all(client.clone());
    policies.create(&PostParams::default(), &HealthPolicy::new(POLICY, spec)).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let healths: Api<NodeHealth> = Api::all(client.clone());
    let made = (0..NODES).map(|number| {
        let (nodes, healths) = (&nodes, &healths);
        async move {
            let name = format!("node-{number:05}");
            let labels =
                (0..LABELS).map(|label| (format!("example.com/l{label}"), label.to_string()));
            let present = (LABEL_GPU_PRESENT.to_owned(), "true".to_owned());
            let metadata = ObjectMeta {
                name: Some(name.clone()),
                labels: Some(labels.chain([present]).collect()),
                ..ObjectMeta::default()
            };
            nodes.create(&PostParams::default(), &Node { metadata, ..Node::default() }).await?;
            let object = NodeHealth::new(&name, NodeHealthSpec::default());
            healths.create(&PostParams::default(), &object).await?;
            let patch = json!({
                "apiVersion": "octavo.dev/v1alpha1", "kind": "NodeHealth", "status": status(number),
            });
            let params = PatchParams::apply("octavo-bench").force();
            healths.patch_status(&name, &params, &Patch::Apply(&patch)).await?;
            anyhow::Ok(())
        }
    });
    let mut made = futures::stream::iter(made).buffer_unordered(AT_ONCE);
    while let Some(made) = made.next().await {
        made?;
    }
    Ok(())
}

/// What the agent of a node writes that has worked for some time.
fn status(number: usize) -> NodeHealthStatus {
    let devices = (0..GPUS).map(|gpu| {
        let is_out = number.is_multiple_of(SICK) && gpu == 0;
        let state = if is_out { "Fenced" } else { "Healthy" };
        DeviceHealth {
            uuid: format!("GPU-{number:08x}-0000-4000-8000-{gpu:012x}"),
            name: format!("gpu-{gpu}"),
            state: state.to_owned(),
            reason: is_out.then(|| "XID 95".to_owned()),
            since: "2026-09-21T14:13:20Z".to_owned(),
            island: 0,
            occupied: true,
            resets_alone: true,
            record: Some(record(is_out)),
            ..DeviceHealth::default()
        }
    });
    let total = i64::try_from(GPUS).unwrap_or_default();
    NodeHealthStatus {
        total,
        in_service: total,
        devices: devices.collect(),
        ..NodeHealthStatus::default()
    }
}

/// A record as of `octavo_health::decide::Device`, of a GPU that has worked.
fn record(is_out: bool) -> Value {
    let state = if is_out {
        json!({"fenced": {"reason": {"xid": 95}, "needs": "resetFunction"}})
    } else {
        json!("healthy")
    };
    json!({
        "track": {
            "state": state, "since": SINCE, "returned": null, "hasFailed": is_out, "relapses": 0, "isHeld": false,
            "tried": "test", "retires": null, "attempt": 1,
        },
        "history": {"asOf": SINCE, "blame": 0, "exposure": 3_000_000_000_u64, "logOdds": 0, "unfaded": 259_200},
        "evictsSince": null,
    })
}

/// Removes the status of the policy, so that the next controller shows by writing it that it has read all.
async fn reset_status(client: &Client) -> anyhow::Result<()> {
    let policies: Api<HealthPolicy> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"status": null}));
    policies.patch_status(POLICY, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until the controller has written that it knows all devices, and that it can read their records.
async fn wait_for_status(client: &Client) -> anyhow::Result<()> {
    let policies: Api<HealthPolicy> = Api::all(client.clone());
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let status = policies.get(POLICY).await?.status.unwrap_or_default();
        let readable = status.conditions.iter().find(|found| found.type_ == "RecordsReadable");
        if readable.is_some_and(|found| found.status == "False") {
            bail!("the controller cannot read the records of the benchmark: {readable:?}");
        }
        let out = NODES.div_ceil(SICK);
        let (healthy, fenced) = (status.devices.healthy, status.devices.fenced);
        if (healthy, fenced) == (i64::try_from(NODES * GPUS - out)?, i64::try_from(out)?) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("the policy's status after {} s: {status:?}", TIMEOUT.as_secs());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Waits until the controller has little to do: copies of records are written after the status.
async fn quiet(pid: u32) -> anyhow::Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    let window = Duration::from_secs(5);
    loop {
        let before = process::cpu_time(pid)?;
        tokio::time::sleep(window).await;
        let used = process::cpu_time(pid)?.saturating_sub(before);
        if used < window / 50 {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("the controller still works after {} s", TIMEOUT.as_secs());
        }
    }
}
