//! The health of GPUs on a real API server: policies, permits, evictions. The test stands in for the agents of its nodes.

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use octavo_api::names::CONDITION_ACCEPTED;
use octavo_api::{HealthPolicy, NodeHealth};
use octavo_lab::UpOptions;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::testbed::{OCTAVO, Testbed, eventually};

pub(crate) async fn lab() -> Testbed {
    Testbed::up_with(|state| UpOptions {
        nodes: Some("t4=1".parse().unwrap()),
        controller: Some(true),
        ..UpOptions::new(state, OCTAVO)
    })
    .await
}

pub(crate) fn parsed<K: DeserializeOwned>(object: &Value) -> K {
    serde_json::from_value(object.clone()).unwrap()
}

fn policy(name: &str, spec: &Value) -> HealthPolicy {
    parsed(&json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "HealthPolicy",
        "metadata": {"name": name}, "spec": spec,
    }))
}

/// What the API server says to a policy: its fields are not checked before.
async fn refusal(client: &Client, spec: &Value) -> String {
    let object = json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "HealthPolicy",
        "metadata": {"name": "wrong"}, "spec": spec,
    });
    let request =
        http::Request::post("/apis/octavo.dev/v1alpha1/healthpolicies?fieldValidation=Strict")
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())
            .unwrap();
    client.request::<Value>(request).await.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_are_refused_with_field_and_reason_or_accepted() {
    let testbed = lab().await;
    let selector = json!({"pool": "h100"});
    for (field, spec) in [
        ("spec.nodeSelector", json!({"nodeSelector": {}})),
        ("spec.nodeSelector", json!({"mode": "Act"})),
        (
            "spec.budget.remediesPercent",
            json!({"nodeSelector": selector, "budget": {"remediesPercent": -1}}),
        ),
        ("spec.remedies[0]", json!({"nodeSelector": selector, "remedies": ["prayer"]})),
        (
            "each must be harsher",
            json!({"nodeSelector": selector, "remedies": ["reboot", "resetBus"]}),
        ),
        ("spec.mode", json!({"nodeSelector": selector, "mode": "Hope"})),
        ("spec.test", json!({"nodeSelector": selector, "test": "Prayer"})),
        ("spec.networkCards", json!({"nodeSelector": selector, "networkCards": "Off"})),
        ("spec.rebootBy", json!({"nodeSelector": selector, "rebootBy": "Anyone"})),
        ("spec.xidClasses.31", json!({"nodeSelector": selector, "xidClasses": {"31": "deadly"}})),
        ("spec.colour", json!({"nodeSelector": selector, "colour": "red"})),
        (
            "kind must be that of a template",
            json!({"nodeSelector": selector, "template": {"remedies": ["reboot"],
                "apiVersion": "r.example/v1", "kind": "Restart", "namespace": "ops", "name": "t"}}),
        ),
        (
            "spec.template.remedies[0]",
            json!({"nodeSelector": selector, "template": {"remedies": ["resetBus"],
                "apiVersion": "r.example/v1", "kind": "RestartTemplate", "namespace": "ops", "name": "t"}}),
        ),
    ] {
        let error = refusal(&testbed.client, &spec).await;
        assert!(error.contains(field), "wanted {field}: {error}");
    }
    let policies: Api<HealthPolicy> = Api::all(testbed.client.clone());
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/health/policy.yaml");
    let example: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(example).unwrap()).unwrap();
    policies.create(&PostParams::default(), &parsed(&example)).await.unwrap();
    // The schema has no list of XIDs that are not used.
    let unused = json!({"nodeSelector": selector, "xidClasses": {"5": "reset"}});
    policies.create(&PostParams::default(), &policy("unused", &unused)).await.unwrap();
    let accepted = async |name: &str| {
        eventually("the controller says whether it accepts", || async {
            let status = policies.get(name).await.ok()?.status?;
            let is_it = |it: &&octavo_api::Condition| it.type_ == CONDITION_ACCEPTED;
            let found = status.conditions.iter().find(is_it)?;
            Some((found.status.clone(), found.message.clone()))
        })
        .await
    };
    assert_eq!(accepted("h100").await.0, "True");
    let (status, message) = accepted("unused").await;
    assert_eq!(status, "False");
    assert!(message.starts_with("xidClasses.5: "), "{message}");
}

