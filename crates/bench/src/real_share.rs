//! A share of this machine's own GPU, prepared by the agent, with a command under memory
//! enforcement.
//!
//! The agent reads the machine's driver. This program acts as the kubelet and applies the CDI spec
//! to a root made from the machine's own. It needs root, but neither Kubernetes nor a container
//! runtime.

mod api;
mod container;
mod probe;
mod watch;

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use octavo_figure::{Figure, Goal};
use octavo_gpu::nvml::{Nvml, find_library};
use octavo_gpu::{Gpu, Inventory};
use octavo_kubelet_api::dra::v1;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agent_process::AgentProcess;
use crate::kubelet::Kubelet;
use crate::lab_dir::print_progress;
use api::Api;
use container::Container;
use watch::CommandReport;

const NODE: &str = "this-machine";
const CLAIM: &str = "share";
const SHARE_ID: &str = "5a5e0000-0000-4000-8000-000000000001";

/// Memory beyond the share's limit that the driver may count for it, in MiB.
const MAX_OVERHEAD_MIB: f64 = 64.0;

const SIGKILL: i32 = 9;

/// Timeout for the agent to read the driver and to report a share.
const AGENT_TIMEOUT: Duration = Duration::from_mins(1);

/// Paths of the machine, and the commands to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// real-share: root of the driver's files.
    #[arg(long, default_value = "/")]
    driver_root: PathBuf,
    /// real-share: the sys file system.
    #[arg(long, default_value = "/sys")]
    sys_root: PathBuf,
    /// real-share: folder of a simulated driver that containers need to see.
    #[arg(long)]
    simulator: Option<PathBuf>,
    /// real-share: memory of the share, in GiB.
    #[arg(long, default_value_t = 10)]
    memory_gib: u64,
    /// real-share: a line for a shell to run in the share, with a name; it has to succeed there. `{limit}` in it is
    /// what the container gets, in bytes. May be given again.
    #[arg(long = "run", value_name = "NAME=LINE")]
    runs: Vec<String>,
    /// real-share: a line for a shell that takes more than the share past the guard, with a name. It is reported whether it
    /// is killed. `{limit}` is as above. May be given again.
    #[arg(long = "bypass", value_name = "NAME=LINE")]
    bypasses: Vec<String>,
}

/// Prepares the share, runs the commands, bypasses the guard, unprepares the share.
pub(crate) async fn run(octavo: &Path, options: &Options) -> anyhow::Result<Vec<Figure>> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "a container's root needs mounts: run it as root"
    );
    let testbed = Testbed::new(options).await?;
    let agent = AgentProcess::start_with_log(
        octavo,
        &testbed.path("agent.yaml"),
        &testbed.path("agent.log"),
    )?;
    let figures = testbed.measure(octavo, options).await;
    agent.stop().await?;
    figures.with_context(|| {
        let log = fs::read_to_string(testbed.path("agent.log")).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(25).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        format!("last lines of the agent's log:\n{}\n", tail.join("\n"))
    })
}

/// The folder in which all of it happens, the API server and the GPU.
struct Testbed {
    folder: TempDir,
    api: Api,
    driver: Nvml,
    gpu: Gpu,
    /// Memory of the claim, in bytes.
    memory: u64,
    /// What containers get of it, in bytes.
    limit: u64,
}

/// Makes what an agent reads of `/proc` where no driver is loaded. Returns the folder.
fn simulated_proc(folder: &Path) -> anyhow::Result<PathBuf> {
    let random = folder.join("sys/kernel/random");
    fs::create_dir_all(&random)?;
    fs::copy("/proc/sys/kernel/random/boot_id", random.join("boot_id"))?;
    let devices =
        "Character devices:\n195 nvidia\n195 nvidia-modeset\n195 nvidiactl\n508 nvidia-uvm\n";
    fs::write(folder.join("devices"), devices)?;
    Ok(folder.to_owned())
}

