//! A node in a temporary folder, with claims that an API server in memory has.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use octavo_api::Refusal;
use octavo_enforcement::backend::MemoryEnforcement;
use octavo_gpu::Driver;
use octavo_kube_io::events::EventType;
use octavo_node::{ClaimRef, NodePaths};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::driver::{MigDriver, placements};
use crate::claims::{
    AllocatedClaim, ClaimReader, Claims, Fact, KnownDevice, MigManagement, Opened, ReadError,
    ReportedDevice, Reporter, claim_of,
};
use crate::testing;

/// A node with GPUs `gpu-0` to `gpu-7`.
pub(super) struct Node {
    folder: TempDir,
    pub(super) driver: Arc<MigDriver>,
    server: Arc<Server>,
}

/// Objects of the API server, and the reports to it.
#[derive(Default)]
struct Server {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    gates: BTreeMap<String, Arc<Semaphore>>,
    made: u64,
    reads: usize,
    is_away: bool,
    reported: Vec<(String, &'static str)>,
    cleared: Vec<String>,
    facts: BTreeMap<String, Vec<Fact>>,
    found: Vec<(String, &'static str)>,
    news: Vec<(String, &'static str)>,
}

impl Node {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let driver = Arc::new(MigDriver::new(folder.path().join("proc")));
        let node = Self { folder, driver, server: Arc::default() };
        for folder in ["proc/sys/kernel/random", "driver/usr/lib64", "dev", "cdi"] {
            fs::create_dir_all(node.path(folder)).expect("makes a folder");
        }
        fs::write(node.path("proc/sys/kernel/random/boot_id"), "boot-1\n").expect("writes");
        fs::write(node.path("proc/devices"), testing::PROC_DEVICES).expect("writes");
        fs::write(node.path("driver/usr/lib64/libcuda.so.580.95.05"), "").expect("writes");
        node
    }

    /// Puts the simulated driver's libraries on the node.
    pub(super) fn install_driver(&self) {
        let libraries = [
            (octavo_testkit::simulated_cuda(), "libcuda.so.580.95.05"),
            (octavo_testkit::simulated_nvml(), "libnvidia-ml.so.580.95.05"),
        ];
        for (from, name) in libraries {
            fs::copy(from, self.path("driver/usr/lib64").join(name)).expect("copies");
        }
    }

    pub(super) fn paths(&self) -> NodePaths {
        NodePaths {
            driver_root: "/driver".into(),
            driver_root_seen: self.path("driver"),
            proc_root: self.path("proc"),
            sys_root: self.path("sys"),
            cgroup_root: self.path("sys/fs/cgroup"),
            kubelet_root: self.path("kubelet"),
            device_plugin_root: self.path("kubelet/device-plugins"),
            cdi_root: self.path("cdi"),
            run_root: self.path("run"),
            hook_path: "/usr/local/bin/octavo".into(),
            share_tmpfs: false,
            mounts: Vec::new(),
        }
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Starts the claims with the node's devices known.
    pub(super) async fn start(&self) -> Claims {
        self.start_and_report().await.0
    }

    /// Like `start`, and returns the state found at start.
    pub(super) async fn start_and_report(&self) -> (Claims, Opened) {
        let (claims, opened) = self.open();
        claims.set_devices("580.95.05", known()).await;
        (claims, opened)
    }

    /// Starts the claims with the driver, and with GPUs under dynamic MIG.
    pub(super) async fn start_mig(&self) -> Claims {
        let (claims, _) = self.open();
        self.give_driver(&claims).await;
        claims.set_mig_management(cut(&["GPU-0", "GPU-1"]));
        claims.set_devices("580.95.05", known_mig()).await;
        claims
    }

    pub(super) async fn give_driver(&self, claims: &Claims) {
        let driver: Arc<dyn Driver> = self.driver.clone();
        claims.set_driver(Some(&driver)).await;
    }

    /// Opens the claims without any devices. The claims of before end first: their folder is locked.
    pub(super) fn open(&self) -> (Claims, Opened) {
        let server = Arc::clone(&self.server);
        let reporter: Arc<dyn Reporter> = server.clone();
        let (claims, opened) =
            Claims::open(self.paths(), "node-a".to_owned(), server, reporter).expect("opens");
        // There is no driver of which a guard could be made; `enforcement` has one.
        claims.set_memory_enforcement(MemoryEnforcement::Off);
        (claims, opened)
    }

    /// Makes a claim with devices of this node.
    pub(super) fn allocate(&self, name: &str, devices: &[&str]) -> ClaimRef {
        self.allocate_with(name, devices, |_| {})
    }

    /// Makes a claim and lets a function change its object.
    pub(super) fn allocate_with(
        &self,
        name: &str,
        devices: &[&str],
        change: impl FnOnce(&mut Value),
    ) -> ClaimRef {
        let mut state = self.server.state.lock().expect("not poisoned");
        state.made += 1;
        let uid = format!("00000000-0000-4000-8000-{:012}", state.made);
        let results: Vec<_> = devices
            .iter()
            .enumerate()
            .map(|(index, device)| {
                json!({"request": format!("request-{index}"), "driver": "gpu.nvidia.com",
                    "pool": "node-a", "device": device})
            })
            .collect();
        let mut object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "ns", "uid": uid},
            "spec": {},
            "status": {"allocation": {"devices": {"results": results}}},
        });
        change(&mut object);
        state.objects.insert(name.to_owned(), object);
        ClaimRef { namespace: "ns".to_owned(), name: name.to_owned(), uid }
    }

