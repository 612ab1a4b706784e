//! A node that takes the place of NVIDIA's device plugin, GPU feature discovery and MIG manager: counted resources, a change of the
//! mode, labels, and a new MIG layout of one GPU.
//!
//! The agent runs as its own process on a simulated node, against a real API server and the lab's simulated kubelet. Times are from
//! the cause to what the kubelet, or a client of the API, sees.

mod kubelet;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use octavo_figure::{Figure, Goal, percentile};
use octavo_lab::{Component, Lab};
use octavo_machine::{Event, EventKind, Machine, MachineError, RecoveryAction};
use serde_json::json;

use crate::agent_process::AgentProcess;
use crate::{api_server, process};
use kubelet::PluginKubelet;

/// The node that is measured.
pub(crate) const NODES: &str = "dgx-h100=1";
const NODE: &str = "dgx-h100-0";
const GPUS: usize = 8;
/// How often each change is measured.
const ROUNDS: usize = 7;
/// Calls of `Allocate`.
const ALLOCATIONS: usize = 1_000;
/// Time without a change.
const IDLE: Duration = Duration::from_secs(20);
/// The limit of a wait.
const TIMEOUT: Duration = Duration::from_secs(30);
const RESOURCE: &str = "nvidia.com/gpu";
const MODE: &str = "octavo.dev/mode";
const CONFIG: &str = "nvidia.com/device-plugin.config";
const LAYOUT: &str = "nvidia.com/mig.config";
const LAYOUT_STATE: &str = "nvidia.com/mig.config.state";
const PRODUCT: &str = "nvidia.com/gpu.product";
/// An XID after which a GPU needs a reset.
const XID: u64 = 95;

/// The device plugin's files by name.
const PLUGIN_FILES: [(&str, &str); 2] = [
    ("default", "version: v1\n"),
    (
        "shared",
        "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n",
    ),
];

/// Layouts of the first GPU: two halves, and a half beside small devices. In the second one half stays, and all others are created.
const LAYOUTS: &str = "version: v1
mig-configs:
  halves:
  - {devices: all, mig-enabled: false}
  - {devices: [0], mig-enabled: true, mig-devices: {3g.40gb: 2}}
  mixed:
  - {devices: all, mig-enabled: false}
  - {devices: [0], mig-enabled: true, mig-devices: {3g.40gb: 1, 1g.10gb: 3}}
";

/// Measures the agent on a lab that is up with [`NODES`].
pub(crate) async fn run(lab: &Lab, octavo: &Path) -> anyhow::Result<Vec<Figure>> {
    lab.stop(Component::Agents).await;
    let node = lab.layout().node(NODE);
    let testbed = Testbed { client: lab.client().await?, kubelet: PluginKubelet::new(&node), node };
    let config = testbed.write_config()?;
    let mut figures = testbed.starts(octavo, &config).await?;
    let agent = AgentProcess::start(octavo, &config)?;
    testbed.until_listed(GPUS).await?;
    figures.extend(testbed.allocations().await?);
    figures.extend(testbed.configs().await?);
    figures.extend(testbed.faults().await?);
    figures.extend(testbed.idle(&agent).await?);
    figures.extend(testbed.modes().await?);
    testbed.label(MODE, Some("dra")).await?;
    testbed.until_published(|names| names.len() == GPUS).await?;
    figures.extend(testbed.layouts(&agent).await?);
    agent.stop().await?;
    Ok(figures)
}

struct Testbed {
    client: Client,
    kubelet: PluginKubelet,
    node: PathBuf,
}

impl Testbed {
    /// A config like the lab's own, with the device plugin, labels and layouts.
    fn write_config(&self) -> anyhow::Result<PathBuf> {
        let folder = self.node.join("device-plugin-config");
        std::fs::create_dir_all(&folder)?;
        for (name, text) in PLUGIN_FILES {
            std::fs::write(folder.join(name), text)?;
        }
        let layouts = self.node.join("mig.yaml");
        std::fs::write(&layouts, LAYOUTS)?;
        let own = std::fs::read_to_string(self.node.join("agent.yaml"))?;
        let config = self.node.join("operator.yaml");
        let text = format!(
            "{own}\nmode: device-plugin\nfeatureLabels: node\nmigManager: true\nmigConfigFile: {}\n\
             devicePlugin: {{configFolder: {}}}\n",
            layouts.display(),
            folder.display()
        );
        std::fs::write(&config, text)?;
        Ok(config)
    }

