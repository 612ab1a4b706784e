//! SIGKILL at every step with shares and MIG instances, over the simulated driver. Nothing is lost, allocated twice or
//! left behind, on disk or on the GPU.
//!
//! As in `crash`, the test runs itself again as a child on the same node, which dies at a named point.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "support/opened.rs"]
mod opened;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use octavo_agent::claims::{
    AllocatedClaim, ClaimReader, Claims, DeviceKind, KnownDevice, MigManagement, ReadError,
    claim_of,
};
use octavo_enforcement::backend::MemoryEnforcement;
use octavo_gpu::nvml::{LIBRARY_NAME, Nvml};
use octavo_gpu::{Driver, Gpu, Inventory};
use octavo_machine::Machine;
use octavo_node::ClaimRef;
use opened::opened;
use serde_json::{Value, json};

/// Steps of preparing a share.
const SHARE: [&str; 8] = [
    "prepare.reserved",
    "file.written",
    "file.flushed",
    "file.renamed",
    "prepare.checkpoint-written",
    "share.file-written",
    "share.written",
    "prepare.cdi-written",
];

/// Steps of preparing a MIG instance.
const MIG: [&str; 10] = [
    "prepare.reserved",
    "file.written",
    "file.flushed",
    "file.renamed",
    "mig.intended",
    "mig.mode-on",
    "mig.created",
    "mig.made",
    "prepare.checkpoint-written",
    "prepare.cdi-written",
];

/// Steps of recreating a missing instance. The mode changes only if it was the last.
const BIND_RETRY_DELAY: [&str; 7] = [
    "mig.spec-removed",
    "mig.forgotten",
    "mig.mode-on",
    "mig.created",
    "mig.made",
    "prepare.checkpoint-written",
    "prepare.cdi-written",
];

/// Steps of an unprepare, those with instances alone included.
const UNPREPARE: [&str; 6] = [
    "unprepare.begun",
    "unprepare.cdi-removed",
    "unprepare.shares-removed",
    "mig.destroyed",
    "mig.mode-off",
    "unprepare.checkpoint-removed",
];

/// Instances that the claims of a test have.
const LARGE: &str = "gpu-0-mig-3g40gb-9-4";
const SMALL: &str = "gpu-0-mig-1g10gb-19-0";

/// Requests of the claims of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EnforcementOptions {
    Share,
    Mig,
    /// Two instances of one GPU.
    Pair,
}

/// Claims as files, one a name, for parent and child alike.
struct Folder(PathBuf);

impl ClaimReader for Folder {
    fn read<'a>(
        &'a self,
        claim: &'a ClaimRef,
    ) -> BoxFuture<'a, Result<Option<AllocatedClaim>, ReadError>> {
        Box::pin(async move {
            let Ok(text) = fs::read(self.0.join(&claim.name)) else { return Ok(None) };
            let object = serde_json::from_slice(&text).map_err(|e| ReadError(e.to_string()))?;
            Ok(Some(claim_of(object)))
        })
    }
}

/// A simulated node's folder.
struct Node(PathBuf);

/// The node's agent, with the driver that it must keep open.
struct Agent {
    claims: Claims,
    driver: Arc<dyn Driver>,
}

