//! One GPU after another on a quiet node: from the failure to the taint.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use octavo_api::names::LABEL_GPU_PRESENT;
use octavo_api::{HealthPolicy, NodeHealth};
use octavo_figure::{Figure, Goal};
use octavo_lab::Lab;
use serde_json::json;

use super::observer::{Name, Observer};
use super::{Simulated, XIDS, quantiles};
use crate::lab_dir::LabDir;

const NODE: &str = "dgx-h100-0";
const GPUS: u32 = 8;
/// Turns, each with all GPUs.
const TURNS: i64 = 15;
/// Shortest time of a turn. An agent takes the same XID of a GPU within 10 s for one, and they come again after ten turns.
const TURN: Duration = Duration::from_millis(1_200);
const TIMEOUT: Duration = Duration::from_mins(1);

/// Measures on a lab of one node.
pub(super) async fn run(octavo: &Path) -> anyhow::Result<Vec<Figure>> {
    let lab_dir = LabDir::new()?;
    let mut options = lab_dir.whole(octavo);
    options.nodes = Some("dgx-h100=1".parse()?);
    let lab = Box::pin(Lab::up(options)).await?;
    let samples = Box::pin(measure(&lab)).await;
    lab.down().await?;
    let goals = [Goal::Below(50.0), Goal::Below(250.0)];
    Ok(quantiles("XID to taint in a watch, 1 node of 8 GPUs at rest", "ms", &samples?, goals)?
        .into())
}

async fn measure(lab: &Lab) -> anyhow::Result<Vec<f64>> {
    let client = lab.client().await?;
    let machine = Simulated::of(lab.layout(), NODE)?;
    let mut observer = Observer::start(&client, "default");
    let is_known = |observer: &Observer| observer.states.len() == GPUS as usize;
    observer.until("all GPUs are reported", TIMEOUT, is_known).await?;
    allow_relapses(&client).await?;
    machine.report_at_once()?;
    // The driver's library looks for it at its former interval.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut samples = Vec::new();
    for (turn, xid) in (1..=TURNS).zip(XIDS.iter().cycle()) {
        let turn_began = tokio::time::Instant::now();
        for gpu in 0..GPUS {
            let name: Name = (NODE.to_owned(), format!("gpu-{gpu}"));
            let began = Instant::now();
            machine.fail(gpu, *xid)?;
            let is_tainted = |observer: &Observer| observer.tainted.contains_key(&name);
            observer.until("the GPU has its taint", TIMEOUT, is_tainted).await?;
            let seen = observer.tainted.get(&name).copied().unwrap_or(began);
            samples.push((seen - began).as_secs_f64() * 1_000.0);
        }
        restore(&client, &machine, turn).await?;
        let is_well = |observer: &Observer| {
            observer.tainted.is_empty()
                && observer.states.values().all(|(state, _)| state == "Probation")
        };
        observer.until("all GPUs are back", TIMEOUT, is_well).await?;
        tokio::time::sleep_until(turn_began + TURN).await;
    }
    Ok(samples)
}

/// A policy by which no GPU is retired for failing in each turn. Returns once the agent has it.
async fn allow_relapses(client: &Client) -> anyhow::Result<()> {
    let policy = json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "HealthPolicy", "metadata": {"name": "taint"},
        "spec": {
            "nodeSelector": {LABEL_GPU_PRESENT: "true"}, "mode": "Fence",
            "times": {"relapseSeconds": 0, "relapses": 16},
        },
    });
    let policies: Api<HealthPolicy> = Api::all(client.clone());
    policies.create(&PostParams::default(), &serde_json::from_value(policy)?).await?;
    let healths: Api<NodeHealth> = Api::all(client.clone());
    let deadline = Instant::now() + TIMEOUT;
    while healths.get(NODE).await?.status.and_then(|status| status.policy).is_none() {
        ensure!(Instant::now() < deadline, "the agent does not use the policy of its node");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Ends the faults, and releases all GPUs by the order of a person.
async fn restore(client: &Client, machine: &Simulated, number: i64) -> anyhow::Result<()> {
    machine.heal()?;
    let healths: Api<NodeHealth> = Api::all(client.clone());
    let devices = healths.get(NODE).await?.status.unwrap_or_default().devices;
    let order = json!({"word": "Release", "number": number});
    let devices: Vec<_> =
        devices.iter().map(|device| json!({"uuid": device.uuid, "order": order})).collect();
    let patch = json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "NodeHealth",
        "metadata": {"name": NODE}, "spec": {"devices": devices},
    });
    let params = PatchParams::apply("octavo-bench").force();
    healths.patch(NODE, &params, &Patch::Apply(&patch)).await?;
    Ok(())
}
