//! MIG devices and shares on one 8-GPU node with all placements published: the agent's time beyond
//! the driver's, and its memory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::ensure;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::ListParams;
use kube::{Api, Client};
use octavo_figure::{Figure, Goal};
use octavo_lab::{Component, DynamicMig, Lab};
use serde_json::json;

use crate::agent_process::AgentProcess;
use crate::kubelet::Kubelet;
use crate::lab_dir::LabDir;
use crate::{claims, process};

const NODE: &str = "dgx-h100-0";
const GPUS: usize = 8;
/// Devices that the node publishes: each GPU and its 25 placements.
const DEVICES: usize = GPUS * 26;
/// Claims of each kind.
const CLAIMS: usize = 200;

/// Starts a lab whose GPUs are all opted in, and measures its agent.
pub(crate) async fn run(octavo: &Path) -> anyhow::Result<Vec<Figure>> {
    let lab_dir = LabDir::new()?;
    let mut options = lab_dir.whole(octavo);
    options.nodes = Some("dgx-h100=1".parse()?);
    options.dynamic_mig = Some(DynamicMig::All);
    let lab = Box::pin(Lab::up(options)).await?;
    let figures = Box::pin(measure(&lab, octavo)).await;
    lab.down().await?;
    figures
}

async fn measure(lab: &Lab, octavo: &Path) -> anyhow::Result<Vec<Figure>> {
    let client = lab.client().await?;
    lab.stop(Component::Kubelets).await;
    lab.stop(Component::Agents).await;
    let testbed = Testbed { client, node: lab.layout().node(NODE) };
    let agent = AgentProcess::start(octavo, &testbed.node.join("agent.yaml"))?;
    testbed.published().await?;
    let kubelet =
        Kubelet::connect(&testbed.node.join("kubelet/plugins/gpu.nvidia.com/dra.sock")).await?;
    let first = claims::allocated(&testbed.client, "first", NODE, "gpu-0").await?;
    kubelet.until_ready(&first).await?;
    let mut figures = Vec::new();
    figures.extend(testbed.shares(&kubelet).await?);
    figures.extend(testbed.mig(&kubelet, &agent).await?);
    let memory = process::memory(agent.pid())?;
    figures.extend([
        Figure::new(
            "resident memory, every placement of 8 GPUs published",
            "MiB",
            &[memory.resident],
            Goal::Below(30.0),
        )?,
        Figure::new("of which anonymous", "MiB", &[memory.anonymous], Goal::None)?,
    ]);
    agent.stop().await?;
    Ok(figures)
}

struct Testbed {
    client: Client,
    node: PathBuf,
}

impl Testbed {
    /// Waits until every placement is published.
    async fn published(&self) -> anyhow::Result<()> {
        let slices: Api<ResourceSlice> = Api::all(self.client.clone());
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let found = slices.list(&ListParams::default()).await?;
            let devices =
                found.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default());
            let count = devices.count();
            if count == DEVICES {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "{count} devices are published within 20 s, not {DEVICES}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Prepare and unprepare of shares, back to back.
    async fn shares(&self, kubelet: &Kubelet) -> anyhow::Result<Vec<Figure>> {
        let (mut prepare, mut unprepare) = (Vec::new(), Vec::new());
        for number in 0..CLAIMS {
            let part = json!({
                "shareID": format!("00000000-0000-4000-8000-{number:012}"),
                "consumedCapacity": {"memory": "10Gi", "compute": "12500m"},
            });
            let device = format!("gpu-{}", number % GPUS);
            let name = format!("share-{number}");
            let claim = claims::allocated_with(&self.client, &name, NODE, &device, &part).await?;
            let begun = Instant::now();
            let devices = kubelet.prepare(&claim).await?;
            prepare.push(milliseconds(begun.elapsed()));
            ensure!(
                devices.iter().all(|device| device.share_id.is_some()),
                "the answer does not name the share"
            );
            let begun = Instant::now();
            kubelet.unprepare(&claim).await?;
            unprepare.push(milliseconds(begun.elapsed()));
        }
        Ok(vec![
            Figure::new("prepare of a share", "ms", &prepare, Goal::None)?,
            Figure::new("unprepare of a share", "ms", &unprepare, Goal::None)?,
        ])
    }

    /// Prepare and unprepare of MIG devices. The agent reports the driver's own time.
    async fn mig(&self, kubelet: &Kubelet, agent: &AgentProcess) -> anyhow::Result<Vec<Figure>> {
        let (mut prepare, mut unprepare, mut made, mut gone) = (vec![], vec![], vec![], vec![]);
        for number in 0..CLAIMS {
            let device = format!("gpu-{}-mig-1g10gb-19-{}", number % GPUS, number % 7);
            let name = format!("mig-{number}");
            let claim =
                claims::allocated_with(&self.client, &name, NODE, &device, &json!({})).await?;
            let driver = agent.driver_milliseconds()?;
            let begun = Instant::now();
            kubelet.prepare(&claim).await?;
            let took = milliseconds(begun.elapsed());
            let after = agent.driver_milliseconds()?;
            prepare.push(took);
            made.push(took - (after - driver));
            let begun = Instant::now();
            kubelet.unprepare(&claim).await?;
            let took = milliseconds(begun.elapsed());
            unprepare.push(took);
            gone.push(took - (agent.driver_milliseconds()? - after));
        }
        Ok(vec![
            Figure::new("prepare of a MIG device, driver included", "ms", &prepare, Goal::None)?,
            Figure::new("of which not the driver's", "ms", &made, Goal::Below(10.0))?,
            Figure::new(
                "unprepare of a MIG device, driver included",
                "ms",
                &unprepare,
                Goal::None,
            )?,
            Figure::new("of which not the driver's", "ms", &gone, Goal::Below(10.0))?,
        ])
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
