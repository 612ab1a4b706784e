//! SIGKILL at every step of prepare, unprepare and start: nothing is lost, duplicated or left behind.
//!
//! The test runs itself again as a child on the same folder, which dies at a named point. Then the test checks the
//! leftovers as the next process would.

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
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use octavo_agent::claims::{AllocatedClaim, ClaimReader, Claims, KnownDevice, ReadError, claim_of};
use octavo_node::ClaimRef;
use opened::opened;
use serde_json::json;

/// Steps of a prepare at which the child dies, in order.
const PREPARE: [&str; 6] = [
    "prepare.reserved",
    "file.written",
    "file.flushed",
    "file.renamed",
    "prepare.checkpoint-written",
    "prepare.cdi-written",
];

/// Steps of an unprepare at which the child dies, in order.
const UNPREPARE: [&str; 3] =
    ["unprepare.begun", "unprepare.cdi-removed", "unprepare.checkpoint-removed"];

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

/// A node's folder.
struct Node(PathBuf);

impl Node {
    fn new(folder: &Path) -> Self {
        for part in ["proc/sys/kernel/random", "driver/usr/lib64", "cdi", "claims"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        fs::write(folder.join("proc/sys/kernel/random/boot_id"), "boot-1").unwrap();
        fs::write(folder.join("proc/devices"), opened::PROC_DEVICES).unwrap();
        Self(folder.to_owned())
    }

    async fn start(&self) -> Claims {
        let at = |path: &str| self.0.join(path);
        let claims = opened(&self.0, || Folder(at("claims"))).await;
        let device = |minor: u32| KnownDevice {
            name: format!("gpu-{minor}"),
            uuid: format!("GPU-{minor}"),
            minor,
            pci: format!("0000:0{minor}:00.0"),
            kind: octavo_agent::claims::DeviceKind::Gpu {
                memory_bytes: 80 << 30,
                reserved_bytes: 0,
                shares: octavo_agent::config::GpuShares::Memory,
            },
        };
        claims.set_devices("580.95.05", vec![device(0), device(1)]).await;
        claims
    }

    fn allocate(&self, name: &str) -> ClaimRef {
        let uid = format!("uid-of-{name}");
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "ns", "uid": uid}, "spec": {},
            "status": {"allocation": {"devices": {"results": [
                {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "node", "device": "gpu-0"}
            ]}}},
        });
        fs::write(self.0.join("claims").join(name), object.to_string()).unwrap();
        claim(name)
    }

    fn delete(&self, claim: &ClaimRef) {
        fs::remove_file(self.0.join("claims").join(&claim.name)).unwrap();
    }

    /// Every file that claims left, half-written ones included.
    fn files(&self) -> Vec<String> {
        let folders = ["kubelet/plugins/gpu.nvidia.com/checkpoint", "cdi"];
        let entries = folders.iter().flat_map(|folder| fs::read_dir(self.0.join(folder)).unwrap());
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !matches!(name.as_str(), "lock" | "boot"))
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

fn claim(name: &str) -> ClaimRef {
    let owned = str::to_owned;
    ClaimRef { namespace: owned("ns"), name: owned(name), uid: format!("uid-of-{name}") }
}

/// Does a child's work where this process is one.
async fn is_child() -> bool {
    let Some(folder) = std::env::var_os("OCTAVO_TEST_NODE") else { return false };
    let claims = Node(folder.into()).start().await;
    match std::env::var("OCTAVO_TEST_ACTION").as_deref() {
        Ok("prepare") => drop(claims.prepare(&claim("a")).await.unwrap()),
        Ok("unprepare") => claims.unprepare(&claim("a")).await.unwrap(),
        _ => {}
    }
    true
}

/// The claim is prepared exclusively, whether it was before or not, and leaves nothing after its release.
async fn check_whole(node: &Node, point: &str) {
    let (first, second) = (claim("a"), node.allocate("b"));
    let claims = node.start().await;
    let devices = claims.prepare(&first).await.unwrap();
    assert_eq!(devices.len(), 1, "{point}");
    assert_eq!(
        node.files(),
        ["k8s.gpu.nvidia.com-claim_uid-of-a.yaml", "uid-of-a.json"],
        "{point}"
    );
    let refusal = claims.prepare(&second).await.expect_err(point);
    assert_eq!(refusal.reason(), "DeviceInUse", "{point}");
    claims.unprepare(&first).await.unwrap();
    claims.prepare(&second).await.unwrap();
    claims.unprepare(&second).await.unwrap();
    assert_eq!(node.files(), [""; 0], "{point}");
}

