//! Input that cannot be served, or that was made to do harm: each pod gets a condition that says why,
//! and other pods are bound.

use std::sync::Arc;

use octavo_kube_io::objects::{Change, Delta, StorageClass, VolumeClaim};
use serde_json::{Value, json};

use super::claims;
use super::fixtures::{Testbed, evicted, gpu_pod, member, node, plugin_node, pod, pod_group, with};

const HOST: &str = "kubernetes.io/hostname";
const NO_NODE_HAS: &str = "no-node-has/this";

/// The condition of a pod, after it has been decided on.
fn condition(testbed: &Testbed, pod: &str) -> (&'static str, String) {
    testbed.reason(pod).unwrap_or_else(|| panic!("{pod} has no condition"))
}

/// Decides. Only the pods of these names are bound.
fn assert_bound(testbed: &mut Testbed, names: &[&str]) {
    let bound = testbed.settle();
    let bound: Vec<_> = bound.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(bound, names);
}

fn of_app(pod: Value, app: &str) -> Value {
    with(pod, "/metadata/labels/app", json!(app))
}

fn term(selector: &Value, topology_key: &str) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": topology_key, "labelSelector": selector,
    }]})
}

fn near(pod: Value, app: &str, topology_key: &str) -> Value {
    let selector = json!({"matchLabels": {"app": app}});
    with(pod, "/spec/affinity/podAffinity", term(&selector, topology_key))
}

fn apart(pod: Value, app: &str, topology_key: &str) -> Value {
    let selector = json!({"matchLabels": {"app": app}});
    with(pod, "/spec/affinity/podAntiAffinity", term(&selector, topology_key))
}

fn spread(pod: Value, topology_key: &str) -> Value {
    let constraint = json!([{"topologyKey": topology_key, "whenUnsatisfiable": "DoNotSchedule",
        "maxSkew": 1, "labelSelector": {"matchLabels": {"app": "web"}}}]);
    with(pod, "/spec/topologySpreadConstraints", constraint)
}

fn volume_claim(testbed: &mut Testbed, class: Option<&str>) {
    let claim = json!({
        "metadata": {"name": "data", "namespace": "team", "uid": "uid-data"},
        "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "10Gi"}}},
        "status": {"phase": "Pending"},
    });
    let claim = VolumeClaim::from_value(claim).expect("an object");
    testbed.scheduler.apply(&Change::VolumeClaim(Delta::Upsert(Arc::new(claim))));
}

fn storage_class(testbed: &mut Testbed, provisioner: &str, mode: &str) {
    let class = json!({
        "metadata": {"name": "late", "uid": "uid-late"},
        "provisioner": provisioner, "volumeBindingMode": mode,
    });
    let class = StorageClass::from_value(class).expect("an object");
    testbed.scheduler.apply(&Change::StorageClass(Delta::Upsert(Arc::new(class))));
}

/// A pod with a claim of this storage class. Returns its condition. Another pod is bound.
fn with_storage_class(class: Option<&str>, set: impl Fn(&mut Testbed)) -> (&'static str, String) {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    set(&mut testbed);
    volume_claim(&mut testbed, class);
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    testbed.pod(&with(pod("p", "1"), "/spec/volumes", volumes));
    testbed.pod(&pod("other", "1"));
    assert_bound(&mut testbed, &["other"]);
    condition(&testbed, "p")
}

#[test]
fn a_storage_class_that_provisions_nothing_is_named_as_by_kube_scheduler() {
    for provisioner in ["", "kubernetes.io/no-provisioner"] {
        let (reason, message) = with_storage_class(Some("late"), |testbed| {
            storage_class(testbed, provisioner, "WaitForFirstConsumer");
        });
        assert_eq!(reason, "Unschedulable", "{provisioner}");
        let why = "node(s) didn't find available persistent volumes to bind";
        assert!(message.ends_with(why), "{provisioner}: {message}");
    }
}

#[test]
fn an_unknown_storage_class_is_named_as_by_kube_scheduler() {
    let unbound = ("WaitingForVolumes", "pod has unbound immediate PersistentVolumeClaims");
    for class in [Some("unknown"), Some(""), None] {
        let (reason, message) = with_storage_class(class, |testbed| {
            storage_class(testbed, "csi.example", "WaitForFirstConsumer");
        });
        assert_eq!((reason, message.as_str()), unbound, "{class:?}");
    }
    let (reason, message) = with_storage_class(Some("late"), |testbed| {
        storage_class(testbed, "csi.example", "Immediate");
    });
    assert_eq!((reason, message.as_str()), unbound);
}

