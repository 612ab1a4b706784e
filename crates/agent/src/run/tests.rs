//! Two agents on one node: whole agents, a kubelet's part played, an API server in memory.

mod crashes;
mod fixtures;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use fixtures::{Kubelet, Node, TIMEOUT};
use octavo_node::ClaimRef;
use octavo_testkit::eventually;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::call_gate::{CallGate, GatedPreparer};
use crate::checkpoint::Lock;
use crate::claims::Claims;
use crate::kubelet::plugin::Preparer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_gets_the_node_and_no_claim_is_lost() {
    let node = Node::new();
    let kubelet = Kubelet::start(&node);
    let first = node.start(Some("a"));
    first.says("ready: kubelet").await;
    let held = node.allocate("held", "gpu-0");
    let devices = kubelet.prepare(&held).await;

    // Calls without a pause, also while the node passes on.
    let busy = {
        let (kubelet, claim) = (kubelet.clone(), node.allocate("busy", "gpu-1"));
        tokio::spawn(async move {
            while !kubelet.is_resting() {
                kubelet.prepare(&claim).await;
                kubelet.unprepare(&claim).await;
            }
        })
    };
    let second = node.start(Some("b"));
    first.says("ready: standby").await;
    second.says("ready: kubelet").await;
    assert!(!first.report().contains("kubelet"), "{}", first.report());
    kubelet.rest();
    timeout(TIMEOUT, busy).await.unwrap().unwrap();
    assert_eq!(kubelet.endpoint().await, node.folder("kubelet/plugins/gpu.nvidia.com/dra-b.sock"));
    assert_eq!(kubelet.prepare(&held).await, devices, "what the first gave the second knows");
    let other = node.allocate("other", "gpu-0");
    let refusal = kubelet.try_prepare(&other).await.unwrap_err();
    assert!(refusal.contains("ns/held"), "{refusal}");
    kubelet.unprepare(&held).await;
    assert_eq!(node.files(), [""; 0]);

    // The first agent is told to end, as in a rolling update. Nothing changes.
    first.end().await;
    kubelet.prepare(&other).await;
    assert_eq!(node.sockets(), ["dra-b.sock", "gpu.nvidia.com-b@reg.sock", "handover.sock"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn previous_agent_takes_the_node_back_when_the_new_one_is_gone() {
    let node = Node::new();
    let kubelet = Kubelet::start(&node);
    let first = node.start(Some("a"));
    first.says("ready: kubelet").await;
    let second = node.start(Some("b"));
    first.says("ready: standby").await;
    let held = node.allocate("held", "gpu-0");
    let devices = kubelet.prepare(&held).await;
    second.end().await;
    first.says("ready: kubelet").await;
    assert_eq!(kubelet.prepare(&held).await, devices);
    // And gives it away again.
    let third = node.start(Some("c"));
    first.says("ready: standby").await;
    third.says("ready: kubelet").await;
    kubelet.unprepare(&held).await;
    assert_eq!(node.files(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_newcomers_at_once_one_has_the_node_in_the_end() {
    let node = Node::new();
    let kubelet = Kubelet::start(&node);
    let first = node.start(Some("a"));
    first.says("ready: kubelet").await;
    let held = node.allocate("held", "gpu-0");
    let devices = kubelet.prepare(&held).await;
    let newcomers = [node.start(Some("b")), node.start(Some("c")), node.start(Some("d"))];
    first.says("ready: standby").await;
    eventually("all but one stand by", || {
        let reports = newcomers.iter().map(fixtures::Agent::report);
        let (active, others): (Vec<_>, Vec<_>) =
            reports.partition(|report| report.contains("ready: kubelet\n"));
        let are_waiting = others.iter().all(|report| report.contains("ready: standby\n"));
        active.len() == 1 && are_waiting
    })
    .await;
    assert_eq!(kubelet.prepare(&held).await, devices);
    kubelet.unprepare(&held).await;
    assert_eq!(node.files(), [""; 0]);
    assert_eq!(node.sockets().len(), 3, "{:?}", node.sockets());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_without_instance_ids_hand_the_node_over_too() {
    let node = Node::new();
    let kubelet = Kubelet::start(&node);
    let first = node.start(None);
    first.says("ready: kubelet").await;
    let held = node.allocate("held", "gpu-0");
    let devices = kubelet.prepare(&held).await;
    let second = node.start(None);
    first.says("ready: standby").await;
    second.says("ready: kubelet").await;
    assert_eq!(kubelet.prepare(&held).await, devices);
    assert_eq!(node.sockets(), ["dra.sock", "gpu.nvidia.com@reg.sock", "handover.sock"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_cannot_be_asked_is_waited_for() {
    let node = Node::new();
    let kubelet = Kubelet::start(&node);
    // An agent of a version without hand-over holds the lock, and listens nowhere.
    let lock = Lock::take(&node.folder("kubelet/plugins/gpu.nvidia.com/checkpoint"));
    let lock = lock.unwrap().unwrap();
    let newcomer = node.start_with_standby_after(Some("b"), Duration::from_hours(1));
    newcomer.says("not ready: node: another agent serves it: no agent answers").await;
    assert_eq!(node.sockets(), [""; 0], "the kubelet must not call an agent without the node");
    drop(lock);
    newcomer.says("ready: kubelet").await;
    kubelet.prepare(&node.allocate("a", "gpu-0")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newcomer_without_an_answer_reports_standby_to_unblock_the_rollout() {
    let node = Node::new();
    let lock = Lock::take(&node.folder("kubelet/plugins/gpu.nvidia.com/checkpoint"));
    let _lock = lock.unwrap().unwrap();
    let newcomer = node.start_with_standby_after(Some("b"), Duration::ZERO);
    newcomer.says("ready: standby").await;
    assert!(!newcomer.report().contains("not ready"), "{}", newcomer.report());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_whose_gpus_cannot_be_read_leaves_the_node_where_it_is() {
    let node = Node::new();
    let kubelet = Kubelet::start(&node);
    let first = node.start(Some("a"));
    first.says("ready: kubelet").await;
    let broken = node.start_without_driver(Some("b"));
    broken.says("not ready: node: another agent serves it; the GPUs are not read yet").await;
    broken.says("not ready: node: another agent serves it: that agent has a driver").await;
    kubelet.prepare(&node.allocate("a", "gpu-0")).await;
    first.says("ready: kubelet").await;
    // As the only agent it serves the node nevertheless: claims must be unprepared.
    first.end().await;
    broken.says("ready: kubelet").await;
    kubelet.unprepare(&node.allocate("a", "gpu-0")).await;
    assert_eq!(node.files(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_gets_a_node_that_has_no_driver() {
    let node = Node::new();
    let kubelet = Kubelet::start(&node);
    let first = node.start_without_driver(Some("a"));
    first.says("ready: kubelet").await;
    let second = node.start_without_driver(Some("b"));
    second.says("ready: kubelet").await;
    first.says("ready: standby").await;
    kubelet.unprepare(&node.allocate("a", "gpu-0")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_gets_a_node_whose_driver_is_released() {
    let node = Node::new();
    let labels = json!({"octavo.dev/driver-released": "true"});
    node.set_labels(&labels);
    let kubelet = Kubelet::start(&node);
    let first = node.start(Some("a"));
    first.says("ready: kubelet").await;
    let second = node.start_without_driver(Some("b"));
    second.says("ready: kubelet").await;
    first.says("ready: standby").await;
    kubelet.unprepare(&node.allocate("a", "gpu-0")).await;
}

/// Distinguishes a socket from a later one with the same name.
fn identity(path: &Path) -> (u64, i64) {
    let found = std::fs::symlink_metadata(path).unwrap();
    (found.ino(), found.ctime_nsec())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newcomer_stays_registered_when_the_active_agent_exits_in_handover() {
    let node = Node::new();
    let kubelet = Kubelet::start(&node);
    let plugin = node.folder("kubelet/plugins/gpu.nvidia.com");
    let lock = Lock::take(&plugin.join("checkpoint")).unwrap().unwrap();
    let active = UnixListener::bind(plugin.join("handover.sock")).unwrap();
    let _newcomer = node.start(Some("b"));
    let (mut stream, _) = active.accept().await.unwrap();
    let (received, mut message) = stream.split();
    let mut received = BufReader::new(received).lines();
    assert_eq!(received.next_line().await.unwrap().unwrap(), "octavo handover 2 b");
    message.write_all(b"here 1\n").await.unwrap();
    assert_eq!(received.next_line().await.unwrap().unwrap(), "give");
    let socket = node.folder("kubelet/plugins_registry/gpu.nvidia.com-b@reg.sock");
    let registered = identity(&socket);
    // A process that ends closes its files one by one.
    drop(stream);
    drop(active);
    drop(lock);
    kubelet.prepare(&node.allocate("a", "gpu-0")).await;
    assert_eq!(identity(&socket), registered);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_lock_file_does_not_make_two_active_agents() {
    let node = Node::new();
    let kubelet = Kubelet::start(&node);
    let first = node.start(Some("a"));
    first.says("ready: kubelet").await;
    let held = node.allocate("held", "gpu-0");
    let devices = kubelet.prepare(&held).await;
    std::fs::remove_file(node.folder("kubelet/plugins/gpu.nvidia.com/checkpoint/lock")).unwrap();
    let second = node.start(Some("b"));
    first.says("ready: standby").await;
    second.says("ready: kubelet").await;
    assert_eq!(kubelet.prepare(&held).await, devices);
    assert_eq!(node.sockets(), ["dra-b.sock", "gpu.nvidia.com-b@reg.sock", "handover.sock"]);
}

fn claim() -> ClaimRef {
    ClaimRef { namespace: "ns".to_owned(), name: "a".to_owned(), uid: "uid".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_came_too_early_waits_less_long_than_the_kubelet() {
    let (_door, watched) = tokio::sync::watch::channel(CallGate::<Claims>::Waiting);
    let preparer = GatedPreparer::new(
        watched,
        "node".to_owned(),
        fixtures::metrics(),
        CancellationToken::default(),
    );
    let started = tokio::time::Instant::now();
    let deadline = started + crate::kubelet::plugin::PREPARE_TIMEOUT;
    let refusal = preparer.prepare(&claim(), deadline).await.unwrap_err();
    assert_eq!(refusal.reason(), "HandedOver");
    assert!(started.elapsed() < Duration::from_secs(45), "{:?}", started.elapsed());
}

#[tokio::test]
async fn waiting_call_is_refused_when_this_agent_does_not_get_the_node() {
    let (gate, watched) = tokio::sync::watch::channel(CallGate::<Claims>::Waiting);
    let stop = CancellationToken::new();
    let preparer =
        GatedPreparer::new(watched, "node".to_owned(), fixtures::metrics(), stop.clone());
    let claim = claim();
    let (refusal, ()) = tokio::join!(preparer.unprepare(&claim), async { stop.cancel() });
    assert_eq!(refusal.unwrap_err().reason(), "HandedOver");
    let preparer = GatedPreparer::new(
        gate.subscribe(),
        "node".to_owned(),
        fixtures::metrics(),
        CancellationToken::default(),
    );
    let (refusal, _) =
        tokio::join!(preparer.unprepare(&claim), async { gate.send_replace(CallGate::Closed) });
    assert_eq!(refusal.unwrap_err().reason(), "HandedOver");
}
