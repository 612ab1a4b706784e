//! Pods.

use octavo_dra::Quantity;
use serde_json::{Value, json};

use super::{read, sound};
use crate::objects::convert::{Reader, WatchedType};
use crate::objects::{
    ContainerKind, HostPort, Phase, Pod, PodSpec, Requests, VolumeSource, WHOLE_POD,
};

fn amount(text: &str) -> Quantity {
    text.parse().unwrap()
}

fn spec(spec: &Value) -> PodSpec {
    let pod: Pod = sound(json!({"metadata": {"name": "p"}, "spec": spec}));
    (*pod.spec).clone()
}

/// A pod with all fields that are read, in the form of 1.36.
fn full() -> Value {
    serde_json::from_str(include_str!("fixtures/pod.json")).unwrap()
}

#[test]
fn a_pod_with_everything_is_read_whole() {
    let pod: Pod = sound(full());
    assert_eq!(pod.meta.name.to_string(), "team/train-0");
    assert_eq!(pod.meta.owner.as_ref().unwrap().kind, "Job");
    assert_eq!(pod.node.as_deref(), Some("node-7"));
    assert_eq!(pod.nominated_node.as_deref(), Some("node-9"));
    assert_eq!(pod.phase, Phase::Running);
    assert_eq!(pod.claims["gpus"].as_deref(), Some("train-0-gpus-x7k2p"));
    assert_eq!(pod.claims["unneeded"], None);
    let extended = pod.extended_claim.as_ref().unwrap();
    assert_eq!(extended.claim, "train-0-extended-resources-abcde");
    assert_eq!(extended.mappings[0].request, "container-2-request-2");
    let scheduled = pod.scheduled.as_ref().unwrap();
    assert!(scheduled.is_true);

    let spec = &pod.spec;
    assert_eq!((&*spec.scheduler, spec.priority, spec.may_preempt), ("octavo", 1000, false));
    assert_eq!(spec.group.as_deref(), Some("train"));
    assert_eq!((spec.grace_seconds, spec.active_deadline_seconds), (45, Some(600)));
    let kinds: Vec<_> = spec.containers.iter().map(|one| (one.name.as_str(), one.kind)).collect();
    assert_eq!(
        kinds,
        [
            ("fetch", ContainerKind::Init),
            ("log", ContainerKind::Sidecar),
            ("main", ContainerKind::Main)
        ],
    );
    let main = &spec.containers[2];
    assert_eq!(main.requests["cpu"], amount("2"), "a limit stands in for a request");
    assert_eq!(main.requests["memory"], amount("4Gi"), "a request counts before its limit");
    assert_eq!(main.requests["nvidia.com/gpu"], amount("1"));
    assert_eq!(
        main.claims,
        [("gpus".to_owned(), Some("big".to_owned())), ("shared".to_owned(), None)]
    );
    let port = HostPort { ip: "0.0.0.0".to_owned(), protocol: "TCP".to_owned(), port: 9400 };
    assert_eq!(main.ports, [port]);
    assert_eq!(spec.pod_requests["memory"], amount("6Gi"));
    assert_eq!(spec.overhead["cpu"], amount("250m"));
    assert_eq!(spec.node_affinity.as_ref().unwrap().terms.len(), 2);
    assert_eq!(spec.preferred_nodes[0].0, 10);
    assert_eq!(spec.affinity[0].topology_key, "kubernetes.io/hostname");
    assert_eq!(spec.anti_affinity[0].namespaces, ["other"]);
    let preferred = spec.preferred_affinity.iter();
    let preferred: Vec<_> =
        preferred.map(|(weight, term)| (*weight, &*term.topology_key)).collect();
    assert_eq!(preferred, [(100, "rack"), (-1, "zone")]);
    assert!(spec.spread[0].is_hard && !spec.spread[1].is_hard);
    assert_eq!(spec.tolerations[0].key, "nvidia.com/gpu");
    let sources: Vec<_> = spec.volumes.iter().map(|volume| &volume.source).collect();
    assert_eq!(
        sources,
        [
            &VolumeSource::Claim("data".to_owned()),
            &VolumeSource::Ephemeral,
            &VolumeSource::Csi("csi.example.com".to_owned()),
            &VolumeSource::Exclusive("gcePersistentDisk".to_owned(), "disk".to_owned(), true),
        ]
    );
    assert_eq!(spec.claims[0].template.as_deref(), Some("gpu-template"));
    assert_eq!(spec.claims[2].claim.as_deref(), Some("shared-claim"));
    assert_eq!(spec.gates, ["example.com/wait"]);
}

