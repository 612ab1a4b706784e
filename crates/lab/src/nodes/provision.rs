//! Creates the nodes of a lab: folders with simulated hardware, Node objects, and the agents'
//! files.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Context as _, bail};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Node as NodeObject, ServiceAccount};
use kube::api::{Api, PostParams};
use octavo_api::imex::ImexSettings;
use octavo_api::names;
use octavo_machine::Machine;
use serde::Serialize;
use serde_json::json;

use crate::cli::gpu;
use crate::cli::progress::Progress;
use crate::cluster::component::Component;
use crate::cluster::kubeconfig::{self, Credential};
use crate::cluster::layout::Layout;
use crate::cluster::manifests;
use crate::cluster::pki;
use crate::cluster::settings::{Node, Settings};
use crate::nodes::driver_libraries::DriverLibraries;
use crate::nodes::dynamic_mig::NodeDynamicMig;
use crate::nodes::hardware;
use crate::nodes::kernel_log;
use crate::nodes::nodeset;

/// Number of nodes that are created concurrently.
const MAX_CONCURRENT_NODES: usize = 32;

/// Lifetime of an agent's token in seconds: 30 days. A kubelet would renew it every hour; the lab
/// does not. Agents of an older lab are therefore rejected.
const TOKEN_SECONDS: i64 = 30 * 24 * 3600;

/// The machines of a lab's nodes, by requested name.
pub(crate) type Machines = BTreeMap<String, Machine>;

/// Loads the machine description of every node.
pub(crate) fn load_machines<'a>(nodes: impl Iterator<Item = &'a Node>) -> anyhow::Result<Machines> {
    let mut machines = Machines::new();
    for node in nodes {
        if let Entry::Vacant(vacant) = machines.entry(node.machine.clone()) {
            let machine = hardware::catalogue::load(&node.machine)
                .with_context(|| format!("load the machine {}", node.machine))?;
            vacant.insert(machine);
        }
    }
    Ok(machines)
}

/// Where a node's agent runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// In the process of all agents, which reads a config file from the node's folder.
    Simulated,
    /// In the node itself, which has its files elsewhere.
    Real,
}

impl NodeKind {
    /// Value of the label `octavo.dev/lab`, by which pods select nodes.
    fn label(self) -> &'static str {
        match self {
            Self::Simulated => "true",
            Self::Real => "real",
        }
    }
}

/// Creates the nodes. The agents' service account must exist.
pub(crate) async fn create(
    client: &kube::Client,
    layout: &Layout,
    settings: &Settings,
    (nodes, kind): (&[Node], NodeKind),
    machines: &Machines,
    libraries: &DriverLibraries,
    progress: &Progress,
) -> anyhow::Result<()> {
    let builds = Arc::new(Builds::default());
    let _ended = EndBuilds(Arc::clone(&builds));
    let builder = NodeBuilder { client, layout, settings, kind, libraries, builds };
    builder.build_shared_hardware(nodes, machines).await?;
    let total = nodes.len();
    let made = stream::iter(nodes.iter().filter_map(|node| {
        let machine = machines.get(&node.machine)?.clone();
        Some(Box::pin(builder.make(node, machine)))
    }))
    .buffer_unordered(MAX_CONCURRENT_NODES);
    made.try_fold(0_usize, |done, ()| async move {
        progress.figure(&format!("making nodes {}/{total}", done + 1));
        Ok(done + 1)
    })
    .await?;
    Ok(())
}

/// A new boot id from the kernel.
pub(crate) fn boot_id() -> anyhow::Result<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/uuid")
        .context("read a random id from the kernel")?;
    Ok(id.trim().to_owned())
}