#[test]
fn a_gang_whose_member_has_an_unknown_storage_class_waits_for_the_volume() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    volume_claim(&mut testbed, Some("unknown"));
    testbed.object(&pod_group("g", 2, json!({})));
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    testbed.pod(&with(member("g", "m0", "1"), "/spec/volumes", volumes));
    testbed.pod(&member("g", "m1", "1"));
    testbed.pod(&pod("other", "1"));
    assert_bound(&mut testbed, &["other"]);
    for name in ["m0", "m1"] {
        // No cluster autoscaler adds nodes for this reason.
        assert_eq!(condition(&testbed, name).0, "WaitingForVolumes");
    }
}

#[test]
fn a_pod_with_an_unknown_storage_class_is_served_when_the_class_comes() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    volume_claim(&mut testbed, Some("late"));
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    testbed.pod(&with(pod("p", "1"), "/spec/volumes", volumes));
    assert_bound(&mut testbed, &[]);
    storage_class(&mut testbed, "csi.example", "WaitForFirstConsumer");
    assert_bound(&mut testbed, &[]);
    assert!(condition(&testbed, "p").1.ends_with("waiting for volumes to be bound"));
}

#[test]
fn affinity_to_pods_that_do_not_exist_waits_and_affinity_to_itself_does_not() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 8));
    testbed.pod(&near(pod("lonely", "1"), "absent", HOST));
    // The first pod of a series that selects itself goes anywhere, and the next ones to it.
    testbed.pod(&near(of_app(pod("first", "1"), "web"), "web", HOST));
    testbed.pod(&near(of_app(pod("next", "1"), "web"), "web", HOST));
    assert_bound(&mut testbed, &["first", "next"]);
    let (reason, message) = condition(&testbed, "lonely");
    assert_eq!(reason, "Unschedulable");
    assert_eq!(message, "no node is feasible: node(s) didn't match pod affinity rules");
    testbed.pod(&of_app(pod("friend", "1"), "absent"));
    assert_bound(&mut testbed, &["friend"]);
    testbed.time(1000);
    assert_bound(&mut testbed, &["lonely"]);
}

#[test]
fn an_affinity_term_with_an_empty_selector_selects_all_and_one_without_selects_none() {
    for (selector, bound) in [(json!({}), vec!["p"]), (json!(null), vec![])] {
        let mut testbed = Testbed::new();
        testbed.node(&node("a", 8));
        testbed.pod(&pod("other", "1"));
        assert_bound(&mut testbed, &["other"]);
        testbed.pod(&with(pod("p", "1"), "/spec/affinity/podAffinity", term(&selector, HOST)));
        assert_bound(&mut testbed, &bound);
    }
}

#[test]
fn a_pod_whose_anti_affinity_selects_itself_is_bound_and_its_copy_needs_another_domain() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 8));
    for name in ["0", "1"] {
        testbed.pod(&apart(of_app(pod(name, "1"), "web"), "web", HOST));
    }
    testbed.pod(&pod("other", "1"));
    assert_bound(&mut testbed, &["0", "other"]);
    let (reason, message) = condition(&testbed, "1");
    assert_eq!(reason, "Unschedulable");
    assert!(message.ends_with("node(s) didn't match pod anti-affinity rules"), "{message}");
    testbed.node(&node("b", 8));
    testbed.time(1000);
    assert_bound(&mut testbed, &["1"]);
}

#[test]
fn affinity_and_anti_affinity_to_itself_can_never_both_hold_beside_a_copy() {
    let mut testbed = Testbed::new();
    for name in ["a", "b"] {
        testbed.node(&node(name, 8));
    }
    for name in ["0", "1"] {
        let pod = near(of_app(pod(name, "1"), "web"), "web", HOST);
        let selector = json!({"matchLabels": {"app": "web"}});
        testbed.pod(&with(pod, "/spec/affinity/podAntiAffinity", term(&selector, HOST)));
    }
    testbed.pod(&pod("other", "1"));
    assert_bound(&mut testbed, &["0", "other"]);
    assert_eq!(condition(&testbed, "1").0, "Unschedulable");
}