    /// From the start of the agent's process.
    async fn starts(&self, octavo: &Path, config: &Path) -> anyhow::Result<Vec<Figure>> {
        let (mut listed, mut labelled) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            self.label(PRODUCT, None).await?;
            let started = Instant::now();
            let agent = AgentProcess::start(octavo, config)?;
            self.until_listed(GPUS).await?;
            listed.push(milliseconds(started));
            self.until_label(PRODUCT, |value| value.is_some()).await?;
            labelled.push(started.elapsed().as_secs_f64());
            agent.stop().await?;
            self.until_listed(0).await?;
        }
        Ok(vec![
            Figure::new(
                "process start to devices listed to the kubelet",
                "ms",
                &listed,
                Goal::Below(250.0),
            )?,
            Figure::new("process start to labels on the Node", "s", &labelled, Goal::Below(1.0))?,
        ])
    }

    async fn allocations(&self) -> anyhow::Result<Vec<Figure>> {
        let mut plugin = self.kubelet.plugin("nvidia-gpu.sock").await?;
        let devices: Vec<String> = self.kubelet.listed(RESOURCE).await?.into_iter().collect();
        let mut samples = Vec::new();
        for call in 0..ALLOCATIONS {
            let begun = Instant::now();
            let names = plugin.allocate(&devices[call % devices.len()]).await?;
            samples.push(milliseconds(begun));
            ensure!(names.len() == 1, "an answer names {names:?}");
        }
        samples.sort_by(f64::total_cmp);
        let late = percentile(&samples, 99.0).context("nothing was measured")?;
        Ok(vec![
            Figure::new("Allocate, back to back", "ms", &samples, Goal::Below(2.0))?,
            Figure::new("Allocate, 99th percentile", "ms", &[late], Goal::Below(8.0))?,
        ])
    }

    /// A label that chooses another config.
    async fn configs(&self) -> anyhow::Result<Vec<Figure>> {
        let mut samples = Vec::new();
        for _ in 0..ROUNDS {
            for (config, count) in [(Some("shared"), 4 * GPUS), (None, GPUS)] {
                let begun = Instant::now();
                self.label(CONFIG, config).await?;
                self.until_listed(count).await?;
                samples.push(begun.elapsed().as_secs_f64());
            }
        }
        let figure = Figure::new("config label to the new list", "s", &samples, Goal::Below(1.0))?;
        Ok(vec![figure])
    }

    /// A GPU that fails and is well again.
    async fn faults(&self) -> anyhow::Result<Vec<Figure>> {
        let (mut down, mut up) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            self.set_failed(true)?;
            self.until_listed(GPUS - 1).await?;
            down.push(begun.elapsed().as_secs_f64());
            let begun = Instant::now();
            self.set_failed(false)?;
            self.until_listed(GPUS).await?;
            up.push(begun.elapsed().as_secs_f64());
        }
        Ok(vec![
            Figure::new("XID to the device unhealthy", "s", &down, Goal::Below(1.0))?,
            Figure::new("advice gone to the device healthy", "s", &up, Goal::Below(1.0))?,
        ])
    }

    /// Memory, processor time and writes without a change.
    async fn idle(&self, agent: &AgentProcess) -> anyhow::Result<Vec<Figure>> {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let writes = || async {
            let all = api_server::writes(&self.client).await?;
            let to_nodes = all.iter().filter(|(what, _)| what.ends_with(" nodes"));
            Ok::<f64, anyhow::Error>(to_nodes.map(|(_, count)| count).sum())
        };
        let (writes_before, time) = (writes().await?, process::cpu_time(agent.pid())?);
        tokio::time::sleep(IDLE).await;
        let used = process::cpu_time(agent.pid())?.saturating_sub(time);
        let share = 100.0 * used.as_secs_f64() / IDLE.as_secs_f64();
        let written = writes().await? - writes_before;
        let memory = process::memory(agent.pid())?.resident;
        Ok(vec![
            Figure::new("resident memory", "MiB", &[memory], Goal::Below(32.0))?,
            Figure::new("idle, processor", "% of a core", &[share], Goal::Below(0.1))?,
            Figure::new(
                "idle, writes to the Node in 20 s",
                "writes",
                &[written],
                Goal::Exactly(0.0),
            )?,
        ])
    }

    /// The mode of an idle node.
    async fn modes(&self) -> anyhow::Result<Vec<Figure>> {
        let (mut to_dra, mut to_plugin) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            self.label(MODE, Some("dra")).await?;
            self.until_published(|names| names.len() == GPUS).await?;
            to_dra.push(begun.elapsed().as_secs_f64());
            let begun = Instant::now();
            self.label(MODE, None).await?;
            self.until_listed(GPUS).await?;
            to_plugin.push(begun.elapsed().as_secs_f64());
        }
        Ok(vec![
            Figure::new("mode of an idle node, to slices", "s", &to_dra, Goal::Below(5.0))?,
            Figure::new("mode of an idle node, to resources", "s", &to_plugin, Goal::Below(5.0))?,
        ])
    }

    /// Another layout of one GPU of eight, which keeps one of its devices.
    async fn layouts(&self, agent: &AgentProcess) -> anyhow::Result<Vec<Figure>> {
        let (mut all, mut own) = (Vec::new(), Vec::new());
        self.label(LAYOUT, Some("halves")).await?;
        self.until_published(|names| mig_devices(names) == 2 && names.len() == GPUS + 1).await?;
        for round in 0..2 * ROUNDS {
            let (layout, devices) = if round % 2 == 0 { ("mixed", 4) } else { ("halves", 2) };
            self.until_label(LAYOUT_STATE, |state| state == Some("success")).await?;
            let driver = agent.driver_milliseconds()?;
            let begun = Instant::now();
            self.label(LAYOUT, Some(layout)).await?;
            let is_there = |names: &[String]| {
                mig_devices(names) == devices && names.len() == GPUS - 1 + devices
            };
            self.until_published(is_there).await?;
            let elapsed = milliseconds(begun);
            all.push(elapsed);
            own.push(elapsed - (agent.driver_milliseconds()? - driver));
        }
        let name = "new MIG layout of one GPU of eight, label to slices";
        Ok(vec![
            Figure::new(name, "ms", &all, Goal::None)?,
            Figure::new(format!("{name}, without the driver"), "ms", &own, Goal::Below(50.0))?,
        ])
    }

    fn set_failed(&self, is_failed: bool) -> anyhow::Result<()> {
        let folder = self.node.join("driver/usr/lib64");
        let machine = Machine::read(&folder.join("machine.yaml"))?;
        octavo_machine::change(&folder, &machine, |state| {
            let gpu = state.gpus.entry(3).or_default();
            gpu.recovery_action =
                if is_failed { RecoveryAction::GpuReset } else { RecoveryAction::None };
            if is_failed {
                state.events.push(Event {
                    gpu: 3,
                    kind: EventKind::Xid,
                    data: XID,
                    gpu_instance: None,
                    compute_instance: None,
                });
            }
            Ok::<_, MachineError>(())
        })?;
        Ok(())
    }

    async fn label(&self, key: &str, value: Option<&str>) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = json!({"metadata": {"labels": {key: value}}});
        nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    /// Until the kubelet may give out so many GPUs, or replicas of them.
    async fn until_listed(&self, count: usize) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            let listed = self.kubelet.listed(RESOURCE).await?.len();
            if listed == count {
                return Ok(());
            }
            ensure!(started.elapsed() < TIMEOUT, "the kubelet has {listed} devices, not {count}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn until_label(
        &self,
        key: &str,
        is_wanted: impl Fn(Option<&str>) -> bool,
    ) -> anyhow::Result<()> {
        let (nodes, started): (Api<Node>, _) = (Api::all(self.client.clone()), Instant::now());
        loop {
            let labels = nodes.get_metadata(NODE).await?.metadata.labels.unwrap_or_default();
            if is_wanted(labels.get(key).map(String::as_str)) {
                return Ok(());
            }
            ensure!(started.elapsed() < TIMEOUT, "the label {key} is {:?}", labels.get(key));
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Until the names of the published GPUs and MIG devices are as wanted.
    async fn until_published(&self, is_wanted: impl Fn(&[String]) -> bool) -> anyhow::Result<()> {
        let slices: Api<ResourceSlice> = Api::all(self.client.clone());
        let params = ListParams::default().fields(&format!("spec.nodeName={NODE}"));
        let started = Instant::now();
        loop {
            let slices = slices.list(&params).await?.items;
            let devices =
                slices.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default());
            let names: Vec<String> = devices.map(|device| device.name).collect();
            if is_wanted(&names) {
                return Ok(());
            }
            ensure!(started.elapsed() < TIMEOUT, "the node publishes {names:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

fn mig_devices(names: &[String]) -> usize {
    names.iter().filter(|name| name.contains("-mig-")).count()
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
