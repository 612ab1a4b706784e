use serde_json::{Value, json};

use super::kit::{Bed, node, pod, with};
use crate::bind::{Bind, OpKind};

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

pub(super) fn bed(nodes: &[&str], gpus: u32) -> Bed {
    let mut bed = Bed::new();
    bed.class(&class());
    for name in nodes {
        bed.node(&node(name, 64));
        bed.slice(&slice(name, gpus));
    }
    bed
}

fn binds(bed: &mut Bed) -> Vec<(Bind, crate::bind::WriteOp)> {
    let orders = bed.orders();
    let bind = |order: crate::bind::WriteOp| match &order.kind {
        OpKind::Bind(bind) => Some((bind.clone(), order.clone())),
        _ => None,
    };
    orders.into_iter().filter_map(bind).collect()
}

fn devices(bind: &Bind) -> Vec<String> {
    let claims = bind.claims.iter().filter_map(|claim| claim.allocation.as_ref());
    let extended = bind.extended.iter().map(|extended| &extended.allocation);
    let results = claims.chain(extended).flat_map(|one| &one.allocation.results);
    results.map(|result| format!("{}/{}", result.pool, result.device)).collect()
}

#[test]
fn pods_with_claims_get_devices_of_their_own() {
    let mut bed = bed(&["a", "b"], 2);
    for number in 0..5 {
        let name = format!("p{number}");
        bed.claim(&claim(&format!("{name}-gpu"), &name));
        bed.pod(&claiming(&name));
    }
    let binds = binds(&mut bed);
    let mut all: Vec<_> = binds.iter().flat_map(|(bind, _)| devices(bind)).collect();
    all.sort();
    assert_eq!(all, ["a/gpu-0", "a/gpu-1", "b/gpu-0", "b/gpu-1"]);
    for (_, order) in &binds {
        bed.carry_out(order);
    }
    assert_eq!(bed.settle(), []);
    let (reason, message) = bed.reason("p4").expect("a reason");
    assert_eq!(reason, "Unschedulable", "{message}");
}

#[test]
fn a_claim_that_is_not_made_yet_is_waited_for() {
    let mut bed = bed(&["a"], 1);
    let mut waiting = claiming("p");
    waiting["status"].as_object_mut().expect("a status").remove("resourceClaimStatuses");
    bed.pod(&waiting);
    assert_eq!(bed.settle(), []);
    assert_eq!(bed.reason("p"), None, "it is not told before it should have passed");
    assert_eq!(bed.after(6000), []);
    assert_eq!(bed.reason("p").map(|(reason, _)| reason), Some("WaitingForClaims"));
    bed.claim(&claim("p-gpu", "p"));
    bed.pod(&claiming("p"));
    assert_eq!(bed.settle(), [("p".to_owned(), "a".to_owned())]);
}

#[test]
fn an_extended_resource_is_served_by_a_claim_of_the_orders_own() {
    let mut bed = bed(&["a"], 1);
    bed.pod(&super::kit::gpu_pod("p", 1));
    bed.pod(&super::kit::gpu_pod("q", 1));
    let binds = binds(&mut bed);
    let [(bind, _)] = &binds[..] else { panic!("one: {binds:?}") };
    assert_eq!(devices(bind), ["a/gpu-0"]);
    let extended = bind.extended.as_ref().expect("a claim to make");
    assert_eq!(extended.claim.mappings.len(), 1);
    assert!(bed.reason("q").is_some());
}

#[test]
fn devices_of_nodes_that_others_own_are_left_alone() {
    let mut bed = Bed::new();
    bed.class(&class());
    let mut theirs = node("a", 64);
    theirs["metadata"]["labels"].as_object_mut().expect("labels").remove("octavo.dev/scheduler");
    bed.node(&theirs);
    bed.slice(&slice("a", 1));
    bed.claim(&claim("p-gpu", "p"));
    bed.pod(&claiming("p"));
    assert_eq!(bed.settle(), []);
    bed.node(&node("a", 64));
    assert_eq!(bed.settle(), [("p".to_owned(), "a".to_owned())]);
}