#[test]
fn a_topology_key_that_no_node_has_excludes_all_nodes_for_affinity_and_none_for_anti_affinity() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 8));
    // Also where the pod selects itself: a node without the label is in no domain.
    testbed.pod(&near(of_app(pod("near", "1"), "web"), "web", NO_NODE_HAS));
    testbed.pod(&apart(of_app(pod("apart-0", "1"), "db"), "db", NO_NODE_HAS));
    testbed.pod(&apart(of_app(pod("apart-1", "1"), "db"), "db", NO_NODE_HAS));
    testbed.pod(&spread(of_app(pod("spread", "1"), "web"), NO_NODE_HAS));
    assert_bound(&mut testbed, &["apart-0", "apart-1"]);
    let (_, message) = condition(&testbed, "near");
    assert_eq!(message, "no node is feasible: node(s) didn't match pod affinity rules");
    let (_, message) = condition(&testbed, "spread");
    let why = "node(s) didn't match pod topology spread constraints (missing required label)";
    assert!(message.ends_with(why), "{message}");
    testbed.node(&with(node("b", 8), "/metadata/labels/no-node-has~1this", json!("x")));
    testbed.time(1000);
    assert_bound(&mut testbed, &["near", "spread"]);
}

#[test]
fn a_gang_with_affinity_to_nothing_waits_whole() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 8));
    testbed.object(&pod_group("g", 2, json!({})));
    testbed.pod(&member("g", "m0", "1"));
    testbed.pod(&near(member("g", "m1", "1"), "absent", HOST));
    testbed.pod(&pod("other", "1"));
    assert_bound(&mut testbed, &["other"]);
    assert_eq!(condition(&testbed, "m0").0, "Unschedulable");
    testbed.pod(&of_app(pod("friend", "1"), "absent"));
    testbed.time(1000);
    assert_bound(&mut testbed, &["friend", "m0", "m1"]);
}

/// A pod with this many claims for one GPU each.
fn pod_with_claims(testbed: &mut Testbed, name: &str, count: usize) {
    let claim_name = |number: usize| format!("{name}-{number}");
    for number in 0..count {
        testbed.claim(&claims::claim(&claim_name(number), name));
    }
    let all: Vec<_> = (0..count)
        .map(|number| json!({"name": claim_name(number), "resourceClaimName": claim_name(number)}))
        .collect();
    let of_container: Vec<_> =
        (0..count).map(|number| json!({"name": claim_name(number)})).collect();
    let pod = with(pod(name, "1"), "/spec/resourceClaims", json!(all));
    testbed.pod(&with(pod, "/spec/containers/0/resources/claims", json!(of_container)));
}

#[test]
fn a_pod_with_a_thousand_claims_is_refused_and_one_with_eight_is_bound() {
    let mut testbed = claims::testbed(&["a", "b"], 8);
    pod_with_claims(&mut testbed, "greedy", 1000);
    pod_with_claims(&mut testbed, "modest", 8);
    assert_bound(&mut testbed, &["modest"]);
    let (reason, message) = condition(&testbed, "greedy");
    assert_eq!(reason, "Unschedulable", "{message}");
    testbed.drop_pod("greedy");
    pod_with_claims(&mut testbed, "second", 8);
    assert_bound(&mut testbed, &["second"]);
}

/// A pod with the largest numbers that the API accepts.
fn absurd(name: &str) -> Value {
    let most = i64::MAX.to_string();
    let amounts = json!({"cpu": most, "memory": most, "ephemeral-storage": most});
    let pod = with(pod(name, "1"), "/spec/containers/0/resources/requests", amounts);
    with(pod, "/spec/terminationGracePeriodSeconds", json!(i64::MAX))
}