#[test]
fn what_a_resize_has_not_given_back_is_still_held() {
    let pod: Pod = sound(full());
    assert_eq!(pod.held.keys().collect::<Vec<_>>(), ["main"]);
    assert_eq!(pod.held["main"], [("cpu".to_owned(), amount("3"))].into());
}

#[test]
fn an_unfinished_resize_counts_its_largest_amount() {
    let held = |asked: &str, status: &Value, conditions: &Value| {
        let pod: Pod = sound(json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [
                {"name": "c", "resources": {"requests": {"cpu": asked, "memory": "1Gi"}}},
            ]},
            "status": {"containerStatuses": [status], "conditions": conditions},
        }));
        pod.held.get("c").cloned().unwrap_or_default()
    };
    let set = json!({"name": "c", "allocatedResources": {"cpu": "2", "memory": "1Gi"},
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}});
    let none = json!([]);
    assert_eq!(held("1", &set, &none), [("cpu".to_owned(), amount("2"))].into());
    assert_eq!(held("4", &set, &none), Requests::new());
    // A grant counts only together with the setting.
    let granted = json!({"name": "c", "allocatedResources": {"cpu": "2"}});
    assert_eq!(held("1", &granted, &none), Requests::new());
    // An infeasible request does not count.
    let cannot = json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
    assert_eq!(held("4", &set, &cannot), [("cpu".to_owned(), amount("2"))].into());
    let later = json!([{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]);
    assert_eq!(held("4", &set, &later), Requests::new());
}

#[test]
fn a_resize_of_the_pod_as_a_whole_counts_too() {
    let pod: Pod = sound(json!({
        "metadata": {"name": "p"},
        "spec": {"resources": {"requests": {"cpu": "1"}}, "containers": [{"name": "c"}]},
        "status": {"allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "2"}}},
    }));
    assert_eq!(pod.held[WHOLE_POD], [("cpu".to_owned(), amount("3"))].into());
}

#[test]
fn pods_of_one_template_share_their_spec() {
    let mut reader = Reader::default();
    let mut pod = |name: &str, node: &str| {
        let mut json = full();
        json["metadata"]["name"] = name.into();
        json["spec"]["nodeName"] = node.into();
        json["spec"]["volumes"][3]["name"] = format!("token-{name}").into();
        Pod::read(serde_json::from_value(json).unwrap(), &mut reader).unwrap()
    };
    let (a, b) = (pod("a", "n1"), pod("b", "n2"));
    assert!(std::sync::Arc::ptr_eq(&a.spec, &b.spec));
    assert_ne!(a.node, b.node);
}

#[test]
fn a_bare_pod_has_the_defaults_of_the_api() {
    let pod: Pod = sound(json!({"metadata": {"name": "p", "creationTimestamp": null},
        "spec": {"containers": null}, "status": {}}));
    assert_eq!(pod.phase, Phase::Pending);
    assert_eq!(pod.spec.scheduler, "default-scheduler");
    assert_eq!(pod.spec.grace_seconds, 30);
    assert!(pod.spec.may_preempt);
}

#[test]
fn an_amount_that_cannot_be_read_fits_on_no_node() {
    let (pod, faults) = read::<Pod>(json!({"metadata": {"name": "p"}, "spec": {"containers": [
        {"name": "c", "resources": {"requests": {"cpu": "lots", "memory": "1Gi"}}}]}}));
    assert!(pod.spec.containers[0].requests["cpu"] > amount("1E"));
    assert_eq!(pod.spec.containers[0].requests["memory"], amount("1Gi"));
    let fault = faults[0].to_string();
    assert!(fault.contains("container c") && fault.contains("lots"), "{fault}");
}

#[test]
fn in_the_network_of_the_node_every_port_is_the_nodes() {
    let port = json!([{"containerPort": 80, "protocol": "UDP"}]);
    let ports = |host: bool| {
        let containers = json!([{"name": "c", "ports": port}]);
        spec(&json!({"hostNetwork": host, "containers": containers})).containers[0].ports.clone()
    };
    assert_eq!(ports(false), []);
    assert_eq!(ports(true)[0].port, 80);
    assert_eq!(ports(true)[0].protocol, "UDP");
}

#[test]
fn an_unreadable_node_affinity_term_matches_nothing() {
    let (pod, faults) = read::<Pod>(json!({"metadata": {"name": "p"}, "spec": {"affinity": {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "k", "operator": "Resembles", "values": ["v"]}]}]}}}}}));
    let selector = pod.spec.node_affinity.clone().unwrap();
    assert_eq!(selector.matches(&octavo_dra::Node::default()), Ok(false));
    assert_eq!(faults.len(), 1);
}
