//! A lab for one test, with queries for tests.

use std::cell::RefCell;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::resource::v1::{Device, ResourceClaim, ResourceSlice};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use octavo_lab::{Component, DynamicMig, Lab, Owner, Owners, RealNodeKind, UpOptions};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The binary under test.
pub(crate) const OCTAVO: &str = env!("CARGO_BIN_EXE_octavo");

/// Longest wait; test machines are slow and busy, and only failures reach it.
const WAIT_TIMEOUT: Duration = Duration::from_mins(4);

/// Lines of each log after a failure: all of them would hide what failed.
const LOG_LINES: usize = 40;

thread_local! {
    /// The message of the panic that ends this thread's test.
    static FAILURE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps messages of panics. A failed test repeats its own below the logs, where a report that is cut in its middle still has it.
fn keep_failures() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |failure| {
            FAILURE.set(failure.to_string());
            print(failure);
        }));
    });
}

/// A lab that ends with the test.
pub(crate) struct Testbed {
    pub(crate) lab: Lab,
    pub(crate) client: Client,
    state: PathBuf,
    // Dropped after the lab has ended.
    _folder: tempfile::TempDir,
}

impl Testbed {
    /// Starts a lab with these nodes and waits until it is ready.
    pub(crate) async fn up(nodes: &str) -> Self {
        Self::up_with(|state| UpOptions {
            nodes: Some(nodes.parse().unwrap()),
            ..UpOptions::new(state, OCTAVO)
        })
        .await
    }

    /// Like `up`, with these GPUs opted in to dynamic MIG.
    pub(crate) async fn up_with_mig(nodes: &str, dynamic_mig: DynamicMig) -> Self {
        Self::up_with(|state| UpOptions {
            nodes: Some(nodes.parse().unwrap()),
            dynamic_mig: Some(dynamic_mig),
            ..UpOptions::new(state, OCTAVO)
        })
        .await
    }

    /// Like `up`, with all nodes owned by Octavo's scheduler, which runs.
    pub(crate) async fn up_octavo(nodes: &str) -> Self {
        Self::up_octavo_with_mig(nodes, DynamicMig::None).await
    }

    /// Like `up_octavo`, with these GPUs opted in to dynamic MIG.
    pub(crate) async fn up_octavo_with_mig(nodes: &str, dynamic_mig: DynamicMig) -> Self {
        Self::up_with(|state| UpOptions {
            nodes: Some(nodes.parse().unwrap()),
            dynamic_mig: Some(dynamic_mig),
            owners: Some(Owners::All(Owner::Octavo)),
            scheduler: Some(true),
            ..UpOptions::new(state, OCTAVO)
        })
        .await
    }

    /// Like `up`, with these real nodes and no simulated ones.
    pub(crate) async fn up_real(nodes: &str) -> Self {
        Self::up_with(|state| UpOptions {
            real_nodes: Some(nodes.parse().unwrap()),
            ..UpOptions::control_plane_only(state, OCTAVO)
        })
        .await
    }

    /// Like `up_real`, with nodes that are virtual machines.
    pub(crate) async fn up_virtual(nodes: &str) -> Self {
        Self::up_with(|state| UpOptions {
            real_nodes: Some(nodes.parse().unwrap()),
            real_node_kind: Some(RealNodeKind::VirtualMachine),
            ready_timeout: Duration::from_mins(10),
            ..UpOptions::control_plane_only(state, OCTAVO)
        })
        .await
    }

    /// Starts the agents again, with these settings in the config of one.
    pub(crate) async fn configure_agent(&self, node: &str, lines: &str) {
        self.lab.stop(Component::Agents).await;
        let file = self.node(node).join("agent.yaml");
        let text = fs::read_to_string(&file).unwrap();
        let key = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
        let new: Vec<String> = lines.lines().map(key).collect();
        let others = text.lines().filter(|line| !new.contains(&key(line)));
        let text: Vec<&str> = others.chain(lines.lines()).collect();
        fs::write(&file, text.join("\n") + "\n").unwrap();
        self.lab.start(Component::Agents).await.unwrap();
    }

    /// Starts a lab with the given options and waits until it is ready.
    pub(crate) async fn up_with(options: impl FnOnce(&Path) -> UpOptions) -> Self {
        keep_failures();
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Socket paths are limited, so the folder's name must be short.
        let folder = tempfile::Builder::new().prefix("oe").tempdir().unwrap();
        let state = folder.path().join("lab");
        // A killed test cannot end its lab.
        let options = UpOptions { stops_with_parent: true, ..options(&state) };
        let lab = Box::pin(Lab::up(options)).await.unwrap();
        let client = lab.client().await.unwrap();
        Self { lab, client, state, _folder: folder }
    }