/// A node without kubelet and agent, with a GPU that its agent reports as fenced.
pub(crate) async fn sick_node(client: &Client, name: &str, occupied: bool) {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({"metadata": {"name": name, "labels": {"pool": "sick"}}});
    nodes.create(&PostParams::default(), &parsed(&node)).await.unwrap();
    let healths: Api<NodeHealth> = Api::all(client.clone());
    let health = json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "NodeHealth",
        "metadata": {"name": name}, "spec": {},
    });
    healths.create(&PostParams::default(), &parsed(&health)).await.unwrap();
    let record = json!({
        "track": {
            "state": {"fenced": {"reason": {"xid": 48}, "needs": "resetFunction"}},
            "since": 1_000, "returned": null, "hasFailed": true, "relapses": 0, "isHeld": false,
            "tried": "test", "retires": null, "attempt": 3,
        },
        "history": octavo_health_history(), "evictsSince": null,
    });
    let status = json!({"status": {"inService": 0, "total": 1, "devices": [{
        "uuid": format!("GPU-{name}"), "name": "gpu-0", "state": "Fenced", "reason": "Xid",
        "since": "1970-01-01T00:16:40Z", "needs": "resetFunction", "attempt": 3,
        "resetsAlone": true, "occupied": occupied, "record": record,
    }]}});
    let patch = Patch::Merge(&status);
    healths.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// A history without events.
fn octavo_health_history() -> Value {
    json!({"asOf": 0, "blame": 0, "exposure": 0, "logOdds": 0, "unfaded": 0})
}

/// A pod on a node with its GPU.
pub(crate) async fn pod_with_gpu(client: &Client, node: &str) {
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), "default");
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}});
    let claim = json!({"metadata": {"name": "gpu"}, "spec": {"devices": {"requests": [request]}}});
    claims.create(&PostParams::default(), &parsed(&claim)).await.unwrap();
    let result =
        json!({"request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": "gpu-0"});
    let status = json!({"status": {"allocation": {"devices": {"results": [result]}}}});
    let patch = Patch::Merge(&status);
    claims.patch_status("gpu", &PatchParams::default(), &patch).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    for (name, has_gpu) in [("sick", true), ("well", false)] {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "octavo.dev/test"}]},
        });
        if has_gpu {
            pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "gpu"}]);
        }
        pods.create(&PostParams::default(), &parsed(&pod)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_gpu_is_allowed_its_reset_and_loses_its_pod_within_the_budget() {
    let testbed = lab().await;
    let client = &testbed.client;
    let spec = json!({"nodeSelector": {"pool": "sick"}, "mode": "Act", "evict": true,
        "breaker": {"nodes": 100}});
    sick_node(client, "idle-0", false).await;
    sick_node(client, "idle-1", false).await;
    sick_node(client, "sick-0", true).await;
    pod_with_gpu(client, "sick-0").await;
    let policies: Api<HealthPolicy> = Api::all(client.clone());
    policies.create(&PostParams::default(), &policy("sick", &spec)).await.unwrap();

    let healths: Api<NodeHealth> = Api::all(client.clone());
    let orders = async |node: &str| {
        let health = healths.get(node).await.ok()?;
        health.spec.devices.into_iter().next()
    };
    let permit =
        eventually("a reset is allowed", || async { orders("idle-0").await?.permit }).await;
    assert_eq!(serde_json::to_value(permit.remedy).unwrap(), "resetFunction");
    assert_eq!(permit.after_attempt, 3);
    eventually("an eviction is ordered", || async { orders("sick-0").await?.evicts_since }).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    eventually("the pod leaves", || async {
        let pod = pods.get_opt("sick").await.ok()?;
        pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()).then_some(())
    })
    .await;
    let well = pods.get("well").await.unwrap();
    assert!(well.metadata.deletion_timestamp.is_none(), "it has no sick GPU");
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    eventually("an event says why", || async {
        let found = events.list(&ListParams::default()).await.ok()?;
        let is_it = |event: &Event| event.reason.as_deref() == Some("GpuOutOfService");
        found.items.iter().any(is_it).then_some(())
    })
    .await;
    let other = orders("idle-1").await;
    assert!(other.is_none_or(|orders| orders.permit.is_none()), "one of three nodes at once");

    // What the agent did counts: its next attempt ends the permit.
    let status = json!([{"op": "replace", "path": "/status/devices/0/record/track/attempt", "value": 4},
        {"op": "replace", "path": "/status/devices/0/record/track/state", "value": "healthy"}]);
    let patch: Patch<()> = Patch::Json(parsed(&status));
    healths.patch_status("idle-0", &PatchParams::default(), &patch).await.unwrap();
    eventually("the other node has its turn", || async { orders("idle-1").await?.permit }).await;
    eventually("the permit is gone", || async {
        orders("idle-0").await.is_none_or(|orders| orders.permit.is_none()).then_some(())
    })
    .await;
}