/// Applies a reboot to a node's folder: a new boot id, an empty `/run`, no MIG instances, reset
/// driver counters. Returns the boot id.
pub(crate) fn reboot(folder: &Path) -> anyhow::Result<String> {
    // First, because readers of the new boot id must find the GPUs in their state after the reboot.
    gpu::reboot(folder)?;
    let boot_id = boot_id()?;
    let path = folder.join("proc/sys/kernel/random/boot_id");
    let next = path.with_extension("next");
    std::fs::write(&next, format!("{boot_id}\n"))
        .and_then(|()| std::fs::rename(&next, &path))
        .with_context(|| format!("write {}", path.display()))?;
    let cdi = folder.join("cdi");
    for entry in std::fs::read_dir(&cdi).into_iter().flatten().flatten() {
        match std::fs::remove_file(entry.path()) {
            // The agent is still running and removed the file first.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            removed => {
                removed.with_context(|| format!("remove {}", entry.path().display()))?;
            }
        }
    }
    // Files of shares; the folder itself stays, like `/run`.
    match std::fs::remove_dir_all(folder.join("run/octavo")) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        removed => removed.with_context(|| format!("empty {}/run", folder.display()))?,
    }
    Ok(boot_id)
}

struct NodeBuilder<'a> {
    client: &'a kube::Client,
    layout: &'a Layout,
    settings: &'a Settings,
    kind: NodeKind,
    libraries: &'a DriverLibraries,
    builds: Arc<Builds>,
}

/// Running hardware builds. They run on blocking threads, so dropping a future does not stop them.
#[derive(Debug, Default)]
struct Builds {
    ended: AtomicBool,
    running: RwLock<()>,
}

impl Builds {
    /// Runs a build, unless the builds have been ended.
    fn run(&self, build: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let _running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        if self.ended.load(Ordering::SeqCst) {
            bail!("the lab is being stopped");
        }
        build()
    }
}

/// On drop, prevents new builds and waits for running ones. A failed or interrupted `up` then
/// removes the folders that they write to.
struct EndBuilds(Arc<Builds>);

impl Drop for EndBuilds {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::SeqCst);
        drop(self.0.running.write());
    }
}

impl NodeBuilder<'_> {
    /// Builds the shared files of each machine.
    async fn build_shared_hardware(
        &self,
        nodes: &[Node],
        machines: &Machines,
    ) -> anyhow::Result<()> {
        // Nodes of one machine have one stem, and no other machine has the same.
        let stems: BTreeMap<&str, String> =
            nodes.iter().map(|node| (node.machine.as_str(), stem(node))).collect();
        for (name, stem) in stems {
            let Some(machine) = machines.get(name).cloned() else { continue };
            let (folder, builds) = (self.layout.machine(&stem), Arc::clone(&self.builds));
            let build = move || builds.run(|| hardware::build_shared(&folder, &machine));
            tokio::task::spawn_blocking(build)
                .await
                .context("build simulated hardware")?
                .with_context(|| format!("build the shared files of the nodes of {name}"))?;
        }
        Ok(())
    }

    async fn make(&self, node: &Node, mut machine: Machine) -> anyhow::Result<()> {
        let folder = self.layout.node(&node.name);
        let built = tokio::task::spawn_blocking({
            let (folder, name, index) = (folder.clone(), node.name.clone(), node.index);
            let libraries = self.libraries.clone();
            let shared = self.layout.machine(&stem(node));
            let (builds, boot_id) = (Arc::clone(&self.builds), boot_id()?);
            move || {
                hardware::place_in_fabric(&mut machine, index);
                builds.run(|| {
                    hardware::build(&folder, &shared, &name, &machine, &libraries, &boot_id)
                })
            }
        });
        let made = async {
            let uid = self.create_object(node).await?;
            match self.kind {
                NodeKind::Simulated => self.token(node, uid).await.map(Some),
                // Its agent is a pod, and gets its token from the kubelet.
                NodeKind::Real => Ok(None),
            }
        };
        let (built, token) = tokio::join!(built, made);
        built
            .context("build simulated hardware")?
            .with_context(|| format!("build the hardware of {}", node.name))?;
        token?.map_or(Ok(()), |token| self.write_agent_files(node, &folder, &token))
    }

    /// Creates the Node object and returns its UID. The kubelet owns its status and Lease.
    async fn create_object(&self, node: &Node) -> anyhow::Result<String> {
        let object: NodeObject =
            serde_json::from_value(object(node, self.kind)).context("make a node")?;
        let nodes: Api<NodeObject> = Api::all(self.client.clone());
        let created = nodes
            .create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("create the node {}", node.name))?;
        created.metadata.uid.context("the API server gave a node no UID")
    }

    /// A token of the agents' service account bound to this node, like the token of a pod on the
    /// node.
    async fn token(&self, node: &Node, uid: String) -> anyhow::Result<String> {
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Node".to_owned()),
                    name: Some(node.name.clone()),
                    uid: Some(uid),
                }),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> =
            Api::namespaced(self.client.clone(), manifests::NAMESPACE);
        let answer = accounts
            .create_token_request(manifests::AGENT, &PostParams::default(), &request)
            .await
            .with_context(|| format!("ask for the token of {}'s agent", node.name))?;
        answer
            .status
            .and_then(|status| status.token)
            .context("the API server answered without a token")
    }

    fn write_agent_files(&self, node: &Node, folder: &Path, token: &str) -> anyhow::Result<()> {
        let token_file = folder.join("token");
        pki::write_secret(&token_file, token)?;
        let kubeconfig = folder.join("kubeconfig");
        let credential = Credential::TokenFile(&token_file);
        kubeconfig::write(&kubeconfig, self.layout, self.settings.apiserver(), &credential)?;
        let has_domains = self.settings.components.contains(&Component::OctavoController);
        let config =
            AgentConfig::new(node, folder, kubeconfig, has_domains.then_some(self.settings.imex));
        std::fs::create_dir_all(&config.run_root)
            .with_context(|| format!("create {}", config.run_root.display()))?;
        kernel_log::append(folder, std::iter::empty())?;
        let text = serde_saphyr::to_string(&config).context("write an agent's config as YAML")?;
        let path = folder.join("agent.yaml");
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }
}