    /// Makes a claim with shares: device, memory and percent of the time of each.
    pub(super) fn allocate_shares(&self, name: &str, shares: &[(&str, &str, &str)]) -> ClaimRef {
        let devices: Vec<_> = shares.iter().map(|(device, _, _)| *device).collect();
        self.allocate_with(name, &devices, |claim| {
            let results = &mut claim["status"]["allocation"]["devices"]["results"];
            for (index, (_, memory, compute)) in shares.iter().enumerate() {
                results[index]["shareID"] = share_id(name, index).into();
                results[index]["consumedCapacity"] =
                    json!({"memory": memory, "gpu.nvidia.com/compute": compute});
            }
        })
    }

    /// Removes a claim's object and returns it; it may be gone already.
    pub(super) fn delete(&self, claim: &ClaimRef) -> Value {
        let mut state = self.server.state.lock().expect("not poisoned");
        state.objects.remove(&claim.name).unwrap_or_default()
    }

    /// Puts an object back.
    pub(super) fn restore(&self, claim: &ClaimRef, object: Value) {
        let mut state = self.server.state.lock().expect("not poisoned");
        state.objects.insert(claim.name.clone(), object);
    }

    pub(super) fn deallocate(&self, claim: &ClaimRef) {
        let mut state = self.server.state.lock().expect("not poisoned");
        state.objects.get_mut(&claim.name).expect("exists")["status"] = json!({});
    }

    pub(super) fn set_away(&self, is_away: bool) {
        self.server.state.lock().expect("not poisoned").is_away = is_away;
    }

    /// Lets answers to reads of a claim wait for a permit each.
    pub(super) fn block_reads_of(&self, claim: &ClaimRef) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        let mut state = self.server.state.lock().expect("not poisoned");
        state.gates.insert(claim.name.clone(), Arc::clone(&gate));
        gate
    }

    pub(super) fn reads(&self) -> usize {
        self.server.state.lock().expect("not poisoned").reads
    }

    /// Claims that were reported as refused, with their reasons.
    pub(super) fn reported(&self) -> Vec<(String, &'static str)> {
        self.server.state.lock().expect("not poisoned").reported.clone()
    }

    /// Claims whose reports were withdrawn.
    pub(super) fn cleared(&self) -> Vec<String> {
        self.server.state.lock().expect("not poisoned").cleared.clone()
    }

    /// The last reported facts of a claim; empty after its release.
    pub(super) fn facts(&self, claim: &ClaimRef) -> Vec<Fact> {
        let state = self.server.state.lock().expect("not poisoned");
        state.facts.get(&claim.uid).cloned().unwrap_or_default()
    }

    /// News about claims at run time that are no warnings, with their reasons.
    pub(super) fn news(&self) -> Vec<(String, &'static str)> {
        self.server.state.lock().expect("not poisoned").news.clone()
    }

    /// Warnings about claims at run time, with their reasons.
    pub(super) fn found(&self) -> Vec<(String, &'static str)> {
        self.server.state.lock().expect("not poisoned").found.clone()
    }

    pub(super) fn reboot(&self) {
        let path = self.path("proc/sys/kernel/random/boot_id");
        let boot = fs::read_to_string(&path).expect("reads");
        fs::write(path, format!("{}x", boot.trim())).expect("writes");
    }

    pub(super) fn checkpoint(claim: &ClaimRef) -> String {
        format!("kubelet/plugins/gpu.nvidia.com/checkpoint/{}.json", claim.uid)
    }

    pub(super) fn cdi(claim: &ClaimRef) -> String {
        format!("cdi/k8s.gpu.nvidia.com-claim_{}.yaml", claim.uid)
    }

    /// All files of claims, checkpoints first, without quarantined ones.
    pub(super) fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        for folder in ["kubelet/plugins/gpu.nvidia.com/checkpoint", "cdi", "run/octavo/shares"] {
            let mut names: Vec<_> = fs::read_dir(self.path(folder))
                .into_iter()
                .flatten()
                .map(|entry| entry.expect("reads").file_name().into_string().expect("text"))
                .filter(|name| !matches!(name.as_str(), "lock" | "boot" | "kept"))
                .collect();
            names.sort();
            files.extend(names.iter().map(|name| format!("{folder}/{name}")));
        }
        files
    }

    /// Quarantined files.
    pub(super) fn kept(&self) -> Vec<String> {
        let folder = self.path("kubelet/plugins/gpu.nvidia.com/checkpoint/kept");
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.map(|e| e.expect("reads").file_name().into_string().expect("text")).collect()
    }
}

