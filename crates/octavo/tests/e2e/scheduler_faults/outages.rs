//! Programs and objects that disappear during work: the API server, the leader, nodes, claims and
//! pods.

use std::cell::RefCell;
use std::net::TcpListener;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use octavo_lab::Component;
use serde_json::json;

use super::processes::{
    SecondScheduler, StoppedProcess, own_address, wait_for_holder, wait_for_lease_expiry,
};
use super::{
    check_invariants, nodes, nodes_of_pods, numbered, start_testbed, wait_for_reason,
    wait_until_all_bound,
};
use crate::scheduler::{create_group, group_status, in_group, pod, with_claim, with_gpus};
use crate::testbed::{Testbed, claim, eventually};

const LOST: &str = "dgx-h100-1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_lose_no_pod_and_allocate_no_device_twice() {
    let config = json!({"leaderElection": {
        "enabled": true, "leaseSeconds": 12, "renewDeadlineSeconds": 10, "retrySeconds": 1,
    }});
    // Three nodes: 24 GPUs.
    let testbed = start_testbed("dgx-h100=3", &["--etcd-compaction-interval=1s"], config).await;
    the_api_server_ends_while_a_gang_is_bound(&testbed).await;
    clear(&testbed).await;
    let second = the_leader_is_stopped_and_another_goes_on(&testbed).await;
    the_command_line_finds_the_leader_through_the_api_server(&testbed, &second).await;
    second.0.end().await;
    wait_for_holder(&testbed, "the first leads again", |holder| {
        !holder.is_empty() && holder != "second"
    })
    .await;
    cluster_changes_while_the_scheduler_is_stopped(&testbed).await;
    clear(&testbed).await;
    a_node_goes_with_pods_on_their_way_to_it(&testbed).await;
}

async fn the_api_server_ends_while_a_gang_is_bound(testbed: &Testbed) {
    let names = numbered("gang", 24);
    create_group(testbed, "gang", &json!({"minMember": 24})).await;
    for name in &names {
        testbed.create::<Pod>(in_group(with_gpus(name, 1), "gang")).await;
    }
    restart_the_api_server(testbed).await;
    wait_until_all_bound(testbed, &names).await;
    eventually("the gang's status says that it is placed", || async {
        let status = group_status(testbed, "gang").await;
        (status["phase"] == "Scheduled" && status["bound"] == 24).then_some(())
    })
    .await;
}

/// The leader is stopped during its writes, another takes over, and the first continues unaware.
/// Returns the second with its port.
async fn the_leader_is_stopped_and_another_goes_on(testbed: &Testbed) -> (SecondScheduler, u16) {
    let first = wait_for_holder(testbed, "the first leads", |holder| !holder.is_empty()).await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let second = SecondScheduler::start(testbed, "second", &format!(":{port}"));
    let names = numbered("lease", 24);
    for name in &names[..16] {
        testbed.create::<Pod>(with_gpus(name, 1)).await;
    }
    let stopped = StoppedProcess::of(testbed, Component::OctavoScheduler);
    wait_for_holder(testbed, "the second leads", |holder| holder != first).await;
    wait_until_all_bound(testbed, &names[..16]).await;
    let before = nodes_of_pods(testbed).await.unwrap();
    drop(stopped);
    for name in &names[16..] {
        testbed.create::<Pod>(with_gpus(name, 1)).await;
    }
    wait_until_all_bound(testbed, &names).await;
    wait_for_holder(testbed, "the second leads still", |holder| holder == "second").await;
    let after = nodes_of_pods(testbed).await.unwrap();
    assert!(before.iter().all(|pod| after.get(pod.0) == Some(pod.1)), "{before:?}, {after:?}");
    (second, port)
}