/// The stem of a node's name, derived from its machine.
fn stem(node: &Node) -> String {
    nodeset::stem(&node.machine).unwrap_or_else(|| "node".to_owned())
}

fn object(node: &Node, kind: NodeKind) -> serde_json::Value {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        arch => arch,
    };
    // A path is not a valid label value; the stem is.
    let machine = stem(node);
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": node.name, "labels": {
            "kubernetes.io/hostname": node.name,
            "kubernetes.io/arch": arch,
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": machine,
            "octavo.dev/lab": kind.label(),
            "nvidia.com/gpu.present": "true",
        }},
    });
    // Agents that are processes have it in their config file.
    if kind == NodeKind::Real
        && let Some(value) = node.dynamic_mig.label_value()
    {
        object["metadata"]["labels"][names::LABEL_DYNAMIC_MIG] = value.into();
    }
    if let Some(owner) = node.owner.label() {
        object["metadata"]["labels"][names::LABEL_OWNER] = owner.into();
    }
    object
}

/// The config file of a node's agent, as read by `octavo agent --nodes`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentConfig<'a> {
    node_name: &'a str,
    kubeconfig: PathBuf,
    driver_root: PathBuf,
    proc_root: PathBuf,
    sys_root: PathBuf,
    kubelet_root: PathBuf,
    device_plugin_root: PathBuf,
    cgroup_root: PathBuf,
    cdi_root: PathBuf,
    run_root: PathBuf,
    kernel_log: PathBuf,
    dynamic_mig: &'a NodeDynamicMig,
    compute_domains: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    imex: Option<ImexSettings>,
    daemon_namespace: &'a str,
}

