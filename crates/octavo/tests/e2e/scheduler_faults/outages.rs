//! Programs and objects that go in the middle of work: the API server, the leader, nodes, claims and pods.

use std::net::TcpListener;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use octavo_lab::Component;
use serde_json::json;

use super::second::{Second, Stopped, holder, lease_is_over, own_address};
use super::{all_bound, bed, check, nodes, nodes_of_pods, numbered, told};
use crate::bed::{Bed, claim, eventually};
use crate::scheduler::{create_group, group_status, in_group, pod, with_claim, with_gpus};

const LOST: &str = "dgx-h100-1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_in_the_middle_of_work_loses_no_pod_and_gives_no_device_twice() {
    let config = json!({"leaderElection": {
        "enabled": true, "leaseSeconds": 12, "renewDeadlineSeconds": 10, "retrySeconds": 1,
    }});
    // Three nodes: 24 GPUs.
    let bed = bed("dgx-h100=3", &["--etcd-compaction-interval=1s"], config).await;
    the_api_server_ends_while_a_gang_is_bound(&bed).await;
    clear(&bed).await;
    let second = the_leader_is_stopped_and_another_goes_on(&bed).await;
    the_command_line_finds_the_leader_through_the_api_server(&bed, &second).await;
    second.0.end().await;
    holder(&bed, "the first leads again", |holder| !holder.is_empty() && holder != "second").await;
    much_changes_while_nobody_watches(&bed).await;
    clear(&bed).await;
    a_node_goes_with_pods_on_their_way_to_it(&bed).await;
}

async fn the_api_server_ends_while_a_gang_is_bound(bed: &Bed) {
    let names = numbered("gang", 24);
    create_group(bed, "gang", &json!({"minMember": 24})).await;
    for name in &names {
        bed.create::<Pod>(in_group(with_gpus(name, 1), "gang")).await;
    }
    restart_the_api_server(bed).await;
    all_bound(bed, &names).await;
    eventually("the gang's status says that it is placed", || async {
        let status = group_status(bed, "gang").await;
        (status["phase"] == "Scheduled" && status["bound"] == 24).then_some(())
    })
    .await;
}

/// The leader is stopped in the middle of its writes, another takes over, and the first goes on without
/// knowing of it. Returns the second with its port.
async fn the_leader_is_stopped_and_another_goes_on(bed: &Bed) -> (Second, u16) {
    let first = holder(bed, "the first leads", |holder| !holder.is_empty()).await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let second = Second::start(bed, "second", &format!(":{port}"));
    let names = numbered("lease", 24);
    for name in &names[..16] {
        bed.create::<Pod>(with_gpus(name, 1)).await;
    }
    let stopped = Stopped::of(bed, Component::OctavoScheduler);
    holder(bed, "the second leads", |holder| holder != first).await;
    all_bound(bed, &names[..16]).await;
    let before = nodes_of_pods(bed).await.unwrap();
    drop(stopped);
    for name in &names[16..] {
        bed.create::<Pod>(with_gpus(name, 1)).await;
    }
    all_bound(bed, &names).await;
    holder(bed, "the second leads still", |holder| holder == "second").await;
    let after = nodes_of_pods(bed).await.unwrap();
    assert!(before.iter().all(|pod| after.get(pod.0) == Some(pod.1)), "{before:?}, {after:?}");
    (second, port)
}

/// A pod object of the chart's labels stands for the second scheduler, and the API server passes questions on
/// to it.
async fn the_command_line_finds_the_leader_through_the_api_server(
    bed: &Bed,
    (_, port): &(Second, u16),
) {
    let Some(address) = own_address() else {
        println!("left out: this machine has no address to which an API server passes anything on");
        return;
    };
    let pods: Api<Pod> = Api::namespaced(bed.client.clone(), "octavo-system");
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

    bed.create::<Pod>(with_gpus("one-more", 1)).await;
    told(bed, "one-more", "Unschedulable", &["at most 0 are possible"]).await;
    let asked = bed.octavo(&["explain", "pod", "one-more"]);
    let text = String::from_utf8_lossy(&asked.stdout);
    assert_eq!(asked.status.code(), Some(3), "it waits: {text}");
    assert!(text.contains("How it was decided"), "{text}");
    assert!(!text.contains("Could not be read"), "{text}");
    let text = bed.octavo_ok(&["explain", "pod", "lease-23"]);
    assert!(text.contains("last decision"), "{text}");
    bed.octavo_ok(&[
        "snapshot",
        "-o",
        &bed.lab.state_dir().join("pki/snapshot.json").display().to_string(),
    ]);
    pods.delete("scheduler-second", &DeleteParams::default().grace_period(0)).await.unwrap();
    bed.delete_pod("one-more").await;
}

