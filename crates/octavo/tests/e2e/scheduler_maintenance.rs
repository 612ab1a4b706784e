//! Work that is planned on a node, and the pods that Octavo's scheduler places there until it begins.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use octavo_api::Maintenance;
use octavo_lab::{Component, Owner, Owners, UpOptions};
use serde_json::{Value, json};

use crate::health_maintenance::{create, hours};
use crate::scheduler::with_gpus;
use crate::testbed::{OCTAVO, Testbed, eventually};

const NODE: &str = "dgx-h100-0";
const WORK: &str = "firmware";

/// A lab of one node, whose scheduler the command line finds by its lease.
async fn lab() -> Testbed {
    Testbed::up_with(|state| UpOptions {
        nodes: Some("dgx-h100=1".parse().unwrap()),
        owners: Some(Owners::All(Owner::Octavo)),
        scheduler: Some(true),
        scheduler_config: Some(json!({"leaderElection": {"enabled": true}})),
        ..UpOptions::new(state, OCTAVO)
    })
    .await
}

/// A pod that ends before the work.
fn short() -> Value {
    let mut pod = with_gpus("short", 1);
    pod["spec"]["activeDeadlineSeconds"] = 3600.into();
    pod
}

/// A pod that may be restarted elsewhere.
fn movable() -> Value {
    let mut pod = with_gpus("movable", 1);
    pod["metadata"]["annotations"] = json!({"octavo.dev/movable": "true"});
    pod
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_work_a_node_takes_only_pods_that_end_or_yield_in_time() {
    let testbed = lab().await;
    // A scheduler that starts has read the work before its first decision.
    testbed.lab.stop(Component::OctavoScheduler).await;
    let start = hours(6);
    let work = json!({
        "nodeNames": [NODE], "startTime": start, "endTime": hours(8), "drain": "AtStart",
    });
    create(&testbed.client, WORK, work).await.unwrap();
    for pod in [with_gpus("open", 1), short(), movable()] {
        testbed.create::<Pod>(pod).await;
    }
    testbed.lab.start(Component::OctavoScheduler).await.unwrap();
    for name in ["short", "movable"] {
        testbed.wait_until_bound(name).await;
    }
    let why = format!(
        "node {NODE} is in maintenance from {start} on, and the pod neither ends nor yields before"
    );
    eventually("the condition of the pod says why it waits", || async {
        testbed.wait_until_unschedulable("open").await.contains(&why).then_some(())
    })
    .await;
    let asked = testbed.octavo(&["explain", "pod", "open"]);
    let text = String::from_utf8_lossy(&asked.stdout);
    assert_eq!(asked.status.code(), Some(3), "it waits: {text}");
    assert!(text.contains(&why), "{text}");

    let works: Api<Maintenance> = Api::all(testbed.client.clone());
    works.delete(WORK, &DeleteParams::default()).await.unwrap();
    testbed.wait_until_bound("open").await;
}
