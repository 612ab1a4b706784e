//! The node agent on an 8-GPU node, against a real API server.
//!
//! The agent runs as its own process with the chart's settings and rights, on the simulated driver.
//! The benchmark acts as its kubelet. Claims are real objects; their allocation is written in
//! advance, as a scheduler would do.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use octavo_figure::{Figure, Goal, percentile};
use octavo_kubelet_api::dra::v1;
use octavo_lab::{Component, Lab};

use crate::agent_process::AgentProcess;
use crate::kubelet::Kubelet;
use crate::{api_server, claims, process};

/// The node that is measured; `dgx-h100` has eight GPUs.
pub(crate) const NODES: &str = "dgx-h100=1";
const NODE: &str = "dgx-h100-0";
const GPUS: usize = 8;

/// Claims of the back-to-back run.
const CLAIMS: usize = 1_000;
/// The number of claims as a divisor.
const CLAIM_COUNT: f64 = 1_000.0;
/// Rounds of eight claims at once.
const CONCURRENT_ROUNDS: usize = 50;
/// Starts of the agent.
const STARTS: usize = 11;
/// How long the idle agent is watched.
const IDLE_DURATION: Duration = Duration::from_mins(1);

/// Runs all figures of the agent on a lab that is up with [`NODES`].
pub(crate) async fn run(lab: &Lab, octavo: &Path) -> anyhow::Result<Vec<Figure>> {
    let client = lab.client().await?;
    lab.stop(Component::Kubelets).await;
    lab.stop(Component::Agents).await;
    let node = lab.layout().node(NODE);
    // Watches of Kubernetes' own controllers and scheduler: no agent runs now.
    let watches_before = api_server::claim_watches(&client).await?;
    ensure!(
        watches_before > 0.0,
        "the API server counts no watch over claims: is the metric gone?"
    );
    let testbed = Testbed { client, octavo: octavo.to_owned(), node, watches_before };
    let mut figures = vec![testbed.starts().await?];
    // An agent is ready once a kubelet has registered it; later the benchmark is the kubelet.
    lab.start(Component::Kubelets).await?;
    figures.push(testbed.restart_writes().await?);
    lab.stop(Component::Kubelets).await;
    let agent = testbed.start()?;
    testbed.slice().await?;
    let kubelet = Kubelet::connect(&testbed.socket()).await?;
    let claims = testbed.claims(CLAIMS).await?;
    let first = claims.first().context("no claim")?;
    kubelet.until_ready(first).await?;
    figures.extend(testbed.back_to_back(&kubelet, &claims).await?);
    figures.extend(testbed.at_once(&kubelet, &claims).await?);
    figures.push(testbed.cycles(&kubelet).await?);
    figures.extend(testbed.idle(&agent).await?);
    figures.push(testbed.leftovers()?);
    agent.stop().await?;
    figures.push(testbed.memory_with_dra_alone(first).await?);
    Ok(figures)
}

/// The node under test and its surroundings.
struct Testbed {
    client: Client,
    octavo: PathBuf,
    node: PathBuf,
    /// Watches over claims while no agent runs.
    watches_before: f64,
}

impl Testbed {
    fn start(&self) -> anyhow::Result<AgentProcess> {
        AgentProcess::start(&self.octavo, &self.node.join("agent.yaml"))
    }

    fn socket(&self) -> PathBuf {
        self.node.join("kubelet/plugins/gpu.nvidia.com/dra.sock")
    }

    fn slices(&self) -> Api<ResourceSlice> {
        Api::all(self.client.clone())
    }