impl Testbed {
    async fn new(options: &Options) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("or").tempdir().context("make a folder")?;
        let library = find_library(&options.driver_root)?;
        let driver = Nvml::open(&library, &options.sys_root)?;
        let inventory = Inventory::read(&driver).context("read the GPUs")?;
        let gpu = inventory.gpus.into_iter().next().context("this machine has no GPU")?;
        let api = Api::start().await?;
        let memory = options.memory_gib << 30;
        let reserved = gpu.reserved_bytes.unwrap_or_default();
        let limit = Gpu::usable_part(memory, gpu.memory_bytes, reserved);
        let testbed = Self { folder, api, driver, gpu, memory, limit };
        for part in ["kubelet", "cdi", "run"] {
            fs::create_dir(testbed.path(part))?;
        }
        let server = testbed.api.address();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "this",
            "clusters": [{"name": "this", "cluster": {"server": format!("http://{server}")}}],
            "users": [{"name": "this", "user": {}}],
            "contexts": [{"name": "this", "context": {"cluster": "this", "user": "this"}}],
        });
        fs::write(testbed.path("kubeconfig"), kubeconfig.to_string())?;
        let mounts: Vec<Value> = options
            .simulator
            .iter()
            .map(|folder| {
                json!({
                    "hostPath": folder, "containerPath": "/run/octavo-simulator", "readOnly": false,
                })
            })
            .collect();
        let proc_root = match options.simulator {
            Some(_) => simulated_proc(&testbed.path("proc"))?,
            None => "/proc".into(),
        };
        // JSON is YAML.
        let config = json!({
            "nodeName": NODE,
            "kubeconfig": testbed.path("kubeconfig"),
            "driverRoot": options.driver_root,
            "sysRoot": options.sys_root,
            "procRoot": proc_root,
            "cgroupRoot": "/sys/fs/cgroup",
            "kubeletRoot": testbed.path("kubelet"),
            "cdiRoot": testbed.path("cdi"),
            "runRoot": testbed.path("run"),
            "hookDir": testbed.path("hook"),
            "memoryEnforcement": "guard",
            "mounts": mounts,
        });
        fs::write(testbed.path("agent.yaml"), config.to_string())?;
        Ok(testbed)
    }

    fn path(&self, part: &str) -> PathBuf {
        self.folder.path().join(part)
    }

    /// Adds a claim with a share of the GPU to the API, allocated as by a scheduler.
    fn claim(&self) -> v1::Claim {
        let uid = "0c7a0000-0000-4000-8000-000000000001".to_owned();
        let device = format!("gpu-{}", self.gpu.minor);
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": CLAIM, "namespace": "default", "uid": uid},
            "spec": {"devices": {"requests": [
                {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
            ]}},
            "status": {"allocation": {"devices": {"results": [{
                "request": "gpu", "driver": "gpu.nvidia.com", "pool": NODE, "device": device,
                "shareID": SHARE_ID,
                "consumedCapacity": {"memory": self.memory.to_string()},
            }]}}},
        });
        self.api.put(&api::claim(CLAIM), claim);
        v1::Claim { namespace: "default".into(), uid, name: CLAIM.into() }
    }

    async fn measure(&self, octavo: &Path, options: &Options) -> anyhow::Result<Vec<Figure>> {
        self.api.put(&api::node(NODE), json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "uid": "this-machine"},
        }));
        let claim = self.claim();
        let socket = self.path("kubelet/plugins/gpu.nvidia.com/dra.sock");
        let kubelet = Kubelet::connect(&socket).await?;
        until_ready(&kubelet, &claim).await?;
        let begun = Instant::now();
        let devices = kubelet.prepare(&claim).await.context("prepare the share")?;
        let took = begun.elapsed();
        let names: Vec<String> =
            devices.iter().flat_map(|device| device.cdi_device_ids.clone()).collect();
        ensure!(!names.is_empty(), "the prepared share has no CDI device");
        let container = Container::from_specs(self.folder.path(), &self.path("cdi"), &names)?;

        let mut figures = vec![
            Figure::new("prepare of a share", "ms", &[took.as_secs_f64() * 1e3], Goal::None)?,
            self.wait_for_condition("claim condition Enforced", "Enforced").await?,
        ];
        figures.extend(probe::run(octavo, &container, self.limit)?);
        for run in &options.runs {
            let (name, mut command) = self.shell(&container, run)?;
            figures.extend(self.command(name, &mut command)?);
        }
        for line in &options.bypasses {
            let (name, mut command) = self.shell(&container, line)?;
            figures.extend(self.bypass(name, &mut command, false)?);
        }
        let args = ["probe", "--no-timing", "--path", "alloc", "--bypass", "10"];
        let mut probe = container.command(octavo.as_os_str(), &args.map(OsString::from))?;
        figures.extend(self.bypass("guard bypassed", &mut probe, true)?);
        figures.push(
            self.wait_for_condition("claim condition MemoryOverflow", "MemoryOverflow").await?,
        );
        kubelet.unprepare(&claim).await.context("unprepare the share")?;
        let left = fs::read_dir(self.path("run/octavo/shares")).into_iter().flatten().count();
        let left = f64::from(u32::try_from(left)?);
        figures.push(Figure::new(
            "folders left of the share",
            "folders",
            &[left],
            Goal::Exactly(0.0),
        )?);
        Ok(figures)
    }

    /// The name of a NAME=LINE, and the command that runs the line in the container.
    fn shell<'a>(
        &self,
        container: &Container,
        named: &'a str,
    ) -> anyhow::Result<(&'a str, Command)> {
        let (name, line) = named.split_once('=').context("a command is given as NAME=LINE")?;
        let line = line.replace("{limit}", &self.limit.to_string());
        let args = ["-c".to_owned(), format!("exec {line}")].map(OsString::from);
        Ok((name, container.command("sh".as_ref(), &args)?))
    }

    /// Runs a command. Reports whether it fails and the peak use that the driver counts.
    fn command(&self, name: &str, command: &mut Command) -> anyhow::Result<Vec<Figure>> {
        // Reports go to standard output, and are alone there.
        let report = self.run_watched(command.stdout(std::io::stderr()))?;
        let failed = f64::from(u8::from(!report.status.is_some_and(|status| status.success())));
        let most = format!("{name}: peak use that the driver counts");
        let allowed = mib(self.limit) + MAX_OVERHEAD_MIB;
        Ok(vec![
            Figure::new(format!("{name}: failed"), "times", &[failed], Goal::Exactly(0.0))?,
            Figure::new(most, "MiB", &[mib(report.most)], Goal::Below(allowed + 1.0))?,
        ])
    }

    /// Runs a program that bypasses the guard. Reports how much memory it gets, and how soon it is
    /// killed.
    fn bypass(
        &self,
        name: &str,
        command: &mut Command,
        must_be_killed: bool,
    ) -> anyhow::Result<Vec<Figure>> {
        let goal = |goal| if must_be_killed { goal } else { Goal::None };
        let report = self.run_watched(command.stdout(Stdio::null()))?;
        let is_killed = report.status.is_some_and(|status| status.signal() == Some(SIGKILL));
        if report.over.is_none() {
            print_progress(&format!(
                "{name}: the driver never counted more than the limit for it, and it ended with {:?}",
                report.status
            ));
        }
        let what = |what: &str| format!("{name}: {what}");
        let killed = f64::from(u8::from(is_killed));
        let mut figures = vec![
            Figure::new(what("peak use"), "MiB", &[mib(report.most)], Goal::None)?,
            Figure::new(what("killed"), "times", &[killed], goal(Goal::Exactly(1.0)))?,
        ];
        if let Some(time) = report.over {
            let name = what("from exceeding the limit to its end");
            figures.push(Figure::new(name, "s", &[time.as_secs_f64()], goal(Goal::Below(1.0)))?);
        }
        Ok(figures)
    }

    fn run_watched(&self, command: &mut Command) -> anyhow::Result<CommandReport> {
        watch::run(command, &self.driver, &self.gpu.uuid, self.limit)
    }

    /// Waits until the claim has a condition; 1 if the condition is or was true.
    async fn wait_for_condition(&self, what: &str, condition: &str) -> anyhow::Result<Figure> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.api.was_true(&api::claim(CLAIM), condition) && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let is_true = self.api.was_true(&api::claim(CLAIM), condition);
        Figure::new(what, "claims", &[f64::from(u8::from(is_true))], Goal::Exactly(1.0))
    }
}

fn mib(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes >> 20).unwrap_or(u32::MAX))
}

/// Asks until the agent has read its driver.
async fn until_ready(kubelet: &Kubelet, claim: &v1::Claim) -> anyhow::Result<()> {
    let deadline = Instant::now() + AGENT_TIMEOUT;
    while let Err(error) = kubelet.prepare(claim).await {
        if Instant::now() > deadline {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    kubelet.unprepare(claim).await
}
