//! SIGKILL at every step with time slices and MPS, over the simulated driver: the GPU is as before once its claim is gone.

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

use std::time::{Duration, Instant};

use crash_node::{Agent, Kind, Node, claim, is_child};
use octavo_gpu::ComputeMode;

/// Steps of preparing a GPU with a time slice, those of its record included.
const PREPARE: [&str; 7] = [
    "prepare.reserved",
    "file.written",
    "file.flushed",
    "file.renamed",
    "sharing.time-slice",
    "prepare.checkpoint-written",
    "prepare.cdi-written",
];
/// Steps of the way back.
const UNPREPARE: [&str; 3] =
    ["unprepare.begun", "unprepare.cdi-removed", "unprepare.checkpoint-removed"];
/// A time slice of `nvidia-smi compute-policy`.
const LONG: u32 = 3;

/// Nothing is left on disk, and the GPU is as the driver has it.
fn check_as_before(node: &Node, agent: &Agent, point: &str) {
    assert_eq!(node.files(), [""; 0], "{point}");
    assert_eq!(agent.sharing(node), (ComputeMode::Default, 0), "{point}");
}

/// Kills a prepare at each step. Then the pod is gone, or the claim is deleted without a call of the kubelet.
async fn kill_prepares(test: &str, kind: Kind, points: &[&str]) {
    for point in points {
        for has_call in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let node = Node::new(folder.path());
            let first = node.allocate("a", kind);
            node.kill_at(test, "prepare", point);
            if !has_call {
                node.delete(&first);
            }
            let agent = node.start().await;
            if has_call {
                agent.claims.unprepare(&first).await.unwrap();
            } else {
                agent.claims.sweep().await;
                agent.claims.sweep_at(Instant::now() + Duration::from_secs(30)).await;
            }
            check_as_before(&node, &agent, point);
        }
    }
}

#[tokio::test]
async fn a_kill_while_a_claim_gets_its_time_slice_leaves_the_gpu_as_before() {
    if is_child().await {
        return;
    }
    let test = "a_kill_while_a_claim_gets_its_time_slice_leaves_the_gpu_as_before";
    kill_prepares(test, Kind::TimeSlice, &PREPARE).await;
    for point in PREPARE {
        // The kubelet tries again.
        let folder = tempfile::tempdir().unwrap();
        let node = Node::new(folder.path());
        let first = node.allocate("a", Kind::TimeSlice);
        node.kill_at(test, "prepare", point);
        let agent = node.start().await;
        agent.claims.prepare(&first).await.unwrap();
        assert_eq!(agent.sharing(&node), (ComputeMode::Default, LONG), "{point}");
        agent.claims.unprepare(&first).await.unwrap();
        check_as_before(&node, &agent, point);
    }
}

#[tokio::test]
async fn a_kill_while_a_time_slice_is_given_back_leaves_the_gpu_as_before() {
    if is_child().await {
        return;
    }
    let test = "a_kill_while_a_time_slice_is_given_back_leaves_the_gpu_as_before";
    for point in UNPREPARE {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::new(folder.path());
        let first = node.allocate("a", Kind::TimeSlice);
        let agent = node.start().await;
        agent.claims.prepare(&first).await.unwrap();
        assert_eq!(agent.sharing(&node), (ComputeMode::Default, LONG), "{point}");
        drop(agent);
        node.kill_at(test, "unprepare", point);
        let agent = node.start().await;
        agent.claims.unprepare(&claim("a")).await.unwrap();
        check_as_before(&node, &agent, point);
    }
}

#[tokio::test]
async fn a_kill_before_an_mps_daemon_leaves_no_gpu_exclusive() {
    if is_child().await {
        return;
    }
    let test = "a_kill_before_an_mps_daemon_leaves_no_gpu_exclusive";
    let points = ["prepare.reserved", "file.renamed", "sharing.exclusive"];
    kill_prepares(test, Kind::Mps, &points).await;
}
