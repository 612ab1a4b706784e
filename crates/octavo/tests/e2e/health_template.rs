//! Remedies of nodes by objects of another program, on a real API server. The test stands in for that program and for the agent.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use octavo_api::names::CONDITION_TEMPLATE_USABLE;
use octavo_api::{Condition, HealthPolicy, NodeHealth};
use serde_json::{Value, json};

use crate::health::{lab, parsed, sick_node};
use crate::testbed::eventually;

const GROUP: &str = "remediation.example.com";

/// A definition as those of medik8s: any spec, and a status.
fn definition(kind: &str) -> CustomResourceDefinition {
    let plural = format!("{}s", kind.to_lowercase());
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    parsed(&json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}},
            }],
        },
    }))
}

fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(GROUP, "v1alpha1", kind);
    Api::namespaced_with(client.clone(), "default", &ApiResource::from_gvk(&gvk))
}

async fn set_state(client: &Client, node: &str, state: &Value, attempt: u64) {
    let healths: Api<NodeHealth> = Api::all(client.clone());
    let patch = json!([
        {"op": "replace", "path": "/status/devices/0/record/track/state", "value": state},
        {"op": "replace", "path": "/status/devices/0/record/track/attempt", "value": attempt},
        // A remedy that began long ago would be over its time limit.
        {"op": "replace", "path": "/status/devices/0/record/track/since", "value": k8s_openapi::jiff::Timestamp::now().as_second()},
    ]);
    let patch: Patch<()> = Patch::Json(parsed(&patch));
    healths.patch_status(node, &PatchParams::default(), &patch).await.unwrap();
}

async fn usable(client: &Client) -> Option<Condition> {
    let policies: Api<HealthPolicy> = Api::all(client.clone());
    let status = policies.get("reboots").await.ok()?.status?;
    status.conditions.into_iter().find(|condition| condition.type_ == CONDITION_TEMPLATE_USABLE)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_program_reboots_nodes_by_objects_of_a_template() {
    let testbed = lab().await;
    let client = &testbed.client;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for kind in ["Restart", "RestartTemplate"] {
        definitions.create(&PostParams::default(), &definition(kind)).await.unwrap();
    }
    let (objects, templates) = (api(client, "Restart"), api(client, "RestartTemplate"));
    let template = json!({
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "RestartTemplate",
        "metadata": {"name": "restart"},
        "spec": {"template": {"spec": {"strategy": "Automatic"}}},
    });
    eventually("the definitions are served", || async {
        templates.create(&PostParams::default(), &parsed(&template)).await.ok()
    })
    .await;
    sick_node(client, "lost", false).await;
    let policy = json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "HealthPolicy", "metadata": {"name": "reboots"},
        "spec": {"nodeSelector": {"pool": "sick"}, "mode": "Act", "template": {
            "remedies": ["reboot", "powerCycle"], "apiVersion": format!("{GROUP}/v1alpha1"),
            "kind": "RestartTemplate", "namespace": "default", "name": "restart",
        }},
    });
    let policies: Api<HealthPolicy> = Api::all(client.clone());
    policies.create(&PostParams::default(), &parsed(&policy)).await.unwrap();

    // Rights on kinds of others are an administrator's to give.
    let refused = eventually("the missing right is named", || async {
        usable(client).await.filter(|found| found.status == "False")
    })
    .await;
    assert!(refused.message.contains("health.remediationRules"), "{refused:?}");
    let role: ClusterRole = parsed(&json!({
        "metadata": {"name": "remediations"},
        "rules": [{
            "apiGroups": [GROUP], "resources": ["restarts", "restarttemplates"],
            "verbs": ["get", "list", "create", "delete"],
        }],
    }));
    Api::all(client.clone()).create(&PostParams::default(), &role).await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let mut binding = bindings.get("octavo-controller").await.unwrap();
    binding.metadata = parsed(&json!({"name": "remediations"}));
    binding.role_ref.name = "remediations".to_owned();
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    eventually("the template can be used", || async {
        usable(client).await.filter(|found| found.status == "True")
    })
    .await;

    let resetting = json!({"resetting": {"reason": {"xid": 79}, "remedy": "reboot"}});
    set_state(client, "lost", &resetting, 4).await;
    let made =
        eventually("the object is made", || async { objects.get_opt("lost").await.ok()? }).await;
    assert_eq!(made.data["spec"], json!({"strategy": "Automatic"}));
    let owners = made.metadata.owner_references.clone().unwrap();
    assert_eq!((&*owners[0].kind, &*owners[0].name), ("HealthPolicy", "reboots"));
    // The controller does not make it twice, also after it started again.
    testbed.lab.stop(octavo_lab::Component::OctavoController).await;
    testbed.lab.start(octavo_lab::Component::OctavoController).await.unwrap();
    let failed = json!({"status": {"conditions": [{"type": "Succeeded", "status": "False", "message": "no answer"}]}});
    objects.patch_status("lost", &PatchParams::default(), &Patch::Merge(&failed)).await.unwrap();
    let failed = eventually("the failure is named", || async {
        usable(client).await.filter(|found| found.reason == "RemediationFailed")
    })
    .await;
    assert!(failed.message.contains("no answer"), "{failed:?}");
    assert_eq!(objects.get("lost").await.unwrap().metadata.uid, made.metadata.uid);
    // The agent's next attempt has an object of its own.
    let resetting = json!({"resetting": {"reason": {"xid": 79}, "remedy": "powerCycle"}});
    set_state(client, "lost", &resetting, 5).await;
    eventually("the next attempt has its object", || async {
        let found = objects.get_opt("lost").await.ok()??;
        (found.metadata.uid != made.metadata.uid).then_some(())
    })
    .await;
    let verifying = json!({"verifying": {"reason": {"xid": 79}, "after": "powerCycle"}});
    set_state(client, "lost", &verifying, 6).await;
    eventually("the object is gone", || async {
        let left = objects.list(&ListParams::default()).await.ok()?;
        left.items.is_empty().then_some(())
    })
    .await;
}
