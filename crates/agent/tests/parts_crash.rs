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

#[path = "support/crash_node.rs"]
mod crash_node;
#[path = "support/opened.rs"]
mod opened;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crash_node::{Agent, Kind, LARGE, Node, claim, is_child};

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
const RECREATE: [&str; 7] = [
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

/// A node with a prepared claim whose large instance was destroyed by hand.
async fn lacking(folder: &Path, kind: Kind) -> Node {
    let node = Node::new(folder);
    let first = node.allocate("a", kind);
    let agent = node.start().await;
    agent.claims.prepare(&first).await.unwrap();
    let found = agent.driver.mig_instances(&agent.uuid()).unwrap();
    let large = found.iter().find(|found| found.placement.start == 4).unwrap();
    agent.driver.destroy_mig(&agent.uuid(), large.gpu_instance).unwrap();
    node
}

/// Nothing is left on disk or on the GPU.
fn check_empty(node: &Node, agent: &Agent, point: &str) {
    assert_eq!(node.files(), [""; 0], "{point}");
    assert_eq!(agent.slices(), [0; 0], "{point}");
    assert!(!agent.is_on(), "{point}");
}

/// A start does not release devices that a claim's containers may use.
async fn check_kept(node: &Node, kind: Kind, point: &str) {
    let agent = node.start().await;
    assert!(node.files().contains(&"uid-of-a.json".to_owned()), "{point}");
    assert_eq!(agent.claims.holdings().len(), 1, "{point}");
    if kind == Kind::Pair {
        assert!(agent.slices().contains(&0), "{point}");
    }
}

/// The claim is prepared as the only one of its kind, whether it was before or not, and leaves nothing after its
/// release.
async fn check_whole(node: &Node, kind: Kind, point: &str) {
    let (first, second) = (claim("a"), node.allocate("b", kind));
    let agent = node.start().await;
    let claims = &agent.claims;
    claims.prepare(&first).await.unwrap();
    let mut files = vec!["k8s.gpu.nvidia.com-claim_uid-of-a.yaml", "uid-of-a.json"];
    match kind {
        Kind::Share => files.push("uid-of-a_share-of-a"),
        Kind::Mig => assert_eq!(agent.slices(), [4], "{point}"),
        Kind::Pair => assert_eq!(agent.slices(), [0, 4], "{point}"),
        Kind::TimeSlice | Kind::Mps => {}
    }
    assert_eq!(node.files(), files, "{point}");
    let refusal = claims.prepare(&second).await.expect_err(point);
    let reason = if kind == Kind::Share { "ShareDoesNotFit" } else { "DeviceInUse" };
    assert_eq!(refusal.reason(), reason, "{point}");
    claims.unprepare(&first).await.unwrap();
    check_empty(node, &agent, point);
    claims.prepare(&second).await.unwrap();
    claims.unprepare(&second).await.unwrap();
    check_empty(node, &agent, point);
}

/// Kills a prepare at each step, and goes on in each way in which life does.
async fn kill_prepares(test: &str, kind: Kind, points: &[&str]) {
    for point in points {
        // The kubelet tries again.
        let folder = tempfile::tempdir().unwrap();
        let node = Node::new(folder.path());
        node.allocate("a", kind);
        node.kill_at(test, "prepare", point);
        check_whole(&node, kind, point).await;

        // The pod is gone: the kubelet only unprepares.
        let folder = tempfile::tempdir().unwrap();
        let node = Node::new(folder.path());
        let first = node.allocate("a", kind);
        node.kill_at(test, "prepare", point);
        let agent = node.start().await;
        agent.claims.unprepare(&first).await.unwrap();
        check_empty(&node, &agent, point);
        drop(agent);

        // The claim is deleted without a kubelet call.
        let folder = tempfile::tempdir().unwrap();
        let node = Node::new(folder.path());
        let first = node.allocate("a", kind);
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
    kill_prepares(test, Kind::Share, &SHARE).await;
}

#[tokio::test]
async fn kill_while_a_share_gets_its_file_system_leaves_consistent_state() {
    let test = "kill_while_a_share_gets_its_file_system_leaves_consistent_state";
    if !opened::is_in_namespace(test) || is_child().await {
        return;
    }
    let steps = ["share.mounted", "share.bound"];
    kill_prepares(test, Kind::Share, &steps).await;
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("uid-of-"), "{mounts}");
}

#[tokio::test]
async fn kill_during_instance_creation_leaves_consistent_state() {
    if is_child().await {
        return;
    }
    let test = "kill_during_instance_creation_leaves_consistent_state";
    kill_prepares(test, Kind::Mig, &MIG).await;
}

#[tokio::test]
async fn a_kill_during_unprepare_loses_doubles_and_leaves_nothing() {
    if is_child().await {
        return;
    }
    let test = "a_kill_during_unprepare_loses_doubles_and_leaves_nothing";
    for kind in [Kind::Share, Kind::Mig] {
        let has_driver = |point: &&str| kind == Kind::Mig || !point.starts_with("mig.");
        for point in UNPREPARE.into_iter().filter(has_driver) {
            let folder = tempfile::tempdir().unwrap();
            let node = Node::new(folder.path());
            let first = node.allocate("a", kind);
            let agent = node.start().await;
            agent.claims.prepare(&first).await.unwrap();
            drop(agent);
            node.kill_at(test, "unprepare", point);

            let second = node.allocate("b", kind);
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
            check_whole(&node, kind, point).await;
        }
    }
}

#[tokio::test]
async fn kill_during_instance_recreation_leaves_consistent_state() {
    if is_child().await {
        return;
    }
    let test = "kill_during_instance_recreation_leaves_consistent_state";
    for kind in [Kind::Mig, Kind::Pair] {
        let is_last = |point: &&str| kind == Kind::Mig || *point != "mig.mode-on";
        for point in RECREATE.into_iter().filter(is_last) {
            let folder = tempfile::tempdir().unwrap();
            let node = lacking(folder.path(), kind).await;
            node.kill_at(test, "prepare", point);
            check_kept(&node, kind, point).await;
            check_whole(&node, kind, point).await;
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
            let node = lacking(folder.path(), Kind::Pair).await;
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
            check_kept(&node, Kind::Pair, point).await;
            check_whole(&node, Kind::Pair, point).await;
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
        node.allocate("a", Kind::Mig);
        node.kill_at(test, "prepare", "mig.created");
        node.kill_at(test, "start", point);
        let agent = node.start().await;
        check_empty(&node, &agent, point);
        drop(agent);
        check_whole(&node, Kind::Mig, point).await;
    }
    // Instances that no record knows, as of an earlier boot's claims.
    let folder = tempfile::tempdir().unwrap();
    let node = Node::new(folder.path());
    let agent = node.start().await;
    for (name, device) in [("x", "gpu-0-mig-1g10gb-19-0"), ("y", "gpu-0-mig-1g10gb-19-1")] {
        let claim = node.allocate(name, Kind::Mig);
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