#[tokio::test]
async fn a_kill_during_prepare_loses_doubles_and_leaves_nothing() {
    if is_child().await {
        return;
    }
    for point in PREPARE {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::new(folder.path());
        node.allocate("a");
        drop(node.start().await);
        let test = "a_kill_during_prepare_loses_doubles_and_leaves_nothing";
        node.kill_at(test, "prepare", point);
        check_whole(&node, point).await;
    }
}

#[tokio::test]
async fn a_kill_during_prepare_of_a_claim_that_is_gone_leaves_nothing() {
    if is_child().await {
        return;
    }
    for point in PREPARE {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::new(folder.path());
        let first = node.allocate("a");
        drop(node.start().await);
        let test = "a_kill_during_prepare_of_a_claim_that_is_gone_leaves_nothing";
        node.kill_at(test, "prepare", point);
        node.delete(&first);
        let claims = node.start().await;
        // Missing at the first check and half a minute later.
        claims.sweep().await;
        claims.sweep_at(Instant::now() + Duration::from_secs(30)).await;
        assert_eq!(node.files(), [""; 0], "{point}");
        let second = node.allocate("b");
        claims.prepare(&second).await.unwrap();
    }
}

#[tokio::test]
async fn a_kill_during_unprepare_loses_doubles_and_leaves_nothing() {
    if is_child().await {
        return;
    }
    for point in UNPREPARE {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::new(folder.path());
        let first = node.allocate("a");
        node.start().await.prepare(&first).await.unwrap();
        let test = "a_kill_during_unprepare_loses_doubles_and_leaves_nothing";
        node.kill_at(test, "unprepare", point);

        let second = node.allocate("b");
        let claims = node.start().await;
        if point == "unprepare.checkpoint-removed" {
            claims.prepare(&second).await.expect("nothing is held any more");
            claims.unprepare(&second).await.unwrap();
        } else {
            claims.prepare(&second).await.expect_err("is held until the kubelet retries");
        }
        claims.unprepare(&first).await.unwrap();
        assert_eq!(node.files(), [""; 0], "{point}");
        drop(claims);
        check_whole(&node, point).await;
    }
}

#[tokio::test]
async fn a_kill_while_a_start_forgets_or_restores_loses_nothing() {
    if is_child().await {
        return;
    }
    let test = "a_kill_while_a_start_forgets_or_restores_loses_nothing";
    // A new boot forgets: dying in between only leaves more to forget.
    for point in ["start.cdi-removed", "file.renamed"] {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::new(folder.path());
        let first = node.allocate("a");
        node.start().await.prepare(&first).await.unwrap();
        fs::write(folder.path().join("proc/sys/kernel/random/boot_id"), "boot-2").unwrap();
        node.kill_at(test, "start", point);
        drop(node.start().await);
        assert_eq!(node.files(), [""; 0], "{point}");
        check_whole(&node, point).await;
    }
    // A damaged checkpoint is restored from the spec. A crash in between only means that it is restored later.
    for point in ["file.written", "file.flushed", "file.renamed"] {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::new(folder.path());
        let (first, second) = (node.allocate("a"), node.allocate("b"));
        node.start().await.prepare(&first).await.unwrap();
        let checkpoint = "kubelet/plugins/gpu.nvidia.com/checkpoint";
        fs::write(folder.path().join(checkpoint).join("uid-of-a.json"), "{").unwrap();
        node.kill_at(test, "start", point);
        let claims = node.start().await;
        let refusal = claims.prepare(&second).await.expect_err(point);
        assert_eq!(refusal.reason(), "DeviceInUse", "{point}");
        drop(claims);
        fs::remove_dir_all(folder.path().join(checkpoint).join("kept")).unwrap();
        check_whole(&node, point).await;
    }
}