/// A node whose GPUs fail: its agent fences alone, the controller permits, the agent resets and tests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gpu_that_fails_is_reset_once_idle_and_returns_tested_and_a_person_goes_first() {
    const NODE: &str = "dgx-h100-0";
    let testbed = Testbed::up_with(|state| UpOptions {
        nodes: Some("dgx-h100=1".parse().unwrap()),
        controller: Some(true),
        ..UpOptions::new(state, OCTAVO)
    })
    .await;
    let client = &testbed.client;
    let healths: Api<NodeHealth> = Api::all(client.clone());
    let device = async |index: usize| {
        let status = healths.get(NODE).await.ok()?.status?;
        status.devices.into_iter().nth(index)
    };
    let state = async |index: usize, wanted: &str| {
        eventually(&format!("GPU {index} is {wanted}"), || async {
            device(index).await.filter(|device| device.state == wanted)
        })
        .await
    };
    state(7, "Healthy").await;
    let owners = healths.get(NODE).await.unwrap().metadata.owner_references.unwrap();
    assert_eq!((owners[0].kind.as_str(), owners[0].name.as_str()), ("Node", NODE));

    // Without a policy a GPU is fenced, and waits for a person.
    testbed.octavo_ok(&["lab", "gpu", NODE, "3", "fail", "--xid", "48"]);
    let fenced = state(3, "Fenced").await;
    assert_eq!(fenced.waits.as_deref(), Some("RemedyByPerson"), "{fenced:?}");
    assert!(fenced.message.is_some_and(|message| message.contains("XID 48")));

    let policies: Api<HealthPolicy> = Api::all(client.clone());
    let spec = json!({"nodeSelector": {"kubernetes.io/hostname": NODE}, "mode": "Act",
        "times": {"shortTestSeconds": 2}});
    policies.create(&PostParams::default(), &policy("act", &spec)).await.unwrap();
    let back = state(3, "Probation").await;
    assert_eq!((back.attempt, back.needs), (1, None), "one reset, with its test");
    let policy = healths.get(NODE).await.unwrap().status.unwrap().policy.unwrap();
    assert_eq!(policy.name, "act");

    // A reset that mends nothing is followed by a harsher one, and that by one that a person is to apply.
    let in_vain = ["lab", "gpu", NODE, "5", "set", "--reset-in-vain", "true"];
    testbed.octavo_ok(&in_vain);
    testbed.octavo_ok(&["lab", "gpu", NODE, "5", "fail", "--xid", "48"]);
    eventually("GPU 5 has had both resets", || async {
        let device = device(5).await?;
        let needs = serde_json::to_value(device.needs?).unwrap();
        let is_person_s = device.waits.as_deref() == Some("RemedyByPerson");
        (device.state == "Fenced" && needs == "reboot" && is_person_s).then_some(())
    })
    .await;
    assert!(device(5).await.unwrap().attempt >= 3, "the second one in this node");

    // A person's word: the controller leaves the GPU alone.
    let word = async |word: &str, number: i64, uuid: &str| {
        let order = json!({"word": word, "number": number});
        let patch = json!({
            "apiVersion": "octavo.dev/v1alpha1", "kind": "NodeHealth",
            "metadata": {"name": NODE},
            "spec": {"devices": [{"uuid": uuid, "order": order}]},
        });
        let params = PatchParams::apply("person").force();
        healths.patch(NODE, &params, &Patch::Apply(&patch)).await.unwrap();
    };
    let uuid = device(1).await.unwrap().uuid;
    word("Fence", 1, &uuid).await;
    let held = state(1, "Fenced").await;
    assert_eq!((held.reason.as_deref(), held.order), (Some("Operator"), 1));
    word("Release", 2, &uuid).await;
    state(1, "Probation").await;
}

