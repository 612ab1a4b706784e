//! A node's folder, agents on it, and a kubelet that registers and calls them.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use octavo_gpu::{Driver, DriverError};
use octavo_kube_io::admin::Readiness;
use octavo_kubelet_api::dra::v1::dra_plugin_client::DraPluginClient;
use octavo_kubelet_api::dra::v1::{
    Claim, Device, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest,
};
use octavo_kubelet_api::registration::v1::registration_client::RegistrationClient;
use octavo_kubelet_api::registration::v1::{InfoRequest, RegistrationStatus};
use octavo_node::ClaimRef;
use octavo_testkit::{ScriptedApi, eventually, failure};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::{Channel, Endpoint};

use crate::config::{NodeConfig, NodeFile};
use crate::metrics::Metrics;
use crate::monitor::Opener;
use crate::run::Shared;
use crate::run::node::NodeAgent;
use crate::testing::TestDriver;

/// How long anything may take; the machines that run tests are slow and busy.
pub(super) const TIMEOUT: Duration = Duration::from_secs(40);

/// A node with the GPUs `gpu-0` and `gpu-1`.
pub(super) struct Node {
    folder: PathBuf,
    _temp: Option<TempDir>,
}

/// An agent of this process.
pub(super) struct Agent {
    readiness: Arc<Readiness>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Node {
    pub(super) fn new() -> Self {
        // Paths of sockets are short.
        let temp = tempfile::Builder::new().prefix("oh").tempdir().unwrap();
        let node = Self { folder: temp.path().to_owned(), _temp: Some(temp) };
        for part in ["proc/sys/kernel/random", "driver/usr/lib64", "cdi", "claims", "kubelet"] {
            fs::create_dir_all(node.folder(part)).unwrap();
        }
        fs::write(node.folder("proc/sys/kernel/random/boot_id"), "boot-1").unwrap();
        fs::write(node.folder("proc/devices"), crate::testing::PROC_DEVICES).unwrap();
        node
    }

    /// A node that another process made.
    pub(super) fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), _temp: None }
    }

    pub(super) fn folder(&self, part: &str) -> PathBuf {
        self.folder.join(part)
    }

    fn config(&self, instance: Option<&str>) -> NodeConfig {
        let settings = NodeFile {
            node_name: Some("node".to_owned()),
            instance_id: instance.map(str::to_owned),
            driver_root_seen: Some(self.folder("driver")),
            proc_root: Some(self.folder("proc")),
            sys_root: Some(self.folder("sys")),
            kubelet_root: Some(self.folder("kubelet")),
            device_plugin_root: Some(self.folder("kubelet/device-plugins")),
            cdi_root: Some(self.folder("cdi")),
            run_root: Some(self.folder("run")),
            ..NodeFile::default()
        };
        settings.complete().unwrap()
    }

    /// Starts an agent.
    pub(super) fn start(&self, instance: Option<&str>) -> Agent {
        self.start_with_standby_after(instance, Duration::from_mins(10))
    }

    /// Starts an agent that asks in vain for so long.
    pub(super) fn start_with_standby_after(
        &self,
        instance: Option<&str>,
        standby_after: Duration,
    ) -> Agent {
        let driver = TestDriver::new(2);
        let open = move || Ok::<Arc<dyn Driver>, DriverError>(Arc::new(driver.clone()));
        self.start_with(instance, standby_after, Box::new(open))
    }

    /// Starts an agent that finds no driver.
    pub(super) fn start_without_driver(&self, instance: Option<&str>) -> Agent {
        let open = || Err(DriverError::NotFound { call: "dlopen" });
        self.start_with(instance, Duration::from_mins(10), Box::new(open))
    }

    fn start_with(&self, instance: Option<&str>, standby_after: Duration, open: Opener) -> Agent {
        let readiness = Arc::new(Readiness::default());
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let shared = Shared {
            metrics: metrics(),
            readiness: Arc::clone(&readiness),
            is_many: false,
            stop: stop.clone(),
            tasks: tasks.clone(),
        };
        let mut agent = NodeAgent::new(self.config(instance), shared, open).unwrap();
        agent.standby_after = standby_after;
        tasks.spawn(agent.run(server(self.folder("claims"))));
        Agent { readiness, stop, tasks }
    }

    /// Gives a device to a claim, as a scheduler does.
    pub(super) fn allocate(&self, name: &str, device: &str) -> ClaimRef {
        let uid = format!("uid-of-{name}");
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "ns", "uid": uid}, "spec": {},
            "status": {"allocation": {"devices": {"results": [
                {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "node", "device": device}
            ]}}},
        });
        fs::write(self.folder("claims").join(name), object.to_string()).unwrap();
        ClaimRef { namespace: "ns".to_owned(), name: name.to_owned(), uid }
    }

    /// Gives the node labels, for agents that start later.
    pub(super) fn set_labels(&self, labels: &Value) {
        let object = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "node", "labels": labels}});
        fs::write(self.folder("claims/node"), object.to_string()).unwrap();
    }

    /// Files of claims.
    pub(super) fn files(&self) -> Vec<String> {
        let names = names(&self.folder("kubelet/plugins/gpu.nvidia.com/checkpoint"));
        let records =
            names.into_iter().filter(|name| Path::new(name).extension() == Some("json".as_ref()));
        records.chain(names_of_specs(&self.folder("cdi"))).collect()
    }

    /// Sockets of agents, in order.
    pub(super) fn sockets(&self) -> Vec<String> {
        let mut found = Vec::new();
        for folder in ["kubelet/plugins/gpu.nvidia.com", "kubelet/plugins_registry"] {
            found.extend(sockets(&self.folder(folder)));
        }
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut names: Vec<_> = found.into_iter().map(name).collect();
        names.sort();
        names
    }
}

