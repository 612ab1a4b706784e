use serde_json::{Value, json};

use super::fixtures::{Testbed, gpu_pod, node, plugin_node, pod, with};
use crate::bind::{Bind, OpKind};
use crate::state::SchedulerConfig;

pub(super) fn class() -> Value {
    json!({
        "metadata": {"name": "gpu.nvidia.com", "uid": "uid-class"},
        "spec": {
            "selectors": [{"cel": {"expression":
                "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"}}],
            "extendedResourceName": "nvidia.com/gpu",
        },
    })
}

pub(super) fn slice(node: &str, gpus: u32) -> Value {
    let devices: Vec<_> = (0..gpus)
        .map(|gpu| {
            json!({
                "name": format!("gpu-{gpu}"),
                "attributes": {
                    "type": {"string": "gpu"}, "productName": {"string": "H100"},
                    "uuid": {"string": format!("GPU-{node}-{gpu}")},
                },
                "capacity": {"memory": {"value": "80Gi"}},
            })
        })
        .collect();
    json!({
        "metadata": {"name": format!("slice-{node}"), "uid": format!("uid-slice-{node}")},
        "spec": {
            "driver": "gpu.nvidia.com", "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    })
}

pub(super) fn claim(name: &str, pod: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "team", "uid": format!("uid-{name}"), "resourceVersion": "1",
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": pod, "uid": format!("uid-{pod}"),
                "controller": true,
            }],
        },
        "spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {
                "deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1,
            }}
        ]}},
        "status": {},
    })
}

pub(super) fn claiming(name: &str) -> Value {
    let pod = with(
        pod(name, "1"),
        "/spec/resourceClaims",
        json!([{"name": "gpu", "resourceClaimTemplateName": "one"}]),
    );
    let pod = with(pod, "/spec/containers/0/resources/claims", json!([{"name": "gpu"}]));
    with(
        pod,
        "/status/resourceClaimStatuses",
        json!([{"name": "gpu", "resourceClaimName": format!("{name}-gpu")}]),
    )
}

pub(super) fn testbed(nodes: &[&str], gpus: u32) -> Testbed {
    let mut testbed = Testbed::new();
    testbed.class(&class());
    for name in nodes {
        testbed.node(&node(name, 64));
        testbed.slice(&slice(name, gpus));
    }
    testbed
}

fn binds(testbed: &mut Testbed) -> Vec<(Bind, crate::bind::WriteOp)> {
    let ops = testbed.ops();
    let bind = |op: crate::bind::WriteOp| match &op.kind {
        OpKind::Bind(bind) => Some((bind.clone(), op.clone())),
        _ => None,
    };
    ops.into_iter().filter_map(bind).collect()
}

fn devices(bind: &Bind) -> Vec<String> {
    let claims = bind.claims.iter().filter_map(|claim| claim.allocation.as_ref());
    let extended = bind.extended.iter().map(|extended| &extended.allocation);
    let results = claims.chain(extended).flat_map(|one| &one.allocation.results);
    results.map(|result| format!("{}/{}", result.pool, result.device)).collect()
}

#[test]
fn pods_with_claims_get_devices_of_their_own() {
    let mut testbed = testbed(&["a", "b"], 2);
    for number in 0..5 {
        let name = format!("p{number}");
        testbed.claim(&claim(&format!("{name}-gpu"), &name));
        testbed.pod(&claiming(&name));
    }
    let binds = binds(&mut testbed);
    let mut all: Vec<_> = binds.iter().flat_map(|(bind, _)| devices(bind)).collect();
    all.sort();
    assert_eq!(all, ["a/gpu-0", "a/gpu-1", "b/gpu-0", "b/gpu-1"]);
    for (_, op) in &binds {
        testbed.complete(op);
    }
    assert_eq!(testbed.settle(), []);
    let (reason, message) = testbed.reason("p4").expect("a reason");
    assert_eq!(reason, "Unschedulable", "{message}");
}