/// The port of a network card goes down: its GPU alone takes no new pods, and waits untested until the port is up. A new agent knows that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gpu_waits_for_the_port_of_its_network_card() {
    const NODE: &str = "dgx-h100-0";
    let testbed = Testbed::up_with(|state| UpOptions {
        nodes: Some("dgx-h100=1".parse().unwrap()),
        controller: Some(true),
        ..UpOptions::new(state, OCTAVO)
    })
    .await;
    let client = &testbed.client;
    let policies: Api<HealthPolicy> = Api::all(client.clone());
    let selector = json!({"kubernetes.io/hostname": NODE});
    let spec = json!({"nodeSelector": selector, "times": {"shortTestSeconds": 2}});
    policies.create(&PostParams::default(), &policy("short", &spec)).await.unwrap();
    let healths: Api<NodeHealth> = Api::all(client.clone());
    let device = async |index: usize| {
        let status = healths.get(NODE).await.ok()?.status?;
        status.devices.into_iter().nth(index)
    };
    let waits = async || {
        eventually("GPU 2 waits for its card", || async {
            let found = device(2).await?;
            let is_waiting = found.waits.as_deref() == Some("TestNotPossible");
            (found.state == "Suspect" && is_waiting).then_some(found)
        })
        .await
    };
    let set =
        |value: &str| testbed.octavo_ok(&["lab", "gpu", NODE, "2", "set", "--nic-down", value]);
    eventually("the policy is in force", || async {
        healths.get(NODE).await.ok()?.status?.policy.map(drop)
    })
    .await;
    // The agent has seen the port up once it has read the GPUs.
    set("true");
    let waiting = waits().await;
    assert_eq!((waiting.reason.as_deref(), waiting.attempt), (Some("NetworkCard"), 0));
    assert!(waiting.message.is_some_and(|text| text.contains("mlx5_4 is down")));
    assert_eq!(device(1).await.unwrap().state, "Healthy");
    testbed.lab.kill(octavo_lab::Component::Agents).await;
    testbed.lab.start(octavo_lab::Component::Agents).await.unwrap();
    // A look of the new agent at the ports.
    testbed.octavo_ok(&["lab", "gpu", NODE, "4", "set", "--nic-down", "true"]);
    eventually("GPU 4 is suspect, too", || async {
        device(4).await.filter(|device| device.state == "Suspect")
    })
    .await;
    assert_eq!(waits().await.attempt, 0, "untested");
    set("false");
    let back = eventually("GPU 2 is back", || async {
        device(2).await.filter(|device| device.state == "Probation")
    })
    .await;
    assert_eq!(back.attempt, 1, "one test");
    assert_eq!(device(4).await.unwrap().state, "Suspect");
}