impl<'a> AgentConfig<'a> {
    fn new(
        node: &'a Node,
        folder: &'a Path,
        kubeconfig: PathBuf,
        imex: Option<ImexSettings>,
    ) -> Self {
        Self {
            node_name: &node.name,
            kubeconfig,
            driver_root: folder.join("driver"),
            proc_root: folder.join("proc"),
            sys_root: folder.join("sys"),
            kubelet_root: folder.join("kubelet"),
            device_plugin_root: folder.join("kubelet/device-plugins"),
            // `sys` is shared by all nodes of a machine.
            cgroup_root: folder.join("cgroup"),
            cdi_root: folder.join("cdi"),
            run_root: folder.join("run"),
            kernel_log: kernel_log::path(folder),
            dynamic_mig: &node.dynamic_mig,
            compute_domains: imex.is_some(),
            // Agents have no such setting.
            imex: imex.map(|imex| ImexSettings { encryption: false, ..imex }),
            daemon_namespace: manifests::NAMESPACE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::owner::Owner;

    #[test]
    fn a_node_object_has_its_labels_and_a_machine_that_is_no_path() {
        let node = Node {
            name: "my-box-3".into(),
            machine: "/m/my_box.yaml".into(),
            index: 3,
            dynamic_mig: NodeDynamicMig::default(),
            owner: Owner::Octavo,
        };
        let object: NodeObject =
            serde_json::from_value(object(&node, NodeKind::Simulated)).unwrap();
        let labels = object.metadata.labels.unwrap();
        assert_eq!(labels["node.kubernetes.io/instance-type"], "my-box");
        assert_eq!(labels["kubernetes.io/hostname"], "my-box-3");
        assert_eq!(labels["octavo.dev/lab"], "true");
        assert_eq!(labels["octavo.dev/scheduler"], "octavo");
        assert_eq!(labels.get(names::LABEL_DYNAMIC_MIG), None);
        let node = Node { dynamic_mig: NodeDynamicMig::Some([1, 3].into()), ..node };
        let real: NodeObject = serde_json::from_value(self::object(&node, NodeKind::Real)).unwrap();
        assert_eq!(real.metadata.labels.unwrap()[names::LABEL_DYNAMIC_MIG], "1_3");
        assert!(object.status.is_none() && object.spec.is_none());
    }

    #[test]
    fn an_agent_s_config_names_the_parts_of_its_node() {
        let folder = Path::new("/s/nodes/n");
        let node = Node {
            name: "n".into(),
            machine: "t4".into(),
            index: 0,
            dynamic_mig: NodeDynamicMig::Some([1, 3].into()),
            owner: Owner::Kube,
        };
        let config = AgentConfig::new(
            &node,
            folder,
            folder.join("kubeconfig"),
            Some(ImexSettings::default()),
        );
        let text = serde_saphyr::to_string(&config).unwrap();
        let read: BTreeMap<String, serde_json::Value> = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read["nodeName"], "n");
        assert_eq!(read["driverRoot"], "/s/nodes/n/driver");
        assert_eq!(read["cdiRoot"], "/s/nodes/n/cdi");
        assert_eq!(read["cgroupRoot"], "/s/nodes/n/cgroup");
        assert_eq!(read["runRoot"], "/s/nodes/n/run");
        assert_eq!(read["kernelLog"], "/s/nodes/n/kern.log");
        assert_eq!(read["dynamicMig"], serde_json::json!([1, 3]));
        assert_eq!(read["computeDomains"], true);
        assert_eq!(read["imex"]["isolation"], "domain");
        assert_eq!(read["daemonNamespace"], "octavo-system");
    }

    #[test]
    fn once_an_up_is_over_its_builds_have_ended_and_none_begins() {
        let builds = Arc::new(Builds::default());
        let ended = EndBuilds(Arc::clone(&builds));
        let (began, has_begun) = std::sync::mpsc::channel();
        let (written, is_written) = std::sync::mpsc::channel();
        let thread = std::thread::spawn({
            let builds = Arc::clone(&builds);
            move || {
                builds.run(|| {
                    began.send(())?;
                    // The end of all builds has begun and must wait for this one.
                    while !builds.ended.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                    Ok(written.send(())?)
                })
            }
        });
        has_begun.recv().unwrap();
        drop(ended);
        assert!(is_written.try_recv().is_ok(), "a build still ran");
        thread.join().unwrap().unwrap();
        assert!(builds.run(|| Ok(())).is_err());
    }

    #[test]
    fn boot_ids_are_uuids_and_differ() {
        let (one, two) = (boot_id().unwrap(), boot_id().unwrap());
        assert_eq!(one.len(), 36);
        assert_ne!(one, two);
    }
}