impl Node {
    fn new(folder: &Path) -> Self {
        for part in ["driver/usr/lib64", "proc/sys/kernel/random", "claims", "sys", "dev"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        fs::create_dir_all(folder.join("proc/driver/nvidia/capabilities/mig")).unwrap();
        fs::write(folder.join("proc/sys/kernel/random/boot_id"), "boot-1").unwrap();
        fs::write(folder.join("proc/devices"), opened::PROC_DEVICES).unwrap();
        let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
        let mut machine = Machine::read(&machines.join("dgx-h100.yaml")).unwrap();
        machine.gpus.truncate(1);
        machine.instantiate("node");
        let driver = folder.join("driver/usr/lib64");
        fs::write(driver.join("machine.yaml"), machine.to_yaml().unwrap()).unwrap();
        fs::copy(octavo_testkit::simulated_nvml(), driver.join(LIBRARY_NAME)).unwrap();
        Self(folder.to_owned())
    }

    async fn start(&self) -> Agent {
        let at = |path: &str| self.0.join(path);
        let library = at("driver/usr/lib64").join(LIBRARY_NAME);
        let driver: Arc<dyn Driver> = Arc::new(Nvml::open(&library, &at("sys")).unwrap());
        let claims = opened(&self.0, || Folder(at("claims"))).await;
        claims.set_memory_enforcement(MemoryEnforcement::Off);
        claims.set_driver(Some(&driver)).await;
        let gpus = Inventory::read(&*driver).unwrap().gpus;
        let known = gpus.iter().flat_map(known).collect();
        let cut = gpus.into_iter().map(|gpu| gpu.uuid).collect();
        claims.set_mig_management(MigManagement { gpus: Some(cut), ..MigManagement::default() });
        claims.set_devices("580.95.05", known).await;
        Agent { claims, driver }
    }

    fn allocate(&self, name: &str, options: EnforcementOptions) -> ClaimRef {
        let mut results = match options {
            EnforcementOptions::Share => vec![json!({
                "device": "gpu-0", "shareID": format!("share-of-{name}"),
                "consumedCapacity": {"memory": "50Gi", "compute": "25"},
            })],
            EnforcementOptions::Mig => vec![json!({"device": LARGE})],
            EnforcementOptions::Pair => vec![json!({"device": SMALL}), json!({"device": LARGE})],
        };
        for result in &mut results {
            for (field, value) in
                [("request", "gpu"), ("driver", "gpu.nvidia.com"), ("pool", "node")]
            {
                result[field] = Value::from(value);
            }
        }
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-of-{name}")},
            "spec": {}, "status": {"allocation": {"devices": {"results": results}}},
        });
        fs::write(self.0.join("claims").join(name), object.to_string()).unwrap();
        claim(name)
    }

    fn delete(&self, claim: &ClaimRef) {
        fs::remove_file(self.0.join("claims").join(&claim.name)).unwrap();
    }

    /// Everything that claims left, half-written files included.
    fn files(&self) -> Vec<String> {
        let folders = ["kubelet/plugins/gpu.nvidia.com/checkpoint", "cdi", "run/octavo/shares"];
        let entries = folders.iter().filter_map(|folder| fs::read_dir(self.0.join(folder)).ok());
        let mut names: Vec<_> = entries
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !matches!(name.as_str(), "lock" | "boot" | "kept"))
            .collect();
        names.sort();
        names
    }

    /// Runs an action in a child of this test that dies at a point.
    fn kill_at(&self, test: &str, action: &str, point: &str) {
        let status = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env("OCTAVO_CRASH_AT", point)
            .env("OCTAVO_TEST_ACTION", action)
            .env("OCTAVO_TEST_NODE", &self.0)
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&status.stdout).into_owned();
        assert_eq!(status.status.signal(), Some(9), "{point} was not reached: {output}");
    }
}

impl Agent {
    fn uuid(&self) -> String {
        Inventory::read(&*self.driver).unwrap().gpus[0].uuid.clone()
    }

    /// First memory slices of the GPU's instances.
    fn slices(&self) -> Vec<u32> {
        let instances = self.driver.mig_instances(&self.uuid()).unwrap();
        instances.iter().map(|instance| instance.placement.start).collect()
    }

    fn is_on(&self) -> bool {
        let inventory = Inventory::read(&*self.driver).unwrap();
        inventory.gpus[0].mig.is_some_and(|mig| mig.enabled)
    }
}

fn claim(name: &str) -> ClaimRef {
    let owned = str::to_owned;
    ClaimRef { namespace: owned("ns"), name: owned(name), uid: format!("uid-of-{name}") }
}

/// Allocations of a GPU.
fn known(gpu: &Gpu) -> Vec<KnownDevice> {
    let shares = octavo_agent::config::GpuShares::Memory;
    let whole = KnownDevice {
        name: format!("gpu-{}", gpu.minor),
        uuid: gpu.uuid.clone(),
        minor: gpu.minor,
        pci: gpu.pci.to_string(),
        kind: DeviceKind::Gpu { memory_bytes: gpu.memory_bytes, reserved_bytes: 0, shares },
    };
    let places = gpu.mig_profiles.iter().flat_map(|profile| {
        profile.placements.iter().map(|placement| KnownDevice {
            name: format!(
                "gpu-{}-mig-{}-{}-{}",
                gpu.minor,
                profile.name.replace('.', "").replace('+', "-"),
                profile.id,
                placement.start
            ),
            kind: DeviceKind::MigPlacement { profile: profile.clone(), placement: *placement },
            ..whole.clone()
        })
    });
    [vec![whole.clone()], places.collect()].concat()
}

/// A node with a prepared claim whose large instance was destroyed by hand.
async fn lacking(folder: &Path, options: EnforcementOptions) -> Node {
    let node = Node::new(folder);
    let first = node.allocate("a", options);
    let agent = node.start().await;
    agent.claims.prepare(&first).await.unwrap();
    let found = agent.driver.mig_instances(&agent.uuid()).unwrap();
    let large = found.iter().find(|found| found.placement.start == 4).unwrap();
    agent.driver.destroy_mig(&agent.uuid(), large.gpu_instance).unwrap();
    node
}

