//! The process is stopped for hours, and goes on.

use octavo_kube_io::objects::{Node, WatchedObject};
use serde_json::{Value, json};
use tokio::time::{advance, sleep, timeout};

use super::leadership::{Harness, SETTLE_TIME};
use super::*;
use crate::bind::{Evict, OpKind};

const PAUSE: Duration = Duration::from_mins(20);

fn node(is_ready: bool) -> Change {
    let taints = if is_ready {
        json!([])
    } else {
        json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}])
    };
    let node = json!({"metadata": {"name": "a", "uid": "uid-a",
            "labels": {"octavo.dev/scheduler": "octavo"}},
        "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": "4", "memory": "64Gi", "pods": "110"},
            "capacity": {"cpu": "4", "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": if is_ready { "True" } else { "Unknown" }}]}});
    Change::Node(Delta::Upsert(Arc::new(Node::from_value(node).unwrap())))
}

fn pod_change(pod: Value) -> Change {
    Change::Pod(Delta::Upsert(Arc::new(Pod::from_value(pod).unwrap())))
}

/// A scheduler without leader election. A gang of one runs on node `a`, which has just been lost.
async fn with_lost_node() -> Harness {
    let mut harness = Harness::with(Leadership::always(), Arc::default()).await;
    let first = harness.next_op().await;
    harness.complete(&first, Ok(()));
    let group = json!({"apiVersion": "octavo.dev/v1alpha1", "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "team", "uid": "uid-g", "generation": 1},
        "spec": {"minMember": 1}});
    let group = Arc::new(WatchedObject::from_value(group).unwrap());
    harness.tell(Change::Object(Delta::Upsert(group))).await;
    let member = json!({"metadata": {"name": "m", "namespace": "team", "uid": "uid-m",
            "labels": {"octavo.dev/pod-group": "g"}},
        "spec": {"schedulerName": "octavo", "nodeName": "a", "containers": []},
        "status": {"phase": "Running"}});
    harness.tell(pod_change(member)).await;
    harness.tell(node(false)).await;
    sleep(SETTLE_TIME).await;
    assert_eq!(harness.orders.try_recv().ok(), None);
    harness
}

/// The pod that the next operation evicts, and when.
async fn evicted(harness: &mut Harness) -> (String, Duration) {
    let begun = Instant::now();
    let order = timeout(PAUSE, harness.orders.recv()).await.expect("an operation").unwrap();
    let OpKind::Evict(Evict { pod, .. }) = &order.kind else { panic!("{order:?}") };
    (pod.name.name.to_string(), begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn members_on_a_node_that_came_back_during_a_pause_stay() {
    let mut harness = with_lost_node().await;
    advance(PAUSE).await;
    // The watch delivers late what has happened meanwhile.
    sleep(SETTLE_TIME).await;
    assert_eq!(harness.orders.try_recv().ok(), None, "the last news of the node is hours old");
    harness.tell(node(true)).await;
    sleep(PAUSE).await;
    assert_eq!(harness.orders.try_recv().ok(), None);
    harness.end().await;
}

#[tokio::test(start_paused = true)]
async fn members_on_a_node_that_stays_lost_after_a_pause_are_deleted_later() {
    let mut harness = with_lost_node().await;
    advance(PAUSE).await;
    let (pod, after) = evicted(&mut harness).await;
    assert_eq!(pod, "m");
    let seconds = SchedulerConfig::default().repair_after_seconds;
    assert!(after > Duration::from_secs(seconds / 2), "{after:?}");
    assert!(after < Duration::from_secs(seconds * 2), "{after:?}");
    harness.end().await;
}

#[tokio::test(start_paused = true)]
async fn victims_have_as_long_as_before_the_pause() {
    let mut harness = Harness::with(Leadership::always(), Arc::default()).await;
    let first = harness.next_op().await;
    harness.complete(&first, Ok(()));
    let pod = |name: &str, priority: i32| {
        json!({"metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}")},
            "spec": {"schedulerName": "octavo", "priority": priority,
                "containers": [{"name": "main", "resources": {"requests": {"cpu": "4"}}}]},
            "status": {"phase": "Pending"}})
    };
    // On each of two nodes a pod that may be evicted.
    let mut other = serde_json::to_value(json!({"metadata": {"name": "b", "uid": "uid-b",
        "labels": {"octavo.dev/scheduler": "octavo"}},
        "status": {"allocatable": {"cpu": "4", "memory": "64Gi", "pods": "110"},
            "capacity": {"cpu": "4", "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}]}}))
    .unwrap();
    other["metadata"]["labels"]["kubernetes.io/hostname"] = "b".into();
    harness.tell(Change::Node(Delta::Upsert(Arc::new(Node::from_value(other).unwrap())))).await;
    for (name, node, priority) in [("low-a", "a", 0), ("low-b", "b", 1)] {
        let mut running = pod(name, priority);
        running["spec"]["nodeName"] = node.into();
        running["status"]["phase"] = "Running".into();
        harness.tell(pod_change(running)).await;
    }
    let gone = json!({"metadata": {"name": "p", "namespace": "team", "uid": "uid-p"},
        "spec": {"schedulerName": "octavo", "containers": []}});
    let gone = Arc::new(Pod::from_value(gone).unwrap());
    harness.tell(Change::Pod(Delta::Delete(gone))).await;
    harness.tell(pod_change(pod("high", 100))).await;
    assert_eq!(evicted(&mut harness).await.0, "low-a");
    sleep(SETTLE_TIME).await;
    while harness.orders.try_recv().is_ok() {}
    advance(PAUSE).await;
    // The victim may have left long ago, so no other has to.
    sleep(SETTLE_TIME).await;
    assert_eq!(harness.orders.try_recv().ok(), None);
    harness.end().await;
}