    /// Folder of a node.
    pub(crate) fn node(&self, node: &str) -> PathBuf {
        self.lab.layout().node(node)
    }

    /// Runs `octavo` against the lab.
    pub(crate) fn octavo(&self, args: &[&str]) -> Output {
        Command::new(OCTAVO)
            .args(args)
            .env("KUBECONFIG", self.lab.kubeconfig())
            .env("OCTAVO_LAB_DIR", &self.state)
            .output()
            .unwrap()
    }

    /// Runs `octavo`, which must succeed, and returns its standard output.
    pub(crate) fn octavo_ok(&self, args: &[&str]) -> String {
        let output = self.octavo(args);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "octavo {args:?}: {}: {text}{errors}", output.status);
        text
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) fn claims(&self) -> Api<ResourceClaim> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) fn slices(&self) -> Api<ResourceSlice> {
        Api::all(self.client.clone())
    }

    /// Creates an object from its JSON in the default namespace.
    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + serde::Serialize,
        K::DynamicType: Default,
    {
        let api: Api<K> = Api::default_namespaced(self.client.clone());
        let object: K = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap()
    }

    /// Creates a claim for one GPU, with optional opaque configs, and a pod that uses it.
    pub(crate) async fn pod_with_claim(&self, name: &str, configs: &Value) {
        self.create::<ResourceClaim>(claim(name, configs)).await;
        self.create::<Pod>(pod(name, name)).await;
    }

    /// Waits until the pod is bound.
    ///
    /// Tests that need packed shares wait for each pod before creating the next. While an
    /// allocation is being written, kube-scheduler may count its capacity twice. It then retries
    /// the rejected pod only after minutes.
    pub(crate) async fn wait_until_bound(&self, name: &str) {
        let pods = self.pods();
        eventually(&format!("pod {name} is bound"), || async {
            pods.get(name).await.ok()?.spec?.node_name.map(drop)
        })
        .await;
    }

    /// Waits until the pod runs.
    pub(crate) async fn wait_until_running(&self, name: &str) -> Pod {
        let pods = self.pods();
        eventually(&format!("pod {name} runs"), || async {
            let pod = pods.get(name).await.ok()?;
            let phase = pod.status.as_ref()?.phase.as_deref()? == "Running";
            phase.then_some(pod)
        })
        .await
    }

    /// Waits for an event with this reason and this part of its note.
    pub(crate) async fn wait_until_event(&self, reason: &str, part: &str) {
        let events: Api<Event> = Api::all(self.client.clone());
        eventually(&format!("an event {reason} with {part:?}"), || async {
            let found = events.list(&ListParams::default()).await.ok()?.items;
            let is_it = |event: &Event| {
                event.reason.as_deref() == Some(reason)
                    && event.message.as_ref().is_some_and(|note| note.contains(part))
            };
            found.iter().any(is_it).then_some(())
        })
        .await;
    }

    /// Waits until the scheduler reports the pod as unschedulable, and returns the message.
    pub(crate) async fn wait_until_unschedulable(&self, name: &str) -> String {
        let pods = self.pods();
        eventually(&format!("pod {name} cannot be scheduled"), || async {
            let conditions = pods.get(name).await.ok()?.status?.conditions?;
            let scheduled = conditions.into_iter().find(|found| found.type_ == "PodScheduled")?;
            let waits = scheduled.reason.as_deref() == Some("Unschedulable");
            waits.then(|| scheduled.message.unwrap_or_default())
        })
        .await
    }

    /// The record of a container on a simulated node.
    pub(crate) fn container(&self, node: &str, pod: &Pod, container: &str) -> Container {
        let folder = self.node(node).join("kubelet/pods").join(pod.uid().unwrap());
        let text = std::fs::read(folder.join(format!("{container}.json"))).unwrap();
        Container(serde_json::from_slice(&text).unwrap())
    }

    /// Folders of shares on a node.
    pub(crate) fn share_folders(&self, node: &str) -> Vec<PathBuf> {
        let folder = self.node(node).join("run/octavo/shares");
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let mut folders: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        folders.sort();
        folders
    }

    /// Number of MIG instances that the simulated GPUs of a node have.
    pub(crate) fn mig_instances(&self, node: &str) -> usize {
        let path = self.node(node).join("driver/usr/lib64/state.json");
        let state: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let gpus = state["gpus"].as_object().into_iter().flatten();
        let instances = |(_, gpu): (&String, &Value)| {
            gpu["mig"]["instances"].as_object().map(serde_json::Map::len)
        };
        gpus.filter_map(instances).sum()
    }

    /// Deletes the pod and waits until it is gone.
    pub(crate) async fn delete_pod(&self, name: &str) {
        let pods = self.pods();
        pods.delete(name, &kube::api::DeleteParams::default()).await.unwrap();
        eventually(&format!("pod {name} is gone"), || async {
            pods.get_opt(name).await.ok()?.is_none().then_some(())
        })
        .await;
    }

    /// The slices published by a node's agent, sorted by name.
    pub(crate) async fn slices_of(&self, node: &str) -> Vec<ResourceSlice> {
        let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let mut slices = self.slices().list(&params).await.unwrap().items;
        slices.sort_by_key(ResourceExt::name_any);
        slices
    }

    /// A device of a node, if it is published.
    pub(crate) async fn device(&self, node: &str, device: &str) -> Option<Device> {
        let slices = self.slices_of(node).await;
        slices
            .into_iter()
            .flat_map(|slice| slice.spec.devices.unwrap_or_default())
            .find(|found| found.name == device)
    }

    /// Files in the CDI and checkpoint folders of a node.
    pub(crate) fn node_files(&self, node: &str) -> Vec<PathBuf> {
        let node = self.node(node);
        let specs = files(&node.join("cdi"));
        let checkpoints = files(&node.join("kubelet/plugins/gpu.nvidia.com/checkpoint"));
        let is_claim = |path: &PathBuf| path.extension() == Some("json".as_ref());
        specs.into_iter().chain(checkpoints.into_iter().filter(is_claim)).collect()
    }
}

