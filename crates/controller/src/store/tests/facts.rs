use k8s_openapi::api::resource::v1::ResourceClaim;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::{Fact, SeenNode, claim, clique, node, pod, secret};

fn parsed<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn config(source: &str, requests: &[&str], kind: &str, domain: &str) -> Value {
    json!({"source": source, "requests": requests, "opaque": {
        "driver": "compute-domain.nvidia.com",
        "parameters": {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, "domainID": domain, "later": 1},
    }})
}

fn with_allocation(driver: &str, configs: &[Value]) -> ResourceClaim {
    parsed(json!({
        "metadata": {"namespace": "team", "name": "it", "uid": "u", "resourceVersion": "7"},
        "spec": {},
        "status": {"allocation": {"devices": {
            "results": [
                {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"},
                {"request": "channel", "driver": driver, "pool": "n", "device": "channel-0"},
            ],
            "config": configs,
        }}},
    }))
}

fn domain_of(claim_object: &ResourceClaim) -> Option<String> {
    match claim(claim_object).fact? {
        Fact::Claim(claim) => {
            assert_eq!((claim.node.as_str(), claim.namespace.as_str()), ("n", "team"));
            Some(claim.domain)
        }
        _ => None,
    }
}

#[test]
fn only_allocated_channels_of_domains_matter() {
    let (driver, channel) = ("compute-domain.nvidia.com", "ComputeDomainChannelConfig");
    let ours = config("FromClaim", &["channel"], channel, "a");
    assert_eq!(
        domain_of(&with_allocation(driver, std::slice::from_ref(&ours))).as_deref(),
        Some("a")
    );
    assert_eq!(domain_of(&with_allocation("other.example.com", std::slice::from_ref(&ours))), None);
    assert_eq!(domain_of(&with_allocation(driver, &[])), None);
    for other in [
        config("FromClaim", &["channel"], "ComputeDomainDaemonConfig", "a"),
        config("FromClaim", &["gpu"], channel, "a"),
    ] {
        assert_eq!(domain_of(&with_allocation(driver, &[other])), None);
    }
    let free: ResourceClaim = parsed(json!({"metadata": {"name": "it"}, "spec": {}}));
    assert_eq!(claim(&free).fact, None);
}

#[test]
fn a_claims_config_comes_before_its_classs_and_a_later_one_before_an_earlier_one() {
    let (driver, channel) = ("compute-domain.nvidia.com", "ComputeDomainChannelConfig");
    let configs = [
        config("FromClaim", &[], channel, "first"),
        config("FromClaim", &["channel"], channel, "second"),
        config("FromClass", &[], channel, "of-class"),
    ];
    assert_eq!(domain_of(&with_allocation(driver, &configs)).as_deref(), Some("second"));
    assert_eq!(domain_of(&with_allocation(driver, &configs[2..])).as_deref(), Some("of-class"));
}

#[test]
fn pods_that_ended_do_not_count_as_daemons() {
    let with_phase = |phase: &str| {
        parsed(json!({
            "metadata": {"name": "p", "labels": {"resource.nvidia.com/computeDomain": "a"}},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": phase, "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
        }))
    };
    let Some(Fact::Pod(running)) = pod(&with_phase("Running")).fact else { panic!("no pod") };
    assert!(running.is_ready && running.ip == "10.0.0.1" && running.node == "n");
    assert_eq!(pod(&with_phase("Failed")).fact, None);
    assert_eq!(pod(&with_phase("Succeeded")).fact, None);
}

#[test]
fn a_pod_with_the_secret_of_its_daemons_encrypts() {
    let with_secret = |name: &str| {
        let object = parsed(json!({
            "metadata": {"name": "p", "labels": {"resource.nvidia.com/computeDomain": "a"}},
            "spec": {"nodeName": "n", "containers": [], "volumes": [
                {"name": "imexd", "emptyDir": {}}, {"name": "tls", "secret": {"secretName": name}},
            ]},
        }));
        let Some(Fact::Pod(pod)) = pod(&object).fact else { panic!("no pod") };
        pod.is_encrypted()
    };
    assert!(with_secret("computedomain-daemon-a"));
    assert!(!with_secret("other"));
}

#[test]
fn a_secret_is_the_controller_s_by_name_label_and_owner() {
    let read = |name: &str, label: Option<&str>, owner: Option<&str>| {
        let owner = owner.map(
            |kind| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "set"}]),
        );
        let object = parsed(json!({
            "metadata": {
                "name": name, "namespace": "octavo", "uid": "u", "ownerReferences": owner,
                "labels": label.map(|uid| json!({"resource.nvidia.com/computeDomain": uid})),
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"octavo.dev/certificate-expires": "2031-01-01T00:00:00Z"},
            },
        }));
        match secret(&object).fact {
            Some(Fact::Secret(secret)) => Some(secret),
            _ => None,
        }
    };
    let name = "computedomain-daemon-a";
    let own = read(name, Some("a"), Some("DaemonSet")).unwrap();
    assert!(!own.is_foreign());
    assert_eq!((own.domain.as_str(), own.owner.as_deref()), ("a", Some("set")));
    assert_eq!(own.created.unwrap().to_string(), "2026-01-01T00:00:00Z");
    assert_eq!(own.expires.unwrap().to_string(), "2031-01-01T00:00:00Z");
    for foreign in [
        read(name, Some("b"), Some("DaemonSet")),
        read(name, None, Some("DaemonSet")),
        read(name, Some("a"), Some("Deployment")),
        read(name, Some("a"), None),
    ] {
        assert!(foreign.unwrap().is_foreign());
    }
    assert!(read("computedomain-daemon-", Some("a"), None).is_none());
    assert!(read("token", Some("a"), Some("DaemonSet")).is_none());
}