/// A pod object with the chart's labels represents the second scheduler, to which the API server
/// proxies requests.
async fn the_command_line_finds_the_leader_through_the_api_server(
    testbed: &Testbed,
    (_, port): &(SecondScheduler, u16),
) {
    let Some(address) = own_address() else {
        println!("left out: this machine has no address to which an API server passes anything on");
        return;
    };
    let pods: Api<Pod> = Api::namespaced(testbed.client.clone(), "octavo-system");
    let stands_for = json!({
        "metadata": {"name": "scheduler-second", "labels": {
            "app.kubernetes.io/part-of": "octavo", "app.kubernetes.io/component": "scheduler",
        }},
        "spec": {"schedulerName": "nobody", "containers": [
            {"name": "scheduler", "image": "octavo", "ports": [
                {"name": "metrics", "containerPort": port},
            ]},
        ]},
    });
    let stands_for = serde_json::from_value(stands_for).unwrap();
    pods.create(&PostParams::default(), &stands_for).await.unwrap();
    let status = Patch::Merge(json!({"status": {
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
    }}));
    pods.patch_status("scheduler-second", &PatchParams::default(), &status).await.unwrap();

    testbed.create::<Pod>(with_gpus("one-more", 1)).await;
    wait_for_reason(testbed, "one-more", "Unschedulable", &["insufficient GPU capacity"]).await;
    let asked = testbed.octavo(&["explain", "pod", "one-more"]);
    let text = String::from_utf8_lossy(&asked.stdout);
    assert_eq!(asked.status.code(), Some(3), "it waits: {text}");
    assert!(text.contains("How it was decided"), "{text}");
    assert!(!text.contains("Could not be read"), "{text}");
    // A pod that is still starting is explained with the status 3, too.
    let text = testbed.octavo(&["explain", "pod", "lease-23"]).stdout;
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("last decision"), "{text}");
    testbed.octavo_ok(&[
        "snapshot",
        "-o",
        &testbed.lab.state_dir().join("pki/snapshot.json").display().to_string(),
    ]);
    pods.delete("scheduler-second", &DeleteParams::default().grace_period(0)).await.unwrap();
    testbed.delete_pod("one-more").await;
}

/// The scheduler is stopped for longer than its lease, so it must relist before its next decision.
/// Its resource version is gone by then: the API server has restarted, and etcd has compacted old
/// versions.
async fn cluster_changes_while_the_scheduler_is_stopped(testbed: &Testbed) {
    let stopped = StoppedProcess::of(testbed, Component::OctavoScheduler);
    // Eight GPUs are freed, and another pod takes over one name.
    for name in &numbered("lease", 8) {
        testbed.delete_pod(name).await;
    }
    testbed.create::<Pod>(with_gpus("lease-0", 1)).await;
    for name in numbered("claim", 4) {
        testbed.create::<ResourceClaim>(claim(&name, &json!([]))).await;
        testbed.create::<Pod>(with_claim(&name, &json!({"resourceClaimName": name}))).await;
    }
    restart_the_api_server(testbed).await;
    // One claim is deleted, one is allocated by hand, and one pod is deleted.
    testbed.claims().delete("claim-0", &DeleteParams::default()).await.unwrap();
    give_by_hand(testbed, "claim-1").await;
    testbed.delete_pod("claim-2").await;
    let by_hand = testbed.claims().get("claim-1").await.unwrap();
    // Until the lease expires it may decide on its old view, and concurrent writes could conflict.
    wait_for_lease_expiry(testbed).await;
    drop(stopped);

    wait_until_all_bound(
        testbed,
        &["lease-0", "lease-23", "claim-1", "claim-3"].map(str::to_owned),
    )
    .await;
    let now = testbed.claims().get("claim-1").await.unwrap();
    let allocation = |claim: &ResourceClaim| claim.status.clone().unwrap().allocation;
    assert_eq!(allocation(&now), allocation(&by_hand), "what was given by hand stays");
    wait_for_reason(
        testbed,
        "claim-0",
        "WaitingForClaims",
        &["there is no ResourceClaim default/claim-0"],
    )
    .await;
    testbed.create::<ResourceClaim>(claim("claim-0", &json!([]))).await;
    wait_until_all_bound(testbed, &["claim-0".to_owned()]).await;
    eventually("a claim that nobody uses is not allocated", || async {
        let unused = testbed.claims().get("claim-2").await.ok()?;
        allocation_of(&unused).is_none().then_some(())
    })
    .await;
}

