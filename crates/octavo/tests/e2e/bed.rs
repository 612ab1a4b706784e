//! A lab for one test, and the questions that tests ask of it.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{Device, ResourceClaim, ResourceSlice};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use octavo_lab::{Lab, UpOptions};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The binary under test.
pub(crate) const OCTAVO: &str = env!("CARGO_BIN_EXE_octavo");

/// How long anything may take; the machines that run tests are slow and busy.
const PATIENCE: Duration = Duration::from_mins(2);

/// A lab that ends with the test.
pub(crate) struct Bed {
    pub(crate) lab: Lab,
    pub(crate) client: Client,
    state: PathBuf,
    // After `Drop` has ended the lab, its folder goes.
    _folder: tempfile::TempDir,
}

impl Bed {
    /// A lab with these nodes, ready.
    pub(crate) async fn up(nodes: &str) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        // Socket paths are short: the folder's name has to be, too.
        let folder = tempfile::Builder::new().prefix("oe").tempdir().unwrap();
        let state = folder.path().join("lab");
        let mut options = UpOptions::new(&state, OCTAVO);
        options.nodes = Some(nodes.parse().unwrap());
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

    /// Runs `octavo`, which has to succeed, and returns its standard output.
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

    /// Creates a claim for one GPU, with opaque configs if there are any, and a pod that uses it.
    pub(crate) async fn pod_with_claim(&self, name: &str, configs: &Value) {
        self.create::<ResourceClaim>(claim(name, configs)).await;
        self.create::<Pod>(pod(name, name)).await;
    }

    /// Waits until the pod runs.
    pub(crate) async fn running(&self, name: &str) -> Pod {
        let pods = self.pods();
        eventually(&format!("pod {name} runs"), || async {
            let pod = pods.get(name).await.ok()?;
            let phase = pod.status.as_ref()?.phase.as_deref()? == "Running";
            phase.then_some(pod)
        })
        .await
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

    /// The slices that a node's agent has published, in order of name.
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

impl Drop for Bed {
    fn drop(&mut self) {
        let ended =
            Command::new(OCTAVO).args(["lab", "--state-dir"]).arg(&self.state).arg("down").output();
        if std::thread::panicking() {
            for log in ["agents", "kubelets"] {
                let path = self.state.join(format!("logs/{log}.log"));
                println!("{log}:\n{}", std::fs::read_to_string(path).unwrap_or_default());
            }
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

/// Asks until the answer is there.
pub(crate) async fn eventually<T, F>(what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within {} s: {what}", PATIENCE.as_secs());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Files in a folder, sorted, folders excluded; none if it is missing.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}