/// Does a child's work where this process is one.
async fn is_child() -> bool {
    let Some(folder) = std::env::var_os("OCTAVO_TEST_NODE") else { return false };
    let agent = Node(folder.into()).start().await;
    match std::env::var("OCTAVO_TEST_ACTION").as_deref() {
        Ok("prepare") => drop(agent.claims.prepare(&claim("a")).await.unwrap()),
        Ok("unprepare") => agent.claims.unprepare(&claim("a")).await.unwrap(),
        _ => {}
    }
    true
}

/// Nothing is left on disk or on the GPU.
fn check_empty(node: &Node, agent: &Agent, point: &str) {
    assert_eq!(node.files(), [""; 0], "{point}");
    assert_eq!(agent.slices(), [0; 0], "{point}");
    assert!(!agent.is_on(), "{point}");
}

/// A start does not release devices that a claim's containers may use.
async fn check_kept(node: &Node, options: EnforcementOptions, point: &str) {
    let agent = node.start().await;
    assert!(node.files().contains(&"uid-of-a.json".to_owned()), "{point}");
    assert_eq!(agent.claims.holdings().len(), 1, "{point}");
    if options == EnforcementOptions::Pair {
        assert!(agent.slices().contains(&0), "{point}");
    }
}

/// The claim is prepared as the only one of its kind, whether it was before or not, and leaves nothing after its
/// release.
async fn check_whole(node: &Node, options: EnforcementOptions, point: &str) {
    let (first, second) = (claim("a"), node.allocate("b", options));
    let agent = node.start().await;
    let claims = &agent.claims;
    claims.prepare(&first).await.unwrap();
    let mut files = vec!["k8s.gpu.nvidia.com-claim_uid-of-a.yaml", "uid-of-a.json"];
    match options {
        EnforcementOptions::Share => files.push("uid-of-a_share-of-a"),
        EnforcementOptions::Mig => assert_eq!(agent.slices(), [4], "{point}"),
        EnforcementOptions::Pair => assert_eq!(agent.slices(), [0, 4], "{point}"),
    }
    assert_eq!(node.files(), files, "{point}");
    let refusal = claims.prepare(&second).await.expect_err(point);
    let reason =
        if options == EnforcementOptions::Share { "ShareDoesNotFit" } else { "DeviceInUse" };
    assert_eq!(refusal.reason(), reason, "{point}");
    claims.unprepare(&first).await.unwrap();
    check_empty(node, &agent, point);
    claims.prepare(&second).await.unwrap();
    claims.unprepare(&second).await.unwrap();
    check_empty(node, &agent, point);
}

/// Kills a prepare at each step, and goes on in each way in which life does.
async fn kill_prepares(test: &str, options: EnforcementOptions, points: &[&str]) {
    for point in points {
        // The kubelet tries again.
        let folder = tempfile::tempdir().unwrap();
        let node = Node::new(folder.path());
        node.allocate("a", options);
        node.kill_at(test, "prepare", point);
        check_whole(&node, options, point).await;

        // The pod is gone: the kubelet only unprepares.
        let folder = tempfile::tempdir().unwrap();
        let node = Node::new(folder.path());
        let first = node.allocate("a", options);
        node.kill_at(test, "prepare", point);
        let agent = node.start().await;
        agent.claims.unprepare(&first).await.unwrap();
        check_empty(&node, &agent, point);
        drop(agent);

        // The claim is deleted without a kubelet call.
        let folder = tempfile::tempdir().unwrap();
        let node = Node::new(folder.path());
        let first = node.allocate("a", options);
        node.kill_at(test, "prepare", point);
        node.delete(&first);
        let agent = node.start().await;
        agent.claims.sweep().await;
        agent.claims.sweep_at(Instant::now() + Duration::from_secs(30)).await;
        check_empty(&node, &agent, point);
    }
}

#[tokio::test]
async fn kill_during_share_prepare_leaves_consistent_state() {
    if is_child().await {
        return;
    }
    let test = "kill_during_share_prepare_leaves_consistent_state";
    kill_prepares(test, EnforcementOptions::Share, &SHARE).await;
}

#[tokio::test]
async fn kill_while_a_share_gets_its_file_system_leaves_consistent_state() {
    let test = "kill_while_a_share_gets_its_file_system_leaves_consistent_state";
    if !opened::is_in_namespace(test) || is_child().await {
        return;
    }
    let steps = ["share.mounted", "share.bound"];
    kill_prepares(test, EnforcementOptions::Share, &steps).await;
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("uid-of-"), "{mounts}");
}

#[tokio::test]
async fn kill_during_instance_creation_leaves_consistent_state() {
    if is_child().await {
        return;
    }
    let test = "kill_during_instance_creation_leaves_consistent_state";
    kill_prepares(test, EnforcementOptions::Mig, &MIG).await;
}