#[test]
fn half_done_work_of_an_earlier_scheduler_is_finished() {
    let mut bed = bed(&["a", "b"], 1);
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
    bed.claim(&allocated);
    bed.pod(&claiming("p"));
    let binds = binds(&mut bed);
    let [(bind, order)] = &binds[..] else { panic!("one: {binds:?}") };
    assert_eq!(&*bind.node, "b");
    assert_eq!(devices(bind), Vec::<String>::new(), "nothing is allocated again");
    bed.carry_out(order);
    // Its device is its own.
    bed.claim(&claim("q-gpu", "q"));
    bed.pod(&claiming("q"));
    assert_eq!(bed.settle(), [("q".to_owned(), "a".to_owned())]);
}

#[test]
fn a_device_is_free_when_its_claim_is_deallocated_and_not_before() {
    let mut bed = bed(&["a"], 1);
    bed.claim(&claim("p-gpu", "p"));
    bed.pod(&claiming("p"));
    bed.settle();
    bed.drop_pod("p");
    bed.claim(&claim("q-gpu", "q"));
    bed.pod(&claiming("q"));
    assert_eq!(bed.settle(), [], "the claim of p still has it");
    bed.claim(&claim("p-gpu", "p"));
    assert_eq!(bed.settle(), [("q".to_owned(), "a".to_owned())]);
}

#[test]
fn a_preempted_pods_device_is_given_on_when_its_claim_lets_it_go() {
    let mut bed = bed(&["a"], 1);
    bed.claim(&claim("low-gpu", "low"));
    bed.pod(&claiming("low"));
    bed.settle();
    bed.claim(&claim("high-gpu", "high"));
    bed.pod(&with(claiming("high"), "/spec/priority", json!(100)));
    let orders = bed.orders();
    assert!(orders.iter().any(|order| matches!(order.kind, OpKind::Evict(_))), "{orders:?}");
    for order in &orders {
        bed.carry_out(order);
    }
    bed.drop_pod("low");
    assert_eq!(bed.settle(), [], "its claim is not deallocated yet");
    bed.claim(&claim("low-gpu", "low"));
    assert_eq!(bed.settle(), [("high".to_owned(), "a".to_owned())]);
}

/// A slice of GPUs of which parts can be had.
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
fn quarters_break_one_gpu_and_not_more() {
    let mut bed = Bed::new();
    bed.class(&class());
    for name in ["a", "b"] {
        bed.node(&node(name, 64));
        bed.slice(&shareable(name, 8));
    }
    let mut taken = Vec::new();
    for number in 0..4 {
        let name = format!("p{number}");
        let mut share = claim(&format!("{name}-gpu"), &name);
        share["spec"]["devices"]["requests"][0]["exactly"]["capacity"] =
            json!({"requests": {"memory": "20Gi", "compute": "25"}});
        bed.claim(&share);
        bed.pod(&claiming(&name));
        for (bind, order) in binds(&mut bed) {
            taken.extend(devices(&bind));
            bed.carry_out(&order);
        }
    }
    assert_eq!(taken, ["a/gpu-0"; 4]);
}

#[test]
fn the_allocator_is_asked_once_for_a_gang_whose_members_want_the_same() {
    let nodes: Vec<_> = (0..8).map(|number| format!("n{number}")).collect();
    let nodes: Vec<_> = nodes.iter().map(String::as_str).collect();
    let mut bed = bed(&nodes, 1);
    bed.object(&super::kit::pod_group("g", 9, json!({})));
    let alike = |name: &str| {
        let same = json!([{"matchAttribute": "gpu.nvidia.com/productName"}]);
        with(claim(&format!("{name}-gpu"), name), "/spec/devices/constraints", same)
    };
    let labels = json!({"octavo.dev/pod-group": "g"});
    for number in 0..9 {
        let name = format!("p{number}");
        bed.claim(&alike(&name));
        bed.pod(&with(claiming(&name), "/metadata/labels", labels.clone()));
    }
    assert_eq!(bed.settle(), []);
    let asked = bed.core.devices.times_asked();
    assert!((1..=8).contains(&asked), "{asked} for 8 nodes and 9 members");
    // Who is refused asks again, but not where nothing has changed.
    bed.node(&node("other", 1));
    assert_eq!(bed.settle(), []);
    assert!(bed.core.devices.times_asked() <= asked + 1);
    bed.node(&node("more", 64));
    bed.slice(&slice("more", 1));
    assert_eq!(bed.settle().len(), 9);
}
