//! Losses around a running domain: pods, daemons, the API server, the network, and programs of another version.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use octavo_api::compute_domain::Readiness;
use octavo_api::names::{LABEL_COMPUTE_DOMAIN, TAINT_IMEX};
use octavo_lab::{Component, UpOptions};

use crate::compute_domain_pods::{Domains, all_ready};
use crate::real_node::lock_real_nodes;
use crate::testbed::{OCTAVO, Testbed, eventually};

/// Time for which the API server is away.
const API_OUTAGE: Duration = Duration::from_mins(1);

/// Deletes a pod without waiting for its containers.
fn force() -> DeleteParams {
    DeleteParams::default().grace_period(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_lost_and_come_back_and_survivors_notice_nothing() {
    let testbed = Testbed::up("gb200-tray=3").await;
    let domains = Domains::of(&testbed);
    let [a, b, c] = ["gb200-tray-0", "gb200-tray-1", "gb200-tray-2"];
    domains.create("job").await;
    for (pod, node) in [("w0", a), ("w1", b)] {
        domains.pod(pod, "job", node).await;
    }
    let nodes = domains.wait("job", &all_ready(&[a, b])).await;
    let index = |node: &str| nodes[node].index;
    let survivor = domains.pids(a).await;

    // A worker is deleted by force, and another one comes to its node.
    testbed.pods().delete("w1", &force()).await.unwrap();
    domains.wait("job", &all_ready(&[a])).await;
    domains.pod("w2", "job", b).await;
    testbed.wait_until_running("w2").await;
    let again = domains.wait("job", &all_ready(&[a, b])).await;
    assert_eq!((again[a].index, again[b].index), (index(a), index(b)));
    assert_eq!(domains.pids(a).await, survivor);

    // All daemons are deleted by force: others come, with the same indices. The workers run on.
    let api: Api<Pod> = Api::namespaced(testbed.client.clone(), "octavo-system");
    let labelled = ListParams::default().labels(LABEL_COMPUTE_DOMAIN);
    let old: Vec<_> =
        api.list(&labelled).await.unwrap().iter().filter_map(ResourceExt::uid).collect();
    api.delete_collection(&force(), &labelled).await.unwrap();
    eventually("the daemons are others, and ready", || async {
        let pods = api.list(&labelled).await.ok()?.items;
        let is_new = |pod: &Pod| {
            let conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
            let mut ready = conditions.filter(|it| it.type_ == "Ready" && it.status == "True");
            pod.uid().is_some_and(|uid| !old.contains(&uid)) && ready.next().is_some()
        };
        (pods.len() == 2 && pods.iter().all(is_new)).then_some(())
    })
    .await;
    let again = domains.wait("job", &all_ready(&[a, b])).await;
    assert_eq!((again[a].index, again[b].index), (index(a), index(b)));
    for worker in ["w0", "w2"] {
        let status = testbed.pods().get(worker).await.unwrap().status.unwrap();
        assert_eq!(status.phase.as_deref(), Some("Running"), "{worker}");
    }

    // The API server is away. Services run on, and a killed one comes back; a new member joins afterwards.
    let (before, lost) = (domains.pids(a).await, domains.pids(b).await);
    testbed.lab.kill(Component::KubeApiserver).await;
    let killed = std::process::Command::new("kill").args(["-9", &lost.1]).status().unwrap();
    assert!(killed.success(), "kill -9 {}", lost.1);
    let children = format!("/proc/{0}/task/{0}/children", lost.0);
    eventually("the daemon has started another service, without the API server", || async {
        let service = std::fs::read_to_string(&children).ok()?;
        (!service.trim().is_empty() && service.trim() != lost.1).then_some(())
    })
    .await;
    tokio::time::sleep(API_OUTAGE).await;
    testbed.lab.start(Component::KubeApiserver).await.unwrap();
    domains.pod("w3", "job", c).await;
    testbed.wait_until_running("w3").await;
    let joined = domains.wait("job", &all_ready(&[a, b, c])).await;
    assert_eq!((joined[a].index, joined[b].index), (index(a), index(b)));
    assert_eq!(domains.pids(a).await, before);
    assert_eq!(domains.pids(b).await.0, lost.0);
    assert_ne!(domains.pids(b).await.1, lost.1);

    for pod in ["w0", "w2", "w3"] {
        testbed.delete_pod(pod).await;
    }
    domains.api().delete("job", &DeleteParams::default()).await.unwrap();
    domains.wait_until_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_a_wrong_or_without_a_service_say_so() {
    let testbed = Testbed::up("gb200-tray=2").await;
    let domains = Domains::of(&testbed);
    let [a, b] = ["gb200-tray-0", "gb200-tray-1"];

    // A service of another version does not start, and the daemon's log says why.
    domains.create("job").await;
    testbed.octavo_ok(&["lab", "node", a, "imex", "--version", "570.1.1"]);
    domains.pod("w0", "job", a).await;
    domains.wait("job", &[(a, Readiness::NotReady)]).await;
    let pod = domains.daemon(a).await;
    let log = testbed.lab.layout().root().join("logs").join(format!("{}.log", pod.name_any()));
    eventually("the daemon's log names both versions", || async {
        let text = std::fs::read_to_string(&log).ok()?;
        text.contains("is of version 570.1.1, and the driver of").then_some(())
    })
    .await;
    let explained = testbed.octavo(&["explain", "computedomain", "job"]);
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(explained.contains(a) && explained.contains("nvidia-imex"), "{explained}");
    assert!(!explained.contains("no controller is active"), "{explained}");
    testbed.octavo_ok(&["lab", "node", a, "imex"]);
    testbed.wait_until_running("w0").await;
    domains.wait("job", &all_ready(&[a])).await;

    // A node without the service takes no pods, until it is installed.
    let service = testbed.node(b).join("driver/usr/bin/nvidia-imex");
    let kept = service.with_extension("kept");
    std::fs::rename(&service, &kept).unwrap();
    wait_for_taint(&testbed, b, Some("no-nvidia-imex")).await;
    domains.pod("w1", "job", b).await;
    testbed.wait_until_unschedulable("w1").await;
    let doctor = testbed.octavo(&["doctor"]);
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains("its driver's root has no nvidia-imex"), "{doctor}");
    std::fs::rename(&kept, &service).unwrap();
    wait_for_taint(&testbed, b, None).await;
    testbed.wait_until_running("w1").await;

    for pod in ["w0", "w1"] {
        testbed.delete_pod(pod).await;
    }
    domains.api().delete("job", &DeleteParams::default()).await.unwrap();
    domains.wait_until_nothing_is_left().await;
}

/// Waits until the channel of a node has this value of the taint, or no taint.
async fn wait_for_taint(testbed: &Testbed, node: &str, wanted: Option<&str>) {
    let params = ListParams::default()
        .fields(&format!("spec.driver=compute-domain.nvidia.com,spec.nodeName={node}"));
    eventually(&format!("the taint of {node} is {wanted:?}"), || async {
        let slices: Vec<ResourceSlice> = testbed.slices().list(&params).await.ok()?.items;
        let mut devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
        let channel = devices.find(|device| device.name == "channel-0")?;
        let taint = channel.taints.iter().flatten().find(|taint| taint.key == TAINT_IMEX);
        let found = taint.map(|taint| taint.value.as_deref().unwrap_or_default());
        (found == wanted).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nineteenth_node_of_a_clique_waits_for_a_free_slot() {
    let folder = tempfile::tempdir().unwrap();
    let tray = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/gb200-tray.yaml");
    // The same cluster and clique: the lab gives other ones only to trays of one name.
    let more = folder.path().join("one-more.yaml");
    std::fs::copy(tray, &more).unwrap();
    let testbed = Testbed::up(&format!("gb200-tray=18,{}=1", more.display())).await;
    let domains = Domains::of(&testbed);
    domains.create("job").await;
    let trays: Vec<String> = (0..18).map(|index| format!("gb200-tray-{index}")).collect();
    for (index, tray) in trays.iter().enumerate() {
        domains.pod(&format!("w{index}"), "job", tray).await;
    }
    let all: Vec<&str> = trays.iter().map(String::as_str).collect();
    domains.wait("job", &all_ready(&all)).await;
    domains.pod("late", "job", "one-more-0").await;
    let message = domains.wait_for_reason("job", "Ready", "CliqueFull").await.1;
    assert!(message.contains("one-more-0"), "{message}");
    let phase = testbed.pods().get("late").await.unwrap().status.unwrap().phase;
    assert_eq!(phase.as_deref(), Some("Pending"));
    // A member leaves: its slot is the nineteenth's.
    testbed.delete_pod("w7").await;
    testbed.wait_until_running("late").await;
    let others = all.iter().copied().filter(|name| *name != all[7]).chain(["one-more-0"]);
    domains.wait("job", &all_ready(&others.collect::<Vec<_>>())).await;
    domains.api().delete("job", &DeleteParams::default()).await.unwrap();
    testbed
        .pods()
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await
        .unwrap();
    domains.wait_until_nothing_is_left().await;
}

/// The machine's end of the link of a real node.
fn bridge_port(testbed: &Testbed, number: u8) -> String {
    let gateway = testbed.lab.settings().real.as_ref().unwrap().gateway();
    let output = std::process::Command::new("ip").args(["-4", "-oneline", "address"]).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let line = text.lines().find(|line| line.contains(&format!(" {gateway}/"))).unwrap();
    let bridge = line.split_whitespace().nth(1).unwrap();
    format!("ov{}-{number}", bridge.strip_prefix("octavo-").unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_cut_off_is_lost_and_comes_back() {
    let Some(_lock) = lock_real_nodes().await else { return };
    let testbed = Testbed::up_with(|state| UpOptions {
        real_nodes: Some("2:gb200-tray".parse().unwrap()),
        controller: Some(true),
        // Until a node counts as lost.
        more_args: BTreeMap::from([(
            Component::KubeControllerManager,
            vec!["--node-monitor-grace-period=20s".to_owned()],
        )]),
        ..UpOptions::control_plane_only(state, OCTAVO)
    })
    .await;
    let domains = Domains::of(&testbed);
    let [a, b] = ["real-0", "real-1"];
    domains.create("job").await;
    for (pod, node) in [("w0", a), ("w1", b)] {
        domains.real_pod(pod, "job", node).await;
    }
    let nodes = domains.wait("job", &all_ready(&[a, b])).await;
    let daemon = domains.daemon(b).await;
    let set_link = |state: &str| {
        let port = bridge_port(&testbed, 1);
        let set = ["link", "set", "dev", &port, state];
        assert!(std::process::Command::new("ip").args(set).status().unwrap().success());
    };
    set_link("down");
    domains.wait("job", &[(a, Readiness::Ready), (b, Readiness::NotReady)]).await;
    set_link("up");
    let again = domains.wait("job", &all_ready(&[a, b])).await;
    assert_eq!((again[a].index, again[b].index), (nodes[a].index, nodes[b].index));
    assert_eq!(domains.daemon(b).await.uid(), daemon.uid(), "the daemon ran on");
    for pod in ["w0", "w1"] {
        testbed.delete_pod(pod).await;
    }
    domains.api().delete("job", &DeleteParams::default()).await.unwrap();
    domains.wait_until_nothing_is_left().await;
}