#[test]
fn a_claim_that_is_not_made_yet_is_waited_for() {
    let mut testbed = testbed(&["a"], 1);
    let mut waiting = claiming("p");
    waiting["status"].as_object_mut().expect("a status").remove("resourceClaimStatuses");
    testbed.pod(&waiting);
    assert_eq!(testbed.settle(), []);
    assert_eq!(testbed.reason("p"), None, "transient reasons are not reported at once");
    assert_eq!(testbed.after(6000), []);
    assert_eq!(testbed.reason("p").map(|(reason, _)| reason), Some("WaitingForClaims"));
    testbed.claim(&claim("p-gpu", "p"));
    testbed.pod(&claiming("p"));
    assert_eq!(testbed.settle(), [("p".to_owned(), "a".to_owned())]);
}

#[test]
fn an_extended_resource_is_served_by_a_generated_claim() {
    let mut testbed = testbed(&["a"], 1);
    testbed.pod(&super::fixtures::gpu_pod("p", 1));
    testbed.pod(&super::fixtures::gpu_pod("q", 1));
    let binds = binds(&mut testbed);
    let [(bind, _)] = &binds[..] else { panic!("one: {binds:?}") };
    assert_eq!(devices(bind), ["a/gpu-0"]);
    let extended = bind.extended.as_ref().expect("a generated claim");
    assert_eq!(extended.claim.mappings.len(), 1);
    assert!(testbed.reason("q").is_some());
}

#[test]
fn devices_of_nodes_of_other_schedulers_are_not_allocated() {
    let mut testbed = Testbed::new();
    testbed.class(&class());
    let mut theirs = node("a", 64);
    theirs["metadata"]["labels"].as_object_mut().expect("labels").remove("octavo.dev/scheduler");
    testbed.node(&theirs);
    testbed.slice(&slice("a", 1));
    testbed.claim(&claim("p-gpu", "p"));
    testbed.pod(&claiming("p"));
    assert_eq!(testbed.settle(), []);
    testbed.node(&node("a", 64));
    assert_eq!(testbed.settle(), [("p".to_owned(), "a".to_owned())]);
}

#[test]
fn an_allocation_of_an_earlier_leader_is_adopted() {
    let mut testbed = testbed(&["a", "b"], 1);
    let mut allocated = claim("p-gpu", "p");
    allocated["status"] = json!({
        "allocation": {
            "devices": {"results": [{
                "request": "gpu", "driver": "gpu.nvidia.com", "pool": "b", "device": "gpu-0",
            }]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": ["b"]}
            ]}]},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}],
    });
    testbed.claim(&allocated);
    testbed.pod(&claiming("p"));
    let binds = binds(&mut testbed);
    let [(bind, op)] = &binds[..] else { panic!("one: {binds:?}") };
    assert_eq!(&*bind.node, "b");
    assert_eq!(devices(bind), Vec::<String>::new(), "nothing is allocated again");
    testbed.complete(op);
    // Its device stays its own.
    testbed.claim(&claim("q-gpu", "q"));
    testbed.pod(&claiming("q"));
    assert_eq!(testbed.settle(), [("q".to_owned(), "a".to_owned())]);
}