#[test]
fn absurd_requests_are_refused() {
    let mut testbed = Testbed::new();
    testbed.node(&plugin_node("a"));
    testbed.pod(&pod("running", "1"));
    assert_bound(&mut testbed, &["running"]);
    testbed.pod(&with(absurd("large"), "/spec/priority", json!(i32::MAX)));
    testbed.pod(&with(absurd("low"), "/spec/priority", json!(i32::MIN)));
    let most = json!({"nvidia.com/gpu": i64::MAX.to_string()});
    testbed.pod(&with(gpu_pod("gpus", 1), "/spec/containers/0/resources/limits", most));
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        let requests = absurd(name)["spec"]["containers"][0]["resources"]["requests"].clone();
        let member = member("g", name, "1");
        testbed.pod(&with(member, "/spec/containers/0/resources/requests", requests));
    }
    testbed.pod(&pod("other", "1"));
    let ops = testbed.ops();
    assert_eq!(evicted(&ops), [""; 0], "no pod leaves in vain");
    for op in &ops {
        testbed.complete(op);
    }
    for name in ["large", "low", "gpus", "m0", "m1"] {
        assert_eq!(condition(&testbed, name).0, "Unschedulable", "{name}");
    }
    assert_eq!(testbed.pods["other"]["spec"]["nodeName"], "a");
}

#[test]
fn absurd_pods_that_ran_on_a_node_leave_its_free_amounts_as_they_were() {
    let mut testbed = Testbed::new();
    for name in ["a", "b"] {
        testbed.node(&node(name, 4));
    }
    testbed.ops();
    let free = |testbed: &Testbed| {
        let engine = testbed.scheduler.cache.engine();
        engine.world.cluster.free(engine.node("a").expect("a node"))
    };
    let before = free(&testbed);
    // Requests of pods that name their node are checked by its kubelet alone, which rejects them.
    for name in ["large-0", "large-1", "large-2"] {
        let bound = with(absurd(name), "/spec/nodeName", json!("a"));
        testbed.pod(&with(bound, "/status/phase", json!("Running")));
    }
    testbed.pod(&pod("other", "1"));
    assert_eq!(testbed.settle(), [("other".to_owned(), "b".to_owned())]);
    for name in ["large-0", "large-1", "large-2"] {
        let rejected = with(testbed.pods[name].clone(), "/status/phase", json!("Failed"));
        testbed.pod(&rejected);
        testbed.drop_pod(name);
    }
    assert_eq!(free(&testbed), before);
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        testbed.pod(&member("g", name, "3"));
    }
    assert_bound(&mut testbed, &["m0", "m1"]);
}

#[test]
fn a_native_group_that_names_itself_as_its_parent_is_refused() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.object(&json!({
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "team", "uid": "uid-g", "generation": 1},
        "spec": {"parentCompositePodGroupName": "g",
            "schedulingPolicy": {"gang": {"minCount": 1}}},
    }));
    testbed.pod(&with(pod("m", "1"), "/spec/schedulingGroup", json!({"podGroupName": "g"})));
    testbed.pod(&pod("other", "1"));
    assert_bound(&mut testbed, &["other"]);
    let (reason, message) = condition(&testbed, "m");
    assert_eq!(reason, "NotSupported", "{message}");
    assert!(message.contains("CompositePodGroup \"g\""), "{message}");
}

#[test]
fn a_group_whose_object_is_a_member_of_itself_is_placed() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    let labels = json!({"octavo.dev/pod-group": "g"});
    testbed.object(&with(pod_group("g", 1, json!({})), "/metadata/labels", labels));
    testbed.pod(&member("g", "m", "1"));
    assert_bound(&mut testbed, &["m"]);
}

#[test]
fn levels_that_do_not_exist_are_named_wherever_a_group_has_them() {
    let specs = [
        json!({"minMember": 1, "topology": {"required": "galaxy"}}),
        json!({"minMember": 1, "topology": {"preferred": "galaxy"}}),
        json!({"subGroups": [{"name": "s", "minMember": 1, "topology": {"required": "galaxy"}}]}),
        json!({"subGroups": [
            {"name": "s", "minMember": 1, "segment": {"size": 1, "level": "galaxy"}}]}),
    ];
    for spec in specs {
        let mut testbed = Testbed::new();
        testbed.node(&node("a", 4));
        testbed.object(&with(pod_group("g", 1, json!({})), "/spec", spec.clone()));
        let labels = json!({"octavo.dev/pod-group": "g", "octavo.dev/pod-subgroup": "s"});
        testbed.pod(&with(pod("m", "1"), "/metadata/labels", labels));
        testbed.pod(&pod("other", "1"));
        assert_bound(&mut testbed, &["other"]);
        let (reason, message) = condition(&testbed, "m");
        assert_eq!(reason, "TopologyLevelNotFound", "{spec}: {message}");
        assert!(message.contains("\"galaxy\""), "{spec}: {message}");
    }
}