/// A simulated container's record, read from the simulated runtime's file.
#[derive(Debug)]
pub(crate) struct Container(Value);

/// A share's folder in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShareFolder {
    /// Path on the host.
    pub(crate) host: PathBuf,
    /// Path in the container.
    pub(crate) inside: String,
}

impl Container {
    /// Number of device nodes with this prefix.
    pub(crate) fn device_nodes(&self, prefix: &str) -> usize {
        self.paths().filter(|path| path.starts_with(prefix)).count()
    }

    /// Device nodes of GPUs.
    pub(crate) fn gpus(&self) -> Vec<String> {
        let is_gpu = |path: &&str| {
            let minor = path.strip_prefix("/dev/nvidia").unwrap_or_default();
            !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit())
        };
        self.paths().filter(is_gpu).map(str::to_owned).collect()
    }

    /// Its share folders, sorted by path.
    pub(crate) fn shares(&self) -> Vec<ShareFolder> {
        let mounts = self.0["mounts"].as_array().into_iter().flatten();
        let mut shares: Vec<_> = mounts
            .filter_map(|mount| {
                let inside = mount["containerPath"].as_str()?;
                let name = inside.strip_prefix("/run/octavo/shares/")?;
                // The state file is a separate mount over the one in the folder.
                (!name.contains('/')).then(|| ShareFolder {
                    host: mount["hostPath"].as_str().unwrap_or_default().into(),
                    inside: inside.to_owned(),
                })
            })
            .collect();
        shares.sort_by(|left, right| left.inside.cmp(&right.inside));
        shares
    }

    fn paths(&self) -> impl Iterator<Item = &str> {
        let nodes = self.0["deviceNodes"].as_array().into_iter().flatten();
        nodes.filter_map(|node| node["path"].as_str())
    }
}

impl ShareFolder {
    /// The limits in the folder.
    pub(crate) fn limits(&self) -> Value {
        let text = std::fs::read(self.host.join("limits.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        let ended = Command::new(OCTAVO)
            .args(["lab", "--state-dir"])
            .arg(&self.state)
            .arg("down")
            .args(failed.then_some("--keep-logs"))
            .output();
        if failed {
            let is_relevant = |name: &str| {
                ["agents.", "kube-controller-manager.", "kubelets.", "octavo-scheduler.", "real-"]
                    .iter()
                    .any(|start| name.starts_with(start))
            };
            for log in files(&self.state.join("logs")) {
                let name = log.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if is_relevant(&name) {
                    let text = std::fs::read_to_string(log).unwrap_or_default();
                    let lines: Vec<&str> = text.lines().collect();
                    let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
                    println!("{name}:\n{}", last.join("\n"));
                }
            }
            println!("{}", FAILURE.take());
        } else {
            assert!(ended.unwrap().status.success(), "octavo lab down failed");
        }
    }
}

/// A claim for one GPU.
pub(crate) fn claim(name: &str, configs: &Value) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {
            "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}],
            "config": configs,
        }},
    })
}

/// A pod that uses claim `claim`.
pub(crate) fn pod(name: &str, claim: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
            "containers": [{
                "name": "main",
                "image": "ubuntu:24.04",
                "resources": {"claims": [{"name": "gpu"}]},
            }],
        },
    })
}

/// Polls until there is an answer.
pub(crate) async fn eventually<T, F>(what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within {} s: {what}", WAIT_TIMEOUT.as_secs());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Sorted files in a folder, without subfolders; empty if the folder is missing.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}
