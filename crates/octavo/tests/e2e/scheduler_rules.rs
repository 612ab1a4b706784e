//! Rules of pods about other pods and about volumes, with Kubernetes' own controllers.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::scheduler::{pod, with_gpus};
use crate::testbed::{Testbed, eventually};

const HOST: &str = "kubernetes.io/hostname";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

fn with(mut pod: Value, field: &str, value: Value) -> Value {
    pod["spec"][field] = value;
    pod
}

fn labelled(mut pod: Value, app: &str) -> Value {
    pod["metadata"]["labels"] = json!({"app": app});
    pod
}

fn required(app: &str, topology_key: &str) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": topology_key, "labelSelector": {"matchLabels": {"app": app}},
    }]})
}

async fn node_of(testbed: &Testbed, pod: &str) -> String {
    testbed.wait_until_bound(pod).await;
    testbed.pods().get(pod).await.unwrap().spec.unwrap().node_name.unwrap()
}

async fn create_class(testbed: &Testbed, name: &str, provisioner: &str) {
    let class = json!({
        "metadata": {"name": name}, "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    let classes: Api<StorageClass> = Api::all(testbed.client.clone());
    let class = serde_json::from_value(class).unwrap();
    classes.create(&PostParams::default(), &class).await.unwrap();
}

async fn create_claim(testbed: &Testbed, name: &str, class: &str) {
    testbed
        .create::<PersistentVolumeClaim>(json!({
            "metadata": {"name": name},
            "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}},
        }))
        .await;
}

/// Creates a volume that only one node reaches.
async fn create_volume(
    testbed: &Testbed,
    name: &str,
    class: &str,
    node: &str,
    claim: Option<&str>,
) {
    let claim = claim.map(|name| json!({"namespace": "default", "name": name}));
    let volume = json!({
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": class, "local": {"path": "/disks/one"}, "claimRef": claim,
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": HOST, "operator": "In", "values": [node]},
            ]}]}},
        },
    });
    let volumes: Api<PersistentVolume> = Api::all(testbed.client.clone());
    let volume = serde_json::from_value(volume).unwrap();
    volumes.create(&PostParams::default(), &volume).await.unwrap();
}

fn using(pod: Value, claim: &str) -> Value {
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    with(pod, "volumes", volumes)
}

async fn claim_phase(testbed: &Testbed, claim: &str) -> Option<String> {
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(testbed.client.clone());
    claims.get(claim).await.unwrap().status?.phase
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_about_pods_and_volumes_hold() {
    let testbed = &Testbed::up_octavo("dgx-h100=3").await;
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    for (node, zone) in [("dgx-h100-0", "east"), ("dgx-h100-1", "east"), ("dgx-h100-2", "west")] {
        let labels = json!({"metadata": {"labels": {"zone": zone}}});
        nodes.patch(node, &PatchParams::default(), &Patch::Merge(&labels)).await.unwrap();
    }
    pods_stay_apart_and_follow(testbed).await;
    pods_are_spread(testbed).await;
    an_existing_volume_is_bound(testbed).await;
    a_volume_is_provisioned_for_the_node(testbed).await;
}

async fn pods_stay_apart_and_follow(testbed: &Testbed) {
    let apart = |name: &str| {
        let affinity = json!({"podAntiAffinity": required("apart", HOST)});
        with(labelled(with_gpus(name, 1), "apart"), "affinity", affinity)
    };
    let mut hosts = BTreeSet::new();
    for number in 0..3 {
        let name = format!("apart-{number}");
        testbed.create::<Pod>(apart(&name)).await;
        hosts.insert(node_of(testbed, &name).await);
    }
    assert_eq!(hosts.len(), 3, "{hosts:?}");
    testbed.create::<Pod>(apart("apart-3")).await;
    let message = testbed.wait_until_unschedulable("apart-3").await;
    assert!(message.contains("node(s) didn't match pod anti-affinity rules"), "{message}");
    let near = json!({"podAffinity": required("friend", "zone")});
    testbed.create::<Pod>(with(pod("follower"), "affinity", near)).await;
    let message = testbed.wait_until_unschedulable("follower").await;
    assert!(message.contains("node(s) didn't match pod affinity rules"), "{message}");
    let friend = with(labelled(pod("friend"), "friend"), "nodeSelector", json!({"zone": "west"}));
    testbed.create::<Pod>(friend).await;
    assert_eq!(node_of(testbed, "follower").await, "dgx-h100-2");
}

async fn pods_are_spread(testbed: &Testbed) {
    let constraint = json!([{
        "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1,
        "labelSelector": {"matchLabels": {"app": "spread"}},
    }]);
    let mut in_west = 0;
    for number in 0..4 {
        let name = format!("spread-{number}");
        let spread = labelled(pod(&name), "spread");
        testbed.create::<Pod>(with(spread, "topologySpreadConstraints", constraint.clone())).await;
        in_west += usize::from(node_of(testbed, &name).await == "dgx-h100-2");
    }
    assert_eq!(in_west, 2, "half of them in each zone");
}

async fn an_existing_volume_is_bound(testbed: &Testbed) {
    create_class(testbed, "local", "kubernetes.io/no-provisioner").await;
    create_claim(testbed, "scratch", "local").await;
    testbed.create::<Pod>(using(with_gpus("reader", 1), "scratch")).await;
    let message = testbed.wait_until_unschedulable("reader").await;
    assert!(message.contains("didn't find available persistent volumes to bind"), "{message}");
    create_volume(testbed, "disk-1", "local", "dgx-h100-1", None).await;
    assert_eq!(node_of(testbed, "reader").await, "dgx-h100-1");
    assert_eq!(claim_phase(testbed, "scratch").await.as_deref(), Some("Bound"));
}

/// The test is the provisioner.
async fn a_volume_is_provisioned_for_the_node(testbed: &Testbed) {
    create_class(testbed, "disks", "disks.example.com").await;
    create_claim(testbed, "data", "disks").await;
    testbed.create::<Pod>(using(with_gpus("writer", 1), "data")).await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(testbed.client.clone());
    let node = eventually("the node is selected", || async {
        claims.get("data").await.ok()?.annotations().get(SELECTED_NODE).cloned()
    })
    .await;
    let waiting = testbed.pods().get("writer").await.unwrap();
    assert_eq!(waiting.spec.unwrap().node_name, None, "its volume is missing");
    create_volume(testbed, "disk-2", "disks", &node, Some("data")).await;
    assert_eq!(node_of(testbed, "writer").await, node);
    assert_eq!(claim_phase(testbed, "data").await.as_deref(), Some("Bound"));
}