impl Agent {
    /// The readiness report.
    pub(super) fn report(&self) -> String {
        self.readiness.report().1
    }

    /// Waits until a line of the readiness report begins like this.
    pub(super) async fn says(&self, line: &str) {
        let is_reported = || self.report().lines().any(|message| message.starts_with(line));
        let asked = tokio::time::timeout(TIMEOUT, eventually(line, is_reported)).await;
        assert!(asked.is_ok(), "{line:?} is not in\n{}", self.report());
    }

    /// Ends it in good order.
    pub(super) async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        tokio::time::timeout(TIMEOUT, self.tasks.wait()).await.unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The role of the kubelet: registers new sockets, calls the latest connected one, and retries while no agent serves
/// the node.
#[derive(Clone)]
pub(super) struct Kubelet {
    instances: Arc<Mutex<Vec<Instance>>>,
    is_resting: Arc<AtomicBool>,
    _stop: Arc<tokio_util::sync::DropGuard>,
}

#[derive(Clone)]
struct Instance {
    socket: PathBuf,
    /// Inode and time: a recreated socket has the same name.
    file: (u64, i64),
    endpoint: PathBuf,
}

impl Kubelet {
    pub(super) fn start(node: &Node) -> Self {
        let registry = node.folder("kubelet/plugins_registry");
        let stop = CancellationToken::new();
        let instances: Arc<Mutex<Vec<Instance>>> = Arc::default();
        let (kept, stopped) = (Arc::clone(&instances), stop.clone());
        tokio::spawn(async move {
            stopped.run_until_cancelled(register(&registry, &kept)).await;
        });
        Self { instances, is_resting: Arc::default(), _stop: Arc::new(stop.drop_guard()) }
    }

    pub(super) fn rest(&self) {
        self.is_resting.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_resting(&self) -> bool {
        self.is_resting.load(Ordering::SeqCst)
    }

    /// The socket to call.
    pub(super) async fn endpoint(&self) -> PathBuf {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let instances = self.instances.lock().unwrap().clone();
            for instance in instances.into_iter().rev() {
                if UnixStream::connect(&instance.endpoint).await.is_ok() {
                    return instance.endpoint;
                }
            }
            assert!(Instant::now() < deadline, "no agent is registered");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Has a claim prepared, however often it takes; returns the CDI names.
    pub(super) async fn prepare(&self, claim: &ClaimRef) -> Vec<String> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match self.try_prepare(claim).await {
                Ok(devices) => {
                    return devices.into_iter().flat_map(|device| device.cdi_device_ids).collect();
                }
                Err(error) => assert!(Instant::now() < deadline, "{claim}: {error}"),
            }
        }
    }