fn allocation_of(
    claim: &ResourceClaim,
) -> Option<&k8s_openapi::api::resource::v1::AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}

/// Allocates a free device to a claim, like a user with too many rights.
async fn give_by_hand(testbed: &Testbed, name: &str) {
    let (node, device) = eventually("one of the eight GPUs of pods that went is free", || async {
        let by_claim = crate::scheduler::allocated_devices(testbed).await;
        let taken: std::collections::BTreeSet<_> = by_claim.values().flatten().collect();
        (0..3)
            .flat_map(|node| {
                (0..8).map(move |gpu| (format!("dgx-h100-{node}"), format!("gpu-{gpu}")))
            })
            .find(|device| !taken.contains(device))
    })
    .await;
    let status = Patch::Merge(json!({"status": {"allocation": {
        "devices": {"results": [
            {"request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": device},
        ]},
        "nodeSelector": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
        ]},
    }}}));
    testbed.claims().patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

/// A node is deleted after the decision on its pods, before or after their bindings are written.
async fn a_node_goes_with_pods_on_their_way_to_it(testbed: &Testbed) {
    let names = numbered("orphan", 20);
    for name in &names {
        testbed.create::<Pod>(with_gpus(name, 1)).await;
    }
    nodes(testbed).delete(LOST, &DeleteParams::default()).await.unwrap();
    // Pods bound there are lost; all others are bound, or have a reason to wait.
    eventually("every pod is bound or told why it waits", || async {
        let pods = testbed.pods().list(&ListParams::default()).await.ok()?;
        let is_answered = |pod: &Pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
            let has_condition =
                conditions.into_iter().flatten().any(|condition| condition.type_ == "PodScheduled");
            has_condition || pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
        };
        pods.iter().all(is_answered).then_some(())
    })
    .await;
    check_invariants(testbed).await;
    clear(testbed).await;
    // Only the rest of the cluster is used.
    for name in ["whole-0", "whole-1", "whole-2"] {
        testbed.create::<Pod>(with_gpus(name, 8)).await;
    }
    testbed.create::<Pod>(pod("plain")).await;
    wait_until_all_bound(testbed, &["plain".to_owned()]).await;
    let placed = eventually("two of three are bound", || async {
        let placed: Vec<_> = nodes_of_pods(testbed).await?.into_values().flatten().collect();
        (placed.len() == 3).then_some(placed)
    })
    .await;
    assert!(!placed.contains(&LOST.to_owned()), "{placed:?}");
    check_invariants(testbed).await;
}

/// The ended server may hold its port for a moment.
///
/// Kubernetes' controllers are started again with it. One that starts ends without a server. One that runs
/// may learn of a claim's deletion before it learns of its pod's last status; it then looks at the
/// claim no more, and the claim keeps its finalizer.
async fn restart_the_api_server(testbed: &Testbed) {
    testbed.lab.kill(Component::KubeApiserver).await;
    testbed.lab.kill(Component::KubeControllerManager).await;
    eventually("the API server serves again", || async {
        testbed.lab.start(Component::KubeApiserver).await.ok()
    })
    .await;
    testbed.lab.start(Component::KubeControllerManager).await.unwrap();
}

/// Deletes all pods and waits until their claims are gone, too.
async fn clear(testbed: &Testbed) {
    let (at_once, all) = (DeleteParams::default().grace_period(0), ListParams::default());
    testbed.pods().delete_collection(&at_once, &all).await.unwrap();
    testbed.claims().delete_collection(&DeleteParams::default(), &all).await.unwrap();
    let seen = RefCell::default();
    eventually("no pod and no claim is left", || async {
        let pods = testbed.pods().list(&all).await.ok()?;
        let claims = testbed.claims().list(&all).await.ok()?;
        let left = format!("{pods:?} {claims:?}");
        if seen.replace(left.clone()) != left {
            println!("{}: left are {left}", k8s_openapi::jiff::Timestamp::now());
        }
        (pods.items.is_empty() && claims.items.is_empty()).then_some(())
    })
    .await;
}