/// A pod that runs on a node since before the scheduler started, with the first GPU, and its claim.
fn running(testbed: &mut Testbed, name: &str, node: &str, requests: &Value) {
    let mut allocated =
        with(claim(&format!("{name}-gpu"), name), "/spec/devices", requests.clone());
    allocated["status"] = json!({
        "allocation": {"devices": {"results": [{
            "request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": "gpu-0",
        }]}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": format!("uid-{name}")}],
    });
    testbed.claim(&allocated);
    testbed.pod(&with(claiming(name), "/spec/nodeName", json!(node)));
}

#[test]
fn a_new_leader_learns_what_running_pods_asked_for() {
    let mut testbed = testbed(&["a", "b"], 2);
    let mut other = slice("b", 2);
    for device in other["spec"]["devices"].as_array_mut().expect("devices") {
        device["attributes"]["productName"]["string"] = json!("A100");
    }
    testbed.slice(&other);
    let requests = json!({"requests": [{"name": "gpu", "exactly": {
        "deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1,
        "selectors": [{"cel": {"expression":
            "device.attributes['gpu.nvidia.com'].productName == 'H100'"}}],
    }}]});
    running(&mut testbed, "old", "a", &requests);
    testbed.pod(&with(pod("without", "1"), "/spec/nodeName", json!("a")));
    testbed.claim(&with(claim("new-gpu", "new"), "/spec/devices", requests));
    testbed.pod(&claiming("new"));
    assert_eq!(testbed.settle(), [("new".to_owned(), "a".to_owned())]);
    let engine = testbed.scheduler.cache.engine();
    let learned = engine.planner.saved(&engine.world.cluster).expect("a record");
    let [pending, old] = &learned.counts[..] else { panic!("{:?}", learned.counts) };
    assert_eq!(pending.shape.gpus, old.shape.gpus);
    assert_eq!(pending.shape.models.len(), 1, "{pending:?}");
    assert_eq!(pending.shape.models, old.shape.models);
    assert_eq!(pending.shape.tolerates, old.shape.tolerates);
}

#[test]
fn a_device_is_free_when_its_claim_is_deallocated_and_not_before() {
    let mut testbed = testbed(&["a"], 1);
    testbed.claim(&claim("p-gpu", "p"));
    testbed.pod(&claiming("p"));
    testbed.settle();
    testbed.drop_pod("p");
    testbed.claim(&claim("q-gpu", "q"));
    testbed.pod(&claiming("q"));
    assert_eq!(testbed.settle(), [], "the claim of p still holds it");
    testbed.claim(&claim("p-gpu", "p"));
    assert_eq!(testbed.settle(), [("q".to_owned(), "a".to_owned())]);
}

#[test]
fn a_victims_device_is_free_once_its_claim_is_deallocated() {
    let mut testbed = testbed(&["a"], 1);
    testbed.claim(&claim("low-gpu", "low"));
    testbed.pod(&claiming("low"));
    testbed.settle();
    testbed.claim(&claim("high-gpu", "high"));
    testbed.pod(&with(claiming("high"), "/spec/priority", json!(100)));
    let ops = testbed.ops();
    assert!(ops.iter().any(|op| matches!(op.kind, OpKind::Evict(_))), "{ops:?}");
    for op in &ops {
        testbed.complete(op);
    }
    testbed.drop_pod("low");
    assert_eq!(testbed.settle(), [], "its claim is not deallocated yet");
    testbed.claim(&claim("low-gpu", "low"));
    assert_eq!(testbed.settle(), [("high".to_owned(), "a".to_owned())]);
}

/// A slice of GPUs that can be shared.
fn shareable(node: &str, gpus: u32) -> Value {
    let mut slice = slice(node, gpus);
    for device in slice["spec"]["devices"].as_array_mut().expect("devices") {
        device["allowMultipleAllocations"] = json!(true);
        device["capacity"] = json!({
            "memory": {"value": "80Gi", "requestPolicy": {
                "default": "80Gi", "validRange": {"min": "1Mi", "max": "80Gi", "step": "1Mi"},
            }},
            "compute": {"value": "100", "requestPolicy": {
                "default": "0", "validRange": {"min": "0", "max": "100"},
            }},
        });
    }
    slice
}

#[test]
fn quarter_shares_are_packed_on_one_gpu() {
    let mut testbed = Testbed::new();
    testbed.class(&class());
    for name in ["a", "b"] {
        testbed.node(&node(name, 64));
        testbed.slice(&shareable(name, 8));
    }
    let mut taken = Vec::new();
    for number in 0..4 {
        let name = format!("p{number}");
        let mut share = claim(&format!("{name}-gpu"), &name);
        share["spec"]["devices"]["requests"][0]["exactly"]["capacity"] =
            json!({"requests": {"memory": "20Gi", "compute": "25"}});
        testbed.claim(&share);
        testbed.pod(&claiming(&name));
        for (bind, op) in binds(&mut testbed) {
            taken.extend(devices(&bind));
            testbed.complete(&op);
        }
    }
    assert_eq!(taken, ["a/gpu-0"; 4]);
}

#[test]
fn the_allocator_runs_once_per_node_for_equal_members() {
    let nodes: Vec<_> = (0..8).map(|number| format!("n{number}")).collect();
    let nodes: Vec<_> = nodes.iter().map(String::as_str).collect();
    let mut testbed = testbed(&nodes, 1);
    testbed.object(&super::fixtures::pod_group("g", 9, json!({})));
    let alike = |name: &str| {
        let same = json!([{"matchAttribute": "gpu.nvidia.com/productName"}]);
        with(claim(&format!("{name}-gpu"), name), "/spec/devices/constraints", same)
    };
    let labels = json!({"octavo.dev/pod-group": "g"});
    for number in 0..9 {
        let name = format!("p{number}");
        testbed.claim(&alike(&name));
        testbed.pod(&with(claiming(&name), "/metadata/labels", labels.clone()));
    }
    assert_eq!(testbed.settle(), []);
    let asked = testbed.scheduler.cache.devices().times_asked();
    assert!((1..=8).contains(&asked), "{asked} for 8 nodes and 9 members");
    // Unschedulable members are checked again, but not on unchanged nodes.
    testbed.node(&node("other", 1));
    assert_eq!(testbed.settle(), []);
    assert!(testbed.scheduler.cache.devices().times_asked() <= asked + 1);
    testbed.node(&node("more", 64));
    testbed.slice(&slice("more", 1));
    assert_eq!(testbed.settle().len(), 9);
}

#[test]
fn a_scheduler_with_another_name_uses_the_devices_that_are_kept_for_it() {
    let config = SchedulerConfig { scheduler_name: "gpu".to_owned(), ..SchedulerConfig::default() };
    let mut testbed = Testbed::with_config(config);
    testbed.class(&class());
    for (name, owner) in [("a", "octavo"), ("b", "gpu")] {
        testbed.node(&with(node(name, 64), "/metadata/labels/octavo.dev~1scheduler", json!("gpu")));
        let taint = json!([
            {"key": "octavo.dev/scheduler", "value": owner, "effect": "NoSchedule"}
        ]);
        testbed.slice(&with(slice(name, 1), "/spec/devices/0/taints", taint));
    }
    for name in ["p", "q"] {
        testbed.claim(&claim(&format!("{name}-gpu"), name));
        testbed.pod(&with(claiming(name), "/spec/schedulerName", json!("gpu")));
    }
    let binds = binds(&mut testbed);
    let devices: Vec<_> = binds.iter().flat_map(|(bind, _)| devices(bind)).collect();
    assert_eq!(devices, ["b/gpu-0"], "the other node's agent keeps its device for octavo");
}

#[test]
fn gpus_of_a_device_plugin_are_used_on_own_nodes_only() {
    let mut testbed = Testbed::new();
    let mut theirs = plugin_node("a");
    theirs["metadata"]["labels"].as_object_mut().expect("labels").remove("octavo.dev/scheduler");
    testbed.node(&theirs);
    testbed.pod(&gpu_pod("p", 1));
    assert_eq!(testbed.settle(), [], "kube-scheduler gives the same GPUs");
    let taint = |scheduler: &str| json!([{"key": "octavo.dev/scheduler", "value": scheduler, "effect": "NoSchedule"}]);
    testbed.node(&with(plugin_node("b"), "/spec/taints", taint("another")));
    assert_eq!(testbed.settle(), [], "another scheduler's node");
    testbed.node(&with(plugin_node("c"), "/spec/taints", taint("octavo")));
    assert_eq!(testbed.settle(), [("p".to_owned(), "c".to_owned())], "no toleration is needed");
}
