//! A driver that goes, returns or is released, and the admin port under idle connections.
//!
//! The agent runs as its own process on a simulated node, against a real API server. Times are from the cause to the change
//! of the node's slice in the API.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use octavo_figure::{Figure, Goal};
use octavo_lab::{Component, Lab};
use octavo_machine::{Machine, MachineError};
use serde_json::json;
use tokio::net::TcpStream;

use crate::agent_process::AgentProcess;
use crate::kubelet::Kubelet;
use crate::{claims, process};

/// The node that is measured.
pub(crate) const NODES: &str = "dgx-h100=1";
const NODE: &str = "dgx-h100-0";
/// How often each change is measured.
const ROUNDS: usize = 7;
/// Idle connections to the admin port.
const CONNECTIONS: usize = 10_000;
/// Prepares with and without them.
const PREPARES: usize = 200;
/// The limit of a wait.
const TIMEOUT: Duration = Duration::from_mins(1);
/// `NVML_ERROR_DRIVER_NOT_LOADED`.
const NOT_LOADED: u32 = 9;
/// Calls by which a program opens the driver and looks at its GPUs.
const CALLS: [&str; 6] = [
    "nvmlInit",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetFieldValues",
];
/// The taint of a driver that is gone or released.
const TAINT: &str = "octavo.dev/driver-unavailable";

/// Measures the agent on a lab that is up with [`NODES`].
pub(crate) async fn run(lab: &Lab, octavo: &Path) -> anyhow::Result<Vec<Figure>> {
    lab.stop(Component::Kubelets).await;
    lab.stop(Component::Agents).await;
    let node = lab.layout().node(NODE);
    let testbed = Testbed { client: lab.client().await?, node };
    // What the lab's own agent published is not this agent's.
    let slices: Api<ResourceSlice> = Api::all(testbed.client.clone());
    slices.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    let agent = AgentProcess::start(octavo, &testbed.node.join("agent.yaml"))?;
    testbed.wait("is offered", all(None)).await?;
    let mut figures = testbed.gone_and_back().await?;
    figures.extend(testbed.released_and_back().await?);
    figures.extend(testbed.idle_connections(&agent).await?);
    agent.stop().await?;
    Ok(figures)
}

struct Testbed {
    client: Client,
    node: PathBuf,
}

impl Testbed {
    /// The driver fails all calls, as when its GPUs are gone from the bus or its modules are replaced.
    async fn gone_and_back(&self) -> anyhow::Result<Vec<Figure>> {
        let (mut gone, mut back) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            self.set_loaded(false)?;
            gone.push(self.wait("is tainted", all(Some(""))).await?);
            self.set_loaded(true)?;
            back.push(self.wait("is offered", all(None)).await?);
        }
        Ok(vec![
            Figure::new("driver gone to its devices tainted", "s", &gone, Goal::Below(5.0))?,
            Figure::new("driver back to its devices offered", "s", &back, Goal::Below(5.0))?,
        ])
    }

    /// The label of an administrator.
    async fn released_and_back(&self) -> anyhow::Result<Vec<Figure>> {
        let (mut released, mut back) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            self.label(Some("true")).await?;
            released.push(self.wait("is released", all(Some("released"))).await?);
            self.label(None).await?;
            back.push(self.wait("is offered", all(None)).await?);
        }
        Ok(vec![
            Figure::new("label to the driver released", "s", &released, Goal::Below(1.0))?,
            Figure::new("label removed to its devices offered", "s", &back, Goal::Below(5.0))?,
        ])
    }

    /// Connections to the admin port that send nothing.
    async fn idle_connections(&self, agent: &AgentProcess) -> anyhow::Result<Vec<Figure>> {
        let kubelet =
            Kubelet::connect(&self.node.join("kubelet/plugins/gpu.nvidia.com/dra.sock")).await?;
        let claim = claims::allocated(&self.client, "idle", NODE, "gpu-0").await?;
        kubelet.until_ready(&claim).await?;
        let before = prepares(&kubelet, &claim).await?;
        let mut open = Vec::new();
        for _ in 0..CONNECTIONS {
            // The agent takes a part of them; the system keeps others, and refuses the rest.
            let connect = TcpStream::connect(agent.admin());
            if let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(20), connect).await {
                open.push(stream);
            }
        }
        let under = prepares(&kubelet, &claim).await?;
        let memory = process::memory(agent.pid())?.resident;
        ensure!(!open.is_empty(), "the agent took no connection");
        Ok(vec![
            Figure::new(
                "resident memory under 10,000 idle connections",
                "MiB",
                &[memory],
                Goal::Below(32.0),
            )?,
            Figure::new("prepare without them", "ms", &before, Goal::None)?,
            Figure::new("prepare under them", "ms", &under, Goal::None)?,
        ])
    }

    fn set_loaded(&self, is_loaded: bool) -> anyhow::Result<()> {
        let folder = self.node.join("driver/usr/lib64");
        let machine = Machine::read(&folder.join("machine.yaml"))?;
        octavo_machine::change(&folder, &machine, |state| {
            state.failing_calls.clear();
            if !is_loaded {
                state.failing_calls.extend(CALLS.map(|call| (call.to_owned(), NOT_LOADED)));
            }
            Ok::<_, MachineError>(())
        })?;
        Ok(())
    }

    async fn label(&self, value: Option<&str>) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = json!({"metadata": {"labels": {"octavo.dev/driver-released": value}}});
        nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    /// Seconds until the taints of all devices are as wanted.
    async fn wait(
        &self,
        what: &str,
        is_wanted: impl Fn(&[Option<String>]) -> bool,
    ) -> anyhow::Result<f64> {
        let started = Instant::now();
        let slices: Api<ResourceSlice> = Api::all(self.client.clone());
        let params = ListParams::default().fields(&format!("spec.nodeName={NODE}"));
        loop {
            let slices = slices.list(&params).await?.items;
            let devices =
                slices.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default());
            let taint = |device: k8s_openapi::api::resource::v1::Device| {
                let mut taints = device.taints.unwrap_or_default().into_iter();
                taints.find(|taint| taint.key == TAINT).map(|taint| taint.value.unwrap_or_default())
            };
            let taints: Vec<_> = devices.map(taint).collect();
            if !taints.is_empty() && is_wanted(&taints) {
                return Ok(started.elapsed().as_secs_f64());
            }
            ensure!(started.elapsed() < TIMEOUT, "the node's GPU never {what}: {taints:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Whether all devices have the taint with this value, or none has it.
fn all(wanted: Option<&'static str>) -> impl Fn(&[Option<String>]) -> bool {
    move |taints| taints.iter().all(|taint| taint.as_deref() == wanted)
}

/// Milliseconds of each of some prepares.
async fn prepares(
    kubelet: &Kubelet,
    claim: &octavo_kubelet_api::dra::v1::Claim,
) -> anyhow::Result<Vec<f64>> {
    let mut samples = Vec::new();
    for _ in 0..PREPARES {
        let begun = Instant::now();
        kubelet.prepare(claim).await.context("prepare the claim")?;
        samples.push(begun.elapsed().as_secs_f64() * 1e3);
        kubelet.unprepare(claim).await?;
    }
    Ok(samples)
}