    /// Waits for the node's slice and returns it.
    async fn slice(&self) -> anyhow::Result<ResourceSlice> {
        let deadline = Instant::now() + Duration::from_secs(20);
        let params = ListParams::default().fields(&format!("spec.nodeName={NODE}"));
        loop {
            if let Some(slice) = self.slices().list(&params).await?.items.pop() {
                return Ok(slice);
            }
            ensure!(Instant::now() < deadline, "the agent published no slice within 20 s");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// From the start of the process to its slice in the API, each time without one before.
    async fn starts(&self) -> anyhow::Result<Figure> {
        let mut samples = Vec::new();
        for _ in 0..STARTS {
            for slice in self.slices().list(&ListParams::default()).await? {
                self.slices()
                    .delete(&slice.name_any(), &kube::api::DeleteParams::default())
                    .await?;
            }
            let started = Instant::now();
            let agent = self.start()?;
            let slice = self.slice().await?;
            samples.push(milliseconds(started.elapsed()));
            let devices = slice.spec.devices.unwrap_or_default().len();
            ensure!(devices == GPUS, "the slice has {devices} devices, not {GPUS}");
            agent.stop().await?;
        }
        Figure::new("process start to slices in the API", "ms", &samples, Goal::Below(250.0))
    }

    /// Writes to slices during restarts that find nothing to change.
    async fn restart_writes(&self) -> anyhow::Result<Figure> {
        let before = self.slice().await?.metadata.resource_version;
        let mut writes = Vec::new();
        for _ in 0..5 {
            let agent = self.start()?;
            agent.ready().await?;
            agent.stop().await?;
            let after = self.slice().await?.metadata.resource_version;
            writes.push(if after == before { 0.0 } else { 1.0 });
        }
        Figure::new("slices written by a restart", "slices", &writes, Goal::Exactly(0.0))
    }

    async fn claims(&self, count: usize) -> anyhow::Result<Vec<v1::Claim>> {
        let mut made = Vec::with_capacity(count);
        for start in (0..count).step_by(16) {
            let batch = (start..count.min(start + 16)).map(|number| async move {
                let device = format!("gpu-{}", number % GPUS);
                claims::allocated(&self.client, &format!("bench-{number}"), NODE, &device).await
            });
            made.extend(try_join_all(batch).await?);
        }
        Ok(made)
    }

    /// Prepare and unprepare of each claim, one after the other without pause.
    async fn back_to_back(
        &self,
        kubelet: &Kubelet,
        claims: &[v1::Claim],
    ) -> anyhow::Result<Vec<Figure>> {
        for claim in &claims[..GPUS] {
            kubelet.prepare(claim).await?;
            kubelet.unprepare(claim).await?;
        }
        // The API server's own time for a GET, on the same machine within the same minute. It is
        // measured before and after, with claims that do not count as the agent's GETs.
        let mut get = self.raw_gets(&claims[..claims.len() / 4]).await?;
        let before = api_server::claim_requests(&self.client).await?;
        let (mut prepare, mut unprepare) = (Vec::new(), Vec::new());
        let started = Instant::now();
        for claim in claims {
            let begun = Instant::now();
            let devices = kubelet.prepare(claim).await?;
            prepare.push(milliseconds(begun.elapsed()));
            ensure!(devices.len() == 1, "claim {} got {} devices", claim.name, devices.len());
            let begun = Instant::now();
            kubelet.unprepare(claim).await?;
            unprepare.push(milliseconds(begun.elapsed()));
        }
        let whole = started.elapsed();
        let after = api_server::claim_requests(&self.client).await?;
        get.extend(self.raw_gets(&claims[..claims.len() / 4]).await?);
        prepare.sort_by(f64::total_cmp);
        let p99 = percentile(&prepare, 99.0).context("no samples")?;
        let count = CLAIM_COUNT;
        Ok(vec![
            Figure::new("prepare, back to back", "ms", &prepare, Goal::Below(3.5))?,
            Figure::new("prepare, back to back, p99", "ms", &[p99], Goal::Below(12.0))?,
            Figure::new("GET of a claim by the benchmark, for comparison", "ms", &get, Goal::None)?,
            Figure::new("unprepare, back to back", "ms", &unprepare, Goal::None)?,
            Figure::new(
                "prepare and unprepare pairs",
                "1/s",
                &[count / whole.as_secs_f64()],
                Goal::Above(220.0),
            )?,
            Figure::new(
                "GETs of claims per prepare",
                "requests",
                &[(after.gets - before.gets) / count],
                Goal::Exactly(1.0),
            )?,
            Figure::new(
                "other requests for claims per prepare",
                "requests",
                &[(after.others - before.others) / count],
                Goal::Exactly(0.0),
            )?,
            Figure::new(
                "watches over claims by the agent",
                "watches",
                &[api_server::claim_watches(&self.client).await? - self.watches_before],
                Goal::Exactly(0.0),
            )?,
        ])
    }

    /// GETs of claims by the benchmark's own client.
    async fn raw_gets(&self, claims: &[v1::Claim]) -> anyhow::Result<Vec<f64>> {
        let mut samples = Vec::new();
        for claim in claims {
            let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &claim.namespace);
            let begun = Instant::now();
            let found = api.get(&claim.name).await?;
            samples.push(milliseconds(begun.elapsed()));
            ensure!(found.uid().as_ref() == Some(&claim.uid), "another claim {}", claim.name);
        }
        Ok(samples)
    }

    /// Eight claims at once, until all are prepared, and back.
    async fn at_once(
        &self,
        kubelet: &Kubelet,
        claims: &[v1::Claim],
    ) -> anyhow::Result<Vec<Figure>> {
        let claims = &claims[..GPUS];
        let (mut prepare, mut unprepare) = (Vec::new(), Vec::new());
        for _ in 0..CONCURRENT_ROUNDS {
            let begun = Instant::now();
            try_join_all(claims.iter().map(|claim| kubelet.prepare(claim))).await?;
            prepare.push(milliseconds(begun.elapsed()));
            let begun = Instant::now();
            try_join_all(claims.iter().map(|claim| kubelet.unprepare(claim))).await?;
            unprepare.push(milliseconds(begun.elapsed()));
        }
        Ok(vec![
            Figure::new("8 claims at once, all prepared", "ms", &prepare, Goal::Below(40.0))?,
            Figure::new("8 claims at once, all unprepared", "ms", &unprepare, Goal::None)?,
        ])
    }

    /// Claims created, allocated, prepared, unprepared and deleted, a thousand times.
    async fn cycles(&self, kubelet: &Kubelet) -> anyhow::Result<Figure> {
        let started = Instant::now();
        let lanes = (0..GPUS).map(|gpu| async move {
            for round in 0..CLAIMS / GPUS {
                let name = format!("cycle-{gpu}-{round}");
                let device = format!("gpu-{gpu}");
                let claim = claims::allocated(&self.client, &name, NODE, &device).await?;
                kubelet.prepare(&claim).await?;
                kubelet.unprepare(&claim).await?;
                claims::delete(&self.client, &claim).await?;
            }
            anyhow::Ok(())
        });
        try_join_all(lanes).await?;
        let each = milliseconds(started.elapsed()) / CLAIM_COUNT;
        Figure::new("create, prepare, unprepare, delete: each of 1,000", "ms", &[each], Goal::None)
    }

    /// Memory after the work, then processor time over a while without any.
    async fn idle(&self, agent: &AgentProcess) -> anyhow::Result<Vec<Figure>> {
        let memory = process::memory(agent.pid())?;
        let before = process::cpu_time(agent.pid())?;
        tokio::time::sleep(IDLE_DURATION).await;
        let used = process::cpu_time(agent.pid())?.saturating_sub(before);
        let share = used.as_secs_f64() / IDLE_DURATION.as_secs_f64() * 100.0;
        Ok(vec![
            Figure::new("resident memory", "MiB", &[memory.resident], Goal::Below(32.0))?,
            Figure::new("of which anonymous", "MiB", &[memory.anonymous], Goal::Below(10.0))?,
            Figure::new("idle processor time, of a core", "%", &[share], Goal::Below(0.1))?,
        ])
    }

    /// Memory after the same work of an agent without memory enforcement and kernel log: what dynamic resource allocation takes. `claim` is
    /// any of this node.
    async fn memory_with_dra_alone(&self, claim: &v1::Claim) -> anyhow::Result<Figure> {
        let text = std::fs::read_to_string(self.node.join("agent.yaml"))?;
        let mut config: serde_json::Value = serde_saphyr::from_str(&text)?;
        let fields = config.as_object_mut().context("the agent's config is no map")?;
        fields.remove("kernelLog");
        fields.insert("memoryEnforcement".to_owned(), "off".into());
        let path = self.node.join("agent-dra.yaml");
        std::fs::write(&path, config.to_string())?;
        let agent = AgentProcess::start(&self.octavo, &path)?;
        let kubelet = Kubelet::connect(&self.socket()).await?;
        // The agent's own word would need a kubelet that registers it.
        kubelet.until_ready(claim).await?;
        self.cycles(&kubelet).await?;
        let memory = process::memory(agent.pid())?;
        agent.stop().await?;
        let what = "resident memory without memory enforcement and kernel log";
        Figure::new(what, "MiB", &[memory.resident], Goal::Below(25.0))
    }

    /// CDI specs and checkpoints that remain after all measurements.
    fn leftovers(&self) -> anyhow::Result<Figure> {
        let mut files = 0_u32;
        for (place, extension) in
            [("cdi", "yaml"), ("kubelet/plugins/gpu.nvidia.com/checkpoint", "json")]
        {
            let path = self.node.join(place);
            for entry in std::fs::read_dir(&path).with_context(|| path.display().to_string())? {
                files += u32::from(entry?.path().extension() == Some(extension.as_ref()));
            }
        }
        Figure::new("files left behind", "files", &[f64::from(files)], Goal::Exactly(0.0))
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