#[test]
fn a_daemon_whose_container_ended_has_exited_until_it_starts_again() {
    let with_container = |state: serde_json::Value, last: serde_json::Value| {
        let object = parsed(json!({
            "metadata": {"name": "p", "labels": {"resource.nvidia.com/computeDomain": "a"}},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Running", "containerStatuses": [{
                "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 1,
                "state": state, "lastState": last,
            }]},
        }));
        let Some(Fact::Pod(pod)) = pod(&object).fact else { panic!("no pod") };
        pod.is_lost
    };
    let ended = json!({"terminated": {"exitCode": 137}});
    assert!(!with_container(json!({"waiting": {"reason": "ContainerCreating"}}), json!({})));
    assert!(!with_container(json!({"running": {}}), json!({})));
    assert!(with_container(ended.clone(), json!({})));
    assert!(with_container(json!({"waiting": {"reason": "CrashLoopBackOff"}}), ended.clone()));
    assert!(!with_container(json!({"running": {}}), ended));
}

#[test]
fn a_node_that_does_not_report_is_lost() {
    let is_lost = |taints: serde_json::Value| {
        let object: SeenNode =
            parsed(json!({"metadata": {"name": "n"}, "spec": {"taints": taints}}));
        let Some(Fact::Node { is_lost, .. }) = node(&object).fact else { panic!("no node") };
        is_lost
    };
    let taint = |key: &str| json!([{"key": key, "effect": "NoSchedule"}]);
    assert!(is_lost(taint("node.kubernetes.io/unreachable")));
    // Its kubelet reports that it is not ready, and so it is there.
    assert!(!is_lost(taint("node.kubernetes.io/not-ready")));
    assert!(!is_lost(json!([])));
}

#[test]
fn an_empty_clique_label_is_no_clique() {
    let with_label = |value: &str| {
        parsed(json!({
            "metadata": {"name": "n", "labels": {"nvidia.com/gpu.clique": value}}, "spec": {},
        }))
    };
    let fact = |clique: Option<&str>| {
        Some(Fact::Node { clique: clique.map(str::to_owned), label: None, is_lost: false })
    };
    assert_eq!(node(&with_label("")).fact, fact(None));
    assert_eq!(node(&with_label("c.1")).fact, fact(Some("c.1")));
}

#[test]
fn a_clique_belongs_to_the_domain_in_its_name() {
    let bare = parsed(json!({
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomainClique",
        "metadata": {"name": "a.cluster.1", "namespace": "octavo"},
    }));
    let Some(Fact::Clique(found)) = clique(bare).fact else { panic!("no clique") };
    assert_eq!((found.object.domain.as_deref(), found.id.as_str()), (Some("a"), "cluster.1"));
    assert_eq!((found.id_label, found.index_changes), (None, None));
    for (count, wanted) in [("12", Some(12)), ("", None), ("x", None)] {
        let counted = parsed(json!({
            "apiVersion": "resource.nvidia.com/v1beta1",
            "kind": "ComputeDomainClique",
            "metadata": {"name": "a.c", "annotations": {"octavo.dev/index-changes": count}},
        }));
        let Some(Fact::Clique(found)) = clique(counted).fact else { panic!("no clique") };
        assert_eq!(found.index_changes, wanted);
    }
}

#[test]
fn the_pods_of_a_claim_are_its_users_and_its_owner() {
    let (driver, channel) = ("compute-domain.nvidia.com", "ComputeDomainChannelConfig");
    let ours = config("FromClaim", &["channel"], channel, "a");
    let mut object = with_allocation(driver, &[ours]);
    let user =
        |resource: &str, name: &str| json!({"resource": resource, "name": name, "uid": name});
    object.metadata.owner_references = parsed(json!([
        {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": "owner", "controller": true},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "set"},
    ]));
    object.status.as_mut().unwrap().reserved_for =
        parsed(json!([user("pods", "owner"), user("pods", "user"), user("others", "other")]));
    let Some(Fact::Claim(found)) = claim(&object).fact else { panic!("no claim") };
    let names: Vec<&str> = found.pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(names, ["owner", "user"]);
    assert!(found.pods.iter().all(|pod| pod.namespace == "team"));
}