/// The node's GPUs.
pub(super) fn known() -> Vec<KnownDevice> {
    let device = |minor| KnownDevice {
        name: format!("gpu-{minor}"),
        uuid: format!("GPU-{minor}"),
        minor,
        pci: format!("0000:{minor:02x}:00.0"),
        kind: crate::claims::DeviceKind::Gpu {
            memory_bytes: 80 << 30,
            reserved_bytes: 0,
            shares: crate::config::GpuShares::Memory,
        },
    };
    (0..8).map(device).collect()
}

/// The node's GPUs. The first two are under dynamic MIG.
pub(super) fn known_mig() -> Vec<KnownDevice> {
    let mut known = known();
    let mut cut = Vec::new();
    for gpu in &known[..2] {
        cut.extend(placements().into_iter().map(|(name, kind)| KnownDevice {
            name: format!("{}-mig-{name}", gpu.name),
            kind,
            ..gpu.clone()
        }));
    }
    known.append(&mut cut);
    known
}

/// MIG management of these GPUs.
pub(super) fn cut(gpus: &[&str]) -> MigManagement {
    let gpus = gpus.iter().map(|gpu| (*gpu).to_owned()).collect();
    MigManagement { gpus: Some(gpus), ..MigManagement::default() }
}

/// The id of a claim's share.
pub(super) fn share_id(name: &str, index: usize) -> String {
    format!("{name}-share-{index}")
}

impl Server {
    fn object(&self, claim: &ClaimRef) -> Result<Option<AllocatedClaim>, ReadError> {
        let state = self.state.lock().expect("not poisoned");
        if state.is_away {
            return Err(ReadError("connection refused".to_owned()));
        }
        let object = state.objects.get(&claim.name).cloned();
        Ok(object.map(|object| claim_of(serde_json::from_value(object).expect("is a claim"))))
    }
}

impl ClaimReader for Server {
    fn read<'a>(
        &'a self,
        claim: &'a ClaimRef,
    ) -> BoxFuture<'a, Result<Option<AllocatedClaim>, ReadError>> {
        Box::pin(async move {
            // The answer is fixed before it is counted and before it waits, so later changes are not in it.
            let answer = self.object(claim);
            let gate = {
                let mut state = self.state.lock().expect("not poisoned");
                state.reads += 1;
                state.gates.get(&claim.name).cloned()
            };
            if let Some(gate) = gate {
                gate.acquire().await.expect("is open").forget();
            }
            answer
        })
    }
}

impl Reporter for Server {
    fn refused(&self, claim: &ClaimRef, _: &[ReportedDevice], refusal: &Refusal) {
        let mut state = self.state.lock().expect("not poisoned");
        state.reported.push((claim.name.clone(), refusal.reason()));
    }

    fn prepared(&self, claim: &ClaimRef, devices: &[ReportedDevice]) {
        let mut state = self.state.lock().expect("not poisoned");
        let facts: Vec<_> = devices.iter().filter_map(|device| device.fact.clone()).collect();
        if facts.is_empty() {
            state.cleared.push(claim.name.clone());
        } else {
            state.facts.insert(claim.uid.clone(), facts);
        }
    }

    fn found(&self, claim: &ClaimRef, kind: EventType, reason: &'static str, _: &str) {
        let mut state = self.state.lock().expect("not poisoned");
        if kind == EventType::Warning {
            state.found.push((claim.name.clone(), reason));
        } else {
            state.news.push((claim.name.clone(), reason));
        }
    }

    fn released(&self, uid: &str) {
        self.state.lock().expect("not poisoned").facts.remove(uid);
    }
}