#[tokio::test]
async fn a_kill_during_unprepare_loses_doubles_and_leaves_nothing() {
    if is_child().await {
        return;
    }
    let test = "a_kill_during_unprepare_loses_doubles_and_leaves_nothing";
    for options in [EnforcementOptions::Share, EnforcementOptions::Mig] {
        let has_driver =
            |point: &&str| options == EnforcementOptions::Mig || !point.starts_with("mig.");
        for point in UNPREPARE.into_iter().filter(has_driver) {
            let folder = tempfile::tempdir().unwrap();
            let node = Node::new(folder.path());
            let first = node.allocate("a", options);
            let agent = node.start().await;
            agent.claims.prepare(&first).await.unwrap();
            drop(agent);
            node.kill_at(test, "unprepare", point);

            let second = node.allocate("b", options);
            let agent = node.start().await;
            if point == "unprepare.checkpoint-removed" {
                agent.claims.prepare(&second).await.expect("nothing is held any more");
                agent.claims.unprepare(&second).await.unwrap();
            } else {
                agent.claims.prepare(&second).await.expect_err("is held until it is unprepared");
            }
            agent.claims.unprepare(&first).await.unwrap();
            check_empty(&node, &agent, point);
            drop(agent);
            check_whole(&node, options, point).await;
        }
    }
}

#[tokio::test]
async fn kill_during_instance_recreation_leaves_consistent_state() {
    if is_child().await {
        return;
    }
    let test = "kill_during_instance_recreation_leaves_consistent_state";
    for options in [EnforcementOptions::Mig, EnforcementOptions::Pair] {
        let is_last = |point: &&str| options == EnforcementOptions::Mig || *point != "mig.mode-on";
        for point in BIND_RETRY_DELAY.into_iter().filter(is_last) {
            let folder = tempfile::tempdir().unwrap();
            let node = lacking(folder.path(), options).await;
            node.kill_at(test, "prepare", point);
            check_kept(&node, options, point).await;
            check_whole(&node, options, point).await;
        }
    }
}

#[tokio::test]
async fn kill_during_prepare_of_a_damaged_claim_releases_nothing() {
    if is_child().await {
        return;
    }
    let test = "kill_during_prepare_of_a_damaged_claim_releases_nothing";
    for has_spec in [true, false] {
        // One instance is there, and the mode is on.
        for point in MIG.into_iter().filter(|point| *point != "mig.mode-on") {
            let folder = tempfile::tempdir().unwrap();
            let node = lacking(folder.path(), EnforcementOptions::Pair).await;
            let checkpoints = folder.path().join("kubelet/plugins/gpu.nvidia.com/checkpoint");
            fs::write(checkpoints.join("uid-of-a.json"), "x").unwrap();
            let spec = folder.path().join("cdi/k8s.gpu.nvidia.com-claim_uid-of-a.yaml");
            if has_spec {
                let text = fs::read_to_string(&spec).unwrap();
                fs::write(&spec, text.split_once('\n').unwrap().1).unwrap();
            } else {
                fs::remove_file(&spec).unwrap();
            }
            node.kill_at(test, "prepare", point);
            check_kept(&node, EnforcementOptions::Pair, point).await;
            check_whole(&node, EnforcementOptions::Pair, point).await;
        }
    }
}

#[tokio::test]
async fn a_kill_while_a_start_takes_back_leaves_the_rest_to_the_next() {
    if is_child().await {
        return;
    }
    let test = "a_kill_while_a_start_takes_back_leaves_the_rest_to_the_next";
    for point in UNPREPARE {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::new(folder.path());
        node.allocate("a", EnforcementOptions::Mig);
        node.kill_at(test, "prepare", "mig.created");
        node.kill_at(test, "start", point);
        let agent = node.start().await;
        check_empty(&node, &agent, point);
        drop(agent);
        check_whole(&node, EnforcementOptions::Mig, point).await;
    }
    // Instances that no record knows, as of an earlier boot's claims.
    let folder = tempfile::tempdir().unwrap();
    let node = Node::new(folder.path());
    let agent = node.start().await;
    for (name, device) in [("x", "gpu-0-mig-1g10gb-19-0"), ("y", "gpu-0-mig-1g10gb-19-1")] {
        let claim = node.allocate(name, EnforcementOptions::Mig);
        let file = folder.path().join("claims").join(name);
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace(LARGE, device)).unwrap();
        agent.claims.prepare(&claim).await.unwrap();
    }
    drop(agent);
    fs::write(folder.path().join("proc/sys/kernel/random/boot_id"), "boot-2").unwrap();
    node.kill_at(test, "start", "start.instance-destroyed");
    let agent = node.start().await;
    check_empty(&node, &agent, "start.instance-destroyed");
}
