//! SIGKILL at every step of a handover: afterwards the node has one agent, and no claim is lost.
//!
//! The test runs itself again as a child in the role of either agent, which dies at a named point.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;

use octavo_node::ClaimRef;
use octavo_testkit::eventually;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::fixtures::{Agent, Kubelet, Node, TIMEOUT};

/// Steps at which the newcomer dies, in order.
const NEWCOMER: [&str; 4] =
    ["handover.found", "handover.registered", "handover.taken", "handover.opened"];
/// Steps at which the active agent dies, in order.
const ACTIVE: [&str; 3] = ["handover.leaving", "handover.closed", "handover.given"];

/// Starts this test again as an agent that dies at a point.
fn start_child(test: &str, node: &Node, instance: &str, point: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([&format!("run::tests::crashes::{test}"), "--exact", "--nocapture"])
        .env("OCTAVO_CRASH_AT", point)
        .env("OCTAVO_TEST_NODE", node.folder(""))
        .env("OCTAVO_TEST_INSTANCE", instance)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Is an agent until it is killed, where this process is a child.
async fn is_child() -> bool {
    let Some(folder) = std::env::var_os("OCTAVO_TEST_NODE") else { return false };
    let instance = std::env::var("OCTAVO_TEST_INSTANCE").unwrap();
    let _agent = Node::at(Path::new(&folder)).start(Some(&instance));
    assert!(timeout(TIMEOUT * 2, std::future::pending::<()>()).await.is_ok(), "was not killed");
    true
}

async fn is_killed(mut child: Child, point: &str) {
    let status = timeout(TIMEOUT, child.wait()).await.expect(point).unwrap();
    assert_eq!(status.signal(), Some(9), "{point} was not reached");
}

/// Only this agent holds the claim, and it leaves nothing. No socket of a dead agent remains.
async fn check_whole(
    node: &Node,
    kubelet: &Kubelet,
    (agent, instance): (&Agent, &str),
    (held, devices): (&ClaimRef, &[String]),
    point: &str,
) {
    agent.says("ready: kubelet").await;
    assert_eq!(kubelet.prepare(held).await, devices, "{point}");
    let other = node.allocate("other", "gpu-0");
    let refusal = kubelet.try_prepare(&other).await.expect_err(point);
    assert!(refusal.contains("ns/held"), "{point}: {refusal}");
    kubelet.unprepare(held).await;
    kubelet.prepare(&other).await;
    kubelet.unprepare(&other).await;
    assert_eq!(node.files(), [""; 0], "{point}");
    let own = [format!("dra-{instance}.sock"), format!("gpu.nvidia.com-{instance}@reg.sock")];
    let expected = [&own[0], &own[1], "handover.sock"];
    eventually(point, || node.sockets() == expected).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_that_dies_at_any_step_leaves_the_node_to_the_other() {
    if is_child().await {
        return;
    }
    let test = "a_newcomer_that_dies_at_any_step_leaves_the_node_to_the_other";
    for point in NEWCOMER {
        let node = Node::new();
        let kubelet = Kubelet::start(&node);
        let first = node.start(Some("a"));
        first.says("ready: kubelet").await;
        let held = node.allocate("held", "gpu-0");
        let devices = kubelet.prepare(&held).await;
        is_killed(start_child(test, &node, "b", point), point).await;
        check_whole(&node, &kubelet, (&first, "a"), (&held, &devices), point).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newcomer_gets_the_node_when_the_active_agent_dies_in_handover() {
    if is_child().await {
        return;
    }
    let test = "newcomer_gets_the_node_when_the_active_agent_dies_in_handover";
    for point in ACTIVE {
        let node = Node::new();
        let kubelet = Kubelet::start(&node);
        let child = start_child(test, &node, "a", point);
        let held = node.allocate("held", "gpu-0");
        let devices = kubelet.prepare(&held).await;
        let second = node.start(Some("b"));
        is_killed(child, point).await;
        check_whole(&node, &kubelet, (&second, "b"), (&held, &devices), point).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_agent_succeeds_a_killed_active_agent() {
    if is_child().await {
        return;
    }
    let test = "standby_agent_succeeds_a_killed_active_agent";
    let node = Node::new();
    let kubelet = Kubelet::start(&node);
    let first = node.start(Some("a"));
    first.says("ready: kubelet").await;
    let mut child = start_child(test, &node, "b", "nowhere");
    first.says("ready: standby").await;
    let held = node.allocate("held", "gpu-0");
    let devices = kubelet.prepare(&held).await;
    child.start_kill().unwrap();
    is_killed(child, "kill").await;
    check_whole(&node, &kubelet, (&first, "a"), (&held, &devices), "kill").await;
}