    /// Has a claim prepared; fails for whatever reason.
    pub(super) async fn try_prepare(&self, claim: &ClaimRef) -> Result<Vec<Device>, String> {
        let mut client = DraPluginClient::new(self.connect().await?);
        let request = NodePrepareResourcesRequest { claims: vec![asked(claim)] };
        let answer = client.node_prepare_resources(request).await.map_err(|e| e.to_string())?;
        let answer = answer.into_inner().claims.remove(&claim.uid).ok_or("no answer")?;
        if answer.error.is_empty() { Ok(answer.devices) } else { Err(answer.error) }
    }

    /// Has a claim unprepared, however often it takes.
    pub(super) async fn unprepare(&self, claim: &ClaimRef) {
        let deadline = Instant::now() + TIMEOUT;
        while let Err(error) = self.try_unprepare(claim).await {
            assert!(Instant::now() < deadline, "{claim}: {error}");
        }
    }

    async fn try_unprepare(&self, claim: &ClaimRef) -> Result<(), String> {
        let mut client = DraPluginClient::new(self.connect().await?);
        let request = NodeUnprepareResourcesRequest { claims: vec![asked(claim)] };
        let answer = client.node_unprepare_resources(request).await.map_err(|e| e.to_string())?;
        let answer = answer.into_inner().claims.remove(&claim.uid).ok_or("no answer")?;
        if answer.error.is_empty() { Ok(()) } else { Err(answer.error) }
    }

    async fn connect(&self) -> Result<Channel, String> {
        let path = self.endpoint().await;
        let endpoint = Endpoint::try_from(format!("unix:{}", path.display())).unwrap();
        endpoint.connect().await.map_err(|error| error.to_string())
    }
}

/// Registers the sockets that appear, forgets those that vanish.
async fn register(registry: &Path, instances: &Mutex<Vec<Instance>>) {
    loop {
        let identity = |path: PathBuf| {
            let found = fs::symlink_metadata(&path).ok()?;
            Some((path, (found.ino(), found.ctime_nsec())))
        };
        let found: Vec<_> = sockets(registry).into_iter().filter_map(identity).collect();
        let is = |instance: &Instance, (path, file): &(PathBuf, _)| {
            instance.socket == *path && instance.file == *file
        };
        instances.lock().unwrap().retain(|old| found.iter().any(|found| is(old, found)));
        for found in found {
            if instances.lock().unwrap().iter().any(|known| is(known, &found)) {
                continue;
            }
            // One that does not answer yet is tried again.
            let (socket, file) = found;
            if let Some(endpoint) = introduce(&socket).await {
                instances.lock().unwrap().push(Instance { socket, file, endpoint });
            }
        }
        sleep(Duration::from_millis(10)).await;
    }
}

async fn introduce(socket: &Path) -> Option<PathBuf> {
    let path = socket.to_str()?;
    let authority = path.replace('/', "%2F");
    let endpoint = Endpoint::try_from(format!("unix:{path}")).ok()?;
    let endpoint = endpoint.origin(format!("http://{authority}").parse().ok()?);
    let mut client = RegistrationClient::new(endpoint.connect().await.ok()?);
    let info = client.get_info(InfoRequest {}).await.ok()?.into_inner();
    let status = RegistrationStatus { plugin_registered: true, error: String::new() };
    client.notify_registration_status(status).await.ok()?;
    Some(info.endpoint.into())
}

fn asked(claim: &ClaimRef) -> Claim {
    let ClaimRef { namespace, name, uid } = claim.clone();
    Claim { namespace, name, uid }
}

/// An API server that has the claims of a folder and nothing else.
fn server(claims: PathBuf) -> Client {
    let api = ScriptedApi::new(move |request| {
        let name = request.uri().path().rsplit('/').next().unwrap_or_default();
        let found = fs::read_to_string(claims.join(name));
        found.map_or_else(|_| (404, failure(404, "not found").1.to_string()), |text| (200, text))
    });
    api.client()
}

pub(super) fn metrics() -> Arc<Metrics> {
    Arc::new(Metrics::new(&mut Registry::default()))
}

fn sockets(folder: &Path) -> Vec<PathBuf> {
    let is_socket = |path: &PathBuf| {
        fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
    };
    names(folder).into_iter().map(|name| folder.join(name)).filter(is_socket).collect()
}

fn names_of_specs(folder: &Path) -> Vec<String> {
    names(folder)
}

/// Names in a folder, in order; none where it is missing.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