/// The scheduler sees nothing for a while, longer than its lease: it may not believe what it last saw before it
/// has read anew. What it knew is not kept any more when it asks again: the API server is another one, and the
/// database has forgotten old versions.
async fn much_changes_while_nobody_watches(bed: &Bed) {
    let stopped = Stopped::of(bed, Component::OctavoScheduler);
    // Places of eight are free; one name is another pod's now.
    for name in &numbered("lease", 8) {
        bed.delete_pod(name).await;
    }
    bed.create::<Pod>(with_gpus("lease-0", 1)).await;
    for name in numbered("claim", 4) {
        bed.create::<ResourceClaim>(claim(&name, &json!([]))).await;
        bed.create::<Pod>(with_claim(&name, &json!({"resourceClaimName": name}))).await;
    }
    restart_the_api_server(bed).await;
    // One claim goes, one is given to a node by hand, and one pod goes.
    bed.claims().delete("claim-0", &DeleteParams::default()).await.unwrap();
    give_by_hand(bed, "claim-1").await;
    bed.delete_pod("claim-2").await;
    let by_hand = bed.claims().get("claim-1").await.unwrap();
    // Until then it may decide by what it has seen, and who writes beside it at the same time may be unlucky.
    lease_is_over(bed).await;
    drop(stopped);

    all_bound(bed, &["lease-0", "lease-23", "claim-1", "claim-3"].map(str::to_owned)).await;
    let now = bed.claims().get("claim-1").await.unwrap();
    let allocation = |claim: &ResourceClaim| claim.status.clone().unwrap().allocation;
    assert_eq!(allocation(&now), allocation(&by_hand), "what was given by hand stays");
    told(bed, "claim-0", "WaitingForClaims", &["there is no ResourceClaim default/claim-0"]).await;
    bed.create::<ResourceClaim>(claim("claim-0", &json!([]))).await;
    all_bound(bed, &["claim-0".to_owned()]).await;
    eventually("a claim that nobody uses is not allocated", || async {
        let unused = bed.claims().get("claim-2").await.ok()?;
        allocation_of(&unused).is_none().then_some(())
    })
    .await;
}

fn allocation_of(
    claim: &ResourceClaim,
) -> Option<&k8s_openapi::api::resource::v1::AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}

/// Gives a claim a device that nobody has, as somebody with too many rights would.
async fn give_by_hand(bed: &Bed, name: &str) {
    let (node, device) = eventually("one of the eight GPUs of pods that went is free", || async {
        let given = crate::scheduler::given(bed).await;
        let taken: std::collections::BTreeSet<_> = given.values().flatten().collect();
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
    bed.claims().patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

/// Pods are decided on, and their node goes before the bindings are written, or after it.
async fn a_node_goes_with_pods_on_their_way_to_it(bed: &Bed) {
    let names = numbered("orphan", 20);
    for name in &names {
        bed.create::<Pod>(with_gpus(name, 1)).await;
    }
    nodes(bed).delete(LOST, &DeleteParams::default()).await.unwrap();
    // Who was bound there has lost; all others are bound, or told that there is no room.
    eventually("every pod is bound or told why it waits", || async {
        let pods = bed.pods().list(&ListParams::default()).await.ok()?;
        let is_answered = |pod: &Pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
            let is_told = conditions.into_iter().flatten().any(|one| one.type_ == "PodScheduled");
            is_told || pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
        };
        pods.iter().all(is_answered).then_some(())
    })
    .await;
    check(bed).await;
    clear(bed).await;
    // What is left of the cluster is served, and nothing else.
    for name in ["whole-0", "whole-1", "whole-2"] {
        bed.create::<Pod>(with_gpus(name, 8)).await;
    }
    bed.create::<Pod>(pod("plain")).await;
    all_bound(bed, &["plain".to_owned()]).await;
    let placed = eventually("two of three are bound", || async {
        let placed: Vec<_> = nodes_of_pods(bed).await?.into_values().flatten().collect();
        (placed.len() == 3).then_some(placed)
    })
    .await;
    assert!(!placed.contains(&LOST.to_owned()), "{placed:?}");
    check(bed).await;
}

/// The one that ends may hold its port for a moment longer.
async fn restart_the_api_server(bed: &Bed) {
    bed.lab.kill(Component::KubeApiserver).await;
    eventually("the API server serves again", || async {
        bed.lab.start(Component::KubeApiserver).await.ok()
    })
    .await;
}

/// Deletes all pods, and waits until their claims are gone, too.
async fn clear(bed: &Bed) {
    let (at_once, all) = (DeleteParams::default().grace_period(0), ListParams::default());
    bed.pods().delete_collection(&at_once, &all).await.unwrap();
    bed.claims().delete_collection(&DeleteParams::default(), &all).await.unwrap();
    eventually("no pod and no claim is left", || async {
        let pods = bed.pods().list(&all).await.ok()?;
        let claims = bed.claims().list(&all).await.ok()?;
        (pods.items.is_empty() && claims.items.is_empty()).then_some(())
    })
    .await;
}
